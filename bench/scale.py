#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Measures how cost and memory of the program grow with bytes, tensors and shards, and those of observers with batches.

    scale.py QOBS LIBQOBS.SO OUT.json --directory DIRECTORY [--gigabytes N] [--only REGEX]

DIRECTORY takes 1.3 times the largest model (16 GB); everything is removed at the end. Models of more than 1 GB share
their shards, which are hard links to files of one repeated Gaussian matrix. Writes the values scale/<work>/<variable>:
[value, processor seconds, wall-clock seconds, bytes of private memory, processor seconds without those of the system]
for each measurement, and the memory of the machine.
"""

import argparse
import ctypes as c
import json
import os
import pathlib
import re
import shutil
import struct
import sys
import time

import numpy as np

from beside_checkpoint import run
from qobs_library import F32, Library, view

GB, COLUMNS = 10**9, 4096
SHARD_BYTES = 30 << 25  # 1.007 GB: 30 tensors of 4096x4096 bf16
TENSORS = (1, 10, 100, 1000, 10000, 100000)
SHARDS = (1, 3, 10, 30, 100, 200)
BATCHES = (1, 10, 100, 1000, 10000)
BATCH = 16384  # elements of a batch, 64 KB
OBSERVERS = {
    "llmc.static_minmax": {"base_name": "input", "num_bits": 8, "symmetric": "false", "strategy": "tensor"},
    "llmc.minmax": {"base_name": "input", "num_bits": 8, "symmetric": "false", "strategy": "tensor"},
    "llmc.mse": {"base_name": "input", "num_bits": 8, "symmetric": "false", "strategy": "tensor"},
    "torch.PerChannelMinMaxObserver": {},
    "torch.HistogramObserver": {},
    "ort.PercentileCalibrater": {},
    "quark.PerTensorPercentileObserver": {},
    "modelopt.HistogramCalibrator": {},
    "modelopt.MaxCalibrator": {},
}


def gaussian(count):
    x = (np.random.default_rng(1).standard_normal(count, dtype=np.float32) * np.float32(0.02)).view(np.uint32)
    return ((x + 0x8000) >> 16).astype("<u2")


def write_shard(path, names, shape, base):
    """Writes bf16 tensors of one shape; base is repeated."""
    size = 2 * shape[0] * shape[1]
    header = {
        name: {"dtype": "BF16", "shape": list(shape), "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate(names)
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    bytes_ = base.tobytes()
    if len(bytes_) % size:
        sys.exit("the matrix does not consist of tensors")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        left = size * len(names)
        while left > 0:
            left -= file.write(bytes_[:left])


def names_of(first, count):
    return [f"model.layers.{i}.mlp.up_proj.weight" for i in range(first, first + count)]


class Models:
    """Models in a directory of their own. Shards of one size are made once."""

    def __init__(self, directory):
        self.directory = directory
        self.base = gaussian(4096 * COLUMNS)

    def make(self, name, shards):
        """shards: (number of tensors, shape) of each."""
        path = self.directory / name
        path.mkdir()
        weight_map, first = {}, 0
        for i, (count, shape) in enumerate(shards):
            file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
            names = names_of(first, count)
            kept = self.directory / "shards" / f"{first}-{count}-{shape[0]}-{shape[1]}"
            if not kept.exists():
                kept.parent.mkdir(exist_ok=True)
                write_shard(kept, names, shape, self.base)
            os.link(kept, path / file)
            weight_map |= dict.fromkeys(names, file)
            first += count
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        (path / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
        return path

    def remove(self, path, shards_too=True):
        shutil.rmtree(path)
        if shards_too:
            shutil.rmtree(self.directory / "shards")


class Scale:
    def __init__(self, arguments):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.arguments, self.values = arguments, {"memory": memory}
        self.directory = pathlib.Path(arguments.directory) / "scale"
        self.directory.mkdir(parents=True)
        self.models = Models(self.directory)

    def wanted(self, name):
        return re.search(self.arguments.only, name)

    def add(self, name, value, processor, wall, memory, own):
        self.values.setdefault(name, []).append([value, processor, wall, memory, own])
        print(f"{name:50} {value:14.6g} {processor:9.4f} s {wall:9.4f} s {memory / 1e6:8.1f} MB", flush=True)

    def program(self, variable, value, model, rounds):
        """One thread: the processor time of two includes their waiting for each other's memory."""
        out = self.directory / "out"
        for work, result in (("quantize", out), ("calibrate", self.directory / "out.safetensors")):
            if not self.wanted(f"{work}/{variable}"):
                continue
            for _ in range(rounds):
                shutil.rmtree(out, ignore_errors=True)
                wall, processor, memory, own = run(
                    self.arguments.qobs,
                    work,
                    model,
                    "--scheme",
                    "W4A16",
                    "--threads",
                    1,
                    "--quiet",
                    "-o",
                    result,
                    *(("--isa", self.arguments.isa) if self.arguments.isa else ()),
                )
                self.add(f"scale/{work}/{variable}", value, processor, wall, memory, own)
            shutil.rmtree(out, ignore_errors=True)
            (self.directory / "out.safetensors").unlink(missing_ok=True)

    def bytes(self):
        """Tensors of 4096x4096, shards of 1 GB."""
        most = int(self.arguments.gigabytes * GB) // (2 * 4096 * COLUMNS)
        counts = sorted({max(1, most * k // 128) for k in (1, 2, 4, 8, 16, 32, 64, 128)})
        per_shard = SHARD_BYTES // (2 * 4096 * COLUMNS)
        for count in reversed(counts):  # the largest writes the shards
            shards = [(min(per_shard, count - i), (4096, COLUMNS)) for i in range(0, count, per_shard)]
            path = self.models.make("model", shards)
            self.program("bytes", count * 2 * 4096 * COLUMNS, path, 1 if count * 4 > most else 3)
            self.models.remove(path, shards_too=False)
        shutil.rmtree(self.directory / "shards", ignore_errors=True)

    def tensors(self):
        """Tensors of 32x128, 8 KB, in one shard."""
        for count in TENSORS:
            path = self.models.make("model", [(count, (32, 128))])
            self.program("tensors", count, path, 3)
            self.models.remove(path)

    def shards(self):
        """A model of 600 tensors of 1024x1024 bf16, 1.26 GB, in more and more shards."""
        for count in SHARDS:
            path = self.models.make("model", [(600 // count + (i < 600 % count), (1024, 1024)) for i in range(count)])
            self.program("shards", count, path, 3)
            self.models.remove(path)

    def batches(self):
        """Observers on batches of 64 KB, made in this process: private memory is what the process has more.

        Four batches repeat, 256 KB, so that the data of every count come from L2. Rounds of all observers and counts
        take turns, because a disturbance that lasts as long as all rounds of one count would pass for growth."""
        library = Library(self.arguments.libqobs, self.arguments.isa)
        x = np.random.default_rng(1).standard_normal((4, 64, BATCH // 64), dtype=np.float32)
        views = [view(part.ctypes.data, F32, part.shape) for part in x]
        rows = {preset: {count: [] for count in BATCHES} for preset in OBSERVERS if self.wanted(f"{preset}/batches")}
        for _ in range(15):
            for preset, counts in rows.items():
                for count, of_count in counts.items():
                    if len(of_count) < 3 or sum(row[1] for row in of_count) < 1:
                        observe(library, preset, views, 1)  # as in a first call caches hold other things
                        of_count.append(observe(library, preset, views, count))
        for preset, counts in rows.items():
            for count, of_count in counts.items():
                _, processor, wall, memory, _ = sorted(of_count)[len(of_count) // 2]
                print(f"{preset:50} {count:14} {processor:9.4f} s {wall:9.4f} s {memory / 1e6:8.1f} MB", flush=True)
            self.values[f"scale/{preset}/batches"] = [row for of_count in counts.values() for row in of_count]


def observe(library, preset, views, count):
    """Returns a measurement of an observer of so many batches."""
    before = private_memory()
    wall, begin = time.monotonic(), time.process_time()
    observer = library.observer(preset, OBSERVERS[preset])
    for i in range(count):
        library("qobs_observer_observe", observer, c.byref(views[i % len(views)]), None)
    processor, wall = time.process_time() - begin, time.monotonic() - wall
    memory = max(0, private_memory() - before)
    library.functions.qobs_observer_destroy(observer)
    return [count, processor, wall, memory, processor]


def private_memory():
    return int(re.search(r"RssAnon:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qobs", type=os.path.abspath)
    parser.add_argument("libqobs", type=os.path.abspath)
    parser.add_argument("out")
    parser.add_argument("--directory", type=os.path.abspath, required=True)
    parser.add_argument("--gigabytes", type=float, default=16, help="the largest model (%(default)s)")
    parser.add_argument("--only", default=".", help="regular expression of <work>/<variable>")
    parser.add_argument("--isa", help="instruction set (the best)")
    arguments = parser.parse_args()
    scale = Scale(arguments)
    try:
        scale.batches()
        for variable in ("tensors", "shards", "bytes"):
            if scale.wanted(f"quantize/{variable}") or scale.wanted(f"calibrate/{variable}"):
                getattr(scale, variable)()
    finally:
        shutil.rmtree(scale.directory, ignore_errors=True)
    with open(arguments.out, "w", encoding="utf-8") as out:
        json.dump({"values": scale.values}, out)


if __name__ == "__main__":
    main()
