#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""A model in each dialect in vLLM on the CPU: the log probabilities are those of compressed-tensors, bit for bit.

    clients_dialects.py QOBS

Python is that of vLLM. A small Llama is quantized to W4A16, W4A16_ASYM and FP8_BLOCK, once plainly and once from the
output of the first, by convert. vLLM's own loaders and kernels run it. Ends with `N passed, N failed`.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file

import cli

H, I, V = 256, 512, 128
VLLM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients_vllm.py")


def make(path):
    generator = torch.Generator().manual_seed(56)
    matrix = lambda *shape: (torch.randn(shape, generator=generator) / shape[-1] ** 0.5).bfloat16()
    tensors = {"model.embed_tokens.weight": matrix(V, H), "lm_head.weight": matrix(V, H),
               "model.norm.weight": torch.ones(H, dtype=torch.bfloat16)}
    for layer in ("model.layers.0.", "model.layers.1."):
        for m in "qkvo":
            tensors[f"{layer}self_attn.{m}_proj.weight"] = matrix(H, H)
        tensors |= {f"{layer}mlp.gate_proj.weight": matrix(I, H), f"{layer}mlp.up_proj.weight": matrix(I, H),
                    f"{layer}mlp.down_proj.weight": matrix(H, I)}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}{norm}.weight"] = torch.ones(H, dtype=torch.bfloat16)
    os.mkdir(path)
    save_file(tensors, f"{path}/model.safetensors", {"format": "pt"})
    with open(f"{path}/config.json", "w", encoding="utf-8") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H,
                   "intermediate_size": I, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
                   "vocab_size": V, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16",
                   "tie_word_embeddings": False}, file)


def main():
    make("model")
    np.save("tokens.npy", np.random.default_rng(56).integers(0, V, (3, 40)))
    found = {}
    for scheme, dialects in (("W4A16", ("awq", "gptq", "gptq-v2")), ("W4A16_ASYM", ("awq",)), ("FP8_BLOCK", ("fp8",))):
        base = f"ct-{scheme}"
        cli.equal(cli.run("quantize", "model", "--scheme", scheme, "-o", base).returncode, 0, base)
        found[base] = None
        for dialect in dialects:
            for path, command in ((f"{dialect}-{scheme}", ("quantize", "model", "--scheme", scheme)),
                                  (f"{dialect}-{scheme}-converted", ("convert", base))):
                p = cli.run(*command, "--dialect", dialect, "-o", path)
                cli.equal(p.returncode, 0, f"{path}: {p.stderr}")
                found[path] = base
    # vLLM as it is. With AMX it rounds the inputs to int8, in all of them alike.
    subprocess.run([sys.executable, "-B", VLLM, "--device", "amx", "tokens.npy", *found], check=True)
    for path, base in found.items():
        loads = "FP8_BLOCK" not in path or torch.cpu._is_amx_tile_supported()  # as runtimes.c says
        cli.equal(os.path.exists(f"{path}.vllm.npy"), loads, f"{path}: vLLM loads it")
        if not loads:
            print(f"left out: {path}: its numbers; vLLM has kernels for it on CPUs with AMX alone")
        if base and os.path.exists(f"{path}.vllm.npy") and os.path.exists(f"{base}.vllm.npy"):
            want, have = np.load(f"{base}.vllm.npy"), np.load(f"{path}.vllm.npy")
            cli.check(want.std() > 0 and np.isfinite(want).all(), f"{base}: numbers")
            cli.check(np.array_equal(want, have), f"{path}: the numbers of {base}", str(np.abs(want - have).max()))
    print(f"{cli.passed} passed, {cli.failed} failed")
    return cli.failed > 0 or cli.passed == 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=cli.scratch()) as scratch:
        os.chdir(scratch)
        sys.exit(main())
