#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Writes docs/models.md from the reports of the tests: which architectures were tried, and how.

    models.py --zoo FILE... [--clients FILE] [--out docs/models.md]

FILEs are those of `tests/zoo.py --json` and `tests/clients.py --json`. Without --clients its table stays as the page
has it.
"""
import argparse
import json
import os

HEAD = """# Models that were tried

This page is made of the reports of tests (`scripts/models.py`). Each model is small and has random weights.

A model of a type or class that no row knows is not on this page: `qobs quantize` chooses its layers by the general
rule, claims no runtime and ends with status 3 ([checkpoint.md](checkpoint.md), "What is known of an architecture").

## vLLM and transformers

Models of vLLM {vllm} on the CPU and of transformers {transformers}, quantized to W4A16, in three files. KL: the
divergence of a client in bfloat16 from the stored numbers in float32; noise: the same of unquantized numbers; own: the
divergence of the client from itself on the stored numbers as a plain checkpoint. `tests/clients.py` runs them; a client
is right if its KL is at most twice the noise, or 0.0005, and `own` at most twice the smaller noise of both clients. On
CPUs without AMX vLLM has no kernel for quantized experts: vLLM's loader reads them, plain torch runs them. On CPUs with
AMX vLLM rounds the inputs of W4A16 to int8 (`VLLM_CPU_INT4_W4A8`): the KL of Llama is then 0.023, with a file of
llm-compressor, too. There plain torch runs all layers, so that the test says nothing of vLLM's own int4 kernel on AMX.
The table is older than that change of the test.

| model | KL of quantization | vLLM: KL, noise, own | transformers: KL, noise, own |
|---|---|---|---|
"""
MIDDLE = """
vLLM and transformers compute DeepSeek-V3 differently, quantized or not; `own` judges it.

"""
ZOO = """## Classes of transformers

`tests/zoo.py` builds a small model of each type, quantizes it, audits it and loads it in transformers {transformers}.
Right: no tensor is missing or unknown, every parameter and the logits are those of the stored numbers. Right, too: the
report says that transformers does not load the result, and that is true. Refused: `qobs quantize` ends with status 2,
or has nothing to quantize, and says why.

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


def clients_part(path, page):
    """The part of the page about vLLM and transformers: of a report, or as the page has it."""
    if not path:
        with open(page, encoding="utf-8") as file:
            return file.read().partition("## Classes of transformers")[0].partition("## Every class")[0]
    with open(path, encoding="utf-8") as file:
        clients = json.load(file)
    text = HEAD.format(**clients)
    for row in clients["rows"]:
        cells = [row["model"], f"{row['kl_quantization']:.2f}", cell(row["vllm"]), cell(row["transformers"])]
        text += f"| {' | '.join(cells)} |\n"
    return text + MIDDLE


def main():
    parser = argparse.ArgumentParser(description="writes docs/models.md")
    parser.add_argument("--zoo", nargs="+", required=True)
    parser.add_argument("--clients")
    parser.add_argument("--out", default=os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                                      "docs", "models.md"))
    options = parser.parse_args()
    text = clients_part(options.clients, options.out)
    types, schemes = {}, {}
    for path in options.zoo:
        with open(path, encoding="utf-8") as file:
            zoo = json.load(file)
        schemes |= dict.fromkeys(zoo["schemes"])
        for row in zoo["rows"]:
            known = types.setdefault(row["type"], {"schemes": {}, "why": ""})
            known["schemes"] |= row["schemes"]
            known["why"] = row["why"] or known["why"]
    text += ZOO.format(**zoo)
    right = sorted(t for t, row in types.items() if row["schemes"] and set(row["schemes"].values()) == {"right"})
    text += f"**Right** in {', '.join(schemes)}, {len(right)} types:\n{wrapped(right)}\n\n"
    rest = sorted(t for t, row in types.items() if row["schemes"] and t not in right)
    if rest:
        text += f"| type | {' | '.join(schemes)} | why |\n|---|{'---|' * len(schemes)}---|\n"
    for name in rest:
        verdicts = " | ".join(types[name]["schemes"].get(s, "") for s in schemes)
        why = types[name]["why"].replace("qobs: ", "").partition("; with ")[0]
        text += f"| {name} | {verdicts} | {why[:170].replace('|', '/')} |\n"
    unbuilt = sorted(t for t, row in types.items() if not row["schemes"])
    if unbuilt:
        text += f"\nThe rules of the test do not build {len(unbuilt)} types:\n{wrapped(unbuilt)}\n"
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
