#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Another build of the program, or the same one on another CPU, writes the same bytes.

    same_program.py [--isas NAME,NAME] QOBS OTHER

OTHER may be a command, such as an emulator and the program. Both compute the scales of the example model. OTHER says of
models that QOBS quantizes that it reproduces them. With --isas OTHER calls these instruction sets usable, uses the last
and refuses avx512. Exit status 0: all of that is so.
"""
import argparse
import pathlib
import shlex
import subprocess
import sys
import tempfile

EXAMPLE = pathlib.Path(__file__).resolve().parents[1] / "examples" / "tinylm"


def output(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def scales(qobs, path):
    options = ["--scheme", "W4A16", "--preset", "llmc.memoryless_minmax", "--quiet", "-o", str(path)]
    output([*qobs, "calibrate", str(EXAMPLE), *options])
    return path.read_bytes()


def reproduced(qobs, other, path, *scheme):
    output([*qobs, "quantize", str(EXAMPLE), "--quiet", "-o", str(path), "--scheme", *scheme])
    return "\nreproduced: yes\n" in output([*other, "audit", str(path), "--against", str(EXAMPLE)])


def instruction_sets(qobs):
    """Usable and active ones, of the table that begins with "instructions"."""
    lines = output([*qobs, "info"]).partition("\ninstructions")[2].partition("\npresets")[0].splitlines()
    usable = [line for line in lines if "not usable" not in line]
    return [line.split()[0] for line in usable], [line.split()[0] for line in usable if "active" in line]


def main():
    parser = argparse.ArgumentParser(description="compares what two programs write")
    parser.add_argument("--isas", type=lambda names: names.split(","))
    parser.add_argument("qobs", type=shlex.split)
    parser.add_argument("other", type=shlex.split)
    options = parser.parse_args()
    problems = []
    if options.isas:
        found = instruction_sets(options.other)
        if found != (options.isas, options.isas[-1:]):
            problems.append(f"usable and active are {found}, expected {options.isas}, the last one active")
        if subprocess.run([*options.other, "info", "--isa", "avx512"], stdout=subprocess.DEVNULL).returncode != 2:
            problems.append("avx512 is not refused")
    with tempfile.TemporaryDirectory() as directory:
        top = pathlib.Path(directory)
        if scales(options.qobs, top / "a.safetensors") != scales(options.other, top / "b.safetensors"):
            problems.append("the scales differ")
        for scheme in ("W4A16", "--preset", "qobs.mse_optimal"), ("FP8_DYNAMIC",), ("NVFP4A16",):
            if not reproduced(options.qobs, options.other, top / scheme[0], *scheme):
                problems.append(f"{scheme[0]} is not reproduced")
    print("\n".join(problems) or "the same")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
