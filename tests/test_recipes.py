#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of the configuration of qobs quantize: schemes by name, recipes in YAML and JSON, whole configurations,
refusals.

    test_recipes.py QOBS
"""
import json
import platform
import os
import random
import re
import shutil
import sys

import cli
from cli import check, equal
from test_quantize_command import make_model, refused, tree, write

Q, K, V = (f"re:.*{n}_proj" for n in "qkv")
W4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
W8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}


def quantize(*options):
    shutil.rmtree("out", ignore_errors=True)
    return cli.run("quantize", "in", "--quiet", "-o", "out", *options)


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
    groups = {"first": {"targets": [Q], "weights": W8, "input_activations": inputs},
              "second": {"targets": [Q, K], "weights": W4}}
    write("config", json.dumps({"config_groups": groups}).encode())
    equal(quantize("--config", "config", "--allow-mixed-sets").returncode, 0, "two groups")
    names = set(cli.st_read("out/model.safetensors")[0])
    layer = "model.layers.0.self_attn"
    check(f"{layer}.q_proj.weight_packed" not in names and f"{layer}.q_proj.weight_scale" in names,
          "the first group that matches has a tensor", names)
    check(f"{layer}.k_proj.weight_packed" in names, "the second group has the next", names)
    check(f"{layer}.v_proj.weight" in names and f"{layer}.v_proj.weight_scale" not in names, "no group, no codes",
          names)
    equal(config()["format"], "mixed-precision", "several formats")


def test_names_before_classes():
    """Runtimes look for a module's name in all groups before they look for its class."""
    make_model("in", layers=1)
    groups = {"first": {"targets": ["Linear"], "weights": W4}, "second": {"targets": [Q, K, V], "weights": W8}}
    write("config", json.dumps({"config_groups": groups}).encode())
    equal(quantize("--config", "config").returncode, 0, "a class before names")
    written, scales = config(), cli.st_read("out/model.safetensors")[0]["model.layers.0.self_attn.q_proj.weight_scale"]
    equal(scales[1], [128, 1], "the group that names the module has it")
    equal(cli.run("audit", "out").returncode, 0, "the audit resolves it in the same way")
    equal(list(written["config_groups"])[0], "first", "the groups keep their order")
    equal(quantize("--config", "config", "--compat", "llm-compressor").returncode, 0, "compatible")
    check("model.layers.0.self_attn.q_proj.weight_packed" in cli.st_read("out/model.safetensors")[0],
          "upstream takes the first group")


# Scheme: (the format that vLLM loads, that of --compat llm-compressor)
FORMATS = {**{s: ("pack-quantized", "int-quantized") for s in
              ("W2A8", "W2A4", "W3A8", "W3A4", "W4A8", "W4A4", "W5A8", "W6A8", "W7A8", "W4AFP8")},
           "W8A8": ("int-quantized", "int-quantized"), "W8A16": ("pack-quantized", "pack-quantized"),
           "FP8_DYNAMIC": ("float-quantized", "float-quantized")}


def packed(path="out"):
    return {k for shard in shards(path) for k in cli.st_read(os.path.join(path, shard))[0] if k.endswith("_packed")}


def written_format():
    written = config()
    group, = written["config_groups"].values()
    equal(group["format"], written["format"], "the group and the configuration have one format")
    equal(bool(packed()), written["format"] == "pack-quantized", "the tensors have the format that is written")
    return written["format"]


def test_formats_of_schemes():
    make_model("in", layers=1)
    for scheme, (default, upstream) in FORMATS.items():
        equal(quantize("--scheme", scheme, "--ignore", "lm_head").returncode, 0, scheme)
        equal(written_format(), default, scheme)
        equal(cli.run("audit", "out").returncode, 0, f"the audit of {scheme}")
        compatible = quantize("--scheme", scheme, "--compat", "llm-compressor", "--ignore", "re:.*(embed|head)")
        equal(compatible.returncode, 0, f"{scheme}, compatible")
        equal(written_format(), upstream, f"{scheme}, compatible")


def test_releases():
    """The tensors are the same in all releases, config.json is not; 0.14 does not have every format."""
    make_model("in", layers=1)
    written = {}
    for compat in ("llm-compressor", "llm-compressor-0.14", "next"):
        options = ("--scheme", "W4A16_ASYM", "--ignore", "re:.*(embed|head)", "--compat", compat)
        equal(quantize(*options).returncode, 0, compat)
        written[compat] = (shards(), cli.read("out/config.json"))
    equal(written["llm-compressor"], written["llm-compressor-0.14"], "0.14 is the release")
    equal(written["llm-compressor"][0], written["next"][0], "the tensors of the next release")
    weights, = (group["weights"] for group in config()["config_groups"].values())
    check("observer" not in weights and "zp_dtype" not in weights and weights["group_size"] == 128, "what nobody gave",
          weights)
    equal(quantize("--scheme", "W4A16_ASYM", "--ignore", "re:.*(embed|head)", "--compat", "next", "--set",
                   "zp_dtype=int8").returncode,
          0, "zp_dtype given")
    weights, = (group["weights"] for group in config()["config_groups"].values())
    equal(weights["zp_dtype"], "torch.int8", "zp_dtype that was given")
    for compat in ("llm-compressor", "llm-compressor-0.14"):
        refused(f"MXFP6A16 with {compat}", quantize("--scheme", "MXFP6A16", "--compat", compat), 2, "MXFP6A16",
                "mxfp6-pack-quantized", "from 0.20 on", f"compat {compat} is 0.19.0")
    refused("a release that there is not", quantize("--scheme", "W4A16", "--compat", "0.14"), 2,
            "--compat: is '0.14', allowed are vllm, llm-compressor, llm-compressor-0.14 and next")


def documented_differences():
    """The first column of the table of docs/checkpoint.md."""
    page = cli.read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../docs/checkpoint.md")).decode()
    table = page.split("## Differences by scheme")[1].split("## ")[0]
    return {name for row in re.findall(r"^\| ([^|]*) \|", table, re.M) for name in row.split(", ")}


def test_bytes_of_both_modes():
    """Tensors differ from those of --compat llm-compressor in the schemes of docs/checkpoint.md, and in no others."""
    source, modules = random.Random(0), [f"self_attn.{n}_proj" for n in "qkvo"]
    modules += [f"mlp.experts.0.{n}_proj" for n in ("gate", "up", "down")]
    modules = [f"model.layers.0.{m}" for m in modules]
    write("in/model.safetensors", cli.st_bytes({f"{m}.weight": ("BF16", [128, 128], cli.pack("BF16", [
        source.gauss(0, 1) for _ in range(128 * 128)])) for m in modules}))
    write("in/config.json", b'{"model_type": "qwen3_moe", "hidden_size": 128, "num_experts": 1}')
    write("acts", cli.st_bytes({f"{m}.input": ("BF16", [1, 128], cli.pack("BF16", [1.0] * 128)) for m in modules}))
    lines = cli.run("quantize", "--help").stdout.split("schemes:")[1].split("schemes of GGUF")[0].splitlines()
    schemes, documented = {line.split()[0] for line in lines if re.match(r"  \w", line)}, documented_differences()
    listed = dict(line.split()[:2] for line in lines if re.match(r"  \w", line))
    equal((listed["W4A16"], listed["W8A8_STATIC"], listed["NVFP4"]), ("4.125", "8", "4.5"), "bits of --help")
    equal(cli.static_schemes(), {"FP8", "NVFP4", "W8A8_STATIC", "W8A8_STATIC_ASYM"}, "schemes that need activations")
    check(len(schemes) > 25 and {"W4A8", "FP8"} <= documented & schemes, "the schemes", f"{schemes} {documented}")
    for scheme in sorted(schemes):
        options = ("--scheme", scheme, *(("--activations", "acts") if scheme in cli.static_schemes() else ()),
                   *(("--keep-findings",) if scheme.startswith(("MXFP6", "W8A8_STATIC"))
                     else ()))  # no runtime loads the experts
        equal(quantize(*options).returncode, 0, scheme)
        default, compat = shards(), "next" if scheme.startswith("MXFP6") else "llm-compressor"
        equal(quantize(*options, "--compat", compat).returncode, 0, f"{scheme}, compatible")
        equal(default == shards(), scheme not in documented, f"{scheme}: the same tensors in both modes")
    named = documented - schemes
    equal(named, {"scheme", "`observer: mse` for weights"}, "rows that are no schemes")


# Scheme: (where vLLM 0.32 runs it, the version of compressed-tensors that transformers needs, kernels for CPUs).
EVERYWHERE = "on GPUs, on Arm CPUs and on CPUs with AVX2"
RUNTIMES = {"W4A16": ("on GPUs and on CPUs with AVX-512", None, True), "W3A16": ("on GPUs", "0.18", False),
            "W8A16": ("on GPUs", None, False),
            "W8A8": (EVERYWHERE, None, True), "W8A8_STATIC": (EVERYWHERE, None, True),
            "W8A8_STATIC_ASYM": (EVERYWHERE, None, True), "W6A8": ("on GPUs", "0.18", False),
            "W4AFP8": ("on GPUs of compute capability 9.0", None, False),
            "FP8_DYNAMIC": (EVERYWHERE, None, True),
            "NVFP4A16": ("on GPUs", None, False), "MXFP4": ("on GPUs", None, False),
            "MXFP4XFP8": ("on GPUs", None, False), "MXFP6A8": (None, "0.20", False), "MXFP8": ("on GPUs", None, False)}


def this_cpu():
    """The device that the processor is, which programs under an emulator see, too."""
    if platform.machine() != "x86_64":
        return "arm" if platform.machine() == "aarch64" else None
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = set(file.read().split())
    return next((d for d, flag in (("amx", "amx_tile"), ("avx512", "avx512f"), ("avx2", "avx2")) if flag in flags),
                None)


def test_runtimes():
    make_model("in", layers=1)
    inputs = {f"model.layers.0.self_attn.{m}_proj.input": ("BF16", [1, 128], cli.pack("BF16", [1.0, -0.5] * 64))
              for m in "qkv"}
    write("acts", cli.st_bytes(inputs))
    for scheme, (vllm, version, cpu) in RUNTIMES.items():
        static = ("--activations", "acts") if scheme in cli.static_schemes() else ()
        run = cli.run("quantize", "in", "--scheme", scheme, "-o", "out", "--replace", "--json", "report", *static)
        equal(run.returncode, 0, scheme)
        row, = json.loads(cli.read("report"))["runtimes"]
        equal((row["vllm"], row["compressed_tensors"], row["vllm_cpu"], row["transformers"]),
              (vllm, version, cpu, True), scheme)
        without = " (this one has none)" if cpu and not row["this_cpu"] else ""
        check(f"{scheme}: vLLM 0.32 {vllm or 'is not known to load it'}{without};" in run.stdout,
              f"the summary of {scheme}",
              run.stdout)
        equal(row["vllm_cpu"], any(d not in ("gpu", "sm90") for d in row["devices"]), f"{scheme}: devices {row}")
        equal(row["this_cpu"], this_cpu() in row["devices"], f"{scheme}: this processor, {this_cpu()}, {row}")
        equal("no runtime has kernels for it on CPUs" in run.stdout, bool(vllm) and not cpu,
              f"{scheme}: kernels for CPUs")
    run = cli.run("quantize", "in", "--scheme", "W4A16", "--preset", "llmc.memoryless_mse", "-o", "out", "--replace")
    check("\nW4A16: vLLM 0.32 on GPUs and on CPUs with AVX-512" in run.stdout,
          "the summary of a scheme with another observer", run.stdout)
    equal(list(config()["config_groups"]), ["config_group_0"], "the key of a scheme that is changed")
    shutil.rmtree("out")
    equal(quantize("--scheme", "W8A8", "--set", "symmetric=false", "--set", "format=int-quantized").returncode, 0,
          "zero points")


def test_embeddings():
    """vLLM alone loads quantized embeddings, integers on GPUs. No runtime loads Conv1D. Both are refused."""
    make_model("in", layers=1)
    vllm = "vLLM 0.32 alone loads"
    for module, types, words in (("model.embed_tokens", "llama", vllm),
                                 ("transformer.h.0.attn.c_attn", "gpt2", "no runtime")):
        tensors = {f"{module}.weight": ("BF16", [128, 128], bytes(2 * 128 * 128))}
        write("in/model.safetensors", cli.st_bytes(tensors))
        write("in/config.json", json.dumps({"model_type": types, "vocab_size": 128}).encode())
        for target in (module, "re:.*"):
            refused(f"{module} by {target}", quantize("--scheme", "W8A16", "--targets", target), 2, module, words,
                    "--ignore")
        run = quantize("--scheme", "W8A16", "--compat", "llm-compressor", "--targets", module)
        check(run.returncode == 0 and words in run.stderr, f"{module}, compatible", run.stderr)
        run = cli.run("audit", "out")
        check(types == "gpt2" or (vllm in run.stdout and "0 findings" in run.stdout),
              f"{module}: the audit says who loads them", run.stdout)
    write("in/config.json", json.dumps({"model_type": "llama", "vocab_size": 128}).encode())
    write("in/model.safetensors",
          cli.st_bytes({"model.embed_tokens.weight": ("BF16", [128, 128], bytes(2 * 128 * 128))}))
    for scheme, where in (("W8A16", "on GPUs"), ("FP8_DYNAMIC", None)):
        options = ("--compat", "llm-compressor", "--targets", "model.embed_tokens", "--json", "report")
        quantize("--scheme", scheme, *options)
        row, = json.loads(cli.read("report"))["runtimes"]
        equal((row["vllm"], row["transformers"]), (where, False), f"embeddings in {scheme}")


def test_columns_that_do_not_divide():
    make_model("in", layers=1, width=192)
    refused("groups of 128", quantize("--scheme", "W4A16"), 2, "3 layers", "192 columns, groups of 128",
            "--set group_size=64",
            "--ignore 're:.*[.](k_proj|q_proj|v_proj)$'")
    equal(quantize("--scheme", "W4A16", "--set", "group_size=64").returncode, 0, "the group size of the message")
    shutil.rmtree("in")
    make_model("in", layers=1, width=72)
    run = quantize("--scheme", "W4A16")
    check(run.returncode == 2 and "--ignore" in run.stderr and "--set" not in run.stderr, "no group size fits",
          run.stderr)


def test_formats_that_are_given():
    make_model("in", layers=1)
    group = {"targets": ["Linear"], "weights": W4,
             "input_activations": {"num_bits": 8, "strategy": "token", "dynamic": True, "symmetric": True}}

    def given(inner=None, outer=None, *options):
        write("config", json.dumps({"config_groups": {"g": {**group, "format": inner}}, "format": outer,
                                    "ignore": ["lm_head"]}).encode())
        return quantize("--config", "config", *options)

    for inner, outer, wanted in ((None, None, "pack-quantized"), ("int-quantized", None, "int-quantized"),
                                 (None, "int-quantized", "int-quantized"), (None, "mixed-precision", "pack-quantized"),
                                 ("naive-quantized", "pack-quantized", "naive-quantized")):
        equal(given(inner, outer).returncode, 0, f"format {inner} of the group, {outer} of the configuration")
        equal(written_format(), wanted, f"format {inner} of the group, {outer} of the configuration")
        equal(cli.run("audit", "out").returncode, 0, f"the audit of {wanted}")
    equal(given("pack-quantized", None, "--compat", "llm-compressor", "--ignore", "re:.*(embed|head)").returncode, 0,
          "a format, compatible")
    equal(written_format(), "pack-quantized", "compressed-tensors takes the format of a group, too")
    equal(quantize("--scheme", "W4A8", "--set", "format=int-quantized").returncode, 0, "--set format")
    equal(written_format(), "int-quantized", "--set format")
    for inner, outer in (("float-quantized", None), (None, "float-quantized"), ("nvfp4-pack-quantized", None)):
        refused(f"{inner} of the group, {outer} of the configuration", given(inner, outer), 2, inner or outer,
                "pack-quantized", "int-quantized")
    refused("an unknown format", given("marlin-24"), 2, "'marlin-24'", "pack-quantized")
    refused("a format that is no text", given(4), 2, "format", "4")
    refused("an unknown format of --set", quantize("--scheme", "W4A8", "--set", "format=x"), 2, "--set", "'x'")
    refused("a format that holds no int4", quantize("--scheme", "W4A16", "--set", "format=mxfp8-quantized"), 2,
            "mxfp8-quantized", "pack-quantized")


OBSERVERS = {
    "weight_observer": ("QuantizationModifier: {scheme: W4A16, weight_observer: memoryless_mse}\n", "memoryless_mse"),
    "an observer of weights": (
        "QuantizationModifier: {scheme: W4A16, observer: {weights: mse, input: mse}}\n", "memoryless_mse"),
    "observers of groups": (json.dumps({"QuantizationModifier": {"weight_observer": "memoryless_mse", "config_groups": {
        "g": {"targets": ["Linear"], "weights": {**W4, "observer": "static_minmax"}}}}}), "memoryless_mse"),
    "an observer of inputs that are not quantized": (
        "QuantizationModifier: {scheme: W4A16, input_observer: mse}\n", None)}


def test_observers():
    make_model("in", layers=1)
    for what, (text, wanted) in OBSERVERS.items():
        run = as_recipe(text)
        equal(run.returncode, 0, f"{what} {run.stderr}")
        group, = config()["config_groups"].values()
        equal(group["weights"]["observer"], wanted, what)
    equal(as_recipe("QuantizationModifier: {scheme: FP8_DYNAMIC, input_observer: mse}\n").returncode, 0,
          "dynamic inputs")
    group, = config()["config_groups"].values()
    equal(group["input_activations"]["observer"], None, "dynamic inputs have no observer")
    run = as_recipe("QuantizationModifier: {scheme: W4A16, bypass_divisibility_checks: false, start: null}\n")
    equal((run.returncode, run.stderr), (0, ""), "checks that are not left out")
    run = as_recipe("QuantizationModifier: {scheme: W4A16, bypass_divisibility_checks: true, end: 1.0}\n")
    check(run.returncode == 0 and "bypass_divisibility_checks" in run.stderr and "end" in run.stderr, "notes",
          run.stderr)


def test_cache_alone():
    make_model("in", layers=1)
    numbers = cli.pack("F32", [float(i) for i in range(24)])
    states = {f"model.layers.0.self_attn.{n}_states": ("F32", [1, 2, 3, 4], numbers) for n in "kv"}
    write("acts.safetensors", cli.st_bytes(states))
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
    text = json.dumps({"QuantizationModifier": {"kv_cache_scheme": scheme}})
    write("recipe", text.encode())
    run = quantize("--recipe", "recipe", "--activations", "acts.safetensors")
    equal((run.returncode, run.stderr), (0, ""), "a recipe for the key/value cache alone")
    before, after = cli.st_read("in/model.safetensors")[0], cli.st_read("out/model.safetensors")[0]
    equal({k: v for k, v in after.items() if not k.endswith("_scale")}, before, "no weight is quantized")
    equal(sorted(k for k in after if k.endswith("_scale")),
          [f"model.layers.0.self_attn.{n}_scale" for n in "kv"], "the scales of keys and values")
    written = config()
    equal((written["config_groups"], written["format"], written["kv_cache_scheme"]["num_bits"]), ({}, "dense", 8),
          "the scheme")
    equal(cli.run("audit", "out").returncode, 0, "the audit")
    write("recipe", b"QuantizationModifier: {scheme: W4A16, kv_cache_scheme: " + json.dumps(scheme).encode() + b"}")
    equal(quantize("--recipe", "recipe", "--activations", "acts.safetensors").returncode, 0, "a scheme and a cache")
    check(config()["kv_cache_scheme"] and packed(), "both are written", config())


REFUSED = [
    ("observers twice",
     "QuantizationModifier: {scheme: W4A16, weight_observer: mse, observer: {input: mse}}\n", ["observer"]),
    ("an observer of nothing",
     "QuantizationModifier: {scheme: W4A16, observer: {queries: mse}}\n", ["queries", "weights"]),
    ("an observer that is no text", "QuantizationModifier: {scheme: W4A16, weight_observer: 3}\n", ["weights"]),
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
        "g": {"targets": ["Linear"], "weights": dict(W4, num_bits=9)}}}}), ["num_bits is 9", "2 to 8 bits"]),
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
                        ('{"config_groups": {"NOPE": ["Linear"]}}', ["NOPE"]),
                        ('{"config_groups": ["g"], "kv_cache_scheme": {"num_bits": 8}}', ["config_groups", "array"])):
        write("config", text.encode())
        refused(f"configuration {text}", quantize("--config", "config"), 2, *words)
    check(not os.path.exists("out"), "refusals leave nothing", os.listdir("."))


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if k != "test_quantize_command"}))
