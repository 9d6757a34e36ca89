#!/usr/bin/env python3
"""Measures how fast a device multiplies matrices in PyTorch (cuBLAS): the upper bound for ddl_nmt and pytorch_nmt.py.

C of m x n is A of m x k times B of k x n, with random numbers. The shapes are a square one and those of the article's model
with 128 sentences of 30 words and 1,024 units: all words of a step to the four gates, the state of one word to the gates,
and the words to the vocabulary. Prints the median for each. Needs only torch."""

import argparse
import json
import statistics

import torch

SHAPES = {
    "square": (4096, 4096, 4096),
    "lstm_input": (3840, 4096, 1024),
    "lstm_recurrent": (128, 4096, 1024),
    "projection": (3840, 36548, 1024),
}
TYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def time_of(call):
    """Returns the time of a call in seconds: the median of 5 means of calls back to back."""
    times = []
    for repetition in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(20):
            call()
        end.record()
        end.synchronize()
        if repetition > 0:
            times.append(begin.elapsed_time(end) * 1e-3 / 20)
    return statistics.median(times)


def measure(arithmetic, name, shape):
    m, n, k = shape
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    a, b = (torch.randn(rows, columns, device="cuda").to(TYPES[arithmetic]) for rows, columns in ((m, k), (k, n)))
    c = torch.empty(m, n, device="cuda", dtype=TYPES[arithmetic])
    seconds = time_of(lambda: torch.matmul(a, b, out=c))
    reference = a[:16].double() @ b.double()
    return {
        "benchmark": "gemm_rate",
        "arithmetic": arithmetic,
        "shape": name,
        "m": m,
        "n": n,
        "k": k,
        "time_us": round(seconds * 1e6, 2),
        "tflops": round(2 * m * n * k / seconds * 1e-12, 2),
        "error": float(f"{((c[:16].double() - reference).norm() / reference.norm()).item():.2g}"),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to which a JSON line is appended for each")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("PyTorch sees no CUDA device")
    for name, shape in SHAPES.items():
        for arithmetic in TYPES:
            line = measure(arithmetic, name, shape)
            print(f"{name:>14} {arithmetic:>4}: {line['time_us']:9.2f} us, {line['tflops']:7.2f} TFLOP/s, "
                  f"error {line['error']:.1e}")
            if options.json:
                with open(options.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
