#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of experts: each layout gives the bytes of a model with one tensor for each expert, or stays as it is.

    test_experts.py QOBS
"""
import functools
import json
import os
import random
import re
import shutil
import struct
import sys

import cli
from cli import check, equal
from test_quantize_command import refused, tree, write

E, I, H = 3, 32, 64
EXPERTS = "model.layers.0.mlp.experts"
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def quantize(source, out, *options, scheme="W8A8"):
    shutil.rmtree(out, ignore_errors=True)
    how = ["--scheme", scheme] if scheme else []
    return cli.run("quantize", source, *how, "--quiet", "-o", out, *options)


def make(path, tensors, **config):
    shutil.rmtree(path, ignore_errors=True)
    write(f"{path}/model.safetensors", cli.st_bytes({**tensors, **REST}))
    write(f"{path}/config.json", json.dumps({"model_type": "olmoe", "hidden_size": H, **config}).encode())


def bf16(rows):
    flat = [x for row in rows for x in row] if isinstance(rows[0], list) else rows
    return ("BF16", [len(rows), len(rows[0])] if isinstance(rows[0], list) else [len(rows)],
            cli.pack("BF16", flat))


REST = {"lm_head.weight": bf16([[1.0] * H] * 4),
        "model.layers.0.self_attn.q_proj.weight": bf16([[(i * j % 7 - 3) / 4 for j in range(H)] for i in range(32)])}


@functools.cache
def numbers(rows, columns, seed, group=32):
    """Numbers that MXFP4 has: an e2m1 code and an exponent for each group."""
    g = random.Random(seed)
    codes = [g.choices(range(16), k=columns) for _ in range(rows)]
    exponents = [[g.choice((0, 118, 125, 127, 130)) for _ in range(columns // group)] for _ in range(rows)]
    values = [[(-1) ** (c >> 3) * E2M1[c & 7] * 2.0 ** (exponents[r][k // group] - 127) for k, c in enumerate(row)]
              for r, row in enumerate(codes)]
    return codes, exponents, values


def stack(matrices):
    return ("BF16", [len(matrices), len(matrices[0]), len(matrices[0][0])], b"".join(bf16(m)[2] for m in matrices))


def turned(matrix):
    return [list(column) for column in zip(*matrix)]


class Model:
    """E experts as lists of numbers, and the tensors of each layout."""

    def __init__(self, inner=I):
        gate_up = [numbers(2 * inner, H, e) for e in range(E)]
        down = [numbers(H, inner, 100 + e) for e in range(E)]
        self.mx = {"gate_up_proj": gate_up, "down_proj": down}
        self.gate = [v[:inner] for _, _, v in gate_up]
        self.up = [v[inner:] for _, _, v in gate_up]
        self.down = [v for _, _, v in down]

    def one_by_one(self, at=EXPERTS):
        return {f"{at}.{e}.{n}.weight": bf16(m[e]) for e in range(E)
                for n, m in (("gate_proj", self.gate), ("up_proj", self.up), ("down_proj", self.down))}

    def joined(self, transposed, ending=""):
        order = turned if transposed else list
        both = [order(g + u) for g, u in zip(self.gate, self.up)]
        return {f"{EXPERTS}.gate_up_proj{ending}": stack(both),
                f"{EXPERTS}.down_proj{ending}": stack([order(d) for d in self.down])}

    def separate(self, at, transposed, ending=""):
        order = turned if transposed else list
        return {f"{at}.{n}{ending}": stack([order(x) for x in m])
                for n, m in (("gate_proj", self.gate), ("up_proj", self.up), ("down_proj", self.down))}

    def gpt_oss(self):
        """In BF16: columns, and rows of gate_proj and up_proj in turns; which is not seen."""
        both = [turned(v) for _, _, v in self.mx["gate_up_proj"]]
        return {f"{EXPERTS}.gate_up_proj": stack(both), f"{EXPERTS}.down_proj": stack([turned(d) for d in self.down]),
                **self.biases()}

    def biases(self):
        return {f"{EXPERTS}.{n}_bias": bf16([[0.5 + e] * len(m[0][0]) for e in range(E)]) for n, m in self.mx.items()}

    def mxfp4(self):
        tensors = self.biases()
        for name, experts in self.mx.items():
            rows, columns = len(experts[0][0]), len(experts[0][0][0])
            packed = b"".join(bytes(row[k] | row[k + 1] << 4 for k in range(0, columns, 2))
                              for codes, _, _ in experts for row in codes)
            tensors[f"{EXPERTS}.{name}_blocks"] = ("U8", [E, rows, columns // 32, 16], packed)
            tensors[f"{EXPERTS}.{name}_scales"] = ("U8", [E, rows, columns // 32],
                                                   b"".join(bytes(row) for _, exps, _ in experts for row in exps))
        return tensors


def without_config(path):
    return {k: v for k, v in tree(path).items() if k != "config.json"}


def ignore(path="out"):
    return json.loads(cli.read(f"{path}/config.json"))["quantization_config"]["ignore"]


def is_ignored(name):
    """As compressed-tensors and vLLM read `ignore`."""
    return any(re.match(e[3:], name) if e.startswith("re:") else e == name for e in ignore())


def stored(path):
    raw = cli.read(f"{path}/model.safetensors")
    length = struct.unpack("<Q", raw[:8])[0]
    return {n: (t["dtype"], t["shape"], raw[8 + length:][slice(*t["data_offsets"])])
            for n, t in json.loads(raw[8:8 + length]).items() if n != "__metadata__"}


def same(what, tensors, wanted, *options, **config):
    make("in", tensors, **config)
    make("one", wanted)
    for scheme in ("W8A8", "MXFP4"):
        run = quantize("in", "out", *options, scheme=scheme)
        equal(run.returncode, 0, f"{what}: {scheme} {run.stderr}")
        quantize("one", "expected", scheme=scheme)
        equal(without_config("out"), without_config("expected"), f"{what}: {scheme}")
        equal([e for e in ignore() if re.search("experts|mlp|moe", e)], [], f"{what}: nothing but heads is ignored")


def kept(what, tensors, names, *options, wanted=None, scheme="W8A8", **config):
    """The tensors are copied, `ignore` has each of the names, and the attention beside them is quantized."""
    make("in", tensors, **config)
    run = quantize("in", "out", *options, scheme=scheme)
    equal(run.returncode, 0, f"{what}: {run.stderr}")
    if run.returncode:
        return
    out = stored("out")
    equal({n: t for n, t in out.items() if n not in REST and "self_attn" not in n}, wanted or tensors,
          f"{what}: the experts are copied")
    check("model.layers.0.self_attn.q_proj.weight_scale" in out, f"{what}: others are quantized", list(out))
    for name in names:
        check(is_ignored(name), f"{what}: {name} is ignored", ignore())
    check(not is_ignored("model.layers.0.self_attn.q_proj"), f"{what}: the attention is not ignored", ignore())


def test_layouts():
    m = Model()
    same("rows", m.joined(False), m.one_by_one(), model_type="qwen3_vl_moe")
    same("rows of modules", m.joined(False, ".weight"), m.one_by_one())
    same("columns", m.joined(True), m.one_by_one(), model_type="llama4_text")
    same("three tensors", m.separate(EXPERTS, False), m.one_by_one(), model_type="afmoe")
    same("three tensors, columns", m.separate(EXPERTS, True), m.one_by_one())
    moe = "model.layers.0.moe"
    same("three tensors of a layer named moe", m.separate(moe, False, ".weight"), m.one_by_one(f"{moe}.experts"))


def test_equal_dimensions():
    """gate_up_proj and down_proj say together how they lie, whatever hidden_size is."""
    for inner in (H, H // 2):
        m = Model(inner)
        for transposed in (False, True):
            for sizes in ({}, {"hidden_size": 5, "vision_config": {"hidden_size": H}}):
                same(f"I = {inner}, H = {H}, {transposed}, {sizes}", m.joined(transposed), m.one_by_one(), **sizes)
    m = Model()
    same("hidden_size of another configuration", m.separate(EXPERTS, True), m.one_by_one(), hidden_size=5,
         text_config={"hidden_size": H})


def test_unclear():
    m = Model(H)
    make("in", m.separate(EXPERTS, False))
    refused("gate, up, down with I = H", quantize("in", "out"), 2, f"{EXPERTS}.", "--ignore")
    kept("the same, ignored", m.separate(EXPERTS, False), [EXPERTS], "--ignore", "re:.*experts.*")
    tensors = Model().joined(False)
    tensors[f"{EXPERTS}.down_proj"] = stack([[[1.0] * 96] * H] * E)
    make("in", tensors)
    refused("shapes that do not fit", quantize("in", "out"), 2, f"{EXPERTS}.", "--ignore")
    make("in", {n: ("F8_E4M3", shape, data[::2]) for n, (_, shape, data) in m.joined(False).items()})
    refused("codes", quantize("in", "out"), 2, f"{EXPERTS}.", "F8_E4M3")


def test_kept():
    m, loaded = Model(), [EXPERTS, f"{EXPERTS}.0.gate_proj", f"{EXPERTS}.2.down_proj"]
    kept("gpt-oss", m.gpt_oss(), loaded, model_type="gpt_oss")
    kept("biases without a row", m.joined(False) | m.biases(), loaded)
    kept("zaya", m.joined(False), loaded, model_type="zaya")
    kept("in a part of the model", m.joined(False), loaded, model_type="llava", text_config={"model_type": "mistral4"})
    kept("w13", {f"{EXPERTS}.w13_weight": stack(m.gate), f"{EXPERTS}.w2_weight": stack(m.down)}, loaded)
    moe = "model.layers.0.block_sparse_moe"
    kept("Granite", {f"{moe}.input_linear.weight": stack(m.gate), f"{moe}.output_linear.weight": stack(m.down)},
         [f"{moe}.input_linear", f"{moe}.output_linear", f"{moe}.experts.0.gate_proj", f"{moe}.experts.2.down_proj"],
         model_type="granitemoehybrid")
    ffn, flat = "transformer.blocks.0.ffn", [row for e in m.gate for row in e]
    kept("DBRX", {f"{ffn}.experts.mlp.{n}": bf16(flat) for n in ("w1", "v1", "w2")},
         [f"{ffn}.experts.mlp", f"{ffn}.experts.0.gate_proj", f"{ffn}.0.gate_proj"], model_type="dbrx")
    step = "model.layers.0.moe"
    kept("Step-3.7", m.separate(step, False, ".weight"), [f"{step}.gate_proj", f"{step}.experts.0.gate_proj"],
         model_type="step3p7", text_config={"model_type": "step3p5"})
    report = quantize("in", "out", "--json", "-")
    left = json.loads(report.stdout)["left_out"]
    check({"name": f"{step}.gate_proj", "reason": "experts in one tensor"} in left, "the report says how", left)
    run = cli.run("quantize", "in", "--scheme", "W8A8", "-o", "out2")
    check("left out, experts in one tensor: 3" in run.stdout, "the summary counts them", run.stdout)
    check("experts stay as they are" in run.stderr and "--split-experts" in run.stderr, "a warning says how much",
          run.stderr)
    refused("a target that names them", quantize("in", "out", "--targets", "re:.*moe.*"), 2, f"{step}.", "--ignore")
    make("in", m.gpt_oss(), model_type="gpt_oss")
    left = json.loads(quantize("in", "out", "--json", "-", "--split-experts").stdout)["left_out"]
    check({"name": f"{EXPERTS}.gate_up_proj", "reason": "experts that no runtime loads quantized"} in left,
          "the report says why", left)


def renamed(tensors, *names):
    return {n.replace("experts.gate_up_proj", names[0]).replace("experts.down_proj", names[1]): t
            for n, t in tensors.items()}


def test_split_experts():
    """Experts that vLLM alone loads one by one."""
    m, moe, step = Model(), "model.layers.0.mlp", "model.layers.0.moe"
    granite = renamed(m.joined(False, ".weight"), "input_linear", "output_linear")
    same("Granite", {n.replace(".mlp.", ".block_sparse_moe."): t for n, t in granite.items()},
         m.one_by_one("model.layers.0.block_sparse_moe.experts"), "--split-experts", model_type="granitemoehybrid")
    same("Aria", renamed(m.joined(True, ".weight"), "experts.fc1", "experts.fc2"), m.one_by_one(f"{moe}.experts"),
         "--split-experts", model_type="aria_text")
    same("Step-3.7", m.separate(step, False, ".weight"), m.one_by_one(f"{step}.experts"), "--split-experts",
         model_type="step3p7")
    run = quantize("in", "out", "--split-experts", "--json", "-")
    warnings = json.loads(run.stdout)["warnings"]
    check(any("transformers 5.24 does not find split experts" in w for w in warnings), "a warning says who loads them",
          warnings)
    kept("without a row", granite, [f"{moe}.input_linear"], "--split-experts")
    kept("half of Granite ignored with the other", granite, [f"{moe}.input_linear"], "--ignore", "re:.*linear",
         model_type="granitemoe")


def test_ignored():
    m = Model()
    for what, tensors in (("rows", m.joined(False)), ("columns", m.joined(True)), ("one by one", m.one_by_one())):
        kept(f"{what}, ignored", tensors, [f"{EXPERTS}.0.gate_proj"], "--ignore", "re:.*experts.*")
    at = "model.layers.0.feed_forward.experts"
    llama4 = {n.replace(EXPERTS, at): t for n, t in m.joined(True).items()}
    for entry in ("re:.*experts.*", at):
        kept("Llama 4, ignored", llama4, [f"{at}.{e}.{n}_proj" for e in range(E) for n in ("gate", "up", "down")],
             "--ignore", entry, wanted=m.one_by_one(at), model_type="llama4_text")
    for entry in (EXPERTS, f"{EXPERTS}.gate_up_proj"):
        make("in", m.joined(False))
        run = quantize("in", "out", "--ignore", entry)
        if entry == EXPERTS:
            kept("ignored by name", m.joined(False), [f"{EXPERTS}.0.gate_proj"], "--ignore", entry)
        else:
            refused("half a layer by its tensor", run, 2, EXPERTS, "down_proj", "--ignore")
    two = {n.replace("layers.0", f"layers.{layer}"): t for layer in (0, 1) for n, t in m.joined(False).items()}
    make("in", two)
    equal(quantize("in", "out", "--ignore", "re:.*layers.1.*experts").returncode, 0, "one layer of two")
    out = stored("out")
    check(f"{EXPERTS}.0.gate_proj.weight" in out and "model.layers.1.mlp.experts.gate_up_proj" in out,
          "one layer of two is converted", list(out))
    check(is_ignored("model.layers.1.mlp.experts.0.up_proj") and not is_ignored(f"{EXPERTS}.0.up_proj"),
          "the other is ignored", ignore())
    make("in", two)
    equal(quantize("in", "out", "--ignore", "model.layers.1.mlp.experts").returncode, 0, "one layer of two by name")
    check(is_ignored("model.layers.1.mlp.experts.0.up_proj") and not is_ignored(f"{EXPERTS}.0.up_proj"),
          "vLLM finds it ignored", ignore())


def test_half_layers():
    m = Model()
    for what, tensors in (("one tensor", m.joined(False)), ("one by one", m.one_by_one())):
        make("in", tensors)
        for options in (["--ignore", "re:.*down_proj"], ["--ignore", "re:.*experts.1.*"],
                        ["--targets", "re:.*down_proj"]):
            refused(f"{what}: {options}", quantize("in", "out", *options), 2, EXPERTS, "down_proj", "layer of experts")
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}}
    other = {**group, "targets": ["re:.*down_proj"], "weights": {**group["weights"], "num_bits": 4}}
    write("config.json", json.dumps({"config_groups": {"a": other, "b": group}}).encode())
    refused("two schemes", quantize("in", "out", "--config", "config.json", scheme=None), 2, EXPERTS, "schemes")


def test_compat():
    make("in", Model().gpt_oss(), model_type="gpt_oss")
    run = quantize("in", "out", "--compat", "llm-compressor", "--ignore", "lm_head", "--json", "-")
    warnings = json.loads(run.stdout)["warnings"]
    check(any("no runtime loads" in w and EXPERTS in w for w in warnings), "split experts are named", warnings)
    check(f"{EXPERTS}.0.gate_proj.weight" in stored("out"), "and written as upstream writes them")


# Scheme: transformers 5.17 loads experts that are quantized with it, and experts that are left out beside it. The test
# "live" (live_static.py) compares this with what transformers does. Then the schemes whose experts vLLM runs on CPUs,
# too.
LOADED = {"W4A16": (True, False), "W4A16_ASYM": (False, False), "W3A16": (True, False), "W8A8": (False, False),
          "FP8_DYNAMIC": (True, True), "FP8_BLOCK": (False, True), "NVFP4A16": (False, False), "MXFP4": (True, False),
          "MXFP8A16": (False, True)}
CPU_EXPERTS = {"W8A8": "on GPUs, on Arm CPUs and on CPUs with AMX", "FP8_BLOCK": "on GPUs and on CPUs with AMX",
               "W4A16": "on GPUs and on CPUs with AMX"}


def test_transformers():
    """The report says whether transformers loads the experts."""
    model, report = Model(128), ("--json", "report.json")
    make("in", model.one_by_one(), model_type="qwen3_moe")

    def said(*options, scheme):
        equal(quantize("in", "out", *options, *report, scheme=scheme).returncode, 0, f"{scheme} {options}")
        json_report = json.loads(cli.read("report.json"))
        return all(r["transformers"] for r in json_report["runtimes"]), any("random" in w
                                                                            for w in json_report["warnings"])

    for scheme, (quantized, left) in LOADED.items():
        groups = ("--set", "group_size=32") if scheme in ("W4A16", "W4A16_ASYM", "W3A16") else ()
        equal(said(*groups, scheme=scheme), (quantized, False), f"{scheme}: quantized experts")
        row, = json.loads(cli.read("report.json"))["runtimes"]
        equal((row["vllm"], row["vllm_cpu"]), (CPU_EXPERTS.get(scheme, "on GPUs"), scheme in CPU_EXPERTS),
              f"{scheme}: vLLM")
        equal(said(*groups, "--ignore", "re:.*experts.*", scheme=scheme), (left, not left),
              f"{scheme}: experts that stay")
    make("in", {n: t for n, t in model.one_by_one().items() if "experts" not in n}, model_type="llama")
    for scheme, loaded in (("W4A16", True), ("W4A16_ASYM", False)):
        equal(said("--set", "group_size=32", scheme=scheme), (loaded, False), f"{scheme}: packed zero points")
        warned = any("5.24 reads no packed zero points, 5.17 does" in w
                     for w in json.loads(cli.read("report.json"))["warnings"])
        equal(warned, not loaded, f"{scheme}: a warning")
    make("in", model.one_by_one(), model_type="qwen3_moe")
    int8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
    for targets, loaded in (("re:.*experts.*", True), ("re:.*mlp.*", False)):
        write("config", json.dumps({"config_groups": {
            "a": {"targets": ["re:.*self_attn.*"], "weights": int8},
            "b": {"targets": [targets], "weights": {**int8, "num_bits": 4}}}}).encode())
        equal(said("--config", "config", scheme=None)[0], loaded, f"two schemes, experts by {targets}")
    make("in", model.one_by_one("model.layers.0.feed_forward.experts"), model_type="llama4_text")
    equal(said(scheme="W8A8"), (True, False), "Llama 4 has a module for each expert")
    make("in", model.gpt_oss(), model_type="gpt_oss")
    equal(said(scheme="W8A8"), (True, False), "experts in tensors that stay, and their biases of two dimensions")


def record(path, inputs):
    """A batch in which the inputs of modules have one number of that size, and no token if it is 0."""
    write(path, cli.st_bytes({f"{m}.input": bf16([[size] + [size / 4] * (n - 1)]) if size else ("BF16", [0, n], b"")
                              for m, (n, size) in inputs.items()}))


def test_fill():
    make("in", Model().one_by_one(), model_type="qwen3_moe")
    reached = {"model.layers.0.self_attn.q_proj": (H, 1.0), f"{EXPERTS}.0.gate_proj": (H, 4.0),
               f"{EXPERTS}.0.down_proj": (I, 2.0), f"{EXPERTS}.2.gate_proj": (H, 1.0),
               f"{EXPERTS}.2.down_proj": (I, 8.0)}
    for what, inputs in (("absent", reached), ("without a token", {**reached, f"{EXPERTS}.1.up_proj": (H, 0)})):
        record("a", inputs)
        for scheme, part, of in (("FP8", "input_scale", lambda x: cli.bf16_value(cli.bf16_bits(x / 448))),
                                 ("NVFP4", "input_global_scale", lambda x: cli.f32(448 * 6 / x))):
            given = ["--activations", "a", "--set", "group_size=16"] if scheme == "NVFP4" else ["--activations", "a"]
            refused(f"{what}: {scheme}", quantize("in", "out", *given, scheme=scheme), 2, f"'{EXPERTS}': 1;",
                    "--fill-experts")
            run = quantize("in", "out", *given, "--fill-experts", "refuse", scheme=scheme)
            refused(f"{what}: {scheme} refuse", run, 2, f"'{EXPERTS}': 1;")
            for how, gate, down in (("max", 4.0, 8.0), ("median", 1.0, 2.0)):
                run = quantize("in", "out", *given, "--fill-experts", how, "--json", "-", scheme=scheme)
                equal(run.returncode, 0, f"{what}: {scheme} {how} {run.stderr}")
                check("3 scales of experts" in " ".join(json.loads(run.stdout)["warnings"]), "the report counts them",
                      run.stdout[-400:])
                tensors = cli.st_read("out/model.safetensors")[0]
                got = {n: tensors[f"{EXPERTS}.{n}.{part}"][2] for n in ("1.gate_proj", "1.up_proj", "1.down_proj",
                                                                        "0.gate_proj", "2.down_proj")}
                equal(got, {"1.gate_proj": [of(gate)], "1.up_proj": [of(gate)], "1.down_proj": [of(down)],
                            "0.gate_proj": [of(4.0)], "2.down_proj": [of(8.0)]}, f"{what}: {scheme} {how}")
    record("a", {"model.layers.0.self_attn.q_proj": (H, 1.0)})
    run = quantize("in", "out", "--activations", "a", "--fill-experts", "max", scheme="FP8")
    refused("no expert of a layer", run, 2, EXPERTS, "no token")
    del reached["model.layers.0.self_attn.q_proj"]
    record("a", reached)
    refused("another module", quantize("in", "out", "--activations", "a", "--fill-experts", "max", scheme="FP8"), 2,
            "q_proj")
    refused("another word", quantize("in", "out", "--fill-experts", "mean"), 2, "--fill-experts", "median")


def test_mxfp4():
    """gpt-oss in MXFP4 becomes gpt-oss in BF16."""
    config = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    m = Model(512)  # several slices
    kept("gpt-oss in MXFP4", m.mxfp4(), [EXPERTS], wanted=m.gpt_oss(), **config)
    quantization = json.loads(cli.read("out/config.json"))["quantization_config"]
    equal(quantization["quant_method"], "compressed-tensors", "the old quantization_config is replaced")
    before = tree("out")
    quantize("in", "out", "--threads", cli.thread_counts()[-1])
    equal(tree("out"), before, "the same bytes with more threads")
    run = cli.run("audit", "out", "--against", "in")
    check(run.returncode == 0, "an audit against experts in MXFP4", run.stdout + run.stderr)
    tensors = m.mxfp4()
    name = f"{EXPERTS}.down_proj_blocks"
    tensors[name] = ("U8", [E, H, 32, 8], tensors[name][2])
    make("in", tensors, **config)
    refused("blocks of another size", quantize("in", "out"), 2, "down_proj_blocks", "16")


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if k != "test_quantize_command"}))
