#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares the static schemes of qobs quantize with oneshot of llm-compressor on a running model.

    live_static.py QOBS MODEL

Needs llmcompressor and torch. MODEL is a directory that transformers loads. oneshot calibrates the model on four
samples, and the inputs of its layers are recorded at the same time. With keys and values the same samples run through
the unquantized model, whose activations are recorded. qobs quantize gets the recordings as files, then as saved states
of two directories. Every tensor and the configuration must be the same; for that, the layers of a fused set in FP8 get
the largest of the scales that oneshot gives each. Then transformers loads outputs of qobs quantize and computes logits;
it loads the experts that the report says it loads. A case that the installed release of upstream cannot do, with its
own files neither, is left out and named. Ends with `N passed, N failed`.
"""
import json
import os
import subprocess
import sys
import tempfile

import cli
import torch
import transformers
from cli import check
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import quantize
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import (AttentionInterface, AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

SAMPLES = 4
KV_CACHE = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True,
            "observer": "static_minmax"}
SCHEMES = [("FP8", KV_CACHE), ("FP8", None), ("NVFP4", None), ("NVFP4", KV_CACHE), ("W8A8_STATIC", None),
           ("W8A8_STATIC_ASYM", None)]
E4M3 = "type=float num_bits=8 strategy=tensor"
INPUTS = {"FP8": E4M3,
          "NVFP4": "type=float num_bits=4 strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn dynamic=local",
          "W8A8_STATIC": "type=int num_bits=8 strategy=tensor",
          "W8A8_STATIC_ASYM": "type=int num_bits=8 strategy=tensor symmetric=false"}
# llm-compressor has no names for static int8.
GROUPS = {f"W8A8_STATIC{name}": {"group_0": {
    "targets": ["Linear"],
    "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False},
    "input_activations": {"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": not name, "dynamic": False,
                          "observer": "static_minmax"}}} for name in ("", "_ASYM")}
# Largest relative errors of logits; about twice those of tinylm. A scale or a layout that is read wrongly gives more
# than 1.
LIMITS = {"W4A16": 0.15, "W4A16_ASYM": 0.15, "W8A8": 0.04, "W8A8_STATIC": 0.1,
          "W8A8_STATIC_ASYM": 0.07, "FP8_DYNAMIC": 0.06, "FP8": 0.1, "NVFP4A16": 0.15, "NVFP4": 0.2,
          "MXFP4A16": 0.15}
# transformers 5.24 wants zero points that are not packed, with compressed-tensors 0.19 and 0.20; oneshot's own file is
# refused, too.
NOT_LOADED = {"W4A16_ASYM"} if transformers.__version__.startswith("5.24") else set()


def load(model):
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)


def watch(network):
    """Returns a list that gets the inputs of the layers of each run of the network."""
    batches = []
    network.register_forward_pre_hook(lambda *_: batches.append({}))
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.register_forward_pre_hook(
                lambda _, inputs, key=f"{name}.input": batches[-1].update({key: inputs[0].contiguous().clone()}))
    return batches


def save(batches, folder):
    """Writes one file of activations for each batch and returns the paths."""
    paths = [f"{folder}/activations-{i}.safetensors" for i in range(len(batches))]
    for path, batch in zip(paths, batches):
        save_file(batch, path)
    return paths


def record(model, samples):
    """Returns the activations of each sample."""
    network = load(model)
    names, batches = {module: name for name, module in network.named_modules()}, watch(network)

    def attention(module, query, key, value, *args, **kwargs):
        name = names[module]
        batches[-1].update({f"{name}.k_states": key.contiguous(), f"{name}.v_states": value.contiguous()})
        return sdpa_attention_forward(module, query, key, value, *args, **kwargs)

    AttentionInterface.register("recording", attention)
    AttentionMaskInterface.register("recording", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    network.set_attn_implementation("recording")
    with torch.no_grad():
        for sample in samples:
            network(torch.tensor([sample]))
    return batches


def save_states(qobs, paths, settings, folder):
    """Observes the recordings of every name; half of the files go to each of two directories, as of two machines."""
    directories = [f"{folder}/rank-{i}" for i in range(2)]
    with safe_open(paths[0], "pt") as file:
        names = list(file.keys())
    for i, directory in enumerate(directories):
        os.mkdir(directory)
        for k, name in enumerate(names):
            base = name.rsplit(".", 1)[1].removesuffix("_states")
            words = [f"base_name={base}", *(settings if base == "input" else E4M3).split()]
            state = f"{directory}/{k}.qobs" if i == 0 else f"{directory}/{name}.qobs"
            subprocess.run([qobs, "observe", "--preset", "llmc.static_minmax",
                            *(a for w in words for a in ("--set", w)),
                            "--state", state, *(f"{path}:{name}" for path in paths[2 * i:2 * i + 2])],
                           check=True, stdout=subprocess.DEVNULL)
    with open(f"{directories[0]}/states.json", "w", encoding="utf-8") as file:
        json.dump({"states": {name: f"{k}.qobs" for k, name in enumerate(names)}}, file)
    return directories


def share_scales(model, tensors):
    """Quantizes the fused sets of an FP8 output of oneshot again, with one scale: the largest."""
    weights = load_file(f"{model}/model.safetensors")
    args = QuantizationArgs(num_bits=8, type="float", strategy="tensor")
    for first in [n for n in tensors if n.endswith((".q_proj.weight_scale", ".gate_proj.weight_scale"))]:
        base, name = first.removesuffix(".weight_scale").rsplit(".", 1)
        members = [f"{base}.{m}"
                   for m in (("q_proj", "k_proj", "v_proj") if name == "q_proj" else ("gate_proj", "up_proj"))]
        scale = torch.stack([tensors[m + ".weight_scale"] for m in members]).max(0).values
        for m in members:
            weight = weights[m + ".weight"].to(torch.bfloat16)
            tensors[m + ".weight_scale"] = scale
            tensors[m + ".weight"] = quantize(weight, scale, torch.zeros_like(scale), args, dtype=torch.float8_e4m3fn)


def completed(args):
    """The members as compressed-tensors reads them: 0.20 writes neither nulls nor the zp_dtype that it infers."""
    return args and vars(QuantizationArgs(**args))


def keeps_keys(folder):
    """llm-compressor 0.14.1a20261020 drops kv_cache_scheme without a word."""
    with safe_open(f"{folder}/model.safetensors", "pt") as file:
        return any(name.endswith(".k_scale") for name in file.keys())


def compare(what, ours, theirs, model=None):
    a, b = load_file(f"{ours}/model.safetensors"), load_file(f"{theirs}/model.safetensors")
    if model:
        share_scales(model, b)
    check(a.keys() == b.keys(), f"{what}: names", a.keys() ^ b.keys())
    for name in a.keys() & b.keys():
        x, y = a[name], b[name]
        same = x.dtype == y.dtype and x.shape == y.shape and torch.equal(x.view(torch.uint8), y.view(torch.uint8))
        check(same, f"{what}: {name}", f"{x.dtype} {tuple(x.shape)} {x.flatten()[:3]}, {y.dtype} {y.flatten()[:3]}")
    configs = []
    for folder in (ours, theirs):
        with open(f"{folder}/config.json", encoding="utf-8") as file:
            config = json.load(file)["quantization_config"]
        (group,) = config["config_groups"].values()
        configs.append([completed(group["input_activations"]), group["format"], config["format"],
                        completed(config["kv_cache_scheme"])])
    check(configs[0] == configs[1], f"{what}: config.json", configs)


def load_outputs(qobs, model, activations, folder):
    """transformers loads the output of every format and computes nearly what it computes from the model."""
    tokens = torch.arange(40)[None] % 256
    with torch.no_grad():
        wanted = load(model)(tokens).logits.double()
    for scheme, limit in LIMITS.items():
        options = ["--activations", activations] if scheme in INPUTS else []
        out = f"{folder}/load-{scheme}"
        subprocess.run([qobs, "quantize", model, "--scheme", scheme, "--quiet", *options, "-o", out], check=True)
        try:
            with torch.no_grad():
                found = load(out)(tokens).logits.double()
        except RuntimeError as reason:
            check(scheme in NOT_LOADED, f"{scheme}: transformers loads it", reason)
            continue
        check(scheme not in NOT_LOADED, f"{scheme}: transformers does not load it", "it did")
        error = ((found - wanted).norm() / wanted.norm()).item()
        check(error < limit, f"{scheme}: logits of transformers", f"relative error {error}")


def load_experts(qobs, folder):
    """transformers loads quantized experts, and those that stay as they are, if the report says so."""
    model = f"{folder}/moe"
    Qwen3MoeForCausalLM(Qwen3MoeConfig(
        hidden_size=256, moe_intermediate_size=256, num_experts=4, num_hidden_layers=1, vocab_size=64,
        num_attention_heads=2,
        num_key_value_heads=2, head_dim=64)).to(torch.bfloat16).save_pretrained(model)
    wanted = {n: p for n, p in load(model).named_parameters() if "experts" in n}
    for scheme in ("W4A16", "W4A16_ASYM", "W3A16", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4", "MXFP8A16"):
        for what, options in (("quantized", []), ("left", ["--ignore", "re:.*experts.*"])):
            out = f"{folder}/moe-{scheme}-{what}"
            subprocess.run([qobs, "quantize", model, "--scheme", scheme, "--quiet", *options, "-o", out, "--json",
                            f"{folder}/report"],
                           check=True, stderr=subprocess.DEVNULL)
            with open(f"{folder}/report", encoding="utf-8") as file:
                report = json.load(file)
            said = all(r["transformers"] for r in report["runtimes"]) and not any("random" in w
                                                                                  for w in report["warnings"])
            try:
                network, info = AutoModelForCausalLM.from_pretrained(out, dtype=torch.bfloat16,
                                                                     output_loading_info=True)
                found = dict(network.named_parameters())
                errors = [((found[n] - p).norm() / p.norm()).item() for n, p in wanted.items()]
                loads = not info["missing_keys"] and max(errors) < 0.5
            except (RuntimeError, KeyError) as error:  # of its conversion
                loads, errors = False, error
            check(loads == said, f"{scheme}: experts that are {what}", f"loads: {loads}, said: {said}; {errors}")


def main(qobs, model):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    samples = torch.randint(0, 256, (SAMPLES, 24)).tolist()
    dataset = Dataset.from_dict({"input_ids": samples, "attention_mask": [[1] * 24] * SAMPLES})
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?")), unk_token="?", pad_token="a")
    with tempfile.TemporaryDirectory() as scratch:
        for i, (scheme, kv_cache) in enumerate(SCHEMES):
            what, folder = f"{scheme}{' and keys' if kv_cache else ''}", f"{scratch}/{i}"
            os.mkdir(folder)
            numbers = {"config_groups": GROUPS[scheme]} if scheme in GROUPS else {"targets": "Linear", "scheme": scheme}
            recipe = QuantizationModifier(ignore=["lm_head"], kv_cache_scheme=kv_cache, **numbers)
            network = load(model)
            batches = watch(network)
            oneshot(model=network, processor=tokenizer, dataset=dataset, recipe=recipe, pipeline="basic",
                    num_calibration_samples=SAMPLES, max_seq_length=24, output_dir=f"{folder}/theirs")
            if kv_cache and not keeps_keys(f"{folder}/theirs"):
                print(f"left out: {what}: this llm-compressor stores no scales of keys and values")
                continue
            check(len(batches) == SAMPLES, f"{what}: a run for each sample", len(batches))
            given = save(record(model, samples) if kv_cache else batches, folder)
            sources = {"files": [a for path in given for a in ("--activations", path)],
                       "states": [a for d in save_states(qobs, given, INPUTS[scheme], folder) for a in ("--states", d)]}
            for source, options in sources.items():
                subprocess.run([qobs, "quantize", model, "--scheme", scheme, "--ignore", "lm_head", "--quiet", *options,
                                "-o", f"{folder}/{source}"], check=True)
                compare(f"{what} from {source}", f"{folder}/{source}", f"{folder}/theirs",
                        model if scheme == "FP8" else None)
                audit = subprocess.run([qobs, "audit", f"{folder}/{source}"], capture_output=True, text=True,
                                       check=False)
                check(audit.returncode == 0, f"{what} from {source}: audit", audit.stdout + audit.stderr)
        load_outputs(qobs, model, f"{model}/activations.safetensors", scratch)
        load_experts(qobs, scratch)
    return cli.end()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
