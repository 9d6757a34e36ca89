#!/usr/bin/env python3
"""Writes golden/optimizers.json: what other implementations make of a few parameters and gradients, and learning rates.

PyTorch computes SGD, momentum, Nesterov, Adam and AdamW, in fp64; LAMB, LARC, NovoGrad and the schedules are written out
here from the papers and from the implementations that optimizer.hpp and learning_rate_schedule.hpp name.
    python3 optimizer_goldens.py > golden/optimizers.json
"""
import json
import math
import random

import torch

STEPS = 7
SCALE = 0.5  # of gradients, as clipping would
SHAPES = {"kernel": (4, 3), "table": (5, 2), "bias": (1, 3), "still": (2, 2)}
RATES = [0.1, 0.2, 0.15, 0.1, 0.05, 0.3, 0.1]


def rounded(values):
    """Of which every value is a float, so that fp32 and fp64 start from the same."""
    return torch.tensor(values, dtype=torch.float32).double().tolist()


def problem():
    draw = random.Random(5)
    start, gradients = {}, []
    for name, (rows, cols) in SHAPES.items():
        zero = name == "bias"
        start[name] = rounded([0.0 if zero else draw.uniform(-1, 1) for _ in range(rows * cols)])
    for step in range(STEPS):
        gradients.append({})
        for name, (rows, cols) in SHAPES.items():
            zero = name == "still" or (name == "bias" and step == 0)
            values = [0.0 if zero else draw.gauss(0, 0.2 if step % 2 else 2) for _ in range(rows * cols)]
            gradients[-1][name] = rounded(values)
    return start, gradients


START, GRADIENTS = problem()


def decays(name):
    return SHAPES[name][0] > 1


def by_torch(make, weight_decay=0.0):
    tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in START.items()}
    optimizer = make([{"params": [t], "weight_decay": weight_decay if decays(name) else 0.0}
                      for name, t in tensors.items()])
    for rate, gradients in zip(RATES, GRADIENTS):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, tensor in tensors.items():
            tensor.grad = SCALE * torch.tensor(gradients[name], dtype=torch.float64)
        optimizer.step()
    return {name: tensor.tolist() for name, tensor in tensors.items()}


def norm(values):
    return math.sqrt(sum(x * x for x in values))


def by_hand(update):
    """update(name, w, g, state, rate, step) returns the next w."""
    result = {}
    for name, start in START.items():
        w, state = list(start), {}
        for step in range(STEPS):
            g = [SCALE * x for x in GRADIENTS[step][name]]
            w = update(name, w, g, state, RATES[step], step + 1)
        result[name] = w
    return result


def lamb(weight_decay, beta1=0.9, beta2=0.999, epsilon=1e-6):
    def update(name, w, g, state, rate, step):
        m = state["m"] = [beta1 * a + (1 - beta1) * b for a, b in zip(state.get("m", [0] * len(w)), g)]
        v = state["v"] = [beta2 * a + (1 - beta2) * b * b for a, b in zip(state.get("v", [0] * len(w)), g)]
        decay = weight_decay if decays(name) else 0
        u = [a / (1 - beta1 ** step) / (math.sqrt(b / (1 - beta2 ** step)) + epsilon) + decay * x
             for a, b, x in zip(m, v, w)]
        ratio = norm(w) / norm(u) if decays(name) and norm(w) > 0 and norm(u) > 0 else 1
        return [x - rate * ratio * y for x, y in zip(w, u)]
    return by_hand(update)


def novograd(weight_decay, beta1=0.95, beta2=0.98, epsilon=1e-8):
    def update(name, w, g, state, rate, step):
        square = norm(g) ** 2
        v = state.get("v", 0)
        v = state["v"] = square if v == 0 else beta2 * v + (1 - beta2) * square
        decay = weight_decay if decays(name) else 0
        step_of = [a / (math.sqrt(v) + epsilon) + decay * x for a, x in zip(g, w)]
        m = state["m"] = [beta1 * a + b for a, b in zip(state.get("m", [0] * len(w)), step_of)]
        return [x - rate * a for x, a in zip(w, m)]
    return by_hand(update)


def larc(eta, momentum, weight_decay=0.0, nesterov=False):
    def update(name, w, g, state, rate, step):
        decay = weight_decay if decays(name) else 0
        factor = 1.0
        if norm(w) > 0 and norm(g) > 0:
            factor = min(1.0, max(1e-7, eta * norm(w) / (rate * (norm(g) + decay * norm(w) + 1e-7))))
        g = [factor * (a + decay * x) for a, x in zip(g, w)]
        m = state["m"] = [momentum * a + b for a, b in zip(state.get("m", [0] * len(w)), g)]
        if nesterov:
            m = [a + momentum * b for a, b in zip(g, m)]
        return [x - rate * a for x, a in zip(w, m)]
    return by_hand(update)


def optimizers():
    sgd = torch.optim.SGD
    momentum = lambda **more: lambda groups: sgd(groups, lr=1, momentum=0.8, **more)
    adam = dict(lr=1, betas=(0.85, 0.98), eps=1e-7)
    adam_flags = {"adam_beta1": 0.85, "adam_beta2": 0.98, "adam_epsilon": 1e-7}
    return [
        ({"optimizer": "sgd"}, by_torch(lambda groups: sgd(groups, lr=1))),
        ({"optimizer": "sgd", "weight_decay": 0.1}, by_torch(lambda groups: sgd(groups, lr=1), 0.1)),
        ({"optimizer": "momentum", "momentum": 0.8}, by_torch(momentum())),
        ({"optimizer": "momentum", "momentum": 0.8, "weight_decay": 0.1}, by_torch(momentum(), 0.1)),
        ({"optimizer": "momentum", "momentum": 0.8, "nesterov": "true", "weight_decay": 0.1},
         by_torch(momentum(nesterov=True), 0.1)),
        ({"optimizer": "adam", **adam_flags}, by_torch(lambda groups: torch.optim.Adam(groups, **adam))),
        ({"optimizer": "adamw", "weight_decay": 0.2, **adam_flags},
         by_torch(lambda groups: torch.optim.AdamW(groups, **adam), 0.2)),
        ({"optimizer": "lamb", "adam_epsilon": 1e-6, "weight_decay": 0.01}, lamb(0.01)),
        ({"optimizer": "lamb", "adam_beta1": 0.8, "adam_beta2": 0.9, "adam_epsilon": 1e-3, "weight_decay": 0},
         lamb(0, 0.8, 0.9, 1e-3)),
        ({"optimizer": "novograd", "adam_beta1": 0.95, "adam_beta2": 0.98}, novograd(0)),
        ({"optimizer": "novograd", "adam_beta1": 0.9, "adam_beta2": 0.5, "adam_epsilon": 1e-2,
          "weight_decay": 0.1}, novograd(0.1, 0.9, 0.5, 1e-2)),
        ({"optimizer": "sgd", "larc_eta": 0.02}, larc(0.02, 0)),
        ({"optimizer": "momentum", "momentum": 0.8, "larc_eta": 0.05, "weight_decay": 0.1}, larc(0.05, 0.8, 0.1)),
        ({"optimizer": "momentum", "momentum": 0.8, "nesterov": "true", "larc_eta": 0.05},
         larc(0.05, 0.8, 0, True)),
    ]


def schedules():
    base = {"learning_rate": 2, "num_train_steps": 1000}
    steps = [0, 1, 2, 50, 99, 100, 101, 399, 400, 401, 550, 699, 700, 999, 1000, 1001, 5000]

    def warmed(flags, decayed):
        """A linear warm-up over 100 steps, times decayed(step)."""
        rates = [decayed(s) * min(1.0, (s + 1) / 100) for s in steps]
        return {**base, "warmup_steps": 100, "warmup_scheme": "linear", **flags}, rates

    def poly(power, end, begin):
        return lambda s: 2 if s < begin else end + (2 - end) * (1 - min(s - begin, 1000 - begin) / (1000 - begin)) ** power

    def cosine(end):
        return lambda s: end + (2 - end) * (1 + math.cos(math.pi * min(max(s - 100, 0), 900) / 900)) / 2

    def piecewise(s):
        return 2 * (1 if s < 400 else 0.5 if s < 700 else 0.125)

    def noam(s):
        return 2 * 512 ** -0.5 * min((s + 1) ** -0.5, (s + 1) * 100 ** -1.5)

    exp = {"decay_scheme": "exp", "start_decay_step": 400, "decay_steps": 150, "decay_factor": 0.7}
    noam_flags = {**base, "decay_scheme": "noam", "warmup_steps": 100, "num_units": 512}
    cases = [
        warmed(exp, lambda s: 2 * 0.7 ** max(0, (s - 400) // 150)),
        warmed({"decay_scheme": "poly"}, poly(1, 0, 100)),
        warmed({"decay_scheme": "poly", "decay_power": 2, "end_learning_rate": 0.5, "start_decay_step": 400},
               poly(2, 0.5, 400)),
        warmed({"decay_scheme": "cosine", "end_learning_rate": 0.25}, cosine(0.25)),
        warmed({"decay_scheme": "inverse_sqrt"}, lambda s: 2 * math.sqrt(100 / max(s + 1, 100))),
        warmed({"decay_scheme": "piecewise", "decay_boundaries": "400,700", "decay_rates": "0.5,0.125"}, piecewise),
        (noam_flags, [noam(s) for s in steps]),
        ({**base, "decay_scheme": "inverse_sqrt"}, [2 / math.sqrt(s + 1) for s in steps]),
        ({**base, "decay_scheme": "exp", "decay_steps": 1, "decay_factor": 0.99}, [2 * 0.99 ** s for s in steps]),
        ({**base, "decay_scheme": "exp", "decay_factor": 0.5, "decay_steps": 400, "warmup_steps": 100,
          "warmup_scheme": "t2t"}, [2 * 0.5 ** (s // 400) * 0.01 ** (max(0, 100 - s) / 100) for s in steps]),
    ]
    return [{"flags": flags, "steps": steps, "rates": rates} for flags, rates in cases]


def text(flags):
    return {name: str(value) for name, value in flags.items()}


print("{")
print(f' "gradient_scale": {SCALE},\n "rates": {RATES},')
print(' "parameters": [')
print(",\n".join("  " + json.dumps({"name": name, "rows": SHAPES[name][0], "cols": SHAPES[name][1],
                                    "start": START[name], "gradients": [g[name] for g in GRADIENTS]})
                 for name in SHAPES))
print(' ],\n "optimizers": [')
print(",\n".join("  " + json.dumps({"flags": text(flags), "result": result}) for flags, result in optimizers()))
print(' ],\n "schedules": [')
print(",\n".join("  " + json.dumps({**case, "flags": text(case["flags"])}) for case in schedules()))
print(" ]\n}")
