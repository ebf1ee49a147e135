#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares the casts of qobs quantize with those of the installed Model-Optimizer, 0.48.0rc1, byte for byte.

    live_casts.py QOBS [SAVE]

With SAVE (a directory) the cases of test_casts.py become golden vectors, SAVE/casts.json. Ends with `N passed, N
failed`.
"""
import json
import os
import sys
import tempfile

import torch
from modelopt.torch.export.shard_cast_utils import mxfp4_kmax, quantize_mxfp4_to_nvfp4_lossless

SAVE = sys.argv.pop(2) if len(sys.argv) > 2 else None  # the modules below read the other arguments

import cli
import test_casts


def of_bytes(data):
    return torch.tensor(list(data), dtype=torch.uint8).reshape(test_casts.ROWS, -1)


def as_bytes(tensor):
    return bytes(tensor.contiguous().view(torch.uint8).reshape(-1).tolist())


def main(save):
    golden = []
    for name, codes, scales in test_casts.cases():
        exponents = of_bytes(scales)
        packed, stored, scale_2, blocks, lossless = quantize_mxfp4_to_nvfp4_lossless(
            of_bytes(codes), exponents, mxfp4_kmax(exponents), "cpu")
        golden.append({"name": name, "codes": test_casts.digest(as_bytes(packed)),
                       "scales": test_casts.digest(as_bytes(stored)),
                       "scale_2": scale_2.item(), "blocks": blocks, "lossless": lossless})
        out, report, _ = test_casts.run(name, test_casts.of_modelopt(codes, scales), "NVFP4A16")
        cli.equal(out[f"{test_casts.MODULE}.weight_packed"][2], as_bytes(packed), f"{name}: codes")
        cli.equal(out[f"{test_casts.MODULE}.weight_scale"][2], as_bytes(stored), f"{name}: scales")
        cast = report["layers"][0]["cast"]
        cli.equal((cast["blocks"], cast["lossless"]), (blocks, lossless), f"{name}: blocks")
    if save:
        with open(f"{save}/casts.json", "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in golden) + "\n]\n")
    return cli.end()


if __name__ == "__main__":
    torch.set_num_threads(1)
    SAVE = SAVE and os.path.abspath(SAVE)
    with tempfile.TemporaryDirectory(dir=cli.scratch()) as scratch:
        os.chdir(scratch)
        sys.exit(main(SAVE))
