#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bench-minmax and prints a Markdown table: each layout's bytes a second as a share of the read loop's. Runs bench-layouts, if
that is what is named, and prints each granularity's as a share of the contiguous minimum and maximum's.

    report.py BENCH-MINMAX|BENCH-LAYOUTS [--isa NAME] [--only REGEX] [--repetitions N] [--json FILE]

All benchmarks of one run are interleaved at random, so that what disturbs the machine disturbs the read loop as well; a figure is the
ratio of medians.
"""
import argparse
import json
import statistics
import subprocess

parser = argparse.ArgumentParser()
parser.add_argument("bench")
parser.add_argument("--isa", default="avx512")
parser.add_argument("--only", default="", help="benchmarks whose names after the instruction set begin so")
parser.add_argument("--repetitions", type=int, default=9)
parser.add_argument("--json")
arguments = parser.parse_args()

out = subprocess.run([arguments.bench, f"--benchmark_filter=^(read/|{arguments.isa}/({arguments.only}))", "--benchmark_format=json",
                      "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=0.05",
                      f"--benchmark_repetitions={arguments.repetitions}"], check=True, capture_output=True, text=True).stdout
if arguments.json:
    open(arguments.json, "w", encoding="utf-8").write(out)
runs = {}
for b in json.loads(out)["benchmarks"]:
    if b["run_type"] == "iteration":
        runs.setdefault(b["run_name"], []).append(b["bytes_per_second"])
speed = {name: statistics.median(values) for name, values in runs.items()}

if not any(name.startswith("read/") for name in speed):
    dtypes = list(dict.fromkeys(name.split("/")[1] for name in speed))
    print("| granularity |" + "".join(f" {d} |" for d in dtypes))
    print("|---|" + "---|" * len(dtypes))
    contiguous = {d: speed[f"{arguments.isa}/{d}/tensor"] for d in dtypes}
    print("| contiguous, GB/s |" + "".join(f" {contiguous[d] * 1e-9:.1f} |" for d in dtypes))
    for g in dict.fromkeys(name.split("/", 2)[2] for name in speed):
        print(f"| {g} |" + "".join(f" {speed[f'{arguments.isa}/{d}/{g}'] / contiguous[d]:.2f} |" for d in dtypes))
    raise SystemExit

sizes = sorted({int(name.rsplit("/", 1)[1]) for name in speed})


def size(bytes_):
    return f"{bytes_ >> 20} MB" if bytes_ >= 1 << 20 else f"{bytes_ >> 10} KB"


rows = sorted({name.rsplit("/", 1)[0] for name in speed if not name.startswith("read/")},
              key=lambda name: list(speed).index(name + f"/{sizes[0]}"))
print("| kernel |" + "".join(f" {size(s)} |" for s in sizes))
print("|---|" + "---|" * len(sizes))
print("| read loop, GB/s |" + "".join(f" {speed[f'read/{s}'] * 1e-9:.1f} |" for s in sizes))
for row in rows:
    print(f"| {row.replace('/', ' ')} |" + "".join(f" {speed[f'{row}/{s}'] / speed[f'read/{s}']:.2f} |" for s in sizes))
