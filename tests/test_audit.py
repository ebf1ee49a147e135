#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of qobs audit: nothing is found in what qobs quantize writes, and every kind of damage is found.

    test_audit.py QOBS
"""
import json
import os
import random
import shutil
import struct
import sys

import cli
from cli import check, equal
from test_quantize_command import make_model, read, write



def quantize(scheme, *options):
    shutil.rmtree("out", ignore_errors=True)
    cli.run("quantize", "in", "--scheme", scheme, "--quiet", "-o", "out", *options).check_returncode()


def audit(*options):
    run = cli.run("audit", "out", "--json", *options)
    return run.returncode, json.loads(run.stdout) if run.stdout else run.stderr


def edit(change):
    """Lets a function change the tensors {name: [dtype, shape, bytes]} of the output."""
    data = read("out/model.safetensors")
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    tensors = {k: [v["dtype"], v["shape"], body[v["data_offsets"][0]:v["data_offsets"][1]]] for k, v in header.items()
               if k != "__metadata__"}
    change(tensors)
    write("out/model.safetensors", cli.st_bytes({k: tuple(v) for k, v in tensors.items()}))
    index = json.loads(read("out/model.safetensors.index.json"))
    index["weight_map"] = {k: "model.safetensors" for k in tensors}
    write("out/model.safetensors.index.json", json.dumps(index).encode())


def test_sound():
    make_model("in")
    for scheme in ("W4A16", "W4A16_ASYM", "W8A8", "W3A16", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4", "MXFP8"):
        quantize(scheme)
        status, report = audit("--against", "in")
        equal(status, 0, f"{scheme}: nothing is found {report if status else ''}")
        equal(len(report["layers"]), 6, f"{scheme}: layers")
        written = json.loads(cli.run("quantize", "in", "--scheme", scheme, "-o", "again", "--json",
                                     "-").stdout)["layers"]
        errors = {layer["name"]: layer["relative_error"] for layer in report["layers"]}
        check(all(abs(errors[w["name"]] - w["relative_error"]) <= 1e-3 * w["relative_error"] + 1e-6 for w in written),
              f"{scheme}: the errors are those that quantize reports", f"{errors} {written}")
        shutil.rmtree("again")


def damaged(what, scheme, change, word, *options):
    quantize(scheme, *options)
    edit(change)
    status, report = audit()
    equal(status, 3, f"{what}: exit status")
    check(any(word in f["finding"] for f in report["findings"]), f"{what}: {word}", str(report))


def test_damage():
    make_model("in")
    layer = "model.layers.1.self_attn.k_proj."

    def half(bits):
        return lambda t: t[layer + "weight_scale"].__setitem__(2, struct.pack("<H", bits) +
                                                               t[layer + "weight_scale"][2][2:])
    damaged("a scale of zero", "W4A16", half(0), "not above 0")
    damaged("a scale of infinity", "W4A16", half(0x7F80), "not above 0")
    damaged("a scale of NaN", "W4A16", half(0x7FC0), "not above 0")
    damaged("a negative scale", "W4A16", half(0xBF80), "not above 0")
    damaged("no scale", "W4A16", lambda t: t.pop(layer + "weight_scale"), "has no weight_scale")
    damaged("another dtype", "W8A8", lambda t: t[layer + "weight"].__setitem__(0, "U8"), "weight is U8")
    damaged("another shape", "W8A8", lambda t: t[layer + "weight_scale"].__setitem__(1, [1, 128]),
            "weight_scale is BF16 [1,128]")
    damaged("another weight_shape", "W4A16",
            lambda t: t[layer + "weight_shape"].__setitem__(2, struct.pack("<qq", 128, 12800)), "weight_shape")
    damaged("other global scales", "NVFP4A16",
            lambda t: t[layer + "weight_global_scale"].__setitem__(2, struct.pack("<f", 3)), "runs as one matrix")
    damaged("a global scale of zero", "NVFP4A16",
            lambda t: t[layer + "weight_global_scale"].__setitem__(2, struct.pack("<f", 0)), "the global scale is 0")
    damaged("codes in a small range", "W8A8",
            lambda t: t[layer + "weight"].__setitem__(2, bytes(b % 8 for b in t[layer + "weight"][2])),
            "largest magnitude")

    attention = "model.layers.1.self_attn"
    names = [f"model.layers.{i}.self_attn.{n}" for i in range(2) for n in ("q_proj.input", "k_states", "v_states")]
    write("acts",
          cli.st_bytes({n: ("BF16", [1, 128] if "input" in n else [1, 2, 1, 64], struct.pack("<H", 0x3F80) * 128)
                        for n in names}))
    activations = ("--activations", "acts")
    damaged("no input scale", "FP8", lambda t: t.pop(layer + "input_scale"), "has no input_scale", *activations)
    damaged("an input scale of zero", "FP8", lambda t: t[layer + "input_scale"].__setitem__(2, b"\0\0"),
            "input_scale: 1 of 1", *activations)
    damaged("an input scale of bytes", "FP8", lambda t: t.__setitem__(layer + "input_scale", ["I8", [1], b"\1"]),
            "input_scale is I8", *activations)
    damaged("no scale of values", "FP8", lambda t: t.pop(f"{attention}.v_scale"), "has no v_scale", *activations)
    damaged("an infinite global scale", "NVFP4",
            lambda t: t[layer + "input_global_scale"].__setitem__(2, struct.pack("<f", float("inf"))),
            "input_global_scale: 1 of 1", *activations)
    quantize("FP8", *activations)
    equal(audit()[0], 0, "static scales are sound")

    def unquantize(tensors):
        for name in [n for n in tensors if n.startswith(layer)]:
            del tensors[name]
        tensors[layer + "weight"] = ["BF16", [128, 128], bytes(2 * 128 * 128)]
    damaged("a weight that is not quantized", "W4A16", unquantize, "is not quantized")

    quantize("W4A16")
    config = json.loads(read("out/config.json"))
    config["quantization_config"]["ignore"] = [layer[:-1]]
    write("out/config.json", json.dumps(config).encode())
    status, report = audit()
    check(status == 3 and "ignores it" in str(report), "an ignored module that is quantized", str(report))


def test_errors():
    """An error that is not finite, or that zeros do not exceed, is a finding and stands first in the table."""
    make_model("in")
    layer = "model.layers.1.self_attn.k_proj"

    def scales(number, count=None):
        def change(t):
            raw = t[f"{layer}.weight_scale"][2]
            n = (len(raw) if count is None else 2 * count)
            t[f"{layer}.weight_scale"][2] = struct.pack("<H", number) * (n // 2) + raw[n:]
        return change

    for scheme in ("W4A16", "W4A16_ASYM", "W8A8", "FP8_DYNAMIC"):
        for what, bits, count, words in (("3e38", 0x7F62, None, "not finite"),
                                         ("one scale of 3e38", 0x7F62, 1, "not finite"),
                                         ("the smallest number", 1, None, "100 %"), ("1e-30", 0x0DA2, None, "100 %")):
            quantize(scheme)
            edit(scales(bits, count))
            status, report = audit("--against", "in")
            what = f"{scheme}, {what}"
            findings = {f["module"]: f["finding"] for f in report["findings"]}
            equal(status, 3, f"{what}: exit status")
            check(list(findings) == [layer] and words in findings[layer], f"{what}: {words}", str(findings))
            errors = {e["name"]: e["relative_error"] for e in report["layers"]}
            equal((len(errors), errors[layer] is None), (6, words == "not finite"),
                  f"{what}: every layer has its error")
            table = cli.run("audit", "out", "--against", "in").stdout.splitlines()
            check(table[2].split() == ["error", "of", "weights", "layer"] and table[3].endswith(layer)
                  and words.split()[0] in table[3], f"{what}: the table begins with it",
                  "\n".join(table))
    quantize("W2A16")
    equal(audit("--against", "in")[0], 0, "two bits, whose errors are large")


def test_large_originals():
    """Squares beyond float are no fault of the output; the layer has no error, and is in the table."""
    make_model("in")
    name = "model.layers.0.self_attn.q_proj"
    tensors, metadata = cli.st_read("in/model.safetensors")
    files = {n: (d, s, cli.pack(d, [x * 2.0 ** 100 for x in v] if n == f"{name}.weight" else v))
             for n, (d, s, v) in tensors.items()}
    write("in/model.safetensors", cli.st_bytes(files, metadata))
    quantize("W4A16")
    status, report = audit("--against", "in")
    equal((status, report["findings"]), (0, []), "no finding")
    equal([e["relative_error"] for e in report["layers"] if e["name"] == name], [None], "no error")
    check(f"not finite  {name}" in cli.run("audit", "out", "--against", "in").stdout, "the table")


def test_codes_used():
    """Integers reach one further below zero than above it."""
    make_model("in")
    for scheme, part, lowest, share in (("W8A8", "weight", b"\x80", 128 / 127),
                                        ("W4A16", "weight_packed", b"\0", 8 / 7)):
        quantize(scheme)
        layer = audit()[1]["layers"][0]
        check(0.9 < layer["codes_used"] <= share, f"{scheme}: codes used", str(layer))
        name = f"{layer['name']}.{part}"
        edit(lambda t: t[name].__setitem__(2, lowest * len(t[name][2])))
        equal(audit()[1]["layers"][0]["codes_used"], share, f"{scheme}: lowest codes only")


def test_sizes():
    """Sizes are those of the format: bytes of another dtype than the format's are no two codes each."""
    shutil.copytree(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/tinylm"), "in",
                    dirs_exist_ok=True)
    for scheme, dtype in (("W8A8", "U8"), ("NVFP4A16", "I8"), ("FP8_DYNAMIC", "U8")):
        quantize(scheme)
        equal(audit()[0], 0, f"{scheme}: sizes are right")
        part = "weight_packed" if scheme == "NVFP4A16" else "weight"
        edit(lambda t: t["model.layers.0.mlp.gate_proj." + part].__setitem__(0, dtype))
        found = [f["finding"] for f in audit()[1]["findings"]]
        check(len(found) == 1 and f"{part} is {dtype} [768,{128 if scheme == 'NVFP4A16' else 256}]" in found[0],
              f"{scheme}: another dtype is one finding", str(found))


def test_signed_scales():
    """Negative scales are right if config.json says that they were searched, in one run, in parts and in a calibration;
    0 and infinity never are."""
    make_model("in")
    source = random.Random(0)
    write("in/model.safetensors", cli.st_bytes({
        name: (dtype, shape, cli.pack(dtype, [source.gauss(0, 1) for _ in values]))
        for name, (dtype, shape, values) in cli.st_read("in/model.safetensors")[0].items()}))
    layer, options = "model.layers.1.self_attn.k_proj.weight_scale", ("--preset", "qobs.mse_optimal", "--set",
                                                                      "signed_scale=true")
    quantize("W4A16", *options)
    edit(lambda t: check(all(any(b & 0x80 for b in t[n][2][1::2]) for n in t if n.endswith("_scale")),
                         "some scales are negative"))
    status, report = audit("--against", "in")
    equal((status, report["findings"]), (0, []), "negative scales that were searched")
    check(max(entry["relative_error"] for entry in report["layers"]) < 0.12, "their weights are right",
          str(report["layers"]))
    for part in ("1/2", "2/2"):
        run("quantize", "in", "--scheme", "W4A16", "-o", "parts", "--part", part, "--quiet", *options)
    equal(run("quantize", "--finish", "parts").returncode, 0, "negative scales that were searched in parts")
    for what, bits in (("0", 0), ("-0", 0x8000), ("infinity", 0x7F80), ("-infinity", 0xFF80), ("NaN", 0xFFC0)):
        damaged(f"a scale of {what} among negative ones", "W4A16",
                lambda t, bits=bits: t[layer].__setitem__(2, struct.pack("<H", bits) + t[layer][2][2:]),
                "1 of 128 scales are not other than 0 and finite", *options)
    quantize("W4A16", *options)
    config = json.loads(read("out/config.json"))
    config["quantization_config"]["config_groups"]["config_group_0"]["weights"]["observer_kwargs"] = {}
    write("out/config.json", json.dumps(config).encode())
    status, report = audit()
    check(status == 3 and "not above 0" in str(report), "negative scales that nothing searched", str(report))
    config["quantization_config"]["config_groups"]["config_group_0"]["weights"]["observer"] = None
    write("out/config.json", json.dumps(config).encode())
    equal(audit()[0], 0, "integers of AutoRound, which names no observer: about half of their scales are negative")


def wrong_model():
    """A model with a matrix that does not have the size of config.json."""
    make_model("in")
    data = cli.st_bytes({"model.embed_tokens.weight": ("BF16", [8, 64], bytes(2 * 8 * 64))})
    write("in/more.safetensors", data)
    header = json.loads(read("in/model.safetensors")[8:].split(b"}}")[0] + b"}}")
    names = {n: "model.safetensors" for n in header} | {"model.embed_tokens.weight": "more.safetensors"}
    write("in/model.safetensors.index.json", json.dumps({"weight_map": names}).encode())
    write("in/config.json", json.dumps({"model_type": "llama", "hidden_size": 128}).encode())


def run(*options):
    return cli.run(*options)


def test_publish():
    """An output with a fault never gets its name, unless it is asked for; upstream's bytes always do."""
    wrong_model()
    p = run("quantize", "in", "--scheme", "W4A16", "-o", "out")
    equal((p.returncode, p.stdout), (3, ""), "a fault in the output: exit status")
    check("embed_tokens" in p.stderr and "--keep-findings" in p.stderr, "a fault in the output: the message", p.stderr)
    equal(sorted(os.listdir(".")), ["in"], "a fault in the output: nothing is left")
    p = run("quantize", "in", "--scheme", "W4A16", "-o", "out", "--keep-findings", "--json", "report.json")
    equal(p.returncode, 3, "--keep-findings: exit status")
    check("warning" in p.stderr and "embed_tokens" in p.stderr, "--keep-findings: a warning", p.stderr)
    equal([f["module"] for f in json.loads(read("report.json"))["findings"]], ["model.embed_tokens"],
          "--keep-findings: the report names it")
    equal(audit()[0], 3, "--keep-findings: the audit of the output finds the same")
    shutil.copytree("out", "whole")
    shutil.rmtree("out")
    for part in ("1/2", "2/2"):
        equal(run("quantize", "in", "--scheme", "W4A16", "-o", "out", "--part", part, "--quiet").returncode, 0,
              f"part {part} is not audited")
    p = run("quantize", "--finish", "out")
    check(p.returncode == 3 and "--keep-findings" in p.stderr, "--finish: a fault in the output", p.stderr)
    check(not os.path.exists("out") and len(os.listdir("out.parts")) == 2, "--finish: the parts stay")
    equal(run("quantize", "--finish", "out", "--keep-findings").returncode, 3, "--finish --keep-findings")
    equal({n: read(f"out/{n}") for n in os.listdir("out")}, {n: read(f"whole/{n}") for n in os.listdir("whole")},
          "--finish --keep-findings: the bytes of one run")
    shutil.rmtree("out")
    write("keep", b"old")
    os.mkdir("out")
    write("out/old", b"old")
    p = run("quantize", "in", "--scheme", "W4A16", "-o", "out", "--replace")
    equal((p.returncode, os.listdir("out")), (3, ["old"]), "--replace: the old directory stays")


def test_refused():
    make_model("in")
    run = cli.run("audit", "in")
    check(run.returncode == 2 and "is not quantized" in run.stderr and "reads what quantize writes" in run.stderr,
          "a model that is not quantized", run.stderr)
    for method in ("hqq", None):
        with open("in/config.json", "w", encoding="utf-8") as file:
            json.dump({"quantization_config": {"quant_method": method}}, file)
        run = cli.run("audit", "in")
        check(run.returncode == 2 and f"quant_method is {json.dumps(method)}" in run.stderr, f"the method {method}",
              run.stderr)
    shutil.rmtree("in")
    make_model("in")
    run = cli.run("audit", "none")
    check(run.returncode == 2 and "none" in run.stderr, "no directory", run.stderr)
    quantize("W4A16")
    os.truncate("out/model.safetensors", 2000)
    run = cli.run("audit", "out")
    check(run.returncode == 2 and "model.safetensors" in run.stderr, "a shard that is cut off", run.stderr)


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if k != "test_quantize_command"}))
