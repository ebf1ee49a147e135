#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Measures time and memory of calibration block by block.

    blocks.py make DIRECTORY [--layers 32] [--hidden 4096] [--intermediate 14336] [--vocabulary 128256]
    blocks.py run DIRECTORY [--scheme FP8] [--importance] [--samples 2] [--length 512] [--way blocks]
    blocks.py ratio DIRECTORY [--repeat 5] [OPTION]...

`make` writes a Llama of random weights in bfloat16, 8 B parameters by default, a file for each layer. `run` calibrates
it with random tokens and prints seconds and resident memory: all of it by getrusage, in which pages of mapped files
count, and the part that is no page of a file. --way: blocks, or with the whole model in memory: memory, llm-compressor
(by its sequential pipeline; the directory needs a tokenizer) or model-optimizer (FP8, layerwise). `ratio` runs both
ways of the package in turns and prints medians.

Needs torch and transformers 5, the package on PYTHONPATH, and what --way names. --threads: of torch (default 1).
"""
import argparse
import importlib
import json
import os
import resource
import shutil
import statistics
import tempfile
import threading
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def write_layers(args):
    """Layer by layer, so that it needs the memory of one."""
    hidden, kv = args.hidden, args.hidden // 4
    shapes = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
              "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (args.intermediate, hidden),
              "mlp.up_proj": (args.intermediate, hidden), "mlp.down_proj": (hidden, args.intermediate)}
    ones = torch.ones(hidden, dtype=torch.bfloat16)
    for i in range(args.layers):
        tensors = {f"model.layers.{i}.{n}.weight": random(shape) for n, shape in shapes.items()}
        tensors |= {f"model.layers.{i}.{n}_layernorm.weight": ones.clone() for n in ("input", "post_attention")}
        yield tensors
    yield {"model.embed_tokens.weight": random((args.vocabulary, hidden)), "model.norm.weight": ones}
    yield {"lm_head.weight": random((args.vocabulary, hidden))}


def random(shape):
    return torch.empty(shape, dtype=torch.bfloat16).normal_(0, 0.02)


def make(args):
    torch.manual_seed(0)
    os.makedirs(args.directory)
    places, total = {}, args.layers + 2
    for i, tensors in enumerate(write_layers(args)):
        name = f"model-{i + 1:05}-of-{total:05}.safetensors"
        save_file(tensors, os.path.join(args.directory, name), {"format": "pt"})
        places |= dict.fromkeys(tensors, name)
    with open(os.path.join(args.directory, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": places}, file)
    config = transformers.LlamaConfig(
        hidden_size=args.hidden, intermediate_size=args.intermediate, num_hidden_layers=args.layers,
        num_attention_heads=args.hidden // 128, num_key_value_heads=args.hidden // 512, vocab_size=args.vocabulary,
        architectures=["LlamaForCausalLM"], dtype="bfloat16", tie_word_embeddings=False)
    config.save_pretrained(args.directory)


class Anonymous:
    """The most memory of the process that is no page of a file, looked at ten times a second."""

    def __init__(self):
        self.most, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *failure):
        self._end.set()
        self._thread.join()

    def _watch(self):
        while not self._end.wait(0.1):
            with open("/proc/self/status") as file:
                lines = dict(line.split(":", 1) for line in file)
            self.most = max(self.most, int(lines["RssAnon"].split()[0]) * 1024)


# ---- Ways to calibrate -----------------------------------------------------------------------------------------------

def whole_model(directory):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype="auto")
    model.config.use_cache = False
    return model


def by_blocks(args, batches, folder):
    qobs.calibrate_blocks(args.directory, batches, states=os.path.join(folder, "states"), scheme=args.scheme,
                          importance=args.importance)


def in_memory(args, batches, folder):
    qobs.calibrate(whole_model(args.directory), batches, args.scheme, importance=args.importance).save(
        os.path.join(folder, "states"))


def by_llmcompressor(args, batches, folder):
    """Its sequential pipeline, on the whole model in memory."""
    import datasets
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    rows = [batch["input_ids"][0].tolist() for batch in batches]
    samples = datasets.Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * args.length] * len(rows)})
    recipe = QuantizationModifier(targets="Linear", scheme=args.scheme, ignore=["lm_head"])
    oneshot(model=whole_model(args.directory), dataset=samples, recipe=recipe, max_seq_length=args.length,
            num_calibration_samples=len(rows), pipeline="sequential")


def by_modelopt(args, batches, folder):
    """Its FP8, layer by layer, on the whole model in memory."""
    import modelopt.torch.quantization as mtq

    def loop(model):
        with torch.no_grad():
            for batch in batches:
                model(**batch)
    config = {**mtq.FP8_DEFAULT_CFG, "algorithm": {"method": "max", "layerwise": {"enable": True}}}
    mtq.quantize(whole_model(args.directory), config, loop)


WAYS = {"blocks": by_blocks, "memory": in_memory, "llm-compressor": by_llmcompressor, "model-optimizer": by_modelopt}
MODULES = {"llm-compressor": "llmcompressor", "model-optimizer": "modelopt.torch.quantization"}  # no part of the time


def samples_of(args):
    vocabulary = transformers.AutoConfig.from_pretrained(args.directory).vocab_size
    torch.manual_seed(1)
    return [{"input_ids": torch.randint(vocabulary, (1, args.length))} for _ in range(args.samples)]


def timed(args, way, batches):
    """Seconds by the clock, and of the process."""
    folder = tempfile.mkdtemp(dir=os.path.dirname(os.path.abspath(args.directory)))
    begin = time.monotonic(), time.process_time()
    try:
        WAYS[way](args, batches, folder)
    finally:
        shutil.rmtree(folder)
    return time.monotonic() - begin[0], time.process_time() - begin[1]


def run(args):
    if args.way in MODULES:
        importlib.import_module(MODULES[args.way])
    with Anonymous() as memory:
        seconds, own = timed(args, args.way, samples_of(args))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{args.scheme}{' importance' * args.importance}, {args.samples} x {args.length} tokens, {args.way}: "
          f"{seconds:.1f} s, {own:.1f} s of processors, {resident / 1e9:.2f} GB resident, {memory.most / 1e9:.2f} GB "
          "without files")


def ratio(args):
    """Runs both ways in turns, so that other work on the machine meets both."""
    batches = samples_of(args)
    timed(args, "memory", batches)
    runs = [[timed(args, way, batches) for way in ("memory", "blocks")] for _ in range(args.repeat)]
    for i, name in enumerate(("seconds", "seconds of processors")):
        memory, blocks = (statistics.median(run[way][i] for run in runs) for way in (0, 1))
        print(f"{name}: {memory:.2f} in memory, {blocks:.2f} block by block, ratio {blocks / memory:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "run", "ratio"])
    parser.add_argument("directory")
    for name, value in (("layers", 32), ("hidden", 4096), ("intermediate", 14336), ("vocabulary", 128256),
                        ("samples", 2), ("length", 512), ("repeat", 5), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--scheme", default="FP8")
    parser.add_argument("--importance", action="store_true")
    parser.add_argument("--way", choices=WAYS, default="blocks")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    {"make": make, "run": run, "ratio": ratio}[args.command](args)


if __name__ == "__main__":
    import libqobs as qobs
    import torch
    import transformers
    from safetensors.torch import save_file
    main()
