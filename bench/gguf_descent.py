#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Measures what rounding by descent gains in GGUF files: the KL divergence of a model whose file `qobs quantize` has
made with an imatrix, as the bytes of ggml, and with the states of the same tokens and rounding=descent.

    gguf_descent.py QOBS MODEL [OPTION]... [SCHEME]...

MODEL is a directory as bench/kl.py takes it. PyPI's gguf writes it as F16 and dequantizes the files; rows of attention
stay in their order, on which blocks do not depend. The head and the embeddings count, too. Kinds of held-out text are
those of kl.py.

    --tokens N      calibration tokens (default 16384)
    --sequences N   held-out sequences of each kind (default all)
    --linear        take the head and the embeddings from the model, so that the linear layers alone count

Needs torch, transformers, gguf and the Python package of qobs.
"""
import argparse
import itertools
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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from gguf_headers import Writer  # noqa: E402

kl.torch, kl.load_file, kl.save_file = torch, load_file, save_file
SCHEMES = ("Q4_0", "Q4_K_S", "Q4_K_M", "Q3_K_M", "Q5_K_M", "IQ4_XS")
PER_CALL = 8  # sequences
ROW = "qobs.local_hessian hessian_block_size=1048576"


def write_model(path, model, names):
    keys = {"block_count": model.layers, "embedding_length": model.hidden, "attention.head_count": model.heads,
            "attention.head_count_kv": model.kv_heads}
    with Writer(path, "llama", keys) as writer:
        for name, weight in model.weights.items():
            numbers = weight.numpy().astype(np.float16 if weight.ndim > 1 else np.float32)
            writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), numbers)


def write_imatrix(path, squares, names):
    with Writer(path, "", {}) as writer:
        for name, (sums, count) in squares.items():
            tensor = names.get_name(name + ".weight", try_suffixes=(".weight",))
            writer.add_tensor(tensor + ".in_sum2", sums.numpy()[None].astype(np.float32))
            writer.add_tensor(tensor + ".counts", np.array([[count]], np.float32))


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
    """Calibrates as a user does, and saves the states."""
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


def divergence(weights, model, texts):
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("schemes", nargs="*", default=SCHEMES)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--sequences", type=int)
    parser.add_argument("--linear", action="store_true")
    return parser.parse_intermixed_args()


def main():
    args = arguments()
    program, directory = args.program, args.model
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    model = kl.Llama(directory)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.layers)
    calibration, texts = kl.texts(directory, model)
    calibration = calibration[:args.tokens // calibration.shape[1]]
    references = [(t, kl.hidden_states(model, model.weights, t))
                  for t in (text[:args.sequences] for text in texts.values())]
    kept = {name: w for name, w in model.weights.items() if args.linear and ("embed" in name or "lm_head" in name)}
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "in.gguf"), os.path.join(folder, "out.gguf")
        write_model(source, model, names)
        write_imatrix(os.path.join(folder, "imatrix.gguf"), mean_squares(model, calibration), names)
        save_states(directory, calibration, os.path.join(folder, "states"))
        states = ["--states", os.path.join(folder, "states"), "--set", "rounding=descent"]
        ways = {"ggml": ["--importance", os.path.join(folder, "imatrix.gguf")], "descent": states,
                "optimal and descent": [*states, "--search", "optimal"]}
        print(f"| codes | scheme | bytes | {' | '.join(texts)} |")
        print("|---" * (3 + len(texts)) + "|", flush=True)
        for (way, options), scheme in itertools.product(ways.items(), args.schemes):
            command = [program, "quantize", source, "--scheme", scheme, "-o", out, "--replace", "--quiet", *options]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            cells = [f"{d:.5f}" for d in divergence(weights_of(out, model, names) | kept, model, references)]
            print(f"| {way} | {scheme} | {os.path.getsize(out)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
