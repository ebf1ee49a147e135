#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of the scales of activations that qobs quantize stores: from recordings, from saved states, and what is
refused.

    test_static_scales.py QOBS

Equality with llm-compressor on a running model is in live_static.py.
"""
import json
import os
import random
import shutil
import struct
import sys

import cli
from cli import check, equal
from test_quantize_command import make_model, refused, tree, write

WIDTH, ATTENTION = 128, "model.layers.0.self_attn"
MODULES = [f"{ATTENTION}.{m}_proj" for m in "qkv"]
E4M3 = ["type=float", "num_bits=8", "strategy=tensor"]


def bf16(shape, seed, scale=1.0):
    generator = random.Random(seed)
    count = 1
    for n in shape:
        count *= n
    return ("BF16", list(shape), b"".join(struct.pack("<H", cli.bf16_bits(generator.uniform(-scale, scale)))
                                          for _ in range(count)))


def largest(*tensors):
    return max(abs(cli.bf16_value(b)) for _, _, raw in tensors for (b,) in struct.iter_unpack("<H", raw))


def quantize(*options, scheme="FP8"):
    shutil.rmtree("out", ignore_errors=True)
    return cli.run("quantize", "in", "--scheme", scheme, "--quiet", "-o", "out", *options)


def stored():
    return cli.st_read("out/model.safetensors")[0]


def record(path, tensors):
    write(path, cli.st_bytes(tensors))


def test_recordings():
    make_model("in", layers=1)
    first, second = bf16((2, 3, WIDTH), 1), bf16((5, WIDTH), 2, 3.0)
    keys = bf16((1, 2, 3, 64), 3, 0.5), bf16((1, 2, 3, 64), 4, 0.25)
    record("a", {f"{MODULES[0]}.input": first, f"{ATTENTION}.k_states": keys[0], f"{ATTENTION}.v_states": keys[1]})
    record("b", {f"{MODULES[0]}.input": second})
    equal(quantize("--activations", "a", "--activations", "b").returncode, 0, "FP8 from two batches")
    wanted = cli.bf16_value(cli.bf16_bits(largest(first, second) / 448))
    tensors = stored()
    for module in MODULES:
        equal(tensors[f"{module}.input_scale"], ("BF16", [1], [wanted]), f"{module} shares the input of q_proj")
    for name, values in zip("kv", keys):
        scale = cli.bf16_value(cli.bf16_bits(largest(values) / 448))
        equal(tensors[f"{ATTENTION}.{name}_scale"], ("BF16", [1], [scale]), f"scale of {name}")
    config = json.loads(cli.read("out/config.json"))["quantization_config"]
    equal(config["kv_cache_scheme"]["num_bits"], 8, "recorded keys bring a kv_cache_scheme")
    index = json.loads(cli.read("out/model.safetensors.index.json"))["weight_map"]
    check(set(index) == set(tensors), "the index has every scale", set(index) ^ set(tensors))
    before = tree("out")
    for threads in ("1", "3"):
        quantize("--activations", "a", "--activations", "b", "--threads", threads)
        equal(tree("out"), before, f"the same bytes with {threads} threads")


def test_global_scales():
    make_model("in", layers=1)
    values = [bf16((4, WIDTH), seed, seed) for seed in (1, 2, 3)]
    record("a", {f"{m}.input": v for m, v in zip(MODULES, values)})
    equal(quantize("--activations", "a", scheme="NVFP4").returncode, 0, "NVFP4 from a recording")
    amax = largest(*values)
    tensors = stored()
    scales = {tensors[f"{m}.input_global_scale"][2][0] for m in MODULES}
    check(len(scales) == 1, "what vLLM fuses has one global scale", scales)
    check(abs(scales.pop() * amax / (448 * 6) - 1) < 0.01, "the global scale is that of the largest magnitude", amax)
    check(not any(n.endswith(("input_scale", "k_scale")) for n in tensors), "no other scales", list(tensors))


def observe(state, *sources, settings=E4M3, base="input"):
    words = [f"base_name={base}", *settings]
    cli.fine(state, "observe", "--preset", "llmc.static_minmax", *(a for w in words for a in ("--set", w)), "--state",
             state,
             *sources)


def test_recordings_without_use():
    """Recorded inputs of a layer that stores no scales of them: the warning has schemes that do."""
    other = "model.layers.1.self_attn.q_proj"
    make_model("in", layers=2)
    record("a", {f"{module}.input": bf16((3, WIDTH), 1) for module in (MODULES[0], other)})
    run = quantize("--activations", "a", "--ignore", "re:.*layers.1.*")
    equal(run.returncode, 0, "recordings without use: exit status")
    check(all(words in run.stderr for words in (f"1 recorded tensors are not used, such as '{other}.input'",
                                                "no layer of this run stores scales of them", "NVFP4")),
          "recordings without use: schemes are named", run.stderr)


def test_states():
    make_model("in", layers=1)
    record("a", {f"{MODULES[0]}.input": bf16((3, WIDTH), 1)})
    record("b", {f"{MODULES[0]}.input": bf16((3, WIDTH), 2, 2.0)})
    quantize("--activations", "a", "--activations", "b")
    wanted = tree("out")
    os.mkdir("s"), os.mkdir("t")
    observe(f"s/{MODULES[0]}.input.qobs", f"a:{MODULES[0]}.input")
    observe("t/x", f"b:{MODULES[0]}.input")
    write("t/states.json", json.dumps({"states": {f"{MODULES[0]}.input": "x"}}).encode())
    equal(quantize("--states", "s", "--states", "t").returncode, 0, "states of two directories")
    equal(tree("out"), wanted, "states give the bytes of recordings")
    for text, words in (('{"states": {"m.input": "../s"}}', ["m.input", "directory"]), ('{"states": 1}', ["states"]),
                        ("{", ["states.json"]), ('{"states": {}}', ["holds no states"]),
                        ('{"states": {"m.input": "absent"}}', ["--states: nothing is recorded"])):
        write("t/states.json", text.encode())
        refused(f"states.json {text}", quantize("--states", "t"), 2, *words)
    write("t/states.json", json.dumps({"states": {f"{MODULES[0]}.input": "absent"}}).encode())
    refused("a state that is not there", quantize("--states", "t"), 2, "absent")
    write("t/x", b"no state")
    write("t/states.json", json.dumps({"states": {f"{MODULES[0]}.input": "x"}}).encode())
    refused("a damaged state", quantize("--states", "t"), 2, "t/x")
    observe("t/x", f"b:{MODULES[0]}.input", settings=["type=int", "num_bits=8", "strategy=tensor"])
    refused("a state of another scheme", quantize("--states", "t"), 2, "type", "int", "float")
    os.mkdir("empty")
    refused("no states", quantize("--states", "empty"), 2, "empty", "holds no states")
    refused("no directory", quantize("--states", "nowhere"), 2, "nowhere")
    check(not os.path.exists("out"), "refusals leave nothing", os.listdir("."))


def test_refusals():
    make_model("in", layers=1)
    record("a", {f"{MODULES[0]}.input": bf16((3, WIDTH), 1)})
    record("narrow", {f"{MODULES[0]}.input": bf16((3, WIDTH - 1), 1)})
    record("other", {"lm_head.input": bf16((3, WIDTH), 1)})
    record("nan", {f"{MODULES[0]}.input": ("BF16", [1, WIDTH], b"\xc0\x7f" * WIDTH)})
    record("keys", {f"{MODULES[0]}.input": bf16((3, WIDTH), 1), f"{ATTENTION}.k_states": bf16((1, 64), 1)})
    refused("FP8 without recordings", quantize(), 2, "FP8 needs", "--states DIR", "libqobs.calibration",
            "--activations DIR",
            "libqobs.record", "FP8_DYNAMIC")
    refused("features", quantize("--activations", "narrow"), 2, "127", "128")
    refused("nothing recorded", quantize("--activations", "other"), 2, "k_proj.input", "3 of 3")
    refused("NaN", quantize("--activations", "nan"), 2, "q_proj.input", "NaN")
    refused("keys without values", quantize("--activations", "keys"), 2, "v_states")
    refused("a scheme that needs nothing", quantize("--activations", "a", scheme="W4A16"), 2, "activations")
    refused("no file", quantize("--activations", "absent"), 2, "absent")
    write("kv.json", json.dumps({"config_groups": {"W4A16": ["Linear"]}, "kv_cache_scheme": {
        "num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}}).encode())
    run = cli.run("quantize", "in", "--config", "kv.json", "-o", "out")
    refused("kv_cache_scheme without recordings", run, 2, "kv_cache_scheme", "k_states")
    check(not os.path.exists("out"), "refusals leave nothing", os.listdir("."))


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
