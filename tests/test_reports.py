#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Inputs of public bug reports: the output is right, or the input is refused with its name. A small model each.

    test_reports.py QOBS
"""
import json
import math
import os
import random
import re
import shutil
import struct
import sys

import cli
from cli import check, equal, read, write

Q, D = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"


def numbers(*shape, spread=0.05):
    count = math.prod(shape)
    source = random.Random(count)
    few = cli.pack("BF16", [source.gauss(0, spread) for _ in range(251)])
    return "BF16", list(shape), (few * (count // 251 + 1))[:2 * count]


class Output:
    """What qobs quantize makes of a model of these tensors."""

    def __init__(self, tensors, config, *options, scheme="FP8_DYNAMIC", metadata=None, index=None, files=None):
        for directory in ("in", "out"):
            shutil.rmtree(directory, ignore_errors=True)
        os.makedirs("in")
        for path, content in (files or {"model.safetensors": tensors}).items():
            os.makedirs(os.path.dirname(f"in/{path}"), exist_ok=True)
            write(f"in/{path}", cli.st_bytes(content, metadata))
        write("in/config.json", config if isinstance(config, bytes) else json.dumps(config).encode())
        if index:
            write("in/model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": index}).encode())
        chosen = ["--scheme", scheme] if scheme else []
        self.run = cli.run("quantize", "in", *chosen, "-o", "out", "--threads", "1", *options)
        self.written = os.path.isdir("out")
        self.tensors, self.metadata = {}, None
        for folder, _, names in os.walk("out"):
            for name in names:
                if name.endswith(".safetensors"):
                    data = read(os.path.join(folder, name))
                    (length,) = struct.unpack("<Q", data[:8])
                    header = json.loads(data[8:8 + length])
                    self.metadata = header.pop("__metadata__", None)
                    self.tensors |= {k: (v["dtype"], v["shape"], data[8 + length:][slice(*v["data_offsets"])])
                                     for k, v in header.items()}
        self.config = json.loads(read("out/config.json")) if self.written else {}

    def quantized(self, module):
        return any(f"{module}.{part}" in self.tensors for part in ("weight_packed", "weight_scale"))

    def ignored(self, module):
        return any(re.match(e[3:], module) if e.startswith("re:") else e == module
                   for e in self.config.get("quantization_config", {}).get("ignore", []))

    def left(self, module):
        """It is as it was, and loaders know it."""
        return self.written and not self.quantized(module) and self.ignored(module)


def test_tied_heads():
    """llm-compressor 2798 and 2835, vLLM 45535: the head is not in the file."""
    nested = {"model_type": "gemma3", "text_config": {"hidden_size": 128, "tie_word_embeddings": True}}
    plain = {"model_type": "llama", "hidden_size": 128, "tie_word_embeddings": True}
    for prefix, config in (("model.", plain), ("language_model.model.", nested)):
        tensors = {f"{prefix}layers.0.self_attn.q_proj.weight": numbers(128, 128),
                   f"{prefix}embed_tokens.weight": numbers(64, 128)}
        for scheme in ("FP8_DYNAMIC", "W4A16", "W8A8", "NVFP4A16"):
            out = Output(tensors, config, scheme=scheme)
            check(out.ignored("lm_head"), f"tied head of {config['model_type']}, {scheme}", out.run.stderr)


# Modules that stay as they are are in `ignore`: vLLM 37291, sglang 35358, vLLM 21608, llm-compressor 3093 and 2816.
LEFT = [("gpt_neox", "embed_out"), ("chatglm", "transformer.output_layer"), ("whisper", "proj_out"),
        ("bert", "cls.predictions.decoder"), ("deepseek_v3", "model.layers.61.shared_head.head"),
        ("deepseek_v4", "head"),
        ("internvl_chat", "language_model.output"), ("llada", "model.transformer.ff_out"), ("internlm2", "output"),
        ("llama", "lm_head"), ("llava", "language_model.lm_head"),
        ("granitemoe", "model.layers.0.block_sparse_moe.router.layer"), ("jetmoe", "model.layers.0.mlp.router.layer"),
        ("gemma4", "model.language_model.layers.0.router.proj"), ("dbrx", "transformer.blocks.0.ffn.router.layer"),
        ("qwen3_moe", "model.layers.0.mlp.gate"), ("llama4", "model.layers.0.feed_forward.router")]
# Tables: vllm-omni 7825, transformers 48154.
TABLES = [("t5", "shared"), ("umt5", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"),
          ("bart", "model.shared"), ("rwkv", "rwkv.emb"), ("ctrl", "transformer.w"), ("llama", "model.embed_tokens"),
          ("gpt2", "transformer.wte")]
# Linear layers that are quantized or ignored.
EMBED = [("albert", "albert.encoder.embedding_hidden_mapping_in"), ("electra", "electra.embeddings_project"),
         ("gemma3n", "model.embed_vision.embedding_projection"), ("flux", "context_embedder")]


def test_kinds():
    for kind, name in LEFT + TABLES + EMBED:
        out = Output({name + ".weight": numbers(256, 128), D + ".weight": numbers(128, 128)},
                     {"model_type": kind, "hidden_size": 128})
        good = out.left(name) if (kind, name) in LEFT else not out.quantized(name) if (kind, name) in TABLES else \
            out.quantized(name) or out.ignored(name)
        check(out.written and good and out.quantized(D), f"{kind}: {name}", out.run.stderr)


def test_conv1d():
    """AutoGPTQ 95, GPTQModel 912: Conv1D stores [in, out]."""
    for kind in ("gpt2", "imagegpt"):
        names = {"transformer.h.0.attn.c_attn": (64, 192), "transformer.h.0.mlp.c_proj": (256, 64)}
        out = Output({n + ".weight": numbers(*s) for n, s in names.items()}, {"model_type": kind, "n_embd": 64})
        for name, shape in names.items():
            scale = out.tensors.get(name + ".weight_scale")
            check(not out.written or out.left(name) or (scale and scale[1][0] == shape[1]), f"{kind}: {name}",
                  out.run.stderr)


def test_experts():
    """sglang 37679, llm-compressor 3086, Model-Optimizer 1063: a layer of experts is converted whole, or left."""
    layer = "model.layers.0."
    kinds = {"granitemoe": {f"{layer}block_sparse_moe.input_linear.weight": (4, 256, 128),
                            f"{layer}block_sparse_moe.output_linear.weight": (4, 128, 128)},
             "w13": {f"{layer}mlp.experts.w13_weight": (4, 256, 128), f"{layer}mlp.experts.w2_weight": (4, 128, 128)},
             "step3p5": {f"{layer}moe.{n}_proj.weight": (4, 256, 128) for n in ("gate", "up")}
             | {f"{layer}moe.down_proj.weight": (4, 128, 256)},
             "afmoe": {f"{layer}mlp.experts.{n}_proj": (4, 256, 128) for n in ("gate", "up")}
             | {f"{layer}mlp.experts.down_proj": (4, 128, 256)}}
    for kind, experts in kinds.items():
        out = Output({n: numbers(*s) for n, s in experts.items()} | {Q + ".weight": numbers(128, 128)},
                     {"model_type": kind, "hidden_size": 128, "num_experts": 4})
        kept = [n for n in experts if n in out.tensors]
        check(len(kept) in (0, len(experts)), f"{kind}: whole or not at all", f"{kept} {out.run.stderr}")
        equal(cli.run("audit", "out").returncode if out.written else 0, 0, f"{kind}: the audit finds nothing")


def test_fused_sets():
    """auto-round 2379, vLLM 40252: layers that run as one matrix have one global scale."""
    sets = {"llama": (Q[:-6], "q_proj", "k_proj", "v_proj"), "lfm2": ("model.layers.0.feed_forward.", "w1", "w3"),
            "qwen3_5": ("model.layers.0.linear_attn.", "in_proj_qkv", "in_proj_z"),
            "qwen3_next": ("model.layers.0.linear_attn.", "in_proj_b", "in_proj_a"),
            "exaone": ("transformer.h.0.mlp.", "c_fc_0", "c_fc_1"), "qwen": ("transformer.h.0.mlp.", "w2", "w1"),
            "mistral": ("layers.0.attention.", "wq", "wk", "wv"),
            "bert": ("encoder.layer.0.attention.self.", "query", "key", "value"),
            "wan": ("blocks.0.attn1.", "to_q", "to_k", "to_v")}
    for kind, (prefix, *names) in sets.items():
        out = Output({f"{prefix}{n}.weight": numbers(64, 64, spread=0.02 * 5 ** i) for i, n in enumerate(names)},
                     {"model_type": kind, "hidden_size": 64}, scheme="NVFP4A16")
        scales = {out.tensors[f"{prefix}{n}.weight_global_scale"][2] for n in names} if out.written else out.run.stderr
        check(len(scales) == 1, f"{kind}: {names}", str(scales))


GROUP = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                                            "group_size": 32, "dynamic": False}}


def test_quantized_sources():
    """NeMo Automodel 3633, llm-compressor 2228, imp 1450: what is quantized already is refused, converted or
    ignored."""
    old = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": [D],
           "config_groups": {"g": GROUP}}
    packed = {Q + ".weight_packed": ("I32", [128, 16], bytes(8192)), Q + ".weight_scale": numbers(128, 4),
              Q + ".weight_shape": ("I64", [2], struct.pack("<qq", 128, 128)), D + ".weight": numbers(128, 128)}
    for key in ("text_config", "llm_config", "language_config"):
        out = Output(packed, {"model_type": "kimi_k25", key: {"model_type": "kimi_k2", "quantization_config": old}})
        check(not out.written or Q + ".weight_packed" not in out.tensors, f"quantization_config in {key}",
              out.run.stderr)
    fp8 = {Q + ".weight": ("F8_E4M3", [128, 128], b"\x38" * 16384),
           Q + ".weight_scale": ("F32", [], struct.pack("<f", 0.01)),
           D + ".weight": numbers(128, 128)}
    double = {Q + ".weight": ("F64", [16, 128], struct.pack("<2048d", *range(2048))), D + ".weight": numbers(128, 128)}
    for what, tensors, quantization in (("fp8", fp8, {"quant_method": "fp8", "activation_scheme": "static"}),
                                        ("FP8 without a configuration", fp8, None), ("F64", double, None),
                                        ("modelopt", fp8, {"quant_method": "modelopt", "quant_algo": "FP8"})):
        out = Output(tensors,
                     {"model_type": "llama", **({"quantization_config": quantization} if quantization else {})},
                     scheme="W4A16")
        check(not out.written or Q + ".weight_packed" in out.tensors or out.ignored(Q), what, out.run.stderr)
    for method in ("gptq", "awq", "bitsandbytes", "quark", "torchao", "hqq"):
        out = Output({Q + ".qweight": ("I32", [16, 128], bytes(8192)), D + ".weight": numbers(128, 128)},
                     {"model_type": "llama", "quantization_config": {"quant_method": method, "bits": 4}})
        check(out.run.returncode == 2 and method in out.run.stderr.lower(), f"{method} is refused by name",
              out.run.stderr)
    mtp = "mtp.layers.0.self_attn.q_proj"
    block = {n + ".weight": ("F8_E4M3", [128, 128], b"\x38" * 16384) for n in (Q, mtp)} | \
            {n + ".weight_scale_inv": ("F32", [1, 1], struct.pack("<f", 0.25)) for n in (Q, mtp)}
    out = Output(block, {"model_type": "deepseek_v3", "quantization_config": {
        "quant_method": "fp8", "weight_block_size": [128, 128]}}, "--ignore", "re:mtp.*", scheme="W4A16")
    equal(out.tensors.get(mtp + ".weight"), ("BF16", [128, 128], struct.pack("<H", 0x3E80) * 16384),
          "an ignored weight of block FP8 keeps its numbers")
    check(out.ignored(mtp), "an ignored weight of block FP8 is in ignore")


def test_files():
    """Model-Optimizer 2427, vLLM 34930, CoSER 3: what the index omits, folders, files that are not there."""
    model = {Q + ".weight": numbers(128, 128), "model.norm.weight": numbers(128), "mtp.fc.weight": numbers(128, 128)}
    config = {"model_type": "llama"}
    out = Output(model, config, index={Q + ".weight": "model.safetensors"})
    check("model.norm.weight" in out.tensors and any(n.startswith("mtp.fc.") for n in out.tensors),
          "tensors that the index omits are copied", out.run.stderr)
    out = Output(None, config, files={"weights/a.safetensors": {Q + ".weight": numbers(128, 128)},
                                      "weights/b.safetensors": {D + ".weight": numbers(128, 128)}},
                 index={Q + ".weight": "weights/a.safetensors", D + ".weight": "weights/b.safetensors"})
    index = json.loads(read("out/model.safetensors.index.json"))["weight_map"] if out.written else {}
    check(index and all(os.path.exists(f"out/{f}") for f in index.values()), "shards in a folder", str(index))
    for index, word in (({Q + ".weight": "model.safetensors", "x": "model-2.safetensors"}, "model-2.safetensors"),
                        ({Q + ".weight": "model.safetensors", "gone.weight": "model.safetensors"}, "gone.weight")):
        out = Output(model, config, index=index)
        check(out.run.returncode == 2 and word in out.run.stderr, f"the index names {word}", out.run.stderr)
    out = Output(model, config, metadata={"format": "pt"})
    equal(out.metadata, {"format": "pt"}, "metadata that transformers 4.47 needs (transformers 36385)")


def test_copied():
    """safetensors 660, dynamo 3043: dtypes and numbers that are only copied."""
    sizes = {"C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F8_E8M0": 8,
             "BOOL": 8,
             "U16": 16, "U64": 64, "F64": 64}
    for dtype, bits in sizes.items():
        buffer = (dtype, [16], bytes(range(2 * bits)))
        out = Output({Q + ".weight": numbers(128, 128), "model.buffer": buffer}, {"model_type": "llama"})
        equal(out.tensors.get("model.buffer"), buffer, f"a buffer of {dtype} is copied {out.run.stderr}")
    for number in (b"Infinity", b"-Infinity", b"NaN"):
        out = Output({Q + ".weight": numbers(128, 128)}, b'{"model_type": "llama", "limit": [0.0, ' + number + b']}')
        check(out.written and number in read("out/config.json"), f"{number.decode()} in config.json", out.run.stderr)


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
