#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Writes the suites with every number the other way round, for the C tests on big-endian machines, which map these
files.

    python3 big_endian.py DIRECTORY
"""
import array, glob, json, os, shutil, sys

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
         "U32": 4,
         "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8}
CODES = {array.array(code).itemsize: code for code in "BHIQ"}

here, directory = os.path.dirname(os.path.abspath(__file__)), sys.argv[1]
os.makedirs(directory, exist_ok=True)
for path in glob.glob(here + "/*.json") + glob.glob(here + "/*.txt"):
    shutil.copy(path, directory)
for path in glob.glob(here + "/*.safetensors"):
    with open(path, "rb") as f:
        header = f.read(int.from_bytes(f.read(8), "little"))
        data = bytearray(f.read())
    for name, tensor in json.loads(header).items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            numbers = array.array(CODES[SIZES[tensor["dtype"]]], bytes(data[begin:end]))
            numbers.byteswap()
            data[begin:end] = numbers.tobytes()
    with open(os.path.join(directory, os.path.basename(path)), "wb") as f:
        f.write(len(header).to_bytes(8, "big") + header + data)
