#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of qobs quantize: what it must survive, and what it says. The numbers are in golden/run_checkpoint.py.

    test_quantize_command.py QOBS [ROUNDS]

ROUNDS is the number of random moments at which runs are killed (default 40).
"""
import functools
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROUNDS = int(sys.argv.pop(2)) if len(sys.argv) > 2 else 40

import cli
from cli import check, equal

QOBS = os.path.abspath(sys.argv[1])


@functools.cache
def few_numbers(count, seed):
    numbers = [x.to_bytes(2, "little") for x in (0x3C00, 0x3D20, 0xBC80, 0xBD91, 0x3E01)]
    return b"".join(random.Random(seed).choices(numbers, k=count))


def tensor(shape, seed):
    return "BF16", shape, few_numbers(math.prod(shape), seed)


def make_model(path, layers=2, width=128, shards=1, config=True):
    """A small model; the weights of a layer are one q_proj, k_proj, v_proj and norm."""
    os.makedirs(path)
    files, where = {}, {}
    for layer in range(layers):
        shard = f"-{layer * shards // layers + 1:05}-of-{shards:05}" if shards > 1 else ""
        name = f"model{shard}.safetensors"
        for module in ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
            key = f"model.layers.{layer}.{module}.weight"
            files.setdefault(name, {})[key] = tensor([width] if "norm" in module else [width, width], layer)
            where[key] = name
    for name, tensors in files.items():
        write(f"{path}/{name}", cli.st_bytes(tensors))
    if shards > 1:
        write(f"{path}/model.safetensors.index.json", json.dumps({"weight_map": where}).encode())
    if config:
        write(f"{path}/config.json", b'{"model_type": "llama", "big": 12345678901234567890, "pi": 3.14}')
    write(f"{path}/tokenizer.json", b"{}")


def write(path, data):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def tree(root):
    return {os.path.relpath(os.path.join(d, n), root): read(os.path.join(d, n)) for d, _,
            names in os.walk(root) for n in names}


def quantize(*options, scheme="W4A16", **keywords):
    return cli.run("quantize", "--scheme", scheme, "--quiet", *options, **keywords)


def refused(what, run, status, *words):
    lines = run.stderr.splitlines()
    equal(run.returncode, status, f"{what}: exit status")
    check(len(lines) == 1 and all(word in run.stderr for word in words), f"{what}: one line with {', '.join(words)}",
          run.stderr)


def is_clean(what, out):
    left = [n for n in os.listdir(os.path.dirname(os.path.abspath(out))) if "unfinished" in n]
    check(not os.path.exists(out) and not left, f"{what}: nothing is left", str(left))


# ---- Output ----------------------------------------------------------------------------------------------------------

def test_configuration():
    """config.json comes out with every number, key and order as it went in; upstream's order is that of the keys."""
    members = ('"model_type": "llama"',
               '"z": [9007199254740993, 9223372036854775808, 18446744073709551616, -9223372036854775809]',
               '"limits": [NaN, Infinity, -Infinity, -0, -0.0, 1e400, 1E5, 1.50, 1e-08, 0.1, 5e-324, '
               '1.0000000000000000001]',
               '"a": {"\\u00e4\\ud83d\\ude00\\n": null, "c": {}, "b": [], "t": [true, false, "\\u007f/\\"\\\\"]}')
    make_model("in")
    write("in/config.json", f"\n{{{', '.join(members)}}}\n".encode())
    equal(quantize("in", "-o", "out").returncode, 0, "exit status")
    def keep(text):
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=list)
    before, after = keep(read("in/config.json")), keep(read("out/config.json"))
    equal(after[:-1], before, "numbers, keys and their order")
    equal(after[-1][0], "quantization_config", "the new member is last")
    text, value = read("out/config.json").decode(), json.loads(read("out/config.json"))
    quantization = value.pop("quantization_config")
    equal(json.dumps(quantization, indent=2).replace("\n", "\n  "), text[text.index('"quantization_config": ') + 23:-2],
          "Python's layout")
    equal(quantize("in", "-o", "again", "--compat", "llm-compressor").returncode, 0, "exit status with --compat")
    keys = [key for key, _ in keep(read("again/config.json"))]
    equal(keys, sorted(keys), "--compat llm-compressor sorts the keys")
    for what, text, words in (("a key twice", '{"a": 1, "b": {"c": 1, "\\u0063": 2}}', ("'c' twice",)),
                              ("NaN by another name", '{"a": nan}', ("syntax error",)),
                              ("a comment", '{"a": 1} // no', ("text after",)),
                              ("-NaN", '{"a": -NaN}', ("syntax error",)),
                              ("33 levels", '{"a":' + "[" * 32 + "]" * 32 + "}", ("32 levels",)),
                              ("U+0000", '{"a": "\\u0000"}', ("u0000",)),
                              ("a million objects", '{"a": [' + "{}," * (1 << 20) + "{}]}",
                               ("1048576 objects and arrays",))):
        write("in/config.json", text.encode())
        refused(what, quantize("in", "-o", "refused"), 2, "config.json", *words)


BITS = {"U64": 64, "I64": 64, "F64": 64, "C64": 64, "U32": 32, "I32": 32, "U16": 16, "I16": 16, "F8_E5M2FNUZ": 8,
        "F8_E4M3FNUZ": 8,
        "F8_E8M0": 8, "F8_E5M2": 8, "I8": 8, "U8": 8, "F6_E3M2": 6, "F6_E2M3": 6, "F4": 4, "BOOL": 8}


def raw_tensors(path):
    """Returns {name: (dtype, shape, bytes)} in the order of the file, and the metadata."""
    data = read(path)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", None)
    begin = 8 + length
    return {n: (t["dtype"], t["shape"], data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for n, t in header.items()}, metadata


def test_nothing_is_lost():
    """Tensors that the index omits, shards below the root, dtypes that are only copied, metadata: all come through."""
    layer = "model.layers.0.self_attn.q_proj.weight"
    buffers = {f"model.buffer.{d}": (d, [4, 8], random.Random(bits).randbytes(4 * bits)) for d, bits in BITS.items()}
    experts = {"model.layers.0.mlp.experts.gate_up_proj": ("F4", [2, 4, 8], bytes(range(32)))}
    os.makedirs("in/weights/a")
    write("in/config.json", b'{"model_type": "llama"}')
    write("in/weights/a/one.safetensors",
          cli.st_bytes({layer: tensor([128, 128], 1), **buffers, **experts}, {"format": "pt", "by": "x\\\"y"}))
    write("in/weights/two.safetensors",
          cli.st_bytes({"mtp.norm.weight": tensor([128], 2), "other.proj.weight": tensor([128, 128], 3),
                        layer: tensor([128, 128], 9)}))
    for folder, prefix in (("", "weights/"), ("weights/", "")):
        shutil.rmtree("out", ignore_errors=True)
        index = {layer: prefix + "a/one.safetensors", "mtp.norm.weight": prefix + "two.safetensors"}
        write(f"in/{folder}model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": index}).encode())
        run = quantize("in", "-o", "out", "--ignore", "re:.*experts")
        os.remove(f"in/{folder}model.safetensors.index.json")
        equal(run.returncode, 0, f"exit status ({run.stderr})")
        check(f"{folder}model.safetensors.index.json: omits {len(buffers) + 2} tensors" in run.stderr,
              "the omission is told", run.stderr)
        one, metadata = raw_tensors("out/weights/a/one.safetensors")
        two, none = raw_tensors("out/weights/two.safetensors")
        equal({n: t for n, t in one.items() if n in buffers or n in experts}, {**buffers, **experts},
              "tensors that are only copied")
        order = [t[0] for n, t in one.items() if n in buffers]
        equal(order, list(BITS), "the order of safetensors")
        equal(metadata, {"format": "pt", "by": "x\\\"y"}, "metadata stays")
        equal(none, None, "no metadata appears")
        check("other.proj.weight_packed" in two and "mtp.norm.weight" in two and layer not in two, "the index chooses",
              str(list(two)))
        named = json.loads(read(f"out/{folder}model.safetensors.index.json"))["weight_map"]
        equal(sorted(named), sorted([*one, *two]), "the new index names every tensor")
        check(all(os.path.exists(f"out/{folder}{file}") for file in named.values()),
              "the new index names files that are there", str(set(named.values())))
        info = subprocess.run([QOBS, "info", f"out/{folder}model.safetensors.index.json", "--table"],
                              capture_output=True, text=True, check=False)
        check(info.returncode == 0 and all(n in info.stdout for n in (*buffers, "F6_E3M2", "C64")), "info lists them",
              info.stdout + info.stderr)
        audit = subprocess.run([QOBS, "audit", "out"], capture_output=True, text=True, check=False)
        check(audit.returncode in (0, 3) and "index" not in audit.stdout, "audit reads them",
              audit.stdout + audit.stderr)
    shutil.rmtree("out")
    os.rename("in/weights/a/one.safetensors", "in/model.safetensors")
    shutil.rmtree("in/weights")
    equal(quantize("in", "-o", "out", "--compat", "llm-compressor", "--ignore", "re:.*experts").returncode, 0,
          "with --compat")
    equal(raw_tensors("out/model.safetensors")[1], None, "--compat llm-compressor drops metadata, as upstream does")


def test_model_argument():
    """A model is its directory, its index or its only file, as for calibrate."""
    make_model("one")
    make_model("many", shards=2)
    make_model("chosen")
    write("chosen/other.safetensors", cli.st_bytes({"model.layers.0.self_attn.q_proj.weight": tensor([128, 128], 5)}))
    for what, given, source in (("a file", "one/model.safetensors", "one"),
                                ("an index", "many/model.safetensors.index.json", "many"),
                                ("a file without a folder", "model.safetensors", "one")):
        shutil.rmtree("out", ignore_errors=True)
        shutil.rmtree("whole", ignore_errors=True)
        equal(quantize(source, "-o", "whole").returncode, 0, f"{what}: the directory")
        inside = {"cwd": "one"} if "/" not in given else {}
        run = quantize(given, "-o", "../out" if inside else "out", **inside)
        equal((run.returncode, run.stderr), (0, ""), what)
        check(tree("out") == tree("whole"), f"{what}: the output of the directory")
    for name in ("another/model.safetensors", "another/config.json"):
        write(f"chosen/{name}", read(f"chosen/{os.path.basename(name)}"))
    os.symlink("nowhere", "chosen/broken")
    run = quantize("chosen/other.safetensors", "-o", "other")
    equal(run.returncode, 0, "one of two files")
    check(not os.path.exists("other/another") and "another" not in run.stderr, "the folders beside a file", run.stderr)
    check("other.safetensors" in os.listdir("other") and "model.safetensors" not in os.listdir("other") and
          "model.safetensors: is no part of the model" in run.stderr, "one of two files alone", run.stderr)
    refused("one of the files of an index", quantize("many/model-00001-of-00002.safetensors", "-o", "no"), 2,
            "model-00001-of-00002.safetensors", "is not all that model.safetensors.index.json names")
    refused("another file", quantize("one/config.json", "-o", "no"), 2, "one/config.json", "*.safetensors")
    refused("the output in the model", quantize("one/model.safetensors", "-o", "one/out"), 2, "lies in it")
    refused("the report in the model", quantize("one/model.safetensors", "-o", "no", "--json", "one/r.json"), 2,
            "--json", "lies in")


def test_output():
    """A1: complete, numbers of config.json kept, side files as they were, the same bytes for any number of threads."""
    make_model("in", shards=2)
    outputs = []
    for threads in cli.thread_counts():
        run = quantize("in", "-o", f"out{threads}", "--threads", threads)
        equal(run.returncode, 0, f"{threads} threads: exit status {run.stderr}")
        outputs.append(tree(f"out{threads}"))
    check(all(output == outputs[0] for output in outputs), "the same bytes for any number of threads")
    config = outputs[0]["config.json"].decode()
    check("12345678901234567890" in config and '"pi": 3.14' in config, "numbers of config.json keep their digits",
          config)
    check(config.index('"model_type"') < config.index('"big"') < config.index('"quantization_config"'),
          "keys keep their order")
    equal(outputs[0]["tokenizer.json"], b"{}", "a side file is copied")
    index = json.loads(outputs[0]["model.safetensors.index.json"])
    for name, shard in index["weight_map"].items():
        check(f'"{name}"'.encode() in outputs[0][shard], f"{name} is in its shard")


def test_places():
    """A2, A3: the output is new or empty and has nothing to do with the input."""
    make_model("in")
    before = tree("in")
    os.symlink("in", "link")
    for out in ("in", "./in", "in/", "in/.", "x/../in", "link", "in/out", "in/tokenizer.json", "."):
        run = quantize("in", "-o", out)
        equal(run.returncode, 2, f"-o {out}: exit status {run.stderr}")
        check(tree("in") == before, f"-o {out}: the input is as it was")
    write("file", b"x")
    refused("a file", quantize("in", "-o", "file"), 2, "file")
    os.makedirs("full")
    write("full/x", b"x")
    refused("a directory with a file", quantize("in", "-o", "full"), 2, "full", "--replace")
    equal(read("full/x"), b"x", "the directory is as it was")
    refused("no parent", quantize("in", "-o", "none/out"), 2, "none/out")
    os.makedirs("empty")
    os.symlink("empty", "to_empty")
    equal(quantize("in", "-o", "to_empty").returncode, 0, "a link to an empty directory")
    check(os.path.exists("empty/config.json"), "the output is where the link points")
    equal(quantize("in", "-o", "full", "--replace").returncode, 0, "--replace")
    check(not os.path.exists("full/x") and os.path.exists("full/config.json"), "the directory is replaced as a whole")
    old = os.umask(0o027)
    quantize("in", "-o", "masked")
    os.umask(old)
    equal((os.stat("masked").st_mode & 0o777, os.stat("masked/config.json").st_mode & 0o777), (0o750, 0o640),
          "the umask")


def test_mounted():
    """An output that cannot be renamed to, because it is a mount point, is filled; config.json comes last."""
    make_model("in")
    quantize("in", "-o", "wanted")
    os.mkdir("out")
    if subprocess.run(["mount", "-t", "tmpfs", "none", "out"], capture_output=True, check=False).returncode != 0:
        print("left out: mount is not permitted here")
        return
    try:
        equal(quantize("in", "-o", "out").returncode, 0, "a mount point as output")
        equal(tree("out"), tree("wanted"), "a mount point gets the same files")
        refused("a full mount point", quantize("in", "-o", "out"), 2, "out", "--replace")
        write("out/sub/old", b"")
        equal(quantize("in", "-o", "out", "--replace").returncode, 0, "--replace on a mount point")
        equal(tree("out"), tree("wanted"), "--replace removes what was there")
        for name in os.listdir("out"):
            os.unlink(f"out/{name}")
        generator, failures = random.Random(2), 0
        for _ in range(10):
            run = subprocess.Popen([QOBS, "quantize", "in", "--scheme", "W4A16", "--quiet", "-o", "out"],
                                   stderr=subprocess.DEVNULL)
            time.sleep(generator.random() * 0.03)
            run.kill()
            failures += run.wait() != 0
            check(not os.path.exists("out/config.json") or is_complete("out"),
                  "killed, the mount point is no model or complete")
            for name in os.listdir("out"):
                if not name.startswith("."):
                    os.unlink(f"out/{name}")
        check(failures > 0, "some runs were killed", str(failures))
        equal(quantize("in", "-o", "out").returncode, 0, "a run after those that were killed")
        equal(tree("out"), tree("wanted"), "it removes what they left")
    finally:
        subprocess.run(["umount", "out"], check=True)
    check(len([n for n in os.listdir(".") if "unfinished" in n]) == 0, "nothing is left beside it", os.listdir("."))


def test_inputs():
    """A4 to A6: what is wrong with the input is said before anything is written."""
    cases = {
        "broken link": (lambda: os.symlink("nowhere", "in/broken"), "broken"),
        "pipe": (lambda: os.mkfifo("in/pipe"), "pipe"),
        "no config.json": (lambda: os.remove("in/config.json"), "qobs calibrate takes a file alone"),
        "config.json in a folder": (lambda: (os.makedirs("in/snapshots/4d3a"),
                                             os.rename("in/config.json", "in/snapshots/4d3a/config.json")),
                                    "snapshots/4d3a/config.json is one"),
        "damaged config.json": (lambda: write("in/config.json", b"{"), "config.json"),
        "a key twice": (lambda: write("in/config.json", b'{"a": 1, "a": 2}'), "config.json"),
        "quantized already": (lambda: write("in/config.json", b'{"quantization_config": {"quant_method": "hqq"}}'),
                              "hqq"),
        "a shard is missing": (lambda: os.remove("in/model-00002-of-00002.safetensors"), "model-00002-of-00002"),
        "a shard is cut off": (lambda: os.truncate("in/model-00002-of-00002.safetensors", 3000),
                               "model-00002-of-00002"),
        "NaN in the last layer": (make_nan, "layers.1"),
        "no model": (lambda: shutil.rmtree("in"), "in"),
    }
    for what, (damage, word) in cases.items():
        shutil.rmtree("in", ignore_errors=True)
        make_model("in", shards=2)
        damage()
        refused(what, quantize("in", "-o", "out"), 2, word)
        is_clean(what, "out")
    shutil.rmtree("in", ignore_errors=True)
    make_model("in")
    os.rename("in/tokenizer.json", "elsewhere.json")
    os.symlink("../elsewhere.json", "in/tokenizer.json")
    equal(quantize("in", "-o", "out").returncode, 0, "a link to a file")
    check(not os.path.islink("out/tokenizer.json") and read("out/tokenizer.json") == b"{}",
          "a link arrives as contents")
    equal(oct(os.stat("out/tokenizer.json").st_mode & 0o7000), "0o0", "no set-uid bits")


def make_nan():
    """Makes the last element of the last v_proj NaN."""
    path = "in/model-00002-of-00002.safetensors"
    data = bytearray(read(path))
    data[-2:] = (0x7FC0).to_bytes(2, "little")
    write(path, bytes(data))


def test_readme():
    """README shows what its first command prints, but for time and speed."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(f"{root}/README.md", encoding="utf-8") as file:
        command, *shown = re.search(r"^```\n\$ (.*?)^```", file.read(), re.S | re.M)[1].splitlines()
    os.symlink(f"{root}/examples", "examples")
    run = cli.run(*command.split()[1:])
    printed = [re.sub(r"in [\d.]+ s|[\d.]+ MB/s", "N", line) for line in (run.stderr + run.stdout).splitlines()]
    shown = [re.sub(r"in [\d.]+ s|[\d.]+ MB/s", "N", line) for line in shown]
    equal(printed[:len(shown) - 1] + ["..."], shown, "README's first command")
    equal(run.returncode, 0, "README's first command succeeds")


def test_options():
    """A15: one line with the option, its value and what is allowed."""
    make_model("in")
    refused("unknown scheme", quantize("in", "-o", "out", scheme="W9A16"), 2, "W9A16", "W4A16")
    refused("static activations", quantize("in", "-o", "out", scheme="FP8"), 2, "FP8_DYNAMIC")
    refused("static NVFP4", quantize("in", "-o", "out", scheme="NVFP4"), 2, "NVFP4A16")
    refused("too few bits", quantize("in", "-o", "out", "--set", "num_bits=1"), 2,
            "num_bits is 1; whole numbers from 2 to 16")
    refused("bad pattern", quantize("in", "-o", "out", "--ignore", "re:("), 2, "re:(")
    refused("unknown preset", quantize("in", "-o", "out", "--preset", "llmc.none"), 2, "llmc.none")
    refused("preset of another family", quantize("in", "-o", "out", "--preset", "torch.MinMaxObserver"), 2, "torch")
    refused("no setting", quantize("in", "-o", "out", "--set", "nonsense=3"), 2, "nonsense")
    refused("groups that do not divide", quantize("in", "-o", "out", "--set", "group_size=96"), 2, "128", "96")
    refused("report in the output", quantize("in", "-o", "in2", "--json", "in/config.json/x"), 2, "--json")
    equal(quantize("in", "-o", "out", scheme="w4a16").returncode, 0, "a scheme in small letters")
    report = subprocess.run([QOBS, "quantize", "in", "--scheme", "W4A16", "-o", "out2", "--json", "-"],
                            capture_output=True,
                            text=True, check=False)
    layers = json.loads(report.stdout)["layers"]
    equal(len(layers), 6, "--json - prints the report alone")
    check(all(0 < layer["relative_error"] < 0.5 for layer in layers), "errors of layers", str(layers[:2]))
    summary = subprocess.run([QOBS, "quantize", "in", "--scheme", "W4A16", "-o", "out3"], capture_output=True,
                             text=True, check=False)
    check(all(len(line) <= 80 for line in summary.stdout.splitlines()), "the summary fits 80 columns", summary.stdout)


def test_ignore_list():
    """Modules that are left out though a loader takes them for linear layers are in the ignore list."""
    names = ["lm_head", "model.embed_tokens", "model.layers.0.mlp.gate", "model.layers.0.mlp.down_proj", "model.norm"]
    write("in/model.safetensors",
          cli.st_bytes({f"{n}.weight": tensor([128] if "norm" in n else [128, 128], 1) for n in names}))
    write("in/config.json", b'{"model_type": "llama"}')

    def ignore(out):
        return json.loads(read(f"{out}/config.json"))["quantization_config"]["ignore"]
    run = cli.run("quantize", "in", "--scheme", "W4A16", "-o", "out", "--ignore", "re:vision")
    equal(run.returncode, 3, "an entry matches nothing")
    check("\nleft out, not linear: 3 (lm_head, model.embed_tokens, ...)\n" in run.stdout, "the summary has two names",
          run.stdout)
    equal(ignore("out"), ["re:vision", "lm_head", "model.embed_tokens", "model.layers.0.mlp.gate"],
          "what was given, then what was found")
    quantize("in", "-o", "compatible", "--ignore", "lm_head", "--compat", "llm-compressor")
    equal(ignore("compatible"), ["lm_head"], "model_free_ptq writes what was given")
    equal(quantize("out", "-o", "twice", "--targets", "lm_head", "--ignore", "re:audio", scheme="W8A8").returncode, 3,
          "a second run")
    equal(ignore("twice"), ["re:vision", "model.embed_tokens", "model.layers.0.mlp.gate", "re:audio"],
          "both lists, without what is quantized now")


def test_nothing():
    """A model of which no layer is quantized is written with a warning and status 3, or with that of model_free_ptq."""
    make_model("in")
    for option in (("--targets", "q_proj"), ("--ignore", "re:.*")):
        for compat, status in (("vllm", 3), ("llm-compressor", 0)):
            run = quantize("in", "-o", "out", "--replace", "--compat", compat, *option)
            equal(run.returncode, status, f"{option} --compat {compat}: exit status")
            check("no layer was quantized" in run.stderr, f"{option} --compat {compat}: warns", run.stderr)
            check(is_complete("out"), f"{option} --compat {compat}: complete")


def test_names():
    """A16: names never reach the terminal as control characters."""
    make_model("in")
    write("in/model.safetensors", cli.st_bytes({"\x1b[31mevil.weight": tensor([8, 100], 1)}))
    run = subprocess.run([QOBS, "quantize", "in", "--scheme", "W4A16", "-o", "out"], capture_output=True, check=False)
    equal(run.returncode, 2, "groups do not divide")
    check(b"\x1b" not in run.stderr + run.stdout, "no escape sequence", str(run.stderr))


# ---- Accidents -------------------------------------------------------------------------------------------------------

def is_json(path):
    """False also for a file that is empty or cut short, which no loader reads."""
    try:
        return json.loads(read(path)) is not None
    except (OSError, ValueError):
        return False


def is_complete(out):
    """True if the output is there and complete."""
    if not is_json(f"{out}/config.json") or not is_json(f"{out}/model.safetensors.index.json"):
        return False
    index = json.load(open(f"{out}/model.safetensors.index.json", encoding="utf-8"))
    return "quantization_config" in json.load(open(f"{out}/config.json", encoding="utf-8")) and all(
        os.path.exists(f"{out}/{shard}") for shard in index["weight_map"].values())


def test_signals():
    """A7, A8: killed at random moments, the output is complete or absent; the next run makes it."""
    make_model("in", layers=12, width=512, shards=3)
    quantize("in", "-o", "whole")
    start = time.monotonic()
    quantize("in", "-o", "timed")
    duration = time.monotonic() - start
    expected, generator = tree("whole"), random.Random(1)
    complete = 0
    for i in range(ROUNDS):
        kill = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)[i % 4]
        before = set(os.listdir("."))
        process = subprocess.Popen([QOBS, "quantize", "in", "--scheme", "W4A16", "--quiet", "-o", "out"],
                                   stderr=subprocess.DEVNULL)
        time.sleep(generator.random() * duration * 1.1)
        process.send_signal(kill)
        process.wait()
        if os.path.exists("out"):
            complete += 1
            check(is_complete("out") and tree("out") == expected, f"{kill.name}: the output is complete")
            shutil.rmtree("out")
        left = [name for name in set(os.listdir(".")) - before if "unfinished" in name]
        check(not left or kill == signal.SIGKILL, f"{kill.name}: nothing is left", str(left))
        for name in left:
            check(not is_json(f"{name}/config.json") or is_complete(name),
                  f"{kill.name}: what is left cannot be loaded")
    equal(quantize("in", "-o", "out").returncode, 0, "the run after the kills")
    check(tree("out") == expected and not [n for n in os.listdir(".") if "unfinished" in n],
          "the run after the kills makes the output and removes what was left")
    check(complete < ROUNDS, "some runs were killed before their end", str(complete))


def test_limits():
    """A9: a file size limit, a full disk and few descriptors end with status 1 and nothing left."""
    make_model("in", layers=40, width=128, shards=20)

    def limit(kind, value):
        return lambda: resource.setrlimit(kind, (value, value))
    run = quantize("in", "-o", "out", preexec_fn=limit(resource.RLIMIT_FSIZE, 4096))
    refused("a file size limit", run, 1, "out")
    is_clean("a file size limit", "out")
    run = quantize("in", "-o", "out", preexec_fn=limit(resource.RLIMIT_NOFILE, 16))
    equal(run.returncode, 0, f"16 descriptors and 20 shards {run.stderr}")
    shutil.rmtree("out")
    if os.geteuid() == 0:
        os.mkdir("small")
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", "small"], capture_output=True,
                                 check=False)
        if mounted.returncode == 0:
            refused("a full disk", quantize("in", "-o", "small/out"), 1, "small/out")
            equal(os.listdir("small"), [], "a full disk: nothing is left")
            subprocess.run(["umount", "small"], check=False)


def test_closed_streams():
    """A13: with closed streams no message gets into a file."""
    make_model("in")
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        shutil.rmtree("out", ignore_errors=True)
        run = subprocess.run(["bash", "-c", f'"$0" quantize in --scheme W4A16 -o out {closed}', QOBS],
                             capture_output=True, check=False)
        check(run.returncode in (0, 1), f"{closed}: status {run.returncode}", str(run.stderr))
        if os.path.exists("out"):
            check(is_complete("out") and tree("out").keys() == {"config.json", "tokenizer.json", "model.safetensors",
                                                               "model.safetensors.index.json"}, f"{closed}: complete")
            check(b"qobs" not in read("out/config.json"), f"{closed}: no message in a file")


def test_two_runs():
    """A11: two runs into one output: one wins."""
    make_model("in", layers=8, width=512)
    quantize("in", "-o", "whole")
    command = [QOBS, "quantize", "in", "--scheme", "W4A16", "--quiet", "-o", "out"]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for run in runs:
        run.communicate()
    codes = sorted(run.returncode for run in runs)
    check(0 in codes and set(codes) <= {0, 1, 2}, "one of two runs wins", str(codes))
    check(tree("out") == tree("whole"), "the output is that of one run")


def test_readme():
    """The first command of README prints what the page shows; times, and what only some CPUs have, may differ."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    block = read(f"{root}/README.md").decode().partition("\n$ qobs quantize examples/tinylm ")[2]
    options, *shown = block.partition("\n...\n")[0].splitlines()
    os.symlink(os.path.join(root, "examples"), "examples")
    p = cli.run("quantize", "examples/tinylm", *options.split())
    equal(p.returncode, 0, "README's first command: exit status")

    def stable(text):
        return re.sub(r"\d+\.\d s:|, \d+ MB/s| \(this one has none\)", "", text)

    printed = (p.stderr + p.stdout).splitlines()
    check(len(shown) >= 5, "README shows what its first command prints", shown)
    equal([stable(line) for line in printed[:len(shown)]], [stable(line) for line in shown], "README's first command")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
