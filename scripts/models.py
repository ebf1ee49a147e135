#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Writes docs/models.md from the reports of the tests: which architectures were tried, and how.

    models.py --zoo FILE... --clients FILE [--out docs/models.md]

FILEs are those of `tests/zoo.py --json` and `tests/clients.py --json`. A type that several reports of the zoo have is right
if it is right in all.
"""
import argparse
import json
import os

HEAD = """# Models that were tried

This page is made of the reports of tests (`scripts/models.py`). Each model is small and has random weights.

## vLLM and transformers

Models of vLLM {vllm} on the CPU and of transformers {transformers}, quantized to W4A16, in three files. KL: the divergence of a
client in bfloat16 from the stored numbers in float32; noise: the same of unquantized numbers; own: the divergence of the client
from itself on the stored numbers as a plain checkpoint. `tests/clients.py` runs them; a client is right if its KL is at most twice
the noise, or 0.0005, and `own` at most twice the smaller noise of both clients. vLLM's CPU platform has no kernel for quantized
experts: vLLM's loader reads them, plain torch runs them.

| model | KL of quantization | vLLM: KL, noise, own | transformers: KL, noise, own |
|---|---|---|---|
"""
ZOO = """
vLLM and transformers compute DeepSeek-V3 differently, quantized or not; `own` judges it.

## Every class of transformers

`tests/zoo.py` builds a model of each type, quantizes it, audits it and loads it in transformers {transformers}. Right: no tensor is
missing or unknown, every parameter and the logits are those of the stored numbers. Refused: `qobs quantize` ends with status 2 or
has nothing to quantize, and says why.

"""


def cell(result):
    failed = [result[k] for k in ("kl", "noise", "own") if not isinstance(result[k], float)]
    if failed:
        return "does not run: " + str(failed[0])[:80].replace("|", "/").replace("\n", " ")
    return f"{result['kl']:.1e}, {result['noise']:.1e}, {result['own']:.1e}" + ("" if result["passed"] else " (wrong)")


def wrapped(names, width=125):
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) + 1 > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + name
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="writes docs/models.md")
    parser.add_argument("--zoo", nargs="+", required=True)
    parser.add_argument("--clients", required=True)
    parser.add_argument("--out", default=os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "models.md"))
    options = parser.parse_args()
    with open(options.clients, encoding="utf-8") as file:
        clients = json.load(file)
    text = HEAD.format(**clients)
    for row in clients["rows"]:
        text += f"| {row['model']} | {row['kl_quantization']:.2f} | {cell(row['vllm'])} | {cell(row['transformers'])} |\n"
    types = {}
    for path in options.zoo:
        with open(path, encoding="utf-8") as file:
            zoo = json.load(file)
        for row in zoo["rows"]:
            known = types.setdefault(row["type"], {"verdict": row["verdict"], "why": row["why"], "schemes": []})
            known["schemes"] += zoo["schemes"]
            if row["verdict"] == "wrong" or known["verdict"] in ("right", "not built"):
                known.update(verdict=row["verdict"], why=row["why"])
    text += ZOO.format(**zoo)
    for verdict in ("right", "refused", "wrong", "not built"):
        by_schemes = {}
        for name, row in sorted(types.items()):
            if row["verdict"] == verdict:
                by_schemes.setdefault(", ".join(dict.fromkeys(row["schemes"])), []).append(name)
        for schemes, names in by_schemes.items():
            more = "" if verdict == "not built" else f" in {schemes}"
            text += f"**{verdict.capitalize()}**{more}, {len(names)} type{'s' if len(names) > 1 else ''}:\n{wrapped(names)}\n\n"
    reasons = [(n, r["why"]) for n, r in sorted(types.items()) if r["verdict"] in ("refused", "wrong")]
    if reasons:
        text += "| type | why |\n|---|---|\n"
        text += "".join(f"| {name} | {why[:160].replace('|', '/')} |\n" for name, why in reasons)
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
