#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""qobs quantize --set rounding=descent: codes with a smaller error of the outputs and the scales of nearest codes, the
same bytes for every number of threads, instruction set and number of parts.

    test_rounding.py QOBS
"""
import json
import math
import operator
import os
import random
import re
import struct
import subprocess

import cli
from cli import check, equal, read, run, st_bytes, st_read, write

LAYERS, ROWS, COLUMNS, TOKENS, GROUP = 2, 40, 96, 50, 32
MODULES = [f"model.layers.{i}.self_attn.{m}_proj" for i in range(LAYERS) for m in "qkvo"]
FORMATS = {"int4": ("W4A16", ["group_size=32"]), "int3 asymmetric": ("W4A16_ASYM", ["group_size=32", "num_bits=3"]),
           "int8": ("W8A16", ["group_size=32"]), "NVFP4": ("NVFP4A16", [])}
E2M1 = (0, .5, 1, 1.5, 2, 3, 4, 6)


def fine(what, *arguments):
    """Checks the exit status, and that packed zero points alone bring a warning: which transformers reads them."""
    p = run(*arguments)
    packed = bool({"W4A16_ASYM", "parts"} & set(arguments))
    others = [line for line in p.stderr.splitlines() if not (packed and "reads no packed zero points" in line)]
    check(p.returncode == 0 and not others and bool(p.stderr) == packed, what,
          f"exit status {p.returncode}: {p.stderr.strip()}")
    return p.stdout


def matrix(name, rows, size):
    generator = random.Random(name)
    shared = [generator.gauss(0, 1) for _ in range(COLUMNS)]
    numbers = []
    for _ in range(rows):
        common = generator.gauss(0, size)
        numbers += [common * s + generator.gauss(0, 1) for s in shared]
    return cli.pack("BF16", numbers)


def make_model():
    os.mkdir("model")
    half = len(MODULES) // 2
    shards = {"model-00001-of-00002.safetensors": MODULES[:half], "model-00002-of-00002.safetensors": MODULES[half:]}
    where = {f"{m}.weight": shard for shard, modules in shards.items() for m in modules}
    for shard, modules in shards.items():
        write(f"model/{shard}", st_bytes({f"{m}.weight": ("BF16", [ROWS, COLUMNS], matrix(m, ROWS, 0))
                                          for m in modules}))
    write("model/model.safetensors.index.json", json.dumps({"weight_map": where}).encode())
    write("model/config.json", b'{"model_type": "llama"}')
    write("inputs.safetensors", st_bytes({f"{m}.input": ("BF16", [TOKENS, COLUMNS], matrix(m[:-6], TOKENS, 1))
                                          for m in MODULES}))


def command(form, out, *options, rounding="descent"):
    scheme, settings = FORMATS[form]
    settings = settings + ([f"rounding={rounding}"] if rounding else [])
    settings += [] if "hessian_block_size=0" in options else ["hessian_block_size=96"]
    return ["quantize", "model", "--scheme", scheme, "--preset", "qobs.local_hessian", "--importance",
            "inputs.safetensors", "-o", out, "--quiet", *(w for s in settings for w in ("--set", s)), *options]


def tree(folder):
    return {name: read(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}


def tensors(folder):
    return {k: v for name in os.listdir(folder) if name.endswith(".safetensors")
            for k, v in st_read(os.path.join(folder, name))[0].items()}


def e4m3(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    return (mantissa / 8 * 2.0 ** -6) if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def bits_of(words, width, bits, count):
    """The numbers of a row of packed words."""
    stream = sum((w & (1 << width) - 1) << width * i for i, w in enumerate(words))
    return [stream >> bits * i & (1 << bits) - 1 for i in range(count)]


def row_numbers(found, module, row, form):
    """A dequantized row, exactly."""
    if form == "NVFP4":
        packed, scales = found[f"{module}.weight_packed"][2], found[f"{module}.weight_scale"][2]
        global_scale = found[f"{module}.weight_global_scale"][2][0]
        codes = bits_of(packed[row * COLUMNS // 2:(row + 1) * COLUMNS // 2], 8, 4, COLUMNS)
        return [(-1 if c & 8 else 1) * E2M1[c & 7] * e4m3(scales[(row * COLUMNS + i) // 16]) / global_scale
                for i, c in enumerate(codes)]
    bits, words = {"int4": (4, 12), "int3 asymmetric": (3, 9), "int8": (8, 24)}[form]
    codes = bits_of(found[f"{module}.weight_packed"][2][row * words:(row + 1) * words], 32, bits, COLUMNS)
    groups = COLUMNS // GROUP
    zeros = [1 << bits - 1] * groups
    if "asymmetric" in form:
        packed = found[f"{module}.weight_zero_point"][2]
        zeros = [bits_of(packed[g::groups], 32, bits, ROWS)[row] for g in range(groups)]
    scales = found[f"{module}.weight_scale"][2][row * groups:(row + 1) * groups]
    return [(c - zeros[i // GROUP]) * scales[i // GROUP] for i, c in enumerate(codes)]


def output_error(found, module, form):
    """The mean square of the errors of the outputs over the recorded tokens, rows added."""
    weights = tensors("model")[f"{module}.weight"][2]
    inputs = st_read("inputs.safetensors")[0][f"{module}.input"][2]
    total = 0.0
    for row in range(ROWS):
        numbers = row_numbers(found, module, row, form)
        d = [w - n for w, n in zip(weights[row * COLUMNS:(row + 1) * COLUMNS], numbers)]
        for t in range(TOKENS):
            total += sum(map(operator.mul, d, inputs[t * COLUMNS:(t + 1) * COLUMNS])) ** 2
    return total / TOKENS


def close(got, want):
    return abs(got - want) <= 2e-3 * want


def test_errors():
    make_model()
    for form in FORMATS:
        fine(form, *command(form, "nearest", "--replace", rounding=None))
        fine(form, *command(form, "descent", "--replace", "--json", "report.json"))
        report = json.loads(read("report.json"))
        before, after = tensors("nearest"), tensors("descent")
        for name in before:
            same = before[name] == after[name]
            check(same != name.endswith("_packed"), f"{form}: {name}: the codes change and nothing else")
        for layer in report["layers"][:2]:
            rounding, name = layer["rounding"], layer["name"]
            check(rounding["changed"] > 0 and rounding["error"] < 0.8 * rounding["error_before"], f"{form}: {rounding}")
            nearest, descent = (output_error(found, name, form) for found in (before, after))
            check(close(rounding["error_before"], nearest), f"{form}: {name}: error of the nearest codes",
                  f"{rounding['error_before']} {nearest}")
            check(close(rounding["error"], descent), f"{form}: {name}: error after descent",
                  f"{rounding['error']} {descent}")
        fine(form, *command(form, "named", "--replace", rounding="nearest"))
        equal(tensors("named"), before, f"{form}: rounding=nearest")


def test_same_bytes():
    make_model()
    fine("one", *command("int3 asymmetric", "one", "--threads", "1"))
    expected = tree("one")
    for isa in cli.instruction_sets():
        for threads in cli.thread_counts():
            fine("threads", *command("int3 asymmetric", "out", "--replace", "--threads", threads, "--isa", isa))
            equal(tree("out"), expected, f"{isa}, {threads} threads")
    for part in (2, 1):
        fine("part", *command("int3 asymmetric", "parts", "--part", f"{part}/2"))
    fine("finish", "quantize", "--finish", "parts", "--quiet")
    equal(tree("parts"), expected, "two parts")


def test_groups_alone():
    """passes=0: the scales are those of each group under its own Hessian."""
    make_model()
    for form in ("int3 asymmetric", "NVFP4"):
        fine(form, *command(form, "row", "--replace", "--set", "passes=0", rounding=None))
        fine(form, *command(form, "group", "--replace", "--set", "hessian_block_size=0", rounding=None))
        equal(tensors("row"), tensors("group"), f"{form}: passes=0")


def test_recipe():
    make_model()
    fine("one", *command("int4", "one"))
    write("recipe.yaml", b"""stage:
  modifiers:
    QuantizationModifier:
      ignore: []
      config_groups:
        group_0:
          targets: [Linear]
          weights: {num_bits: 4, type: int, symmetric: true, strategy: group, group_size: 32,
                    observer: qobs.local_hessian, observer_kwargs: {hessian_block_size: 96, rounding: descent}}
""")
    fine("recipe", "quantize", "model", "--recipe", "recipe.yaml", "--importance", "inputs.safetensors", "-o", "out",
         "--quiet")
    equal(tensors("out"), tensors("one"), "a recipe with observer_kwargs")


# ---- Importance that cannot be used ----------------------------------------------------------------------------------

def of_columns(columns, numbers, tokens=4):
    return {f"{m}.input": ("F32", [tokens, columns], struct.pack(f"<{tokens * columns}f", *numbers[:tokens * columns]))
            for m in MODULES}


def test_unusable_recordings():
    """Recordings and states of which no Hessian can be made are refused by each search that weighs columns, with the
    reason, whether all layers have them or one."""
    make_model()
    good, _ = st_read("inputs.safetensors")
    good = {name: (dtype, shape, cli.pack(dtype, numbers)) for name, (dtype, shape, numbers) in good.items()}
    ones = [1.0] * 4 * 128
    cases = {"64 columns": of_columns(64, ones), "128 columns": of_columns(128, ones),
             "no tokens": of_columns(COLUMNS, ones, 0),
             "NaN": of_columns(COLUMNS, [math.nan, *ones]), "infinity": of_columns(COLUMNS, [math.inf, *ones]),
             "zeros": of_columns(COLUMNS, [0.0] * 4 * 128), "too small": of_columns(COLUMNS, [1e-24] * 4 * 128),
             "too large": of_columns(COLUMNS, [1e30] * 4 * 128)}
    reasons = {"64 columns": "columns", "128 columns": "columns", "no tokens": "no activations have been observed",
               "NaN": "finite",
               "infinity": "finite", "zeros": " 0 everywhere", "too small": " 0 everywhere", "too large": "finite"}
    presets = {"qobs.local_hessian descent": ["hessian_block_size=96", "rounding=descent"],
               "qobs.local_hessian nearest": ["hessian_block_size=96"], "qobs.imatrix_optimal": [],
               "llmc.imatrix_mse": []}
    for case, recorded in cases.items():
        write("all.safetensors", st_bytes(recorded))
        name = f"{MODULES[3]}.input"  # no other layer has its input
        write("one.safetensors", st_bytes(dict(good, **{name: recorded[name]})))
        for file in ("all", "one"):
            for preset, settings in presets.items():
                if case in ("too large", "too small") and preset in ("qobs.imatrix_optimal", "llmc.imatrix_mse"):
                    continue  # sums of squares are double
                command = ("--set", "group_size=32", *(w for s in settings for w in ("--set", s)), "--preset",
                           preset.split()[0], "--importance", f"{file}.safetensors")
                p = run("quantize", "model", "--scheme", "W4A16", *command, "-o", "out")
                check(p.returncode == 2 and p.stderr.count("\n") == 1 and f"{file}.safetensors" in p.stderr
                      and reasons[case] in p.stderr and not os.path.exists("out"), f"{case}, {file}, {preset}",
                      f"{p.returncode} {p.stderr}")
    for columns in (64, 192):
        write("inputs-other.safetensors", st_bytes(of_columns(columns, [1.0, -2.0] * 400)))
        os.mkdir(f"states-{columns}")
        for m in MODULES:
            write("weight.safetensors",
                  st_bytes({"w": ("F32", [1, columns], struct.pack(f"<{columns}f", *[1.0] * columns))}))
            fine("state", "observe", "--preset", "qobs.local_hessian",
                 *(w for s in STATE["int4"] for w in ("--set", s)),
                 "--base-name", "weight", "--importance", f"inputs-other.safetensors:{m}.input", "--state",
                 f"states-{columns}/{m}.importance.qobs", "weight.safetensors:w")
        for rounding in ("descent", "nearest"):
            p = run("quantize", "model", "--scheme", "W4A16", "--set", "group_size=32", "--set", f"rounding={rounding}",
                    "--preset", "qobs.local_hessian", "--states", f"states-{columns}", "-o", "out")
            check(p.returncode == 2 and f"states-{columns}" in p.stderr and "columns" in p.stderr
                  and not os.path.exists("out"),
                  f"states of {columns} columns, {rounding}", f"{p.returncode} {p.stderr}")
    left = [name for name in os.listdir(".") if ".unfinished" in name or name.endswith(".tmp")]
    equal(left, [], "nothing unfinished remains")
    write("some.safetensors", st_bytes({f"{MODULES[0]}.input": good[f"{MODULES[0]}.input"]}))
    p = run("quantize", "model", "--scheme", "W4A16", "--set", "group_size=32", "--set", "rounding=descent", "--preset",
            "qobs.local_hessian", "--importance", "some.safetensors", "-o", "some", "--quiet")
    check(p.returncode == 0 and "5 of 8 searched weights have none" in p.stderr and "nearest codes" in p.stderr,
          "layers that were not recorded", f"{p.returncode} {p.stderr}")


# ---- Saved states ----------------------------------------------------------------------------------------------------

STATE = {"int4": ("num_bits=4", "strategy=group", "group_size=32"),
         "NVFP4": ("num_bits=4", "type=float", "strategy=tensor_group", "group_size=16", "scale_dtype=float8_e4m3fn")}


def make_states(folder, preset, settings, weight, begin=0, end=TOKENS):
    """States that have observed the inputs [begin, end) and then a weight: weight(module) is (dtype, shape, bytes)."""
    inputs = st_read("inputs.safetensors")[0]
    os.makedirs(folder)
    write("inputs-cut.safetensors", st_bytes({
        name: ("BF16", [end - begin, COLUMNS], cli.pack("BF16", numbers[begin * COLUMNS:end * COLUMNS]))
        for name, (_, _, numbers) in inputs.items()}))
    for m in MODULES:
        write("weight.safetensors", st_bytes({"w": weight(m)}))
        fine(folder, "observe", "--preset", preset, *(w for s in settings for w in ("--set", s)), "--base-name",
             "weight", "--importance", f"inputs-cut.safetensors:{m}.input", "--state",
             f"{folder}/{m}.importance.qobs", "weight.safetensors:w")


def ones(_module):
    return ("BF16", [1, COLUMNS], cli.pack("BF16", [1.0] * COLUMNS))


def ten_times(module):
    numbers = tensors("model")[f"{module}.weight"][2]
    return ("BF16", [ROWS, COLUMNS], cli.pack("BF16", [10 * x for x in numbers]))


def more_rows(_module):
    return ("F32", [3 * ROWS, COLUMNS], cli.pack("F32", [1e30] * (3 * ROWS * COLUMNS)))


def results_of(scheme, options, sources):
    """What quantize and calibrate write and plan reports, with states or recordings."""
    settings = [w for s in options for w in ("--set", s)]
    fine("quantize", "quantize", "model", "--scheme", scheme, *settings, *sources, "-o", "out", "--replace", "--quiet")
    fine("calibrate", "calibrate", "model", "--scheme", scheme, *settings, *sources, "-o", "scales.safetensors",
         "--quiet")
    p = run("plan", "model", "--schemes", scheme, *settings, *sources, "--json", "plan.json", "--quiet")
    check(p.returncode == 3 and "no sensitivity" in p.stderr, "plan", p.stderr)
    report = json.loads(read("plan.json"))
    return tree("out"), read("scales.safetensors"), dict(report, seconds=0)


def test_states_with_weights():
    """The weight that a state has observed does not count, whatever its shape, dtype and numbers."""
    make_model()
    sources = ("--importance", "inputs.safetensors")
    for form, preset, rounding in (("int4", "qobs.local_hessian", ["rounding=descent"]),
                                   ("NVFP4", "qobs.local_hessian", []), ("int4", "qobs.imatrix_optimal", []),
                                   ("int4", "llmc.imatrix_mse", [])):
        block = ["hessian_block_size=96"] if "hessian" in preset else []
        settings = (["group_size=32"] if form == "int4" else []) + block + rounding
        command = ("--preset", preset)
        scheme = FORMATS[form][0]
        recorded = results_of(scheme, settings, (*command, *sources))
        of_states = None
        for k, weight in enumerate((ones, ten_times, more_rows)):
            folder = f"{form} {preset} {k}"
            make_states(folder, preset, [*STATE[form], *block], weight)
            got = results_of(scheme, settings, (*command, "--states", folder))
            equal(got[:2], recorded[:2], f"{folder}: as with recordings")
            of_states = of_states or got
            equal(got[2], of_states[2], f"{folder}: plan")


def test_merged_states_with_weights():
    """States of two machines merge, whatever weights they have observed."""
    make_model()
    states = [("ones", ones, 0, 20), ("others", more_rows, 20, TOKENS)]
    for folder, weight, begin, end in states:
        make_states(folder, "qobs.local_hessian", STATE["int4"], weight, begin, end)
        make_states(f"{folder} again", "qobs.local_hessian", STATE["int4"], ten_times, begin, end)
    sources = ["--preset", "qobs.local_hessian"]
    first = results_of("W4A16", ["group_size=32"], [*sources, "--states", "ones", "--states", "others"])
    again = results_of("W4A16", ["group_size=32"], [*sources, "--states", "ones again", "--states", "others again"])
    equal(first, again, "two directories")
    command = ("quantize", "model", "--scheme", "W4A16", "--states", "ones", "--quiet")
    p = run(*command, *sources, "--set", "group_size=16", "-o", "none")
    check(p.returncode == 2 and "its setting group_size is 32" in p.stderr and "others[" not in p.stderr,
          "another group", p.stderr)
    fine("mean squares of a Hessian serve", *command, "--set", "group_size=32", "--preset", "qobs.imatrix_optimal",
         "-o", "means")


def test_progress():
    """On a terminal: the layer in work, no speed, and nothing of it stays."""
    make_model()
    shown = cli.on_terminal(*command("int4", "out"))
    check(re.match(rb"\r\[ {12}\]   0 %  model\S+_proj  0 s", shown) and b"B/s" not in shown
          and shown.endswith(b"\r\x1b[K"),
          "progress: the first layer", shown[:200])


def test_refusals():
    make_model()
    descent = ["--set", "rounding=descent"]
    for words, options in {
            "rounding: descent needs states, or --importance FILE": ["qobs.local_hessian", *descent],
            "rounding: is 'up', allowed are nearest, descent": ["qobs.local_hessian", "--set", "rounding=up"],
            "rounding_passes: is '0', allowed are": ["qobs.local_hessian", *descent, "--set", "rounding_passes=0"],
            "rounding belongs to qobs.local_hessian": ["qobs.imatrix_optimal", *descent]}.items():
        p = run("quantize", "model", "--scheme", "W4A16", "--set", "group_size=32", "-o", "out", "--preset", *options)
        check(p.returncode == 2 and words in p.stderr and not os.path.exists("out"), words, p.stderr)
    write("recipe.yaml", b"stage:\n  modifiers:\n    GPTQModifier: {scheme: W4A16}\n")
    small = ["--scheme", "W4A16", "--set", "group_size=32"]
    for options in (["--scheme", "gptq"], ["--scheme", "W4A16_AWQ"], ["--recipe", "recipe.yaml"],
                    [*small, *descent],
                    [*small, *descent, "--preset", "qobs.local_hessian"]):
        p = run("quantize", "model", "-o", "out", *options)
        for words in ("--preset qobs.local_hessian --set rounding=descent --states DIR", "c.save(DIR)",
                      'libqobs.calibration(model, "W4A16", importance="qobs.local_hessian") as c'):
            check(p.returncode == 2 and words in p.stderr, f"{options}: the whole way", p.stderr)
        dialect = options[1].removeprefix("W4A16_").lower() if options[0] == "--scheme" else ""
        check(dialect not in ("gptq", "awq") or f"--dialect {dialect}" in p.stderr, f"{options}: the dialect", p.stderr)


if __name__ == "__main__":
    raise SystemExit(cli.main(globals()))
