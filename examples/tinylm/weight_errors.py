#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Effect of an error search on this model: squared error of the quantized weights of every layer.

    weight_errors.py QOBS [BITS [GROUP_SIZE]]      QOBS: the program; defaults: 4 and 128

`qobs calibrate` computes the scales. Everything else is computed here in double from the model and the recorded
activations. Each weight is rounded to the nearest integer times its scale. The squared differences are summed twice:
unweighted, and weighted by the mean square of the column's activations.

The exit status is 1 if mse is not below minmax in every layer, or if importance does not lower the weighted error. The
latter must hold for the sum, and for every layer if both searches have norm 2 and try every candidate.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL, ACTIVATIONS = (os.path.join(HERE, name + ".safetensors") for name in ("model", "activations"))
ALIKE = ["norm=2", "grid=100", "maxshrink=0.2", "patience=100"]
IMPORTANCE = ["--importance", ACTIVATIONS]
RUNS = {"minmax": ["--preset", "llmc.memoryless_minmax"],
        "mse": ["--preset", "llmc.memoryless_mse"],
        "imatrix": ["--preset", "llmc.imatrix_mse"] + IMPORTANCE,
        "mse, alike": ["--preset", "llmc.memoryless_mse"] + [w for s in ALIKE for w in ("--set", s)],
        "imatrix, alike": ["--preset", "llmc.imatrix_mse"] + IMPORTANCE + [w for s in ALIKE for w in ("--set", s)]}
SAME_INPUT = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}


def read(path):
    """Returns {name: (shape, values)} of a file of bfloat16 tensors"""
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    header.pop("__metadata__", None)
    tensors = {}
    for name, t in header.items():
        begin, end = (8 + n + offset for offset in t["data_offsets"])
        widened = bytearray(2 * (end - begin))
        widened[2::4], widened[3::4] = raw[begin:end:2], raw[begin + 1:end:2]
        tensors[name] = t["shape"], struct.unpack(f"<{(end - begin) // 2}f", widened)
    return tensors


def mean_squares(activations, module):
    parent, _, last = module.rpartition(".")
    shape, values = activations[f"{parent}.{SAME_INPUT.get(last, last)}.input"]
    columns = shape[-1]
    return [sum(v * v for v in values[k::columns]) * columns / len(values) for k in range(columns)]


def errors(weight, scales, importance, bits, size):
    """Returns the squared error, unweighted and weighted"""
    (_, columns), values = weight
    quant_min, quant_max = -2 ** (bits - 1), 2 ** (bits - 1) - 1
    plain = weighted = 0.0
    for group, scale in enumerate(scales):
        first = group * size
        quantized = (min(max(round(x / scale), quant_min), quant_max) for x in values[first:first + size])
        squares = [(q * scale - x) ** 2 for q, x in zip(quantized, values[first:first + size])]
        plain += sum(squares)
        at = first % columns
        weighted += sum(map(float.__mul__, squares, importance[at:at + size]))
    return plain, weighted


def main():
    qobs = sys.argv[1]
    bits, size = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((2, 4), (3, 128)))
    model, activations = read(MODEL), read(ACTIVATIONS)
    scales = {}
    with tempfile.TemporaryDirectory() as directory:
        for run, options in RUNS.items():
            out = os.path.join(directory, "out.safetensors")
            subprocess.run([qobs, "calibrate", MODEL, "--scheme", "W4A16", "--set", f"num_bits={bits}",
                            "--set", f"group_size={size}", "-o", out, "--quiet"] + options, check=True)
            scales[run] = read(out)
    modules = [n[:-len(".weight_scale")] for n in scales["minmax"]]
    table = {}
    for m in modules:
        importance = mean_squares(activations, m)
        table[m] = {run: errors(model[m + ".weight"], s[m + ".weight_scale"][1], importance, bits, size)
                    for run, s in scales.items()}
    total = {run: tuple(sum(table[m][run][k] for m in modules) for k in (0, 1)) for run in RUNS}
    table["sum of all layers"] = total
    width = max(map(len, table))
    for k, title, runs in ((0, "squared error of the weights", ("minmax", "mse")),
                           (1, "weighted by the mean square of each column's activations", tuple(RUNS))):
        print(f"int{bits}, groups of {size}: {title}")
        print(" " * width + "".join(f"{run:>16}" for run in runs))
        for name, row in table.items():
            print(f"{name:<{width}}" + "".join(f"{row[run][k]:16.6g}" for run in runs))
        print()
    claims = {"mse is below minmax in every layer": all(table[m]["mse"][0] < table[m]["minmax"][0] for m in modules),
              "weighted, imatrix is below mse in the sum": total["imatrix"][1] < total["mse"][1],
              "weighted, imatrix is below mse in every layer, both with " + ", ".join(ALIKE):
                  all(table[m]["imatrix, alike"][1] < table[m]["mse, alike"][1] for m in modules)}
    for claim, holds in claims.items():
        print(("yes" if holds else "NO") + ": " + claim)
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
