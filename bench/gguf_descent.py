#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Measures what rounding by descent gains in GGUF files: the KL divergence of a model whose file `qobs quantize` has
made with an imatrix, as the bytes of ggml, and with the states of the same tokens and rounding=descent.

    gguf_descent.py QOBS MODEL [SCHEME]...

MODEL is a directory as bench/kl.py takes it. PyPI's gguf writes it as F16 and dequantizes the files; rows of attention
stay in their order, on which blocks do not depend. The head and the embeddings count, too. 16384 tokens of calibration;
kinds of held-out text as those of kl.py. Needs torch, transformers, gguf and the Python package of qobs.
"""
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

import kl
import libqobs as qobs

kl.torch, kl.load_file, kl.save_file = torch, load_file, save_file
SCHEMES = ("Q4_0", "Q4_K_S", "Q4_K_M", "Q3_K_M", "Q5_K_M", "IQ4_XS")
TOKENS, PER_CALL = 16384, 8  # sequences
ROW = "qobs.local_hessian hessian_block_size=1048576"


def write_model(path, model, names):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(model.layers)
    writer.add_embedding_length(model.hidden)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    for name, weight in model.weights.items():
        numbers = weight.numpy().astype(np.float16 if weight.ndim > 1 else np.float32)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), numbers)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_imatrix(path, squares, names):
    writer = gguf.GGUFWriter(path, "")
    for name, (sums, count) in squares.items():
        tensor = names.get_name(name + ".weight", try_suffixes=(".weight",))
        writer.add_tensor(tensor + ".in_sum2", sums.numpy()[None].astype(np.float32))
        writer.add_tensor(tensor + ".counts", np.array([[count]], np.float32))
    finish(writer)


def mean_squares(model, calibration):
    """Sums of squares of the inputs of each linear layer, and tokens."""
    squares = {}

    def see(name, x):
        sums, count = squares.get(name, (0, 0))
        squares[name] = sums + (x.double() ** 2).flatten(0, -2).sum(0), count + x[..., 0].numel()
    for batch in calibration.split(PER_CALL):
        model.hidden_states(model.weights, batch, see)
    return squares


def save_states(directory, calibration, folder):
    """What a user does."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with qobs.calibration(model, "W4A16", importance=ROW) as c:
        for batch in calibration.split(PER_CALL):
            model(batch)
    c.save(folder)


def weights_of(path, model, names):
    """The numbers of a file by the names of the model."""
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    found = {}
    for name, weight in model.weights.items():
        t = tensors[names.get_name(name, try_suffixes=(".weight",))]
        numbers = gguf.quants.dequantize(t.data, t.tensor_type)
        found[name] = torch.from_numpy(numbers.astype(np.float32).reshape(tuple(weight.shape)))
    return found


def divergence(path, model, names, texts):
    weights = weights_of(path, model, names)
    head = kl.Llama.__new__(kl.Llama)
    head.__dict__.update(model.__dict__, weights=weights)
    result = []
    for held_out, reference in texts:
        total = 0.0
        for part, hidden in zip(held_out.split(8), reference):
            before = model.log_probabilities(hidden)
            after = head.log_probabilities(head.hidden_states(weights, part[:, :-1]))
            total += (before.exp() * (before - after)).sum().item()
        result.append(total / held_out[:, 1:].numel())
    return result


def main():
    program, directory, schemes = sys.argv[1], sys.argv[2], sys.argv[3:] or SCHEMES
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    model = kl.Llama(directory)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.layers)
    calibration, texts = kl.texts(directory, model)
    calibration = calibration[:TOKENS // calibration.shape[1]]
    references = [(t, kl.hidden_states(model, model.weights, t)) for t in texts.values()]
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "in.gguf"), os.path.join(folder, "out.gguf")
        write_model(source, model, names)
        write_imatrix(os.path.join(folder, "imatrix.gguf"), mean_squares(model, calibration), names)
        save_states(directory, calibration, os.path.join(folder, "states"))
        ways = [["--importance", os.path.join(folder, "imatrix.gguf")],
                ["--states", os.path.join(folder, "states"), "--set", "rounding=descent"]]
        ways.append([*ways[1], "--search", "optimal"])
        print(f"| scheme | bytes | {' | '.join(f'{kind}: ggml, descent, optimal and descent' for kind in texts)} |")
        print("|---" * (2 + len(texts)) + "|")
        for scheme in schemes:
            figures = []
            for way in ways:
                command = [program, "quantize", source, "--scheme", scheme, "-o", out, "--replace", "--quiet", *way]
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
                figures.append(divergence(out, model, names, references))
            cells = [", ".join(f"{of_way[k]:.5f}" for of_way in figures) for k in range(len(texts))]
            print(f"| {scheme} | {os.path.getsize(out)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
