#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""A GGUF file of F16 as Q4_K with an imatrix by `qobs quantize`, beside ggml's function on as many threads. Needs
PyPI's xllamacpp and gguf.

    beside_ggml_file.py QOBS FOLDER [--matrices N] [--threads N]

FOLDER gets the file, of N matrices of 4096 x 4096 elements, and what is made of it. ggml has a matrix a thread, as
float32 in memory; its processor time is taken for each matrix. The program also reads, converts and writes. The bytes
of the blocks are compared. Prints processor and wall time of both, for the whole file.
"""

import argparse
import ctypes
import os
import resource
import subprocess
import sys
import threading
import time

import gguf
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from gguf_headers import Writer
from gguf_judge import Ggml, address

SIDE, Q4_K = 4096, gguf.GGMLQuantizationType.Q4_K


def write_model(path, matrices, weight):
    keys = {"block_count": matrices, "embedding_length": SIDE, "feed_forward_length": SIDE, "attention.head_count": 32,
            "context_length": 512}
    with Writer(path, "llama", keys) as writer:
        for i in range(matrices):
            writer.add_tensor(f"blk.{i}.ffn_up.weight", weight[i % len(weight)])


def write_imatrix(path, matrices, importance):
    with Writer(path, "", {}) as writer:
        writer.add_array("imatrix.datasets", ["text"])
        writer.add_uint32("imatrix.chunk_count", 1)
        writer.add_uint32("imatrix.chunk_size", 512)
        for i in range(matrices):
            writer.add_tensor(f"blk.{i}.ffn_up.weight.in_sum2", importance.reshape(1, -1))
            writer.add_tensor(f"blk.{i}.ffn_up.weight.counts", np.ones((1, 1), np.float32))


def run_ggml(weight, importance):
    """The blocks of each matrix, a thread for each; processor and wall time."""
    ggml, spent = Ggml(), []
    out = [np.zeros(w.size // 256 * 144, np.uint8) for w in weight]

    def run(w, blocks):
        begin = time.thread_time()
        ggml.lib.ggml_quantize_chunk(int(Q4_K), address(w), address(blocks), ctypes.c_int64(0), *map(int, w.shape),
                                     address(importance))
        spent.append(time.thread_time() - begin)

    floats = [w.astype(np.float32) for w in weight]
    threads = [threading.Thread(target=run, args=pair) for pair in zip(floats, out)]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out, sum(spent), time.monotonic() - begin


def run_qobs(qobs, threads, model, imatrix, out):
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([qobs, "quantize", model, "--scheme", "Q4_K_S", "--pure", "--importance", imatrix, "-o", out,
                    "--threads", str(threads), "--quiet", "--replace"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qobs")
    parser.add_argument("folder")
    parser.add_argument("--matrices", type=int, default=32, help="32 MiB of F16 each (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="(%(default)s)")
    given = parser.parse_args()
    model, imatrix, out = (os.path.join(given.folder, f) for f in ("model.gguf", "imatrix.gguf", "out.gguf"))
    random = np.random.default_rng(0)
    weight = [(random.standard_normal((SIDE, SIDE), np.float32) * 0.02).astype(np.float16)
              for _ in range(given.threads)]
    importance = np.exp(2 * random.standard_normal(SIDE)).astype(np.float32)
    write_model(model, given.matrices, weight)
    write_imatrix(imatrix, given.matrices, importance)
    cpu, wall = run_qobs(os.path.abspath(given.qobs), given.threads, model, imatrix, out)
    blocks, their_cpu, their_wall = run_ggml(weight, importance)
    for tensor in gguf.GGUFReader(out).tensors:
        theirs = blocks[int(tensor.name.split(".")[1]) % len(blocks)]
        if not np.array_equal(np.asarray(tensor.data).reshape(-1), theirs):
            raise SystemExit(f"{tensor.name}: the bytes are not those of ggml")
    share = given.matrices / given.threads
    their_cpu, their_wall = their_cpu * share, their_wall * share
    print(f"{os.path.getsize(model) / 1e9:.2f} GB, {given.threads} threads: ggml {their_cpu:.1f} s of processors, "
          f"{their_wall:.1f} s; qobs {cpu:.1f} s of processors, {wall:.1f} s; {their_cpu / cpu:.1f} and "
          f"{their_wall / wall:.1f} times as fast")


main()
