#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""`qobs calibrate --activations`: scales of inputs, outputs and attention states, recomputed in plain Python.

    test_activations.py QOBS [WRAPPER [ARGUMENT]...]     WRAPPER: a program that runs QOBS, such as an emulator

Needs the standard library only. Ends with `N passed, N failed`; exit status 1 if any failed.
"""
from cli import *

LAYER = "model.layers.%d."
ATTENTION, QKV = LAYER + "self_attn", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
HIDDEN, WIDE, HEADS, HEAD = 32, 64, 4, 8
SHAPES = {"self_attn.q_proj": [32, HIDDEN], "self_attn.k_proj": [32, HIDDEN], "self_attn.v_proj": [32, HIDDEN],
          "self_attn.o_proj": [HIDDEN, 32], "mlp.gate_proj": [WIDE, HIDDEN], "mlp.up_proj": [WIDE, HIDDEN],
          "mlp.down_proj": [HIDDEN, WIDE]}
MODULES = [LAYER % i + m for i in (0, 1) for m in SHAPES]
# The recorded input of each module in the output of record().
SOURCE = {"self_attn.k_proj": "self_attn.q_proj", "self_attn.v_proj": "self_attn.q_proj",
          "mlp.up_proj": "mlp.gate_proj"}
CALIBRATE = ("calibrate", "model.safetensors", "-o", "out.safetensors", "--quiet", "--json", "report.json", "--scheme")
source = random.Random(11)


def noise(dtype, shape, spread=1.0):
    return dtype, shape, unpack(dtype, pack(dtype, [source.gauss(0.2, spread) for _ in range(math.prod(shape))]))


def packed(tensors):
    return st_bytes({n: (d, s, pack(d, v)) for n, (d, s, v) in tensors.items()})


def make_model(dtype="BF16"):
    write("model.safetensors", packed({LAYER % i + m + ".weight": noise(dtype, s) for i in (0, 1) for m,
                                       s in SHAPES.items()}))


def record(path, dtype="BF16", batch=2, tokens=3, spread=1.0):
    """Returns a batch of all activations. Fused modules have the same input."""
    tensors = {}
    for i in (0, 1):
        for module, shape in SHAPES.items():
            if module not in SOURCE:
                tensors[LAYER % i + module + ".input"] = noise(dtype, [batch, tokens, shape[1]], spread)
        for state in ("q", "k", "v"):
            tensors[ATTENTION % i + f".{state}_states"] = noise(dtype, [batch, HEADS, tokens, HEAD], spread)
    write(path, packed(tensors))
    return tensors


def recorded_for(module):
    layer, part = module[:len(LAYER % 0)], module[len(LAYER % 0):]
    return layer + SOURCE.get(part, part) + ".input"


def activations(*paths):
    return [word for p in paths for word in ("--activations", p)]


def report():
    return json.loads(read("report.json"))


def outputs():
    """Returns the written tensors, except those of the weights."""
    return {n: t for n, t in st_read("out.safetensors")[0].items() if ".weight_" not in n}


def scale_of(dtype, values, quant_max):
    return ROUND[dtype](max(map(abs, values)) / quant_max)


def global_scale_of(dtype, values):
    rnd = ROUND[dtype]
    return rnd(rnd(1 / max(map(abs, values))) * 2688)


def gathered(batches, name):
    return [v for b in batches if name in b for v in b[name][2]]


def head_values(batches, name):
    """Returns the values of each head. States are (batch, heads, tokens, head_dim)."""
    heads = [[] for _ in range(HEADS)]
    for b in batches:
        n, h, t, d = b[name][1]
        for i in range(n * h):
            heads[i % h] += b[name][2][i * t * d:(i + 1) * t * d]
    return heads


# ---- Tests -----------------------------------------------------------------------------------------------------------

def test_fp8():
    """Running extrema over several files, in three dtypes, for inputs and states."""
    for dtype in ("BF16", "F16", "F32"):
        make_model(dtype)
        batches = [record(f"a{i}.safetensors", dtype, 2, 3 + i, 0.5 + i) for i in range(3)]
        fine(f"FP8 {dtype}", *CALIBRATE, "FP8", *activations(*[f"a{i}.safetensors" for i in range(3)]))
        want = {m + ".input_scale": (dtype, [1], [scale_of(dtype, gathered(batches, recorded_for(m)), 448)])
                for m in MODULES}
        for i in (0, 1):
            for s in ("k", "v"):
                values = gathered(batches, ATTENTION % i + f".{s}_states")
                want[ATTENTION % i + f".{s}_scale"] = (dtype, [1], [scale_of(dtype, values, 448)])
        equal(outputs(), want, f"FP8 {dtype}: scales of inputs and states")
    r = report()
    equal([r["inputs"], r["activations"]["files"]], ["static", [f"a{i}.safetensors" for i in range(3)]],
          "the report's head")
    equal(r["activations"]["unused"], 6, "q_states of three files are not needed")
    for entry in r["activations"]["modules"]:
        if entry["base"] != "input":
            continue
        name = recorded_for(entry["module"])
        equal([entry[k] for k in ("recorded", "batches", "elements", "nan", "inf")] + [f32(entry["smallest_scale"])],
              [name, 3, len(gathered(batches, name)), 0, 0, want[entry["module"] + ".input_scale"][2][0]],
              f"the report on the input of {entry['module']}")
    equal(r["activations"]["bases"], {"input": {"preset": "llmc.static_minmax", "modules": 14, "missing": 0},
                                      "k": {"preset": "llmc.static_minmax", "modules": 2, "missing": 0},
                                      "v": {"preset": "llmc.static_minmax", "modules": 2, "missing": 0}},
                                      "the report's bases")
    fine("one thread", *CALIBRATE, "FP8", *activations("a0.safetensors", "a1.safetensors", "a2.safetensors"),
         "--threads", "1")
    equal(outputs(), want, "one thread: the same")
    table = fine("a table", "calibrate", "model.safetensors", "-o", "out.safetensors", "--scheme", "FP8",
                 "--table", *activations("a0.safetensors"))
    check(all(f"{m} " in table for m in MODULES) and "input: 14 of 14 modules recorded" in table, "the table tells it",
          table)


def test_presets():
    """Order of batches; a preset for each base."""
    make_model("F32")
    batches = [record(f"a{i}.safetensors", "F32") for i in range(3)]
    files = activations(*[f"a{i}.safetensors" for i in range(3)])
    fine("presets", *CALIBRATE, "FP8", *files, "--preset", "input=llmc.minmax", "--set",
         "input.averaging_constant=0.25", "--preset",
         "k=llmc.memoryless_minmax", "--preset", "v=none", "--preset", "llmc.static_minmax")
    got = outputs()
    for m in MODULES:
        low = high = None
        for b in batches:
            values = b[recorded_for(m)][2]
            low = min(values) if low is None else f32(f32(low * 0.75) + f32(min(values) * 0.25))
            high = max(values) if high is None else f32(f32(high * 0.75) + f32(max(values) * 0.25))
        equal(got.pop(m + ".input_scale"), ("F32", [1], [f32(max(-low, high) / 448)]),
              f"moving average of the input of {m}")
    want = {ATTENTION % i + ".k_scale": ("F32", [1], [scale_of("F32", batches[2][ATTENTION % i + ".k_states"][2], 448)])
            for i in (0, 1)}
    equal(got, want, "the last batch of k, nothing for v")
    bases = report()["activations"]["bases"]
    equal({b: v["preset"] for b, v in bases.items()}, {"input": "llmc.minmax", "k": "llmc.memoryless_minmax"},
          "presets reported")


def test_integers():
    """Static int8 with zero points for inputs and outputs; one scale for each group; states by head."""
    make_model("F16")
    batches = [record("a.safetensors", "F16")]
    more = {m + ".output": noise("F16", [6, SHAPES[m[len(LAYER % 0):]][0]], 2.0) for m in MODULES}
    write("more.safetensors", packed(more))
    fine("static int8", *CALIBRATE, "W8A8", *activations("a.safetensors", "more.safetensors"), "--set",
         "input.dynamic=false", "--set",
         "input.strategy=tensor", "--set", "input.symmetric=false", "--set", "output.num_bits=4", "--set",
         "output.symmetric=false",
         "--set", "kv.strategy=attn_head", "--set", "kv.type=int", "--set", "v.symmetric=false", "--preset",
         "q=llmc.static_minmax")
    want = {}
    for m in MODULES:
        for base, values, bits in (("input", batches[0][recorded_for(m)][2], 8), ("output", more[m + ".output"][2], 4)):
            scale, zero_point = qparams("F16", values, bits, False)
            want[f"{m}.{base}_scale"] = ("F16", [1], [scale])
            want[f"{m}.{base}_zero_point"] = ("I8", [1], [zero_point])
    for i in (0, 1):
        at = ATTENTION % i
        keys = [qparams("F16", h, 8, True)[0] for h in head_values(batches, at + ".k_states")]
        values = [qparams("F16", h, 8, False) for h in head_values(batches, at + ".v_states")]
        want[at + ".k_scale"] = ("F16", [HEADS, 1, 1], keys)
        want[at + ".v_scale"] = ("F16", [HEADS, 1, 1], [v[0] for v in values])
        want[at + ".v_zero_point"] = ("I8", [HEADS, 1, 1], [v[1] for v in values])
        want[at + ".q_scale"] = ("F16", [1], [scale_of("F16", batches[0][at + ".q_states"][2], 448)])
    equal(outputs(), want, "static int8: scales and zero points")
    equal(report()["activations"]["unused"], 0, "everything recorded was needed")
    fine("groups", *CALIBRATE, "W8A16", *activations("a.safetensors"), "--preset", "kv=none", "--set", "group_size=8",
         "--set", "input.group_size=8")
    values = batches[0][LAYER % 0 + "self_attn.o_proj.input"][2]
    groups = [[v for k, v in enumerate(values) if k % 32 // 8 == g] for g in range(4)]
    got = outputs()
    equal(got.get(LAYER % 0 + "self_attn.o_proj.input_scale"), ("F16", [4],
                                                                [qparams("F16", g, 8, True)[0] for g in groups]),
          "a scale for each group of an input")
    equal(len(got), 14, "inputs of a scheme that leaves them alone, because they were requested")


def test_nvfp4():
    """A static global scale for inputs, which fused modules share."""
    for dtype in ("BF16", "F32"):
        make_model(dtype)
        batches = [record(f"a{i}.safetensors", dtype) for i in range(2)]
        files = activations("a0.safetensors", "a1.safetensors")
        fine(f"NVFP4 {dtype}", *CALIBRATE, "NVFP4", *files, "--preset", "kv=none")
        want = {m + ".input_global_scale": ("F32", [1], [global_scale_of(dtype, gathered(batches, recorded_for(m)))])
                for m in MODULES}
        equal(outputs(), want, f"NVFP4 {dtype}: global scales of inputs")
    # k has its own input, larger in layer 0 and smaller in layer 1. v uses the first recorded one, that of q.
    extra = {LAYER % i + "self_attn.k_proj.input": ("F32", [2, HIDDEN], [(50.0, 0.25)[i]] * 2 * HIDDEN) for i in (0, 1)}
    write("extra.safetensors", packed(extra))
    fine("several recorded", *CALIBRATE, "NVFP4", *files, *activations("extra.safetensors"), "--preset", "kv=none")
    for i in (0, 1):
        values = gathered(batches,
                          LAYER % i + "self_attn.q_proj.input") + extra[LAYER % i + "self_attn.k_proj.input"][2]
        for m in QKV:
            want[LAYER % i + m + ".input_global_scale"] = ("F32", [1], [global_scale_of("F32", values)])
    equal(outputs(), want, "fused modules share the largest magnitude")
    equal([e["recorded"] for e in report()["activations"]["modules"] if e["module"].endswith("0.self_attn.v_proj")],
          [LAYER % 0 + "self_attn.q_proj.input"], "the stand-in is reported")
    # Static local scales under the shared global scale, as e4m3 codes.
    fine("static NVFP4", *CALIBRATE, "NVFP4", *files, *activations("extra.safetensors"), "--preset", "kv=none", "--set",
         "input.dynamic=false")
    got = st_read_codes("out.safetensors")
    name = LAYER % 1 + "self_attn.q_proj.input_"
    shared = want[name + "global_scale"][2][0]
    columns = [[] for _ in range(HIDDEN // 16)]
    for k, v in enumerate(gathered(batches, LAYER % 1 + "self_attn.q_proj.input")):
        columns[k % HIDDEN // 16].append(v)
    codes = [to_e4m3(f32(f32(max(map(abs, c)) / 6) * shared)) for c in columns]
    equal(got[name + "scale"], ("F8_E4M3", [HIDDEN // 16], bytes(codes)), "local scales are stored as e4m3 codes")


def st_read_codes(path):
    raw = read(path)
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__")
    return {n: (t["dtype"], t["shape"], raw[8 + length:][slice(*t["data_offsets"])]) for n, t in header.items()}


def to_e4m3(x):
    """Returns the code of the nearest positive e4m3 number, ties to the even code."""
    values = [c % 8 * 2.0 ** -9 if c < 8 else (8 + c % 8) * 2.0 ** (c // 8 - 10) for c in range(127)]
    return min(range(127), key=lambda c: (abs(values[c] - x), c & 1))


def test_nothing_needed():
    make_model()
    record("a.safetensors")
    for scheme, inputs in (("W8A8", "dynamic"), ("W4A16", "none"), ("FP8_DYNAMIC", "dynamic"), ("MXFP4", "dynamic")):
        settings = ["--set", "group_size=32"] if scheme == "W4A16" else []
        fine(scheme, *CALIBRATE, scheme, *settings, *activations("a.safetensors"))
        equal(sorted(outputs()), sorted(ATTENTION % i + f".{s}_scale" for i in (0, 1) for s in "kv"),
              f"{scheme}: states alone")
        equal(report()["inputs"], inputs, f"{scheme}: inputs are {inputs}")
    table = fine("W8A8's table", *[w for w in CALIBRATE if w != "--quiet"], "W8A8")
    check("while the model runs" in table, "the table says that scales are dynamic", table)
    p = run(*CALIBRATE, "FP8")
    check(p.returncode == 3 and "--activations" in p.stderr and "input_scale" in p.stderr and
          len(p.stderr.splitlines()) == 1, "FP8 without activations: a warning and exit status 3", p.stderr)
    equal(len(st_read("out.safetensors")[0]), 14, "FP8 without activations: the scales of weights are written")
    equal(report()["inputs"], "static", "FP8's report without activations")
    fine("no other scales are wanted", *CALIBRATE, "FP8", "--preset", "input=none")
    p = run(*CALIBRATE, "W8A8", *activations("a.safetensors"), "--preset", "kv=none")
    check(p.returncode == 3 and "--activations: nothing in them is used" in p.stderr, "recordings of no use", p.stderr)
    equal(outputs(), {}, "nothing requested, nothing written")


def test_missing():
    make_model()
    tensors = record("a.safetensors")
    gone = [LAYER % 1 + "mlp.down_proj.input", LAYER % 0 + "self_attn.q_proj.input", ATTENTION % 1 + ".v_states"]
    write("some.safetensors", packed({n: t for n, t in tensors.items() if n not in gone}))
    p = run(*CALIBRATE, "FP8", *activations("some.safetensors"))
    lines = p.stderr.splitlines()
    check(p.returncode == 3 and len(lines) == 2 and "4 of 14" in lines[0] and "1 of 2" in lines[1]
          and LAYER % 0 + "self_attn.k_proj" in lines[0],
          "missing inputs: a warning for each base", p.stderr)
    missing = [m for m in MODULES if recorded_for(m) in gone]
    check(not any(m + ".input_scale" in outputs() for m in missing), "missing inputs: no scale is made up")
    equal(len(outputs()), 10 + 2 + 1, "missing inputs: the others are written")
    modules = report()["activations"]["modules"]
    equal(sorted((e["module"], e["base"]) for e in modules if e["recorded"] is None),
          sorted([(m, "input") for m in missing] + [(ATTENTION % 1, "v")]), "missing inputs: reported")
    states = {n: t for n, t in tensors.items() if "states" in n}
    write("states.safetensors", packed(states))
    refused("no inputs at all", ["--activations", ".input", "14 modules", "input=none"], *CALIBRATE, "FP8",
            *activations("states.safetensors"))
    fine("no inputs wanted", *CALIBRATE, "FP8", *activations("states.safetensors"), "--preset", "input=none")
    equal(len(outputs()), 4, "no inputs wanted: states alone")
    fine("ignored attention", *CALIBRATE, "FP8", *activations("a.safetensors"), "--ignore", "model.layers.1.self_attn")
    equal(sorted(n for n in outputs() if "_proj" not in n), [ATTENTION % 0 + ".k_scale", ATTENTION % 0 + ".v_scale"],
          "--ignore speaks of attention, too")
    write("inputs.safetensors", packed({n: t for n, t in tensors.items() if "states" not in n}))
    fine("no states", *CALIBRATE, "FP8", *activations("inputs.safetensors"))
    equal(len(outputs()), 14, "states that are not recorded are not missed")
    refused("requested states", ["--activations", ".k_states", "2 modules"], *CALIBRATE, "FP8",
            *activations("inputs.safetensors"), "--set",
            "kv.num_bits=8")


def test_states_of_groups():
    """Saved states give what recordings give; one of a tensor with other columns is refused."""
    make_model()
    tensors = record("a.safetensors")
    command = (*CALIBRATE, "W8A16", "--preset", "kv=none", "--set", "group_size=8", "--set", "input.group_size=8")
    groups = ("--preset", "llmc.static_minmax", "--set", "num_bits=8", "--set", "strategy=group", "--set",
              "group_size=8", "--base-name", "input")
    fine("recordings", *command, *activations("a.safetensors"))
    wanted, inputs = outputs(), [name for name in tensors if name.endswith(".input")]
    os.mkdir("states")
    for name in inputs:
        fine(name, "observe", *groups, "--state", f"states/{name}.qobs", f"a.safetensors:{name}")
    fine("states", *command, "--states", "states")
    equal(outputs(), wanted, "states")
    write("other.safetensors", packed({"x": noise("BF16", [3, 64])}))
    name = LAYER % 0 + "self_attn.o_proj.input"
    fine("another tensor", "observe", *groups, "--state", f"states/{name}.qobs", "other.safetensors:x")
    refused("a state of other columns", [f"states/{name}.qobs", "has 8 scales", "needs 4"], *command, "--states",
            "states")


def test_refused():
    make_model()
    tensors = record("a.safetensors")
    calibrate = CALIBRATE + ("FP8", "--activations", "bad.safetensors")
    name = LAYER % 0 + "mlp.down_proj.input"

    def bad(change):
        write("bad.safetensors", packed(dict(tensors, **{name: change})))
    bad(noise("BF16", [2, 3, 32]))
    refused("wrong features", ["bad.safetensors", f"'{name}'", "[2,3,32]", "64"], *calibrate)
    bad(noise("BF16", [64]))
    refused("one dimension", ["bad.safetensors", f"'{name}'", "[64]"], *calibrate)
    bad(("I32", [2, 64], [1] * 128))
    refused("integers", ["bad.safetensors", f"'{name}'", "I32"], *calibrate)
    bad(("BF16", [2, 64], [1.0] * 100 + [math.nan] * 3 + [math.inf] + [2.0] * 24))
    refused("NaN", ["bad.safetensors", f"'{name}'", "3 NaN and 1 infinite", "NaN at [1, 36]"], *calibrate)
    fine("NaN ignored", *calibrate, "--set", "input.nonfinite=ignore")
    equal(outputs()[LAYER % 0 + "mlp.down_proj.input_scale"], ("BF16", [1], [scale_of("BF16", [2.0], 448)]),
          "NaN ignored: the others")
    equal([[e["nan"], e["inf"]] for e in report()["activations"]["modules"] if e["recorded"] == name], [[3, 1]],
          "NaN ignored: counted")
    bad(noise("F32", [2, 64]))
    fine("another dtype in every file is fine", *calibrate)
    refused("another dtype in the next batch", ["bad.safetensors", f"'{name}'"], *CALIBRATE, "FP8",
            *activations("a.safetensors", "bad.safetensors"))
    write("states.safetensors", packed(dict(tensors, **{ATTENTION % 0 + ".k_states": noise("BF16", [2, 3, HIDDEN])})))
    refused("states of three dimensions", ["states.safetensors", "k_states"], *CALIBRATE, "FP8",
            *activations("states.safetensors"))
    good = CALIBRATE + ("FP8", "--activations", "a.safetensors")
    os.makedirs("empty", exist_ok=True)
    refused("a directory without recordings", ["--activations", "empty", "is a directory"], *CALIBRATE, "FP8",
            *activations("empty"))
    refused("missing file", ["--activations", "gone.safetensors"], *CALIBRATE, "FP8", "--activations",
            "gone.safetensors")
    for option in ("--preset", "--set"):
        refused(f"unknown base of {option}", [option, "'bias'", "weight, input, output, q, k, v"], *good, option,
                "bias=llmc.minmax" if option == "--preset" else "bias.num_bits=8")
    refused("unknown preset of a base", ["--preset input", "'llmc.best'"], *good, "--preset", "input=llmc.best")
    refused("unknown setting of a base", ["--set", "'bits'"], *good, "--set", "k.bits=8")
    refused("static token", ["token", "dynamic"], *CALIBRATE, "W8A8", "--activations", "a.safetensors", "--set",
            "input.dynamic=false")
    refused("base name as a setting", ["--set", "base_name"], *good, "--set", "input.base_name=output")
    refused("settings without activations", ["input", "--activations"], *CALIBRATE, "FP8", "--set", "input.num_bits=8")
    refused("a preset that cannot", ["--preset", "torch.MinMaxObserver", "FP8"], *good, "--preset",
            "input=torch.MinMaxObserver")
    for option, old in (("--out", "out.safetensors"), ("--json", "report.json")):
        refused(f"{option} onto the activations", [option, "a.safetensors", "is an input"],
                *["a.safetensors" if word == old else word for word in good])


def test_directory():
    """A directory of recordings is its files in the order of their names; nothing else in it counts."""
    make_model()
    os.makedirs("batches")
    names = ["batches/%05d.safetensors" % i for i in (2, 0, 10, 1)]
    for i, name in enumerate(names):
        record(name, spread=1 + i)
    write("batches/notes.txt", b"text")
    average = ("--preset", "input=llmc.minmax")  # the order of the batches decides
    found = {}
    for what, paths in (("directory", ["batches"]), ("files", sorted(names)), ("another order", names)):
        fine(what, *CALIBRATE, "FP8", *average, *activations(*paths))
        found[what] = outputs()
    equal(found["directory"], found["files"], "a directory gives what its files give")
    check(found["another order"] != found["files"], "the order of the batches decides")


def test_same_everywhere():
    make_model()
    for i in range(2):
        record(f"a{i}.safetensors", "BF16", 3, 17)
    outputs_seen = set()
    for isa in instruction_sets():
        for threads in thread_counts():
            fine(f"{isa}, {threads} threads", *CALIBRATE, "NVFP4", *activations("a0.safetensors", "a1.safetensors"),
                 "--isa", isa, "--threads",
                 threads, "--set", "kv.strategy=attn_head")
            outputs_seen.add(read("out.safetensors"))
    equal(len(outputs_seen), 1, "one output on every instruction set and number of threads")


if __name__ == "__main__":
    sys.exit(main(globals()))
