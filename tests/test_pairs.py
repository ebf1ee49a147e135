#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Every source in every dialect and scheme by convert: what is written has the numbers of the source, by a reader of a
few lines; the rest is refused. The table of docs/checkpoint.md says which; with --write it is written.

    test_pairs.py QOBS [--write]
"""
import json
import pathlib
import shutil
import struct
import sys

WRITES = "--write" in sys.argv
sys.argv = [a for a in sys.argv if a != "--write"]
import cli
from cli import check, equal
from test_casts import e4m3, random_bytes
from test_dialects import ORDER
from test_sources import make, st_raw

MODULE = "model.layers.0.mlp.down_proj"
DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "checkpoint.md"
BEGIN, END = "<!-- conversions -->\n", "<!-- end -->\n"
ROWS, COLUMNS = 128, 256
INTEGERS = ("W4A16", "W4A16_ASYM")
SCHEMES = {"compressed-tensors": (*INTEGERS, "W8A16", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4A16",
                                  "MXFP6A16", "MXFP8A16"),
           "modelopt": ("FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP8"), "fp8": ("FP8_BLOCK",),
           "awq": INTEGERS, "gptq": INTEGERS, "gptq-v2": INTEGERS}


# ---- A reader of all spellings ---------------------------------------------------------------------------------------

def stream(data, bits, word=32):
    """The codes in a stream of bits."""
    value = int.from_bytes(data, "little")
    return [value >> bits * i & (1 << bits) - 1 for i in range(len(data) * 8 // bits)]


def scales_of(tensor):
    dtype, _, data = tensor
    return ([e4m3(b) for b in data] if dtype == "F8_E4M3" else [2.0 ** (b - 127) for b in data]
            if dtype in ("U8", "F8_E8M0") else list(cli.unpack(dtype, data)))


def columns_of(rows):
    return [list(column) for column in zip(*rows)]


def by_words(part, offset):
    """Codes, zero points and scales [row][column or group] in words of AWQ and GPTQ."""
    dtype, (groups, rows), _ = part("scales")
    split = lambda values, width: [values[i:i + width] for i in range(0, len(values), width)]
    scales = columns_of(split(scales_of(part("scales")), rows))
    _, (height, width), data = part("qweight")
    _, (_, zero_words), zeros = part("qzeros")
    bits = zero_words * 32 // rows
    along = lambda data: split(stream(data, bits), rows)
    if width != rows:  # AWQ
        ordered = lambda row: [row[i // 8 * 8 + ORDER.index(i % 8)] for i in range(rows)]
        return columns_of(map(ordered, along(data))), columns_of(map(ordered, along(zeros))), scales
    words = columns_of([data[4 * i:4 * i + 4] for i in range(k * rows, k * rows + rows)] for k in range(height))
    return ([stream(b"".join(row), bits) for row in words],
            columns_of([z + offset for z in row] for row in along(zeros)), scales)


def by_packs(part):
    """The same in packed integers."""
    rows, columns = struct.unpack("<2q", part("weight_shape")[2])
    _, (_, width), data = part("weight_packed")
    bits, step = width * 32 // columns, 4 * width
    codes = [stream(data[r * step:r * step + step], bits) for r in range(rows)]
    _, (_, groups), _ = part("weight_scale")
    flat, zeros = scales_of(part("weight_scale")), [[1 << bits - 1] * groups] * rows
    if part("weight_zero_point"):
        words = struct.unpack(f"<{rows * bits // 32 * groups}I", part("weight_zero_point")[2])
        zeros = columns_of(stream(struct.pack(f"<{len(words) // groups}I", *words[g::groups]), bits)
                           for g in range(groups))
    return codes, zeros, [flat[r * groups:r * groups + groups] for r in range(rows)]


def by_quark(part, dtype):
    """Codes in the order of AWQ under other names; those of int4 are in two's complement."""
    names = {"qweight": "weight", "scales": "weight_scale", "qzeros": "weight_zero_point"}
    codes, zeros, scales = by_words(lambda name: part(names[name]), 0)
    turned = lambda rows: [[c ^ (8 if dtype == "int4" else 0) for c in row] for row in rows]
    return turned(codes), turned(zeros), scales


def e2m1(code):
    return (0, .5, 1, 1.5, 2, 3, 4, 6)[code & 7] * (-1 if code & 8 else 1)


def e2m3(code):
    exponent, mantissa = code >> 3 & 3, code & 7
    return ((8 + mantissa) * 2.0 ** (exponent - 4) if exponent else mantissa / 8) * (-1 if code & 32 else 1)


def by_floats(part):
    """The numbers of floats, and of INT8."""
    dtype, (rows, width), data = part("weight_packed") or part("weight")
    stored = part("weight_scale") or part("weight_scale_inv")
    scales = scales_of(stored)
    if dtype == "U8":
        columns = (16 if stored[0] == "F8_E4M3" else 32) * (len(scales) // rows)
        bits = width * 8 // columns
        values = [(e2m1 if bits == 4 else e2m3)(c) for c in stream(data, bits)]
    else:
        columns = width
        values = [b - 256 * (b > 127) if dtype == "I8" else e4m3(b & 127) * (-1 if b > 127 else 1) for b in data]
    for name, of in (("weight_scale_2", lambda s, g: cli.f32(s * g)),
                     ("weight_global_scale", lambda s, g: cli.f32(s / g))):
        if part(name):
            (factor,) = cli.unpack("F32", part(name)[2])
            scales = [of(s, factor) for s in scales]
    height = rows * columns // 128 ** 2 if len(scales) == rows * columns // 128 ** 2 else 0
    size = rows * columns // len(scales)
    return [v * scales[i // columns // 128 * (columns // 128) + i % columns // 128 if height else i // size]
            for i, v in enumerate(values)]


def numbers(tensors, config):
    """The numbers of the module: integers exactly, floats rounded to BF16, as runtimes have them. Zeros have no sign."""
    part = lambda name: tensors.get(f"{MODULE}.{name}")
    if part("weight") and part("weight")[0] == "I8":
        return by_floats(part)
    if not part("qweight") and (part("weight_packed") or part("weight"))[0] != "I32":
        return cli.bf16_codes([x + 0.0 for x in by_floats(part)])
    lacking = config.get("checkpoint_format") == "gptq"
    codes, zeros, scales = (by_words(part, lacking) if part("qweight") else by_packs(part) if part("weight_packed")
                            else by_quark(part, config["global_quant_config"]["weight"]["dtype"]))
    groups = len(scales[0])
    return [(code - zeros[r][c * groups // COLUMNS]) * scales[r][c * groups // COLUMNS] for r, row in enumerate(codes)
            for c, code in enumerate(row)]


# ---- Sources ---------------------------------------------------------------------------------------------------------

def quark(dtype, qscheme="per_group", inputs=None, **more):
    """A configuration as Quark 0.13 writes it, without members that nobody reads."""
    size = {"group_size": 128} if qscheme == "per_group" else {"group_size": None}
    return {"quant_method": "quark", "exclude": [], "layer_quant_config": {}, "export": {"pack_method": "reorder"},
            "global_quant_config": {"weight": {"dtype": dtype, "qscheme": qscheme, **size}, "input_tensors": inputs},
            **more}


def by_hand():
    """Yields (name, tensors, configuration) of spellings that quantize does not write."""
    codes = bytes(b ^ (b & 127 == 127) for b in random_bytes("codes", ROWS * COLUMNS))
    scales = lambda count: b"".join(struct.pack("<f", (b + 1) / 997) for b in random_bytes("scales", count))
    weight = {f"{MODULE}.weight": ("F8_E4M3", [ROWS, COLUMNS], codes)}
    yield "FP8 by tensors, ModelOpt", {**weight, f"{MODULE}.weight_scale": ("F32", [], scales(1))}, {
        "quant_method": "modelopt", "quant_algo": "FP8"}
    yield "FP8 by channels, FBGEMM", {**weight, f"{MODULE}.weight_scale": ("F32", [ROWS, 1], scales(ROWS))}, {
        "quant_method": "fbgemm_fp8"}
    yield "FP8 by blocks, DeepSeek", {**weight, f"{MODULE}.weight_scale_inv": ("F32", [1, 2], scales(2))}, {
        "quant_method": "fp8", "weight_block_size": [128, 128]}
    nibbles = random_bytes("nibbles", ROWS * COLUMNS // 2)
    exponents = bytes(120 + b % 8 for b in random_bytes("exponents", ROWS * COLUMNS // 32))
    yield "MXFP4, ModelOpt", {f"{MODULE}.weight": ("U8", [ROWS, COLUMNS // 2], nibbles),
                              f"{MODULE}.weight_scale": ("U8", [ROWS, COLUMNS // 32], exponents)}, {
        "quant_method": "modelopt", "quant_algo": "MXFP4"}
    halves = lambda count: b"".join(struct.pack("<f", (b + 1) / 997)[2:] for b in random_bytes("halves", count))
    for dtype, zeros in (("int4", bytes(ROWS)), ("uint4", random_bytes("zeros", ROWS))):
        yield f"{dtype}, Quark", {f"{MODULE}.weight": ("I32", [COLUMNS, ROWS // 8], nibbles),
                                  f"{MODULE}.weight_scale": ("BF16", [2, ROWS], halves(2 * ROWS)),
                                  f"{MODULE}.weight_zero_point": ("I32", [2, ROWS // 8], zeros)}, quark(dtype)


WRITTEN = (("int4", "compressed-tensors", "W4A16"), ("int4 with zero points", "compressed-tensors", "W4A16_ASYM"),
           ("int4", "awq", "W4A16"), ("int4 with zero points", "awq", "W4A16_ASYM"),
           ("int4", "gptq", "W4A16"), ("int4", "gptq-v2", "W4A16"), ("int4 with zero points", "gptq-v2", "W4A16_ASYM"),
           ("int8 by channels", "compressed-tensors", "W8A8"), ("packed int8", "compressed-tensors", "W8A16"),
           ("FP8 by channels", "compressed-tensors", "FP8_DYNAMIC"), ("FP8 by channels", "modelopt", "FP8_DYNAMIC"),
           ("FP8 by blocks", "compressed-tensors", "FP8_BLOCK"), ("FP8 by blocks", "modelopt", "FP8_BLOCK"),
           ("FP8 by blocks", "fp8", "FP8_BLOCK"), ("NVFP4", "compressed-tensors", "NVFP4A16"),
           ("NVFP4", "modelopt", "NVFP4A16"),
           ("MXFP4", "compressed-tensors", "MXFP4A16"), ("MXFP6", "compressed-tensors", "MXFP6A16"),
           ("MXFP8", "compressed-tensors", "MXFP8A16"), ("MXFP8", "modelopt", "MXFP8"))


def sources():
    """Makes the directory `source` of each; yields its name."""
    plain = b"".join(struct.pack("<f", (b - 128) * (1 + i % 7) / 4099)[2:]
                     for i, b in enumerate(random_bytes("plain", ROWS * COLUMNS)))
    for name, dialect, scheme in WRITTEN:
        make("in", {f"{MODULE}.weight": ("BF16", [ROWS, COLUMNS], plain)}, torch_dtype="bfloat16")
        shutil.rmtree("source", ignore_errors=True)
        p = cli.run("quantize", "in", "--scheme", scheme, "--dialect", dialect, "-o", "source")
        equal(p.returncode, 0, f"{name}, {dialect}: {p.stderr}")
        yield f"{name}, {dialect}"
    for name, tensors, config in by_hand():
        make("source", tensors, torch_dtype="bfloat16", quantization_config=config)
        yield name


def read(path):
    config = json.loads(cli.read(f"{path}/config.json"))["quantization_config"]
    return numbers(st_raw(f"{path}/model.safetensors"), config)


def convert(name, want, dialect, scheme):
    """Returns true if the scheme of the dialect holds the numbers of the source."""
    shutil.rmtree("out", ignore_errors=True)
    p = cli.run("convert", "source", "--scheme", scheme, "--dialect", dialect, "-o", "out")
    what = f"{name} to {scheme} of {dialect}"
    if p.returncode == 0:
        check(read("out") == want, f"{what}: numbers")
        return True
    equal(p.returncode, 2, f"{what}: {p.stderr}")
    check(f"{MODULE}.weight" in p.stderr or f"{MODULE}.qweight" in p.stderr, f"{what}: the refusal", p.stderr)
    return False


def test_pairs():
    lines = ["| source | " + " | ".join(SCHEMES) + " |", "|---" * (1 + len(SCHEMES)) + "|"]
    for name in sources():
        want = read("source")
        check(len(set(want)) > 8, f"{name}: numbers differ")
        dialect = name.rpartition(", ")[2] if name.rpartition(", ")[2] in SCHEMES else "compressed-tensors"
        if "ModelOpt" not in name:
            p = converted("--dialect", dialect)
            equal(p.returncode, 0, f"{name} by the scheme that it states: {p.stderr}")
            check(read("out") == want, f"{name} by the scheme that it states: numbers")
        held = {d: [s for s in schemes if convert(name, want, d, s)] for d, schemes in SCHEMES.items()}
        check(any(held.values()), f"{name}: something holds it")
        lines.append(f"| {name} | " + " | ".join(", ".join(held[d]) or "no" for d in SCHEMES) + " |")
    table = "\n" + "\n".join(lines) + "\n\n"
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    old, found, after = rest.partition(END)
    check(found, "the table of docs/checkpoint.md")
    if WRITES:
        DOCUMENT.write_text(before + BEGIN + table + END + after, encoding="utf-8")
    else:
        equal(old, table, "the table of docs/checkpoint.md; test_pairs.py QOBS --write writes it")


# ---- Scales of inputs ------------------------------------------------------------------------------------------------

STATIC = (("FP8", "compressed-tensors"), ("FP8", "modelopt"), ("NVFP4", "compressed-tensors"), ("NVFP4", "modelopt"),
          ("W8A8_STATIC", "compressed-tensors"), ("W8A8_STATIC_ASYM", "compressed-tensors"))


def write_plain():
    plain = b"".join(struct.pack("<f", (b - 128) * (1 + i % 7) / 4099)[2:]
                     for i, b in enumerate(random_bytes("plain", ROWS * COLUMNS)))
    make("in", {f"{MODULE}.weight": ("BF16", [ROWS, COLUMNS], plain)}, torch_dtype="bfloat16")
    halves = b"".join(struct.pack("<e", (b - 90) / 97) for b in random_bytes("inputs", 4 * COLUMNS))
    cli.write("recorded", cli.st_bytes({f"{MODULE}.input": ("F16", [4, COLUMNS], halves)}))


def inputs(path):
    """The scale of the inputs and whether it is a divisor, and their zero point."""
    tensors = st_raw(f"{path}/model.safetensors")
    part = lambda name: tensors.get(f"{MODULE}.{name}")
    stored = part("input_global_scale") or part("input_scale")
    zero = part("input_zero_point")
    return cli.unpack(stored[0], stored[2]), bool(part("input_global_scale")), zero and zero[2]


def shapes(path):
    return {name: shape for name, (_, shape, _) in st_raw(f"{path}/model.safetensors").items()}


def configuration(path):
    return json.loads(cli.read(f"{path}/config.json"))["quantization_config"]


def check_inputs(what, scheme, dialect, into):
    """The scale is the same number, or the reciprocal that is next to it."""
    (before,), divided, zero = inputs("source")
    (after,), divides, zero_after = inputs("out")
    equal((divides, zero_after), (scheme == "NVFP4" and into != "modelopt", zero), f"{what}: how inputs are stored")
    equal(after, before if divided == divides else cli.f32(1 / before), f"{what}: the scale of inputs")
    described = [g["input_activations"] for g in configuration("out")["config_groups"].values()]
    check(described and not any(a["dynamic"] is True for a in described), f"{what}: the configuration", described)


def converted(*options):
    shutil.rmtree("out", ignore_errors=True)
    return cli.run("convert", "source", "-o", "out", *options)


def test_static_inputs():
    """Scales of inputs stay, in the spelling of each dialect, without a --scheme: the configuration states it."""
    write_plain()
    for scheme, dialect in STATIC:
        cli.fine("source", "quantize", "in", "--scheme", scheme, "--dialect", dialect, "--activations", "recorded",
                 "--quiet", "-o", f"{scheme}-{dialect}")
    for scheme, dialect in STATIC:
        shutil.rmtree("source", ignore_errors=True)
        shutil.copytree(f"{scheme}-{dialect}", "source")
        want = read("source")
        for into in ("compressed-tensors", "modelopt"):
            what = f"{scheme} of {dialect} to {into}"
            p = converted("--dialect", into)
            if into == "modelopt" and scheme.startswith("W8A8"):
                equal(p.returncode, 2, f"{what}: {p.stderr}")
                check("modelopt does not store" in p.stderr, f"{what}: the refusal", p.stderr)
                continue
            equal((p.returncode, p.stderr), (0, ""), what)
            equal(read("out"), want, f"{what}: numbers")
            check_inputs(what, scheme, dialect, into)
            equal(shapes("out"), shapes(f"{scheme}-{into}"), f"{what}: tensors are those of quantize")
        p = cli.run("quantize", "source", "--scheme", scheme, "-o", "out", "--replace")
        equal(p.returncode, 0, f"{scheme} of {dialect}, quantize: {p.stderr}")
        check_inputs(f"{scheme} of {dialect}, quantize", scheme, dialect, "compressed-tensors")


def change(**tensors):
    """Writes `source` with other tensors of the module; None: none."""
    stored = {n: t for n, t in {**by_static(), **{f"{MODULE}.{n}": t for n, t in tensors.items()}}.items() if t}
    make("source", stored, torch_dtype="bfloat16",
         quantization_config={"quant_method": "fp8", "activation_scheme": "static"})


def by_static():
    _, tensors, _ = next(by_hand())
    return {**tensors, f"{MODULE}.input_scale": ("F32", [], struct.pack("<f", 0.0123))}


def test_static_refusals():
    """Scales that no loader reads are refused; those that a scheme does not store are named."""
    change()
    equal(converted("--dialect", "modelopt").returncode, 0, "fp8 with static inputs")
    equal(inputs("out")[0], inputs("source")[0], "fp8 with static inputs: F32 stays")
    p = converted("--scheme", "FP8_DYNAMIC")
    check(p.returncode == 0 and "scales of inputs" in p.stdout + p.stderr and "FP8_DYNAMIC" in p.stdout + p.stderr,
          "dynamic inputs", p.stdout + p.stderr)
    for what, tensor, words in (("no scale", None, ("has no input_scale", "audit --fix")),
                                ("two scales", ("F32", [2], bytes(8)), ("[2]", "one number")),
                                ("a scale of bytes", ("I8", [], b"\1"), ("I8", "one number")),
                                ("a scale of 0", ("F32", [], bytes(4)), ("is 0",)),
                                ("NaN", ("F32", [], b"\0\0\xc0\x7f"), ("nan",))):
        change(input_scale=tensor)
        p = converted()
        check(p.returncode == 2 and all(w in p.stderr for w in (MODULE, *words)), what, p.stderr)
    make("source", by_static(), torch_dtype="bfloat16")
    p = converted()
    check(p.returncode == 2 and all(w in p.stderr for w in ("is FP8", "--scheme", "FP8, FP8_DYNAMIC")),
          "nothing states the scheme", p.stderr)
    make("source", by_static(), torch_dtype="bfloat16",
         quantization_config={"quant_method": "modelopt", "quant_algo": "W4A8_NVFP4_FP8"})
    p = converted()
    check(p.returncode == 2 and all(w in p.stderr for w in ("W4A8_NVFP4_FP8", "--scheme", "FP8, FP8_DYNAMIC")),
          "an algorithm that is not read", p.stderr)
    make("source", {f"{MODULE}.weight": ("U8", [ROWS, COLUMNS // 2], random_bytes("codes", ROWS * COLUMNS // 2)),
                    f"{MODULE}.weight_scale": ("U8", [ROWS, COLUMNS // 32], b"\x78" * (ROWS * COLUMNS // 32))},
         torch_dtype="bfloat16", quantization_config={"quant_method": "modelopt", "quant_algo": "W4A8_MXFP4_FP8"})
    p = converted()
    check(p.returncode == 2 and all(w in p.stderr for w in ("no scheme quantizes inputs", "--scheme", "MXFP4")),
          "inputs that no scheme has", p.stderr)
    make("source", {f"{MODULE}.weight": ("I8", [ROWS, COLUMNS], random_bytes("codes", ROWS * COLUMNS)),
                    f"{MODULE}.weight_scale": ("F32", [1], struct.pack("<f", 0.01))}, torch_dtype="bfloat16")
    p = converted()
    check(p.returncode == 2 and "no scheme" in p.stderr, "integers with one scale that nothing states", p.stderr)


def test_quark():
    """FP8 of Quark has its scales of inputs; what is not read is refused with its name."""
    fp8 = quark("fp8_e4m3", "per_tensor", {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False})
    make("source", by_static(), torch_dtype="bfloat16", quantization_config=fp8)
    equal(converted("--dialect", "modelopt").returncode, 0, "FP8 of Quark")
    check(read("out") == read("source") and inputs("out")[0] == inputs("source")[0], "FP8 of Quark: numbers")
    int8 = {f"{MODULE}.weight": ("I8", [COLUMNS, ROWS], random_bytes("codes", ROWS * COLUMNS)),
            f"{MODULE}.weight_scale": ("F32", [2, ROWS], bytes(8 * ROWS))}
    for what, tensors, config, words in (
            ("int8 in groups", int8, quark("int8"), ("int8 per_group", "W4A16")),
            ("a scheme for some layers", by_static(), {**fp8, "layer_quant_config": {"*": {}}},
             ("layer_quant_config",)),
            ("another order", by_static(), {**fp8, "export": {"pack_method": "order"}}, ("pack_method", "reorder"))):
        make("source", tensors, torch_dtype="bfloat16", quantization_config=config)
        for command in ("convert", "quantize"):
            p = cli.run(command, "source", "--scheme", "FP8_DYNAMIC", "-o", "out2")
            check(p.returncode == 2 and all(w in p.stderr for w in words), f"{command}, {what}", p.stderr)
    make("source", next(t for name, t, _ in by_hand() if name == "int4, Quark"),
         torch_dtype="bfloat16", quantization_config=quark("int4"))
    p = cli.run("audit", "source")
    check(p.returncode == 2 and "integers of Quark" in p.stderr, "audit of integers", p.stderr)
    for text in ("0.5", "16.5", "1e+300"):
        config = quark("int4")
        config["global_quant_config"]["weight"]["group_size"] = float(text)
        make("source", next(t for name, t, _ in by_hand() if name == "int4, Quark"), torch_dtype="bfloat16",
             quantization_config=config)
        p = converted()
        check(p.returncode == 2 and f"config.json: group_size is {text}; whole numbers" in p.stderr,
              f"groups of {text} columns", p.stderr)


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
