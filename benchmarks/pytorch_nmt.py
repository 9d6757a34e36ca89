#!/usr/bin/env python3
"""The article's model in PyTorch, for comparison with `ddl_nmt --preset=ddl_reference`: cuDNN's LSTM with the same sizes.

A bidirectional encoder (half of the layers in each direction, as in tensorflow/nmt), a decoder with as many layers and no
attention, no biases in the projection, dropout between layers, SGD with clipped gradients. All sentences have the same
length, so that no time is spent on padding. Prints the median over the timed steps for each arithmetic. Needs only torch."""

import argparse
import json
import statistics
import time

import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self, vocabulary, units, layers, dropout):
        super().__init__()
        each = {"hidden_size": units, "dropout": dropout, "batch_first": False}
        self.source = nn.Embedding(vocabulary, units)
        self.target = nn.Embedding(vocabulary, units)
        self.forwards = nn.LSTM(units, num_layers=layers // 2, **each)
        self.backwards = nn.LSTM(units, num_layers=layers // 2, **each)
        self.decoder = nn.LSTM(units, num_layers=layers, **each)
        self.projection = nn.Linear(units, vocabulary, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source, target):
        words = self.dropout(self.source(source))
        _, (fw_h, fw_c) = self.forwards(words)
        _, (bw_h, bw_c) = self.backwards(words.flip(0))
        # The decoder's initial states are the encoder's last ones: layer by layer, forward before backward.
        first = tuple(torch.stack(pair, 1).flatten(0, 1) for pair in ((fw_h, bw_h), (fw_c, bw_c)))
        out, _ = self.decoder(self.dropout(self.target(target)), first)
        return self.projection(out)


def measure(arithmetic, options, device):
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    torch.backends.cudnn.allow_tf32 = arithmetic == "tf32"
    torch.manual_seed(1)
    model = Translator(options.vocabulary, options.units, options.layers, options.dropout).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler(device.type, enabled=arithmetic == "f16")
    narrow = {"f16": torch.float16, "bf16": torch.bfloat16}.get(arithmetic)
    shape = (options.words, options.batch)
    source, inputs, outputs = (torch.randint(options.vocabulary, shape, device=device) for _ in range(3))

    def synchronize():
        if device.type == "cuda":
            torch.cuda.synchronize()

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(device.type, dtype=narrow, enabled=narrow is not None):
            logits = model(source, inputs)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), outputs.flatten(), reduction="sum") / options.batch
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()

    times = []
    for number in range(options.warm_up + options.steps):
        synchronize()
        begin = time.perf_counter()
        step()
        synchronize()
        if number >= options.warm_up:
            times.append(time.perf_counter() - begin)
    seconds = statistics.median(times)
    words = 2 * options.words * options.batch
    return {
        "benchmark": "pytorch_nmt",
        "arithmetic": arithmetic,
        "step_ms": round(seconds * 1e3, 2),
        "words_per_s": round(words / seconds),
        "parameters": sum(p.numel() for p in model.parameters()),
        "batch": options.batch,
        "words": options.words,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "cudnn": torch.backends.cudnn.version() if device.type == "cuda" else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--arithmetic", default="f32,tf32,f16,bf16", help="comma-separated: f32, tf32, f16, bf16; default: all")
    parser.add_argument("--vocabulary", type=int, default=36548)
    parser.add_argument("--units", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--batch", type=int, default=128, help="sentences per step (default: 128)")
    parser.add_argument("--words", type=int, default=30, help="words per sentence on each side (default: 30)")
    parser.add_argument("--steps", type=int, default=20, help="timed steps (default: 20)")
    parser.add_argument("--warm_up", type=int, default=5, help="untimed steps (default: 5)")
    parser.add_argument("--json", help="file to which a JSON line is appended for each arithmetic")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no CUDA device; --device cpu runs without one")
    for arithmetic in options.arithmetic.split(","):
        if arithmetic not in ("f32", "tf32", "f16", "bf16"):
            parser.error(f"--arithmetic: found '{arithmetic}', expected f32, tf32, f16 or bf16")
        line = measure(arithmetic, options, torch.device(options.device))
        print(f"PyTorch {line['arithmetic']:>5}: {line['step_ms']:9.2f} ms a step, {line['words_per_s']:9d} words/s")
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
