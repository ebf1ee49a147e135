#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Audits twelve checkpoints that oneshot of llm-compressor writes: qobs audit finds nothing in them.

    live_audit.py QOBS [DIRECTORY]

Needs llmcompressor 0.14.0 and torch. The models are small and have random weights. With DIRECTORY the checkpoints stay
there. An audit against the original must find plausible errors, and a fault that is put into each checkpoint. Ends with
`N passed, N failed`.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1")
import cli
import torch
import transformers as T
from cli import check
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

COMMON = {"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 256, "num_attention_heads": 4,
          "num_key_value_heads": 2,
          "max_position_embeddings": 64}
MODELS = {"llama": lambda: T.LlamaConfig(**COMMON, intermediate_size=512),
          "tied": lambda: T.Qwen3Config(**COMMON, intermediate_size=512, head_dim=64, tie_word_embeddings=True),
          "moe": lambda: T.Qwen3MoeConfig(**COMMON, moe_intermediate_size=128, num_experts=4, num_experts_per_tok=2,
                                          head_dim=64)}
CACHE = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
INT8, GROUPS = ({"num_bits": bits, "type": "int", "symmetric": True, **more}
                for bits, more in ((8, {"strategy": "channel"}), (4, {"strategy": "group", "group_size": 128})))
MIXED = {"attention": {"targets": ["re:.*self_attn.*"], "weights": INT8,
                       "input_activations": {**INT8, "strategy": "token", "dynamic": True}},
         "mlp": {"targets": ["re:.*mlp.*"], "weights": GROUPS}}
# Name: the model, the modifier, its options, the largest error of a layer.
CHECKPOINTS = {
    "GPTQ": ("llama", GPTQModifier, {"scheme": "W4A16"}, 0.3),
    "GPTQ, actorder": ("llama", GPTQModifier, {"scheme": "W4A16", "actorder": "weight"}, 0.3),
    "W8A8": ("llama", QuantizationModifier, {"scheme": "W8A8"}, 0.02),
    "FP8": ("llama", QuantizationModifier, {"scheme": "FP8"}, 0.04),
    "FP8, cache": ("llama", QuantizationModifier, {"scheme": "FP8", "kv_cache_scheme": CACHE}, 0.04),
    "NVFP4": ("llama", QuantizationModifier, {"scheme": "NVFP4"}, 0.15),
    "MXFP4": ("llama", QuantizationModifier, {"scheme": "MXFP4"}, 0.15),
    "head": ("llama", QuantizationModifier, {"scheme": "W4A16", "ignore": []}, 0.15),
    "mixed": ("llama", QuantizationModifier, {"config_groups": MIXED}, 0.15),
    "tied": ("tied", QuantizationModifier, {"scheme": "W4A16"}, 0.15),
    "MoE, W4A16": ("moe", QuantizationModifier, {"scheme": "W4A16", "ignore": ["lm_head", "re:.*mlp.gate$"]}, 0.15),
    "MoE, NVFP4A16": ("moe", QuantizationModifier, {"scheme": "NVFP4A16", "ignore": ["lm_head", "re:.*mlp.gate$"]},
                      0.15)}


def audit(qobs, path, *options):
    run = subprocess.run([qobs, "audit", path, "--json", *options], capture_output=True, text=True, check=False)
    return run.returncode, json.loads(run.stdout) if run.stdout else run.stderr


def damage(path):
    """Makes the last scale of a weight NaN."""
    tensors = load_file(f"{path}/model.safetensors")
    name = max(n for n in tensors if n.endswith("weight_scale"))
    tensors[name].view(-1).view(torch.uint8)[-tensors[name].element_size():] = 0xFF
    save_file(tensors, f"{path}/model.safetensors", {"format": "pt"})


def main(qobs, directory):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    samples = torch.randint(0, 256, (8, 32)).tolist()
    dataset = Dataset.from_dict({"input_ids": samples, "attention_mask": [[1] * 32] * 8})
    tokenizer = T.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?")), unk_token="?", pad_token="a")
    for name, config in MODELS.items():
        T.AutoModelForCausalLM.from_config(config()).to(torch.bfloat16).save_pretrained(f"{directory}/{name}")
    for name, (model, modifier, options, limit) in CHECKPOINTS.items():
        out = f"{directory}/oneshot-{re.sub('[^A-Za-z0-9]+', '-', name)}"
        shutil.rmtree(out, ignore_errors=True)
        oneshot(model=T.AutoModelForCausalLM.from_pretrained(f"{directory}/{model}", dtype=torch.bfloat16),
                processor=tokenizer,
                dataset=dataset, recipe=modifier(**{"targets": "Linear", "ignore": ["lm_head"], **options}),
                num_calibration_samples=len(samples), max_seq_length=32, output_dir=out)
        status, report = audit(qobs, out, "--against", f"{directory}/{model}")
        check(status == 0, f"{name}: nothing is found", report)
        errors = [layer["relative_error"] for layer in report["layers"]]
        check(errors and max(errors) < limit, f"{name}: the errors of its layers", errors)
        shutil.copytree(out, f"{out}-damaged")
        damage(f"{out}-damaged")
        status, report = audit(qobs, f"{out}-damaged")
        check(status == 3 and "scales are not" in str(report), f"{name}: a scale of NaN", report)
        shutil.rmtree(f"{out}-damaged")
    return cli.end()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else scratch))
