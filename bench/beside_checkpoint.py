#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares `qobs quantize` with cat, with a larger model and with llm-compressor's model_free_ptq.

    beside_checkpoint.py QOBS DIRECTORY [OPTION]...

DIRECTORY holds the models and outputs, several times their size; in memory (tmpfs) no disk has a say. The model has N MB
of bf16 in 3 shards, from the page cache. With --growth a model N times as large is quantized, too. --upstream names a
Python that has llmcompressor; its processor time is that of the work, without imports. All processes of a comparison
take turns. Prints a table of medians.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time

import numpy as np

SCHEMES = ("W4A16", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4")
MSE = "memoryless_mse"
# Rows of one layer of a llama: fused sets, wide and narrow layers.
ROWS = {"self_attn.q_proj": 4096, "self_attn.k_proj": 1024, "self_attn.v_proj": 1024, "self_attn.o_proj": 4096,
        "mlp.gate_proj": 4096, "mlp.up_proj": 4096}
COLUMNS, SHARDS = 4096, 3

# Runs in the other Python: the processor time of model_free_ptq on one thread, as JSON.
UPSTREAM = """
import sys, time, json, warnings, os
warnings.filterwarnings("ignore")
import torch
torch.set_num_threads(1)
from llmcompressor import model_free_ptq
from compressed_tensors.quantization import QuantizationScheme, preset_name_to_scheme
source, out, scheme, observer = sys.argv[1:5]
if observer:
    scheme = preset_name_to_scheme(scheme, ["Linear"])
    scheme.weights.observer = observer
begin = time.process_time()
model_free_ptq(source, out, scheme=scheme, ignore=[], device="cpu", max_workers=1)
print(json.dumps(time.process_time() - begin))
"""


def make_model(path, megabytes):
    """Writes bf16 layers in SHARDS shards. One Gaussian matrix, rolled along for each tensor, makes them."""
    rng = np.random.default_rng(1)
    base = (rng.standard_normal(4096 * COLUMNS, dtype=np.float32) * np.float32(0.02)).view(np.uint32)
    base = ((base + 0x8000) >> 16).astype("<u2")
    layer = 2 * COLUMNS * sum(ROWS.values())
    layers = max(SHARDS, megabytes * 1024 * 1024 // layer)
    path.mkdir()
    weight_map = {}
    for shard in range(SHARDS):
        name, header, offset = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors", {}, 0
        mine = [i for i in range(layers) if i * SHARDS // layers == shard]
        for i in mine:
            for module, rows in ROWS.items():
                size = 2 * rows * COLUMNS
                header[f"model.layers.{i}.{module}.weight"] = {"dtype": "BF16", "shape": [rows, COLUMNS],
                                                               "data_offsets": [offset, offset + size]}
                offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path / name, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for k, entry in enumerate(header.values()):
                f.write(np.roll(base, 977 * k + shard)[:entry["shape"][0] * COLUMNS].tobytes())
        weight_map |= dict.fromkeys(header, name)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (path / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    return layers * layer


def run(*command):
    """Returns wall-clock seconds, processor seconds and the largest private memory in bytes."""
    before, begin, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL)

    def watch():
        nonlocal peak
        while process.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                peak = max(peak, *(int(kb) * 1024 for kb in re.findall(r"RssAnon:\s*(\d+)", status)), 0)
            except (OSError, TypeError):
                pass
            time.sleep(0.005)
    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    seconds = time.monotonic() - begin
    watcher.join()
    if process.returncode:
        sys.exit(f"{command}: exit status {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak


class Bench:
    def __init__(self, arguments):
        self.qobs, self.directory = arguments.qobs, pathlib.Path(arguments.directory)
        self.repetitions = arguments.repetitions
        self.out = self.directory / "out"

    def quantize(self, model, scheme, threads, *options):
        shutil.rmtree(self.out, ignore_errors=True)
        return run(self.qobs, "quantize", model, "--scheme", scheme, "--threads", threads, "--quiet", "-o", self.out,
                   *options)

    def cat(self, model, flush):
        target = self.directory / "cat.out"
        target.unlink(missing_ok=True)
        flushed = f" && sync {target}" if flush else ""
        return run("sh", "-c", f"cat {model}/*.safetensors > {target}{flushed}")

    def beside_cat(self, model):
        """Returns the ratios of two threads to cat, and of cat with its output flushed, as quantize flushes it."""
        ratios = {}
        for scheme in SCHEMES:
            plain, flushed, memory = [], [], 0
            for _ in range(self.repetitions):
                cat, synced = self.cat(model, False)[0], self.cat(model, True)[0]
                seconds, _, peak = self.quantize(model, scheme, 2)
                plain.append(seconds / cat)
                flushed.append(seconds / synced)
                memory = max(memory, peak)
            ratios[scheme] = {"cat": plain, "cat and sync": flushed, "memory": memory}
        return ratios

    def growth(self, small, large):
        """Returns seconds and memory of both models."""
        times = [(self.quantize(small, "W4A16", 2), self.quantize(large, "W4A16", 2)) for _ in range(self.repetitions)]
        return {"ratio": [b[0] / a[0] for a, b in times], "processor ratio": [b[1] / a[1] for a, b in times],
                "memory": [max(a[2] for a, _ in times), max(b[2] for _, b in times)]}

    def beside_upstream(self, python, model, scheme, observer, repetitions):
        """Returns how often qobs's processor time fits into that of model_free_ptq."""
        ratios = []
        options = ("--preset", "llmc." + observer) if observer else ()
        for _ in range(repetitions):
            shutil.rmtree(self.out, ignore_errors=True)
            answer = subprocess.run([python, "-B", "-c", UPSTREAM, model, self.out, scheme, observer], check=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                    env=os.environ | {"OMP_NUM_THREADS": "1"})
            theirs = json.loads(answer.stdout.splitlines()[-1])
            ours = self.quantize(model, scheme, 1, "--compat", "llm-compressor", *options)[1]
            ratios.append(theirs / ours)
        return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qobs", type=os.path.abspath)
    parser.add_argument("directory", type=os.path.abspath)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--growth", type=int)
    parser.add_argument("--upstream")
    parser.add_argument("--upstream-repetitions", type=int, default=1)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    results, median = {}, statistics.median
    models = bench.directory / "models"
    models.mkdir(parents=True)
    try:
        size = make_model(models / "model", arguments.megabytes)
        bench.cat(models / "model", False)
        print(f"{size / 1e9:.2f} GB of bf16 in {SHARDS} shards")
        results["cat"] = bench.beside_cat(models / "model")
        for scheme, r in results["cat"].items():
            print(f"{scheme:12} {median(r['cat']):5.2f} times cat ({min(r['cat']):.2f} to {max(r['cat']):.2f}), "
                  f"{median(r['cat and sync']):5.2f} times cat and sync, {r['memory'] / 1e6:.0f} MB")
        if arguments.growth:
            make_model(models / "large", arguments.megabytes * arguments.growth)
            results["growth"] = r = bench.growth(models / "model", models / "large")
            shutil.rmtree(models / "large")
            print(f"{arguments.growth} times as large: {median(r['ratio']):.2f} times as long, "
                  f"{median(r['processor ratio']):.2f} times the processor time, {r['memory'][0] / 1e6:.0f} and "
                  f"{r['memory'][1] / 1e6:.0f} MB")
        if arguments.upstream:
            make_model(models / "small", arguments.megabytes // 6)
            cases = [(s, "", "model") for s in SCHEMES] + [("W4A16", MSE, "small")]
            for scheme, observer, model in cases:
                r = bench.beside_upstream(arguments.upstream, models / model, scheme, observer,
                                          arguments.upstream_repetitions)
                results.setdefault("upstream", {})[f"{scheme} {observer}".strip()] = r
                print(f"{scheme:12} {observer:15} {median(r):6.1f} times as fast as model_free_ptq", flush=True)
    finally:
        shutil.rmtree(models, ignore_errors=True)
        shutil.rmtree(bench.out, ignore_errors=True)
        (bench.directory / "cat.out").unlink(missing_ok=True)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
