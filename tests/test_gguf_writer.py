#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of GGUF files that the program writes: their form, what stays, what is refused. Blocks are compared with those
of ggml by gguf_writer_judge.py, types by tensor by test_gguf_types.py.

    test_gguf_writer.py QOBS
"""
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time

import cli
from cli import check, equal
from gguf_files import ARRAY, BOOL, F32, I32, PACK, STRING, U16, U32, gguf

# Elements and bytes of a block of each type.
SIZES = {0: (1, 4), 1: (1, 2), 30: (1, 2), 8: (32, 34), 12: (256, 144), 14: (256, 210), 16: (256, 66)}
ARCHITECTURE = [("general.architecture", STRING, "llama"), ("llama.block_count", U32, 1),
                ("llama.attention.head_count", U32, 8), ("llama.attention.head_count_kv", U32, 2)]
KEYS = ARCHITECTURE + [("general.file_type", U32, 1), ("general.name", STRING, "a model"),
                       ("x.numbers", I32, [1, -2, 3]),
                       ("tokenizer.ggml.merges", STRING, [f"token {i}" for i in range(300)]), ("x.flag", BOOL, True),
                       ("general.quantization_version", U32, 1), ("x.real", F32, 0.5)]


class Reader:
    """Reads a GGUF file of version 3 by itself."""
    def __init__(self, path):
        self.data, self.at = cli.read(path), 4
        assert self.data[:4] == b"GGUF"
        self.version, tensors, keys = self.number("I"), self.number("Q"), self.number("Q")
        self.keys = [(self.text(), *self.value()) for _ in range(keys)]
        self.tensors = {}
        for _ in range(tensors):
            name, dims = self.text(), self.number("I")
            shape = [self.number("Q") for _ in range(dims)][::-1]
            self.tensors[name] = (self.number("I"), shape, self.number("Q"))
        self.alignment = dict((k[0], k[2]) for k in self.keys).get("general.alignment", 32)
        self.start = -(-self.at // self.alignment) * self.alignment

    def number(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        length = self.number("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self):
        kind = self.number("I")
        if kind != ARRAY:
            return kind, self.text() if kind == STRING else self.number(PACK[kind])
        kind = self.number("I")
        return kind, [self.text() if kind == STRING else self.number(PACK[kind]) for _ in range(self.number("Q"))]

    def content(self, name):
        kind, shape, offset = self.tensors[name]
        elements = 1
        for size in shape:
            elements *= size
        block, size = SIZES[kind]
        return self.data[self.start + offset:self.start + offset + elements // block * size]


def numbers(count, seed=1):
    source = random.Random(seed)
    return [cli.ROUND["F16"](source.gauss(0, 0.02)) for _ in range(count)]


def f16(count, seed=1):
    return struct.pack(f"<{count}e", *numbers(count, seed))


def tensors():
    return {"token_embd.weight": (1, [3, 256], f16(768, 2)), "blk.0.ffn_up.weight": (1, [5, 512], f16(2560)),
            "blk.0.attn_norm.weight": (0, [512], struct.pack("<512f", *numbers(512))),
            "blk.0.attn_k.weight": (16, [1, 1, 256], bytes(range(66))), "blk.0.attn_q.bias": (0, [3], bytes(12))}


def source(name="m.gguf", keys=None, content=None, **more):
    return cli.write(name, gguf(keys or KEYS, content or tensors(), **more))


def quantize(*words, status=0):
    run = cli.run("quantize", *words)
    equal(run.returncode, status, f"exit status of quantize {words}: {run.stderr}")
    return run


def test_form():
    quantize(source(), "--scheme", "Q4_K_M", "-o", "out.gguf")
    out, before = Reader("out.gguf"), Reader("m.gguf")
    new = [("general.quantization_version", U32, 2), ("general.file_type", U32, 15)]
    kept = [k for k in before.keys if k[0] not in ("general.quantization_version", "general.file_type")]
    equal(out.keys, kept + new, "keys: those of the source in their order, then the new ones")
    equal(list(out.tensors), ["token_embd.weight", "blk.0.attn_k.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.bias",
                              "blk.0.ffn_up.weight"], "the order of tensors")
    equal({n: t[:2] for n, t in out.tensors.items()},
          {"token_embd.weight": (14, [3, 256]), "blk.0.attn_k.weight": (16, [1, 1, 256]),
           "blk.0.attn_norm.weight": (0, [512]), "blk.0.attn_q.bias": (0, [3]), "blk.0.ffn_up.weight": (12, [5, 512])},
          "types and shapes")
    for name in ("blk.0.attn_k.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.bias"):
        check(out.content(name) == before.content(name), f"{name} is copied")
    end = max(offset for _, _, offset in out.tensors.values())
    last = [n for n, t in out.tensors.items() if t[2] == end][0]
    equal(len(out.data), out.start + end + -(-len(out.content(last)) // 32) * 32, "the size of the file, with padding")
    shown = [line.split() for line in cli.fine("info", "info", "out.gguf").splitlines()]
    check(["blk.0.ffn_up.weight", "Q4_K", "5x512"] in shown, "info reads it")


def test_numbers():
    """Q8_0 of F16, by its definition."""
    quantize(source(), "--scheme", "Q8_0", "-o", "out.gguf")
    out, x = Reader("out.gguf"), numbers(2560)
    blocks = out.content("blk.0.ffn_up.weight")
    worst = 0
    for b in range(0, 2560 // 32):
        scale, *codes = struct.unpack_from("<e32b", blocks, 34 * b)
        worst = max(worst, *(abs(c * scale - v) - 0.57 * scale for c, v in zip(codes, x[32 * b:32 * b + 32])))
    check(worst <= 0, "numbers are within half a step of a scale in F16", worst)


def test_alignment_and_versions():
    for version in (2, 3):
        for alignment in (1, 8, 64):
            path = source("a.gguf", KEYS + [("general.alignment", U32, alignment)], version=version,
                          alignment=alignment)
            quantize(path, "--scheme", "Q8_0", "-o", "out.gguf", "--replace")
            out = Reader("out.gguf")
            equal((out.version, out.alignment), (3, alignment), "version and alignment")
            check(out.content("blk.0.attn_q.bias") == bytes(12)
                  and "attn_q.bias" in cli.fine("read", "info", "out.gguf"), f"alignment {alignment}")


def test_parts():
    all_tensors, paths = tensors(), []
    for i, names in enumerate((list(all_tensors)[:2], list(all_tensors)[2:])):
        keys = (KEYS if i == 0 else []) + [("split.no", U16, i), ("split.count", U16, 2),
                                           ("split.tensors.count", I32, 5)]
        paths.append(source(f"p-{i + 1:05}-of-00002.gguf", keys, {n: all_tensors[n] for n in names}))
    quantize(paths[0], "--scheme", "Q4_K_M", "-o", "parts.gguf")
    quantize(source(), "--scheme", "Q4_K_M", "-o", "whole.gguf")
    check(cli.read("parts.gguf") == cli.read("whole.gguf"), "parts become the file of the whole model")
    cli.refused("the report is a part", [paths[1], "is an input"], "quantize", paths[0], "--scheme", "Q8_0",
                "--dry-run", "--json", paths[1])
    for path in paths:
        cli.refused("the output is a part", [path, "is an input"], "quantize", paths[0], "--scheme", "Q8_0", "-o", path,
                    "--replace")


def test_threads():
    content = {f"blk.0.x{i}.weight": (1, [7 + i, 1024], f16(1024 * (7 + i), i)) for i in range(6)}
    path = source(content=content)
    for i, n in enumerate(cli.thread_counts()):
        quantize("--threads", n, path, "--scheme", "Q5_K_M", "-o", f"{i}.gguf")
        check(cli.read(f"{i}.gguf") == cli.read("0.gguf"), f"the same bytes with {n} threads")


def test_requantized():
    path = source()
    quantize(path, "--scheme", "Q8_0", "-o", "8.gguf")
    run = quantize("8.gguf", "--scheme", "Q4_K_M", "-o", "4.gguf")
    check("2 tensors were quantized already, such as 'token_embd.weight' in Q8_0" in run.stderr and "F16" in run.stderr,
          "a warning says what it costs", run.stderr)
    # Through F32 files, which hold the numbers of Q8_0.
    quantize("8.gguf", "--scheme", "F32", "-o", "32.gguf")
    quantize("32.gguf", "--scheme", "Q4_K_M", "-o", "4-32.gguf")
    check(cli.read("4.gguf") == cli.read("4-32.gguf"), "blocks of the numbers that Q8_0 means")
    cli.refused("what changes nothing", ["Q8_0 changes no tensor"], "quantize", "8.gguf", "--scheme", "Q8_0", "-o",
                "x.gguf")
    grid = source("g.gguf", content={"blk.0.attn_k.weight": (16, [2, 256], bytes(132))})
    cli.refused("a source of grids", ["'blk.0.attn_k.weight'", "IQ2_XXS", "not read here"], "quantize", grid,
                "--scheme", "Q8_0", "-o", "x.gguf")


def imatrix(entries, keys=()):
    out = {}
    for name, (shape, sums, counts) in entries.items():
        out[name + ".in_sum2"] = (0, shape, struct.pack(f"<{len(sums)}f", *sums))
        out[name + ".counts"] = (0, [len(counts), 1], struct.pack(f"<{len(counts)}f", *counts))
    return gguf(list(keys), out)


def test_importance():
    path, ramp = source(), [float(i + 1) for i in range(512)]
    cli.write("i.gguf", imatrix({"blk.0.ffn_up.weight": ([1, 512], ramp, [3])}))
    quantize(path, "--scheme", "Q4_K_M", "-o", "plain.gguf")
    run = quantize(path, "--scheme", "Q4_K_M", "--importance", "i.gguf", "-o", "out.gguf", "--json", "r.json")
    check(not run.stderr, "all tensors have importance, but the embeddings", run.stderr)
    out = Reader("out.gguf")
    equal(out.keys[-2:], [("quantize.imatrix.file", STRING, "i.gguf"), ("quantize.imatrix.entries_count", U32, 1)],
          "keys")
    check(out.content("blk.0.ffn_up.weight") != Reader("plain.gguf").content("blk.0.ffn_up.weight"), "blocks change")
    with open("r.json", encoding="utf-8") as file:
        equal([x["name"] for x in json.load(file)["layers"] if x.get("importance")], ["blk.0.ffn_up.weight"],
              "the report")
    cli.write("short.gguf", imatrix({"blk.0.ffn_up.weight": ([1, 256], ramp[:256], [3])}))
    cli.write("other.gguf", imatrix({"blk.9.ffn_up.weight": ([1, 512], ramp, [3])}))
    base = ("quantize", path, "-o", "x.gguf", "--scheme")
    cli.refused("importance of other columns", ["short.gguf", "256 values", "needs 512"], *base, "Q4_K", "--importance",
                "short.gguf")
    cli.refused("importance of another model", ["none of 1 tensors"], *base, "Q4_K", "--importance", "other.gguf")
    cli.refused("importance of no use", ["changes nothing"], *base, "Q8_0", "--importance", "i.gguf")
    cli.refused("no imatrix", ["no imatrix file"], *base, "Q4_K", "--importance",
                cli.write("x.safetensors", cli.st_bytes({})))
    cli.refused("Q2_K_S without importance", ["Q2_K_S", "'blk.0.ffn_up.weight' has none"], *base, "Q2_K_S")
    cli.refused("the output is the imatrix", ["i.gguf", "is an input"], "quantize", path, "-o", "i.gguf", "--replace",
                "--scheme", "Q4_K", "--importance", "i.gguf")


def test_origin():
    """Keys say where importance comes from, with texts of at most 127 bytes."""
    entry, path = {"blk.0.ffn_up.weight": ([1, 512], [1.0] * 512, [3])}, source()
    long = "x" * 130
    cli.write("i.gguf", imatrix(entry, [("imatrix.datasets", STRING, [long, "y"]), ("imatrix.chunk_count", U32, 11)]))
    old = struct.pack("<ii", 1, 19) + b"blk.0.ffn_up.weight" + struct.pack("<ii512f", 3, 512, *[3] * 512)
    cli.write("long.dat", old + struct.pack("<ii", 7, 6) + b"a text")
    cli.write("short.dat", old)
    cli.write("cut.dat", old + struct.pack("<ii", 7, 6) + b"a")
    names = ["quantize.imatrix." + n for n in ("file", "dataset", "entries_count", "chunks_count")]
    for file, values in (("i.gguf", ["i.gguf", long[:127], 1, 11]), ("long.dat", ["long.dat", "a text", 1, 7]),
                         ("short.dat", ["short.dat", None, 1, None]), ("cut.dat", ["cut.dat", None, 1, None])):
        quantize(path, "--scheme", "Q4_K_M", "--importance", file, "-o", "out.gguf", "--replace")
        wanted = [(n, STRING if isinstance(v, str) else U32, v) for n, v in zip(names, values) if v is not None]
        equal([k for k in Reader("out.gguf").keys if k[0].startswith("quantize.")], wanted, f"keys of {file}")


def test_experts():
    """Each expert has importance of its own."""
    x = f16(256)
    content = {"blk.0.ffn_up_exps.weight": (1, [2, 2, 256], 4 * x), "blk.0.ffn_up.weight": (1, [2, 256], 2 * x)}
    ramp = [float(i + 1) for i in range(256)]
    cli.write("i.gguf", imatrix({"blk.0.ffn_up_exps.weight": ([2, 256], ramp + ramp[::-1], [2, 4]),
                                 "blk.0.ffn_up.weight": ([1, 256], ramp[::-1], [4])}))
    quantize(source(content=content), "--scheme", "Q4_K", "--pure", "--importance", "i.gguf", "-o", "out.gguf")
    out = Reader("out.gguf")
    experts, alone = out.content("blk.0.ffn_up_exps.weight"), out.content("blk.0.ffn_up.weight")
    check(experts[288:] == alone and experts[:288] != alone, "the second expert has its own importance")


def test_dry_run():
    path = source()
    before = cli.snapshot()
    run = quantize(path, "--scheme", "Q4_K_M", "--dry-run")
    equal(cli.snapshot(), before, "a dry run writes nothing")
    check("would become" in run.stdout and "F16     to Q4_K" in run.stdout, "what it prints", run.stdout)
    report = json.loads(quantize(path, "--scheme", "Q4_K_M", "--dry-run", "--json", "-").stdout)
    quantize(path, "--scheme", "Q4_K_M", "-o", "out.gguf")
    equal((report["bytes_after"], report["out"]), (os.path.getsize("out.gguf"), None), "the size is that of the file")
    for option in (["-o", "x.gguf"], ["--replace"]):
        cli.refused("an output of a dry run", ["--dry-run", option[0]], "quantize", path, "--scheme", "Q4_K", "--dry-run",
                    *option)


def test_two_runs():
    """A file of the name, made while this one is written, is not replaced without --replace."""
    path = source("large.gguf", content={"blk.0.ffn_up.weight": (1, [4096, 512], f16(1 << 15) * 64)})
    command = [*cli.QOBS, "quantize", path, "--scheme", "Q4_K", "--search", "optimal", "--threads", "1", "--quiet",
               "-o", "other.gguf"]
    for options, status, left in (([], 1, b"theirs"), (["--replace"], 0, b"GGUF")):
        if os.path.exists("other.gguf"):
            os.remove("other.gguf")
        with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as run:
            while run.poll() is None and not any(n.startswith("other.gguf.") for n in os.listdir(".")):
                time.sleep(0.001)
            cli.write("other.gguf", b"theirs")
            words = run.stderr.read()
        equal((run.returncode, cli.read("other.gguf")[:len(left)]), (status, left), f"two runs, {options}")
        check(("other.gguf: somebody else has written" in words) == (status == 1), f"two runs, {options}", words)
    equal([n for n in os.listdir(".") if n.startswith("other.gguf.")], [], "nothing unfinished is left")


def test_refused():
    path = source()
    base = ("quantize", path, "--scheme", "Q4_K")
    cli.refused("no output", ["-o OUT.gguf is missing"], *base)
    cli.refused("no scheme", ["scheme", "Q4_K_M"], "quantize", path, "-o", "x.gguf")
    os.link(path, "link.gguf")
    for name in (path, "link.gguf"):
        cli.refused("the output is the source", [name, "is an input"], *base, "-o", name, "--replace")
    cli.write("there.gguf", b"mine")
    cli.refused("a file that is there", ["there.gguf", "--replace"], *base, "-o", "there.gguf")
    quantize(*base[1:], "-o", "there.gguf", "--replace")
    os.mkdir("folder")
    cli.refused("a folder", ["folder"], *base, "-o", "folder")
    cli.refused("the report is the source", [path, "is an input"], *base, "-o", "x.gguf", "--json", path)
    cli.refused("the report is the output", ["x.gguf"], *base, "-o", "x.gguf", "--json", "x.gguf")
    for value, word in ((float("nan"), "NaN"), (float("inf"), "infinite")):
        bad = bytearray(f16(2560))
        bad[2 * 1025:2 * 1026] = struct.pack("<e", value)
        cli.refused(word, ["'blk.0.ffn_up.weight'", "row 2, column 1", word], "quantize",
                    source("bad.gguf", content={"blk.0.ffn_up.weight": (1, [5, 512], bytes(bad))}), "--scheme", "Q4_K",
                    "-o", "x.gguf")
    cli.refused("nothing to search", ["search", "changes nothing"], *base[:2], "--scheme", "BF16", "--search",
                "optimal", "-o", "x.gguf")
    cli.refused("an unknown search", ["--search", "'best'", "optimal"], *base, "--search", "best", "-o", "x.gguf")
    for option in ("--pure", "--dry-run", "--search"):
        run = cli.run("quantize", ".", "--scheme", "W4A16", "-o", "y", option, *["optimal"] * (option == "--search"))
        check(run.returncode == 2 and option in run.stderr and "no GGUF file" in run.stderr, f"{option} of safetensors",
              run.stderr)


def test_search():
    """The same file but for the blocks of tensors, whose errors are lower."""
    path, errors, files = source(), {}, {}
    for search in ("ggml", "optimal"):
        quantize(path, "--scheme", "Q4_K_M", "--search", search, "-o", "s.gguf", "--replace", "--json", "s.json")
        report = json.loads(cli.read("s.json"))
        equal(report["search"], search, "the report has the search")
        errors[search] = {layer["name"]: layer["relative_error"] for layer in report["layers"]}
        files[search] = cli.read("s.gguf")
    check(all(e <= errors["ggml"][name] for name, e in errors["optimal"].items()), "no error is larger", errors)
    check(sum(errors["optimal"].values()) < 0.99 * sum(errors["ggml"].values()), "errors are lower", errors)
    equal(len(files["optimal"]), len(files["ggml"]), "the size is the same")


def test_damaged():
    good = gguf(KEYS, tensors())
    source_ = random.Random(3)
    for size in [4, 23, 40, len(good) // 2, len(good) - 1] + [source_.randrange(len(good)) for _ in range(20)]:
        before = set(os.listdir("."))
        run = cli.run("quantize", cli.write("m.gguf", good[:size]), "--scheme", "Q4_K_M", "-o", "x.gguf")
        check(run.returncode == 2 and run.stderr.startswith("qobs: ") and set(os.listdir(".")) <= before | {"m.gguf"},
              f"{size} bytes are refused", run.stderr)


def test_stopped():
    """A signal leaves no file."""
    path = source(content={f"blk.0.x{i}.weight": (1, [512, 4096], f16(4096, i) * 512) for i in range(4)})
    before = sorted(os.listdir("."))
    words = cli.QOBS + ["quantize", "--threads", "1", path, "--scheme", "TQ1_0", "-o", "x.gguf"]
    for _ in range(3):
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while len(os.listdir(".")) == len(before) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        process.wait()
        if process.returncode:
            equal((process.returncode, sorted(os.listdir("."))), (-signal.SIGTERM, before), "nothing is left")
            return
        os.remove("x.gguf")
    check(False, "a run that is stopped before its end")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
