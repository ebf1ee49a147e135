#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares what qobs quantize makes of AWQ with the converter of compressed-tensors 0.20, byte for byte.

    live_dialects.py QOBS

Ends with `N passed, N failed`.
"""
import os
import sys
import tempfile

import torch
from compressed_tensors.entrypoints.convert.converters import AutoAWQConverter

import cli
from test_sources import make, st_raw
from test_quantize_command import quantize
from live_sources import raw

MODULE = "model.layers.0.mlp.down_proj"
generator = torch.Generator().manual_seed(56)


def words(*shape):
    return torch.randint(-2 ** 31, 2 ** 31, shape, generator=generator, dtype=torch.int64).to(torch.int32)


def scales(*shape):
    return (torch.rand(shape, generator=generator) * 0.02 + 1e-4).half()


def main():
    for rows, columns, group, zeros in ((128, 256, 128, True), (8, 128, 32, True), (200, 384, 64, True),
                                        (64, 128, 128, False)):
        what = f"{rows} x {columns}, groups of {group}, {'with' if zeros else 'without'} zero points"
        module = {"qweight": words(columns, rows // 8), "scales": scales(columns // group, rows)}
        if zeros:
            module["qzeros"] = words(columns // group, rows // 8)
        tensors = {f"{MODULE}.{k}": v for k, v in module.items()}
        make("in", {k: raw(v) for k, v in tensors.items()},
             quantization_config={"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": zeros,
                                  "version": "gemm"})
        want = AutoAWQConverter(group_size=group, zero_point=zeros).process(dict(tensors))
        p = quantize("in", "-o", "out", "--replace", "--set", f"group_size={group}",
                     scheme="W4A16_ASYM" if zeros else "W4A16")
        cli.equal(p.returncode, 0, f"{what}: exit status {p.stderr}")
        cli.equal(st_raw("out/model.safetensors"), {k: raw(v) for k, v in want.items()}, what)
    return cli.end()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=cli.scratch()) as scratch:
        os.chdir(scratch)
        sys.exit(main())
