#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a safetensors checkpoint of bfloat16 linear layers of a given size, for measurements.

    make-checkpoint.py FILE [--megabytes N] [--hidden N]
"""
import argparse
import json
import struct

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--megabytes", type=int, default=1024)
parser.add_argument("--hidden", type=int, default=4096)
arguments = parser.parse_args()

h = arguments.hidden
layers = max(1, arguments.megabytes * 1024 * 1024 // (h * h * 2))
header, offset = {}, 0
for i in range(layers):
    header[f"model.layers.{i}.mlp.up_proj.weight"] = {"dtype": "BF16", "shape": [h, h],
                                                      "data_offsets": [offset, offset + 2 * h * h]}
    offset += 2 * h * h
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
# One gaussian layer, rolled along for each: what the values are does not matter, that they are weights does.
rng = np.random.default_rng(1)
layer = (rng.standard_normal(h * h, dtype=np.float32) * 0.02).view(np.uint32)
layer = ((layer + 0x8000) >> 16).astype("<u2")
with open(arguments.file, "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for i in range(layers):
        f.write(np.roll(layer, i * 977).tobytes())
