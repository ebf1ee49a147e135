#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares qobs calibrate with `cat FILE >/dev/null` from a warm cache, and measures its memory beyond the mapped file.

beside_cat.py QOBS MODEL.safetensors OUT.json [--repetitions N] [--isa NAME]
"""

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("qobs")
parser.add_argument("model")
parser.add_argument("out")
parser.add_argument("--repetitions", type=int, default=15)
parser.add_argument("--isa", help="instruction set of qobs (the best)")
arguments = parser.parse_args()


def seconds(*command):
    begin = time.monotonic()
    with open(os.devnull, "wb") as nothing:
        subprocess.run(command, check=True, stdout=nothing)
    return time.monotonic() - begin


size = os.path.getsize(arguments.model)
with tempfile.TemporaryDirectory() as directory:
    calibrate = (
        arguments.qobs,
        "calibrate",
        arguments.model,
        "--scheme",
        "W4A16",
        "--quiet",
        "-o",
        f"{directory}/scales.safetensors",
        *(("--isa", arguments.isa) if arguments.isa else ()),
    )
    cat = ("cat", arguments.model)
    # Resident pages of the mapped file count in ru_maxrss, which is that of the largest child. cat is small.
    seconds(*calibrate)
    beyond = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 - size
    times = [(seconds(*cat), seconds(*calibrate)) for _ in range(arguments.repetitions)]
with open(arguments.out, "w", encoding="utf-8") as out:
    json.dump(
        {
            "pairs": {
                "pair/calibrate-cat": {
                    "ratio": [c / q for c, q in times],
                    "speed": [size / q for _, q in times],
                    "other_speed": [size / c for c, _ in times],
                }
            },
            "values": {"calibrate-memory": [beyond / 1e6]},
        },
        out,
    )
