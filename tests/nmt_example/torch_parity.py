#!/usr/bin/env python3
"""Compares ddl_nmt's losses and gradients with those of an independent model in PyTorch.

Usage: torch_parity.py MODEL_GRADIENTS [--live] [--write]
Without options, with the results that are stored in golden/torch_parity.json, which needs no PyTorch. --live computes
PyTorch's anew and compares every element; --write chooses the parameters' seeds and stores the results. The model below
is tensorflow/nmt's, in fp64, for one sentence at a time, without batches and padding, from its equations and those of
TensorFlow's cells.

The error of a parameter's gradient g is |g - expected| / |expected|, in the Euclidean norm: of each gradient by itself,
however small it is. The fp64 backend is within 1e-9 of PyTorch, and the fp32 backend within 1e-5 of the fp64 one, for
every parameter of every model. That holds where fp32 can give it: some gradients, most of all the single numbers g and
scale of attentions, are small differences of large terms, whose roundings no order of operations takes away. So each
model has the first seed for which PyTorch's own gradients in fp32 are within a tenth of that bound of its fp64 ones.
--write starts with the stored seeds; to find all of them takes minutes.
"""
import argparse
import array
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).parent / "golden" / "torch_parity.json"
UNITS = ("lstm", "gru", "layer_norm_lstm", "nas")
ATTENTIONS = ("luong", "scaled_luong", "bahdanau", "normed_bahdanau")
BOUNDS = {"reference": 1e-9, "cpu": 1e-5}


def make_cases():
    base = {"num_units": 8, "num_layers": 2, "vocab_size": 13, "unit_type": "lstm", "encoder_type": "uni",
            "attention": "", "attention_architecture": "standard", "residual": False, "share_vocab": False,
            "tie_output": False, "output_attention": True, "pass_hidden_state": True, "label_smoothing": 0.1,
            "forget_bias": 0.7, "feed_context": True, "output_bias": False, "language_model": False, "num_encoder_layers": 0, "num_decoder_layers": 0}
    cases = {}

    def add(name, **flags):
        cases[name] = {**base, **flags}

    for unit in UNITS:
        for encoder in ("uni", "bi", "gnmt"):
            add(f"{unit}.{encoder}", unit_type=unit, encoder_type=encoder)
            for attention in ATTENTIONS:
                for architecture in ("standard", "gnmt", "gnmt_v2"):
                    add(f"{unit}.{encoder}.{attention}.{architecture}", unit_type=unit, encoder_type=encoder,
                        attention=attention, attention_architecture=architecture)
        add(f"{unit}.residual", unit_type=unit, num_layers=4, residual=True)
        add(f"{unit}.residual.bi", unit_type=unit, num_layers=6, residual=True, encoder_type="bi", attention="luong")
        for architecture in ("gnmt", "gnmt_v2"):
            add(f"{unit}.residual.{architecture}", unit_type=unit, num_layers=4, residual=True, encoder_type="gnmt",
                attention="normed_bahdanau", attention_architecture=architecture)
        add(f"{unit}.language_model", unit_type=unit, language_model=True)
        add(f"{unit}.tied", unit_type=unit, tie_output=True, attention="scaled_luong")
        add(f"{unit}.tied.shared", unit_type=unit, tie_output=True, share_vocab=True)
        add(f"{unit}.shared.bi", unit_type=unit, share_vocab=True, encoder_type="bi", attention="bahdanau")
        add(f"{unit}.unequal", unit_type=unit, num_encoder_layers=2, num_decoder_layers=3, attention="luong",
            pass_hidden_state=False)
        add(f"{unit}.no_output_attention", unit_type=unit, output_attention=False, attention="luong",
            encoder_type="bi", pass_hidden_state=False)
    add("residual.unequal.gnmt", num_encoder_layers=3, num_decoder_layers=4, attention="luong", residual=True,
        attention_architecture="gnmt_v2", encoder_type="gnmt", pass_hidden_state=False)
    for architecture in ("gnmt", "gnmt_v2"):
        add(f"unfed.{architecture}", num_layers=4, encoder_type="gnmt", residual=True, attention="normed_bahdanau",
            attention_architecture=architecture, feed_context=False, output_bias=True, pass_hidden_state=False)
    add("tied.bias", tie_output=True, output_bias=True)
    return cases


def command_line(name, flags):
    return " ".join([name] + [f"--{flag}={str(value).lower()}" for flag, value in flags.items()])


def read_safetensors(path):
    """Name -> (shape, flat list of floats)."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    result = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = array.array({"F64": "d", "F32": "f"}[entry["dtype"]])
        values.frombytes(data[8 + length + begin:8 + length + end])
        result[name] = (entry["shape"], list(values))
    return result


def norm(values):
    return math.sqrt(sum(x * x for x in values))


def error(values, expected):
    """Relative to the expected values' norm, which is that of a gradient, so it must not be 0."""
    return norm(a - b for a, b in zip(values, expected, strict=True)) / norm(expected)


def digest(values):
    """A sum that every element enters with a weight of its own, and the norm."""
    return [sum(x * math.cos(i + 1) for i, x in enumerate(values)), norm(values)]


class Model:
    """tensorflow/nmt's model over PyTorch tensors; `p`: the checkpoint's parameters by name."""

    def __init__(self, torch, flags, p, dtype):
        self.torch, self.flags, self.p, self.dtype = torch, flags, p, dtype
        self.units = flags["num_units"]
        self.encoder_layers = flags["num_encoder_layers"] or flags["num_layers"]
        self.decoder_layers = flags["num_decoder_layers"] or flags["num_layers"]
        gnmt = flags["encoder_type"] == "gnmt"
        residual = flags["residual"]
        self.encoder_residual = self.encoder_layers - (2 if gnmt else 1) if residual else 0
        self.decoder_residual = self.decoder_layers - 1 if residual else 0
        if residual and gnmt and self.encoder_layers == self.decoder_layers:
            self.decoder_residual = self.encoder_residual

    # Cells: (input, state) -> (output, state). A state is h or (c, h).
    def zero_state(self):
        zeros = self.torch.zeros(self.units, dtype=self.dtype)
        return (zeros,) if self.flags["unit_type"] == "gru" else (zeros, zeros)

    def cell(self, name, x, state):
        return getattr(self, self.flags["unit_type"])(name, x, state)

    def lstm(self, name, x, state):
        torch, (c, h) = self.torch, state
        i, j, f, o = (torch.cat([x, h]) @ self.p[name + "/kernel"] + self.p[name + "/bias"][0]).split(self.units)
        c = c * torch.sigmoid(f + self.flags["forget_bias"]) + torch.sigmoid(i) * torch.tanh(j)
        h = torch.tanh(c) * torch.sigmoid(o)
        return h, (c, h)

    def gru(self, name, x, state):
        torch, (h,) = self.torch, state
        gates = torch.sigmoid(torch.cat([x, h]) @ self.p[name + "/gates/kernel"] + self.p[name + "/gates/bias"][0])
        r, u = gates.split(self.units)
        candidate = torch.tanh(torch.cat([x, r * h]) @ self.p[name + "/candidate/kernel"]
                               + self.p[name + "/candidate/bias"][0])
        h = u * h + (1 - u) * candidate
        return h, (h,)

    def layer_norm_lstm(self, name, x, state):
        torch, (c, h) = self.torch, state
        gains, shifts = (self.p[name + part][0].split(self.units) for part in ("/gain", "/shift"))

        def norm(values, which):
            return torch.nn.functional.layer_norm(values, (self.units,), gains[which], shifts[which], 1e-12)

        parts = (torch.cat([x, h]) @ self.p[name + "/kernel"]).split(self.units)
        i, j, f, o = (norm(part, which) for which, part in enumerate(parts))
        c = norm(c * torch.sigmoid(f + self.flags["forget_bias"]) + torch.sigmoid(i) * torch.tanh(j), 4)
        h = torch.tanh(c) * torch.sigmoid(o)
        return h, (c, h)

    def nas(self, name, x, state):
        torch, (c, m) = self.torch, state
        xs = (x @ self.p[name + "/kernel"]).split(self.units)
        ms = (m @ self.p[name + "/recurrent_kernel"]).split(self.units)
        sigmoid, tanh, relu = torch.sigmoid, torch.tanh, torch.relu
        first = [sigmoid(xs[0] + ms[0]), relu(xs[1] + ms[1]), sigmoid(xs[2] + ms[2]), relu(xs[3] * ms[3]),
                 tanh(xs[4] + ms[4]), sigmoid(xs[5] + ms[5]), tanh(xs[6] + ms[6]), sigmoid(xs[7] + ms[7])]
        second = [tanh(first[0] * first[1]), tanh(first[2] + first[3]), tanh(first[4] * first[5]),
                  sigmoid(first[6] + first[7])]
        c = tanh(second[0] + c) * second[1]
        m = tanh(c * tanh(second[2] + second[3]))
        return m, (c, m)

    def run(self, prefix, first, count, residual, xs):
        """Layers `first` to first + count - 1 over a sequence, of which the upper `residual` add their input."""
        states = []
        for layer in range(first, first + count):
            state, outputs = self.zero_state(), []
            for x in xs:
                output, state = self.cell(f"{prefix}{self.flags['unit_type']}_{layer}", x, state)
                outputs.append(output + x if layer >= first + count - residual else output)
            xs = outputs
            states.append(state)
        return xs, states

    def table(self, side):
        return self.p["embedding/shared" if self.flags["share_vocab"] else "embedding/" + side]

    def encode(self, source):
        if self.flags["language_model"]:
            return [self.torch.zeros(0)], []
        words = [self.table("encoder")[word] for word in source]
        kind, layers = self.flags["encoder_type"], self.encoder_layers
        if kind == "uni":
            return self.run("encoder/", 0, layers, self.encoder_residual, words)
        each = layers // 2 if kind == "bi" else 1
        residual = self.encoder_residual // 2 if kind == "bi" else 0
        forward, forward_states = self.run("encoder/fw/", 0, each, residual, words)
        backward, backward_states = self.run("encoder/bw/", 0, each, residual, words[::-1])
        joined = [self.torch.cat(pair) for pair in zip(forward, backward[::-1])]
        if kind == "bi":
            return joined, [state for pair in zip(forward_states, backward_states) for state in pair]
        memory, states = self.run("encoder/", 1, layers - 1, self.encoder_residual, joined)
        return memory, backward_states + states

    def context(self, query, memory):
        torch, kind = self.torch, self.flags["attention"]
        memory = torch.stack(memory)
        keys = memory @ self.p["attention/memory_kernel"]
        if kind.endswith("luong"):
            scores = keys @ query
            if kind == "scaled_luong":
                scores = scores * self.p["attention/scale"][0, 0]
        else:
            v, summed = self.p["attention/v"][0], keys + query @ self.p["attention/query_kernel"]
            if kind == "normed_bahdanau":
                v = self.p["attention/g"][0, 0] * v / v.norm()
                summed = summed + self.p["attention/b"][0]
            scores = torch.tanh(summed) @ v
        return torch.softmax(scores, 0) @ memory

    def outputs(self, memory, states, words):
        """The vectors that the projection reads."""
        torch, layers, flags = self.torch, self.decoder_layers, self.flags
        architecture = flags["attention_architecture"] if flags["attention"] else "none"
        passes = states and self.encoder_layers == layers and (flags["pass_hidden_state"] or architecture == "none")
        states = list(states) if passes else [self.zero_state() for _ in range(layers)]
        attention = torch.zeros(self.units if architecture == "standard" else len(memory[0]), dtype=self.dtype)
        result = []
        for word in words:
            x, context = self.table("decoder")[word], attention
            for layer in range(layers):
                below = x
                if layer == 0 and not flags["feed_context"]:
                    pass
                elif architecture != "none" and layer == 0:
                    x = torch.cat([x, attention])
                elif architecture in ("gnmt", "gnmt_v2"):
                    x = torch.cat([x, context if architecture == "gnmt_v2" else attention])
                x, states[layer] = self.cell(f"decoder/{flags['unit_type']}_{layer}", x, states[layer])
                if layer >= layers - self.decoder_residual:
                    x = x + below
                if architecture in ("gnmt", "gnmt_v2") and layer == 0:
                    context = self.context(x, memory)
            if architecture == "standard":
                context = torch.cat([x, self.context(x, memory)]) @ self.p["attention/output_kernel"]
                x = context if flags["output_attention"] else x
            attention = context
            result.append(x)
        return torch.stack(result)

    def loss(self, source, target):
        """The sum of the smoothed losses of the target's words and </s>."""
        torch, e = self.torch, self.flags["label_smoothing"]
        outputs = self.outputs(*self.encode(source), [1] + target)
        kernel = self.table("decoder") if self.flags["tie_output"] else self.p["projection/kernel"]
        logits = outputs @ kernel.T
        if self.flags["output_bias"]:
            logits = logits + self.p["projection/bias"][0]
        costs = -torch.log_softmax(logits, 1)
        wanted = costs[torch.arange(len(target) + 1), torch.tensor(target + [2])]
        return ((1 - e) * wanted + e * costs.mean(1)).sum()


def of_torch(torch, flags, state, parameters, dtype):
    """Loss and gradients: name -> flat list."""
    p = {name: torch.tensor(values, dtype=dtype).reshape(shape).requires_grad_()
         for name, (shape, values) in parameters.items()}
    model = Model(torch, flags, p, dtype)
    loss = sum(model.loss(source, target) for source, target in zip(state["sources"], state["targets"]))
    loss.backward()
    return loss.item(), {name: tensor.grad.flatten().tolist() for name, tensor in p.items()}


class Results:
    """What model_gradients computes for some cases: parameters, batches, losses and gradients."""

    def __init__(self, program, cases, seeds):
        self.directory = tempfile.TemporaryDirectory()
        lines = [command_line(name, {**flags, "random_seed": seeds[name]}) for name, flags in cases.items()]
        subprocess.run([program, self.directory.name], input="\n".join(lines) + "\n", text=True, check=True)

    def folder(self, name):
        return pathlib.Path(self.directory.name) / name / "step-0000000000"

    def state(self, name):
        return json.loads((self.folder(name) / "state.json").read_text())

    def tensors(self, name, which):
        return read_safetensors(self.folder(name) / f"{which}.safetensors")

    def gradients(self, name, backend):
        return {parameter: values for parameter, (_, values) in self.tensors(name, backend).items()}

    def of_torch(self, torch, name, flags, dtype):
        return of_torch(torch, flags, self.state(name), self.tensors(name, "model"), dtype)


def write_golden(program, cases):
    import torch
    stored = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    seeds = {name: stored.get(name, {}).get("seed", 1) for name in cases}
    golden, left = {}, cases
    while left:
        results = Results(program, left, seeds)
        for name, flags in left.items():
            loss, gradients = results.of_torch(torch, name, flags, torch.float64)
            _, rounded = results.of_torch(torch, name, flags, torch.float32)
            if all(error(rounded[p], values) <= BOUNDS["cpu"] / 10 for p, values in gradients.items()):
                golden[name] = {"seed": seeds[name], "loss": loss,
                                "gradients": {p: digest(values) for p, values in gradients.items()}}
            else:
                seeds[name] += 1
        left = {name: flags for name, flags in left.items() if name not in golden}

    def text(case):
        numbers = json.loads(json.dumps(case), parse_float=lambda number: float(f"{float(number):.11g}"))
        return json.dumps(numbers, separators=(",", ":"))

    GOLDEN.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {text(golden[name])}" for name in cases) + "\n}\n")


def errors_of(results, name, expected, of_torch_now):
    """Backend -> what -> error of a case; `of_torch_now`: PyTorch's loss and gradients, or None."""
    loss, gradients = of_torch_now or (expected["loss"], None)
    losses = results.state(name)["loss"]
    found = {backend: results.gradients(name, backend) for backend in BOUNDS}
    for backend, parameters in found.items():
        if set(parameters) != set(expected["gradients"]):
            sys.exit(f"{name}: {backend} has parameters {sorted(parameters)}, expected {sorted(expected['gradients'])}")
    errors = {backend: {"loss": abs(losses[backend] / loss - 1)} for backend in BOUNDS}
    for parameter, values in found["reference"].items():
        total, size = digest(values)
        wanted_total, wanted_size = expected["gradients"][parameter]
        errors["reference"][parameter] = max(abs(total - wanted_total), abs(size - wanted_size)) / wanted_size
        errors["cpu"][parameter] = error(found["cpu"][parameter], values)
        if gradients:
            errors["reference"][parameter] = max(errors["reference"][parameter], error(values, gradients[parameter]))
    return errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model_gradients")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    cases = make_cases()
    if arguments.write:
        write_golden(arguments.model_gradients, cases)
    golden = json.loads(GOLDEN.read_text())
    if set(golden) != set(cases):
        sys.exit(f"{GOLDEN} holds other cases than this program: write it anew with --write, which needs PyTorch")
    if arguments.live:
        import torch
    results = Results(arguments.model_gradients, cases, {name: case["seed"] for name, case in golden.items()})
    failures, worst = [], dict.fromkeys(BOUNDS, 0.0)
    for name, flags in cases.items():
        now = results.of_torch(torch, name, flags, torch.float64) if arguments.live else None
        for backend, errors in errors_of(results, name, golden[name], now).items():
            for what, found in errors.items():
                worst[backend] = max(worst[backend], found)
                if not found <= BOUNDS[backend]:
                    failures.append(f"{name}: {what} of {backend} is off by {found:.1e}, expected {BOUNDS[backend]:.0e}")
    for failure in failures:
        print("FAILED", failure)
    print(f"{len(cases)} models; largest errors: " + ", ".join(f"{b} {e:.1e}" for b, e in worst.items()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
