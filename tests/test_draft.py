#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of draft layers (MTP, nextn): which they are, what stays, and what a calibration without them leaves.

    test_draft.py QOBS

tests/clients_draft.py loads the outputs in vLLM.
"""
import json
import re
import sys

import cli
from cli import check, equal
from test_quantize_command import read, refused, tensor
from test_sources import make

LAYER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj")
DEEPSEEK = {"model_type": "deepseek_v3", "num_hidden_layers": 1, "num_nextn_predict_layers": 1}


def matrices(*prefixes, more=()):
    names = [f"{p}.{n}" for p in prefixes for n in LAYER] + list(more)
    return {f"{n}.weight": tensor([128, 128], i) for i, n in enumerate(names)}


def run(*options, scheme="W8A16", status=0):
    """The names of quantized layers, those that stay as a draft, and the report."""
    p = cli.run("quantize", "in", "--scheme", scheme, "-o", "out", "--replace", "--json", "report.json", *options)
    equal(p.returncode, status, f"{options}: exit status {p.stderr}")
    report = json.loads(read("report.json"))
    left = [w["name"] for w in report["left_out"] if w["reason"] == "of draft layers that stay"]
    return sorted(w["name"] for w in report["layers"]), sorted(left), report


def ignored():
    return json.loads(read("out/config.json"))["quantization_config"]["ignore"]


def layers(prefix, *more):
    return sorted([f"{prefix}.{n}" for n in LAYER] + [f"{prefix}.{n}" for n in more])


def test_as_loaded():
    """Quantized if the row says that vLLM loads them so, with what vLLM builds unquantized left; else kept."""
    for config, draft, stays, kept in (
            (DEEPSEEK, "model.layers.1", ["model.layers.1.eh_proj"], False),
            ({"model_type": "qwen3_next", "num_hidden_layers": 1}, "mtp.layers.0", [], False),
            ({"model_type": "mimo", "num_hidden_layers": 1}, "model.mtp_layers.0", ["model.mtp_layers.0.input_proj"],
             False),
            ({"model_type": "ernie4_5_moe", "num_hidden_layers": 1}, "model.mtp_block.0", ["model.mtp_linear_proj.0"],
             False),
            ({"model_type": "longcat_flash", "num_layers": 1}, "model.mtp.layers.0", ["model.mtp.layers.0.eh_proj"],
             True),
            ({"model_type": "llama", "num_hidden_layers": 1}, "mtp.layers.0", [], True),
            (dict(DEEPSEEK, model_type="exaone_moe"), "model.layers.1", [], True)):
        make("in", matrices("model.layers.0", draft, more=stays), **config)
        done, left, _ = run()
        equal(done, sorted(layers("model.layers.0") + ([] if kept else layers(draft))), f"{config}: quantized")
        equal(left, sorted(layers(draft) + stays) if kept else [], f"{config}: draft layers that stay")
        entries = ignored()
        for name in stays:
            check(any(re.match(e[3:], name) if e.startswith("re:") else e == name for e in entries),
                  f"{config}: {name} is in ignore", entries)
        for name in layers(draft):
            claims = any(re.match(e[3:], name) if e.startswith("re:") else e == name for e in entries)
            equal(claims, kept, f"{config}: {name} in ignore")


def test_choice():
    """--draft keep and quantize come before the row, a target that names a layer before both."""
    make("in", matrices("model.layers.0", "model.layers.1", more=["model.layers.1.eh_proj"]), **DEEPSEEK)
    done, left, _ = run("--draft", "keep")
    equal((done, left), (layers("model.layers.0"), layers("model.layers.1", "eh_proj")), "keep")
    check("re:(.*[.])?layers[.]1([.].*)?$" in ignored(), "keep: the pattern", ignored())
    make("in", matrices("model.layers.0", "mtp.layers.0"), model_type="llama", num_hidden_layers=1)
    equal(run("--draft", "quantize")[0], sorted(layers("model.layers.0") + layers("mtp.layers.0")), "quantize")
    equal(run("--targets", "mtp.layers.0.mlp.down_proj")[0], ["mtp.layers.0.mlp.down_proj"], "a target")
    refused("a word", cli.run("quantize", "in", "--scheme", "W8A16", "-o", "no", "--draft", "yes"), 2, "--draft",
            "keep")


def test_numbers():
    """Layers with numbers behind those of the language model are no draft without num_nextn_predict_layers, and only so
    many are."""
    tower = "vision_tower.encoder.layers.30"
    make("in", matrices("model.layers.0", "model.layers.1", tower), model_type="llama", num_hidden_layers=1)
    equal(run()[1], [], "without num_nextn_predict_layers")
    make("in", matrices("model.layers.0", "model.layers.1", "model.layers.2", tower), **DEEPSEEK)
    equal(run("--draft", "keep")[1], layers("model.layers.1"), "one draft layer")


def test_calibration():
    """Recordings of the model alone: static scales of the draft are missing, so that it stays; nothing fails."""
    make("in", matrices("model.layers.0", "model.layers.1"), **DEEPSEEK)
    inputs = {f"model.layers.0.{n}.input": tensor([4, 128], i) for i, n in enumerate(LAYER)}
    cli.write("a.safetensors", cli.st_bytes(inputs))
    done, left, report = run("--activations", "a.safetensors", scheme="FP8")
    equal((done, left), (layers("model.layers.0"), layers("model.layers.1")), "FP8")
    check(any("draft layers" in w for w in report["warnings"]), "FP8: a warning", report["warnings"])
    equal(run("--activations", "a.safetensors", "--draft", "quantize", scheme="FP8")[0], layers("model.layers.0"),
          "FP8, --draft quantize")
    drafts = {f"model.layers.1.{n}.input": tensor([4, 128], i) for i, n in enumerate(LAYER)}
    cli.write("b.safetensors", cli.st_bytes(dict(inputs, **drafts)))
    equal(run("--activations", "b.safetensors", scheme="FP8")[0],
          sorted(layers("model.layers.0") + layers("model.layers.1")), "FP8, all recorded")
    states = {f"model.layers.0.self_attn.{k}_states": tensor([1, 2, 4, 64], i) for i, k in enumerate("kv")}
    cli.write("kv.safetensors", cli.st_bytes(states))
    done, left, report = run("--activations", "kv.safetensors")
    equal((len(done), left), (2 * len(LAYER), []), "a key/value cache: dynamic layers are quantized")
    equal(report["activation_scales"], 2, "a key/value cache: scales of the recorded attention alone")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
