#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Faults that are put into sound checkpoints of six dialects one by one: qobs audit finds each, and nothing before.

    test_seeded_dialects.py QOBS
"""
import json
import shutil
import struct
import sys

import cli
from cli import check, equal, read, write
from test_seeded_faults import Q, audit, make_sound, numbers, parts, store

O = "model.layers.1.self_attn.o_proj"
AWQ, GPTQ = ("awq",), ("gptq", "gptq-v2", "auto-round")
WORDS = AWQ + GPTQ
FLOATS = ("FP8", "quark-fp8", "quark-mxfp4")
PACKED = ("W4A16", "W4A16_ASYM")


# ---- Sound checkpoints -----------------------------------------------------------------------------------------------

def configure(directory, config):
    whole = json.loads(read(f"{directory}/config.json"))
    whole["quantization_config"] = config
    write(f"{directory}/config.json", json.dumps(whole).encode())


def quark(weight, granularity, group, dynamic):
    """A configuration as Quark 0.13 writes it, without members that nobody reads."""
    spec = {"dtype": weight, "qscheme": granularity, "group_size": group, "is_dynamic": False}
    return {"quant_method": "quark", "exclude": ["lm_head", "*mlp.gate"], "layer_quant_config": {},
            "global_quant_config": {"weight": spec, "input_tensors": {**spec, "is_dynamic": dynamic}}}


def make_dialects():
    make_sound()
    for name, scheme, *options in (("W4A16", "W4A16"), ("W4A16_ASYM", "W4A16_ASYM"), ("FP8", "FP8"),
                                   ("quark-fp8", "FP8"), ("quark-mxfp4", "MXFP4"), ("awq", "W4A16", "awq"),
                                   ("gptq", "W4A16", "gptq"), ("gptq-v2", "W4A16", "gptq-v2"),
                                   ("auto-round", "W4A16", "gptq")):
        words = ["--dialect", options[0]] if options else []
        group = ["--set", "group_size=32"] if "W4" in scheme else []
        recorded = ["--activations", "acts"] if scheme == "FP8" else []
        cli.fine(name, "quantize", "in", "--scheme", scheme, "-o", name, "--quiet", "--keep-findings", *words, *group,
                 *recorded)
    for name in ("gptq", "gptq-v2"):  # as GPTQModel 7 has it
        config = json.loads(read(f"{name}/config.json"))["quantization_config"]
        configure(name, {**config, "format": config["checkpoint_format"], "method": "gptq"})
    configure("quark-fp8", quark("fp8_e4m3", "per_tensor", None, False))
    configure("quark-mxfp4", quark("fp4", "per_group", 32, True))
    store("quark-mxfp4", {n.replace("weight_packed", "weight"): t
                          for n, t in parts("quark-mxfp4/model.safetensors").items()})
    configure("auto-round", {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4,
                             "group_size": 32, "sym": True, "data_type": "int",
                             "block_name_to_quantize": "model.layers",
                             "extra_config": {f"model.layers.{i}.mlp.gate": {"bits": 16} for i in range(2)}})


# ---- Changes: of the tensors `t` and of quantization_config `q` ------------------------------------------------------

def fill(part, value, module=Q):
    """Every element of a tensor, in one module or in all."""
    def change(t, q):
        for name in [n for n in t if n.endswith("." + part) and (module is None or n.startswith(module + "."))]:
            t[name][2] = (value * len(t[name][2]))[:len(t[name][2])]
    return change


def put(part, value, module=Q):
    return lambda t, q: t[f"{module}.{part}"].__setitem__(2, value + t[f"{module}.{part}"][2][len(value):])


def drop(*names):
    def change(t, q):
        for name in names:
            del t[name]
    return change


def drop_modules(*modules):
    def change(t, q):
        for name in [n for n in t if n.rpartition(".")[0] in modules]:
            del t[name]
    return change


def plain(module):
    def change(t, q):
        drop_modules(module)(t, q)
        t[module + ".weight"] = list(numbers(128, 128))
    return change


def cast(part, dtype, shape=None, module=Q):
    """The same bytes, or the first of them, under another dtype and shape."""
    def change(t, q):
        old = t[f"{module}.{part}"]
        new = shape or old[1]
        size = cli.SIZES.get(dtype, 1)
        for n in new:
            size *= n
        t[f"{module}.{part}"] = [dtype, new, (old[2] * 8)[:size]]
    return change


def shift(amount, module=Q):
    """Adds to every stored zero point of 4 bits."""
    def change(t, q):
        tensor = t[module + ".qzeros"]
        tensor[2] = bytes((b & 15) + amount & 15 | (b >> 4) + amount << 4 & 240 for b in tensor[2])
    return change


def order(*groups):
    def change(t, q):
        t[Q + ".g_idx"] = ["I32", [128], struct.pack("<128i", *groups, *[i // 32 for i in range(len(groups), 128)])]
    return change


def config(key, value):
    return lambda t, q: q.__setitem__(key, value)


def add_to(key, *values):
    return lambda t, q: q[key].update({v: {} for v in values}) if isinstance(q[key], dict) else q[key].extend(values)


def target(name):
    return lambda t, q: next(iter(q["config_groups"].values()))["targets"].append(name)


def cache(k, v, layers=2):
    def change(t, q):
        q["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True,
                                "dynamic": False}
        for i in range(layers):
            for part, value in (("k", k), ("v", v)):
                if value is not None:
                    t[f"model.layers.{i}.self_attn.{part}_scale"] = ["F32", [1], struct.pack("<f", value)]
    return change


TYPO = "model.layers.1.self_attn.q_porj"

FAULTS = [  # what is wrong, in which dialects, a word of the finding, the change
    ("all codes are one", WORDS, "all codes are", fill("qweight", b"\x55")),
    ("all codes are zero", WORDS, "all codes are", fill("qweight", b"\x88")),
    ("codes use a part of their range", WORDS, "largest magnitude", fill("qweight", b"\x87\x79")),
    ("a scale is 0", WORDS, "not other than 0", put("scales", b"\0\0")),
    ("a scale is infinite", WORDS, "finite", put("scales", b"\x80\x7f")),
    ("a scale is NaN", WORDS, "finite", put("scales", b"\xc0\x7f")),
    ("the scales are one over the model", WORDS, "scales of weights are", fill("scales", b"\x80\x3b", None)),
    ("the scales of a layer are missing", WORDS, "self_attn.q_proj", drop(Q + ".scales")),
    ("the codes of a layer are missing", WORDS, "self_attn.q_proj", drop(Q + ".qweight")),
    ("words of half the width", AWQ, "neither AWQ", cast("qweight", "I32", [128, 8])),
    ("words of half the width", GPTQ, "neither AWQ", cast("qweight", "I32", [16, 64])),
    ("FP8 bytes under 4 bits", WORDS, "self_attn.q_proj", cast("qweight", "F8_E4M3", [128, 128])),
    ("zero points of half the width", WORDS, "self_attn.q_proj", cast("qzeros", "I32", [4, 8])),
    ("zero points are one above", GPTQ, "off by one", shift(1)),
    ("zero points are one below", GPTQ, "off by one", shift(-1)),
    ("zero points of v1 under v2", ("gptq-v2",), "off by one", shift(-1)),
    ("v2 is said of v1", ("gptq",), "off by one", config("checkpoint_format", "gptq_v2")),
    ("v1 is said of v2", ("gptq-v2",), "off by one", config("checkpoint_format", "gptq")),
    ("columns out of order without desc_act", GPTQ, "out of order", order(1, 0)),
    ("a column of a group that is not there", GPTQ, "has group 7", order(7)),
    ("other bits in the configuration", WORDS, "the configuration says 8", config("bits", 8)),
    ("other groups in the configuration", WORDS, "the configuration says 64",
     config("group_size", 64)),
    ("an exclusion that names nothing", AWQ, "is in no name of a tensor",
     add_to("modules_to_not_convert", "mlp.gaet")),
    ("a layer that is no part of the configuration", ("auto-round",), "did you mean 'q_proj'",
     add_to("extra_config", TYPO)),
    ("a layer is not quantized, but claimed", AWQ, "the configuration claims it", plain(O)),
    ("one of q, k, v is not quantized", WORDS, "runs both as one matrix", plain(Q)),
    ("no layer has codes", WORDS, "holds no codes", lambda t, q: [plain(m)(t, q) for m in {
        n.rpartition(".")[0] for n in t if n.endswith(".qweight")}]),

    ("all codes are one", PACKED, "all codes are one", fill("weight_packed", b"\x22")),
    ("two codes again and again", PACKED, "again and again", fill("weight_packed", b"\x2f")),
    ("all codes are one", ("FP8", "quark-fp8"), "all codes are one", fill("weight", b"\x7e")),
    ("all codes are one", ("quark-mxfp4",), "all codes are one", fill("weight", b"\x77")),
    ("two codes again and again", ("quark-mxfp4",), "again and again", fill("weight", b"\x72")),
    ("the scales are one over the model", PACKED, "scales of weights are", fill("weight_scale", b"\x80\x3b", None)),
    ("the scales are one over the model", ("quark-mxfp4",), "scales of weights are",
     fill("weight_scale", b"\x79", None)),
    ("FP8 bytes under 4 bits", PACKED, "weight_packed is F8_E4M3", cast("weight_packed", "F8_E4M3")),
    ("FP8 bytes under 4 bits", ("quark-mxfp4",), "weight_scale is U8", cast("weight", "U8", [128, 128])),
    ("4 bits under FP8", ("FP8", "quark-fp8"), "weight is U8", cast("weight", "U8", [128, 64])),
    ("4 bits in bytes of FP8", ("FP8",), "config.json says [128,128]", cast("weight", "F8_E4M3", [128, 64])),
    ("words of half the width", PACKED, "does not fit weight_packed", cast("weight_packed", "I32", [128, 8])),
    ("a shape of other columns", PACKED, "does not fit weight_packed",
     put("weight_shape", struct.pack("<2q", 128, 96))),
    ("zero points are missing", ("W4A16_ASYM",), "has no weight_zero_point", drop(Q + ".weight_zero_point")),
    ("zero points of other groups", ("W4A16_ASYM",), "weight_zero_point is", cast("weight_zero_point", "I32", [16, 2])),
    ("the codes of a layer are missing", PACKED, "has weight_scale, but no weight", drop(Q + ".weight_packed")),
    ("the codes of a layer are missing", FLOATS, "has weight_scale, but no weight", drop(Q + ".weight")),
    ("the scales of a layer are missing", FLOATS, "has no weight_scale", drop(Q + ".weight_scale")),
    ("an input scale is missing", ("FP8", "quark-fp8"), "has no input_scale", drop(Q + ".input_scale")),
    ("a scale is NaN", ("quark-mxfp4",), "not above 0", put("weight_scale", b"\xff")),
    ("scales of keys and values are 1", ("FP8",), "are 1: nothing was calibrated", cache(1, 1)),
    ("scales of keys and values are 0", ("FP8",), "not above 0", cache(0, 0)),
    ("a scale of values is missing", ("FP8",), "has no v_scale", cache(0.5, None)),
    ("an entry of ignore that names nothing", PACKED + ("FP8",), "did you mean 'q_proj'", add_to("ignore", TYPO)),
    ("a target that names nothing", PACKED + ("FP8",), "did you mean 'q_proj'", target(TYPO)),
    ("an exclusion that names nothing", ("quark-fp8", "quark-mxfp4"), "did you mean 'q_proj'", add_to("exclude", TYPO)),
    ("a layer is not quantized, but claimed", FLOATS, "claims it", plain(O)),
    ("names of another maker", PACKED + FLOATS, "no loader", lambda t, q: t.__setitem__(
        Q + ".qzeros", ["I32", [4, 16], bytes(256)])),
]


def test_dialects():
    make_dialects()
    for dialect in PACKED + FLOATS + WORDS:
        status, text = audit(dialect)
        equal(status, 0, f"{dialect}: nothing is found in the sound checkpoint {text if status else ''}")
        sound = parts(f"{dialect}/model.safetensors")
        for what, dialects, word, change in FAULTS:
            if dialect not in dialects:
                continue
            shutil.copytree(dialect, "out", ignore=lambda *_: ["model.safetensors"])
            tensors = {k: [d, list(s), b] for k, (d, s, b) in sound.items()}
            whole = json.loads(read("out/config.json"))
            change(tensors, whole["quantization_config"])
            store("out", tensors)
            write("out/config.json", json.dumps(whole).encode())
            status, text = audit("out")
            equal(status, 3, f"{dialect}: {what}: exit status {text if status != 3 else ''}")
            check(word in text, f"{dialect}: {what}: {word}", text[-600:])
            shutil.rmtree("out")


def test_makers():
    """Configurations of Quark that are not read are named."""
    make_sound()
    config_of = quark("int4", "per_group", 32, True)
    configure("ct", config_of)
    status, text = audit("ct")
    check(status == 2 and "int4 per_group" in text and "FP8_DYNAMIC" in text, "a scheme that is not read", text)
    config_of = {**quark("fp4", "per_group", 32, True), "layer_quant_config": {"*o_proj": {}}}
    configure("ct", config_of)
    status, text = audit("ct")
    check(status == 2 and "layer_quant_config" in text, "schemes by layer", text)


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
