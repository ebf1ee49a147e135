#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of qobs quantize --part and --finish: the bytes of one run, whoever writes what, and refusals.

    test_parts.py QOBS [ROUNDS]

ROUNDS is the number of random moments at which --finish is killed (default 10).
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import cli
from cli import check, equal
from test_quantize_command import is_complete, make_model, read, refused, tensor, tree, write

QOBS = os.path.abspath(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 10


def quantize(*options):
    return subprocess.run([QOBS, "quantize", *options, "--quiet"], capture_output=True, text=True, timeout=300,
                          check=False)


def make_parts(count, scheme="W4A16", order=None, options=()):
    for i in order or range(1, count + 1):
        equal(quantize("in", "--scheme", scheme, "-o", "out", "--part", f"{i}/{count}", *options).returncode, 0,
              f"{scheme}: part {i} of {count}")


def clean():
    for name in ("out", "out.parts", "one", "in"):
        shutil.rmtree(name, ignore_errors=True)


def split_model():
    """Members of fused sets lie in different shards."""
    shards, where = {f"model-0000{i}-of-00003.safetensors": {} for i in (1, 2, 3)}, {}
    for layer in range(4):
        for i, module in enumerate("qkvo"):
            key = f"model.layers.{layer}.self_attn.{module}_proj.weight"
            name = list(shards)[(layer + i) % 3]
            shards[name][key] = tensor([64, 128], 4 * layer + i)
            where[key] = name
    for name, tensors in shards.items():
        write(f"in/{name}", cli.st_bytes(tensors))
    write("in/model.safetensors.index.json", json.dumps({"weight_map": where}).encode())
    write("in/config.json", b'{"model_type": "llama"}')
    write("in/part.json", b"a file of the model")


def test_same_bytes():
    for make in (split_model, lambda: make_model("in", layers=5, shards=3), lambda: make_model("in")):
        for scheme, options in (("W4A16", ()), ("NVFP4A16", ()), ("NVFP4A16", ("--preset", "llmc.memoryless_mse")),
                                ("NVFP4A16", ("--compat", "llm-compressor"))):
            clean()
            make()
            quantize("in", "--scheme", scheme, "-o", "one", *options)
            for count, order in ((1, None), (2, [2, 1]), (3, [3, 1, 2]), (7, None)):
                make_parts(count, scheme, order, options)
                check(not os.path.exists("out"), "parts alone make no output", os.listdir("."))
                equal(quantize("--finish", "out").returncode, 0, f"{scheme}: finish {count} parts")
                equal(tree("out"), tree("one"), f"{scheme}: {count} parts give the bytes of one run")
                check(not os.path.exists("out.parts"), "finish removes the parts", os.listdir("."))
                shutil.rmtree("out")


def test_report():
    make_model("in", layers=4, shards=4)
    run = [QOBS, "quantize", "in", "--scheme", "W8A8", "-o", "one", "--json", "-"]
    one = json.loads(subprocess.run(run, capture_output=True, check=True).stdout)
    make_parts(3, "W8A8")
    run = [QOBS, "quantize", "--finish", "out/", "--json", "-"]
    joined = json.loads(subprocess.run(run, capture_output=True, check=True).stdout)
    by_name = lambda report: {layer["name"]: layer for layer in report["layers"]}
    equal(by_name(joined), by_name(one), "layers of the joined report")
    equal(joined["bytes_after"], one["bytes_after"], "bytes of the joined report")


def test_refusals():
    make_model("in", layers=4, shards=4)
    refused("no parts", quantize("--finish", "out"), 2, "out.parts", "--part")
    refused("an option that parts have", quantize("--finish", "out", "--draft", "keep"), 2, "--draft", "changes nothing")
    make_parts(3, order=[1, 3])
    refused("a part is missing", quantize("--finish", "out"), 2, "1 of 3", "2")
    make_parts(3, scheme="W8A8", order=[2])
    refused("a part of another scheme", quantize("--finish", "out"), 2, "part 2")
    refused("a part that is there", quantize("in", "--scheme", "W4A16", "-o", "out", "--part", "2/3"), 2, "part-2-of-3",
            "--replace")
    equal(quantize("in", "--scheme", "W4A16", "-o", "out", "--part", "2/3", "--replace").returncode, 0, "a part again")
    make_parts(4, order=[1])
    refused("parts of two runs", quantize("--finish", "out"), 2, "of 3", "of 4")
    shutil.rmtree("out.parts/part-1-of-4")
    write("out/file", b"")
    refused("an output that holds files", quantize("--finish", "out"), 2, "out", "--replace")
    shard = next(f"out.parts/part-2-of-3/files/{n}" for n in os.listdir("out.parts/part-2-of-3/files"))
    data = read(shard)
    write(shard, data[:-1])
    refused("a shard that is too short", quantize("--finish", "out", "--replace"), 2, shard)
    write(shard, b"\xff" * 8 + data[8:])
    refused("a shard that is damaged", quantize("--finish", "out", "--replace"), 2, os.path.basename(shard))
    write(shard, data)
    other = os.path.dirname(shard) + "/other.safetensors"
    write(other, data)
    refused("a shard of another run", quantize("--finish", "out", "--replace"), 2, "other.safetensors", "part 2")
    os.remove(other)
    for name in ("config.json", "model.safetensors.index.json"):
        beside = f"out.parts/part-1-of-3/files/{name}"
        data = read(beside)
        os.remove(beside)
        refused(f"a lost {name}", quantize("--finish", "out", "--replace"), 2, beside, "make the part again")
        write(beside, data[:-1])
        refused(f"a {name} that is too short", quantize("--finish", "out", "--replace"), 2, beside)
        write(beside, data)
    description = read("out.parts/part-2-of-3/part.json")
    for member, value in (("part", 1), ("parts", 4), ("files", None), ("fingerprint", "")):
        write("out.parts/part-2-of-3/part.json", json.dumps({**json.loads(description), member: value}).encode())
        refused(f"a description with another {member}", quantize("--finish", "out", "--replace"), 2, "part 2")
    write("out.parts/part-2-of-3/part.json", description)
    os.rename("out.parts/part-2-of-3", "kept")
    shutil.copytree("out.parts/part-3-of-3", "out.parts/part-2-of-3")
    refused("a part under another's name", quantize("--finish", "out", "--replace"), 2, "part 2 of 3")
    shutil.rmtree("out.parts/part-2-of-3")
    os.rename("kept", "out.parts/part-2-of-3")
    equal(tree("out"), {"file": b""}, "refusals leave the output")
    equal(quantize("--finish", "out", "--replace").returncode, 0, "finish after the mend")
    equal(os.path.exists("out/file"), False, "the output is replaced")
    for part in ("0/3", "4/3", "1", "1/", "/3", "1/3x", "-1/3", "1/0", "1/100001", "", " 1/3"):
        refused(f"--part '{part}'", quantize("in", "--scheme", "W4A16", "-o", "new", "--part", part), 2, "--part",
                "I/N")
    refused("a part of the model itself", quantize("in", "--scheme", "W4A16", "-o", "in", "--part", "1/2"), 2, "in")
    refused("finish and a model", quantize("in", "--finish", "out"), 2, "--finish")
    refused("finish and -o", quantize("-o", "out", "--finish", "out"), 2, "--finish")
    check(not os.path.exists("new.parts") and not os.path.exists("in.parts"), "nothing is left", os.listdir("."))


def test_many_processes():
    split_model()
    quantize("in", "--scheme", "NVFP4A16", "-o", "one")
    runs = [subprocess.Popen([QOBS, "quantize", "in", "--scheme", "NVFP4A16", "-o", "out", "--part", f"{i}/3",
                              "--quiet"])
            for i in (1, 2, 3)]
    equal([run.wait() for run in runs], [0, 0, 0], "three processes at once")
    quantize("--finish", "out")
    equal(tree("out"), tree("one"), "three processes at once give the bytes of one run")


def test_kills():
    make_model("in", layers=8, width=256, shards=4)
    quantize("in", "--scheme", "W8A8", "-o", "one")
    wanted = tree("one")
    make_parts(3, "W8A8")
    generator = random.Random(1)
    for _ in range(ROUNDS):
        if not os.path.exists("out.parts/part-1-of-3"):
            make_parts(3, "W8A8")
        run = subprocess.Popen([QOBS, "quantize", "--finish", "out", "--quiet"], stderr=subprocess.DEVNULL)
        time.sleep(generator.random() * 0.02)
        run.send_signal(generator.choice((signal.SIGKILL, signal.SIGTERM)))
        run.wait()
        if os.path.exists("out"):
            equal(tree("out"), wanted, "an output that is there is complete")
            shutil.rmtree("out")
            shutil.rmtree("out.parts", ignore_errors=True)
    if not os.path.exists("out.parts"):
        make_parts(3, "W8A8")
    equal(quantize("--finish", "out").returncode, 0, "finish after all")
    equal(tree("out"), wanted, "the output after all")
    check(is_complete("out") and sorted(os.listdir(".")) == ["in", "one", "out"], "nothing is left", os.listdir("."))


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if k != "test_quantize_command"}))
