#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Faults that public reports describe, put into a sound checkpoint one by one: qobs audit finds each, in the names of
compressed-tensors and of Model-Optimizer. The kinds are those of vLLM 45212 (input scales of experts that no token
reached), vLLM 54444 (global scales that are missing), vLLM 55073 (global scales that differ within w13), sglang 35358
(heads), vLLM 41994 (experts that `ignore` omits) and the like.

    test_seeded_faults.py QOBS
"""
import functools
import json
import math
import os
import random
import shutil
import struct
import sys

import cli
from cli import check, equal, read, write

H, EXPERTS = 128, 4
CONFIG = {"model_type": "qwen3_moe", "hidden_size": H, "vocab_size": 64, "num_experts": EXPERTS, "head_dim": 32,
          "num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": True}
ATTENTION = [f"model.layers.{i}.self_attn.{n}_proj" for i in range(2) for n in "qkvo"]
MODULES = ATTENTION + [f"model.layers.{i}.mlp.experts.{e}.{n}_proj" for i in range(2) for e in range(EXPERTS)
                       for n in ("gate", "up", "down")]
Q, E = "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.experts.2"
KEYS = {"codes": ("weight_packed", "weight"), "global": ("weight_global_scale", "weight_scale_2"),
        "input": ("input_global_scale", "input_scale"), "scale": ("weight_scale", "weight_scale")}


@functools.cache
def numbers(*shape):
    source = random.Random(math.prod(shape))
    return "BF16", list(shape), cli.pack("BF16", [source.gauss(0, 0.05) for _ in range(math.prod(shape))])


def parts(path):
    """{name: [dtype, shape, bytes]} of a file of any dtypes."""
    data = read(path)
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    header.pop("__metadata__", None)
    return {k: [v["dtype"], v["shape"], body[slice(*v["data_offsets"])]] for k, v in header.items()}


def make_sound():
    """Writes the checkpoint in both spellings: the directories "ct" and "modelopt"."""
    os.makedirs("in")
    tensors = {m + ".weight": numbers(H, H) for m in MODULES}
    tensors |= {"model.embed_tokens.weight": numbers(64, H), "model.norm.weight": numbers(H)}
    tensors |= {f"model.layers.{i}.mlp.gate.weight": numbers(EXPERTS, H) for i in range(2)}
    write("in/model.safetensors", cli.st_bytes(tensors))
    write("in/config.json", json.dumps(CONFIG).encode())
    write("acts", cli.st_bytes({m + ".input": ("BF16", [1, H], struct.pack("<H", 0x3F80) * H) for m in MODULES}))
    cli.fine("the sound checkpoint", "quantize", "in", "--scheme", "NVFP4", "--activations", "acts", "-o", "ct",
             "--quiet")
    shutil.copytree("ct", "modelopt")
    names = {old: new for old, new in KEYS.values()}
    renamed = {}
    for name, (dtype, shape, data) in parts("ct/model.safetensors").items():
        module, _, last = name.rpartition(".")
        if last in ("weight_global_scale", "input_global_scale"):
            shape, data = [], struct.pack("<f", 1 / struct.unpack("<f", data)[0])
        renamed[f"{module}.{names.get(last, last)}"] = dtype, shape, data
    config = json.loads(read("modelopt/config.json"))
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4",
                                     "ignore": ["lm_head", "model.layers.*.mlp.gate"]}
    write("modelopt/config.json", json.dumps(config).encode())
    store("modelopt", renamed)


def store(directory, tensors):
    write(f"{directory}/model.safetensors", cli.st_bytes({k: tuple(v) for k, v in tensors.items()}))
    index = {"metadata": {}, "weight_map": {k: "model.safetensors" for k in tensors}}
    write(f"{directory}/model.safetensors.index.json", json.dumps(index).encode())


def audit(directory):
    run = cli.run("audit", directory, "--json")
    return run.returncode, run.stdout + run.stderr


# A fault: a word of the finding, and the change of the tensors `t` and of config.json `c`. `k` gives the name of a part
# in the spelling at hand.
def float32(x):
    return struct.pack("<f", x)


def put(part, value, module=Q):
    return lambda t, c, k: t[f"{module}.{k(part)}"].__setitem__(2, value + t[f"{module}.{k(part)}"][2][len(value):])


def drop(*names):
    def change(t, c, k):
        for name in names:
            module, _, last = name.rpartition(".")
            del t[f"{module}.{k(last)}"]
    return change


def drop_modules(*modules):
    def change(t, c, k):
        for name in [n for n in t if any(n.startswith(m + ".") for m in modules)]:
            del t[name]
    return change


def unquantize(module, ignore):
    def change(t, c, k):
        drop_modules(module)(t, c, k)
        t[module + ".weight"] = list(numbers(H, H))
        if ignore:
            c["quantization_config"]["ignore"].append(module)
    return change


def set_config(key, value):
    return lambda t, c, k: c.__setitem__(key, value)


def no_ignore(t, c, k):
    c["quantization_config"]["ignore"] = [n for n in c["quantization_config"]["ignore"] if "lm_head" not in n]


def with_head(t, c, k):
    no_ignore(t, c, k)
    c["tie_word_embeddings"] = False
    t["lm_head.weight"] = list(numbers(64, H))


def add(name, *shape):
    return lambda t, c, k: t.__setitem__(name, list(numbers(*shape)))


def narrow(t, c, k):
    t["model.layers.1.self_attn.o_proj." + k("codes")][1][:] = [H // 2, H // 2]
    t["model.layers.1.self_attn.o_proj." + k("codes")][2] = bytes(range(256)) * 16
    t["model.layers.1.self_attn.o_proj.weight_scale"][1][0] = H // 2
    t["model.layers.1.self_attn.o_proj.weight_scale"][2] = b"\x38" * (H // 2 * H // 16)


def other_groups(t, c, k):
    t[Q + ".weight_scale"][1][:] = [H, H // 32]
    t[Q + ".weight_scale"][2] = t[Q + ".weight_scale"][2][:H * H // 32]


FAULTS = {
    "the input scale of one matrix of an expert is missing": ("has no input", drop(E + ".up_proj.input")),
    "the input scales of an expert are missing": ("has no input",
                                                  drop(*(f"{E}.{n}_proj.input" for n in ("gate", "up", "down")))),
    "the input scale of a layer is missing": ("has no input", drop(Q + ".input")),
    "an input scale is 0": ("not above 0", put("input", float32(0), E + ".gate_proj")),
    "an input scale is NaN": ("not above 0", put("input", float32(math.nan))),
    "an input scale is infinite": ("not above 0", put("input", float32(math.inf))),
    "the global scale of a layer is missing": ("has no weight_", drop(Q + ".global")),
    "the global scale of an expert is missing": ("has no weight_", drop(E + ".down_proj.global")),
    "a global scale is 0": ("the global scale is 0", put("global", float32(0))),
    "a global scale is NaN": ("the global scale is nan", put("global", float32(math.nan), E + ".down_proj")),
    "a global scale is negative": ("the global scale is -", put("global", float32(-3), E + ".down_proj")),
    "a scale of a block is 0": ("not above 0", put("scale", b"\0")),
    "a scale of a block is NaN": ("not above 0", put("scale", b"\x7f", E + ".up_proj")),
    "the scales of a layer are missing": ("has no weight_scale", drop(Q + ".scale")),
    "the scales are those of other groups": ("weight_scale is F8_E4M3", other_groups),
    "global scales differ within q, k, v": ("runs as one matrix", put("global", float32(7))),
    "global scales differ within w13": ("runs as one matrix", put("global", float32(7), E + ".up_proj")),
    "one of q, k, v is not quantized and ignored": ("runs as one matrix", unquantize(Q, True)),
    "a layer is not quantized, but claimed": ("claims it", unquantize("model.layers.0.self_attn.o_proj", False)),
    "a matrix of an expert is not quantized": ("all or none", unquantize(E + ".down_proj", True)),
    "an expert is missing": ("is missing in 1 of 4", drop_modules(E)),
    "a matrix of an expert is missing": ("down_proj is missing in 1 of 4", drop_modules(E + ".down_proj")),
    "config.json has more experts": ("config.json says 8", set_config("num_experts", 8)),
    "experts are left in one tensor": ("in one tensor",
                                       add("model.layers.1.mlp.experts.gate_up_proj", EXPERTS, 2 * H, H)),
    "experts of another layer are claimed": ("claims them",
                                             add("model.layers.2.mlp.experts.gate_up_proj", EXPERTS, 2 * H, H)),
    "the tied head is not ignored": ("lm_head", no_ignore),
    "the head is not ignored": ("claims it", with_head),
    "a quantized layer is ignored": ("ignores it",
                                     lambda t, c, k: c["quantization_config"]["ignore"].append(E + ".up_proj")),
    "config.json has another vocabulary": ("config.json says [32,128]", set_config("vocab_size", 32)),
    "a matrix has another size than in other layers": ("config.json says [128,128]", narrow),
    "a layer has names of another format": ("no loader", add(Q + ".weight_scale_inv", 1, 1)),
}


def test_seeded():
    make_sound()
    for index, spelling in enumerate(("ct", "modelopt")):
        status, text = audit(spelling)
        equal(status, 0, f"{spelling}: nothing is found in the sound checkpoint {text if status else ''}")
        sound = parts(f"{spelling}/model.safetensors")
        for what, (word, change) in FAULTS.items():
            shutil.copytree(spelling, "out", ignore=lambda *_: ["model.safetensors"])
            tensors, config = {k: [d, list(s), b] for k,
                               (d, s, b) in sound.items()}, json.loads(read("out/config.json"))
            change(tensors, config, lambda part: KEYS[part][index] if part in KEYS else part)
            store("out", tensors)
            write("out/config.json", json.dumps(config).encode())
            status, text = audit("out")
            equal(status, 3, f"{spelling}: {what}: exit status {text}")
            check(word in text, f"{spelling}: {what}: {word}", text)
            shutil.rmtree("out")


def test_files():
    """The index, its files and hf_quant_config.json."""
    make_sound()
    index = json.loads(read("ct/model.safetensors.index.json"))
    gone = dict(index["weight_map"])
    del gone["model.norm.weight"]
    write("ct/model.safetensors.index.json", json.dumps({"weight_map": gone}).encode())
    status, text = audit("ct")
    check(status == 3 and "the index names" in text, "a tensor that the index omits", text)
    write("ct/model.safetensors.index.json", json.dumps(index).encode())
    write("ct/model-2.safetensors", cli.st_bytes({"model.layers.2.norm.weight": numbers(H)}))
    status, text = audit("ct")
    check(status == 3 and "no part of the model" in text, "a file that the index omits", text)
    write("ct/model.safetensors.index.json", json.dumps({"weight_map": {**gone, "x": "model-3.safetensors"}}).encode())
    status, text = audit("ct")
    check(status == 2 and "model-3.safetensors" in text, "a file that is missing", text)
    config = json.loads(read("modelopt/config.json"))
    quantization = config.pop("quantization_config")
    write("modelopt/config.json", json.dumps(config).encode())
    write("modelopt/hf_quant_config.json", json.dumps({"producer": {"name": "modelopt"}, "quantization": {
        "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": quantization["ignore"]}}).encode())
    equal(audit("modelopt")[0], 0, "hf_quant_config.json alone")
    write("modelopt/hf_quant_config.json", json.dumps({"quantization": {"quant_algo": "W4A8_AWQ"}}).encode())
    status, text = audit("modelopt")
    check(status == 2 and "W4A8_AWQ" in text and "NVFP4" in text, "an algorithm that is not read", text)


def test_exponents():
    """MXFP4 and MXFP8 of Model-Optimizer."""
    make_sound()
    for scheme in ("MXFP4", "MXFP8"):
        shutil.rmtree("out", ignore_errors=True)
        cli.fine(scheme, "quantize", "in", "--scheme", scheme, "-o", "out", "--quiet")
        tensors = {n.replace("weight_packed", "weight"): v for n, v in parts("out/model.safetensors").items()}
        store("out", tensors)
        config = json.loads(read("out/config.json"))
        config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": scheme,
                                         "ignore": config["quantization_config"]["ignore"]}
        write("out/config.json", json.dumps(config).encode())
        status, text = audit("out")
        equal(status, 0, f"{scheme} of Model-Optimizer {text}")
        put("scale", b"\xff")(tensors, config, lambda part: KEYS[part][1])
        store("out", tensors)
        status, text = audit("out")
        check(status == 3 and "not above 0" in text, f"{scheme}: a scale of NaN", text)


def of_modelopt(directory, algorithm, shape_of):
    """Gives a checkpoint of FP8 the configuration and the shapes of scales of Model-Optimizer. Returns its tensors."""
    tensors = parts(f"{directory}/model.safetensors")
    for name in [n for n in tensors if n.endswith("weight_scale")]:
        dtype, shape, data = tensors[name]
        numbers = [v for v, in struct.iter_unpack("<f", data)] if dtype == "F32" else [
            struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
        tensors[name] = ["F32", shape_of(shape), struct.pack(f"<{len(numbers)}f", *numbers)]
    configure(directory, quant_algo=algorithm)
    store(directory, tensors)
    return tensors


def configure(directory, **quantization):
    config = json.loads(read(f"{directory}/config.json"))
    config["quantization_config"] = {"quant_method": "modelopt", "ignore": ["lm_head", "model.layers.*.mlp.gate"],
                                     **quantization}
    write(f"{directory}/config.json", json.dumps(config).encode())


def test_algorithms():
    """FP8 by channels and blocks, and layers with an algorithm each, of Model-Optimizer."""
    make_sound()
    for scheme, algorithm, shape_of in (("FP8_BLOCK", "FP8_PB_WO", lambda s: [s[0], 1, s[1], 1]),
                                        ("FP8_DYNAMIC", "FP8_PER_CHANNEL_PER_TOKEN", lambda s: s[:1])):
        cli.fine(scheme, "quantize", "in", "--scheme", scheme, "-o", scheme, "--quiet")
        tensors = of_modelopt(scheme, algorithm, shape_of)
        status, text = audit(scheme)
        equal(status, 0, f"{algorithm} {text}")
        check(f'"{Q}"' in text, f"{algorithm}: the layers are compared", text)
        broken = {**tensors, f"{Q}.weight_scale": ["F32", [3], bytes(12)]}
        store(scheme, broken)
        status, text = audit(scheme)
        check(status == 3 and "weight_scale is F32 [3]" in text, f"{algorithm}: a scale of another shape", text)
    fp4 = parts("modelopt/model.safetensors")
    mixed = {**{n: t for n, t in fp4.items() if "self_attn" not in n},
             **{n: t for n, t in tensors.items() if "self_attn" in n}}
    layers = {m: {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN" if "self_attn" in m else "NVFP4"} for m in MODULES}
    configure("modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers)
    store("modelopt", mixed)
    status, text = audit("modelopt")
    equal(status, 0, f"MIXED_PRECISION {text}")
    put("scale", float32(math.nan))(mixed, {}, lambda part: KEYS[part][1])
    store("modelopt", mixed)
    status, text = audit("modelopt")
    check(status == 3 and "not above 0" in text, "MIXED_PRECISION: a scale of NaN", text)
    configure("modelopt", quant_algo="MIXED_PRECISION", quantized_layers={**layers, Q: {"quant_algo": "W4A16_AWQ"}})
    status, text = audit("modelopt")
    check(status == 2 and Q in text and "W4A16_AWQ" in text and "FP8_PB_WO" in text, "a layer that is not read", text)


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
