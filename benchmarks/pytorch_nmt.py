#!/usr/bin/env python3
"""ddl_nmt's models in PyTorch, for comparison: the same sizes, the same work, PyTorch's own layers.

A bidirectional encoder (half of the layers in each direction, as in tensorflow/nmt) and a decoder with as many layers; no
biases in the projection, dropout between layers, SGD with clipped gradients. Without attention, all layers are nn.LSTM
(cuDNN's, or oneDNN's on a CPU). With --attention, the decoder is a loop over nn.LSTMCell with scaled Luong scores and input
feeding, and its batched products are torch.bmm. All sentences have the same length, so that no time is spent on padding.
Prints the median over the timed steps for each arithmetic; with --translate, the sentences a second of a beam search of
that width, which ends at twice the source's length. Needs only torch."""

import argparse
import json
import statistics
import time

import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self, options):
        super().__init__()
        units, layers = options.units, options.layers
        each = {"hidden_size": units, "dropout": options.dropout if layers > 2 else 0.0, "batch_first": False}
        self.source = nn.Embedding(options.vocabulary, units)
        self.target = nn.Embedding(options.vocabulary, units)
        self.forwards = nn.LSTM(units, num_layers=layers // 2, **each)
        self.backwards = nn.LSTM(units, num_layers=layers // 2, **each)
        self.attends = options.attention
        if self.attends:
            self.cells = nn.ModuleList(nn.LSTMCell(2 * units if n == 0 else units, units) for n in range(layers))
            self.memory = nn.Linear(2 * units, units, bias=False)
            self.scale = nn.Parameter(torch.ones(1))
            self.combine = nn.Linear(3 * units, units, bias=False)
        else:
            self.decoder = nn.LSTM(units, num_layers=layers, hidden_size=units, dropout=options.dropout)
        self.projection = nn.Linear(units, options.vocabulary, bias=False)
        self.dropout = nn.Dropout(options.dropout)

    def encode(self, source):
        """Returns the memory [B, S, 2 units], its keys, and the states of each of the decoder's layers."""
        words = self.dropout(self.source(source))
        fw, (fw_h, fw_c) = self.forwards(words)
        bw, (bw_h, bw_c) = self.backwards(words.flip(0))
        # The decoder's initial states are the encoder's last ones: layer by layer, forward before backward.
        first = tuple(torch.stack(pair, 1).flatten(0, 1) for pair in ((fw_h, bw_h), (fw_c, bw_c)))
        if not self.attends:
            return None, None, first
        memory = torch.cat((fw, bw.flip(0)), -1).transpose(0, 1).contiguous()
        return memory, self.memory(memory), first

    def attention_step(self, word, fed, states, memory, keys):
        """One step of the decoder with input feeding: returns the attention vector and the new states."""
        x, new = torch.cat((word, fed), -1), []
        for cell, state in zip(self.cells, states):
            state = cell(self.dropout(x), state)
            new.append(state)
            x = state[0]
        # All hypotheses of a sentence share its keys and its memory.
        queries = x.view(memory.shape[0], -1, x.shape[-1])
        scores = self.scale * torch.bmm(queries, keys.transpose(1, 2))
        context = torch.bmm(torch.softmax(scores, -1), memory).flatten(0, 1)
        return self.combine(torch.cat((x, context), -1)), new

    def forward(self, source, target):
        memory, keys, first = self.encode(source)
        words = self.target(target)
        if not self.attends:
            return self.projection(self.decoder(self.dropout(words), first)[0])
        fed, out = torch.zeros_like(words[0]), []
        states = list(zip(*first))
        for word in words:
            fed, states = self.attention_step(word, fed, states, memory, keys)
            out.append(fed)
        return self.projection(torch.stack(out))

    def translate(self, source, beam):
        """Beam search to exactly twice the source's length. Returns the words of the best hypothesis of each."""
        memory, keys, first = self.encode(source)
        sentences = source.shape[1]
        rows = torch.arange(sentences).repeat_interleave(beam)
        states = [(h[rows], c[rows]) for h, c in zip(*first)]
        fed = torch.zeros_like(states[0][0])
        scores = torch.full((sentences, beam), float("-inf"))
        scores[:, 0] = 0
        word, history = torch.ones(sentences * beam, dtype=torch.long), []
        for _ in range(2 * source.shape[0]):
            x = self.target(word)
            if self.attends:
                fed, states = self.attention_step(x, fed, states, memory, keys)
            else:
                out, (h, c) = self.decoder(x.unsqueeze(0), tuple(torch.stack(part) for part in zip(*states)))
                fed, states = out.squeeze(0), list(zip(h, c))
            log_probs = torch.log_softmax(self.projection(fed).float(), -1).view(sentences, beam, -1)
            scores, best = (scores.unsqueeze(-1) + log_probs).view(sentences, -1).topk(beam)
            parent = (best // log_probs.shape[-1] + torch.arange(sentences).unsqueeze(-1) * beam).view(-1)
            word = (best % log_probs.shape[-1]).view(-1)
            history.append((parent, word))
            states = [(h[parent], c[parent]) for h, c in states]
            fed = fed[parent]
        place, words = torch.arange(sentences) * beam, []
        for parent, word in reversed(history):
            words.append(word[place])
            place = parent[place]
        return torch.stack(words[::-1], 1)


def measured(options, device, call):
    """The median time of a call."""
    times = []
    for number in range(options.warm_up + options.steps):
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if number >= options.warm_up:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(arithmetic, options, device):
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    torch.backends.cudnn.allow_tf32 = arithmetic == "tf32"
    torch.manual_seed(1)
    model = Translator(options).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler(device.type, enabled=arithmetic == "f16")
    narrow = {"f16": torch.float16, "bf16": torch.bfloat16}.get(arithmetic)
    shape = (options.words, options.batch)
    source, inputs, outputs = (torch.randint(options.vocabulary, shape, device=device) for _ in range(3))

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

    def translate():
        with torch.inference_mode(), torch.autocast(device.type, dtype=narrow, enabled=narrow is not None):
            model.translate(source, options.translate)

    if options.translate:
        model.eval()
        rate = {"sentences_per_s": round(options.batch / measured(options, device, translate), 2), "beam": options.translate}
    else:
        seconds = measured(options, device, step)
        rate = {"step_ms": round(seconds * 1e3, 2), "words_per_s": round(2 * options.words * options.batch / seconds)}
    return {
        "benchmark": "pytorch_nmt",
        "arithmetic": arithmetic,
        **rate,
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": options.vocabulary,
        "units": options.units,
        "layers": options.layers,
        "attention": options.attention,
        "batch": options.batch,
        "words": options.words,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
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
    parser.add_argument("--attention", action="store_true", help="scaled Luong attention with input feeding")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--batch", type=int, default=128, help="sentences per step (default: 128)")
    parser.add_argument("--words", type=int, default=30, help="words per sentence on each side (default: 30)")
    parser.add_argument("--translate", type=int, default=0, metavar="BEAM", help="time beam search instead of training")
    parser.add_argument("--steps", type=int, default=20, help="timed steps (default: 20)")
    parser.add_argument("--warm_up", type=int, default=5, help="untimed steps (default: 5)")
    parser.add_argument("--threads", type=int, help="of a CPU (default: PyTorch's)")
    parser.add_argument("--json", help="file to which a JSON line is appended for each arithmetic")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no CUDA device; --device cpu runs without one")
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)  # as ddl_nmt does
    for arithmetic in options.arithmetic.split(","):
        if arithmetic not in ("f32", "tf32", "f16", "bf16"):
            parser.error(f"--arithmetic: found '{arithmetic}', expected f32, tf32, f16 or bf16")
        line = measure(arithmetic, options, torch.device(options.device))
        if options.translate:
            print(f"PyTorch {line['arithmetic']:>5}: {line['sentences_per_s']:9.2f} sentences/s with beam {options.translate}")
        else:
            print(f"PyTorch {line['arithmetic']:>5}: {line['step_ms']:9.2f} ms a step, {line['words_per_s']:9d} words/s")
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
