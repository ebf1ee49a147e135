#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of inputs that are quantized already, and of configurations inside config.json.

    test_sources.py QOBS
"""
import json
import os
import shutil
import sys

import cli
from cli import equal
from test_quantize_command import quantize, refused, tensor, write

Q = "model.layers.0.self_attn.q_proj"


def make(path, tensors, **config):
    shutil.rmtree(path, ignore_errors=True)
    write(f"{path}/model.safetensors", cli.st_bytes(tensors))
    write(f"{path}/config.json", json.dumps({"model_type": "llama", **config}).encode())


def run(what, *options, **keywords):
    shutil.rmtree("out", ignore_errors=True)
    p = quantize("in", "-o", "out", *options, **keywords)
    equal(p.returncode, 0, f"{what}: exit status {p.stderr}")
    return cli.st_read("out/model.safetensors")[0]


# ---- Configurations --------------------------------------------------------------------------------------------------

def test_nested_quantization():
    """A quantization_config inside any configuration is seen, at any depth."""
    for path in ("text_config", "llm_config", "vision_config", "thinker_config.text_config", "audio.encoder"):
        config = {"quantization_config": {"quant_method": "awq"}}
        for key in reversed(path.split(".")):
            config = {key: config}
        make("in", {Q + ".weight": tensor([128, 128], 1)}, **config)
        refused(path, quantize("in", "-o", "out"), 2, path, "awq")


def test_nested_sizes():
    """The hidden size of the language model says how experts lie, wherever it is."""
    experts = "model.layers.0.mlp.experts"
    tensors = {f"{experts}.gate_up_proj": tensor([2, 32, 128], 1), f"{experts}.down_proj": tensor([2, 64, 32], 2)}
    for sizes in ({"text_config": {"hidden_size": 32}, "hidden_size": 128}, {"hidden_size": 32},
                  {"vision_config": {"hidden_size": 128}, "thinker_config": {"text_config": {"hidden_size": 32}}},
                  {"a_config": {"hidden_size": 128}, "llm_config": {"hidden_size": 32}}):
        make("in", tensors, **sizes)
        out = run(str(sizes), scheme="W8A8")
        equal(out.get(f"{experts}.0.gate_proj.weight", (0, 0))[1], [64, 32], f"{sizes}: the shape of gate_proj")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
