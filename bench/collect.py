#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Joins the results of the parts of a run into one file.

    collect.py OUT [into=RESULTS.json] KEY=VALUE... PART.json...

Writes OUT-ISA.json and prints that path. ISA is the best instruction set, because different processors may share a
name. into: the parts take the place of what these results have under the same names, and KEY=VALUE become one of
`runs`, in the place of an earlier run of the same command. Times are nanoseconds per call, one figure for each
repetition. They are CPU time, or wall-clock time with threads.
"""

import json
import os
import re
import sys

# The fourth only beside a limit, the last two only with threads.
PAIR = ("ratio", "speed", "other_speed", "operations", "machine_before", "machine_after")


def shortened(figures):
    return [float(f"{f:.5g}") for f in figures]


def add_google(results, part):
    """Adds a file by Google Benchmark."""
    context = part["context"]
    caches = {c["level"]: c["size"] for c in context["caches"] if c["type"] != "Instruction"}
    results["caches"] = [caches[level] for level in sorted(caches)]
    results["isa"] = context["isa"]
    for b in part["benchmarks"]:
        if b["run_type"] != "iteration":
            continue
        name = re.sub("/(iterations|repeats):[0-9]+", "", b["run_name"])
        if b.get("error_occurred"):
            raise SystemExit(f"{name}: {b['error_message']}")
        if name.startswith("pair/"):
            into = results["pairs"].setdefault(name, {key: [] for key in PAIR if key in b})
            for key, figures in into.items():
                figures.append(b[key])
            continue
        into = results["benchmarks"].setdefault(name, {"bytes": b.get("bytes", 0), "items": 0, "time": []})
        scale = {"ns": 1, "us": 1e3, "ms": 1e6}[b["time_unit"]]
        into["time"].append(scale * b["real_time" if name.endswith("/real_time") else "cpu_time"])
        into["items"] = round(b.get("items_per_second", 0) * into["time"][-1] * 1e-9)


def add_figures(results, part):
    """Adds a file by a script of this directory. Several processes may measure a pair."""
    for key, value in part.items():
        if key == "pairs":
            for name, figures in value.items():
                into = results["pairs"].setdefault(name, {kind: [] for kind in figures})
                for kind in figures:
                    into[kind] = figures[kind] if kind == "upstream" else into[kind] + figures[kind]
        else:
            results[key] = results[key] | value if key == "values" else value


def put_into(base, results, heads):
    """Returns the base with the figures of results in the place of its own."""
    kinds = ("benchmarks", "pairs", "values")
    figures = sum(len(results[kind]) for kind in kinds)
    for kind in kinds:
        base[kind] |= results[kind]
    runs = [run for run in base.get("runs", []) if run["command"] != heads["command"]]
    return base | {"runs": runs + [heads | {"figures": figures}]}


def main():
    results = {"benchmarks": {}, "pairs": {}, "values": {}}
    base, heads = None, {}
    for argument in sys.argv[2:]:
        if argument.startswith("into="):
            with open(argument.split("=", 1)[1], encoding="utf-8") as file:
                base = json.load(file)
            continue
        if not argument.endswith(".json"):
            key, value = argument.split("=", 1)
            heads[key] = value
            continue
        if not os.path.exists(argument) or not os.path.getsize(argument):
            continue  # Google Benchmark leaves an empty file if no benchmark matches the filter
        with open(argument, encoding="utf-8") as file:
            part = json.load(file)
        if "context" in part:
            add_google(results, part)
        else:
            add_figures(results, part)
    results = put_into(base, results, heads) if base else heads | results
    for b in results["benchmarks"].values():
        b["time"] = shortened(b["time"])
    for p in results["pairs"].values():
        for key in p:
            p[key] = p[key] if key == "upstream" else shortened(p[key])
    path = f"{sys.argv[1]}-{results['isa']}.json"
    with open(path, "w", encoding="utf-8") as out:
        heads = {key: value for key, value in results.items() if key not in ("benchmarks", "pairs", "values")}
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in heads.items()]
        for key in ("benchmarks", "pairs", "values"):
            entries = ",\n".join(f"{json.dumps(n)}: {json.dumps(v)}" for n, v in results[key].items())
            lines.append(f"{json.dumps(key)}: {{\n{entries}\n}}")
        out.write("{\n" + ",\n".join(lines) + "\n}\n")
    print(path)


if __name__ == "__main__":
    main()
