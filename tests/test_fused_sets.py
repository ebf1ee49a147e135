#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of the layers that vLLM runs as one matrix: they share scales, and they have one scheme.

    test_fused_sets.py QOBS
"""
import json
import os
import random
import shutil
import sys

import cli
from cli import check, equal
from test_quantize_command import write


# (model_type, parent, members), as packed_modules_mapping of the models of vLLM 0.32 has them.
SETS = [("llama", "model.layers.0.self_attn", "q_proj k_proj v_proj"),
        ("llama", "model.layers.0.mlp", "gate_proj up_proj"),
        ("lfm2", "model.layers.0.feed_forward", "w1 w3"),
        ("qwen3_5", "model.layers.0.linear_attn", "in_proj_qkv in_proj_z"),
        ("qwen3_5", "model.layers.0.linear_attn", "in_proj_b in_proj_a"),
        ("exaone", "transformer.h.0.mlp", "c_fc_0 c_fc_1"), ("qwen", "transformer.h.0.mlp", "w2 w1"),
        ("molmo2", "vision.blocks.0.attention", "wq wk wv"), ("molmo2", "pooling", "k_proj v_proj"),
        ("bert", "encoder.layer.0.attention.self", "query key value"), ("wan", "blocks.0.attn1", "to_q to_k to_v"),
        ("qwen2_5_omni", "audio.blocks.0", "attn.q attn.k attn.v"),
        ("deepseek_v3", "model.layers.0.self_attn", "q_a_proj kv_a_proj_with_mqa"),
        ("kimi_linear", "model.layers.0.self_attn", "q_proj k_proj v_proj b_proj f_a_proj g_proj"),
        ("olmo_hybrid", "model.layers.0.linear_attn", "q_proj k_proj v_proj g_proj"),
        ("bailing_hybrid", "model.layers.0.attention", "q_proj k_proj v_proj b_proj"),
        ("whisper", "model.decoder.layers.0.encoder_attn", "k_proj v_proj"),
        ("chatglm", "transformer.vision.linear_proj", "gate_proj dense_h_to_4h"),
        ("dots_ocr", "vision_tower.blocks.0.mlp", "fc1 fc3")]
# Weights that are not one matrix in these models.
APART = [("llama", "model.layers.0.mlp", "fc1 fc3"), ("llama", "model.layers.0.self_attn", "k_proj v_proj"),
         ("whisper", "model.decoder.layers.0.encoder_attn", "q_proj k_proj")]


def make(path, model_type, names, hidden=64):
    shutil.rmtree(path, ignore_errors=True)
    generator, tensors = random.Random(7), {}
    for i, name in enumerate(names):
        values = [generator.gauss(0, 0.02 * 5 ** (i % 4)) for _ in range(hidden * hidden)]
        tensors[f"{name}.weight"] = ("BF16", [hidden, hidden], cli.pack("BF16", values))
    write(f"{path}/model.safetensors", cli.st_bytes(tensors))
    write(f"{path}/config.json", json.dumps({"model_type": model_type, "hidden_size": hidden}).encode())


def quantize(*options):
    shutil.rmtree("out", ignore_errors=True)
    return cli.run("quantize", "in", "-o", "out", "--accept-unknown", *options)


def scales(part):
    """The tensors of that name: {module: values}."""
    return {k.removesuffix("." + part): v[2] for k, v in cli.st_read("out/model.safetensors")[0].items()
            if k.endswith("." + part)}


def test_global_scales():
    for model_type, parent, members in SETS:
        names = [f"{parent}.{m}" for m in members.split()]
        make("in", model_type, names)
        equal(quantize("--scheme", "NVFP4A16", "--quiet").returncode, 0, f"{model_type} {members}")
        found = scales("weight_global_scale")
        equal(sorted(found), sorted(names), f"{model_type} {members}: all are quantized")
        equal(len({tuple(v) for v in found.values()}), 1, f"{model_type} {members}: one global scale")
    for model_type, parent, members in APART:
        make("in", model_type, [f"{parent}.{m}" for m in (members + " v_proj").split()][:3])
        equal(quantize("--scheme", "NVFP4A16", "--quiet").returncode, 0, f"{model_type} {members}")
        first, second = [tuple(scales("weight_global_scale")[f"{parent}.{m}"]) for m in members.split()]
        check(first != second, f"{model_type} {members}: no one matrix")


FP8 = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}
INPUTS = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}


def fp8(weights, *options):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": INPUTS}
    write("config", json.dumps({"config_groups": {"g": group}, "ignore": ["lm_head"]}).encode())
    equal(quantize("--config", "config", "--quiet", *options).returncode, 0, f"FP8 {weights} {options}")
    return {k: v[0] for k, v in scales("weight_scale").items()}


def test_scales_of_tensors():
    """vLLM makes the largest scale that of the set and quantizes the codes of the others again."""
    make("in", "llama", LAYERS)
    own = fp8(FP8, "--compat", "llm-compressor")
    for weights in (FP8, {**FP8, "observer": "memoryless_mse"}):
        shared = fp8(weights)
        for layer in range(2):
            for members in ("self_attn.q_proj self_attn.k_proj self_attn.v_proj", "mlp.gate_proj mlp.up_proj"):
                names = [f"model.layers.{layer}.{m}" for m in members.split()]
                equal(len({shared[n] for n in names}), 1, f"one scale: {names}")
                check(len({own[n] for n in names}) > 1, f"--compat llm-compressor: own scales: {names}")
                if "observer" not in weights:
                    equal(shared[names[0]], max(own[n] for n in names), f"the largest: {names}")
            o = f"model.layers.{layer}.self_attn.o_proj"
            check("observer" in weights or shared[o] == own[o], "a layer of no set keeps its scale")


W4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
LAYERS = [f"model.layers.{i}.{m}" for i in range(2) for m in
          ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
           "mlp.up_proj")]


def test_sets_of_several_schemes():
    make("in", "llama", LAYERS)
    g32 = ["--scheme", "W4A16", "--set", "group_size=32"]
    q_alone = [*g32, "--ignore", "re:.*q_proj"]
    run = quantize(*q_alone)
    cli.check(run.returncode == 2 and not os.path.exists("out"), "a member that is ignored", run.stderr)
    for words in ("model.layers.0.self_attn", "q_proj (not quantized)", "k_proj (W4A16)", "2 sets",
                  "'re:.*(k_proj|q_proj|v_proj)$'", "--allow-mixed-sets"):
        check(words in run.stderr, f"the message has {words}", run.stderr)
    for what, options in (("one target", [*g32, "--targets", "re:.*gate_proj"]),
                          ("one layer", [*g32, "--ignore", LAYERS[2]])):
        equal(quantize(*options).returncode, 2, what)
    for what, options in (("whole sets ignored", [*g32, "--ignore", "re:.*(k_proj|q_proj|v_proj)$"]),
                          ("o_proj ignored", [*g32, "--ignore", "re:.*o_proj"]),
                          ("one set of two", [*g32, "--ignore", "re:.*layers.1.self_attn"])):
        run = quantize(*options)
        equal((run.returncode, run.stderr), (0, ""), what)
    for options in ([*q_alone, "--allow-mixed-sets"], [*q_alone, "--compat", "llm-compressor"]):
        run = quantize(*options)
        equal(run.returncode, 0, f"written: {options}")
        check("q_proj (not quantized)" in run.stderr, "the warning names the set", run.stderr)


def test_sets_of_a_configuration():
    make("in", "llama", LAYERS)

    def groups(first, second, *options):
        write("config", json.dumps({"config_groups": {
            "a": {"targets": ["re:.*q_proj"], "weights": first},
            "b": {"targets": ["Linear"], "weights": second}}}).encode())
        return quantize("--config", "config", "--quiet", *options)

    run = groups({**W4, "num_bits": 8}, W4)
    check(run.returncode == 2 and "q_proj (a)" in run.stderr and "k_proj (b)" in run.stderr, "two schemes", run.stderr)
    equal(groups({**W4, "num_bits": 8}, W4, "--allow-mixed-sets").returncode, 0, "--allow-mixed-sets")
    equal(groups({**W4, "observer": "memoryless_mse"}, W4).returncode, 0,
          "two groups with one scheme, another observer")


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if k != "test_quantize_command"}))
