#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of the configuration of qobs quantize: schemes by name, recipes in YAML and JSON, whole configurations, refusals.

    test_recipes.py QOBS
"""
import json
import os
import shutil
import subprocess
import sys

import cli
from cli import check, equal
from test_quantize_command import make_model, refused, tree, write

QOBS = os.path.abspath(sys.argv[1])
Q, K, V = (f"re:.*{n}_proj" for n in "qkv")
W4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
W8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}


def quantize(*options):
    shutil.rmtree("out", ignore_errors=True)
    return subprocess.run([QOBS, "quantize", "in", "--quiet", "-o", "out", *options], capture_output=True, text=True,
                          timeout=300, check=False)


def shards(path="out"):
    return {k: v for k, v in tree(path).items() if k.endswith(".safetensors")}


def config():
    return json.loads(cli.read("out/config.json"))["quantization_config"]


def as_recipe(text):
    write("recipe", text.encode())
    return quantize("--recipe", "recipe")


YAML = {
    "stages": "default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      targets: Linear\n"
              "      scheme: W4A16\n      ignore: [lm_head]\n",
    "a group of modifiers": "quant_modifiers:\n  QuantizationModifier:\n    targets: ['Linear']\n    scheme: w4a16\n"
                            "    ignore:\n    - lm_head\n",
    "one modifier": "QuantizationModifier: {targets: [Linear], scheme: W4a16, ignore: lm_head}\n",
    "an alias": "x: &a {targets: Linear, scheme: W4A16, ignore: [lm_head]}\nQuantizationModifier: *a\n",
    "JSON": json.dumps({"QuantizationModifier": {"targets": "Linear", "scheme": "W4A16", "ignore": ["lm_head"]}}),
    "a scheme with targets": "QuantizationModifier:\n  scheme:\n    W4A16: [Linear]\n  ignore: [lm_head]\n",
    "groups": "QuantizationModifier:\n  ignore: [lm_head]\n  config_groups:\n    group_0:\n      targets: [Linear]\n"
              "      weights: {num_bits: 4, type: int, strategy: group, group_size: 128, symmetric: true}\n",
}


def test_same_recipes():
    make_model("in")
    equal(quantize("--scheme", "W4A16", "--ignore", "lm_head").returncode, 0, "the scheme by name")
    wanted = shards()
    for what, text in YAML.items():
        run = as_recipe(text)
        equal(run.returncode, 0, f"{what} {run.stderr}")
        equal(shards(), wanted, f"{what}: the tensors of the scheme")
        equal(config()["ignore"], ["lm_head"], f"{what}: ignore")
    write("config", json.dumps({"config_groups": {"g": {"targets": ["Linear"], "weights": W4}}}).encode())
    equal(quantize("--config", "config").returncode, 0, "a configuration")
    equal(shards(), wanted, "a configuration gives the tensors of the scheme")
    written = json.loads(cli.read("out/config.json"))
    shutil.copy("out/config.json", "again")
    equal(quantize("--config", "again").returncode, 0, "the config.json of an output")
    equal(json.loads(cli.read("out/config.json")), written, "a configuration that was written is read again")


def test_mixed_groups():
    make_model("in", layers=1)
    inputs = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
    groups = {"first": {"targets": [Q], "weights": W8, "input_activations": inputs}, "second": {"targets": [Q, K], "weights": W4}}
    write("config", json.dumps({"config_groups": groups}).encode())
    equal(quantize("--config", "config").returncode, 0, "two groups")
    names = set(cli.st_read("out/model.safetensors")[0])
    layer = "model.layers.0.self_attn"
    check(f"{layer}.q_proj.weight_packed" not in names and f"{layer}.q_proj.weight_scale" in names,
          "the first group that matches has a tensor", names)
    check(f"{layer}.k_proj.weight_packed" in names, "the second group has the next", names)
    check(f"{layer}.v_proj.weight" in names and f"{layer}.v_proj.weight_scale" not in names, "no group, no codes", names)
    equal(config()["format"], "mixed-precision", "several formats")


REFUSED = [
    ("no modifier", "a: 1\n", ["QuantizationModifier"]),
    ("a list of members", "QuantizationModifier:\n  - a\n", ["no mapping"]),
    ("another modifier", "GPTQModifier: {scheme: W4A16}\n", ["GPTQModifier"]),
    ("an unknown member", "QuantizationModifier: {scheme: W4A16, bits: 4}\n", ["bits"]),
    ("an unknown scheme", "QuantizationModifier: {scheme: W4A17}\n", ["W4A17", "W4A16"]),
    ("targets that are no texts", "QuantizationModifier: {scheme: W4A16, targets: [1]}\n", ["targets"]),
    ("ignore that is a number", "QuantizationModifier: {scheme: W4A16, ignore: 7}\n", ["ignore"]),
    ("a pattern that is none", "QuantizationModifier: {scheme: W4A16, targets: ['re:(']}\n", ["re:("]),
    ("no YAML", "a: [\n", ["recipe"]),
    ("a key twice", "a: 1\na: 2\n", ["twice"]),
    ("a tree that grows", "a: &a [1,1,1,1,1,1,1,1]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 8)}]\n" for i in range(8)), ["recipe"]),
    ("bits that are none", json.dumps({"QuantizationModifier": {"config_groups": {
        "g": {"targets": ["Linear"], "weights": dict(W4, num_bits=9)}}}}), ["num_bits", "9"]),
    ("a group without a size", json.dumps({"QuantizationModifier": {"config_groups": {
        "g": {"targets": ["Linear"], "weights": dict(W4, group_size=None)}}}}), ["group"]),
]


def test_refusals():
    make_model("in")
    for what, text, words in REFUSED:
        refused(what, as_recipe(text), 2, *words)
    write("recipe", YAML["JSON"].encode())
    refused("two sources", quantize("--scheme", "W4A16", "--recipe", "recipe"), 2, "scheme", "recipe")
    refused("targets of a recipe", quantize("--recipe", "recipe", "--targets", "x"), 2, "targets")
    refused("no source", quantize(), 2, "scheme")
    for text, words in (("{}", ["config_groups"]), ("[]", ["config"]), ('{"config_groups": {"g": 1}}', ["g"]),
                        ('{"config_groups": {"NOPE": ["Linear"]}}', ["NOPE"])):
        write("config", text.encode())
        refused(f"configuration {text}", quantize("--config", "config"), 2, *words)
    check(not os.path.exists("out"), "refusals leave nothing", os.listdir("."))


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if k != "test_quantize_command"}))
