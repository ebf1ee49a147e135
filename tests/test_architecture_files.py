#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of --architectures: rows of a file, what is refused in one, and what report and summary say of their source.

    test_architecture_files.py QOBS
"""
import json
import os
import sys

import cli
from cli import check, equal
from test_architectures import ignored
from test_quantize_command import quantize, read, refused, tensor
from test_sources import make

LAYER = "model.layers.0.mlp.down_proj"
LINEAR, ODD = "model.layers.0.mlp.up_proj", "model.layers.0.mixer.odd"
VERSIONS = {"transformers": "5.99.1", "vllm": "0.77.0"}


def write(rows, **more):
    with open("rows.json", "w", encoding="utf-8") as file:
        json.dump({**VERSIONS, **more, "architectures": rows}, file)


def run(names, *options, status=0, scheme="W8A16", **config):
    """Returns what is quantized, `ignore` and the report."""
    make("in", {f"{n}.weight": tensor([128, 128], 1) for n in names}, **config)
    p = quantize("in", "-o", "out", "--replace", "--json", "report.json", *options, scheme=scheme)
    equal(p.returncode, status, f"exit status {p.stderr}")
    out = cli.st_read("out/model.safetensors")[0]
    entries = json.loads(read("out/config.json"))["quantization_config"]["ignore"]
    taken = {n for n in names if f"{n}.weight_packed" in out or f"{n}.weight_scale" in out}
    return taken, entries, json.loads(read("report.json"))


def test_rows():
    """Each kind of a row decides what is left; a row found by class serves a model of another type."""
    names = [LINEAR, ODD]
    for kind in ("head", "table", "router", "conv1d", "kept"):
        write([{"types": ["newmodel"], kind: ["mixer.odd"]}])
        taken, entries, report = run(names, "--architectures", "rows.json", model_type="newmodel")
        equal((taken, ignored(ODD, entries)), ({LINEAR}, True), f"{kind}: what is quantized")
        equal(report["knowledge"], {"source": "file", **VERSIONS}, f"{kind}: the source")
    write([{"types": ["other"], "classes": ["NewModel", "NewModelForCausalLM"], "kept": ["odd"]}])
    taken, _, report = run(names, "--architectures", "rows.json", model_type="newmodel",
                           architectures=["NewModelForCausalLM"])
    equal((taken, report["knowledge"]["source"]), ({LINEAR}, "file"), "found by class")


def test_linear():
    """A column `linear` quantizes what the general rule leaves."""
    name = "model.layers.0.embed_gate.gate"
    write([{"types": ["newmodel"], "linear": ["embed_gate.gate"]}])
    equal(run([LINEAR, name], "--architectures", "rows.json", model_type="newmodel")[0], {LINEAR, name}, "linear")


def test_precedence():
    """Rows of a file replace those of the table of the same type; other types keep the table's."""
    cls = ["cls.predictions.decoder", "bert.pooler.dense"]
    equal(run([LINEAR, *cls], model_type="bert")[0], {LINEAR}, "bert by the table")
    write([{"types": ["bert"], "linear": ["pooler.dense"]}])
    taken, _, report = run([LINEAR, *cls], "--architectures", "rows.json", model_type="bert")
    check(cls[1] in taken, "bert by the file: pooler.dense is quantized", taken)
    equal(report["knowledge"]["source"], "file", "bert by the file")
    taken, _, report = run([LINEAR, "lm_head.decoder"], "--architectures", "rows.json", model_type="camembert")
    equal((taken, report["knowledge"]["source"]), ({LINEAR}, "table"), "camembert")
    write([{"types": ["bert"]}], source="installed")
    _, _, report = run([LINEAR], "--architectures", "rows.json", model_type="bert")
    equal(report["knowledge"], {"source": "installed", **VERSIONS}, "installed, and a row without contents")


def test_other_columns():
    """Facts about runtimes, renames and fused sets of the file count; versions in texts are those of the file."""
    write([{"types": ["newmodel"], "lacks_vllm": True, "needs_weight": ["up_proj"]}])
    make("in", {f"{LINEAR}.weight": tensor([128, 128], 1)}, model_type="newmodel")
    p = quantize("in", "-o", "out", "--replace", "--architectures", "rows.json", scheme="W8A16")
    refused("needs_weight", p, 2, "vLLM 0.77 does not have this architecture",
            "transformers 5.99 loads no packed up_proj")
    write([{"types": ["newmodel"], "kept": ["odd"], "renames": ["mixer.odd>other.place"]}])
    entries = run([LINEAR, ODD], "--architectures", "rows.json", model_type="newmodel")[1]
    check(ignored("model.layers.0.other.place", entries), "ignore has the module's other name", str(entries))
    write([{"types": ["newmodel"], "fused": ["odd+even"]}])
    names = ["model.layers.0.odd", "model.layers.0.even"]
    make("in", {f"{n}.weight": tensor([128, 128], i) for i, n in enumerate(names)}, model_type="newmodel")
    p = quantize("in", "-o", "out", "--replace", "--architectures", "rows.json", "--ignore", names[0], scheme="W8A16")
    refused("a set", p, 2, "vLLM runs even (W8A16), odd (not quantized) as one matrix")


def test_commands():
    """calibrate, plan and audit take the file, too."""
    write([{"types": ["newmodel"], "kept": ["odd"]}])
    make("in", {f"{n}.weight": tensor([128, 128], 1) for n in (LINEAR, ODD)}, model_type="newmodel")
    p = cli.run("calibrate", "in", "--scheme", "W8A16", "-o", "scales.safetensors", "--architectures", "rows.json")
    equal(p.returncode, 0, f"calibrate: {p.stderr}")
    equal([n for n in cli.st_read("scales.safetensors")[0] if ODD in n], [], "calibrate: what is left has no scale")
    p = cli.run("plan", "in", "--schemes", "W8A16", "--architectures", "rows.json", "--table")
    equal((p.returncode, "of 1 modules" in p.stderr), (3, True), f"plan without sensitivity: {p.stderr}")
    quantize("in", "-o", "out", "--replace", "--architectures", "rows.json", scheme="W8A16")
    p = cli.run("audit", "out", "--architectures", "rows.json")
    equal(p.returncode, 0, f"audit: {p.stdout}")
    for command in (["audit", "out"], ["plan", "in", "--schemes", "W8A16"],
                    ["calibrate", "in", "--scheme", "W8A16", "-o", "x.safetensors"]):
        p = cli.run(*command, "--architectures", "missing.json")
        equal((p.returncode in (1, 2), "missing.json" in p.stderr), (True, True), f"{command[0]}: no file: {p.stderr}")


def test_parts():
    """Parts take the file of their runs to the audit of what they are joined to."""
    write([{"types": ["newmodel"], "kept": ["odd"], "head": ["thehead"]}])
    make("in", {f"{n}.weight": tensor([128, 128], 1) for n in (LINEAR, ODD)}, model_type="newmodel")
    p = quantize("in", "-o", "joined", "--part", "1/1", "--architectures", "rows.json", scheme="W8A16")
    equal(p.returncode, 0, f"part: {p.stderr}")
    p = cli.run("quantize", "--finish", "joined", "--json", "report.json")
    equal(p.returncode, 0, f"finish: {p.stderr}")
    equal(json.loads(read("report.json"))["knowledge"]["source"], "file", "the source of the joined output")


def test_refused():
    """What is wrong in a file is named with the file, the row and the member."""
    make("in", {f"{LAYER}.weight": tensor([128, 128], 1)}, model_type="llama")
    good = {"types": ["llama"]}
    for text, *words in (
            ("", "rows.json"), ("[]", "rows.json"), ("{}", "transformers"),
            (json.dumps({**VERSIONS}), "architectures: is null", "list of rows"),
            (json.dumps({**VERSIONS, "architectures": {}}), "architectures"),
            (json.dumps({**VERSIONS, "transformers": 5, "architectures": []}), "transformers: is 5", "5.24.0"),
            (json.dumps({**VERSIONS, "vllm": "", "architectures": []}), "vllm", "version"),
            (json.dumps({**VERSIONS, "vllm": "new", "architectures": []}), "vllm", "version"),
            (json.dumps({**VERSIONS, "source": "table", "architectures": []}), "source", "installed"),
            (json.dumps({**VERSIONS, "rows": [], "architectures": []}), "rows: is unknown"),
            (json.dumps({**VERSIONS, "architectures": [good, 3]}), "architectures[1]", "object"),
            (json.dumps({**VERSIONS, "architectures": [{}]}), "architectures[0].types", "empty"),
            (json.dumps({**VERSIONS, "architectures": [{"types": []}]}), "architectures[0].types", "empty")):
        refuse(text, *words)
    for member, value, *words in (
            ("heads", ["lm_head"], "no column"), ("head", "lm_head", "list of strings"), ("head", [1], "string"),
            ("head", ["a b"], "without spaces"), ("head", [""], "1 to 200"), ("head", ["x" * 201], "1 to 200"),
            ("head", ["a>b"], "without >"), ("vllm_keeps", ["a|b"], "without spaces and |"),
            ("renames", ["a"], "FROM>TO"), ("renames", [">a"], "FROM>TO"), ("renames", ["a>b>c"], "FROM>TO"),
            ("fused", ["a"], "a+b"), ("fused", ["a++b"], "a+b"), ("fused", ["a+"], "a+b"), ("fused", ["a+?"], "a+b"),
            ("plain_experts", "yes", "true or false"), ("lacks_vllm", 1, "true or false"), ("types", None, "list")):
        refuse(json.dumps({**VERSIONS, "architectures": [good, {**good, member: value}]}), "rows.json",
               f"architectures[1].{member}", *words)


def refuse(text, *words):
    with open("rows.json", "w", encoding="utf-8") as file:
        file.write(text)
    p = quantize("in", "-o", "refused", "--architectures", "rows.json", scheme="W8A16")
    refused(text, p, 2, *words)
    check(not os.path.exists("refused"), f"{text}: there is no output")


def test_table():
    """Without a file the table is the source, and the summary says so in one line."""
    make("in", {f"{LAYER}.weight": tensor([128, 128], 1)}, model_type="llama")
    p = cli.run("quantize", "in", "-o", "out", "--replace", "--json", "report.json", "--scheme", "W8A16")
    known = json.loads(read("report.json"))["knowledge"]
    equal((known["source"], known["vllm"].count("."), known["transformers"].count(".")), ("table", 2, 2), str(known))
    line = f"architecture: from the program's table, transformers {known['transformers']}, vLLM {known['vllm']}\n"
    equal(p.stdout.count(line), 1, f"the summary: {p.stdout}")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
