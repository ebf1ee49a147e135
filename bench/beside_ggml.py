#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Blocks of GGUF types beside ggml's own functions, in one process, on one thread each, in turns. Needs PyPI's
xllamacpp, whose extension module exports them.

    beside_ggml.py LIBQOBS.SO OUT.json [--repetitions N] [--only REGEX] [--isa NAME...]

Writes pairs in the form of bench-qobs: the ratios of their time to ours for float32 rows of 4096 columns. The bytes of
both sides are compared first.
"""

import argparse
import ctypes
import os
import sys

import numpy as np

from pairs import Pairs, installed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from gguf_judge import F32, OK, Ggml, Qobs

COLUMNS, ROWS, THEIR_ROWS = 4096, 256, 32

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("libqobs")
Pairs.add_arguments(parser, 7)
parser.add_argument("--isa", nargs="*", help="instruction sets of ours (those of this CPU)")
given = parser.parse_args()
qobs, ggml, pairs = Qobs(given.libqobs), Ggml(), Pairs(given)
random = np.random.default_rng(0)
weight = (random.standard_normal((ROWS, COLUMNS)) * 0.02).astype(np.float32)
weight[random.random(weight.shape) < 0.001] *= 20
importance = np.exp(2 * random.standard_normal(COLUMNS)).astype(np.float32)


def ours(isa, of, x, q, out):
    status = qobs.quantize(isa, of, F32, x, q, out)
    if status != OK:
        raise SystemExit(f"{of.name.decode()}: {qobs.error.message.decode()}")


def measure(isa, of, q):
    few = weight[:THEIR_ROWS]
    out, theirs = (np.zeros(x.size // of.elements * of.size, np.uint8) for x in (weight, few))
    ours(isa, of, weight, q, out)
    ggml.quantize(of, few, q, theirs)
    name = f"gguf/{of.name.decode()}{'' if q is None else '-importance'}/{isa.decode()}"
    if not np.array_equal(out[:theirs.size], theirs):
        raise SystemExit(f"{name}: the bytes are not those of ggml")
    pairs.turns(name, installed("xllamacpp"), lambda: ggml.quantize(of, few, q, theirs),
                lambda: ours(isa, of, weight, q, out), weight.size, few.size)


for of in qobs.types():
    # Arrays of floats are copied.
    for q in (None, importance)[:0 if not of.made or of.elements == 1 else 2 if of.uses_importance else 1]:
        for isa in [i for i in qobs.isas() if i.decode() in (given.isa or [i.decode()])]:
            measure(isa, of, q)
pairs.write()
