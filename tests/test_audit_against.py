#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of qobs audit --against: codes that somebody moved are counted, and what quantize wrote is made again.

    test_audit_against.py QOBS
"""
import hashlib
import json
import os
import random
import shutil
import struct
import sys

import cli
from cli import check, equal
from gguf_files import STRING, U32, gguf
from test_quantize_command import read, tree, write

ROWS, COLUMNS = 1024, 1024
LAYER = "model.layers.0.self_attn.q_proj"


def make_source(dtype="BF16", rows=ROWS, columns=COLUMNS, seed=0):
    """A model of one matrix, of numbers that fall at any distance from codes."""
    source = random.Random(seed)
    table = [cli.pack(dtype, [source.gauss(0, 1)]) for _ in range(1 << 15)]
    raw = b"".join(source.choices(table, k=rows * columns))
    write("in/model.safetensors", cli.st_bytes({f"{LAYER}.weight": (dtype, [rows, columns], raw)}))
    write("in/config.json", b'{"model_type": "llama"}')


def quantize(scheme, *options):
    shutil.rmtree("out", ignore_errors=True)
    cli.run("quantize", "in", "--scheme", scheme, "--quiet", "-o", "out", *options).check_returncode()


def against(*options):
    run = cli.run("audit", "out", "--against", "in", "--json", *options)
    return run.returncode, json.loads(run.stdout) if run.stdout else run.stderr


class Output:
    """The file of an output, as its bytes and the places of its tensors."""

    def __init__(self, path="out/model.safetensors"):
        self.path, self.data = path, bytearray(read(path))
        (length,) = struct.unpack("<Q", self.data[:8])
        self.header = json.loads(self.data[8:8 + length])
        self.start = 8 + length

    def place(self, name):
        begin, end = self.header[name]["data_offsets"]
        return self.start + begin, self.start + end

    def values(self, name):
        begin, end = self.place(name)
        if self.header[name]["dtype"] in ("F8_E4M3", "U8", "I8"):
            return list(self.data[begin:end])
        return cli.unpack(self.header[name]["dtype"], bytes(self.data[begin:end]))

    def save(self):
        write(self.path, bytes(self.data))


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    number = mantissa * 2.0 ** -9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -number if code & 128 else number


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


class Codes:
    """Codes of an output by their places: the numbers in their order, and how one is read and written."""

    def __init__(self, output, scheme, columns):
        self.output, self.columns = output, columns
        self.group = {"W4A16": 128, "W4A16_ASYM": 128, "NVFP4A16": 16}.get(scheme, columns)
        self.packed = scheme in ("W4A16", "W4A16_ASYM", "NVFP4A16")
        self.at = output.place(f"{LAYER}.weight_packed" if self.packed else f"{LAYER}.weight")[0]
        scale = output.values(f"{LAYER}.weight_scale")
        if scheme == "NVFP4A16":
            (divisor,) = output.values(f"{LAYER}.weight_global_scale")
            scale = [e4m3(s) / divisor for s in scale]
        self.scale, self.zero_points = scale, None
        if scheme == "W4A16_ASYM":
            words = output.values(f"{LAYER}.weight_zero_point")
            groups = columns // self.group
            self.zero_points = [(words[(r // 8) * groups + g] >> 4 * (r % 8) & 15)
                                for r in range(len(scale) // groups) for g in range(groups)]
        if scheme == "W8A8":
            self.order = {c: c - 256 if c > 127 else c for c in range(256)}
        elif scheme == "FP8_DYNAMIC":
            self.order = {c: e4m3(c) for c in range(256) if c & 127 != 127 and c != 128}
        elif scheme == "NVFP4A16":
            self.order = {c: (-1 if c & 8 else 1) * E2M1[c & 7] for c in range(16) if c != 8}
        else:
            self.order = {c: c - 8 for c in range(16)}
        self.sorted = sorted(self.order, key=self.order.get)

    def get(self, i):
        byte = self.output.data[self.at + (i // 2 if self.packed else i)]
        return byte >> 4 * (i % 2) & 15 if self.packed else byte

    def put(self, i, code):
        place = self.at + (i // 2 if self.packed else i)
        if self.packed:
            code = self.output.data[place] & 0xF0 >> 4 * (i % 2) | code << 4 * (i % 2)
        self.output.data[place] = code

    def number(self, i, code):
        qparam = i // self.columns * (self.columns // self.group) + i % self.columns // self.group
        zero = self.zero_points[qparam] - 8 if self.zero_points else 0
        return (self.order[code] - zero) * self.scale[qparam]

    def move(self, i, number):
        """Moves code i one step away from the number. Returns False where there is no such step."""
        code = self.get(i)
        if code not in self.order:  # the negative zero
            return False
        up = (self.number(i, code) >= number)
        place = self.sorted.index(code) + (1 if up else -1)
        if not 0 <= place < len(self.sorted):
            return False
        self.put(i, self.sorted[place])
        return True


def test_planted():
    """Each code that is moved away from its number counts, and nothing else does."""
    for scheme, dtype in (("W4A16", "BF16"), ("W4A16_ASYM", "F16"), ("W8A8", "F32"), ("FP8_DYNAMIC", "BF16"),
                          ("NVFP4A16", "BF16")):
        make_source(dtype)
        begin = 8 + struct.unpack("<Q", read("in/model.safetensors")[:8])[0]
        source = read("in/model.safetensors")[begin:]
        quantize(scheme)
        status, report = against()
        equal((status, report["codes_compared"], report["codes_not_nearest"]), (0, ROWS * COLUMNS, 0),
              f"{scheme} of {dtype}: the codes of quantize")
        places = random.Random(scheme).sample(range(ROWS * COLUMNS), 1500)
        sound = read("out/model.safetensors")
        for planted in (1, 10, 1000):
            write("out/model.safetensors", sound)
            output, moved, size = Output(), 0, cli.SIZES[dtype]
            codes = Codes(output, scheme, COLUMNS)
            for i in places:
                if moved < planted:
                    moved += codes.move(i, cli.unpack(dtype, source[i * size:(i + 1) * size])[0])
            output.save()
            status, report = against()
            equal((moved, status, report["codes_not_nearest"], report["layers"][0]["codes_not_nearest"]),
                  (planted, 0, planted, planted), f"{scheme} of {dtype}: codes that were moved")
        text = cli.run("audit", "out", "--against", "in").stdout
        check(f"codes that are not nearest: 1000 of {ROWS * COLUMNS}" in text, f"{scheme}: the line", text)


def test_zero_in_all_schemes():
    """Codes of every scheme that quantize writes are the nearest."""
    for dtype in ("BF16", "F16", "F32"):
        make_source(dtype, 256, 256, 1)
        for scheme in ("W4A16", "W4A16_ASYM", "W8A8", "W3A16", "W2A16", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16",
                       "MXFP4", "MXFP8", "W8A16"):
            quantize(scheme)
            status, report = against()
            equal((status, report["codes_compared"], report["codes_not_nearest"]), (0, 65536, 0),
                  f"{scheme} of {dtype}")
    for dialect, scheme in (("modelopt", "NVFP4A16"), ("modelopt", "FP8_DYNAMIC"), ("modelopt", "MXFP8"),
                            ("modelopt", "FP8_BLOCK")):
        for dtype in ("BF16", "F32"):
            make_source(dtype, 256, 256, 1)
            quantize(scheme, "--dialect", dialect)
            status, report = against()
            equal((status, report["codes_compared"], report["codes_not_nearest"]), (0, 65536, 0),
                  f"{dialect} {scheme} of {dtype}")


def test_none_without_source():
    """Without the source nothing is compared, and nothing is said."""
    make_source(rows=128, columns=128)
    quantize("W4A16")
    report = json.loads(cli.run("audit", "out", "--json").stdout)
    check("codes_not_nearest" not in report and "codes_not_nearest" not in report["layers"][0], "no count", str(report))


# ---- Reproduction ----------------------------------------------------------------------------------------------------

TINYLM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/tinylm")


def reproduced(*options):
    report = against(*options)[1]
    return report["reproduced"], report.get("reproduced_options", report.get("reproduced_why"))


def test_reproduced():
    """The files of every scheme, with presets and settings, come out of their configuration."""
    shutil.copytree(TINYLM, "in")
    for scheme in ("W4A16", "W4A16_ASYM", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4", "MXFP8", "W8A16"):
        quantize(scheme)
        equal(reproduced(), (True, ""), scheme)
    for options in (("--preset", "qobs.mse_optimal"), ("--preset", "llmc.memoryless_mse", "--set", "maxshrink=0.5"),
                    ("--preset", "qobs.mse_optimal", "--set", "signed_scale=true"), ("--set", "group_size=64"),
                    ("--ignore", "re:.*down_proj"), ("--targets", "re:.*mlp.*")):
        quantize("W4A16", *options)
        equal(reproduced(), (True, ""), f"W4A16 {options}")
    quantize("W4A16", "--compat", "llm-compressor")
    equal(reproduced(), (True, " --compat llm-compressor"), "--compat llm-compressor")
    quantize("NVFP4A16", "--compat", "next")
    equal(reproduced(), (True, " --compat next"), "--compat next")
    quantize("W4A16")
    text = cli.run("audit", "out", "--against", "in").stdout
    check("\nreproduced: yes\n" in text, "the line", text)


def test_reproduced_elsewhere():
    """The bits are those of every instruction set and of every number of threads."""
    shutil.copytree(TINYLM, "in")
    for scheme, options in (("W4A16", ("--preset", "qobs.mse_optimal")), ("NVFP4A16", ()), ("FP8_DYNAMIC", ())):
        for made in cli.instruction_sets():
            quantize(scheme, "--isa", made, *options)
            for isa in cli.instruction_sets():
                equal(reproduced("--isa", isa), (True, ""), f"{scheme} made with {made}, again with {isa}")
        for threads in cli.thread_counts():
            equal(reproduced("--threads", threads), (True, ""), f"{scheme} with {threads} threads")


def test_not_reproduced():
    """One bit anywhere in the files is told, by the name of the tensor or the file; nothing is written."""
    shutil.copytree(TINYLM, "in")
    name = "model.layers.0.mlp.up_proj.weight_packed"
    quantize("W4A16")
    sound = tree("out")

    def damaged(what, words):
        before = tree("out")
        answer, why = reproduced()
        check(answer is False and words in why, f"{what}: {words}", f"{answer} {why}")
        equal(tree("out"), before, f"{what}: the files are as they were")
        shutil.rmtree("out")
        for path, data in sound.items():
            write(f"out/{path}", data)

    output = Output()
    output.data[output.place(name)[1] - 1] ^= 1
    output.save()
    damaged("the last bit of a tensor", f"{name} differs")
    output = Output()
    output.data[output.place("model.norm.weight")[0]] ^= 1
    output.save()
    damaged("a bit of a tensor that is copied", "model.norm.weight differs")
    write("out/config.json", read("out/config.json").replace(b'"group_size": 128', b'"group_size":  128'))
    damaged("a space in config.json", "config.json has ")
    os.remove("out/model.safetensors.index.json")
    damaged("no index", "model.safetensors.index.json is missing")
    copied = sorted(set(sound) - {"config.json", "model.safetensors", "model.safetensors.index.json"})[0]
    write(f"out/{copied}", sound[copied] + b"\n")
    damaged("a longer file that is copied", f"{copied} has ")
    write(f"out/{copied}", bytes([sound[copied][0] ^ 1]) + sound[copied][1:])
    damaged("a file that is copied", f"{copied} differs")
    write("out/README.new", b"more")
    equal(reproduced(), (True, ""), "a file that quantize does not write")
    shutil.rmtree("out")
    quantize("W4A16")
    source = Output("in/model.safetensors")
    source.data[source.place("model.layers.0.mlp.up_proj.weight")[0] + 1] ^= 0x80
    source.save()
    answer, why = reproduced()
    check(answer is False and name.rsplit(".", 1)[0] in why, "another source", f"{answer} {why}")


def test_reproduced_dialects():
    """Files in other dialects come out of a scheme with its own observers, or of a conversion."""
    shutil.copytree(TINYLM, "in")
    for dialect, scheme, *options in (("awq", "W4A16_ASYM"), ("gptq", "W4A16", "--set", "group_size=64"),
                                      ("gptq-v2", "W4A16", "--set", "num_bits=8", "--ignore", "re:.*down_proj"),
                                      ("modelopt", "FP8_DYNAMIC"), ("modelopt", "NVFP4A16")):
        quantize(scheme, "--dialect", dialect, *options)
        equal(reproduced(), (True, "" if dialect == "modelopt" else f" --scheme {scheme}"), f"{dialect} {scheme}")
    quantize("W4A16", "--dialect", "gptq")
    shutil.rmtree("in")
    os.rename("out", "in")
    cli.fine("convert", "convert", "in", "--dialect", "awq", "--quiet", "-o", "out")
    equal(reproduced(), (True, " convert"), "a conversion")
    output = Output()
    output.data[output.place("model.layers.0.mlp.up_proj.qweight")[0]] ^= 1
    output.save()
    equal(reproduced()[0], None, "a code that was changed")


def test_unknown():
    """A configuration that lacks what a run needs is named, and no claim is made."""
    shutil.copytree(TINYLM, "in")
    quantize("W4A16", "--dialect", "awq", "--preset", "qobs.mse_optimal")
    answer, why = reproduced()
    check(answer is None and "does not tell" in why, "a configuration of AWQ", f"{answer} {why}")
    text = cli.run("audit", "out", "--against", "in").stdout
    check("\nreproduced: unknown: the configuration" in text, "the line", text)


# ---- Statements ------------------------------------------------------------------------------------------------------

def hashes(folder):
    return {name: hashlib.sha256(data).hexdigest() for name, data in tree(folder).items()}


def of_resources(resources):
    return {r["name"]: r["digest"]["sha256"] for r in resources}


def test_attest():
    """The statement has the form of in-toto, and hashes as hashlib makes them, of files of all lengths."""
    shutil.copytree(TINYLM, "in")
    for size in (0, 1, 55, 56, 63, 64, 65, 119, 120, (1 << 18) - 1, 1 << 18, (1 << 18) + 64, (1 << 19) + 57):
        write(f"in/folder/{size}", random.Random(size).randbytes(size))
    quantize("W4A16")
    run = cli.run("audit", "out", "--against", "in", "--attest", "statement")
    equal((run.returncode, run.stderr), (0, ""), "--attest")
    statement = json.loads(read("statement"))
    equal((statement["_type"], statement["predicateType"]), ("https://in-toto.io/Statement/v1", "urn:qobs:audit:v1"),
          "types")
    equal(of_resources(statement["subject"]), hashes("out"), "the subjects")
    predicate = statement["predicate"]
    equal(of_resources(predicate.pop("sources")), hashes("in"), "the sources")
    check(predicate.pop("qobs_version") in cli.run("--version").stdout, "the version")
    check(predicate.pop("codes_compared") > 1 << 16, "codes that were compared")
    equal(predicate, {"codes_not_nearest": 0, "reproduced": True, "reproduced_options": "", "findings": []},
          "the predicate")
    output = Output()
    output.data[output.place("model.norm.weight")[0]] ^= 1
    output.save()
    cli.run("audit", "out", "--against", "in", "--attest", "statement")
    statement = json.loads(read("statement"))
    equal(of_resources(statement["subject"]), hashes("out"), "the subjects of an output that was changed")
    equal((statement["predicate"]["reproduced"], statement["predicate"]["reproduced_why"]),
          (False, "model.norm.weight differs"), "an output that was changed")


def test_attest_gguf():
    """A GGUF file: its hash and that of its source. How it was quantized is not known."""
    keys = [("general.architecture", STRING, "llama"), ("general.type", STRING, "model"), ("llama.block_count", U32, 1)]
    write("in.gguf", gguf(keys, {"blk.0.attn_q.weight": (0, [8, 256], struct.pack("<f", 0.5) * 8 * 256)}))
    cli.fine("a GGUF file", "quantize", "in.gguf", "--scheme", "Q8_0", "--pure", "--quiet", "-o", "out.gguf")
    run = cli.run("audit", "out.gguf", "--against", "in.gguf", "--attest", "statement")
    check("\nreproduced: unknown: a GGUF file does not tell" in run.stdout, "the line", run.stdout + run.stderr)
    statement = json.loads(read("statement"))
    for name, resources in (("out.gguf", statement["subject"]), ("in.gguf", statement["predicate"]["sources"])):
        equal(of_resources(resources), {name: hashlib.sha256(read(name)).hexdigest()}, name)
    equal(statement["predicate"]["reproduced"], None, "no claim")


def test_attest_refused():
    shutil.copytree(TINYLM, "in")
    quantize("W4A16")
    cli.refused("a statement without the source", ("attest: needs against",), "audit", "out", "--attest", "statement")
    run = cli.run("audit", "out", "--against", "in", "--attest", "none/statement")
    check(run.returncode in (1, 2) and "attest: none" in run.stderr, "a folder that is not there", run.stderr)
    check(not os.path.exists("statement") and not os.path.exists("none"), "nothing is written")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
