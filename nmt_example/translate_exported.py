#!/usr/bin/env python3
"""Translates standard input with a model that `ddl_nmt export` wrote: greedily, in PyTorch, line by line.

Usage: translate_exported.py MODEL.safetensors < in > out
Reads LSTM models with any encoder and the standard attention or none. Needs torch, and sentencepiece for its models.
"""
import json
import struct
import sys

import torch

UNK, BOS, EOS = 0, 1, 2


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header, tensors = json.loads(data[8:8 + length]), {}
    metadata = header.pop("__metadata__")
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "U8":
            tensors[name] = data[begin:end]
        else:
            tensors[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(entry["shape"])
    return tensors, json.loads(metadata["options"])


class Vocabulary:
    def __init__(self, data):
        head, self.payload = data.split(b"\n", 1)  # "ddl-nmt-vocabulary 1 KIND BYTES"
        self.kind, self.model = head.split()[-2].decode(), None
        if self.kind == "sentencepiece":
            import sentencepiece
            self.model = sentencepiece.SentencePieceProcessor(model_proto=self.payload)
        elif self.kind == "bytes":
            sys.exit("translate_exported.py: models that read bytes are not supported")
        else:
            self.words = self.payload.decode().split("\n")
            self.ids = {word: i for i, word in enumerate(self.words)}

    def encode(self, line):
        return self.model.encode(line) if self.model else [self.ids.get(word, UNK) for word in line.split()]

    def decode(self, ids):
        if self.model:
            return self.model.decode(ids)
        words = ["<unk>" if i == UNK else self.words[i] for i in ids]
        if self.kind.endswith("bpe"):
            return " ".join(words + [""]).replace("@@ ", "").rstrip()
        if self.kind.endswith("sentencepiece"):
            return "".join(words).replace("\u2581", " ").strip()
        return " ".join(words)


class Model:
    def __init__(self, tensors, options):
        self.p, self.o, self.units = tensors, options, options["num_units"]
        layers = options["num_layers"]
        self.encoder_layers = options["num_encoder_layers"] or layers
        self.decoder_layers = options["num_decoder_layers"] or layers
        gnmt = options["encoder_type"] == "gnmt"
        self.encoder_residual = (self.encoder_layers - (2 if gnmt else 1)) * options["residual"]
        self.decoder_residual = (self.decoder_layers - 1) * options["residual"]
        if gnmt and self.encoder_layers == self.decoder_layers:
            self.decoder_residual = self.encoder_residual
        if options["unit_type"] != "lstm" or options["language_model"] or options["attention_architecture"] != "standard":
            sys.exit("translate_exported.py: only LSTM translators with attention_architecture=standard are supported")

    def zeros(self):
        return torch.zeros(self.units), torch.zeros(self.units)

    def cell(self, name, x, state):
        c, h = state
        gates = torch.cat([x, h]) @ self.p[name + "/kernel"] + self.p[name + "/bias"][0]
        i, j, f, o = gates.split(self.units)
        c = c * torch.sigmoid(f + self.o["forget_bias"]) + torch.sigmoid(i) * torch.tanh(j)
        h = torch.tanh(c) * torch.sigmoid(o)
        return h, (c, h)

    def layers(self, prefix, first, count, residual, xs):
        states = []
        for layer in range(first, first + count):
            state, outputs = self.zeros(), []
            for x in xs:
                output, state = self.cell(f"{prefix}lstm_{layer}", x, state)
                outputs.append(output + x if layer >= first + count - residual else output)
            xs = outputs
            states.append(state)
        return xs, states

    def table(self, side):
        return self.p["embedding/shared" if self.o["share_vocab"] else "embedding/" + side]

    def encode(self, ids):
        words, kind, count = list(self.table("encoder")[ids]), self.o["encoder_type"], self.encoder_layers
        if kind == "uni":
            return self.layers("encoder/", 0, count, self.encoder_residual, words)
        each, residual = (count // 2, self.encoder_residual // 2) if kind == "bi" else (1, 0)
        forward, states = self.layers("encoder/fw/", 0, each, residual, words)
        backward, back = self.layers("encoder/bw/", 0, each, residual, words[::-1])
        joined = [torch.cat(pair) for pair in zip(forward, backward[::-1])]
        if kind == "bi":
            return joined, [state for pair in zip(states, back) for state in pair]
        memory, above = self.layers("encoder/", 1, count - 1, self.encoder_residual, joined)
        return memory, back + above

    def context(self, query, memory, keys):
        kind = self.o["attention"]
        if kind.endswith("luong"):
            scores = keys @ query * (self.p["attention/scale"][0, 0] if kind == "scaled_luong" else 1)
        else:
            v, summed = self.p["attention/v"][0], keys + query @ self.p["attention/query_kernel"]
            if kind == "normed_bahdanau":
                v, summed = self.p["attention/g"][0, 0] * v / v.norm(), summed + self.p["attention/b"][0]
            scores = torch.tanh(summed) @ v
        return torch.softmax(scores, 0) @ memory

    def translate(self, ids):
        memory, states = self.encode(ids)
        memory, attends = torch.stack(memory), bool(self.o["attention"])
        if self.encoder_layers != self.decoder_layers or (attends and not self.o["pass_hidden_state"]):
            states = [self.zeros() for _ in range(self.decoder_layers)]
        keys = memory @ self.p["attention/memory_kernel"] if attends else None
        fed = torch.zeros(self.p["attention/output_kernel"].shape[1]) if attends else torch.zeros(0)
        kernel = self.table("decoder") if self.o["tie_output"] else self.p["projection/kernel"]
        words = [BOS]
        while len(words) <= (self.o["tgt_max_len_infer"] or 2 * len(ids) + 10):
            x = torch.cat([self.table("decoder")[words[-1]], fed])
            for layer in range(self.decoder_layers):
                below = x
                x, states[layer] = self.cell(f"decoder/lstm_{layer}", x, states[layer])
                if layer >= self.decoder_layers - self.decoder_residual:
                    x = x + below
            if attends:
                fed = torch.cat([x, self.context(x, memory, keys)]) @ self.p["attention/output_kernel"]
                x = fed if self.o["output_attention"] else x
            logits = kernel @ x + (self.p["projection/bias"][0] if self.o["output_bias"] else 0)
            logits[BOS] = float("-inf")
            words.append(int(logits.argmax()))
            if words[-1] == EOS:
                return words[1:-1]
        return words[1:]


def main():
    tensors, options = read_safetensors(sys.argv[1])
    model = Model(tensors, options)
    source, target = (Vocabulary(tensors[side + ".vocabulary"]) for side in ("source", "target"))
    for line in sys.stdin:
        ids = source.encode(line.rstrip("\r\n"))
        if options["src_max_len_infer"]:
            ids = ids[:options["src_max_len_infer"]]
        print(target.decode(model.translate(ids)) if ids else "", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with torch.no_grad():
        main()
