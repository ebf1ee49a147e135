#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Importance of columns: imatrix files of llama.cpp and recordings that mean the same give the same checkpoint, and
damaged files are refused.

    test_importance.py QOBS
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys

import cli
from cli import check, equal, read, write

QOBS = os.path.abspath(sys.argv[1])
WIDTH = 64
MODULES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
           "self_attn.o_proj": "attn_output", "mlp.down_proj": "ffn_down"}
EXPERTS = 3
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def numbers(seed, count, choices):
    generator = random.Random(seed)
    return [generator.choice(choices) for _ in range(count)]


def names():
    """Module of transformers, weight of llama.cpp, number of the expert."""
    out = [(f"model.layers.{i}.{ours}", f"blk.{i}.{theirs}.weight", 0)
            for i in range(2) for ours, theirs in MODULES.items()]
    return out + [(f"model.layers.0.block_sparse_moe.experts.{e}.w1",
                   "blk.0.ffn_gate_exps.weight", e) for e in range(EXPERTS)]


def squares(module):
    """Mean squares that are squares of powers of two, so that all ways to them are exact."""
    return numbers(f"importance of {module}", WIDTH, [2.0 ** -8, 2.0 ** -4, 1.0, 2.0 ** 4, 2.0 ** 8])


def entries(modules=None):
    """Weight of llama.cpp -> mean squares of each matrix."""
    out = {}
    for module, theirs, expert in modules or names():
        out.setdefault(theirs, []).append(squares(module))
    return out


def old_form(matrices, calls=2, extra=b""):
    out = struct.pack("<i", len(matrices))
    for name, rows in matrices.items():
        flat = [x * calls for row in rows for x in row]
        out += struct.pack(f"<i{len(name)}sii{len(flat)}f", len(name), name.encode(), calls, len(flat), *flat)
    return out + extra


def gguf(matrices, count=4.0, version=3, alignment=32, sums_type=0):
    """A file with one value of every type before it."""
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()
    numbers = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    values = [text("general.type") + struct.pack("<I", 8) + text("imatrix"),
              text("general.alignment") + struct.pack("<II", 4, alignment),
              text("imatrix.datasets") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
              text("some") + struct.pack("<IIQ3h", 9, 3, 3, 1, 2, 3)]
    values += [text(f"value.{kind}") + struct.pack(f"<I{letter}", kind, 1) for kind, letter in numbers.items()]
    tensors = {}
    for name, rows in matrices.items():
        counts = [count if isinstance(count, float) else count.get(name, 4.0)] * len(rows)
        tensors[f"{name}.in_sum2"] = ([WIDTH, len(rows)] if len(rows) > 1 else [WIDTH],
                                      [x * max(c, 1) for row, c in zip(rows, counts) for x in row])
        tensors[f"{name}.counts"] = ([1, len(rows)], counts)
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + b"".join(values)
    data = b""
    for name, (shape, flat) in tensors.items():
        data += b"\0" * (-len(data) % alignment)
        out += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        out += struct.pack("<IQ", sums_type if name.endswith("in_sum2") else 0, len(data))
        data += struct.pack(f"<{len(flat)}f", *flat)
    return out + b"\0" * (-len(out) % alignment) + data


def make_model(shards=1):
    weights = {}
    for module, _, _ in names():
        values = numbers(module, WIDTH * WIDTH, [x / 64 for x in range(-64, 65)])
        weights[f"{module}.weight"] = ("F32", [WIDTH, WIDTH], struct.pack(f"<{len(values)}f", *values))
    weights["lm_head.weight"] = weights["model.layers.0.self_attn.q_proj.weight"]
    os.makedirs("model")
    if shards == 1:
        write("model/model.safetensors", cli.st_bytes(weights))
    else:
        of_shard = {name: SHARDS[".1." in name] for name in weights}
        for shard in SHARDS:
            write(f"model/{shard}", cli.st_bytes({n: w for n, w in weights.items() if of_shard[n] == shard}))
        write("model/model.safetensors.index.json", json.dumps({"weight_map": of_shard}).encode())
    write("model/config.json", b'{"model_type": "mixtral"}')
    recorded = {}
    for module, _, _ in names():
        row = [x ** 0.5 for x in squares(module)]
        recorded[f"{module}.input"] = ("F32", [1, WIDTH], struct.pack(f"<{WIDTH}f", *row))
    write("recorded.safetensors", cli.st_bytes(recorded))
    write("matrix.gguf", gguf(entries()))
    write("matrix.dat", old_form(entries()))


NEEDS_IMPORTANCE = ("llmc.imatrix_mse", "qobs.imatrix_optimal", "qobs.local_hessian")


def quantize(out, *options, preset="llmc.imatrix_mse", group="32"):
    shutil.rmtree(out, ignore_errors=True)
    command = [QOBS, "quantize", "model", "--scheme", "W4A16", "--preset", preset, "--set", f"group_size={group}",
               "--json", "-", "-o", out, *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lacks = preset in NEEDS_IMPORTANCE and "--importance" not in options
    if run.returncode == (3 if lacks else 0):
        return b"".join(read(f"{out}/{n}") for n in sorted(os.listdir(out))
                        if n.endswith(".safetensors")), json.loads(run.stdout)
    return run


def refused(what, words, *options, **keywords):
    run = quantize("refused", *options, **keywords)
    if isinstance(run, tuple):
        check(False, f"{what}: is accepted")
        return
    lines = run.stderr.splitlines()
    equal(run.returncode, 2, f"{what}: exit status")
    check(len(lines) == 1 and all(word in run.stderr for word in words),
          f"{what}: one line with {', '.join(words)}", run.stderr)
    check(not os.path.exists("refused"), f"{what}: no output")


def test_sources_agree():
    make_model()
    plain, report = quantize("out")
    check(not any("importance" in layer for layer in report["layers"]), "the report without importance")
    wanted, report = quantize("out", "--importance", "recorded.safetensors")
    check(wanted != plain, "importance changes the scales")
    check(all(layer["importance"] for layer in report["layers"])
          and len(report["layers"]) == len(names()), "the report")
    shutil.copy("matrix.dat", "matrix.imatrix")
    for source in ("matrix.gguf", "matrix.dat", "matrix.imatrix"):
        equal(quantize("out", "--importance", source)[0], wanted, source)
    for name, data in {"v2.gguf": gguf(entries(), version=2), "aligned.gguf": gguf(entries(), count=1.0, alignment=64),
                       "more.dat": old_form(entries(), calls=1, extra=struct.pack("<i", 7) + b"dataset")}.items():
        write(name, data)
        equal(quantize("out", "--importance", name)[0], wanted, name)
    other, _ = quantize("out", "--importance", "matrix.gguf", preset="llmc.memoryless_mse")
    check(other != quantize("out", preset="llmc.memoryless_mse")[0], "another search is weighed, too")


def test_calibrate():
    make_model()
    outputs = []
    for source in ("recorded.safetensors", "matrix.gguf", "matrix.dat"):
        subprocess.run([QOBS, "calibrate", "model", "--scheme", "W4A16", "--preset", "llmc.imatrix_mse", "--set",
                        "group_size=32", "--importance", source, "-o", "out.safetensors", "--json", "report.json",
                        "--quiet"],
                       check=True)
        outputs.append(read("out.safetensors"))
        searches = [layer["search"] for layer in json.loads(read("report.json"))["layers"]]
        check(all("importance" in s for s in searches), f"calibrate: importance of {source}", str(searches[0]))
    check(outputs[0] == outputs[1] == outputs[2], "calibrate: sources agree")


def scales(data):
    """The tensors *_scale of a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    return {name: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
            for name, t in header.items() if name.endswith("_scale")}


def test_optimal_scales():
    """Presets that find scales: sources agree, both commands find the same, an error is what it was or less."""
    make_model()
    wanted, report = quantize("out", "--importance", "recorded.safetensors", preset="qobs.imatrix_optimal")
    equal(quantize("out", "--importance", "matrix.gguf", preset="qobs.imatrix_optimal")[0], wanted,
          "imatrix_optimal: a matrix")
    check(wanted != quantize("out", preset="qobs.mse_optimal")[0], "importance changes the optimal scales")
    for block in ("0", "16", "64"):
        block_size = ("--set", f"hessian_block_size={block}")
        data, report = quantize("out", *block_size, "--importance", "recorded.safetensors", preset="qobs.local_hessian")
        for layer in report["layers"]:
            search = layer["search"]
            check(search["weighted"] and search["error"] <= search["error_before"], f"block {block}: {layer['name']}",
                  str(search))
        if block != "64":
            subprocess.run([QOBS, "calibrate", "model", "--scheme", "W4A16", "--preset", "qobs.local_hessian", "--set",
                            "group_size=32", *block_size, "--importance", "recorded.safetensors", "-o",
                            "out.safetensors", "--quiet"], check=True)
        files = [read(f"out/{n}") for n in sorted(os.listdir("out")) if n.endswith(".safetensors")]
        stored = {name: scale for file in files for name, scale in scales(file).items()}
        found = scales(read("out.safetensors"))
        common = set(stored) & set(found)
        check(block == "64" or (common and all(stored[n] == found[n] for n in common)),
              f"block {block}: calibrate agrees")
    refused("mean squares for a Hessian", ["local_hessian", "recorded"], "--importance", "matrix.gguf",
            preset="qobs.local_hessian")
    run = subprocess.run([QOBS, "calibrate", "model", "--scheme", "W4A16", "--set", "group_size=32", "--preset",
                          "qobs.local_hessian", "--importance", "matrix.gguf", "-o", "none.safetensors"],
                          capture_output=True, text=True, check=False)
    check(run.returncode == 2 and "recorded activations" in run.stderr and not os.path.exists("none.safetensors"),
          "calibrate: mean squares for a Hessian", run.stderr)


def test_missing():
    make_model()
    # q_proj is there, so that k_proj and v_proj use its input; o_proj and others have none.
    write("some.gguf", gguf(entries([names()[0]])))
    _, report = quantize("out", "--importance", "some.gguf")
    weighted = [layer["name"] for layer in report["layers"] if "importance" in layer]
    equal(sorted(weighted), [f"model.layers.0.self_attn.{k}_proj" for k in "kqv"], "fused layers have one input")
    check(any("10 of 13" in w for w in report["warnings"]), "a warning", str(report["warnings"]))
    write("other.gguf", gguf({"blk.7.attn_q.weight": [[1.0] * WIDTH]}))
    refused("names of another model", ["importance", "13", "blk.0.attn_q.weight"], "--importance", "other.gguf")
    plain, _ = quantize("out")
    write("never.gguf", gguf(entries(), count=0.0))
    equal(quantize("out", "--importance", "never.gguf")[0], plain, "columns without calls count alike")
    both, _ = quantize("out", "--importance", "never.gguf", "--importance", "matrix.gguf")
    equal(both, quantize("out", "--importance", "matrix.gguf")[0], "the last file counts")


def test_none_at_all():
    """A search that needs inputs says that it has none, from each command and from a recipe, with status 3."""
    make_model()
    way_out = ("weighs columns by the inputs", "--states DIR of libqobs.calibration, or --importance FILE")

    def lacking(what, words, *arguments):
        p = cli.run(*arguments)
        check(p.returncode == 3 and p.stderr.count("\n") == 1 and all(w in p.stderr for w in words),
              f"{what}: named once", f"{p.returncode} {p.stderr}")

    for preset in NEEDS_IMPORTANCE:
        common = ("--set", "group_size=32", "--preset", preset, "--quiet")
        lacking(f"{preset}: quantize", (preset, *way_out), "quantize", "model", "--scheme", "W4A16", *common, "-o",
                "out", "--replace", "--json", "report.json")
        equal(json.loads(read("report.json")).get("incomplete"), True, f"{preset}: the report")
        lacking(f"{preset}: calibrate", (preset, *way_out), "calibrate", "model", "--scheme", "W4A16", *common, "-o",
                "scales.safetensors")
        p = cli.run("plan", "model", "--schemes", "W4A16", *common)
        check(p.returncode == 3 and p.stderr.count(way_out[0]) == 1, f"{preset}: plan", p.stderr)
    write("recipe.yaml", b"""m: {QuantizationModifier: {ignore: [], config_groups: {group_0: {targets: [Linear],
weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32, observer: imatrix_mse}}}}}
""")
    lacking("a recipe", ("llmc.imatrix_mse", *way_out), "quantize", "model", "--recipe", "recipe.yaml", "--quiet", "-o",
            "of_recipe")
    lacking("another strategy", ("strategy tensor", "channel, group and tensor_group"), "calibrate", "model",
            "--scheme", "FP8_DYNAMIC", "--set", "strategy=tensor", "--preset", "llmc.imatrix_mse", "--quiet", "-o",
            "fp8.safetensors")
    cli.fine("a search that needs none", "calibrate", "model", "--scheme", "W4A16", "--set", "group_size=32",
             "--preset", "llmc.memoryless_mse", "--quiet", "-o", "scales.safetensors")
    p = cli.run("quantize", "model", "--scheme", "W4A16", "--set", "group_size=32", "--preset", "llmc.imatrix_mse",
                "--quiet", "--compat", "llm-compressor", "-o", "compatible")
    check(p.returncode == 0 and way_out[0] in p.stderr, "as upstream: a warning", f"{p.returncode} {p.stderr}")


def test_refusals():
    make_model()
    gguf_option, nan, wide = ("--importance", "matrix.gguf"), entries(), entries()
    refused("an observer that does not search", ["importance", "searched", "mse"], *gguf_option,
            preset="llmc.memoryless_minmax")
    refused("no such file", ["nothing.dat"], "--importance", "nothing.dat")
    write("text.txt", b"hello\n")
    refused("a file of no known kind", ["text.txt", ".safetensors", ".npy", "imatrix", "GGUF", ".dat"], "--importance",
            "text.txt")
    for bad in (float("nan"), float("inf"), -1.0):
        nan["blk.1.ffn_down.weight"][0][5] = bad
        for name, data in (("bad.gguf", gguf(nan)), ("bad.dat", old_form(nan))):
            write(name, data)
            refused(f"{bad} in {name}", [name, "blk.1.ffn_down.weight", "value 5"], "--importance", name)
    wide["blk.1.attn_q.weight"] = [[1.0] * (WIDTH // 2)]
    write("bad.dat", old_form(wide))
    refused("another number of columns", ["bad.dat", "blk.1.attn_q.weight",
            "32 values", "64 columns"], "--importance", "bad.dat")
    few = entries()
    few["blk.0.ffn_gate_exps.weight"].pop()
    write("bad.gguf", gguf(few))
    refused("too few experts", ["2 matrices", "number 2"], "--importance", "bad.gguf")
    negative = gguf(entries(), count={"blk.0.attn_q.weight": -1.0})
    for what, data, words in (("version", gguf(entries(), version=9), ["version 9"]),
                              ("another dtype", gguf(entries(), sums_type=26), ["F32"]),
                              ("no tensors", gguf({}), ["in_sum2"]), ("empty", b"GGUF", ["cut off"]),
                              ("a negative count", negative, ["blk.0.attn_q.weight"])):
        write("bad.gguf", data)
        refused(what, ["bad.gguf", *words], "--importance", "bad.gguf")
    for what, data in (("empty", b""), ("no entries", bytes(4)), ("a negative length", struct.pack("<ii", 1, -4)),
                       ("a zero byte", old_form({"a\0b": [[1.0]]})),
                       ("a name twice", old_form({"a": [[1.0]]})[:0] + struct.pack(
                           "<i", 2) + 2 * old_form({"a": [[1.0]]})[4:])):
        write("bad.dat", data)
        refused(what, ["bad.dat"], "--importance", "bad.dat")


def test_damaged_files():
    """Cut off anywhere, or with any byte changed: refused with one line, or read; never anything else."""
    make_model()
    generator = random.Random(1)
    for name in ("matrix.gguf", "matrix.dat"):
        whole = read(name)
        cuts = [*range(0, 200, 5), *generator.sample(range(200, len(whole)), 40), len(whole) - 1]
        for cut in cuts:
            write("cut" + name[-5:], whole[:cut])
            run = quantize("out", "--importance", "cut" + name[-5:])
            check(not isinstance(run, tuple) and run.returncode ==
                  2 and run.stderr.count("\n") == 1, f"{name}: {cut} bytes", str(run))
        for _ in range(80):
            data = bytearray(whole)
            for _ in range(generator.choice((1, 4))):
                data[generator.randrange(min(len(data), 2500))] = generator.choice((0, 1, 127, 128, 255))
            write("changed" + name[-5:], bytes(data))
            run = quantize("out", "--importance", "changed" + name[-5:])
            if not isinstance(run, tuple):
                check(run.returncode == 2 and run.stderr.count("\n") == 1, f"{name}: changed bytes", str(run))


def test_parts():
    """Parts give the bytes of one run, and must have the same importance."""
    make_model(shards=2)
    _, _ = quantize("whole", "--importance", "matrix.gguf")
    write("other.gguf", gguf({"blk.0.attn_q.weight": [[1.0, *squares("other")[1:]]]}))
    for last, status in (("other.gguf", 2), ("matrix.gguf", 0)):
        for i, source in ((1, "matrix.gguf"), (2, last)):
            subprocess.run([QOBS, "quantize", "model", "--scheme", "W4A16", "--preset", "llmc.imatrix_mse", "--set",
                            "group_size=32", "--importance", source, "-o", "out", "--part", f"{i}/2", "--quiet",
                            "--replace"],
                           check=True)
        run = subprocess.run([QOBS, "quantize", "--finish", "out", "--quiet"], capture_output=True, check=False)
        equal(run.returncode, status, f"parts with {last}")
    for name in SHARDS:
        equal(read(f"out/{name}"), read(f"whole/{name}"), f"parts: {name}")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
