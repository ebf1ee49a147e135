#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Times oneshot of llm-compressor with GPTQModifier, without and with libqobs.llmcompressor, in turns, each run in a
process of its own. The model is a Llama of 4 layers and hidden size 1024 in bf16 with random weights, the scheme W4A16.

    beside_oneshot.py [--turns N] [--threads N] [--tokens N]

Needs qobs, llmcompressor 0.14 and transformers. Each process runs oneshot once before it measures. A run ends when the
checkpoint is saved; all files have to be equal.
"""

import argparse
import hashlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def measure(with_qobs, threads, length):
    """Seconds, and a hash of the saved tensors."""
    import torch
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16,
                         num_key_value_heads=4, vocab_size=1024, max_position_embeddings=length)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained("model")
    tokens = torch.randint(0, 1024, (1, length), generator=torch.Generator().manual_seed(1)).tolist()
    words = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", pad_token="a")
    if with_qobs:
        import libqobs.llmcompressor
        libqobs.llmcompressor.install(strict=True)
    for _ in range(2):
        model = LlamaForCausalLM.from_pretrained("model", dtype=torch.bfloat16)
        data = Dataset.from_dict({"input_ids": tokens, "attention_mask": [[1] * length]})
        recipe = GPTQModifier(targets="Linear", ignore=["lm_head"], scheme="W4A16")
        begin = time.perf_counter()
        oneshot(model=model, processor=tokenizer, dataset=data, recipe=recipe, pipeline="sequential",
                num_calibration_samples=1, max_seq_length=length, output_dir="out")
        seconds = time.perf_counter() - begin
    return seconds, hashlib.sha256(pathlib.Path("out/model.safetensors").read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--run", choices=["without", "with"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print("seconds and hash:", *measure(arguments.run == "with", arguments.threads, arguments.tokens))
        return
    seconds, hashes = {"without": [], "with": []}, set()
    for _ in range(arguments.turns):
        for kind, found in seconds.items():
            with tempfile.TemporaryDirectory() as folder:
                run = subprocess.run([sys.executable, os.path.abspath(__file__), "--run", kind, "--threads",
                                      str(arguments.threads), "--tokens", str(arguments.tokens)], cwd=folder,
                                     check=True,
                                     env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, text=True)
            line = next(line for line in run.stdout.splitlines() if line.startswith("seconds and hash:"))
            found.append(float(line.split()[-2]))
            hashes.add(line.split()[-1])
    if len(hashes) != 1:
        sys.exit("the saved tensors differ")
    for kind, found in seconds.items():
        print(f"{kind:8} {statistics.median(found):.2f} s, {min(found):.2f} to {max(found):.2f}")
    ratios = [a / b for a, b in zip(*seconds.values())]
    print(f"ratio    {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
