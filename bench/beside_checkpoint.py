#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares `qobs quantize` with cat, with llm-compressor's model_free_ptq and with AutoRound's model-free mode.

    beside_checkpoint.py QOBS OUT.json --directory DIRECTORY [OPTION]...

DIRECTORY holds the models and outputs, several times their size; in memory (tmpfs) no disk has a say. The model has N
MB of bf16 in 3 shards, from the page cache. --llmcompressor and --autoround name a Python that has these packages;
their processor time is that of the work, without imports. Searched models are a quarter as large. All processes of a
comparison take turns. cat has two threads of ours beside it, by the wall clock; upstream has one, by processor time.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import sys
import threading
import time

import numpy as np

from pairs import Pairs

SCHEMES = ("W4A16", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4")
MSE = "memoryless_mse"
# Rows of one layer of a llama: fused sets, wide and narrow layers.
ROWS = {
    "self_attn.q_proj": 4096,
    "self_attn.k_proj": 1024,
    "self_attn.v_proj": 1024,
    "self_attn.o_proj": 4096,
    "mlp.gate_proj": 4096,
    "mlp.up_proj": 4096,
}
COLUMNS, SHARDS = 4096, 3

# Run in the other Python: package, version and processor time of the work on one thread, as JSON.
PTQ = """
import sys, time, json, warnings, importlib.metadata
warnings.filterwarnings("ignore")
import torch
torch.set_num_threads(1)
from llmcompressor import model_free_ptq
from compressed_tensors.quantization import preset_name_to_scheme
source, out, scheme, observer = sys.argv[1:5]
if observer:
    scheme = preset_name_to_scheme(scheme, ["Linear"])
    scheme.weights.observer = observer
begin = time.process_time()
model_free_ptq(source, out, scheme=scheme, ignore=[], device="cpu", max_workers=1)
print(json.dumps(["llmcompressor " + importlib.metadata.version("llmcompressor"), time.process_time() - begin]))
"""
# AutoRound starts a process for its work; here the work is done at once in this one.
AUTOROUND = """
import sys, json, time, importlib.metadata
from concurrent.futures import Future
import torch
torch.set_num_threads(1)
from auto_round import AutoRound
from auto_round.compressors import model_free
class Here:
    def __init__(self, **_):
        pass
    def submit(self, function, *arguments, **named):
        future = Future()
        future.set_result(function(*arguments, **named))
        return future
model_free.ProcessPoolExecutor, model_free._force_cleanup_process_pool = Here, lambda pool: None
source, out, scheme, observer = sys.argv[1:5]
begin = time.process_time()
AutoRound(source, scheme=scheme, model_free=True, iters=0, disable_opt_rtn=True, device_map="cpu",
          enable_torch_compile=False).quantize_and_save(out, format="auto_round")
print(json.dumps(["auto-round " + importlib.metadata.version("auto-round"), time.process_time() - begin]))
"""


def make_model(path, megabytes, part=1):
    """Writes bf16 layers of 1 / part of the rows in SHARDS shards. One Gaussian matrix, rolled along for each tensor,
    makes them."""
    rng = np.random.default_rng(1)
    base = (rng.standard_normal(4096 * COLUMNS, dtype=np.float32) * np.float32(0.02)).view(np.uint32)
    base = ((base + 0x8000) >> 16).astype("<u2")
    heights = {module: rows // part for module, rows in ROWS.items()}
    layer = 2 * COLUMNS * sum(heights.values())
    layers = max(SHARDS, megabytes * 1024 * 1024 // layer)
    path.mkdir()
    weight_map = {}
    for shard in range(SHARDS):
        name, header, offset = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors", {}, 0
        mine = [i for i in range(layers) if i * SHARDS // layers == shard]
        for i in mine:
            for module, rows in heights.items():
                size = 2 * rows * COLUMNS
                header[f"model.layers.{i}.{module}.weight"] = {
                    "dtype": "BF16",
                    "shape": [rows, COLUMNS],
                    "data_offsets": [offset, offset + size],
                }
                offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path / name, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for k, entry in enumerate(header.values()):
                f.write(np.roll(base, 977 * k + shard)[: entry["shape"][0] * COLUMNS].tobytes())
        weight_map |= dict.fromkeys(header, name)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "num_hidden_layers": layers,
                "hidden_size": COLUMNS,
            }
        )
    )
    return layers * layer


def run(*command):
    """Returns wall-clock seconds, processor seconds, the largest private memory in bytes, and the seconds of the
    processor that are the program's own."""
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
            time.sleep(min(0.005, max(0.0002, (time.monotonic() - begin) / 20)))  # of short runs, too

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    seconds = time.monotonic() - begin
    watcher.join()
    if process.returncode:
        sys.exit(f"{command}: exit status {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime - before.ru_utime
    return seconds, own + after.ru_stime - before.ru_stime, peak, own


class Bench:
    def __init__(self, arguments):
        self.qobs, self.directory, self.isa = arguments.qobs, pathlib.Path(arguments.directory), arguments.isa
        self.pairs, self.repetitions = Pairs(arguments), arguments.repetitions
        self.out, self.memory = self.directory / "out", 0

    def quantize(self, model, scheme, threads, *options):
        shutil.rmtree(self.out, ignore_errors=True)
        found = run(
            self.qobs,
            "quantize",
            model,
            "--scheme",
            scheme,
            "--threads",
            threads,
            "--quiet",
            "-o",
            self.out,
            *(("--isa", self.isa) if self.isa else ()),
            *options,
        )
        self.memory = max(self.memory, found[2])
        return found

    def cat(self, model, flush):
        target = self.directory / "cat.out"
        target.unlink(missing_ok=True)
        flushed = f" && sync {target}" if flush else ""
        return run("sh", "-c", f"cat {model}/*.safetensors > {target}{flushed}")

    def beside_cat(self, model, size):
        """Two threads beside cat, and beside cat with its output flushed, as quantize flushes it."""
        for scheme in SCHEMES:
            for name, flush in (("cat", False), ("cat-and-sync", True)):
                if self.pairs.wanted(f"checkpoint/{name}/{scheme}"):
                    times = [
                        (self.cat(model, flush)[0], self.quantize(model, scheme, 2)[0]) for _ in range(self.repetitions)
                    ]
                    self.pairs.add(f"checkpoint/{name}/{scheme}", "cat", times, size)

    def beside_upstream(self, name, python, script, model, size, scheme, observer, *options):
        """One thread beside one of upstream, by processor time."""
        name = f"checkpoint/{name}/{scheme}{'-' + observer if observer else ''}"
        if not python or not self.pairs.wanted(name):
            return
        times, package = [], None
        for _ in range(self.repetitions):
            shutil.rmtree(self.out, ignore_errors=True)
            answer = subprocess.run(
                [python, "-B", "-c", script, model, self.out, scheme, observer],
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            )
            if answer.returncode:
                sys.exit(f"{name}: {answer.stderr[-2000:]}")
            package, theirs = json.loads(answer.stdout.splitlines()[-1])
            times.append((theirs, self.quantize(model, scheme, 1, *options)[1]))
        self.pairs.add(name, package, times, size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qobs", type=os.path.abspath)
    Pairs.add_arguments(parser, 3)
    parser.add_argument("--directory", type=os.path.abspath, required=True)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--llmcompressor", metavar="PYTHON")
    parser.add_argument("--autoround", metavar="PYTHON")
    parser.add_argument("--isa", help="instruction set of qobs")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    models = bench.directory / "models"
    models.mkdir(parents=True)
    try:
        size, small = make_model(models / "model", arguments.megabytes), make_model(
            models / "small", arguments.megabytes // 4, 4
        )
        bench.cat(models / "model", False)
        bench.beside_cat(models / "model", size)
        for scheme in SCHEMES:
            bench.beside_upstream(
                "model_free_ptq",
                arguments.llmcompressor,
                PTQ,
                models / "model",
                size,
                scheme,
                "",
                "--compat",
                "llm-compressor",
            )
        bench.beside_upstream(
            "model_free_ptq",
            arguments.llmcompressor,
            PTQ,
            models / "small",
            small,
            "W4A16",
            MSE,
            "--compat",
            "llm-compressor",
            "--preset",
            "llmc." + MSE,
        )
        bench.beside_upstream("model-free", arguments.autoround, AUTOROUND, models / "model", size, "W4A16", "")
    finally:
        shutil.rmtree(models, ignore_errors=True)
        shutil.rmtree(bench.out, ignore_errors=True)
        (bench.directory / "cat.out").unlink(missing_ok=True)
    bench.pairs.values["quantize-memory"] = [bench.memory / 1e6]
    bench.pairs.write()


if __name__ == "__main__":
    main()
