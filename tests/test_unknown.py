#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of what is said of a model that no row knows, and of what is no model of transformers.

    test_unknown.py QOBS
"""
import json
import os
import shutil
import sys

import cli
from cli import check, equal
from test_architectures import ignored
from test_quantize_command import quantize, read, refused, tensor
from test_sources import make

BLOCK = "model.layers.0"
LINEAR = [f"{BLOCK}.self_attn.q_proj", f"{BLOCK}.mlp.down_proj", f"{BLOCK}.mlp.up_proj"]
LEFT = [f"{BLOCK}.self_attn.indexer.weights_proj", f"{BLOCK}.mlp.gate", "lm_head"]


def matrices(names):
    return {f"{n}.weight": tensor([128, 128], i) for i, n in enumerate(names)}


def run(*options, status=3, out="out", command=cli.run):
    """Returns the report, standard output and error of a run on `in`."""
    p = command("quantize", "in", "--scheme", "W8A16", "-o", out, "--replace", "--json", "report.json", *options)
    equal(p.returncode, status, f"{options}: exit status {p.stderr}")
    return json.loads(read("report.json")), p.stdout, p.stderr


def test_unknown():
    """An invented type: status 3, a warning that names it and the ways on, no runtime."""
    for config in ({"model_type": "totally_new", "architectures": ["TotallyNewForCausalLM"]},
                   {"model_type": "totally_new"},
                   {"model_type": "llava", "text_config": {"model_type": "totally_new"}}):
        make("in", matrices(LINEAR + LEFT), **config)
        report, said, warned = run()
        equal(report["knowledge"]["unknown"], "totally_new", f"{config}: the report")
        equal(report["runtimes"], [], f"{config}: no runtime is claimed")
        for word in ("'totally_new' is not among the models that were tried (transformers ", ", vLLM ", "general rule",
                     "python -m libqobs.architectures in -o rows.json", "--architectures rows.json",
                     "python -m libqobs.check out", "--accept-unknown"):
            check(word in warned, f"{config}: a warning has {word}", warned)
        check(any("totally_new" in w for w in report["warnings"]), f"{config}: the report warns", report["warnings"])
        check("'totally_new' is not known" in said and "vLLM" not in said.split("architecture:")[1].split("\n\n")[0],
              f"{config}: the summary claims nothing", said)
        report, _, warned = run("--accept-unknown", status=0)
        equal((report["runtimes"], "--accept-unknown" in warned), ([], False), f"{config}: accepted")
        equal(run("--quiet")[1], "", f"{config}: --quiet")


def test_known():
    """Status 0: a type with a row, also one without contents; a class with a row; a known part of a known model."""
    for config in ({"model_type": "llama"}, {"model_type": "olmoe"},
                   {"model_type": "llava", "text_config": {"model_type": "llama"}},
                   {"model_type": "siglip", "text_config": {"model_type": "siglip_text_model"}},
                   {"model_type": "llava", "vision_config": {"model_type": "new_tower"}}):
        make("in", matrices(LINEAR), **config)
        report, said, _ = run("--scheme", "W8A16", status=0)
        check("unknown" not in report["knowledge"] and report["runtimes"], f"{config}: is known", report["knowledge"])
    with open("rows.json", "w", encoding="utf-8") as file:
        json.dump({"transformers": "6.0.0", "vllm": "0.40.0", "architectures": [
            {"types": ["other"], "classes": ["TotallyNewForCausalLM"]}]}, file)
    for config in ({"model_type": "totally_new"}, {}):
        make("in", matrices(LINEAR), **{"model_type": None, **config}, architectures=["TotallyNewForCausalLM"])
        report, _, _ = run("--architectures", "rows.json", status=0)
        equal((report["knowledge"]["source"], len(report["runtimes"])), ("file", 1), f"{config}: known by its class")


def test_patterns():
    """`ignore` names what stays, and has the last components as patterns that match under other prefixes and match no
    layer that is quantized."""
    two = [*LEFT, "visual.blocks.3.router.proj", "visual.blocks.3.attn.proj", "model.embed_tokens"]
    make("in", matrices(LINEAR + two), model_type="totally_new")
    run()
    entries = json.loads(read("out/config.json"))["quantization_config"]["ignore"]
    check("re:.*[.]indexer[.]weights_proj$" in entries, "the indexer's pattern", str(entries))
    for name in (*two, "language_model.model.decoder.blocks.7.self_attn.indexer.weights_proj",
                 "other.layers.1.mlp.gate", "x.lm_head", "language_model.embed_tokens",
                 "model.vision.blocks.0.router.proj"):
        taken = name == "visual.blocks.3.attn.proj"
        equal(ignored(name, entries), not taken, f"{name}: ignore has it")
    for name in (*LINEAR, "language_model.layers.3.mlp.down_proj"):
        check(not ignored(name, entries), f"{name}: ignore has it not", str(entries))
    make("in", matrices(LINEAR + ["model.layers.1.mlp.up_proj"]), model_type="totally_new")
    run("--ignore", "model.layers.1.mlp.up_proj")
    entries = json.loads(read("out/config.json"))["quantization_config"]["ignore"]
    check(not ignored(LINEAR[2], entries), "a layer that is like one that stays", str(entries))
    make("in", matrices(LINEAR + LEFT), model_type="llama")
    run(status=0)
    entries = json.loads(read("out/config.json"))["quantization_config"]["ignore"]
    equal([e for e in entries if e.startswith("re:")], [], "a known model has no patterns")


def test_no_model():
    """What is no model of transformers is refused unless targets name the layers. No runtime is claimed then."""
    configs = {"{}": "has no model_type", '{"hidden_size": 128}': "has no model_type", "": "has no config.json",
               '{"_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.35.0"}': "'FluxTransformer2DModel'",
               '{"architectures": ["TotallyNewModel"]}': "has no model_type"}
    for text, word in configs.items():
        make("in", matrices(LINEAR), model_type="llama")
        os.remove("in/config.json")
        if text:
            with open("in/config.json", "w", encoding="utf-8") as file:
                file.write(text)
        shutil.rmtree("out", ignore_errors=True)
        for options in ([], ["--targets", "Linear"], ["--accept-unknown"]):
            refused(f"{text} {options}", quantize("in", "-o", "out", *options, scheme="W8A16"), 2, word, "--targets",
                    "no runtime is known")
            check(not os.path.exists("out"), f"{text} {options}: there is no output")
        report, said, _ = run("--targets", "re:.*_proj$", status=0)
        config = json.loads(read("out/config.json"))
        group, = config.pop("quantization_config")["config_groups"].values()
        equal((config, group["targets"]), (json.loads(text or "{}"), ["re:.*_proj$"]), f"{text}: config.json")
        known = report["knowledge"]["by_names"]
        equal((known, report["runtimes"], len(report["layers"])), (True, [], 3), f"{text}: report")
        check("no runtime is known to load this" in said, f"{text}: the summary", said)
        p = quantize("in", "-o", "out", "--replace", "--compat", "llm-compressor", scheme="W8A16")
        equal((p.returncode, "tried" in p.stderr), (0, False), f"{text}: the compatible mode stays as it is {p.stderr}")


def test_parts():
    """Each part and what they are joined to say the same."""
    make("in", matrices(LINEAR), model_type="totally_new")
    shutil.rmtree("out", ignore_errors=True)
    for options, status in ([], 3), (["--accept-unknown"], 0):
        shutil.rmtree("out", ignore_errors=True)
        p = quantize("in", "-o", "out", "--part", "1/1", *options, scheme="W8A16")
        equal(p.returncode, status, f"a part {options}: {p.stderr}")
        equal(cli.run("quantize", "--finish", "out", *options).returncode, status, f"the parts {options}")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
