#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Types by tensor of the schemes of GGUF files, for models of different rules.

    test_gguf_types.py QOBS

The expected types of MODELS are those of upstream's own snapshots, tests/snapshots of llama.cpp (commits a45da44f,
a3ff1940, 343313bd), written as layers. The types of RULES follow src/llama-quant.cpp (commit 007dbbf3), for models that
have no snapshot. Tensors have two rows, and columns that are a multiple of 256 where the model's are.
golden/gguf_types.json has the types of larger ones.
"""
import json
import os
import struct
import sys

import cli
import gguf_headers
from cli import check, equal
from gguf_files import STRING, U32, gguf

F16 = 1
EVEN, ODD = 256, 96  # columns that blocks of 256 divide, and that only blocks of 32 do


def dense(layers, experts=0, tied=False, odd=(), without=()):
    """name: columns of the matrices."""
    names = ["token_embd"] + ([] if tied else ["output"])
    ffn = [f"ffn_{w}_exps" for w in ("down", "gate", "up")] if experts else [f"ffn_{w}" for w in ("down", "gate", "up")]
    for layer in range(layers):
        names += [f"blk.{layer}.{n}" for n in ["attn_k", "attn_output", "attn_q", "attn_v"] + ffn if n not in without]
    return {name + ".weight": ODD if name.split(".")[-1] in odd else EVEN for name in names}


def write(facts, tensors):
    architecture = facts["architecture"]
    keys = [("general.architecture", STRING, architecture), (f"{architecture}.block_count", U32, facts["layers"]),
            (f"{architecture}.attention.head_count", U32, facts["heads"]),
            (f"{architecture}.attention.head_count_kv", U32, facts["keys"])]
    if facts.get("experts"):
        keys.append((f"{architecture}.expert_count", U32, facts["experts"]))
    content = {}
    for name, columns in tensors.items():
        shape = [2, 2, columns] if "_exps" in name else [2, columns]
        content[name] = (F16, shape, bytes(2 * (8 if "_exps" in name else 4) * columns // 2))
    return cli.write("m.gguf", gguf(keys, content))


def types(path, scheme, *more):
    run = cli.run("quantize", path, "--scheme", scheme, "--dry-run", "--json", "-", *more)
    equal(run.returncode, 0, f"{scheme}: exit status: {run.stderr}")
    return {layer["name"]: layer["format"] for layer in json.loads(run.stdout)["layers"]}


def expected(tensors, default, rules):
    """rules: {part of a name: type, or {type: layers}}; other tensors have the default."""
    out = dict.fromkeys(tensors, default)
    for part, by in rules.items():
        for name in tensors:
            pieces = name.split(".")
            if pieces[-2] != part:
                continue
            for kind, layers in ({by: None} if isinstance(by, str) else by).items():
                if layers is None or int(pieces[1]) in layers:
                    out[name] = kind
    return out


def compare(what, facts, tensors, schemes, *more):
    path = write(facts, tensors)
    for scheme, (default, rules) in schemes.items():
        got, want = types(path, scheme, *more), expected(tensors, default, rules)
        wrong = [f"{n}: {got.get(n)}, expected {want[n]}" for n in want if got.get(n) != want[n]]
        check(got == want, f"{what}, {scheme}: types of all tensors", "; ".join(wrong[:3]))


ALL = range(1000)
QWEN_MORE = {0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27}


def test_qwen3():
    """28 layers, two heads share keys."""
    simple = {name: (name, {"output": "Q6_K"}) for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1")}
    compare("Qwen3-0.6B", dict(architecture="qwen3", layers=28, heads=16, keys=8), dense(28), {
        **simple, "Q8_0": ("Q8_0", {}), "Q6_K": ("Q6_K", {}),
        "Q2_K": ("Q2_K", {"output": "Q6_K", "attn_output": "Q3_K", "attn_v": "Q3_K", "ffn_down": "Q3_K"}),
        "Q2_K_S": ("Q2_K", {"output": "Q6_K", "ffn_down": {"Q4_K": {0, 1, 2}}}),
        "Q3_K_S": ("Q3_K", {"output": "Q6_K"}),
        "Q3_K_M": ("Q3_K", {"output": "Q6_K", "attn_output": "Q4_K", "attn_v": {"Q4_K": ALL, "Q5_K": {0, 1}},
                            "ffn_down": {"Q4_K": ALL, "Q5_K": {0}}}),
        "Q3_K_L": ("Q3_K", {"output": "Q6_K", "attn_output": "Q5_K", "attn_v": "Q5_K", "ffn_down": "Q5_K"}),
        "Q4_K_S": ("Q4_K", {"output": "Q6_K", "attn_v": {"Q5_K": {0, 1, 2, 3}}, "ffn_down": {"Q5_K": {0, 1, 2}}}),
        "Q4_K_M": ("Q4_K", {"output": "Q6_K", "attn_v": {"Q6_K": QWEN_MORE}, "ffn_down": {"Q6_K": QWEN_MORE}}),
        "Q5_K_S": ("Q5_K", {"output": "Q6_K"}),
        "Q5_K_M": ("Q5_K", {"output": "Q6_K", "attn_v": {"Q6_K": QWEN_MORE}, "ffn_down": {"Q6_K": QWEN_MORE}})})


def test_llama_70b():
    """Values get more bits in models of that size."""
    compare("Llama 3.1 70B", dict(architecture="llama", layers=80, heads=64, keys=8), dense(80), {
        "Q2_K": ("Q2_K", {"output": "Q6_K", "attn_output": "Q3_K", "attn_v": "Q5_K", "ffn_down": "Q3_K"}),
        "Q3_K_S": ("Q3_K", {"output": "Q6_K", "attn_v": "Q5_K"}),
        "Q3_K_M": ("Q3_K", {"output": "Q6_K", "attn_output": "Q4_K", "attn_v": "Q5_K",
                            "ffn_down": {"Q4_K": ALL, "Q5_K": set(range(5))}}),
        "Q4_K_S": ("Q4_K", {"output": "Q6_K", "attn_v": "Q5_K", "ffn_down": {"Q5_K": set(range(10))}})})


def test_gpt_oss():
    """Experts, eight heads share keys, and an output whose columns do not fit."""
    more = {0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 31, 32, 33, 34, 35}
    compare("gpt-oss-120b", dict(architecture="gpt-oss", layers=36, heads=64, keys=8, experts=128),
            dense(36, 128, odd=("output",)), {
        "Q2_K": ("Q2_K", {"output": "Q8_0", "attn_output": "Q3_K", "attn_v": "Q4_K", "ffn_down_exps": "Q3_K"}),
        "Q2_K_S": ("Q2_K", {"output": "Q8_0", "attn_v": "Q4_K", "ffn_down_exps": {"Q4_K": {0, 1, 2, 3}}}),
        "Q3_K_M": ("Q3_K", {"output": "Q8_0", "attn_output": "Q4_K", "attn_v": {"Q4_K": ALL, "Q5_K": {0, 1}},
                            "ffn_down_exps": {"Q4_K": ALL, "Q5_K": {0, 1}}}),
        "Q4_K_S": ("Q4_K", {"output": "Q8_0", "attn_v": {"Q5_K": {0, 1, 2, 3}},
                            "ffn_down_exps": {"Q5_K": {0, 1, 2, 3}}}),
        "Q4_K_M": ("Q4_K", {"output": "Q8_0", "attn_v": {"Q6_K": more}, "ffn_down_exps": {"Q6_K": more}}),
        "Q5_K_M": ("Q5_K", {"output": "Q8_0", "attn_v": {"Q6_K": more}, "ffn_down_exps": {"Q6_K": more}}),
        "Q6_K": ("Q6_K", {"output": "Q8_0"})})


def test_nemotron():
    """Layers of three kinds: the place of experts is the number in their names, that of values is counted. Most columns
    fit blocks of 32 alone."""
    attention, experts = {5, 12, 19, 26, 33, 42}, {1, 3, 6, 8, 10, 13, 15, 17, 20, 22, 24, 27, 29, 31, 34, 36, 38, 40,
                                                   43, 45, 47, 49, 51}
    names = ["token_embd", "output"]
    for i in range(52):
        names += ([f"blk.{i}.{n}" for n in ("attn_k", "attn_output", "attn_q", "attn_v")] if i in attention else
                  [f"blk.{i}.{n}" for n in ("ffn_down_exps", "ffn_down_shexp", "ffn_up_exps", "ffn_up_shexp")]
                  if i in experts else [f"blk.{i}.ssm_in"])
    tensors = {n + ".weight": EVEN if "attn_output" in n else ODD for n in names}
    out = {"output": "Q8_0"}
    compare("Nemotron Nano 3", dict(architecture="nemotron_h_moe", layers=52, heads=32, keys=0, experts=128), tensors, {
        "Q4_0": ("Q4_0", out), "Q5_1": ("Q5_1", out),
        "Q2_K": ("Q4_0", {**out, "attn_output": "Q3_K"}),
        "Q3_K_S": ("Q4_0", {**out, "attn_output": "Q3_K"}),
        "Q3_K_M": ("Q4_0", {**out, "attn_output": "Q4_K", "attn_v": {"Q5_0": ALL, "Q5_1": {5, 12}},
                            "ffn_down_exps": {"Q5_0": ALL, "Q5_1": {1}}, "ffn_down_shexp": {"Q5_0": ALL, "Q5_1": {1}}}),
        "Q3_K_L": ("Q4_0", {**out, "attn_output": "Q5_K", "attn_v": "Q5_1", "ffn_down_exps": "Q5_1",
                            "ffn_down_shexp": "Q5_1"})})


def test_tied():
    """Embeddings that are the output have its type."""
    compare("gemma 3", dict(architecture="gemma3", layers=34, heads=8, keys=4), dense(34, tied=True), {
        "Q4_0": ("Q4_0", {"token_embd": "Q6_K"}), "Q5_K_S": ("Q5_K", {"token_embd": "Q6_K"}),
        "Q3_K_L": ("Q3_K", {"token_embd": "Q6_K", "attn_output": "Q5_K", "attn_v": "Q5_K", "ffn_down": "Q5_K"})})


# ---- Rules without a snapshot ----------------------------------------------------------------------------------------

def test_eight_experts():
    compare("Mixtral", dict(architecture="llama", layers=32, heads=32, keys=8, experts=8), dense(32, 8), {
        "Q4_K_S": ("Q4_K", {"output": "Q6_K", "attn_v": "Q8_0", "attn_k": "Q8_0", "attn_output": "Q5_K",
                            "ffn_down_exps": {"Q5_K": {0, 1, 2, 3}}}),
        "Q5_K_S": ("Q5_K", {"output": "Q6_K", "attn_v": "Q8_0", "attn_k": "Q8_0"}),
        "Q3_K_L": ("Q3_K", {"output": "Q6_K", "attn_v": "Q8_0", "attn_k": "Q8_0", "ffn_down_exps": "Q5_K"}),
        "MXFP4_MOE": ("Q8_0", {"ffn_down_exps": "MXFP4", "ffn_gate_exps": "MXFP4", "ffn_up_exps": "MXFP4"})})


def test_falcon():
    names = {"token_embd.weight": EVEN, "output.weight": EVEN}
    for i in range(32):
        names |= {f"blk.{i}.{n}.weight": EVEN for n in ("attn_qkv", "attn_output", "ffn_down", "ffn_up")}
    more = {0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31}
    compare("Falcon", dict(architecture="falcon", layers=32, heads=71, keys=1), names, {
        "Q4_K_M": ("Q4_K", {"output": "Q8_0", "attn_qkv": {"Q6_K": more},
                            "ffn_down": {"Q5_K": more, "Q6_K": {0, 1}}}),
        "Q3_K_M": ("Q3_K", {"output": "Q8_0", "attn_qkv": {"Q4_K": ALL, "Q5_K": {0, 1}},
                            "ffn_down": {"Q4_K": more, "Q5_K": {0, 1}}}),
        "Q3_K_L": ("Q3_K", {"output": "Q8_0", "attn_qkv": "Q5_K", "attn_output": "Q4_K", "ffn_down": "Q4_K"}),
        "Q4_K_S": ("Q4_K", {"output": "Q8_0", "attn_qkv": {"Q5_K": {0, 1, 2, 3}}})})


def test_without_and_with_importance():
    facts, tensors = dict(architecture="llama", layers=16, heads=8, keys=2), dense(16)
    compare("no importance", facts, tensors, {
        "IQ4_XS": ("IQ4_XS", {"output": "Q6_K", "attn_v": "Q5_K", "ffn_down": {"Q5_K": {0, 1}}}),
        "Q4_0": ("Q4_0", {"output": "Q6_K"}), "TQ2_0": ("TQ2_0", {"output": "Q6_K", "token_embd": "Q4_K"})})
    ones = struct.pack("<256f", *[1] * 256)
    imatrix = {name + end: (0, shape, data) for name in tensors if name.startswith("blk.")
               for end, shape, data in ((".in_sum2", [1, 256], ones), (".counts", [1, 1], struct.pack("<f", 1)))}
    path = cli.write("i.gguf", gguf([], imatrix))
    compare("importance", facts, tensors, {
        "IQ4_XS": ("IQ4_XS", {"output": "Q6_K", "attn_v": "Q5_K"}),
        "Q4_0": ("Q4_0", {"output": "Q6_K", "ffn_down": {"Q4_1": {0, 1}}}),
        "Q5_0": ("Q5_0", {"output": "Q6_K", "ffn_down": {"Q5_1": {0, 1}}})}, "--importance", path)


def test_large_models():
    """The types that llama.cpp itself gave to 17 models of different rules, by their headers (gguf_llama_judge.py)."""
    with open(os.path.join(os.path.dirname(__file__), "golden", "gguf_types.json"), encoding="utf-8") as file:
        models = json.load(file)
    equal(len(models), 17, "models")
    for model, header in models.items():
        gguf_headers.write("large.gguf", header)
        for scheme in header["types"]:
            equal(gguf_headers.fold(types("large.gguf", scheme)), header["types"][scheme], f"{model}, {scheme}")


def test_pure_and_patterns():
    facts, tensors = dict(architecture="llama", layers=4, heads=8, keys=2), dense(4)
    compare("pure", facts, tensors, {"Q4_K_M": ("Q4_K", {}), "q3_k": ("Q3_K", {})}, "--pure")
    compare("patterns", facts, tensors,
            {"Q5_K_S": ("Q5_K", {"output": "BF16", "attn_v": "Q8_0", "ffn_down": {"Q6_K": {1}}})}, "--tensor-type",
            "^output=bf16", "--tensor-type", "attn_v=Q8_0", "--tensor-type", r"blk\.1\..*down=Q6_K")


def test_staying():
    """Norms, routers, vectors, and tensors that are no weights stay."""
    names = ["blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.attn_q.bias", "blk.0.ssm_conv1d.weight",
             "position_embd.weight", "token_types.weight", "blk.0.time_mix_w1.weight", "a.rvq.codebook.weight"]
    facts = dict(architecture="llama", layers=1, heads=8, keys=2)
    path = write(facts, {**dense(1), **dict.fromkeys(names, EVEN)})
    equal(set(types(path, "Q4_K_M")), set(dense(1)), "what is quantized")


def test_refused():
    path = write(dict(architecture="llama", layers=1, heads=8, keys=2), {**dense(1), "blk.0.attn_extra.weight": 40})
    base = ("quantize", path, "--dry-run", "--scheme")
    equal(types(path, "Q2_K", "--tensor-type", "extra=Q6_K")["blk.0.attn_k.weight"], "Q2_K", "others keep their types")
    check("blk.0.attn_extra.weight" not in types(path, "Q4_K_M"), "F16 stays where no block fits")
    cli.refused("odd columns", ["'blk.0.attn_extra.weight'", "40 columns", "multiple of 32", "=F16"], *base, "Q8_0")
    cli.refused("an unknown scheme", ["'Q4_KM'", "Q4_K_M"], *base, "Q4_KM")
    cli.refused("a scheme of grids", ["'IQ2_XS'", "searched by ggml alone"], *base, "IQ2_XS")
    cli.refused("a scheme of safetensors", ["'W4A16'", "none of GGUF files of llama.cpp"], *base, "W4A16")
    cli.refused("a pattern without a type", ["'attn_v'", "PATTERN=TYPE"], *base, "Q4_K", "--tensor-type", "attn_v")
    cli.refused("a type of grids", ["'x=IQ1_S'", "not made here"], *base, "Q4_K", "--tensor-type", "x=IQ1_S")
    cli.refused("a bad pattern", ["tensor-type"], *base, "Q4_K", "--tensor-type", "(=Q8_0")
    cli.refused("a pattern of nothing", ["'attn_w=Q8_0'"], *base, "Q4_K", "--tensor-type", "attn_w=Q8_0")
    cli.refused("a pattern behind another", ["'attn_v=Q8_0'"], *base, "Q4_K", "--tensor-type", "attn=Q6_K",
                "--tensor-type", "attn_v=Q8_0")
    for option in (("--preset", "x"), ("--targets", "x"), ("--compat", "llm-compressor"), ("--split-experts",)):
        cli.refused(f"{option[0]}", [option[0], "GGUF"], *base, "Q4_K", *option)
    bare = cli.write("b.gguf",
                     gguf([("general.architecture", STRING, "llama")], {"a.weight": (F16, [2, 256], bytes(1024))}))
    cli.refused("a mixture without facts", ["llama.block_count", "--pure"], "quantize", bare, "--dry-run", "--scheme",
                "Q4_K_M")
    equal(types(bare, "Q4_K_M", "--pure"), {"a.weight": "Q4_K"}, "one type needs no facts")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
