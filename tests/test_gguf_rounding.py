#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""qobs quantize IN.gguf --set rounding=descent --states DIR: codes with a smaller error of the outputs and the scales
of the same file without, the same bytes for every number of threads and instruction set; what is refused and named.

    test_gguf_rounding.py QOBS
"""
import json
import operator
import os
import random
import struct
import sys

import cli
from cli import check, equal
from gguf_files import STRING, U32, gguf
from test_gguf_writer import Reader, imatrix

COLUMNS, ROWS, TOKENS, EXPERTS = 256, 12, 400, 3
KEYS = [("general.architecture", STRING, "llama"), ("llama.block_count", U32, 1), ("llama.expert_count", U32, EXPERTS),
        ("llama.attention.head_count", U32, 8), ("llama.attention.head_count_kv", U32, 2)]
# Tensors, and the modules whose inputs are theirs.
MODULES = {"blk.0.attn_q.weight": ["model.layers.0.self_attn.q_proj"],
           "blk.0.attn_output.weight": ["model.layers.0.self_attn.o_proj"],
           "blk.0.ffn_up_exps.weight": [f"model.layers.0.mlp.experts.{i}.up_proj" for i in range(EXPERTS)]}
HESSIAN = ("--preset", "qobs.local_hessian", "--set", f"hessian_block_size={COLUMNS}", "--set", "num_bits=4", "--set",
           "strategy=group", "--set", "group_size=32")
MEANS = ("--preset", "llmc.imatrix_mse", "--set", "strategy=channel")
DESCENT = ("--states", "states", "--set", "rounding=descent")
OUTPUT = ("-o", "out.gguf", "--replace", "--json", "r.json")


def inputs_of(module):
    """Inputs whose columns go together."""
    source = random.Random(module)
    scales = [source.gauss(0, 1) for _ in range(COLUMNS)]
    rows = []
    for _ in range(TOKENS):
        common = source.gauss(0, 2)
        rows.append([cli.ROUND["BF16"](s * (common + source.gauss(0, 1))) for s in scales])
    return rows


INPUTS = {module: inputs_of(module) for modules in MODULES.values() for module in modules}


def matrix(name, rows):
    source = random.Random(name)
    return [cli.ROUND["F16"](source.gauss(0, 0.05)) for _ in range(rows * COLUMNS)]


def stored(name, shape, rows):
    return 1, shape, struct.pack(f"<{rows * COLUMNS}e", *matrix(name, rows))


def make_model(more=None):
    tensors = {"token_embd.weight": stored("token_embd.weight", [8, COLUMNS], 8),
               "blk.0.attn_norm.weight": (0, [COLUMNS], struct.pack(f"<{COLUMNS}f", *[1.0] * COLUMNS))}
    for name, modules in MODULES.items():
        n = len(modules)
        tensors[name] = stored(name, [n, ROWS, COLUMNS] if n > 1 else [ROWS, COLUMNS], n * ROWS)
    cli.write("in.gguf", gguf(KEYS, tensors | (more or {})))


def make_states(folder, kind=HESSIAN, modules=tuple(INPUTS), columns=COLUMNS):
    os.makedirs(folder)
    for module in modules:
        rows = [x for row in INPUTS[module] for x in row[:columns]]
        cli.write("x.safetensors", cli.st_bytes({"x": ("BF16", [TOKENS, columns], cli.pack("BF16", rows)),
                                                 "w": ("BF16", [1, columns], cli.pack("BF16", [1.0] * columns))}))
        kind = [word.replace(f"={COLUMNS}", f"={columns}") for word in kind]
        cli.fine(folder, "observe", *kind, "--base-name", "weight", "--importance", "x.safetensors:x", "--state",
                 f"{folder}/{module}.importance.qobs", "x.safetensors:w")


def quantize(scheme, *options):
    run = cli.run("quantize", "in.gguf", "--scheme", scheme, *OUTPUT, *options)
    equal(run.returncode, 0, f"{scheme} {options}: {run.stderr}")
    with open("r.json", encoding="utf-8") as file:
        report = json.load(file)
    return {x["name"]: x for x in report["layers"]}, report["warnings"], Reader("out.gguf")


def half(data, at):
    return struct.unpack_from("<e", data, at)[0]


def q4_0(block):
    codes = [b & 15 for b in block[2:]] + [b >> 4 for b in block[2:]]
    return [(c - 8) * half(block, 0) for c in codes]


def q4_k(block):
    numbers, packed = [], block[4:16]
    for j in range(8):
        if j < 4:
            scale, minimum = packed[j] & 63, packed[j + 4] & 63
        else:
            scale = packed[j + 4] & 15 | packed[j - 4] >> 6 << 4
            minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4
        codes = block[16 + j // 2 * 32:48 + j // 2 * 32]
        numbers += [(c >> 4 * (j % 2) & 15) * half(block, 0) * scale - half(block, 2) * minimum for c in codes]
    return numbers


# Bytes of a block, its numbers, and the bytes that are no codes.
FORMS = {"Q4_0": (18, q4_0, 2), "Q4_K": (144, q4_k, 16)}


def data_of(file, name, size, count):
    _, _, offset = file.tensors[name]
    return file.data[file.start + offset:file.start + offset + size * count]


def blocks_of(file, name, form):
    size = FORMS[form][0]
    count = len(MODULES[name]) * ROWS * COLUMNS // (32 if form == "Q4_0" else 256)
    data = data_of(file, name, size, count)
    return [data[i * size:(i + 1) * size] for i in range(count)]


def output_error(file, name, form):
    """The mean square of the errors of the outputs over the tokens, rows added."""
    numbers = [x for block in blocks_of(file, name, form) for x in FORMS[form][1](block)]
    weights, total = matrix(name, len(MODULES[name]) * ROWS), 0.0
    d = [w - x for w, x in zip(weights, numbers)]
    for i, module in enumerate(MODULES[name]):
        for row in range(i * ROWS, (i + 1) * ROWS):
            part = d[row * COLUMNS:(row + 1) * COLUMNS]
            for x in INPUTS[module]:
                total += sum(map(operator.mul, part, x)) ** 2
    return total / TOKENS


def test_errors():
    make_model()
    make_states("states")
    make_states("means", MEANS)
    for form in FORMS:
        _, _, before = quantize(form, "--pure", "--states", "states")
        _, _, same = quantize(form, "--pure", "--states", "states", "--set", "rounding=nearest")
        layers, _, _ = quantize(form, "--pure", "--states", "means")
        check(all(layers[name]["importance"] for name in MODULES), f"{form}: mean squares are importance", layers)
        layers, warnings, after = quantize(form, "--pure", *DESCENT)
        named = "rounding: 1 of 4 tensors keep their nearest codes, such as 'token_embd.weight', which has no state"
        check(named in warnings, f"{form}: a tensor without a state is named", warnings)
        for name in MODULES:
            cut = FORMS[form][2]
            old, new = (blocks_of(file, name, form) for file in (before, after))
            equal(blocks_of(same, name, form), old, f"{form}: {name}: rounding=nearest")
            equal([b[:cut] for b in new], [b[:cut] for b in old], f"{form}: {name}: scales and minima stay")
            rounding = layers[name]["rounding"]
            nearest, descent = (output_error(file, name, form) for file in (before, after))
            check(abs(rounding["error_before"] - nearest) <= 2e-3 * nearest, f"{form}: {name}: error of the search",
                  f"{rounding} {nearest}")
            check(abs(rounding["error"] - descent) <= 2e-3 * descent, f"{form}: {name}: error after descent",
                  f"{rounding} {descent}")
            check(descent < 0.7 * nearest and rounding["changed"] > 0, f"{form}: {name}: the outputs' is smaller",
                  f"{descent} {nearest} {rounding}")
        check("rounding" not in layers["token_embd.weight"], f"{form}: layers without", layers["token_embd.weight"])
        equal(cli.run("audit", "out.gguf", "--against", "in.gguf").returncode, 0, f"{form}: the audit finds nothing")


def test_summary():
    """The rounding that was chosen, and what it changed in each tensor."""
    make_model()
    make_states("states")
    command = ("quantize", "in.gguf", "--scheme", "Q4_K", *OUTPUT, "--states", "states")
    for rounding in ("nearest", "descent"):
        run = cli.run(*command, "--set", f"rounding={rounding}")
        with open("r.json", encoding="utf-8") as file:
            equal(json.load(file)["rounding"], rounding, "the report has it")
        descent = rounding == "descent"
        for words in (", codes by descent: ", "rounded: change of the error of the outputs"):
            equal(words in run.stdout, descent, f"{rounding}: {words}")
        for name in (*MODULES, "token_embd.weight"):
            line = next(line for line in run.stdout.splitlines() if line.startswith(name))
            equal(line.count("%"), 1 + (descent and name in MODULES), f"{rounding}: the errors of {name}")
            equal(len(line) <= 80, True, "the length of a line")
    check(", codes by descent: " in cli.run(*command[:4], "--dry-run", *DESCENT).stdout, "a dry run says so")


def test_imatrix():
    """An imatrix of the same tokens gives the same scales, and comes before states."""
    make_model()
    make_states("states")
    module = MODULES["blk.0.attn_q.weight"][0]
    sums = [sum(x * x for x in column) for column in zip(*INPUTS[module])]
    cli.write("imatrix.gguf", imatrix({"blk.0.attn_q.weight": ([1, COLUMNS], sums, [TOKENS])}))
    states = quantize("Q4_K", *DESCENT)[2]
    both = quantize("Q4_K", *DESCENT, "--importance", "imatrix.gguf")[2]
    for name in MODULES:
        old, new = (blocks_of(file, name, "Q4_K") for file in (states, both))
        equal([b[:16] for b in new], [b[:16] for b in old], f"{name}: scales")


def test_same_bytes():
    make_model()
    make_states("states")
    expected = quantize("Q4_K_M", *DESCENT)[2].data
    for isa in cli.instruction_sets():
        for threads in cli.thread_counts():
            data = quantize("Q4_K_M", *DESCENT, "--threads", threads, "--isa", isa)[2].data
            equal(data, expected, f"{isa}, {threads} threads")
    modules = tuple(INPUTS)
    make_states("some", modules=modules[:2])
    make_states("others", modules=modules[2:])
    data = quantize("Q4_K_M", "--states", "some", "--states", "others", "--set", "rounding=descent")[2].data
    equal(data, expected, "two directories")


def test_types():
    """Types by mixtures and patterns; one without a descent is named."""
    make_model()
    make_states("states")
    for scheme in ("Q4_K_M", "Q3_K_M", "Q5_K_S", "IQ4_XS", "Q8_0", "NVFP4", "Q2_K"):
        layers, _, _ = quantize(scheme, *DESCENT)
        for name in MODULES:
            rounding = layers[name]["rounding"]
            check(rounding["error"] < rounding["error_before"], f"{scheme}: {name}", rounding)
    layers, warnings, _ = quantize("Q4_K", *DESCENT, "--tensor-type", "attn_q=TQ2_0", "--tensor-type", "token=F16")
    check("rounding" not in layers["blk.0.attn_q.weight"], "a type without a descent", layers["blk.0.attn_q.weight"])
    check(any("'blk.0.attn_q.weight', whose type is not rounded by descent" in w for w in warnings), "it is named",
          warnings)
    missing = MODULES["blk.0.ffn_up_exps.weight"][1]
    make_states("two", modules=[m for m in INPUTS if m != missing])
    layers, warnings, _ = quantize("Q4_K", "--states", "two", "--set", "rounding=descent")
    check(any(w.startswith("states: 1 matrices have none, such as one of 'blk.0.ffn_up_exps") for w in warnings),
          "an expert without a state is named", warnings)
    check(layers["blk.0.ffn_up_exps.weight"]["rounding"]["changed"] > 0, "an expert without a state", layers)


def test_refused():
    make_model()
    make_states("states")
    make_states("means", MEANS)
    make_states("narrow", columns=128)
    os.mkdir("none")
    command = ("quantize", "in.gguf", "--scheme", "Q4_K", "-o", "out.gguf")
    descent = ("--set", "rounding=descent")
    for what, words, options in (
            ("no states", ["--set: rounding=descent needs --states DIR"], descent),
            ("another setting", ["--set: 'group_size=32'"], ("--set", "group_size=32")),
            ("states without a Hessian", ["holds no Hessian", "importance="], ("--states", "means", *descent)),
            ("states of another model", ["128", "256"], ("--states", "narrow", *descent)),
            ("a directory without states", ["--states: none", "no states"], ("--states", "none", *descent)),
            ("types without a descent", ["rounding=descent changes nothing"],
             ("--states", "states", *descent, "--tensor-type", ".=TQ2_0")),
            ("states that are not there", ["--states"], ("--states", "nowhere", *descent))):
        cli.refused(what, words, *command, *options)
    cli.refused("copies", ["--states: change nothing: no type"], "quantize", "in.gguf", "--scheme", "F32", "-o",
                "out.gguf", "--states", "states")


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if getattr(v, "__module__", None) == __name__}))
