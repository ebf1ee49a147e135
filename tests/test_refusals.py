#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests that a refusal names all layers that it is about, and that its --ignore leaves out all of them at once.

    test_refusals.py QOBS
"""
import json
import re
import shutil
import sys

import cli
from cli import check, equal
from test_quantize_command import tensor, write

PLAIN = [f"model.layers.{i}.mlp.{m}" for i in range(3) for m in ("gate_proj", "up_proj", "down_proj")]


def make(tensors, path="in", **config):
    shutil.rmtree(path, ignore_errors=True)
    write(f"{path}/model.safetensors", cli.st_bytes({f"{n}.weight": t if isinstance(t[0], str) else tensor(t, 1)
                                                     for n, t in tensors.items()}))
    write(f"{path}/config.json", json.dumps({"model_type": "llama", "vocab_size": 32, **config}).encode())


def quantize(*options):
    shutil.rmtree("out", ignore_errors=True)
    return cli.run("quantize", "in", "--quiet", "--allow-mixed-sets", "-o", "out", *options)


def quantized():
    return {n.rsplit(".", 1)[0]
            for n in cli.st_read("out/model.safetensors")[0] if n.endswith((".weight_packed", ".weight_scale"))}


def all_at_once(what, names, options, *words, stays=None, more=()):
    """The run is refused with the number of layers, and works after one --ignore of the message."""
    run = quantize(*options)
    lines = run.stderr.splitlines()
    equal((run.returncode, len(lines)), (2, 1), f"{what}: refused in one line ({run.stderr[:300]})")
    check(f"{len(names)} layers" in run.stderr and all(w in run.stderr for w in words), f"{what}: {words}", run.stderr)
    check(any(n in run.stderr for n in names), f"{what}: names one", run.stderr)
    check(len(run.stderr) < 300, f"{what}: the library has 256 bytes", run.stderr)
    entry = re.search(r"--ignore '([^']+)'", run.stderr)
    check(entry, f"{what}: an entry", run.stderr)
    if not entry:
        return
    run = quantize(*options, "--ignore", entry[1], *more)
    equal(run.returncode, 0, f"{what}: after --ignore {entry[1]} ({run.stderr[:300]})")
    left = [n for n in names if n in quantized()]
    equal(left, [], f"{what}: all stay")
    if stays is not None:
        equal(sorted(quantized()), sorted(stays), f"{what}: others are quantized")


def test_columns():
    names = [f"vision_tower.vision_model.encoder.layers.{i}.mlp.fc2" for i in range(27)]
    rest = {n: [128, 128] for n in PLAIN}
    make({**{n: [128, 269] for n in names}, **rest})
    all_at_once("27 of a tower", names, ["--scheme", "W4A16"], "have 269 columns, groups of 128", stays=PLAIN)
    other = [n.replace("vision_tower.vision_model.encoder", "model").replace("fc2", "fc1") for n in names]
    make({**{n: [128, 269] for n in names}, **{n.replace("fc1", "fc2"): [128, 128] for n in other}, **rest})
    all_at_once("the same last name elsewhere", names, ["--scheme", "W4A16"], "269 columns", "re:vision_tower[.].*",
                stays=[*PLAIN, *(n.replace("fc1", "fc2") for n in other)])
    mixed = {n: [128, 269 if i % 2 else 333] for i, n in enumerate(names)}
    make({**mixed, **rest})
    all_at_once("several numbers of columns", names, ["--scheme", "W4A16"], "333 and other columns", stays=PLAIN)
    make({**{n: [128, 320] for n in names}, **rest})
    all_at_once("a group size that divides all", names, ["--scheme", "W4A16"], "--set group_size=64", stays=PLAIN)
    equal(quantize("--scheme", "W4A16", "--set", "group_size=64").returncode, 0, "the group size of the message")
    some = {f"model.layers.{i}.self_attn.{p}": [128, 200] for i in range(4) for p in ("q_proj", "k_proj", "v_proj")}
    make({**some, **rest})
    all_at_once("a set of names", list(some), ["--scheme", "W4A16"], "(k_proj|q_proj|v_proj)", stays=PLAIN)
    few = {"model.layers.1.mlp.up_proj": [128, 200], "model.layers.1.mlp.down_proj": [128, 200]}
    make({**rest, **few})
    all_at_once("layers whose names others have", list(few), ["--scheme", "W4A16", "--targets", "re:.*"],
                "1[.]mlp[.]down_proj",
                stays=[n for n in PLAIN if n not in few])
    make({"model.layers.0.mlp.up_proj": [128, 200], "model.layers.0.mlp.down_proj": [128, 128]})
    run = quantize("--scheme", "W4A16")
    check("tensor 'model.layers.0.mlp.up_proj.weight': 200 columns" in run.stderr and
          "--ignore 'model.layers.0.mlp.up_proj'" in run.stderr, "one layer has its name", run.stderr)


def test_kinds():
    rest = {n: [128, 128] for n in PLAIN}
    tables = ["model.embed_tokens", "model.embed_tokens_per_layer"]
    make({**{n: [32, 128] for n in tables}, **rest}, model_type="gemma3n_text")
    all_at_once("embeddings", tables, ["--scheme", "W8A16", "--targets", "re:.*"],
                "are targeted; vLLM 0.32 alone loads embeddings",
                stays=PLAIN)
    convolutions = [f"vision.blocks.{i}.conv" for i in range(3)]
    make({**{n: [8, 8, 3, 3] for n in convolutions}, **rest})
    all_at_once("no matrices", convolutions, ["--scheme", "W8A16", "--targets", "re:.*"], "have shape [8,8,3,3]",
                stays=PLAIN)
    numbers = [f"model.layers.{i}.table" for i in range(3)]
    make({**{n: ("I32", [8, 8], bytes(256)) for n in numbers}, **rest})
    all_at_once("no floats", numbers, ["--scheme", "W8A16", "--targets", "re:.*"], "are I32", stays=PLAIN)
    empty = [f"model.layers.{i}.empty" for i in range(3)]
    make({**{n: ("BF16", [0, 128], b"") for n in empty}, **rest})
    all_at_once("no elements", empty, ["--scheme", "W8A16", "--targets", "re:.*"], "have no elements", stays=PLAIN)
    gpt2 = [f"transformer.h.{i}.{m}" for i in range(3) for m in ("attn.c_proj", "mlp.c_fc")]
    make({**{n: [128, 128] for n in gpt2}, "lm_head": [32, 128]}, model_type="gpt2")
    run = quantize("--scheme", "W8A16", "--targets", "re:.*c_.*")
    check("6 layers" in run.stderr and "are targeted; no runtime loads a Conv1D" in run.stderr
          and "(c_proj|c_fc)" in run.stderr,
          "a Conv1D", run.stderr)


def test_experts():
    """Experts that are quantized in part: the number of layers beside a pattern for all of them."""
    names = {f"model.layers.{i}.mlp.experts.{e}.{m}": [128, 128] for i in range(3) for e in range(2)
             for m in ("gate_proj", "up_proj", "down_proj")}
    make(names, model_type="qwen3_moe")
    run = quantize("--scheme", "W4A16", "--ignore", "re:.*experts.1.*")
    check(run.returncode == 2 and "the first of 3 layers" in run.stderr and "re:.*experts.*" in run.stderr, "experts",
          run.stderr)


def test_sources():
    """Codes without scales: how many there are."""
    rest = {n: [128, 128] for n in PLAIN}
    make({**{f"model.layers.{i}.self_attn.q_proj": ("F8_E4M3", [128, 128], bytes(1 << 14)) for i in range(3)}, **rest},
         quantization_config={"quant_method": "fp8"})
    run = quantize("--scheme", "W4A16")
    check(run.returncode == 2 and "layers.0.self_attn.q_proj" in run.stderr and "(and 2 more tensors)" in run.stderr,
          "no scales",
          run.stderr)


def test_kept():
    """Layers that are quantized, but that their configuration ignores."""
    make({n: [128, 128] for n in PLAIN})
    equal(quantize("--scheme", "W8A16").returncode, 0, "first")
    shutil.rmtree("in")
    shutil.move("out", "in")
    config = json.loads(cli.read("in/config.json"))
    config["quantization_config"]["ignore"] = ["re:.*up_proj"]
    write("in/config.json", json.dumps(config).encode())
    names = [n for n in PLAIN if n.endswith("up_proj")]
    run = quantize("--scheme", "W4A16", "--targets", "re:.*down_proj")
    check(run.returncode == 2 and "3 layers" in run.stderr and "model ignores them" in run.stderr
          and "up_proj" in run.stderr,
          f"{names}", run.stderr)


def test_recordings():
    make({n: [128, 128] for n in PLAIN})
    recorded = {f"{n}.input": ("BF16", [4, 128], cli.pack("BF16", [1.0] * 512)) for n in PLAIN if "down" not in n}
    write("inputs.safetensors", cli.st_bytes(recorded))
    names = [n for n in PLAIN if "down" in n]
    options = ["--scheme", "FP8", "--activations", "inputs.safetensors"]
    run = quantize(*options)
    entry = re.search(r"--ignore '([^']+)'", run.stderr)
    check(run.returncode == 2 and "for 3 of 9 scales" in run.stderr and entry, "not recorded", run.stderr)
    equal(quantize(*options, "--ignore", entry[1] if entry else "").returncode, 0, "after its --ignore")
    check(not quantized() & set(names), "they stay")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
