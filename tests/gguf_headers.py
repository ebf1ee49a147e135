# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Headers of GGUF files of known models, without their data. Names with a range stand for several: blk.0-31.attn_q."""
import os

import gguf_files
from gguf_files import F32, U32

WIDTH = {"F32": (0, 4), "F16": (1, 2)}


class Writer:
    """A writer of PyPI's gguf with keys, as a context."""

    def __init__(self, path, architecture, keys):
        import gguf
        self.writer = gguf.GGUFWriter(path, architecture)
        for name, value in keys.items():
            full = name if name.startswith("general.") else f"{architecture}.{name}"
            (self.writer.add_float32 if isinstance(value, float) else self.writer.add_uint32)(full, value)

    def __enter__(self):
        return self.writer

    def __exit__(self, kind, error, trace):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def expand(tensors):
    """name with its ending: shape, of all layers."""
    out = {}
    for name, shape in tensors.items():
        parts = name.split(".")
        first, _, last = (parts[1] if parts[0] == "blk" else "").partition("-")
        for layer in range(int(first or 0), int(last or first or 0) + 1):
            full = ".".join(["blk", str(layer), *parts[2:]]) if parts[0] == "blk" else name
            out[full + ".weight"] = shape
    return out


def ranges(numbers):
    """0-3,7"""
    out = []
    for n in sorted(numbers):
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def fold(types):
    """{kind of tensor: {type: layers}} of {name: type}."""
    out = {}
    for name, kind in types.items():
        parts = name.removesuffix(".weight").split(".")
        layers = out.setdefault(parts[-1], {}).setdefault(kind, [])
        if parts[0] == "blk":
            layers.append(int(parts[1]))
    return {part: {kind: ranges(layers) for kind, layers in of.items()} for part, of in out.items()}


def write(path, header):
    """Writes the header; the data is a hole."""
    architecture = header["architecture"]
    keys = [("general.architecture", gguf_files.STRING, architecture)]
    keys += [(f"{architecture}.{n}", F32 if isinstance(v, float) else U32, v) for n, v in header["keys"].items()]
    out = gguf_files.gguf(keys, {})[:24 + sum(len(gguf_files.key(*k)) for k in keys)]
    tensors, at = expand(header["tensors"]), 0
    infos = b""
    for name, shape in tensors.items():
        kind, size = WIDTH["F32" if len(shape) == 1 or "gate_inp" in name else "F16"]
        for n in shape:
            size *= n
        infos += gguf_files.tensor_info(name, kind, shape, at)
        at += size + -size % 32
    out = out[:8] + len(tensors).to_bytes(8, "little") + out[16:] + infos
    with open(path, "wb") as file:
        file.write(out)
    os.truncate(path, len(out) + -len(out) % 32 + at)


def dense(layers, columns, rows, heads, keys, head=128, experts=0, expert_rows=0, shared=0, first_dense=0, tied=False,
          vocabulary=1024, fused=False, gated=True, more=None):
    """Keys and tensors of a model of attention and matrices, dense or with experts."""
    every, later = f"blk.0-{layers - 1}.", f"blk.{first_dense}-{layers - 1}."
    found = {"block_count": layers, "context_length": 4096, "embedding_length": columns, "feed_forward_length": rows,
             "attention.head_count": heads, "attention.head_count_kv": keys, "attention.layer_norm_rms_epsilon": 1e-5,
             "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": head}
    tensors = {"token_embd": [vocabulary, columns], "output_norm": [columns], every + "attn_norm": [columns]}
    if not tied:
        tensors["output"] = [vocabulary, columns]
    if fused:
        tensors[every + "attn_qkv"] = [(heads + 2 * keys) * head, columns]
    else:
        tensors |= {every + "attn_q": [heads * head, columns], every + "attn_k": [keys * head, columns],
                    every + "attn_v": [keys * head, columns]}
    tensors[every + "attn_output"] = [columns, heads * head]
    if experts:
        found |= {"expert_count": experts, "expert_used_count": 2, "expert_feed_forward_length": expert_rows}
        tensors |= {later + "ffn_gate_inp": [experts, columns],
                    later + "ffn_gate_exps": [experts, expert_rows, columns],
                    later + "ffn_up_exps": [experts, expert_rows, columns],
                    later + "ffn_down_exps": [experts, columns, expert_rows]}
    if shared:
        tensors |= {later + "ffn_gate_shexp": [shared, columns], later + "ffn_up_shexp": [shared, columns],
                    later + "ffn_down_shexp": [columns, shared]}
    if first_dense or not experts:
        those = f"blk.0-{first_dense - 1}." if experts else every
        tensors |= {those + "ffn_gate": [rows, columns]} if gated and not fused else {}
        tensors |= {those + "ffn_up": [rows, columns], those + "ffn_down": [columns, rows]}
    return {"keys": {**found, **(more or {})}, "tensors": tensors}


def latent(header, heads, columns, layers, rank=512):
    """DeepSeek's attention in place of the usual one."""
    every = f"blk.0-{layers - 1}."
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        del header["tensors"][every + name]
    header["tensors"] |= {every + "attn_q": [heads * 192, columns], every + "attn_kv_a_mqa": [rank + 64, columns],
                          every + "attn_kv_a_norm": [rank], every + "attn_k_b": [heads, rank, 128],
                          every + "attn_v_b": [heads, 128, rank], every + "attn_output": [columns, heads * 128]}
    return header


DEEPSEEK = {"leading_dense_block_count": 1, "attention.kv_lora_rank": 512, "expert_shared_count": 2,
            "expert_weights_scale": 1.0,
            "attention.key_length": 576, "attention.value_length": 512, "attention.key_length_mla": 192,
            "attention.value_length_mla": 128, "rope.scaling.yarn_log_multiplier": 0.0707}
GEMMA = {"attention.sliding_window": 1024, "attention.key_length": 256, "attention.value_length": 256}

MODELS = {
    "Llama 2 7B": {"architecture": "llama", **dense(32, 4096, 11008, 32, 32)},
    "Llama 65B": {"architecture": "llama", **dense(80, 8192, 22016, 64, 64)},
    "Llama 3.1 70B": {"architecture": "llama", **dense(80, 8192, 28672, 64, 8)},
    "Llama 3.2 1B": {"architecture": "llama", **dense(16, 2048, 8192, 32, 8, head=64, tied=True)},
    "Mixtral 8x7B": {"architecture": "llama", **dense(32, 4096, 14336, 32, 8, experts=8, expert_rows=14336)},
    "Qwen2 72B": {"architecture": "qwen2", **dense(80, 8192, 29568, 64, 8)},
    "Qwen3 0.6B": {"architecture": "qwen3", **dense(28, 1024, 3072, 16, 8, tied=True)},
    "Qwen3 30B-A3B": {"architecture": "qwen3moe", **dense(48, 2048, 6144, 32, 4, experts=128, expert_rows=768)},
    "Qwen1.5 MoE": {"architecture": "qwen2moe",
                    **dense(24, 2048, 5632, 16, 16, experts=60, expert_rows=1408, shared=5632,
                                                        more={"expert_shared_feed_forward_length": 5632})},
    "Falcon 7B": {"architecture": "falcon", **dense(32, 4544, 18176, 71, 1, head=64, fused=True)},
    "Falcon 40B": {"architecture": "falcon", **dense(60, 8192, 32768, 128, 8, head=64, fused=True)},
    "Gemma 3 4B": {"architecture": "gemma3", **dense(34, 2560, 10240, 8, 4, head=256, tied=True, more=GEMMA)},
    "gpt-oss 20B": {"architecture": "gpt-oss", **dense(24, 2880, 2880, 64, 8, head=64, experts=32, expert_rows=2880,
                                                       more={"attention.sliding_window": 128})},
    "DeepSeek V2 Lite": {"architecture": "deepseek2", **latent(
        dense(27, 2048, 10944, 16, 1, head=64, experts=64, expert_rows=1408, shared=2816, first_dense=1, more=DEEPSEEK),
        16, 2048, 27)},
    "Phi-3 mini": {"architecture": "phi3", **dense(32, 3072, 8192, 32, 32, head=96, fused=True)},
    "Jais 2 70B": {"architecture": "jais2", **dense(68, 8192, 26624, 64, 64, gated=False)},
    "StarCoder2 3B": {"architecture": "starcoder2", **dense(30, 3072, 12288, 24, 2, gated=False)},
}
