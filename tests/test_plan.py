#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""qobs plan: costs of schemes that a slow computation confirms, mixtures that are optimal, recipes that quantize takes.

    KNAPSACK=PROGRAM test_plan.py QOBS

PROGRAM is that of tests/knapsack.c.
"""
import functools
import itertools
import json
import os
import random
import re
import shutil

import cli
import knapsacks
from cli import check, equal, fine, read, refused, run, st_bytes, st_read, write

LAYERS, ROWS, COLUMNS, GROUP, TOKENS, SEQUENCES = 2, 32, 104, 52, 8, 6
MODULES = [f"model.layers.{i}.{m}_proj" for i in range(LAYERS)
           for m in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up")]
SETS = ("self_attn.[qkv]_proj", "self_attn.o_proj", "mlp.(gate|up)_proj")
SCHEMES = "W3A16,W4A16,W8A16"
SETTINGS = ["--set", f"group_size={GROUP}"]


# ---- A model with its states -----------------------------------------------------------------------------------------

@functools.cache
def numbers(name, count, size=1.0):
    source = random.Random(name)
    return [cli.ROUND["BF16"](size * source.gauss(0, 1)) for _ in range(count)]


@functools.cache
def rows_of(module, what):
    """Recorded rows: inputs of COLUMNS, or sensitivity of ROWS, by an importance of the module."""
    width, count = (COLUMNS, TOKENS) if what == "importance" else (ROWS, SEQUENCES)
    shared = re.sub("[qkv]_proj", "qkv", re.sub("(gate|up)_proj", "mlp", module)) if width == COLUMNS else module
    scale = 10 ** random.Random(shared).uniform(-2, 0)
    return [numbers(f"{shared} {what} {i}", width, scale) for i in range(count)]


KINDS = ("importance", "sensitivity_a", "sensitivity_b")


def make_state(path, rows):
    """A saved observer of rows of F32."""
    width = len(rows[0])
    write("rows.safetensors", st_bytes({"x": ("F32", [len(rows), width], cli.pack("F32", sum(rows, []))),
                                        "w": ("F32", [1, width], cli.pack("F32", [1.0] * width))}))
    p = run("observe", "--preset", "llmc.imatrix_mse", "--strategy", "channel", "--base-name", "weight", "--importance",
            "rows.safetensors:x", "--state", path, "rows.safetensors:w")
    check(p.returncode == 0, "a state", p.stderr)
    os.remove("rows.safetensors")


@functools.cache
def state_of(module, kind, begin, end):
    make_state("state.qobs", rows_of(module, kind)[begin:end])
    return read("state.qobs")


def make_states(folder, begin=0, end=None, kinds=KINDS):
    """Saved observers of some of the recorded rows."""
    os.mkdir(folder)
    for module in MODULES:
        for kind in kinds:
            write(f"{folder}/{module}.{kind}.qobs", state_of(module, kind, begin, end))


def make_model():
    os.mkdir("model")
    write("model/model.safetensors", st_bytes({f"{m}.weight": ("BF16", [ROWS, COLUMNS], cli.pack(
        "BF16", numbers(m, ROWS * COLUMNS))) for m in MODULES}))
    write("model/config.json", b'{"model_type": "llama"}')


def plan(*options, schemes=SCHEMES, states=("states",), settings=SETTINGS):
    given = [w for s in states for w in ("--states", s)]
    out = fine("plan", "plan", "model", "--schemes", schemes, *given, *settings, "--json", "-", *options)
    return json.loads(out)


def mean_squares(rows):
    return [sum(r[j] ** 2 for r in rows) / len(rows) for j in range(len(rows[0]))]


# ---- Costs -----------------------------------------------------------------------------------------------------------

def dequantized(module, bits, folder="out"):
    tensors = st_read(f"{folder}/model.safetensors")[0]
    words, scales = tensors[f"{module}.weight_packed"][2], tensors[f"{module}.weight_scale"][2]
    per_row = len(words) // ROWS
    out = []
    for row in range(ROWS):
        stream = sum((w & 0xffffffff) << 32 * i for i, w in enumerate(words[row * per_row:(row + 1) * per_row]))
        out.append([cli.ROUND["BF16"]((((stream >> bits * j) & (1 << bits) - 1) - (1 << bits - 1)) *
                                      scales[(row * COLUMNS + j) // GROUP]) for j in range(COLUMNS)])
    return out


def expected(module, bits):
    """The KL divergence that the weight costs by each half, and its error."""
    h = mean_squares(rows_of(module, "importance"))
    w, q = numbers(module, ROWS * COLUMNS), dequantized(module, bits)
    errors = [sum(h[j] * (w[i * COLUMNS + j] - q[i][j]) ** 2 for j in range(COLUMNS)) for i in range(ROWS)]
    return [sum(f * e for f, e in zip(mean_squares(rows_of(module, kind)), errors)) / 2
            for kind in KINDS[1:]], sum(errors)


def close(got, want, what, tolerance=1e-5):
    check(abs(got - want) <= tolerance * abs(want), what, f"got {got}, expected {want}")


def bytes_of(folder):
    return sum(os.path.getsize(f"{folder}/{n}") - int.from_bytes(read(f"{folder}/{n}")[:8], "little") - 8
               for n in os.listdir(folder) if n.endswith(".safetensors"))


def test_costs():
    make_model()
    make_states("states")
    report = plan()
    equal(report["warnings"], [], "warnings")
    for scheme in report["schemes"]:
        bits = int(scheme["scheme"][1])
        fine("quantize", "quantize", "model", "--scheme", scheme["scheme"], *SETTINGS, "-o", "out", "--quiet",
             "--replace")
        equal(scheme["bytes"], bytes_of("out"), f"{bits} bits: bytes")
        close(scheme["bits"], 8 * scheme["bytes"] / report["elements"], "bits")
        total = 0.0
        for layer in scheme["layers"]:
            halves, error = expected(layer["name"], bits)
            close(layer["kl"], sum(halves) / 2, f"{layer['name']}, {bits} bits: KL")
            close(layer["error"], error, f"{layer['name']}, {bits} bits: error")
            total += sum(halves) / 2
        close(scheme["kl"], total, f"{bits} bits: KL of the model")


def test_merged_states():
    """States of two ranks are those of one process with all rows."""
    make_model()
    make_states("states")
    make_states("rank-0", 0, 3)
    make_states("rank-1", 3)
    whole, merged = plan(), plan(states=("rank-0", "rank-1"))
    for a, b in zip(whole["schemes"], merged["schemes"]):
        for one, other in zip(a["layers"], b["layers"]):
            close(other["kl"], one["kl"], f"{one['name']}: KL of merged states")
    half = plan(states=("rank-0",))
    check(half["schemes"][0]["kl"] != whole["schemes"][0]["kl"], "half of the rows tell something else")


def test_same_report():
    make_model()
    make_states("states")

    def result(*options):
        return {k: v for k, v in plan("--budget", "5", *options).items() if k != "seconds"}
    first = result("--threads", "1")
    for isa in cli.instruction_sets():
        for threads in cli.thread_counts():
            equal(result("--isa", isa, "--threads", threads), first, f"{isa}, {threads} threads")


def recorded(path, begin=0, end=TOKENS, shape=()):
    """The inputs of all modules: tokens [begin, end)."""
    write(path, st_bytes({f"{m}.input": ("F32", [*shape, end - begin, COLUMNS], cli.pack(
        "F32", sum(rows_of(m, "importance")[begin:end], []))) for m in MODULES}))


def hessian_preset(rounding, *paths):
    return ["--preset", "qobs.local_hessian", "--set", f"hessian_block_size={COLUMNS}", "--set", f"rounding={rounding}",
            *(w for path in paths for w in ("--importance", path))]


def test_recorded_hessian():
    """Half of the recorded tokens chooses scales and codes, the other half measures their errors, row by row."""
    make_model()
    make_states("states", kinds=KINDS[1:])
    middle = TOKENS // 2
    recorded("inputs.safetensors")
    recorded("first.safetensors", 0, middle)
    recorded("first-of-two.safetensors", 0, middle, (1,))
    recorded("second-of-two.safetensors", middle, TOKENS, (1,))
    for rounding in ("nearest", "descent"):
        scheme = plan(*hessian_preset(rounding, "inputs.safetensors"), schemes="W4A16")["schemes"][0]
        fine("quantize", "quantize", "model", "--scheme", "W4A16", *SETTINGS,
             *hessian_preset(rounding, "first.safetensors"), "-o", "out", "--quiet", "--replace")
        for layer in scheme["layers"]:
            w, q = numbers(layer["name"], ROWS * COLUMNS), dequantized(layer["name"], 4)
            tokens = rows_of(layer["name"], "importance")[middle:]
            errors = [sum(sum((w[i * COLUMNS + j] - q[i][j]) * x[j] for j in range(COLUMNS)) ** 2 for x in tokens) /
                      len(tokens) for i in range(ROWS)]
            close(layer["error"], sum(errors), f"{layer['name']}, {rounding}: error")
            halves = [sum(f * e for f, e in zip(mean_squares(rows_of(layer["name"], kind)), errors)) / 2
                      for kind in KINDS[1:]]
            close(layer["kl"], sum(halves) / 2, f"{layer['name']}, {rounding}: KL")
        two = plan(*hessian_preset(rounding, "first-of-two.safetensors", "second-of-two.safetensors"), schemes="W4A16")
        equal(two["schemes"][0], scheme, "two batches of one sequence")
        os.rename("states", "own")
        make_states("states")
        equal(plan(*hessian_preset(rounding, "inputs.safetensors"), schemes="W4A16")["schemes"][0], scheme,
              "mean squares in the states are not for a Hessian")
        shutil.rmtree("states")
        os.rename("own", "states")
        for isa in cli.instruction_sets():
            for threads in cli.thread_counts():
                again = plan(*hessian_preset(rounding, "inputs.safetensors"), "--isa", isa, "--threads", threads,
                             schemes="W4A16")
                equal(again["schemes"][0], scheme, f"{isa}, {threads} threads")


def test_hessian():
    """If nothing is left to measure, presets with a Hessian bring their own errors, of the codes after descent, too."""
    make_model()
    make_states("states", kinds=KINDS[1:])
    recorded("inputs.safetensors", 0, TOKENS, (1,))
    errors = {}
    for rounding in ("nearest", "descent"):
        preset = hessian_preset(rounding, "inputs.safetensors")
        scheme = plan(*preset, schemes="W4A16")["schemes"][0]
        fine("quantize", "quantize", "model", "--scheme", "W4A16", *SETTINGS, *preset, "-o", "out", "--quiet",
             "--replace",
             "--json", "report.json")
        theirs = {layer["name"]: layer for layer in json.loads(read("report.json"))["layers"]}
        equal(sorted(theirs), [layer["name"] for layer in scheme["layers"]], "layers")
        for layer in scheme["layers"]:
            search = theirs[layer["name"]]["rounding" if rounding == "descent" else "search"]
            close(layer["error"], search["error"], f"{layer['name']}: error of quantize")
            halves = [sum(mean_squares(rows_of(layer["name"], k))) / ROWS for k in KINDS[1:]]
            close(layer["kl"], search["error"] * sum(halves) / 4, f"{layer['name']}: KL with the mean sensitivity")
        errors[rounding] = scheme["kl"]
    check(errors["descent"] < errors["nearest"], "descent costs less", str(errors))


# ---- Mixtures --------------------------------------------------------------------------------------------------------

def items_of(report):
    """Costs by item: bytes and the mean KL of each scheme, of layers that have one scheme."""
    items = {}
    for k, scheme in enumerate(report["schemes"]):
        for layer in scheme["layers"]:
            number = next(i for i, s in enumerate(SETS) if re.search(s, layer["name"]))
            item = items.setdefault((layer["name"].split(".")[2], number), [[0, 0] for _ in report["schemes"]])
            item[k][0] += layer["bytes"]
            item[k][1] += layer["kl"]
    return items


def test_mixture():
    make_model()
    make_states("states")
    for kind in KINDS[1:]:  # both halves alike, so that the report has the figure that chose
        for module in MODULES:
            write(f"states/{module}.{kind}.qobs", read(f"states/{module}.sensitivity_a.qobs"))
    report = plan()
    items, before = items_of(report), float("inf")
    for budget in (3.6, 4, 4.5, 5, 6, 8, 9):
        mixture = plan("--budget", budget, "-o", "recipe.yaml")["mixture"]
        check(mixture["optimal"] and mixture["bits"] <= budget, f"{budget} bits: optimal, and within the budget")
        chosen = {m["name"]: m["scheme"] for m in mixture["layers"]}
        for layer in range(LAYERS):
            for s in SETS:
                equal(len({v for k, v in chosen.items() if f".{layer}." in k and re.search(s, k)}), 1,
                      f"{s}: one scheme")
        best = min((sum(i[c][1] for i, c in zip(items.values(), choice))
                    for choice in itertools.product(range(3), repeat=len(items))
                    if sum(i[c][0] for i, c in zip(items.values(), choice)) * 8 <= budget * report["elements"]))
        close(mixture["kl"], best, f"{budget} bits: the best of all choices")
        check(mixture["kl"] <= before, f"{budget} bits: no worse than fewer bits")
        before = mixture["kl"]
        fine("quantize", "quantize", "model", "--recipe", "recipe.yaml", "-o", "out", "--quiet", "--replace")
        equal(bytes_of("out"), mixture["bytes"], f"{budget} bits: bytes of the recipe")
        groups = json.loads(read("out/config.json"))["quantization_config"]["config_groups"]
        equal({t: f"W{g['weights']['num_bits']}A16" for g in groups.values() for t in g["targets"]}, chosen,
              "config.json")
        equal(set(groups), set(chosen.values()), "groups have the names of their schemes")
        least = plan("--max-kl", repr(mixture["kl"] * (1 + 1e-9)))["mixture"]
        check(least["bytes"] <= mixture["bytes"] and least["kl"] <= mixture["kl"] * (1 + 1e-9),
              f"{budget} bits: its KL takes no more bytes")


def test_two_halves():
    """One half of the sequences chooses, the other tells; a limit holds for both."""
    make_model()
    make_states("states")
    mixture = plan("--budget", "4.5")["mixture"]
    costs = {s["scheme"]: s["kl"] for s in plan()["schemes"]}
    check(costs["W8A16"] < mixture["kl"] < costs["W3A16"], "the other half tells", f"{mixture['kl']} {costs}")
    limit = (costs["W4A16"] + costs["W8A16"]) / 2
    bounded = plan("--max-kl", repr(limit))["mixture"]
    check(bounded["kl"] <= limit and bounded["bits"] < 8.5, "a limit", str(bounded["kl"]))


def test_knapsack():
    source = random.Random(4)
    program = os.environ["KNAPSACK"]
    instances = [knapsacks.instance(source, source.randint(1, 5), source.randint(1, 4))
                 for _ in range(2000 if "QOBS_WHOLE" in os.environ else 400)]
    for (limit, table), (least, optimal, choice) in zip(instances, knapsacks.solve(program, instances)):
        equal(least, sum(min(w for w, _ in row) for row in table), "the least weight")
        best = min((c for w, c in (knapsacks.sums(table, p) for p
                                in itertools.product(range(len(table[0])), repeat=len(table)))
                    if w <= limit), default=None)
        got = None if choice is None else knapsacks.sums(table, choice)
        check(optimal and (got is None if best is None else got is not None and got[0] <= limit and got[1] == best),
              f"limit {limit}, {table}", f"got {got}, expected {best}")
    for _ in range(20):  # a larger limit never costs more
        _, table = knapsacks.instance(source, 40, 6)
        most = sum(max(w for w, _ in row) for row in table)
        found = knapsacks.solve(program, [(most * i / 40, table) for i in range(41)])
        costs = [knapsacks.sums(table, choice)[1] for _, _, choice in found if choice is not None]
        equal(costs, sorted(costs, reverse=True), "costs as limits rise")


# ---- Hostile inputs --------------------------------------------------------------------------------------------------

def test_refusals():
    make_model()
    make_states("states")
    command = ("plan", "model", "--schemes", SCHEMES, "--states", "states", *SETTINGS)
    refused("no scheme", ["--schemes", "is missing", "W4A16"], "plan", "model", "--states", "states")
    refused("an unknown scheme", ["--schemes: 'W9A16'"], *command[:3], "W4A16,W9A16", *command[4:])
    refused("an empty scheme", ["--schemes: name 2 of 2 is empty"], *command[:3], "W4A16,", *command[4:])
    refused("a scheme twice", ["--schemes", "'w4a16'", "twice"], *command[:3], "W4A16,w4a16", *command[4:])
    refused("no model", ["expected one model, got 0"], "plan", "--schemes", SCHEMES)
    for option in ("--budget", "--max-kl"):
        refused("no number", [option, "''", "is needed"], *command, f"{option}=")
        for number in ("0", "-1", "nan", "inf", "4x"):
            refused("a number", [option, f"'{number}'", "above 0"], *command, f"{option}={number}")
    refused("too few bits", ["--budget", "3 bits", "at least"], *command, "--budget", "3")
    refused("too small a limit", ["--max-kl", "1e-30 nats", "at least"], *command, "--max-kl", "1e-30")
    refused("both limits", ["budget and max_kl"], *command, "--budget", "5", "--max-kl", "1")
    refused("a recipe of nothing", ["out", "budget"], *command, "-o", "recipe.yaml")
    refused("an output that is an input", ["model/config.json"], *command, "--budget", "5", "-o", "model/config.json")
    refused("an unknown setting", ["W4A16", "'bits'"], *command, "--set", "W4A16.bits=3")
    refused("a group that does not divide", ["W4A16", "group"], *command, "--set", "W4A16.group_size=36")
    refused("no states there", ["none"], *command, "--states", "none")
    os.makedirs("broken")
    for name, content in (("cut", read(f"states/{MODULES[0]}.sensitivity_a.qobs")[:40]), ("noise", b"\x93" * 300)):
        write(f"broken/{MODULES[0]}.sensitivity_a.qobs", content)
        refused(name, [f"{MODULES[0]}.sensitivity_a.qobs"], *command, "--states", "broken")
    write(f"broken/{MODULES[0]}.sensitivity_a.qobs", read(f"states/{MODULES[0]}.importance.qobs"))
    os.makedirs("huge")
    for kind in KINDS[::2]:
        make_state(f"huge/{MODULES[0]}.{kind}.qobs", [[3e38] * len(rows_of(MODULES[0], kind)[0])])
        refused(kind, [f"{MODULES[0]}.weight", "inf", "finite"], *command, "--states", "huge")
        os.remove(f"huge/{MODULES[0]}.{kind}.qobs")
    os.rename("states", "whole")
    refused("sensitivity of columns", [f"{COLUMNS} rows", f"has {ROWS}"], "plan", "model", "--schemes", SCHEMES,
            *SETTINGS,
            "--states", "broken")


def test_without_sensitivity():
    make_model()
    make_states("states")
    os.remove(f"states/{MODULES[3]}.sensitivity_b.qobs")
    command = ("plan", "model", "--schemes", SCHEMES, "--states", "states", *SETTINGS)
    p = run(*command)
    check(p.returncode == 3 and "1 of 12 modules" in p.stderr and MODULES[3] in p.stderr and "error" in p.stdout,
          "a table of errors", p.stdout + p.stderr)
    check(all(s["kl"] is None and s["error"] > 0 for s in json.loads(run(*command, "--json", "-").stdout)["schemes"]),
          "no KL")
    refused("a budget", ["--budget", "1 of 12 modules", MODULES[3], "c.save(DIR)", "sensitivity=True"], *command,
            "--budget", "5")


if __name__ == "__main__":
    raise SystemExit(cli.main(globals()))
