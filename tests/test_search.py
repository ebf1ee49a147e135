#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""`qobs calibrate` with presets that search the range with the smallest error, compared with a search in plain Python.

    test_search.py QOBS [WRAPPER [ARGUMENT]...]     WRAPPER: a program that runs QOBS, such as an emulator

Needs the standard library only. Ends with `N passed, N failed`; exit status 1 if any failed.
"""
from cli import *

PARENT = "model.layers.0.self_attn."
COLUMNS, SIZE = 96, 32
LAYERS = {PARENT + "q_proj": 12, PARENT + "k_proj": 5, PARENT + "v_proj": 3, PARENT + "o_proj": 7}
CALIBRATE = ("calibrate", "model.safetensors", "-o", "out.safetensors", "--quiet", "--json", "report.json", "--scheme",
             "W4A16", "--set",
             f"group_size={SIZE}")
source = random.Random(23)


def make_model():
    """Returns groups of a long-tailed distribution, for which clipping lowers the error."""
    weights = {m: [f32(source.gauss(0, 1) ** 3) for _ in range(rows * COLUMNS)] for m, rows in LAYERS.items()}
    write("model.safetensors", st_bytes({m + ".weight": ("F32", [LAYERS[m], COLUMNS], pack("F32", w)) for m,
                                         w in weights.items()}))
    return {m: [w[i:i + SIZE] for i in range(0, len(w), SIZE)] for m, w in weights.items()}


def make_activations(path, names, columns=COLUMNS, spoil=None):
    tensors = {}
    for name in names:
        values = [f32(source.gauss(0, 1 + 9 * (k % columns % 7 == 0))) for k in range(2 * 3 * columns)]
        values[5] = spoil if spoil is not None else values[5]
        tensors[name] = ("F32", [2, 3, columns], values)
    write(path, st_bytes({n: (d, s, pack(d, v)) for n, (d, s, v) in tensors.items()}))
    return {n: v for n, (_, _, v) in tensors.items()}


def importance(batches):
    """Returns the importance of each column relative to the mean."""
    sums = [math.fsum(v * v for b in batches for v in b[k::COLUMNS]) for k in range(COLUMNS)]
    mean = math.fsum(sums) / COLUMNS
    return [s / mean for s in sums]


def search(groups, weights, steps, grid, norm, patience):
    """Returns for each group the best candidate, its scale, its error, the error of the first candidate, the number of
    candidates tried, and whether there is a near tie."""
    best, scales = [-1] * len(groups), [0.0] * len(groups)
    min_error, second = [math.inf] * len(groups), [math.inf] * len(groups)
    first, idle, i = [], 0, 0
    while i < steps and not (patience and idle >= patience):
        improved = False
        for g, x in enumerate(groups):
            p = f32(1 - i / grid)
            low, high = min(0.0, f32(min(x) * p)), max(0.0, f32(max(x) * p))
            scale = f32(max(-low, high) / 7.5)
            at = g * SIZE % COLUMNS
            errors = (abs(f32(min(max(round(f32(v / scale)), -8), 7) * scale) - v) ** norm for v in x)
            e = math.fsum(w * d for w, d in zip(weights[at:at + SIZE], errors))
            if i == 0:
                first.append(e)
            if e < min_error[g]:
                best[g], scales[g], min_error[g], second[g], improved = i, scale, e, min_error[g], True
            else:
                second[g] = min(second[g], e)
        idle = 0 if improved else idle + 1
        i += 1
    return best, scales, min_error, first, i, [s <= e * (1 + 1e-5) for s, e in zip(second, min_error)]


def compare(what, groups, weights, layers_report, settings):
    """Compares the output and the report with a search."""
    got, _ = st_read("out.safetensors")
    for m, g in groups.items():
        best, scales, min_error, first, tried, tie = search(g, weights[m], *settings)
        check(sum(tie) <= len(tie) // 20, f"{what}, {m}: hardly any ties", f"{sum(tie)} of {len(tie)}")
        written = got[m + ".weight_scale"]
        equal(written[:2], ("F32", [LAYERS[m], COLUMNS // SIZE]), f"{what}, {m}: dtype and shape")
        equal([w for w, t in zip(written[2], tie) if not t], [s for s, t in zip(scales, tie) if not t],
              f"{what}, {m}: scales")
        r = layers_report[m]["search"]
        for key, want in (("error_before", math.fsum(first)), ("error", math.fsum(min_error))):
            check(abs(r[key] - want) <= 1e-4 * want, f"{what}, {m}: {key}", f"got {r[key]}, expected {want}")
        if not any(tie):
            equal(r["candidates"], [best.count(i) for i in range(settings[0])], f"{what}, {m}: candidates")
            equal([r["steps"], r["stop_step"], r["none"]], [settings[0], tried, 0], f"{what}, {m}: steps")


def report():
    r = json.loads(read("report.json"))
    for key in ("error_before", "error"):
        check(abs(r[key] - math.fsum(l["search"][key] for l in r["layers"])) <= 1e-12 * r[key],
              f"{key} is the sum over the layers")
    return {l["module"]: l for l in r["layers"]}


# ---- Tests -----------------------------------------------------------------------------------------------------------

def test_mse():
    groups, even = make_model(), {m: [1.0] * COLUMNS for m in LAYERS}
    for what, preset, settings, words in (
            ("mse", "llmc.memoryless_mse", (20, 100, 2.4, 5), []),
            ("averaging mse", "llmc.mse", (20, 100, 2.4, 5), []),
            ("norm 2", "llmc.memoryless_mse", (40, 50, 2, 3), ["norm=2", "maxshrink=0.8", "grid=50", "patience=3"]),
            ("impatient", "llmc.memoryless_mse", (80, 100, 2.4, 1), ["maxshrink=0.8", "patience=1"])):
        fine(what, *CALIBRATE, "--preset", preset, *[w for s in words for w in ("--set", s)])
        layers = report()
        compare(what, groups, even, layers, settings)
        check(all("fallback" not in l["search"] and not l["search"]["weighted"] for l in layers.values()),
              f"{what}: nothing is weighted")
    table = fine("the table", *[w for w in CALIBRATE if w != "--quiet"], "--preset", "llmc.memoryless_mse")
    check("error before" in table and "total" in table, "the table tells what was won", table)
    fine("minmax", *CALIBRATE)
    check("error" not in json.loads(read("report.json"))
          and "search" not in json.loads(read("report.json"))["layers"][0],
          "minmax has no search to report")


def test_importance():
    groups = make_model()
    q, k, o = (PARENT + m + "_proj.input" for m in "qko")
    batches = [make_activations(f"a{i}.safetensors", [q, o]) for i in range(2)] + [make_activations("more.safetensors",
                                                                                                    [k])]
    recorded = {m: [b[n] for b in batches if n in b] for m, n in zip(LAYERS,
                                                                     (q, k, q, o))}  # v_proj: the input of q_proj
    files = [w for f in ("a0", "a1", "more") for w in ("--importance", f + ".safetensors")]
    for what, settings, words in (("imatrix", (20, 20, 3.0, 5), []),
                                  ("norm 2", (21, 100, 2, 0), ["norm=2", "grid=100", "maxshrink=0.2", "patience=0"])):
        fine(what, *CALIBRATE, "--preset", "llmc.imatrix_mse", *files, *[w for s in words for w in ("--set", s)])
        layers = report()
        compare(what, groups, {m: importance(b) for m, b in recorded.items()}, layers, settings)
        equal({m: (l["search"]["weighted"], l["search"]["importance"]) for m, l in layers.items()},
              {m: (True, n) for m, n in zip(LAYERS, (q, k, q, o))}, f"{what}: what weighs which layer")
    weighted = read("out.safetensors")
    for threads in thread_counts():
        for isa in instruction_sets():
            fine(f"{isa}, {threads} threads", *CALIBRATE, "--preset", "llmc.imatrix_mse", *files, "--threads", threads,
                 "--isa", isa,
                 *[w for s in words for w in ("--set", s)])
            equal(read("out.safetensors"), weighted, f"{isa}, {threads} threads: the same output")


def test_fallback():
    groups = make_model()
    imatrix = CALIBRATE + ("--preset", "llmc.imatrix_mse")
    o = PARENT + "o_proj"
    make_activations("good.safetensors", [PARENT + "q_proj.input"])
    make_activations("narrow.safetensors", [o + ".input"], columns=64)
    make_activations("nan.safetensors", [o + ".input"], spoil=math.nan)
    write("zero.safetensors", st_bytes({o + ".input": ("F32", [2, COLUMNS], bytes(8 * COLUMNS))}))
    good = imatrix + ("--importance", "good.safetensors")
    what, words = "not recorded", "no activations"
    fine(what, *good)
    layers = report()
    check(words in layers[o]["search"].get("fallback", "") and not layers[o]["search"]["weighted"],
          f"{what}: the reason", str(layers[o]["search"]))
    equal([m for m, l in layers.items() if "fallback" in l["search"]], [o], f"{what}: only where it is so")
    compare(what, {o: groups[o]}, {o: [1.0] * COLUMNS}, layers, (20, 20, 3.0, 5))
    table = fine(f"{what}, table", *[w for w in good if w != "--quiet"])
    check(sum("unweighted: " in line and words in line for line in table.splitlines()) == 1,
          f"{what}: the table tells it", table)
    refused(f"{what}, strict", [f"'{o}.weight'", words], *good, "--set", "strict=true")
    for what, file, words in (("other columns", "narrow", "64 columns"), ("NaN", "nan", "finite"),
                              ("zeros", "zero", "0 everywhere")):
        refused(what, [words], *good, "--importance", file + ".safetensors")
    p = run(*imatrix)
    check(p.returncode == 3 and p.stderr.count("\n") == 1 and "--importance FILE" in p.stderr,
          "no recordings at all: status 3 and the way out", f"{p.returncode} {p.stderr}")
    equal(len([m for m, l in report().items() if "fallback" in l["search"]]), 4,
          "no recordings at all: reported for every layer")
    refused("importance for minmax", ["--importance", "no weight of this run is searched"], *CALIBRATE,
            "--importance", "good.safetensors")
    refused("missing file", ["--importance", "gone.safetensors"], *imatrix, "--importance", "gone.safetensors")
    write("words.safetensors", st_bytes({o + ".input": ("I32", [1, COLUMNS], bytes(4 * COLUMNS))}))
    refused("integers", ["words.safetensors", "I32"], *imatrix, "--importance", "words.safetensors")
    refused("output onto the recordings", ["--json", "good.safetensors"], *imatrix, "--importance", "good.safetensors",
            "--json",
            "good.safetensors")
    p = run("observe", "--preset", "llmc.imatrix_mse", "--set", f"group_size={SIZE}", "--importance",
            f"narrow.safetensors:{o}.input", "--out",
            "x.safetensors", f"model.safetensors:{o}.weight")
    check(p.returncode == 0 and "warning: importance is not used" in p.stderr, "observe warns of it", p.stderr)


def test_whole_tensors():
    """All groups of a tensor are searched together for every size, as by observe."""
    rows, columns = 96, 4096  # more than a slice
    few = [source.gauss(0, 1) ** 3 for _ in range(4099)]  # no two rows are alike
    values = [few[k % 4099] * (1 + 20 * (k // columns >= 64)) for k in range(rows * columns)]
    write("model.safetensors", st_bytes({"a.weight": ("F32", [rows, columns], pack("F32", values))}))
    words = ["--preset", "llmc.memoryless_mse", "--set", "patience=1", "--set", "norm=2", "--set", "maxshrink=0.5"]
    for what, settings in (("groups", ["num_bits=4", "group_size=4096", "strategy=group"]),
                           ("channels", ["num_bits=4", "strategy=channel"]),
                           ("tensor", ["num_bits=4", "strategy=tensor"])):
        options = [w for s in settings for w in ("--set", s)]
        fine(what, "calibrate", "model.safetensors", "-o", "out.safetensors", "--quiet", "--scheme", "W8A8", *words,
             *options)
        fine(f"observe, {what}", "observe", *words, *options, "--out", "one.safetensors", "model.safetensors:a.weight")
        want = st_read("one.safetensors")[0]["scale"]
        equal(st_read("out.safetensors")[0], {"a.weight_scale": want}, f"{what}: as observe has it")


def test_global_scale():
    """Fused layers share the global scale of the ranges found."""
    make_model()
    nvfp4 = ["--set", "type=float", "--set", "num_bits=4", "--set", "strategy=tensor_group", "--set", "group_size=16",
             "--set",
             "scale_dtype=float8_e4m3fn", "--preset", "llmc.memoryless_mse"]
    fine("NVFP4", "calibrate", "model.safetensors", "-o", "out.safetensors", "--quiet", "--scheme", "NVFP4", "--preset",
         "llmc.memoryless_mse", "--preset", "input=none")
    got, _ = st_read("out.safetensors")
    own = {}
    for m in LAYERS:
        fine(f"observe {m}", "observe", *nvfp4, "--out", "one.safetensors", f"model.safetensors:{m}.weight")
        r, _ = st_read("one.safetensors")
        own[m] = max(map(abs, r["min_vals"][2] + r["max_vals"][2]))
    for m in LAYERS:
        shared = own[m] if m.endswith("o_proj") else max(own[n] for n in LAYERS if not n.endswith("o_proj"))
        scale = f32(f32(1 / shared) * 2688)
        equal(got[m + ".weight_global_scale"], ("F32", [1], [scale]), f"{m}: global scale")
        fine(f"observe {m} under it", "observe", *nvfp4, "--global-scale", repr(scale), "--out", "one.safetensors",
             f"model.safetensors:{m}.weight")
        codes = got[m + ".weight_scale"]
        equal((codes[0], codes[1]), ("F8_E4M3", [LAYERS[m], COLUMNS // 16]), f"{m}: scales as codes")
        numbers = [c % 8 * 2.0 ** -9 if c < 8 else (8 + c % 8) * 2.0 ** (c // 8 - 10) for c in codes[2]]
        equal(numbers, st_read("one.safetensors")[0]["scale"][2], f"{m}: scales")


if __name__ == "__main__":
    sys.exit(main(globals()))
