#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The search for the range with the least error in torch, on one thread, beside bench-search: what a search in Python costs.

    torch_search.py [BENCH-SEARCH] [--rows N] [--repetitions N] [--filter REGEX]

The loop is the mse observers' search written out for int4, symmetric, groups of 128, 20 candidates, with the operations on whole
tensors that upstream's fake_quantize and error take. Torch and bench-search take turns, so that whatever else the machine does
disturbs both; figures are medians, in billions of elements a second under one candidate each, and their ratios.
Needs python3-torch (Debian: /usr/bin/python3). Fewer rows than 4096 may fit a cache, which makes torch several times faster.
"""
import argparse
import json
import statistics
import subprocess
import time

import torch

GROUP, STEPS, GRID = 128, 20, 100.0


def search(x, norm):
    low, high = torch.amin(x, dim=(0, -1)), torch.amax(x, dim=(0, -1))
    best = torch.full_like(low, torch.finfo(low.dtype).max)
    best_low, best_high = low.clone(), high.clone()
    waited = 0
    for i in range(STEPS):
        p = 1 - i / GRID
        shrunk_low, shrunk_high = low * p, high * p
        amax = torch.maximum(shrunk_low.clamp(max=0).abs(), shrunk_high.clamp(min=0).abs())
        scale = amax / 7.5
        scale = torch.where(scale == 0, torch.full_like(scale, torch.finfo(scale.dtype).eps), scale).unsqueeze(-1)
        zero_point = torch.zeros_like(scale, dtype=torch.int8)
        scaled = x / scale
        scaled += zero_point.to(x.dtype)
        q = torch.round(torch.clamp(scaled, -8, 7))
        q = (q - zero_point.to(x.dtype)) * scale
        error = (q - x).abs().pow(norm).sum(dim=(0, -1))
        improved = error < best
        if improved.any():
            best[improved] = error[improved]
            best_low[improved] = shrunk_low[improved]
            best_high[improved] = shrunk_high[improved]
            waited = 0
        else:
            waited += 1
            if waited >= 5:
                break
    return best_low, best_high


parser = argparse.ArgumentParser()
parser.add_argument("bench", nargs="?")
parser.add_argument("--rows", type=int, default=4096)
parser.add_argument("--repetitions", type=int, default=5)
parser.add_argument("--filter", default="^search/.*/(int4-group-128-norm-(2|2.4|2.7)|nvfp4-expanded)/")
arguments = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(1)
x = (torch.randn(arguments.rows, 4096) * 0.02).reshape(1, arguments.rows, -1, GROUP)
torch_speed, qobs_speed = {}, {}
for repetition in range(arguments.repetitions):
    for norm in (2.0, 2.4, 2.7):
        start = time.perf_counter()
        search(x, norm)
        torch_speed.setdefault(f"{norm:g}", []).append(x.numel() * STEPS / (time.perf_counter() - start) * 1e-9)
    if arguments.bench:
        out = subprocess.run([arguments.bench, f"--benchmark_filter={arguments.filter}", "--benchmark_format=json",
                              "--benchmark_min_time=0.05"], check=True, capture_output=True, text=True).stdout
        for b in json.loads(out)["benchmarks"]:
            name = b["name"].removeprefix("search/").removesuffix("/real_time")
            qobs_speed.setdefault(name, []).append(b["items_per_second"] * 1e-9)

print("| search | G elements x candidates / s | times torch |\n|---|---|---|")
medians = {norm: statistics.median(v) for norm, v in torch_speed.items()}
for norm, speed in medians.items():
    print(f"| torch {torch.__version__}, norm {norm} | {speed:.4f} | 1 |")
for name, values in qobs_speed.items():
    norm = name.split("-norm-")[1].split("/")[0] if "-norm-" in name else "2.4"
    speed = statistics.median(values)
    ratio = f"{speed / medians[norm]:.0f}" if norm in medians else "-"
    print(f"| {name} | {speed:.2f} | {ratio} |")
