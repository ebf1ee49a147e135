#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests that whatever the user gives and nothing uses is named, once, with what would work, and that the exit status is
3.

    test_unused.py QOBS
"""
import json
import shutil
import sys

import cli
from cli import check, equal
from test_quantize_command import tensor, write

W4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
W8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
TOKEN = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
LAYER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
         "mlp.down_proj")


def make_model(path="in", tied=True, columns=None, **config):
    shutil.rmtree(path, ignore_errors=True)
    names = [f"model.layers.{i}.{m}" for i in range(2) for m in LAYER]
    tensors = {f"{n}.weight": tensor([128, 128], 1) for n in names}
    tensors |= {f"{n}.weight": tensor([128, c], 1) for n, c in (columns or {}).items()}
    tensors |= {f"model.layers.{i}.input_layernorm.weight": tensor([128], 1) for i in range(2)}
    tensors["model.embed_tokens.weight"] = tensor([32, 128], 2)
    if not tied:
        tensors["lm_head.weight"] = tensor([32, 128], 2)
    write(f"{path}/model.safetensors", cli.st_bytes(tensors))
    write(f"{path}/config.json",
          json.dumps({"model_type": "llama", "vocab_size": 32, "tie_word_embeddings": tied, **config}).encode())


def quantize(*options, source=("--scheme", "W4A16")):
    shutil.rmtree("out", ignore_errors=True)
    return cli.run("quantize", "in", "--quiet", "--allow-mixed-sets", "-o", "out", *source, *options)


def warnings(run):
    return [line for line in run.stderr.splitlines() if "as one matrix" not in line]


def named(what, run, *words, status=3):
    """One warning has all the words, and the output is there."""
    equal(run.returncode, status, f"{what}: exit status ({run.stderr.strip()[:200]})")
    lines = [line for line in warnings(run) if all(w in line for w in words)]
    equal(len(lines), 1, f"{what}: one line with {' and '.join(words)} in {run.stderr.strip()!r}")
    cli.read("out/config.json")


def silent(what, run):
    equal((run.returncode, warnings(run)), (0, []), f"{what}: nothing is said")


def packed():
    return {name[:-14] for name in cli.st_read("out/model.safetensors")[0] if name.endswith(".weight_packed")}


# ---- Entries that match nothing --------------------------------------------------------------------------------------

# Written: what the message has, so that it works
IGNORED = {
    "q_proj": "names match from their start: re:.*q_proj finds every q_proj", "re:q_proj": "re:.*q_proj",
    "re:^q_proj": "re:.*q_proj", "re:layers.0.*": "re:.*layers.0.*", "mlp.up_proj": "re:.*mlp.up_proj",
    "q_proj,k_proj": "each name is an entry of its own, first 'q_proj'",
    "re:.*q_proj,re:.*k_proj": "first 're:.*q_proj'",
    "['lm_head']": "each name is an entry of its own, first 'lm_head'", "['q_proj', 'k_proj']": "first 'q_proj'",
    "'lm_head'": "without them it is lm_head", '"re:.*q_proj"': "without them it is re:.*q_proj",
    "*q_proj*": "the regular expression is re:.*q_proj.*", "model.*.q_proj": "begins with re: and is re:model.*.q_proj",
    "*.q_proj": "the regular expression is re:.*.q_proj$", ".*q_proj": "begins with re: and is re:.*q_proj",
    "model.layers.0.self_attn.q_proj.weight": "the module is model.layers.0.self_attn.q_proj",
    r"re:.*q_proj\.weight$": "the module is re:.*q_proj",
    "model.layers.0": "re:model.layers.0[.].* finds what it holds",
    "self_attn": "re:.*[.]self_attn[.].*", "q_porj": "did you mean re:.*q_proj?",
    "re:.*q_porj$": "did you mean re:.*q_proj$?",
    "model.layers.1.mlp.dwon_proj": "did you mean model.layers.1.mlp.down_proj?", "lm_haed": "did you mean lm_head?",
    "LM_HEAD": "did you mean lm_head?", "model.layer.0.mlp.up_proj": "did you mean model.layers.0.mlp.up_proj?",
    "Embedding": "classes are not known here", "re:.*vision_tower.*": "an entry is a whole name",
    "re:.*mlp.gate$": "an entry",
}


def test_ignored():
    make_model()
    for entry, hint in IGNORED.items():
        named(f"--ignore {entry}", quantize("--ignore", entry), f"--ignore: '{entry}' matches no module", hint)
    equal(len(packed()), 14, "what nothing ignores is quantized")
    named("beside one that matches", quantize("--ignore", "re:.*k_proj", "--ignore", "q_proj"), "'q_proj'",
          "re:.*q_proj")
    equal(len(packed()), 12, "the one that matches is used")
    for entry in ("lm_head", "re:.*lm_head", "re:(.*[.])?lm_head$", "model.embed_tokens", "re:.*norm", "re:.*embed",
                  "model.layers.0.mlp.up_proj", "re:.*"):
        run = quantize("--ignore", entry)
        check("matches no module" not in run.stderr, f"--ignore {entry}: it matches", run.stderr)
    silent("the hint is followed", quantize("--ignore", "re:.*q_proj"))
    equal(len(packed()), 12, "the hint is followed: every q_proj stays")
    many = [option for i in range(30) for option in ("--ignore", f"nothing{i}")]
    equal(len(warnings(quantize(*many))), 11, "the first of many, and their number")
    make_model(tied=False)
    silent("a head", quantize("--ignore", "lm_head"))


def test_no_head():
    make_model()
    tensors = {f"{n}.weight": tensor([128, 128], 1)
               for n in ("vit.encoder.layer.0.output.dense", "vit.encoder.layer.1.output.dense")}
    write("in/model.safetensors", cli.st_bytes(tensors))
    write("in/config.json", b'{"model_type": "vit", "architectures": ["ViTModel"]}')
    named("a model without a vocabulary", quantize("--ignore", "lm_head"), "'lm_head' matches no module")


def test_targets():
    make_model()
    for entry, hint in {"q_proj": "re:.*q_proj finds every q_proj", "linear": "did you mean Linear?",
                        "Conv2d": "Linear alone is known", "lm_head": "tied to the embeddings",
                        "*q_proj": "re:.*q_proj"}.items():
        named(f"--targets {entry}", quantize("--targets", entry, "--targets", "re:.*k_proj"),
              f"--targets: '{entry}' matches no module", hint)
        equal(len(packed()), 2, "the other target is used")
    named("no target matches", quantize("--targets", "q_proj"), "'q_proj'", "re:.*q_proj finds every q_proj")
    silent("a class", quantize("--targets", "Linear"))


def test_compatible():
    """Upstream says nothing, and the output is upstream's."""
    make_model()
    named("--compat", quantize("--ignore", "q_proj", "--ignore", "re:.*embed.*", "--compat", "llm-compressor"),
          "--ignore: 'q_proj'", status=0)


def test_reports():
    """The library says it, so that Python does, too; all functions do."""
    make_model()
    cli.run("quantize", "in", "-o", "out", "--scheme", "W4A16", "--ignore", "q_proj", "--json", "report")
    report = json.loads(cli.read("report"))
    equal([text.split(";")[0] for text in report["unused"]], ["ignore: 'q_proj' matches no module"],
          "the report of quantize")
    run = cli.run("calibrate", "in", "-o", "scales", "--scheme", "W4A16", "--ignore", "q_proj", "--json", "report",
                  "--quiet")
    equal((run.returncode, len(json.loads(cli.read("report"))["unused"])), (3, 1), "calibrate")
    check("--ignore: 'q_proj' matches no module" in run.stderr, "calibrate says it", run.stderr)
    run = cli.run("plan", "in", "--schemes", "W4A16,W8A16", "--ignore", "q_proj", "--json", "report", "--quiet")
    equal((run.returncode, len(json.loads(cli.read("report"))["unused"])), (3, 1), "plan says it for one scheme")
    check("--ignore: 'q_proj' matches no module" in run.stderr, "plan says it", run.stderr)


# ---- Files -----------------------------------------------------------------------------------------------------------

def configured(config, *options):
    write("c.json", json.dumps(config).encode())
    return quantize(*options, source=("--config", "c.json"))


def groups(**members):
    return {"config_groups": {"g": {"targets": ["Linear"], "weights": W4, **members}}}


def refused(what, run, *words):
    equal(run.returncode, 2, f"{what}: exit status")
    check(all(w in run.stderr for w in words) and len(run.stderr.splitlines()) == 1, f"{what}: {', '.join(words)}",
          run.stderr)


def test_configurations():
    make_model()
    named("ignore", configured({**groups(), "ignore": ["q_proj"]}), "c.json: ignore: 'q_proj'",
          "re:.*q_proj finds every q_proj")
    named("targets", configured({"config_groups": {"g": {"targets": ["Linear", "q_proj"], "weights": W4}}}),
          "c.json: g: targets: 'q_proj' matches no module")
    hidden = {"config_groups": {"a": {"targets": ["re:.*proj"], "weights": W4},
                                "b": {"targets": ["re:.*q_proj"], "weights": W8}}}
    named("a hidden group", configured(hidden), "c.json: b: quantizes nothing", "in a;")
    hidden["config_groups"]["a"]["targets"] = hidden["config_groups"]["b"]["targets"] = ["Linear"]
    named("a class twice", configured(hidden), "c.json: b: quantizes nothing", "in a;")
    hidden["config_groups"]["a"]["targets"] = ["re:.*proj"]
    silent("a group for all other modules", configured(hidden))
    hidden["config_groups"]["b"]["targets"] = ["re:.*embed_tokens"]
    silent("a group of modules that stay", configured(hidden, "--ignore", "re:.*embed_tokens"))
    named("transforms", configured({**groups(), "transform_config": {"config_groups": {"u": {"type": "hadamard"}}}}),
          "c.json: transform_config: no weight is transformed")
    named("sparsity", configured({**groups(), "sparsity_config": {"format": "sparse-24-bitmask"}}), "sparsity_config")
    named("a ratio", configured({**groups(), "global_compression_ratio": 1.5}),
          "global_compression_ratio changes nothing here",
          status=0)
    silent("members that say nothing",
           configured({**groups(), "transform_config": {}, "sparsity_config": {"format": "dense"},
                       "moe_sparsity_config": None, "version": "0.19.0", "quantization_status": "compressed",
                       "quant_method": "compressed-tensors", "global_compression_ratio": None,
                       "run_compressed": True, "dequantize": False}))
    refused("a misspelt member", configured({**groups(), "ignored": ["lm_head"]}), "c.json", "'ignored'",
            "did you mean 'ignore'?")
    refused("an unknown member", configured({**groups(), "color": 1}), "c.json", "'color', which is unknown")
    refused("a misspelt member of a group", configured({"config_groups": {"g": {"target": ["Linear"], "weights": W4}}}),
            "did you mean 'targets'?")
    refused("a misspelt member of a scheme", configured(groups(weights={**W4, "num_bit": 4})),
            "did you mean 'num_bits'?")
    named("two formats", configured({**groups(format="pack-quantized"), "format": "int-quantized"}),
          "c.json: format is int-quantized, but g has pack-quantized, which counts", status=0)


def test_schemes():
    make_model()
    named("a group size of channels", configured(groups(weights={**W8, "group_size": 64})),
          "c.json: g: weights: group_size changes nothing with the strategy channel")
    named("a group size of tokens", configured(groups(weights=W8, input_activations={**TOKEN, "group_size": 32})),
          "c.json: g: input_activations: group_size changes nothing with the strategy token")
    inputs = json.loads(cli.read("out/config.json"))["quantization_config"]["config_groups"]["g"]["input_activations"]
    equal(inputs["group_size"], None, "compressed-tensors would refuse it")
    named("an order of inputs", configured(groups(weights=W8, input_activations={**TOKEN, "actorder": "weight"})),
          "actorder")
    named("an order that GPTQ uses", configured(groups(weights={**W4, "actorder": "static"})),
          "actorder=static changes nothing here", status=0)
    for order in ("group", "dynamic"):
        refused("an order that runtimes refuse", configured(groups(weights={**W4, "actorder": order})), "g: weights",
                order, "weight_g_idx")
    refused("an unknown order", configured(groups(weights={**W4, "actorder": "statci"})), "'statci'",
            "did you mean 'static'?")


def test_cache():
    make_model()
    keys = {f"model.layers.{i}.self_attn.{k}_states": ("BF16", [1, 1, 4, 128], cli.pack("BF16", [1.0] * 512))
            for i in range(2) for k in "kv"}
    write("a.safetensors", cli.st_bytes(keys))
    cache = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}
    silent("a cache", configured({**groups(), "kv_cache_scheme": cache}, "--activations", "a.safetensors"))
    for member, value in (("group_size", 64), ("block_structure", [128, 128]), ("actorder", "weight")):
        named(f"{member} of a cache",
              configured({**groups(), "kv_cache_scheme": {**cache, member: value}}, "--activations", "a.safetensors"),
              "c.json: kv_cache_scheme", member)
    refused("a misspelt member", configured({**groups(), "kv_cache_scheme": {**cache, "simmetric": True}}),
            "did you mean 'symmetric'?")
    named("settings of nothing",
          configured({"kv_cache_scheme": cache}, "--activations", "a.safetensors", "--set", "num_bits=4"),
          "--set: num_bits=4 changes nothing", "no group of weights")


def recipe(text, *options):
    write("r.yaml", text.encode())
    return quantize(*options, source=("--recipe", "r.yaml"))


def test_recipes():
    make_model()
    head = "QuantizationModifier:\n  scheme: W4A16\n  targets: Linear\n"
    named("ignore", recipe(head + "  ignore: [q_proj, lm_head]\n"), "r.yaml: ignore: 'q_proj'",
          "re:.*q_proj finds every q_proj")
    named("targets", recipe("QuantizationModifier:\n  scheme: W4A16\n  targets: [Linear, re:q_proj]\n"),
          "targets: 're:q_proj'")
    named("outside", recipe(head + "ignore: [lm_head]\n"), "r.yaml: 'ignore' stands outside of QuantizationModifier")
    silent("a stage",
           recipe("a_stage:\n  run_type: oneshot\n  a_modifiers:\n    " + head.replace("\n", "\n    ") + "\n"))
    refused("a misspelt member", recipe(head + "  schema: W4A16\n"), "'schema'", "did you mean 'scheme'?")
    named("an observer of nothing", recipe(head + "  input_observer: minmax\n"),
          "the observer of input changes nothing here", status=0)
    named("targets beside groups",
          recipe("QuantizationModifier:\n  targets: ['re:.*q_proj']\n  config_groups: {g: {targets: "
                 "[Linear], weights: {num_bits: 4, group_size: 128}}}\n"), "r.yaml: targets change nothing")
    named("both", recipe(head + "  ignore: [q_proj]\n", "--ignore", "k_proj"), "r.yaml: ignore: 'q_proj'")
    named("both", recipe(head + "  ignore: [q_proj]\n", "--ignore", "k_proj"), "--ignore: 'k_proj'")


def test_notes_stay():
    """A model with layers that stay in codes completes the ignore list after the notes of the recipe."""
    make_model()
    silent("first", quantize("--targets", "re:.*mlp.*"))
    shutil.rmtree("in")
    shutil.move("out", "in")
    named("again", recipe("QuantizationModifier:\n  scheme: W8A16\n  targets: ['re:.*self_attn.*']\n  start: 0.0\n"),
          "recipe: start changes nothing here", status=0)


# ---- Settings --------------------------------------------------------------------------------------------------------

def test_settings():
    make_model()
    w8 = ("--scheme", "W8A8")
    named("groups of channels", quantize("--set", "group_size=64", source=w8), "--set: group_size=64 changes nothing",
          "channel")
    named("blocks of groups", quantize("--set", "block_structure=[128,128]"), "--set: block_structure", "group",
          "block uses it")
    named("zero points", quantize("--set", "zp_dtype=int8"), "--set: zp_dtype=int8", "symmetric")
    silent("groups", quantize("--set", "group_size=64"))
    silent("a strategy that leaves the scheme's group size unused", quantize("--set", "strategy=channel"))
    silent("groups of channels",
           quantize("--set", "strategy=group", "--set", "group_size=64", source=("--scheme", "W8A16")))
    named("no strategy", quantize("--set", "strategy=null"),
          "--set: strategy=null changes nothing: the strategy stays group")
    refused("twice", quantize("--set", "group_size=64", "--set", "group_size=32"), "--set: 'group_size' is given twice",
            "'64'", "'32'")
    silent("twice the same", quantize("--set", "group_size=64", "--set", "group_size=64"))
    refused("twice in a plan",
            cli.run("plan", "in", "--schemes", "W4A16,W8A16", "--set", "W4A16.group_size=64", "--set",
                    "W4A16.group_size=32"), "W4A16.group_size", "given twice")
    refused("twice in calibrate",
            cli.run("calibrate", "in", "--scheme", "W4A16", "-o", "scales", "--set", "group_size=64", "--set",
                    "group_size=32"), "'group_size' is given twice")
    named("two observers", quantize("--preset", "llmc.memoryless_mse", "--set", "observer=memoryless_minmax"),
          "--preset: llmc.memoryless_mse changes nothing", "observer=memoryless_minmax")
    refused("a base", quantize("--set", "base_name=input"), "--set: is 'base_name=input'", "weight")
    for order in ("group", "backwards"):
        refused("an order", quantize("--set", f"actorder={order}"), order)


# ---- Inputs and options ----------------------------------------------------------------------------------------------

def test_states():
    """States that no scheme and no search uses."""
    make_model()
    write("x.safetensors", cli.st_bytes({"x": ("BF16", [4, 128], cli.pack("BF16", [1.0, -2.0] * 256))}))
    cli.fine("a state", "observe", "--preset", "llmc.imatrix_mse", "--strategy", "channel", "--state", "s",
             "--importance", "x.safetensors:x", "x.safetensors:x")
    write("states/model.layers.0.self_attn.q_proj.importance.qobs", cli.read("s"))
    named("importance for a range", quantize("--states", "states"), "--states: nothing in them is used",
          "--preset qobs.imatrix_optimal does by mean squares")
    silent("a search",
           quantize("--states", "states", "--preset", "llmc.imatrix_mse", "--targets", "re:.*[.]0[.].*q_proj"))


def test_activations():
    make_model()
    write("a.safetensors",
          cli.st_bytes({f"model.layers.0.{m}.input": ("BF16", [4, 128], cli.pack("BF16", [1.0] * 512)) for m in LAYER}))
    run = cli.run("calibrate", "in", "--scheme", "W4A16", "-o", "scales", "--quiet", "--activations", "a.safetensors")
    equal((run.returncode, run.stderr.count("--activations: nothing in them is used")), (3, 1),
          f"calibrate {run.stderr}")
    for option, text in (("--preset", "output=llmc.minmax"), ("--set", "q.num_bits=8"), ("--set", "kv.num_bits=8")):
        make_model(columns={})
        run = cli.run("calibrate", "in", "--scheme", "W8A8", "-o", "scales", "--quiet", "--activations",
                      "a.safetensors", option, text)
        check(run.returncode != 0, f"calibrate {option} {text}: said", run.stderr)
    run = cli.run("calibrate", "in", "--scheme", "W8A8", "-o", "scales", "--quiet", "--activations", "a.safetensors",
                  "--set",
                  "input.averaging_constant=0.1", "--preset", "input=llmc.minmax")
    equal(run.returncode, 3, "inputs whose scales are made while the model runs")
    for words in ("--set: input.averaging_constant=0.1 changes nothing", "--preset: input=llmc.minmax changes nothing"):
        check(words in run.stderr, words, run.stderr)


def test_experts():
    make_model()
    named("--fill-experts", quantize("--fill-experts", "max"), "--fill-experts: changes nothing", status=0)
    named("--split-experts", quantize("--split-experts"), "--split-experts: changes nothing", status=0)


def test_options():
    make_model()
    for options in (("--compat", "vllm", "--compat", "next"), ("--fill-experts", "max", "--fill-experts", "median"),
                    ("--part", "1/2", "--part", "2/2"), ("--recipe", "a", "--recipe", "b")):
        refused(f"{options}", quantize(*options), f"{options[0]} is given twice", f"'{options[1]}'", f"'{options[3]}'")
    silent("twice the same", quantize("--compat", "vllm", "--compat", "vllm"))
    refused("a budget twice", cli.run("plan", "in", "--schemes", "W4A16", "--budget", "4", "--budget", "5"),
            "--budget is given twice")
    for option in (("--scheme", "W4A16"), ("--ignore", "x"), ("--part", "1/2"), ("--compat", "next"),
                   ("--allow-mixed-sets",),
                   ("--set", "a=b"), ("--preset", "llmc.minmax"), ("--fill-experts", "max"), ("--split-experts",)):
        refused(f"--finish {option}", cli.run("quantize", "--finish", "out", *option), "--finish", option[0],
                "changes nothing")
    named("a table of nothing", quantize("--table"), "--table: no table is printed", status=0)
    run = cli.run("audit", "out", "--json", "--table")
    check(run.returncode == 0 and "--table: no table" in run.stderr, "audit", run.stderr)
    w = "in/model.safetensors:model.layers.0.mlp.up_proj.weight"
    observe = ("observe", "--preset", "llmc.memoryless_minmax", w)
    refused("observe, a setting twice", cli.run(*observe, "--set", "num_bits=4", "--set", "num_bits=8"),
            "--set: 'num_bits' is given twice")
    refused("observe, two strategies", cli.run(*observe, "--strategy", "channel", "--set", "strategy=tensor"),
            "--strategy", "--set")
    refused("show, a setting twice",
            cli.run("show", "--preset", "llmc.minmax", w, "--set", "num_bits=4", "--set", "num_bits=8"), "twice")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
