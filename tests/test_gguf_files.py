#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of GGUF files as inputs of the program.

    test_gguf_files.py QOBS
"""
import os
import struct
import sys

import cli
from cli import check, equal
from gguf_files import BOOL, F32, I32, STRING, U16, U32, gguf

KEYS = [("general.architecture", STRING, "llama"), ("llama.block_count", U32, 2), ("llama.rope.scale", F32, 0.5),
        ("general.flag", BOOL, True), ("tokenizer.ggml.tokens", STRING, [f"token {i}" for i in range(300)]),
        ("x", I32, 7), ("some.numbers", I32, [-1, 2, -3]), ("text", STRING, "a\nb\x1b[31m" + "x" * 5000)]
# A Q8_0 block: the scale 0.5 as F16 and codes -16 to 15. A block of IQ2_XXS, which is listed and not read.
Q8 = struct.pack("<e32b", 0.5, *range(-16, 16))
TENSORS = {"norm": (0, [4], struct.pack("<4f", -1.5, 2, 0.25, 0)), "weight": (8, [3, 32], 3 * Q8),
           "grid": (16, [256], bytes(66))}


def write(name, data):
    return cli.write(name, data)


def info(*words):
    run = cli.run("info", *words)
    equal(run.returncode, 0, f"exit status of info {words}: {run.stderr}")
    return run.stdout


def refused(what, words, *arguments):
    run = cli.run("info", *arguments)
    check(run.returncode == 2 and not run.stdout and all(w in run.stderr for w in words), f"{what} is refused",
          run.stderr)


def test_model():
    out = info(write("m.gguf", gguf(KEYS, TENSORS)))
    for words in ("GGUF 3, 3 tensors in 1 file,", "general.architecture: llama\n", "llama.block_count: 2\n",
                  "llama.rope.scale: 0.5\n", "general.flag: true\n", "  x: 7\n", "some.numbers: -1, 2, -3\n",
                  "token 7, ... (300 values)\n", "a?b?[31mxx"):
        check(words in out.replace("\n      ", " "), f"{words!r} in its description", out)
    lines = [line.split() for line in out.splitlines()]
    for words in (["norm", "F32", "4"], ["weight", "Q8_0", "3x32"], ["grid", "IQ2_XXS", "256"],
                  ["Q8_0", "1", "tensors", "0.000", "MB", "8.5", "bits"],
                  ["IQ2_XXS", "1", "tensors", "0.000", "MB", "2.062", "bits"]):
        check(words in lines, f"{words} in the lines", out)
    check(max(map(len, out.splitlines())) < 200, "long values are cut")


def test_versions_and_alignment():
    for version in (2, 3):
        keys = KEYS + [("general.alignment", U32, 128)]
        check("3 tensors" in info(write("m.gguf", gguf(keys, TENSORS, version, 128))),
              f"version {version}, alignment 128")
    refused("another alignment than it says", ["m.gguf", "'weight'", "expected is 128"],
            write("m.gguf", gguf(keys, TENSORS, 3, 32)))
    refused("version 1", ["version 1"], write("m.gguf", gguf(KEYS, TENSORS, 1)))
    check("0 tensors" in info(write("m.gguf", gguf(KEYS, {}))), "a vocabulary alone")


def test_many_tensors():
    many = {f"blk.{i}.weight": (0, [1], bytes(4)) for i in range(12)}
    path = write("m.gguf", gguf(KEYS, many))
    check("... 2 more; --table lists all tensors" in info(path) and "blk.11" not in info(path), "the first ten")
    check("blk.11" in info(path, "--table"), "all of them")


def test_numbers():
    path = write("m.gguf", gguf(KEYS, TENSORS))
    check(info(path + ":norm").endswith("-1.5 to 2\nfirst numbers: -1.5 2 0.25 0\n"), "numbers of F32",
          info(path + ":norm"))
    out = info(path + ":weight")
    check(out.endswith("-8 to 7.5\nfirst numbers: -8 -7.5 -7 -6.5 -6 -5.5 -5 -4.5 -4 -3.5\n"), "numbers of Q8_0", out)
    run = cli.run("info", path + ":grid")
    check(run.returncode == 2 and "IQ2_XXS is neither made nor read" in run.stderr, "a type without numbers",
          run.stderr)
    run = cli.run("info", path + ":weigth")
    check(run.returncode == 2 and "has no tensor 'weigth'" in run.stderr, "no such tensor", run.stderr)
    wide = struct.pack("<e32b", 1, *[0] * 31, -100) * 600  # numbers behind the first piece of blocks
    check("-100 to 0" in info(write("w.gguf", gguf([], {"w": (8, [600, 32], wide)})) + ":w"), "range of all pieces")


def split(number, count, tensors, total):
    return gguf(KEYS + [("split.no", U16, number), ("split.count", U16, count), ("split.tensors.count", I32, total)],
                tensors)


def test_parts():
    names = list(TENSORS)
    paths = [write(f"s-{i + 1:05}-of-00003.gguf", split(i, 3, {name: TENSORS[name]}, 3))
             for i, name in enumerate(names)]
    out = info(paths[0])
    check("3 tensors in 3 files" in out and all(name in out for name in names), "all parts", out)
    check("-8 to 7.5" in info(paths[0] + ":weight"), "a tensor of the second part")
    refused("the second part", ["is part 2 of 3", paths[0]], paths[1])
    write(paths[1], split(1, 3, {"norm": TENSORS["norm"]}, 3))
    refused("a tensor in two parts", ["'norm' is in two parts"], paths[0])
    write(paths[1], split(1, 3, {}, 3))
    refused("too few tensors", ["split.tensors.count is 3", "2 tensors"], paths[0])
    write(paths[1], split(2, 3, {}, 3))
    refused("another part", [paths[1], "is part 3 of 3", "part 2 of 3"], paths[0])
    write(paths[1], split(1, 2, {}, 3))
    refused("another number of parts", [paths[1], "part 2 of 2"], paths[0])
    os.remove(paths[1])
    refused("a missing part", [paths[1], "No such file"], paths[0])
    refused("a part of another name", ["-00001-of-00003.gguf"], write("other.gguf", split(0, 3, {}, 0)))
    refused("a text for a number", ["split.no is no number"], write("t.gguf", gguf([("split.no", STRING, "0")], {})))


def test_damaged():
    """What the reader refuses is a line and exit status 2; tests/test_io_gguf.c has thousands of files."""
    good = gguf(KEYS, TENSORS)
    for size in (4, 23, 24, 40, len(good) // 2, len(good) - 1):
        refused(f"{size} bytes", ["m.gguf", "cut off"], write("m.gguf", good[:size]))
    for at in (8, 16, 24):
        refused(f"a count of 2^63 at {at}", ["m.gguf"], write("m.gguf", good[:at] + b"\xff" * 8 + good[at + 8:]))


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
