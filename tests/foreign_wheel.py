#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""A wheel for another processor: its name, its libraries, and the README's C program with its library under qemu.

    foreign_wheel.py ARCHITECTURE WHEEL...

There must be one WHEEL. No Python of that processor runs. Ends with "N passed, N failed".
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MACHINES = {"aarch64": 183, "x86_64": 62}  # e_machine
ROW = "scales of the first row: 0.0933333 1.19209e-07\n"


def machine(path):
    with open(path, "rb") as file:
        head = file.read(20)
    return int.from_bytes(head[18:20], "little") if head[:4] == b"\x7fELF" else None


def run_program(architecture, directory):
    own = directory + "/.libqobs.mesonpy.libs"
    program = directory + "/program"
    subprocess.run([f"{architecture}-linux-gnu-gcc", f"-I{SOURCE}/include", SOURCE + "/examples/weight_scales.c",
                    own + "/libqobs.so", f"-Wl,-rpath-link,{directory}/libqobs.libs", f"-Wl,-rpath,{own}", "-lm", "-o",
                    program],
                   check=True)
    return subprocess.run([f"qemu-{architecture}", program], check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    architecture, wheels = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as directory:
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(directory)
        libraries = glob.glob(directory + "/.*.libs/*.so*") + glob.glob(directory + "/*.libs/*.so*")
        checks = [
            (f"the only wheel: {wheels}", len(wheels) == 1),
            ("name",
             re.fullmatch(rf"libqobs-[^-]*-py3-none-manylinux_2_\d+_{architecture}\.whl", os.path.basename(wheels[0]))),
            (f"libraries: {libraries}", len(libraries) >= 4),
            *[(path, machine(path) == MACHINES[architecture]) for path in libraries],
            ("the README's program", run_program(architecture, directory) == ROW)]
    failed = [what for what, good in checks if not good]
    for what in failed:
        print(f"FAILED {what}")
    print(f"{len(checks) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
