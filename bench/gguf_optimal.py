#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Measures the search "optimal" for types of GGUF files beside the bytes of ggml, which the search "ggml" makes: the
sum of errors of gaussian numbers with outliers and of the linear layers of a model, the KL divergence of that model
with these layers dequantized, and the speed of one thread.

    gguf_optimal.py MODEL [--only REGEX] [--errors] [--speed]

MODEL is a directory as bench/kl.py takes it; the columns of its layers have to be multiples of 256. Importance is the
mean square of the inputs of 16384 calibration tokens; drawn importance is lognormal, as that of the gaussian numbers.
--errors leaves out the KL divergence. --speed measures M weights a second, a median of five.
Needs torch, safetensors and the Python package of qobs.
"""
import argparse
import re
import statistics
import sys
import time

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import kl
import libqobs as qobs

kl.torch, kl.load_file, kl.save_file = torch, load_file, save_file
SEARCHES = ("ggml", "optimal")


def gaussian():
    random = np.random.default_rng(0)
    weight = (random.standard_normal((64, 4096)) * 0.02).astype(np.float32)
    weight[random.random(weight.shape) < 0.001] *= 20
    return weight, drawn(random, 4096)


def drawn(random, columns):
    return np.exp(1.2 * random.standard_normal(columns)).astype(np.float32)


def mean_squares(model, sequences):
    """The importance of each linear layer."""
    sums = {}

    def see(name, x):
        sums.setdefault(name + ".weight", []).append((x * x).flatten(0, -2).mean(0))
    for batch in sequences.split(4):
        model.hidden_states(model.weights, batch, see)
    return {name: torch.stack(parts).mean(0).numpy() for name, parts in sums.items()}


def rounded(of, weight, importance, search):
    return qobs.gguf.dequantize(qobs.gguf.quantize(weight, of, importance, search), of)


def error(weight, importance, number):
    return float(((number.astype(float) - weight)**2 * (1 if importance is None else importance)).sum())


def gains(of, pairs, is_weighted):
    """Percent of the error of ggml that the search avoids."""
    sums = {search: sum(error(w, q if is_weighted else None, rounded(of, w, q if is_weighted else None, search))
                        for w, q in pairs) for search in SEARCHES}
    return 100 * (1 - sums["optimal"] / sums["ggml"])


def divergence(of, model, importance, held_out, reference, search):
    weights = dict(model.weights)
    for name, q in importance.items():
        weights[name] = torch.from_numpy(rounded(of, weights[name].numpy(), q, search))
    return kl.compare(model, reference, weights, held_out)[0]


def speed(of, weight, importance):
    weight, times = weight[:16], []
    for _ in range(5):
        begin = time.thread_time()
        qobs.gguf.quantize(weight, of, importance, "optimal")
        times.append(time.thread_time() - begin)
    return weight.size / statistics.median(times) / 1e6


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--only", default="")
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--speed", action="store_true")
    return parser.parse_args()


def main():
    args = arguments()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    qobs.set_threads(1)
    model = kl.Llama(args.model)
    calibration, held_out = kl.texts(args.model, model)
    importance = mean_squares(model, calibration[:16384 // calibration.shape[1]])
    layers = [(model.weights[name].numpy(), q) for name, q in importance.items()]
    reference = kl.hidden_states(model, model.weights, held_out["held_out"])
    numbers = [gaussian()]
    random = np.random.default_rng(1)
    columns = [(numbers, False), (layers, False), (numbers, True), (layers, True),
               ([(weight, drawn(random, weight.shape[1])) for weight, _ in layers], True)]
    titles = ["gaussian", "layers", "gaussian, importance", "layers, importance", "layers, drawn importance"]
    titles += ["KL ggml", "KL optimal"] * (not args.errors) + ["M weights/s, with importance"] * args.speed
    print(f"| type | {' | '.join(titles)} |")
    print("|---" * (1 + len(titles)) + "|")
    for of in qobs.gguf.types():
        if of.block_elements == 1 or not re.search(args.only, of.name):
            continue
        cells = [f"{gains(of.name, pairs, is_weighted):.1f}" for pairs, is_weighted in columns]
        if not args.errors:
            cells += [f"{divergence(of.name, model, importance, held_out['held_out'], reference, search):.5f}"
                      for search in SEARCHES]
        if args.speed:
            cells.append(", ".join(f"{speed(of.name, numbers[0][0], q):.1f}" for q in (None, numbers[0][1])))
        print(f"| {of.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
