#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Runs the benchmarks of two builds in turns and says if the second is faster. scripts/bench-check.sh calls it."""
import argparse
import glob
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import rules

ROUNDS = 15  # rounds that fit into a benchmark's share of the time
LEAST_ROUNDS = 8  # fewer rounds give no interval
REPETITIONS = 3
OVERHEAD = 2.0  # Google Benchmark also spends time to find the number of iterations


def programs(build):
    return {os.path.basename(p): p for p in sorted(glob.glob(f"{build}/bench/bench-*")) if os.access(p, os.X_OK)
            and os.path.isfile(p)}


def listed(program, pattern):
    out = subprocess.run([program, "--benchmark_list_tests=true", f"--benchmark_filter={pattern}"], check=True,
                         capture_output=True, text=True).stdout
    return [line for line in out.splitlines() if line and not line.startswith("Failed to match")]


def run(program, pattern, min_time, run_with):
    """Returns the minimum time of an iteration for every benchmark, by name."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        # A file instead of a pipe: --run-with may stop this process meanwhile.
        subprocess.run(shlex.split(run_with) +
                       [program, f"--benchmark_filter={pattern}", f"--benchmark_min_time={min_time}",
                        f"--benchmark_repetitions={REPETITIONS}",
                        "--benchmark_enable_random_interleaving=true",
                        f"--benchmark_out={out.name}", "--benchmark_out_format=json"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(out.name, encoding="utf-8") as file:
            benchmarks = json.load(file)["benchmarks"]
    best = {}
    for b in benchmarks:
        if b["run_type"] == "iteration" and not b.get("error_occurred"):
            # CPU time leaves out other processes. It has no meaning with threads.
            t = b["real_time" if b["name"].split("/")[-1] in ("real_time", "manual_time") else "cpu_time"]
            best[b["run_name"]] = min(t, best.get(b["run_name"], t))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--filter", default=".")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--run-with", default="")
    arguments = parser.parse_args()

    old, new = programs(arguments.old), programs(arguments.new)
    count = {name: len(listed(new[name], arguments.filter)) for name in new if name in old}
    wanted = [name for name in count if count[name]]
    if not wanted:
        print(f"no benchmark matches {arguments.filter}", file=sys.stderr)
        return 2
    min_time = arguments.seconds / (2 * ROUNDS * REPETITIONS * OVERHEAD * sum(count.values()))
    min_time = min(max(min_time, 0.002), 0.2)
    ratios = {}
    begin = time.monotonic()
    rounds = 0
    while rounds < LEAST_ROUNDS or time.monotonic() - begin < arguments.seconds:
        for name in wanted:
            # The order alternates, because the second run finds the machine in another state.
            sides = (old[name], new[name]) if rounds % 2 == 0 else (new[name], old[name])
            measured = {p: run(p, arguments.filter, min_time, arguments.run_with) for p in sides}
            for benchmark, t in measured[old[name]].items():
                if benchmark in measured[new[name]]:
                    ratios.setdefault((name, benchmark), []).append((t / measured[new[name]][benchmark], t))
        rounds += 1
    print(f"{rounds} rounds of {REPETITIONS} x {min_time * 1e3:.0f} ms a benchmark, {time.monotonic() - begin:.0f} s\n")
    print(f"{'benchmark':56} {'old, us':>10} {'new/old speed':>13}   99 % interval   verdict")
    verdicts = []
    for (_, benchmark), values in ratios.items():
        r = [v[0] for v in values]
        low, high = rules.median_interval(r, 0.99)
        verdicts.append(rules.change(r))
        print(f"{benchmark:56} {statistics.median(v[1] for v in values) * 1e-3:10.2f} {statistics.median(r):13.3f}"
              f"   {low:.3f} - {high:.3f}   {verdicts[-1]}")
    print("\n" + rules.tally(verdicts))
    return 1 if "slower" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
