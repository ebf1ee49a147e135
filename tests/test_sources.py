#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of inputs that are quantized already, and of configurations inside config.json.

    test_sources.py QOBS
"""
import hashlib
import json
import math
import os
import re
import shutil
import struct
import sys
import tempfile

import cli
from cli import check, equal
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


def st_raw(path):
    """Returns {name: (dtype, shape, bytes)}."""
    raw = cli.read(path)
    data = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:data])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], raw[data + t["data_offsets"][0]:data + t["data_offsets"][1]]) for n,
            t in header.items()}


# ---- Numbers ---------------------------------------------------------------------------------------------------------

def summary(dtype, shape, data):
    return [dtype, list(shape), hashlib.sha256(data).hexdigest()[:32]]


def check_numbers(what, config, tensors, module, want):
    """An ignored module is dequantized: the output holds `want`, the summary of a tensor, and nothing else of it."""
    with tempfile.TemporaryDirectory(dir=cli.scratch()) as scratch:
        make(f"{scratch}/in", {Q + ".weight": tensor([128, 128], 1), **tensors}, **config)
        p = quantize(f"{scratch}/in", "-o", f"{scratch}/out", "--ignore", module, scheme="W8A16")
        equal(p.returncode, 0, f"{what}: exit status {p.stderr}")
        if p.returncode:
            return
        out = st_raw(f"{scratch}/out/model.safetensors")
        quantization = json.loads(cli.read(f"{scratch}/out/config.json"))["quantization_config"]
    got = summary(*out.get(f"{module}.weight", ("", [], b"")))
    check(got == want, f"{what}: the numbers of {want[0]}", f"{got}, expected {want}")
    equal(sorted(n for n in out if n.startswith(module)), [f"{module}.weight"], f"{what}: no scales are left")
    check(module in quantization["ignore"] and len(quantization["config_groups"]) == 1, f"{what}: the configuration",
          str(quantization))


def test_golden():
    """Each format is dequantized as compressed-tensors does it (live_sources.py made the vectors)."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "sources")
    tensors = st_raw(path + ".safetensors")
    with open(path + ".json", encoding="utf-8") as file:
        cases = json.load(file)
    for case in cases:
        own = {k.split("|")[1]: v for k, v in tensors.items() if k.split("|")[0] == case["name"]}
        module = next(iter(own)).rsplit(".", 1)[0]
        check_numbers(case["name"], case["config"], own, module, case["expected"])


# ---- Refusals --------------------------------------------------------------------------------------------------------

CODES = ("F8_E4M3", [128, 128], bytes(range(64)) * 256)
SCALE = ("F32", [], b"\0\0\x80\x3f")


def config_of(**more):
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": "naive-quantized", **more}}


def test_refusals():
    """What is not understood is refused with its name, and nothing is written."""
    plain, weight, fp8 = {f"{Q}.weight": tensor([128, 128],
                                                1)}, f"{Q}.weight", {"quantization_config": {"quant_method": "fp8"}}
    for what, tensors, config, words in (
            ("no scales", {weight: CODES}, fp8, (weight, "F8_E4M3", "scales")),
            ("a scale for three rows", {weight: CODES, f"{Q}.weight_scale": ("F32", [3], bytes(12))}, fp8,
             ("weight_scale", "[3]")),
            ("groups that do not divide", {weight: CODES, f"{Q}.weight_scale": ("F32", [128, 3], bytes(1536))}, fp8,
             ("[128,3]",)),
            ("packed without its shape", {f"{Q}.weight_packed": ("I32", [128, 16], bytes(8192)),
                                          f"{Q}.weight_scale": tensor([128, 1], 1)}, config_of(), ("weight_shape",)),
            ("packed with too few words",
             {f"{Q}.weight_packed": ("I32", [128, 13], bytes(6656)), f"{Q}.weight_scale": tensor([128, 1], 1),
              f"{Q}.weight_shape": ("I64", [2], (128).to_bytes(8, "little") * 2)}, config_of(), ("[128,13]",)),
            ("no global scale", {f"{Q}.weight_packed": ("U8", [128, 64], bytes(8192)),
                                 f"{Q}.weight_scale": ("F8_E4M3", [128, 8], bytes(1024))},
             config_of(), ("weight_global_scale",)),
            ("zero points of another shape",
             {weight: ("I8", [128, 128], bytes(16384)), f"{Q}.weight_scale": tensor([128, 1], 1),
              f"{Q}.weight_zero_point": ("I8", [64, 1], bytes(64))}, config_of(), ("weight_zero_point",)),
            ("actorder", {**plain, f"{Q}.weight_g_idx": ("I32", [128], bytes(512))}, config_of(),
             ("weight_g_idx", "actorder")),
            ("experts in one tensor",
             {"model.layers.0.mlp.experts.down_proj": ("F8_E4M3", [2, 128, 128], bytes(32768)), **plain},
             fp8, ("experts.down_proj", "F8_E4M3", "[2,128,128]")),
            ("GPTQ without a configuration", {f"{Q}.qweight": ("I32", [16, 128], bytes(8192))}, {},
             ("qweight", "GPTQ")),
            ("AWQ of ModelOpt", {**plain, f"{Q}.pre_quant_scale": tensor([128], 1)},
             {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, ("pre_quant_scale",)),
            ("an algorithm of ModelOpt", plain,
             {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}},
             ("quant_algo", "W4A16_AWQ", "NVFP4")),
            ("a sparse format", plain, config_of(format="marlin-24"), ("marlin-24", "pack-quantized")),
            ("sparse weights", plain, config_of(sparsity_config={"format": "sparse-24-bitmask"}),
             ("sparse-24-bitmask",)),
            ("a transform", plain, config_of(transform_config={"config_groups": {"R1": {}}}), ("transform_config",))):
        make("in", tensors, **config)
        refused(what, quantize("in", "-o", "out"), 2, *words)
        check(not os.path.exists("out"), f"{what}: nothing is written")


def test_left_out():
    """Weights without scales in a model that nothing describes stay as they are, and `ignore` names them."""
    k = Q.replace("q_proj", "k_proj")
    make("in",
         {f"{Q}.weight": tensor([128, 128], 1), f"{k}.weight": CODES, "v_proj.weight": ("F64", [8, 128], bytes(8192))})
    run("F8 and F64", "--allow-mixed-sets")
    out, quantization = st_raw("out/model.safetensors"), json.loads(cli.read("out/config.json"))["quantization_config"]
    equal(out[f"{k}.weight"], CODES, "F8 codes stay")
    check({k, "v_proj"} <= set(quantization["ignore"]), "ignore names them", str(quantization["ignore"]))


def test_summary():
    """The summary says what was quantized before."""
    make("in", {f"{Q}.weight": CODES, f"{Q}.weight_scale": SCALE, "a_proj.weight": tensor([128, 128], 1)})
    p = cli.run("quantize", "in", "--scheme", "W8A16", "-o", "out")
    check(p.returncode == 0 and "dequantized first, FP8: 1\n" in p.stdout, "the summary", p.stdout + p.stderr)
    check("weights: those of the input, dequantized" in p.stdout, "the summary says what errors are of", p.stdout)


def test_modelopt_file():
    """hf_quant_config.json describes the quantization, too, and disappears with it."""
    make("in", {f"{Q}.weight": CODES, f"{Q}.weight_scale": SCALE, f"{Q}.input_scale": SCALE})
    for algorithm in ("FP8", "W4A16_AWQ"):
        quantization = {"quant_algo": algorithm, "exclude_modules": ["lm_head"], "kv_cache_quant_algo": None}
        write("in/hf_quant_config.json",
              json.dumps({"producer": {"name": "modelopt"}, "quantization": quantization}).encode())
        if algorithm == "FP8":
            equal(sorted(n[len(Q):] for n in run(algorithm, scheme="W8A16")),
                  [".weight_packed", ".weight_scale", ".weight_shape"],
                  "ModelOpt's FP8 is quantized anew")
            check(not os.path.exists("out/hf_quant_config.json"), "hf_quant_config.json is not copied")
    shutil.rmtree("out")
    refused("AWQ in hf_quant_config.json", quantize("in", "-o", "out"), 2, "hf_quant_config.json", "W4A16_AWQ")
    shutil.rmtree("in")
    make("in", {f"{Q}.weight": tensor([128, 128], 1)}, quantization={"group_size": 64, "bits": 4})
    refused("MLX", quantize("in", "-o", "out"), 2, "quant_method")
    make("in", {f"{Q}.weight": tensor([128, 128], 1)}, audio_config={"quantization": {"dimension": 8}})
    run("a codec's quantization")
    equal(json.loads(cli.read("out/config.json"))["audio_config"], {"quantization": {"dimension": 8}}, "it stays")


CACHE = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}
A = "model.layers.0.self_attn."


def scale(number):
    """A scale without dimensions, as ModelOpt writes them."""
    return "F32", [], struct.pack("<f", number)


def modelopt(**more):
    return {"hf_quant_config.json": {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", **more}}}


def test_attention_scales():
    """Scales of keys and values and their scheme belong to no weight: they stay when every layer is quantized anew."""
    own, after = {A + "k_scale": scale(.5), A + "v_scale": scale(.25)}, {A + "k_proj.k_scale": scale(.5),
                                                                         A + "v_proj.v_scale": scale(.25)}
    outputs = {A + "k_proj.output_scale": scale(.5), A + "v_proj.output_scale": scale(.25)}
    fp8 = {"quant_method": "fp8", "activation_scheme": "static"}
    modelopt_scheme = {"quant_method": "modelopt", "quant_algo": "FP8",
                       "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}
    for what, scales, files, scheme in (
            ("compressed-tensors without groups", own, config_of(kv_cache_scheme={"num_bits": 8, "type": "float"}),
             CACHE),
            ("heads", {A + f"{n}_scale": ("F32", [4, 1, 1], struct.pack("<4f", 1, 2, 3, 4)) for n in "kv"},
             config_of(kv_cache_scheme={**CACHE, "strategy": "attn_head"}, config_groups={}),
             {**CACHE, "strategy": "attn_head"}),
            ("names of older files", outputs, config_of(kv_cache_scheme=CACHE), CACHE),
            ("ModelOpt's file", after, modelopt(kv_cache_quant_algo="FP8"), CACHE),
            ("ModelOpt's config.json", after, {"quantization_config": modelopt_scheme}, CACHE),
            ("FP8 without a scheme", own, {"quantization_config": fp8}, None),
            ("FP8, names of outputs", outputs, {"quantization_config": fp8}, None)):
        q = {f"{Q}.weight": CODES, f"{Q}.weight_scale": SCALE, f"{Q}.input_scale": SCALE}
        q |= {A + f"{n}_proj.weight": tensor([128, 128], i) for i, n in enumerate("kv")}
        shutil.rmtree("in", ignore_errors=True)
        make("in", {**q, **scales}, **{k: v for k, v in files.items() if not k.endswith(".json")})
        for name in set(files) - {"quantization_config"}:
            write(f"in/{name}", json.dumps(files[name]).encode())
        run(what, scheme="W4A16")
        out = st_raw("out/model.safetensors")
        shape = [4, 1, 1] if "heads" in what else [1]
        for n, stored in zip("kv", scales.values()):
            equal(out.get(A + f"{n}_scale"), ("F32", shape, stored[2]), f"{what}: {n}_scale")
        equal(sorted(n for n in out if n.endswith(("input_scale", "output_scale", "proj.k_scale", "proj.v_scale"))), [],
              f"{what}: no other scales")
        equal(json.loads(cli.read("out/config.json"))["quantization_config"]["kv_cache_scheme"], scheme,
              f"{what}: the scheme")


def test_attention_scales_dropped():
    """ModelOpt's NVFP4 of keys and values has no scheme of compressed-tensors: it goes, and the warning says so."""
    make("in", {f"{Q}.weight": CODES, f"{Q}.weight_scale": SCALE, A + "k_proj.k_scale": SCALE})
    write("in/hf_quant_config.json", json.dumps(modelopt(kv_cache_quant_algo="NVFP4")["hf_quant_config.json"]).encode())
    p = quantize("in", "-o", "out")
    check(p.returncode == 0 and "NVFP4 of keys and values" in p.stderr, "a warning", p.stderr)
    check(not [n for n in st_raw("out/model.safetensors") if n.endswith("k_scale")], "no scales of keys")


# ---- What grows ------------------------------------------------------------------------------------------------------

def test_growth():
    """Weights that were smaller before are counted with their bytes; the same size or less is no warning."""
    experts = "model.layers.0.mlp.experts."
    mxfp4 = {f"{experts}{n}_{part}": ("U8", shape, bytes(math.prod(shape))) for n, rows,
             groups in (("gate_up_proj", 128, 4), ("down_proj", 128, 2))
             for part, shape in (("blocks", [2, rows, groups, 16]), ("scales", [2, rows, groups]))}
    packed = {f"{Q}.weight_packed": ("I32", [128, 16], bytes(8192)), f"{Q}.weight_scale": tensor([128, 1], 1),
              f"{Q}.weight_shape": ("I64", [2], (128).to_bytes(8, "little") * 2)}
    fp8 = {f"{Q}.weight": CODES, f"{Q}.weight_scale": SCALE}
    k = {A + "k_proj.weight": tensor([128, 128], 2)}
    for what, tensors, scheme, config, words in (
            ("MXFP4 experts that stay", mxfp4, "W8A8",
             {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}},
             "2 weights grow from 0.0 to 0.1 MB: MXFP4 of gpt-oss in the model, unquantized here, such as "
             "'model.layers.0.mlp.experts.down_proj'"),
            ("int4 to int8", packed, "W8A8", config_of(),
             f"1 weight grows from 0.0 to 0.0 MB: packed integers in the model, W8A8 here, such as '{Q}.weight'"),
            ("FP8 to int8", fp8, "W8A8", config_of(), ""), ("FP8 to int4", fp8, "W4A16", config_of(), "")):
        shutil.rmtree("in", ignore_errors=True)
        make("in", {**tensors, **k}, **config)
        shutil.rmtree("out", ignore_errors=True)
        p = quantize("in", "-o", "out", "--allow-mixed-sets", scheme=scheme)
        equal(p.returncode, 0, f"{what}: exit status {p.stderr}")
        check(words in p.stderr if words else "grow" not in p.stderr, f"{what}: the warning", p.stderr)


# ---- Drafts ----------------------------------------------------------------------------------------------------------

def test_drafts():
    """Drafts of speculative decoding have a head of fewer tokens, tables of token numbers and inputs of two vectors."""
    sizes = {"hidden_size": 128, "intermediate_size": 256, "vocab_size": 512, "num_attention_heads": 4,
             "num_key_value_heads": 4, "head_dim": 32}
    tables = {"d2t": ("I64", [64], bytes(512)), "t2d": ("BOOL", [512], bytes(512))}
    for what, prefix, config in (
            ("EAGLE-3 of its authors", "midlayer.",
             {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 64, **sizes}),
            ("two layers", "layers.0.", {"architectures": ["Eagle3LlamaForCausalLM"], "draft_vocab_size": 64, **sizes}),
            ("EAGLE of its authors", "layers.0.", {"architectures": ["LlamaForCausalLM"], **sizes}),
            ("speculators", "layers.0.", {"speculators_model_type": "eagle3", "draft_vocab_size": 64,
                                          "transformer_layer_config": {"model_type": "llama", **sizes}})):
        tensors = {f"{prefix}self_attn.{n}_proj.weight": tensor([128, 128 if n == "o" else 256], i) for i,
                   n in enumerate("qkvo")}
        tensors |= {f"{prefix}mlp.down_proj.weight": tensor([128, 256], 5), "fc.weight": tensor([128, 384], 6),
                    "lm_head.weight": tensor([64, 128], 7), **tables}
        if what == "EAGLE of its authors":
            tensors["lm_head.weight"] = tensor([512, 128], 7)
        if what == "two layers":
            tensors |= {n.replace(".0.", ".1."): tensor([128, 128], 8) for n in tensors if "_attn" in n}
        make("in", tensors, **config)
        if what == "speculators":
            write("in/config.json", json.dumps(config).encode())
        shutil.rmtree("out", ignore_errors=True)
        equal(quantize("in", "-o", "out", scheme="W8A8").returncode, 0, f"{what}: exit status")
        out = st_raw("out/model.safetensors")
        equal({n: out.get(n) for n in tables}, tables, f"{what}: the tables")
        equal((out["lm_head.weight"][0], out["fc.weight"][0]), ("BF16", "I8"), f"{what}: the head and fc")
        equal(cli.run("audit", "out").returncode, 0, f"{what}: the audit")
        shutil.rmtree("out")
        if what == "two layers":
            refused("one layer of two", quantize("in", "-o", "out", "--ignore", "layers.0.self_attn.o_proj",
                                                 scheme="W8A8"), 2, "layers.0.self_attn.o_proj",
                    "numbers the layers of a draft", "re:.*[.]o_proj$")
        o_proj = "re:.*[.]o_proj$" if what == "two layers" else f"{prefix}self_attn.o_proj"
        equal(quantize("in", "-o", "out", "--ignore", o_proj, "--ignore", "fc", scheme="W8A8").returncode, 0,
              f"{what}: some stay")
        ignore = json.loads(cli.read("out/config.json"))["quantization_config"]["ignore"]
        for name, want in (("model.fc", True), ("model.layers.32.self_attn.o_proj", True), ("lm_head", True),
                           ("model.layers.32.mlp.down_proj", False)):
            matches = any(re.match(e[3:], name) if e.startswith("re:") else e == name for e in ignore)
            equal(matches, want, f"{what}: vLLM's name {name} in ignore {ignore}")
    make("in", {**tensors, "lm_head.weight": tensor([512, 128], 7)}, architectures=["LlamaForCausalLMEagle3"],
         draft_vocab_size=64, **sizes)
    refused_by_audit = quantize("in", "-o", "other", scheme="W8A8")
    check(refused_by_audit.returncode == 3
          and "lm_head: is [512,128], but config.json says [64,128]" in refused_by_audit.stderr,
          "a head of another vocabulary", refused_by_audit.stderr)


# ---- A model quantized in two runs -----------------------------------------------------------------------------------

L = "model.layers.0."
MODULES = ["self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"]


def schemes(module, quantization):
    """The weights' bits and type of a module as loaders find them: names before patterns before classes."""
    if any(re.match(e[3:], module) if e.startswith("re:") else e == module for e in quantization["ignore"]):
        return None
    found = []
    for group in quantization["config_groups"].values():
        for t in group["targets"]:
            rank = 0 if t == module else 1 if t.startswith("re:") and re.match(t[3:],
                                                                               module) else 2 if t == "Linear" else 3
            found.append((rank, t, group["weights"]["num_bits"], group["weights"]["type"]))
    best = min(found)
    return best[2:] if best[0] < 3 else None


def test_two_runs():
    """What the second run does not target stays, and one configuration fits old, new and plain layers."""
    plain = {f"{L}{m}.weight": tensor([128, 128], i) for i, m in enumerate(MODULES)}
    plain["lm_head.weight"] = tensor([128, 128], 9)
    int4, fp8 = (4, "int"), (8, "float")
    for what, first, second, want in (
            ("the ignored layers", ("--ignore", "re:.*self_attn.*"), ("--targets", "re:.*self_attn.*"),
             [fp8, fp8, int4, int4]),
            ("one of them", ("--ignore", "re:.*self_attn.*"), ("--targets", f"{L}self_attn.q_proj"),
             [fp8, None, int4, int4]),
            ("a layer anew", (), ("--targets", f"{L}mlp.up_proj"), [int4, int4, fp8, int4]),
            ("a pattern and its part", ("--targets", "re:.*proj"), ("--targets", "re:.*down_proj"),
             [int4, int4, int4, fp8]),
            ("a name anew", ("--targets", f"{L}mlp.up_proj", "--targets", f"{L}mlp.down_proj"),
             ("--targets", "re:.*(q|up)_proj"), [fp8, None, fp8, int4]),
            ("all anew", (), (), [fp8] * 4)):
        make("in", plain)
        shutil.rmtree("first", ignore_errors=True)
        equal(quantize("in", "-o", "first", *first).returncode, 0, f"{what}: the first run")
        shutil.rmtree("out", ignore_errors=True)
        p = quantize("first", "-o", "out", *second, scheme="FP8_DYNAMIC")
        equal(p.returncode, 0, f"{what}: the second run {p.stderr}")
        out = st_raw("out/model.safetensors")
        quantization = json.loads(cli.read("out/config.json"))["quantization_config"]
        before = st_raw("first/model.safetensors")
        for m, scheme in zip(MODULES, want):
            parts = {n for n in out if n.startswith(L + m + ".")}
            stored = {int4: {".weight_packed", ".weight_scale", ".weight_shape"}, fp8: {".weight", ".weight_scale"},
                      None: {".weight"}}
            equal({n[len(L + m):] for n in parts}, stored[scheme], f"{what}: tensors of {m}")
            equal(schemes(L + m, quantization), scheme, f"{what}: the scheme of {m}")
            check(scheme != int4 or all(out[n] == before[n] for n in parts), f"{what}: {m} stays as it was")
        equal(schemes("lm_head", quantization), None, f"{what}: lm_head")
        audit = cli.run("audit", "out")
        equal(audit.returncode, 0, f"{what}: the audit {audit.stdout}")


def test_contradiction():
    """Codes that stay must be described."""
    make("in", {f"{L}mlp.up_proj.weight": tensor([128, 128], 1), f"{L}mlp.down_proj.weight": tensor([128, 128], 1)})
    run("the first run")
    shutil.move("out", "first")
    config = json.loads(cli.read("first/config.json"))
    config["quantization_config"]["ignore"].append(f"{L}mlp.up_proj")
    write("first/config.json", json.dumps(config).encode())
    refused("quantized but ignored", quantize("first", "-o", "out", "--targets", "re:.*down_proj"), 2, "up_proj",
            "ignores")


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
