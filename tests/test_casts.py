#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of weights in codes whose scheme holds their numbers: MXFP4, NVFP4 and FP8 in any spelling. Numbers before and
after are those of the few lines here, not of the library.

    test_casts.py QOBS
"""
import hashlib
import json
import os
import shutil
import struct
import sys

import cli
from cli import check, equal
from test_quantize_command import quantize, refused, tensor
from test_sources import make, st_raw

ROWS, COLUMNS = 8, 128
MODULE = "model.layers.0.mlp.down_proj"
GRID = [0, .5, 1, 1.5, 2, 3, 4, 6]
SPANS = (0, 5, 9, 16, 17, 18, 19, 20)
TOPS = range(2, 8)  # codes of 1 to 6
MODELOPT = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MXFP4"}}


def random_bytes(name, count):
    return hashlib.shake_128(name.encode()).digest(count)


def mxfp4(name, top, span, largest=127):
    """Codes up to `top` under exponents that span that many binades, with a block of zeros: bytes of codes and of
    scales."""
    codes = [b % (top + 1) | b & 8 for b in random_bytes(name + " codes", ROWS * COLUMNS)]
    exponents = [largest - b % (span + 1) for b in random_bytes(name + " scales", ROWS * COLUMNS // 32)]
    exponents[:3] = largest, largest - span, 0
    codes[64:96] = [0] * 32
    return bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2])), bytes(exponents)


def cases():
    """Yields (name, codes, scales)."""
    for top in TOPS:
        for span in SPANS:
            name = f"codes to {GRID[top]}, {span} binades"
            yield name, *mxfp4(name, top, span)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:24]


def run(what, tensors, scheme, *options, config=None):
    """Returns the tensors of the output, the report and what is printed."""
    make("in", tensors, **(MODELOPT if config is None else config))
    shutil.rmtree("out", ignore_errors=True)
    p = cli.run("quantize", "in", "--scheme", scheme, "-o", "out", "--json", "report.json", *options)
    equal(p.returncode, 0, f"{what}: exit status {p.stderr}")
    return st_raw("out/model.safetensors"), json.loads(cli.read("report.json")), p.stdout


def of_modelopt(codes, scales, module=MODULE):
    return {f"{module}.weight": ("U8", [ROWS, COLUMNS // 2], codes),
            f"{module}.weight_scale": ("U8", [ROWS, COLUMNS // 32], scales)}


# ---- Numbers ---------------------------------------------------------------------------------------------------------

def e4m3(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    return (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0 ** -9


def numbers(tensors, module=MODULE):
    """The numbers of a module in FP4, of any spelling."""
    dtype, shape, codes = tensors.get(f"{module}.weight_packed") or tensors[f"{module}.weight"]
    equal(dtype, "U8", "the dtype of codes")
    kind, _, scales = tensors[f"{module}.weight_scale"]
    columns = 2 * shape[1]
    group = shape[0] * columns // len(scales)
    divisor = factor = 1.0
    if f"{module}.weight_global_scale" in tensors:
        divisor = struct.unpack("<f", tensors[f"{module}.weight_global_scale"][2])[0]
    if f"{module}.weight_scale_2" in tensors:
        factor = struct.unpack("<f", tensors[f"{module}.weight_scale_2"][2])[0]
    decoded = [cli.f32(cli.f32((e4m3(b) if kind == "F8_E4M3" else 2.0 ** (b - 127)) * factor) / divisor)
               for b in scales]
    nibbles = [n for b in codes for n in (b & 15, b >> 4)]
    return cli.bf16_codes([GRID[n & 7] * (-1 if n & 8 and n & 7 else 1) * decoded[i // group] for i,
                           n in enumerate(nibbles)])


def test_golden():
    """MXFP4 becomes NVFP4 as Model-Optimizer casts it, bit for bit; the blocks that are lossless are its, too."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "casts.json"),
              encoding="utf-8") as file:
        golden = json.load(file)
    equal([c["name"] for c in golden], [name for name, *_ in cases()], "the cases")
    for want, (name, codes, scales) in zip(golden, cases()):
        out, report, _ = run(name, of_modelopt(codes, scales), "NVFP4A16")
        equal(digest(out[f"{MODULE}.weight_packed"][2]), want["codes"], f"{name}: codes")
        equal(digest(out[f"{MODULE}.weight_scale"][2]), want["scales"], f"{name}: scales")
        equal(1 / struct.unpack("<f", out[f"{MODULE}.weight_global_scale"][2])[0], want["scale_2"],
              f"{name}: the global scale")
        cast = report["layers"][0]["cast"]
        equal(cast, {"source": "MXFP4 of ModelOpt", "blocks": want["blocks"], "lossless": want["lossless"]},
              f"{name}: blocks")
        same = numbers(out) == numbers(of_modelopt(codes, scales))
        check(same or want["lossless"] < want["blocks"], f"{name}: numbers")


def test_lossless():
    """Numbers are the same in each spelling that holds them, and the summary counts blocks."""
    codes, scales = mxfp4("lossless", 7, 12)
    packed = {f"{MODULE}.weight_packed": ("U8", [ROWS, COLUMNS // 2], codes),
              f"{MODULE}.weight_scale": ("U8", [ROWS, COLUMNS // 32], scales)}
    described = {"quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}}
    for what, tensors, config, title in (("ModelOpt", of_modelopt(codes, scales), MODELOPT, "MXFP4 of ModelOpt"),
                                         ("compressed-tensors", packed, described, "MXFP4")):
        for scheme, form in (("NVFP4A16", "nvfp4-pack-quantized"), ("MXFP4A16", "mxfp4-pack-quantized")):
            out, report, printed = run(f"{what} to {scheme}", tensors, scheme, config=config)
            equal(numbers(out), numbers(tensors), f"{what} to {scheme}: numbers")
            check(f"{title} to {form}: 32 of 32 blocks lossless\n" in printed, f"{what} to {scheme}: the summary",
                  printed)
            equal(report.get("dequantized"), None, f"{what} to {scheme}: nothing is dequantized")
            equal(report["layers"][0]["relative_error"], 0, f"{what} to {scheme}: the error")


def wider(tensors, rows=1, columns=None):
    """The numbers of a module in FP8, rows and columns being those of a scale."""
    _, shape, codes = tensors[f"{MODULE}.weight"]
    dtype, (_, count), data = tensors[f"{MODULE}.weight_scale"]
    scales = cli.unpack("BF16", data) if dtype == "BF16" else [2.0 ** (b - 127) for b in data]
    columns = columns or shape[1]

    def value(i):
        scale = scales[i // shape[1] // rows * count + i % shape[1] // columns]
        return scale * e4m3(codes[i] & 127) * (-1 if codes[i] & 128 and codes[i] & 127 else 1)

    return cli.bf16_codes([value(i) for i in range(len(codes))])


def test_wider():
    """Floats of more bits hold MXFP4 under powers of two: FP8 by channels and blocks within 14 binades, MXFP8."""
    for span in (0, 8, 14, 15, 20):
        codes, scales = mxfp4(f"wider {span}", 7, span)
        source = of_modelopt(codes, scales)
        for scheme, form, rows, columns in (("FP8_DYNAMIC", "float-quantized", 1, None),
                                            ("FP8_BLOCK", "float-quantized", 128, 128),
                                            ("MXFP8A16", "mxfp8-quantized", 1, 32)):
            what = f"{scheme}, {span} binades"
            out, report, _ = run(what, source, scheme)
            cast, before, after = report["layers"][0]["cast"], numbers(source), wider(out, rows, columns)
            changed = {i // 32 for i, (a, b) in enumerate(zip(before, after)) if a != b}
            equal((cast["blocks"], report["layers"][0]["format"]), (32, form), f"{what}: blocks")
            check(len(changed) <= 32 - cast["lossless"], f"{what}: changed {len(changed)} blocks, {cast}")
            all_fit = span <= 14 or scheme == "MXFP8A16"
            check(cast["lossless"] == 32 if all_fit else 0 < cast["lossless"] < 32, f"{what}: {cast}")


def test_chain():
    """From MXFP4 to MXFP6 to MXFP8 no number changes: the audit reads the last one against the first."""
    shutil.rmtree("first", ignore_errors=True)
    make("first", of_modelopt(*mxfp4("chain", 7, 12)), **MODELOPT)
    before = "first"
    for scheme in ("MXFP6A16", "MXFP8A16"):
        p = cli.run("quantize", before, "--scheme", scheme, "-o", scheme, "--replace", "--json", "report.json")
        equal(p.returncode, 0, f"to {scheme}: exit status {p.stderr}")
        layer = json.loads(cli.read("report.json"))["layers"][0]
        equal((layer["cast"]["blocks"], layer["cast"]["lossless"], layer["relative_error"]), (32, 32, 0),
              f"to {scheme}: blocks")
        p = cli.run("audit", scheme, "--against", "first", "--json")
        equal((p.returncode, json.loads(p.stdout)["layers"][0]["relative_error"]), (0, 0), f"to {scheme}: the audit")
        before = scheme


def test_nvfp4():
    """NVFP4 keeps codes, scales and global scale in the other spelling. A reciprocal may round, and blocks say so."""
    codes, _ = mxfp4("nvfp4", 7, 0)
    scales = bytes(8 + b % 112 for b in random_bytes("nvfp4 scales", ROWS * COLUMNS // 16))
    second = ("F8_E4M3", [ROWS, COLUMNS // 16], scales)
    modelopt = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    ct = {"quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}}
    for what, value in (("a power of two", 2.0 ** -11), ("another number", cli.f32(0.00037))):
        tensors = {f"{MODULE}.weight": ("U8", [ROWS, COLUMNS // 2], codes), f"{MODULE}.weight_scale": second,
                   f"{MODULE}.weight_scale_2": ("F32", [], struct.pack("<f", value))}
        out, report, _ = run(what, tensors, "NVFP4A16", config=modelopt)
        equal(out[f"{MODULE}.weight_scale"], second, f"{what}: the scales")
        equal(struct.unpack("<f", out[f"{MODULE}.weight_global_scale"][2])[0], cli.f32(1 / value),
              f"{what}: the global scale")
        before, after, cast = numbers(tensors), numbers(out), report["layers"][0]["cast"]
        changed = {i // 16 for i, (a, b) in enumerate(zip(before, after)) if a != b}
        check(len(changed) <= cast["blocks"] - cast["lossless"], f"{what}: blocks {cast}, changed {len(changed)}")
        equal(cast["lossless"] == 64, value == 2.0 ** -11 or not changed, f"{what}: all are lossless")
        shutil.rmtree("first", ignore_errors=True)
        shutil.move("out", "first")
        again, report, _ = run(f"{what}, again", {n: out[n] for n in out}, "NVFP4A16", config=ct)
        equal(numbers(again), after, f"{what}, again: numbers")
        equal(report["layers"][0]["cast"]["lossless"], 64, f"{what}, again: blocks")


# ---- FP8 -------------------------------------------------------------------------------------------------------------

FP8_ROWS, FP8_COLUMNS = 192, 320
BY_SHAPE = {(): (192, 320), (1,): (192, 320), (192,): (1, 320), (192, 1): (1, 320), (2, 3): (128, 128),
            (2, 1, 3, 1): (128, 128)}  # rows and columns of a scale


def fp8_codes(name):
    return bytes(b ^ (b & 127 == 127) for b in random_bytes(name, FP8_ROWS * FP8_COLUMNS))


def fp8(name, shape, dtype="F32", part="weight_scale", module=MODULE):
    """A module in codes of e4m3 with scales of a shape."""
    count = 1
    for n in shape:
        count *= n
    stored = {"F32": lambda b: struct.pack("<f", (b + 1) / 997),
              "BF16": lambda b: struct.pack("<f", (b + 1) / 997)[2:],
              "F8_E8M0": lambda b: bytes([120 + b % 16])}[dtype]
    scales = b"".join(stored(b) for b in random_bytes(f"{name} {dtype}", count))
    return {f"{module}.weight": ("F8_E4M3", [FP8_ROWS, FP8_COLUMNS], fp8_codes(name)),
            f"{module}.{part}": (dtype, list(shape), scales)}


def fp8_scales(tensors, module=MODULE):
    """The scale of each element, by the shape of the scales."""
    part = "weight_scale" if f"{module}.weight_scale" in tensors else "weight_scale_inv"
    dtype, shape, data = tensors[f"{module}.{part}"]
    rows, columns = BY_SHAPE[tuple(shape)]
    scales = [2.0 ** (b - 127) for b in data] if dtype == "F8_E8M0" else list(cli.unpack(dtype, data))
    width = -(-FP8_COLUMNS // columns)
    return [scales[r // rows * width + c // columns] for r in range(FP8_ROWS) for c in range(FP8_COLUMNS)]


def fp8_sources():
    """Yields (name, title, tensors, configuration, schemes that hold them)."""
    ct = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    yield "channels", "FP8", fp8("channels", (192, 1)), ct, ("FP8_DYNAMIC",)
    yield "channels in BF16", "FP8", fp8("channels", (192, 1), "BF16"), ct, ("FP8_DYNAMIC",)
    yield "a tensor", "FP8", fp8("a tensor", (1,)), ct, ("FP8_DYNAMIC", "FP8_BLOCK")
    yield "blocks", "FP8", fp8("blocks", (2, 3)), ct, ("FP8_BLOCK",)
    for algorithm, shape, schemes in (("FP8", (), ("FP8_DYNAMIC", "FP8_BLOCK")),
                                      ("FP8_PB_WO", (2, 1, 3, 1), ("FP8_BLOCK",)),
                                      ("FP8_PER_CHANNEL_PER_TOKEN", (192,), ("FP8_DYNAMIC",))):
        yield f"ModelOpt's {algorithm}", "FP8", fp8(algorithm, shape), {"quant_method": "modelopt",
                                                                       "quant_algo": algorithm}, schemes
    plain = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    for dtype in ("F32", "BF16", "F8_E8M0"):
        yield f"plain blocks in {dtype}", "block FP8", fp8("plain", (2, 3), dtype, "weight_scale_inv"), plain, (
            "FP8_BLOCK",)
    yield "FBGEMM", "FP8", fp8("fbgemm", (192, 1)), {"quant_method": "fbgemm_fp8"}, ("FP8_DYNAMIC",)


def convert(what, path, *options):
    shutil.rmtree(path, ignore_errors=True)
    p = cli.run("convert", "in", "-o", path, "--json", "report.json", *options)
    equal(p.returncode, 0, f"{what}: exit status {p.stderr}")
    return st_raw(f"{path}/model.safetensors"), json.loads(cli.read("report.json"))["layers"][0]


def test_fp8():
    """FP8 of each spelling keeps its bytes of codes and every bit of its scales in each other that holds them."""
    for what, title, tensors, config, schemes in fp8_sources():
        make("in", tensors, torch_dtype="bfloat16", quantization_config=config)
        stored = next(t for n, t in tensors.items() if "scale" in n)
        for scheme in schemes:
            for dialect in ("compressed-tensors", "modelopt"):
                named = f"{what} to {scheme} of {dialect}"
                out, layer = convert(named, "out", "--scheme", scheme, "--dialect", dialect)
                equal(out[f"{MODULE}.weight"], tensors[f"{MODULE}.weight"], f"{named}: codes")
                equal(fp8_scales(out), fp8_scales(tensors), f"{named}: scales")
                wide = stored[0] == "F32" or dialect == "modelopt"
                equal(out[f"{MODULE}.weight_scale"][0], "F32" if wide else "BF16", f"{named}: the dtype of scales")
                blocks = len(stored[2]) // {"F32": 4, "BF16": 2, "F8_E8M0": 1}[stored[0]]
                equal(layer["cast"], {"source": title, "blocks": blocks, "lossless": blocks}, f"{named}: blocks")
                p = cli.run("audit", "out")
                check(p.returncode == 0 and " 0 findings" in p.stdout, f"{named}: the audit", p.stdout + p.stderr)


def test_fp8_refusals():
    """Blocks of several channels have no scale of a channel, and a code of NaN has no number."""
    shutil.rmtree("out", ignore_errors=True)
    make("in", fp8("refusals", (2, 3)), quantization_config={"quant_method": "compressed-tensors"})
    refused("blocks to channels", cli.run("convert", "in", "-o", "out", "--scheme", "FP8_DYNAMIC"), 2, MODULE,
            "FP8_DYNAMIC does not hold")
    tensors = fp8("refusals", (192, 1))
    dtype, shape, codes = tensors[f"{MODULE}.weight"]
    place = 7 * FP8_COLUMNS + 5
    tensors[f"{MODULE}.weight"] = dtype, shape, codes[:place] + b"\xff" + codes[place + 1:]
    make("in", tensors, quantization_config={"quant_method": "compressed-tensors"})
    refused("a code of NaN", cli.run("convert", "in", "-o", "out", "--scheme", "FP8_DYNAMIC"), 2, f"{MODULE}.weight",
            "row 7 and column 5 is NaN")
    for size, words in (([128], "two whole numbers"), ([128, 128, 128], "two whole numbers"),
                        ([128, 0], "weight_block_size[1] is 0"), ([128.5, 128], "weight_block_size[0] is 128.5")):
        make("in", fp8("sizes", (2, 3), part="weight_scale_inv"),
             quantization_config={"quant_method": "fp8", "weight_block_size": size})
        refused(f"blocks of {size}", cli.run("convert", "in", "-o", "out"), 2, MODULE, "config.json", words)
    check(not os.path.exists("out"), "nothing is written")


def test_fp8_set():
    """Layers that run as one matrix keep scales of their own, those of one tensor each."""
    modules = [f"model.layers.0.self_attn.{n}_proj" for n in "qkv"]
    tensors = {k: v for m in modules for k, v in fp8(m, (), module=m).items()}
    shutil.rmtree("out", ignore_errors=True)
    make("in", tensors, torch_dtype="bfloat16", quantization_config={"quant_method": "modelopt", "quant_algo": "FP8"})
    with open("recorded.safetensors", "wb") as file:
        file.write(cli.st_bytes({f"{m}.input": ("F16", [4, FP8_COLUMNS], bytes(8 * FP8_COLUMNS - 2) + b"\0\x3c")
                                 for m in modules}))
    p = cli.run("quantize", "in", "-o", "out", "--replace", "--scheme", "FP8", "--activations", "recorded.safetensors")
    equal(p.returncode, 0, f"a set: exit status {p.stderr}")
    check(": 3 of 3 blocks lossless\n" in p.stdout, "a set: the summary", p.stdout)
    out = st_raw("out/model.safetensors")
    for m in modules:
        equal(out[f"{m}.weight"], tensors[f"{m}.weight"], f"a set: codes of {m}")
        equal(out[f"{m}.weight_scale"][2], tensors[f"{m}.weight_scale"][2], f"a set: the scale of {m}")


def test_sets():
    """Layers that run as one matrix have the global scale of the largest of their scales; one in BF16 ends the cast."""
    gate, up = (MODULE.replace("down", n) for n in ("gate", "up"))
    tensors = {**of_modelopt(*mxfp4("gate", 7, 4, 127), gate), **of_modelopt(*mxfp4("up", 7, 4, 124), up)}
    out, _, printed = run("a set", tensors, "NVFP4A16")
    equal({struct.unpack("<f", out[f"{m}.weight_global_scale"][2])[0] for m in (gate, up)}, {256.0},
          "a set: the global scales")
    for module in (gate, up):
        equal(numbers(out, module), numbers(tensors, module), f"a set: numbers of {module}")
    check("64 of 64 blocks lossless" in printed, "a set: the summary", printed)
    del tensors[f"{up}.weight_scale"]
    tensors[f"{up}.weight"] = tensor([ROWS, COLUMNS], 1)
    out, report, printed = run("half a set", tensors, "NVFP4A16")
    check(not any("cast" in layer for layer in report["layers"]) and "lossless" not in printed,
          "half a set is quantized anew")
    equal(report["dequantized"], {"MXFP4 of ModelOpt": 1}, "half a set: what is dequantized")


def test_asked():
    """A preset that is asked for quantizes anew, and so does a scheme that does not hold the codes."""
    codes, scales = mxfp4("asked", 7, 4)
    for what, scheme, options in (("a preset", "NVFP4A16", ["--preset", "llmc.memoryless_minmax"]),
                                  ("int4", "W4A16", ["--set", "group_size=32"])):
        _, report, printed = run(what, of_modelopt(codes, scales), scheme, *options)
        check("cast" not in report["layers"][0] and "lossless" not in printed, f"{what}: quantized anew", printed)
        equal(report["dequantized"], {"MXFP4 of ModelOpt": 1}, f"{what}: what is dequantized")


def test_parts():
    """Parts count their blocks, and finish adds them up."""
    other = MODULE.replace("layers.0", "layers.1")
    one, two = of_modelopt(*mxfp4("one", 7, 4)), of_modelopt(*mxfp4("two", 7, 4), other)
    make("in", {**one, **two}, **MODELOPT)
    os.remove("in/model.safetensors")
    names = {}
    for i, tensors in enumerate((one, two), 1):
        name = f"model-0000{i}-of-00002.safetensors"
        names |= dict.fromkeys(tensors, name)
        with open(f"in/{name}", "wb") as file:
            file.write(cli.st_bytes(tensors))
    with open("in/model.safetensors.index.json", "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": names}, file)
    for part in ("1/2", "2/2"):
        equal(quantize("in", "-o", "joined", "--part", part, scheme="NVFP4A16").returncode, 0, f"part {part}")
    p = cli.run("quantize", "--finish", "joined")
    check(p.returncode == 0 and ": 64 of 64 blocks lossless\n" in p.stdout, "the summary of all parts",
          p.stdout + p.stderr)


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
