#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of the program qobs: its results, compared with plain Python, and its errors.

    test_cli.py QOBS [WRAPPER [ARGUMENT]...]     WRAPPER: a program that runs QOBS, such as an emulator

Needs the standard library only. Ends with `N passed, N failed`; exit status 1 if any failed.
"""
import json, math, os, random, re, signal, struct, subprocess, sys, time

from cli import *


# ---- Tests: general --------------------------------------------------------------------------------------------------

def test_help():
    check("calibrate" in fine("--help", "--help") and "observe" in fine("-h", "-h"), "--help lists the commands")
    for command in ("calibrate", "observe", "merge", "show", "info"):
        check(f"usage: qobs {command}" in fine(f"{command} --help", command, "--help"),
              f"{command} --help says how it is used")
    check("W4A16_ASYM" in fine("calibrate --help", "calibrate", "--help"), "calibrate --help lists the schemes")
    check(fine("--version", "--version").startswith("qobs 0."), "--version")
    info = fine("info", "info")
    for word in ("CPU", "scalar", "active", "llmc.minmax", "torch.MinMaxObserver"):
        check(word in info, f"info tells {word}")
    for isa in instruction_sets():
        check(any(isa in line and "asked for" in line for line in fine(f"info --isa {isa}", "info", "--isa",
                                                                       isa).splitlines()),
              f"info --isa {isa}")
    p = run()
    check(p.returncode == 2 and p.stderr.startswith("usage: qobs"), "without a command: usage")
    refused("unknown command", ["'prune'", "calibrate, observe, merge, show, info"], "prune")
    refused("info of nothing", ["'x'", "preset", "file"], "info", "x")
    refused("unknown option", ["calibrate", "'--bits'", "qobs calibrate -h"], "calibrate", "--bits", "8")
    refused("unknown short option", ["merge", "'-x'"], "merge", "-x")
    refused("no argument", ["--scheme", "argument"], "calibrate", "--scheme")
    refused("an argument too many", ["--quiet", "no argument"], "calibrate", "--quiet=3")
    refused("an option twice", ["--scheme", "twice", "'W8A8'", "'W4A16'"], "calibrate", "--scheme", "W8A8", "--scheme",
            "W4A16")
    equal(fine("-V", "-V"), fine("--version", "--version"), "-V")


def test_help_of_commands():
    """Every option has a line in -h and --help, and no line is longer than 80 columns."""
    commands = fine("commands", "info", "--list", "commands").split()
    check("bench" in commands and all(c in fine("--help", "--help") for c in commands), "--help lists all commands")
    for command in commands:
        options = fine(f"options of {command}", "info", "--list", "options", command).split()
        short, full = (fine(f"{command} {option}", command, option) for option in ("-h", "--help"))
        for option in options:
            check(option in short and option in full, f"{command}: {option} in -h and --help")
        check(len(short) < len(full) and short.startswith("usage: "), f"{command}: -h is shorter than --help")
        check("example: qobs " + command in full, f"{command}: --help has an example")
        for line in (short + full).splitlines():
            check(len(line) <= 80, f"{command}: help fits 80 columns", line)
    for line in fine("info", "info").splitlines() + fine("--help", "--help").splitlines():
        check(len(line) <= 80, "info and help fit 80 columns", line)


def test_did_you_mean():
    tensors, _ = model()
    write("model.safetensors", st_bytes(tensors))
    os.mkdir("in")
    write("in/model.safetensors", st_bytes(tensors))
    write("in/config.json", b'{"model_type": "llama"}')
    calibrate = ("calibrate", "-o", "out.safetensors", "model.safetensors")
    quantize = ("quantize", "in", "-o", "out")
    for what, near, arguments in (
            ("a command", "calibrate", ("calibate",)), ("the start of a command", "quantize", ("quant",)),
            ("an option", "--scheme", (*calibrate, "--shceme", "W8A8")),
            ("an option with =", "--threads", (*calibrate, "--treads=3")),
            ("a scheme", "W4A16", (*calibrate, "--scheme", "W4A61")),
            ("a scheme of quantize", "W4A16", (*quantize, "--scheme", "W4A61")),
            ("a preset without its family", "llmc.memoryless_mse", (*calibrate, "--scheme", "W8A8", "--preset",
                                                                    "memoryless_mse")),
            ("a preset of quantize", "llmc.memoryless_mse", (*quantize, "--scheme", "W8A8", "--preset",
                                                             "memoryless_mse")),
            ("a preset of observe", "torch.MinMaxObserver", ("observe", "--preset", "torch.minmaxobserver", "x.npy")),
            ("a preset of show", "llmc.minmax", ("show", "--preset", "llmc.minmx", "x.npy")),
            ("a setting", "group_size", (*calibrate, "--scheme", "W8A8", "--set", "groupsize=32")),
            ("a setting of quantize", "group_size", (*quantize, "--scheme", "W8A8", "--set", "group-size=32")),
            ("a setting of observe", "num_bits", ("observe", "--preset", "llmc.minmax", "--set", "numbits=4", "x.npy")),
            ("a preset of info", "llmc.minmax", ("info", "llmc.minimax"))):
        refused(what, [f"did you mean '{near}'?"], *arguments)
    for given, words in (("int4", "near it is W4A16"), ("nv-fp4", "'NVFP4'"), ("FP-4", "near it is NVFP4A16"),
                         ("q4_k_m", "quantize takes it for a .gguf")):
        refused(f"a scheme as {given}", [words], *quantize, "--scheme", given)
    refused("an instruction set", ["qobs: --isa: 'vax' is no instruction set"], *quantize, "--isa", "vax")
    refused("a file that is not there", ["qobs: --config: gone.json: cannot open"], *quantize, "--config", "gone.json")
    refused("quantize without a scheme", ["--scheme: is missing", "W4A16_ASYM"], *quantize)
    refused("tensors for merge", ["is a safetensors file", "observe --state writes"], "merge", "model.safetensors")
    for owner, arguments in (("llmc.memoryless_mse", (*quantize, "--scheme", "W8A8", "--set", "norm=2")),
                             ("qobs.local_hessian", (*quantize, "--scheme", "W8A8", "--set", "hessian_block_size=64")),
                             ("torch.HistogramObserver",
                              ("observe", "--preset", "llmc.minmax", "--set", "bins=9", "x.npy"))):
        refused(f"a setting of {owner}", ["--set: ", "is no setting of it; it belongs to", owner], *arguments)
    for what, arguments in (("a word far from all", ("observe", "--preset", "entropy", "x.npy")),
                            ("an option far from all", ("observe", "--zzz"))):
        p = run(*arguments)
        check("did you mean" not in p.stderr and p.returncode == 2, f"{what}: no suggestion", p.stderr)
    for short, words in (("--st", "--strategy or --state"), ("--s=1", "--set, --strategy or --state")):
        given = short.partition("=")[0]
        refused("an ambiguous option", [f"'{given}' is ambiguous; it may be {words}"], "observe", short)
    fine("a scheme in another case", *calibrate, "--scheme", "w4a16", "--quiet")


def test_info_preset():
    text = fine("a preset", "info", "llmc.memoryless_mse")
    blocks = {b.split("\n")[0]: b for b in re.split(r"\n(?=\w+\n {4})", text)}
    for key, words in (("num_bits", ["integer, 2 to 16", "default: 8"]), ("maxshrink", ["number, 0 to 1", "0.2"]),
                       ("strategy", ["tensor | channel | group", "default: none"]), ("norm", ["default: 2.4"]),
                       ("symmetric", ["true | false", "default: true"])):
        check(all(w in blocks.get(key, "") for w in words), f"info of a preset explains {key}", blocks.get(key, text))
    for preset in fine("presets", "info", "--list", "presets").split():
        keys = fine(f"settings of {preset}", "info", "--list", "settings", preset).split()
        text = fine(preset, "info", preset)
        check(all(f"\n{key}\n" in text for key in keys) and text.count("    default: ") == len(keys),
              f"info {preset} explains every setting", text)
        check(max(map(len, text.splitlines())) <= 80, f"info {preset} fits 80 columns")
    equal(fine("values", "info", "--list", "values", "llmc.minmax", "type").split(), ["int", "float"], "values")
    equal(fine("isas", "info", "--list", "isas").split(), instruction_sets(), "instruction sets")
    check("W4A16" in fine("schemes", "info", "--list", "schemes").split(), "schemes")
    refused("a list of nothing", ["--list", "'colours'", "presets"], "info", "--list", "colours")
    refused("values of an unknown setting", ["num_bits"], "info", "--list", "values", "llmc.minmax", "num_bit")


def test_info_file():
    tensors, rows = model()
    os.mkdir("in")
    write("in/model.safetensors", st_bytes(tensors))
    write("in/config.json", json.dumps({"quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {
            "num_bits": 4, "symmetric": True, "actorder": None, "block_structure": [128, 128],
            "observer_kwargs": {"norm": 2.4}, "scale_dtype": "torch.float8_e4m3fn"}}}}}).encode())
    text = fine("a checkpoint", "info", "in")
    for word in (f"{len(tensors)} tensors in 1 file, ", "compressed-tensors", "pack-quantized", "BF16",
                 "num_bits=4 symmetric=true block_structure=[128,128]", 'observer_kwargs={"norm":2.4}'):
        check(word in " ".join(text.split()), f"info of a checkpoint says {word}", text)
    check("actorder" not in text and max(map(len, text.splitlines())) <= 80, "info of a checkpoint, 80 columns", text)
    for what, file, described, words in (
            ("block FP8", "config.json",
             {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 64],
                                      "modules_to_not_convert": ["lm_head"]}},
             "quantized: fp8, fmt=e4m3, weight_block_size=[128,64]\n"),
            ("ModelOpt", "hf_quant_config.json",
             {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None}},
             "quantized: modelopt, quant_algo=NVFP4, group_size=16\n"),
            ("nothing", "config.json", {"model_type": "llama"},
             "not quantized: config.json has no quantization_config\n")):
        os.makedirs(f"info {what}")
        write(f"info {what}/model.safetensors", st_bytes(tensors))
        write(f"info {what}/{file}", json.dumps(described).encode())
        text = fine(what, "info", f"info {what}")
        check(words in text, f"info of {what}", text)
    fine("scales", "calibrate", "--quiet", "--scheme", "W8A8", "-o", "s.safetensors", "in")
    text = fine("scales", "info", "s.safetensors")
    check("scheme: W8A8" in text and "preset: llmc.memoryless_minmax" in text, "info of scales: their metadata", text)
    for m, r in rows.items():
        scales = [qparams(LINEAR[m][0], row, 8, True)[0] for row in r]
        check(f"{min(scales):.5g} to {max(scales):.5g}" in text, f"info of scales: those of {m}", text)
    fine("a state", "observe", "--preset", "llmc.minmax", "--set", "num_bits=4", "--state", "s.state",
         "in:lm_head.weight")
    text = fine("a state", "info", "s.state")
    check("llmc.minmax num_bits=4" in text and "1 tensors observed with 1280 elements" in text and "scale" in text,
          "info of a state", text)
    many = {f"t{i:02}": ("F32", [1], bytes(4)) for i in range(30)}
    write("many.safetensors", st_bytes(many))
    equal([fine("many", "info", "many.safetensors", *o).count(" F32  ") for o in ([], ["--table"])], [11, 31],
          "ten tensors, all with --table")
    name = next(iter(rows))
    text = fine("a tensor", "info", f"s.safetensors:{name}.weight_scale")
    scales = [qparams(LINEAR[name][0], row, 8, True)[0] for row in rows[name]]
    check(f"{min(scales):.5g} to {max(scales):.5g}" in text and f"{scales[0]:.9g}" in text, "a tensor: its numbers",
          text)
    check(max(map(len, text.splitlines()[1:])) <= 80, "a tensor: first numbers in 80 columns", text)
    refused("a tensor that is not there", ["'no'", "--table"], "info", "s.safetensors:no")
    write("bad.safetensors", b"no tensors in here, only words")
    refused("info of another file", ["bad.safetensors"], "info", "bad.safetensors")
    write("bad.state", b"qobs" + bytes(50))
    refused("info of a damaged state", ["bad.state"], "info", "bad.state")
    whole = read("s.state")
    write("bad.state", whole[:len(whole) // 2])
    for command in ("info", "merge"):
        refused(f"{command} of a state that is cut",
                ["bad.state: is cut", f"{len(whole) // 2} of the {len(whole)} bytes", "again"], command, "bad.state")
    write("bad.state", whole[:30] + bytes([whole[30] ^ 1]) + whole[31:])
    refused("a state with another bit", ["bad.state: is damaged", "checksum"], "merge", "bad.state")


def test_table():
    """Ten rows by default, the worst first, in 80 columns."""
    tensors = {f"model.language_model.layers.{i}.mlp.experts.{i}.down_proj.weight":
               ("F32", [2, 128], pack("F32", [float(i + 1)] * 256)) for i in range(30)}
    write("model.safetensors", st_bytes(tensors))
    for preset in ("llmc.memoryless_minmax", "llmc.memoryless_mse", "qobs.mse_optimal"):
        command = ("calibrate", "--scheme", "W4A16", "-o", "out.safetensors", "--preset", preset, "model.safetensors")
        lines = fine(preset, *command).splitlines()
        check(all(len(line) <= 80 for line in lines), f"{preset}: the table fits 80 columns", "\n".join(lines))
        equal(sum(".down_proj " in line for line in lines), 10, f"{preset}: ten layers")
        if preset == "llmc.memoryless_minmax":
            check("29.mlp.experts.29.down_proj" in lines[3] and "20.mlp.experts.20.down_proj" in lines[12],
                  "the layers with the largest scales, the largest first", "\n".join(lines[:12]))
        check(any("20 more layers" in line for line in lines), f"{preset}: says how many more")
        whole = fine(preset, *command, "--table")
        check(all(name[:-7] in whole for name in tensors), f"{preset}: --table lists all, with whole names", whole)


def test_bench():
    isas = instruction_sets()
    got = json.loads(fine("bench --json", "bench", "--seconds", "1", "--megabytes", "2", "--json"))
    equal([got["bytes"], got["instruction_sets"]], [2 << 20, isas], "bench: what is measured")
    check(all(got["limits_gb_s"][k] > 0 for k in ("read_loop", "count_loop")), "bench: the limits")
    equal([w["name"] for w in got["works"]], ["minmax", "minmax_groups", "histogram", "quantize", "search"],
          "bench: works")
    for work in got["works"]:
        if "missing" in work:
            check("SLEEF" in work["missing"], "bench: why a work is missing", work["missing"])
            continue
        check(sorted(work["gb_s"]) == sorted(isas) and all(v > 0 for v in work["gb_s"].values()),
              f"bench: {work['name']} on each instruction set", str(work))
        if "limit" in work:
            limit = got["limits_gb_s"][work["limit"]]
            check(abs(work["share"] * limit / max(work["gb_s"].values()) - 1) < 1e-9, f"bench: {work['name']}: share",
                  str(work))
    lines = fine("bench", "bench", "--seconds", "1", "--megabytes", "1", "--threads", "1").splitlines()
    check(all(len(line) <= 80 for line in lines), "bench: the table fits 80 columns", "\n".join(lines))
    check(all(any(line.startswith(w) for line in lines) for w in ("read loop", "min/max, f32", "MSE search")),
          "bench: rows", "\n".join(lines))
    for option in ("--seconds", "--megabytes"):
        for value in ("0", "x", "100000"):
            refused(f"bench {option} {value}", [option, f"'{value}'"], "bench", option, value)
    refused("bench of a file", ["'x.npy'"], "bench", "x.npy")


def test_progress():
    """The bar: on a terminal only, by time, with speed, elapsed time and time left; nothing of it stays."""
    rows, columns = 1 << 15, 1 << 13
    with open("model.safetensors", "wb") as f:  # half a GB of zeros in a sparse file
        text = json.dumps({"a.weight": {"dtype": "BF16", "shape": [rows, columns],
                                        "data_offsets": [0, 2 * rows * columns]}}).encode()
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + 2 * rows * columns)
    start = time.monotonic()
    shown = on_terminal(*CALIBRATE, "model.safetensors", "--isa", "scalar", "--threads", "1")
    seconds, drawn = time.monotonic() - start, shown.count(b"%")
    if seconds > 0.5:
        check(re.search(rb"\[#* *\] +\d+ %  +[\d.]+ [MG]B/s  \d+ s, \d[\d:]*( s)? left", shown) is not None,
              "progress: share, speed, elapsed time, time left", shown[:200])
    check(drawn <= seconds * 10 + 1, "progress: at most ten drawings a second", f"{drawn} in {seconds}")
    check(not drawn or shown.endswith(b"\r\x1b[K"), "progress: the bar is removed", shown[-60:])


def test_colours():
    """Errors and warnings stand out on a terminal, unless the user or the terminal wants no colours."""
    write("x.safetensors", st_bytes({f"x{i}": ("F32", [2], pack("F32", [1.0, 2.0])) for i in range(2)}))
    ignored = ("observe", "--preset", "llmc.static_minmax", "--base-name", "weight", "x.safetensors:x0",
               "x.safetensors:x1")
    for command, status, words, number in ((ignored, 0, b"qobs: warning:", b"33"), (("prune",), 2, b"qobs:", b"31")):
        coloured = b"\x1b[1;%sm%s\x1b[0m " % (number, words)
        for variables, start in (({"TERM": "xterm"}, coloured), ({"TERM": "xterm", "NO_COLOR": ""}, coloured),
                                 ({"TERM": "xterm", "NO_COLOR": "1"}, words + b" "), ({"TERM": "dumb"}, words + b" "),
                                 ({}, words + b" ")):
            shown = on_terminal(*command, status=status, **variables)
            check(shown.startswith(start) and shown.count(b"\x1b") == start.count(b"\x1b"), f"colours of {variables}",
                  shown)
        check("\x1b" not in run(*command, env={**os.environ, "TERM": "xterm"}).stderr, "a pipe has no colours")


CALIBRATE = ("calibrate", "--quiet", "--scheme", "W8A8", "-o", "out.safetensors")


def test_refused_options():
    write("model.safetensors", st_bytes(model()[0]))
    observe = ("observe", "--preset", "llmc.minmax", "--out", "out.safetensors", "model.safetensors:lm_head.weight")
    presets = ["llmc.memoryless_minmax", "llmc.static_minmax", "llmc.minmax", "torch.*", "quark.*"]
    calibrate = CALIBRATE + ("model.safetensors",)
    refused("no model", ["model"], *CALIBRATE)
    refused("two models", ["2"], *calibrate, "model.safetensors")
    refused("no output", ["-o"], "calibrate", "--scheme", "W8A8", "model.safetensors")
    refused("no scheme", ["--scheme", "W8A8", "W4A16_ASYM"], "calibrate", "-o", "out.safetensors", "model.safetensors")
    refused("unknown scheme", ["--scheme", "'X99'", "W8A8", "W4A16_ASYM"], "calibrate", "--scheme", "X99", "-o",
            "out.safetensors", "model.safetensors")
    refused("unknown preset", ["'llmc.best'"] + presets, *calibrate, "--preset", "llmc.best")
    refused("unknown preset of observe", ["'llmc.best'"] + presets, "observe", "--preset", "llmc.best",
            "model.safetensors")
    refused("a preset without the scheme's settings", ["--preset", "torch.MinMaxObserver", "llmc.*"], *calibrate,
            "--preset",
            "torch.MinMaxObserver")
    refused("observe without preset", ["--preset"], "observe", "model.safetensors")
    refused("observe without tensor", ["tensor"], *observe[:-1])
    refused("bad regex", ["targets", "'re:layers.('"], *calibrate, "--targets", "re:layers.(")
    refused("a pattern without an end", ["targets", "'re:(([a-z._0-9]*)*)*[!?]'", "simpler"], *calibrate, "--targets",
            "re:(([a-z._0-9]*)*)*[!?]")
    os.makedirs("d")
    write("d/config.json", b"{}")
    write("d/model.safetensors", read("model.safetensors"))
    quantize = ("quantize", "d", "--scheme", "W8A8", "--replace", "-o", "quantized")
    for pattern in ("re:(([a-z._0-9]*)*)*[!?]", "re:((a*)*)*b", "re:(((.{1,200}){1,200}){1,200})!",
                    "re:(.*.*.*.*.*.*.*)*!"):
        for option in ("--targets", "--ignore"):
            for command in (calibrate, quantize):
                begin = sum(os.times()[2:4])
                p = run(*command, option, pattern)
                seconds = sum(os.times()[2:4]) - begin
                check(p.returncode in (0, 2, 3) and seconds < 1,
                      f"{command[0]} {option} {pattern} ends within a second",
                      f"status {p.returncode}, {seconds:.1f} s\n{p.stderr}")
    refused("bad regex to ignore", ["ignore", "'re:['"], *calibrate, "--ignore", "re:[")
    refused("a pattern that closes the anchor", ["targets", "'re:zzz)|(q_proj'", "unmatched"], *calibrate, "--targets",
            "re:zzz)|(q_proj")
    refused("a name that would close it", ["--targets", "none"], *calibrate, "--targets", "zzz)|(q_proj")
    refused("no target matched", ["model.safetensors", "--targets"], *calibrate, "--targets", "no_such_layer")
    refused("all ignored", ["model.safetensors"], *calibrate, "--ignore", "re:.*")
    for command in (calibrate, observe):
        refused("unknown isa", ["--isa", "'mmx'", "scalar"], *command, "--isa", "mmx")
        for threads in ("0", "-1", "two", "", "1000000"):
            refused(f"--threads '{threads}'", ["--threads", f"'{threads}'", "1 to" if threads else "N is needed"],
                    *command, "--threads", threads)
        for setting in ("garbage", "=4", ""):
            refused(f"--set '{setting}'", ["--set", f"'{setting}'", "KEY=VALUE"], *command, "--set", setting)
        refused("unknown setting", ["--set", "'bits'", "num_bits"], *command, "--set", "bits=4")
        refused("bad value", ["--set", "num_bits", "99", "to 16"], *command, "--set", "num_bits=99")
    refused("group size that does not divide", ["4 layers", "model.layers", "group", "100"],
            "calibrate", "--scheme", "W4A16", "--set", "group_size=100", "-o", "out.safetensors", "model.safetensors")
    refused("unknown base name", ["base_name", "'bias'"], *observe, "--base-name", "bias")
    refused("unknown mode", ["nonfinite", "'skip'", "ignore"], *observe, "--nonfinite", "skip")
    refused("strategy that does not apply", ["attn_head", "weight"], *observe, "--strategy", "attn_head")
    refused("importance without use", ["--importance", "llmc.minmax"], *observe, "--importance",
            "model.safetensors:norm")
    refused("importance without a Hessian", ["--importance", "modelopt.MseCalibrator", "without hessian_block_size"],
            "observe", "--preset", "modelopt.MseCalibrator", "--importance", "model.safetensors:norm",
            "model.safetensors:norm")


def header(text, data=b""):
    return struct.pack("<Q", len(text)) + text + data


def test_refused_files():
    good = st_bytes(model()[0])
    entry = b'"%s.weight":{"dtype":"%s","shape":[%d,2],"data_offsets":[%d,%d]}'
    files = {
        "truncated data": (good[:-1], ["data section"]),
        "truncated header": (good[:40], ["cut off", "header"]),
        "truncated length": (good[:5], ["5 bytes"]),
        "empty": (b"", ["0 bytes"]),
        "header of 100 GB": (struct.pack("<Q", 100 * 10 ** 9) + good[8:], ["100000000000"]),
        "header of 2^64 bytes": (b"\xff" * 8 + good[8:], ["18446744073709551615"]),
        "overlap": (header(b"{" + entry % (b"a", b"F32", 2, 0, 16) + b"," + entry % (b"b", b"F32", 2, 8, 24) + b"}",
                           bytes(24)),
                    ["'b.weight'", "'a.weight'", "8"]),
        "hole": (header(b"{" + entry % (b"a", b"F32", 1, 8, 16) + b"}", bytes(16)), ["'a.weight'", "8"]),
        "offsets beyond the end": (header(b"{" + entry % (b"a", b"F32", 2, 0, 16) + b"}", bytes(15)),
                                   ["'a.weight'", "16", "15"]),
        "offsets backwards": (header(b"{" + entry % (b"a", b"F32", 2, 16, 0) + b"}", bytes(16)), ["'a.weight'", "16"]),
        "size against shape": (header(b"{" + entry % (b"a", b"F32", 3, 0, 16) + b"}", bytes(16)),
                               ["'a.weight'", "16", "24"]),
        "unknown dtype": (header(b"{" + entry % (b"a", b"F99", 2, 0, 16) + b"}", bytes(16)),
                          ["'a.weight'", "F99", "BF16"]),
        "name that occurs twice": (header(b"{" + b",".join([entry % (b"a", b"F32", 1, 0, 8),
                                                            entry % (b"a", b"F32", 1, 8, 16)]) +
                                          b"}", bytes(16)), ["'a.weight'", "twice"]),
        "no JSON": (header(b'{"a.weight":', bytes(16)), ["JSON"]),
        "other bytes": (b"no tensors in here, only words", ["bytes"]),
    }
    for what, (data, words) in files.items():
        write("bad.safetensors", data)
        refused(f"calibrate, {what}", ["bad.safetensors"] + words, *CALIBRATE, "bad.safetensors")
        refused(f"observe, {what}", ["bad.safetensors"] + words, "observe", "--preset", "llmc.minmax", "--out",
                "out.safetensors",
                "bad.safetensors")
    os.unlink("bad.safetensors")
    refused("missing file", ["gone.safetensors", "No such file"], *CALIBRATE, "gone.safetensors")
    refused("missing file of observe", ["gone.npy", "No such file"], "observe", "--preset", "llmc.minmax", "gone.npy")
    os.mkdir("empty")
    refused("directory without a model", ["empty", "no safetensors file"], *CALIBRATE, "empty")
    index = {"weight_map": {"a.weight": "one.safetensors", "b.weight": "two.safetensors"}}
    write("lost.safetensors.index.json", json.dumps(index).encode())
    write("one.safetensors", st_bytes({"a.weight": ("F32", [1, 2], bytes(8))}))
    refused("missing shard", ["two.safetensors", "not there"], *CALIBRATE, "lost.safetensors.index.json")
    write("two.safetensors", st_bytes({"c.weight": ("F32", [1, 2], bytes(8))}))
    refused("shard without the tensor", ["b.weight", "two.safetensors"], *CALIBRATE, "lost.safetensors.index.json")
    index["weight_map"]["b.weight"] = "../two.safetensors"
    write("lost.safetensors.index.json", json.dumps(index).encode())
    refused("shard outside the directory", ["../two.safetensors"], *CALIBRATE, "lost.safetensors.index.json")
    write("bad.npy", npy_bytes("<f4", [3], bytes(8)))
    refused("short .npy", ["bad.npy"], "observe", "--preset", "llmc.minmax", "bad.npy")
    write("words.npy", npy_bytes("<U3", [3], bytes(36)))
    refused(".npy of text", ["words.npy", "<U3"], "observe", "--preset", "llmc.minmax", "words.npy")
    write("many.safetensors", st_bytes({"x": ("F32", [2], bytes(8)), "y": ("I32", [2], bytes(8))}))
    refused("several tensors, none named", ["many.safetensors"], "observe", "--preset", "llmc.minmax",
            "many.safetensors")
    refused("unknown tensor", ["many.safetensors", "'z'"], "observe", "--preset", "llmc.minmax", "many.safetensors:z")
    refused("integers", ["many.safetensors", "y", "I32"], "observe", "--preset", "torch.MinMaxObserver",
            "many.safetensors:y")


def big_weight(rows, columns, place, value):
    raw = bytearray(pack("BF16", [0.5, -0.25] * (columns // 2)) * rows)
    at = 2 * (place[0] * columns + place[1])
    raw[at:at + 2] = pack("BF16", [value])
    return ("BF16", [rows, columns], bytes(raw))


def test_nan_in_a_weight():
    for what, place, value, kind in (("first slice", (0, 3), math.nan, "NaN"),
                                     ("later slice", (1311, 77), math.nan, "NaN"),
                                     ("infinity", (2046, 1022), -math.inf, "-infinity")):
        tensors = {"a.weight": ("BF16", [2, 128], pack("BF16", [1.0] * 256)),
                   "big.weight": big_weight(2048, 1024, place, value)}
        write("nan.safetensors", st_bytes(tensors))  # 4 MB
        for scheme in ("W8A8", "W4A16"):
            for threads in thread_counts():
                refused(f"{kind} in the {what}, {scheme}, {threads} threads",
                        ["'big.weight'", f"{kind} at [{place[0]}, {place[1]}]"], "calibrate",
                        "--scheme", scheme,
                        "-o", "out.safetensors", "--json", "report.json", "--threads", threads, "nan.safetensors")
        refused(f"{kind} in one range", ["'big.weight'", f"{kind} at [{place[0]}, {place[1]}]"], *CALIBRATE, "--set",
                "strategy=tensor", "nan.safetensors")
        refused(f"{kind}, observe", ["nan.safetensors:big.weight", f"{kind} at [{place[0]}, {place[1]}]"], "observe",
                "--preset",
                "llmc.minmax", "--out", "out.safetensors", "nan.safetensors:big.weight")


def test_output():
    tensors, _ = model()
    write("model.safetensors", st_bytes(tensors))
    nan = dict(tensors, **{"z.weight": ("F32", [1, 2], pack("F32", [1, math.nan]))})
    write("nan.safetensors", st_bytes(nan))
    observe = ("observe", "--preset", "llmc.minmax", "model.safetensors:lm_head.weight", "--out")
    os.mkdir("folder")
    for what, words, arguments in (("calibrate", ["folder", "directory"],
                                    CALIBRATE[:-1] + ("folder", "model.safetensors")),
                                   ("observe", ["folder", "directory"], observe + ("folder",))):
        refused(f"{what} onto a directory", words, *arguments)
    for what, arguments in (("calibrate", CALIBRATE[:-1] + ("none/out.safetensors", "model.safetensors")),
                            ("observe", observe + ("none/out.safetensors",))):
        refused(f"{what} into a missing directory", ["none/out.safetensors", "No such file"], *arguments, status=1)
    if os.geteuid() != 0:  # root may write everywhere
        os.chmod("folder", 0o500)
        refused("unwritable directory", ["folder/out.safetensors", "Permission"], *observe, "folder/out.safetensors",
                status=1)
        os.chmod("folder", 0o700)
    write("out.safetensors", b"old")
    refused("a failing run and an existing file", ["'z.weight'"], *CALIBRATE, "nan.safetensors")
    refused("a failing observe and an existing file", ["NaN"], "observe", "--preset", "llmc.minmax", "--out",
            "out.safetensors",
            "nan.safetensors:z.weight")
    equal(read("out.safetensors"), b"old", "a failing run leaves the old file")
    fine("a run replaces the file", *CALIBRATE, "model.safetensors")
    check(st_read("out.safetensors")[0], "the file is replaced")
    equal(sorted(os.listdir(".")), ["folder", "model.safetensors", "nan.safetensors", "out.safetensors"],
          "no other file is left")


def test_report_first():
    """A report that cannot be written fails before the output appears."""
    write("model.safetensors", st_bytes(model()[0]))
    calibrate = CALIBRATE + ("model.safetensors", "--json")
    os.mkdir("folder")
    write("out.safetensors", b"old")
    refused("a report in a missing directory", ["--json", "none/report.json", "No such file"], *calibrate,
            "none/report.json", status=1)
    refused("a report onto a directory", ["folder", "directory"], *calibrate, "folder")
    refused("a report onto the output", ["--json", "out.safetensors"], *calibrate, "out.safetensors")
    refused("a report onto the model", ["--json", "model.safetensors"], *calibrate, "model.safetensors")
    write("nan.safetensors", st_bytes({"a.weight": ("F32", [1, 2], pack("F32", [1, math.nan]))}))
    write("report.json", b"old")
    refused("a failing run and an existing report", ["'a.weight'"], *CALIBRATE, "nan.safetensors", "--json",
            "report.json")
    equal(read("report.json"), b"old", "a failing run leaves the old report")
    os.symlink("report.json", "link.json")
    fine("a report through a link", *calibrate, "link.json")
    check(os.path.islink("link.json") and json.loads(read("report.json"))["scheme"] == "W8A8", "a link stays one")
    fine("a report to a device", *calibrate, "/dev/null")
    check(not os.path.isfile("/dev/null"), "a device stays one")
    os.mkfifo("pipe")
    p = subprocess.Popen(QOBS + [*calibrate, "pipe"], stderr=subprocess.PIPE)
    with open("pipe", "rb") as f:
        equal(json.loads(f.read())["scheme"], "W8A8", "a report into a pipe")
    equal(p.communicate(timeout=60)[1], b"", "a report into a pipe: no complaint")
    equal(sorted(os.listdir(".")), ["folder", "link.json", "model.safetensors", "nan.safetensors", "out.safetensors",
                                    "pipe", "report.json"],
          "no other file is left")


def test_signals():
    """A run that a signal ends leaves the old files and no others."""
    rows, columns = 1 << 15, 1 << 13
    with open("model.safetensors", "wb") as f:  # half a GB of zeros in a sparse file
        text = json.dumps({"a.weight": {"dtype": "BF16", "shape": [rows, columns],
                                        "data_offsets": [0, 2 * rows * columns]}}).encode()
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + 2 * rows * columns)
    write("out.safetensors", b"old")
    write("report.json", b"old")
    files = sorted(os.listdir("."))
    for threads in thread_counts()[:2]:
        for what in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            p = subprocess.Popen(QOBS + [*CALIBRATE, "model.safetensors", "--json", "report.json", "--isa", "scalar",
                                         "--threads", threads],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 preexec_fn=lambda what=what: signal.signal(what,
                                                                            signal.SIG_DFL))  # nohup and & ignore some
            while p.poll() is None and sum(f.endswith(".tmp") for f in os.listdir(".")) < 2:
                time.sleep(0.001)
            p.send_signal(what)
            errors = p.communicate(timeout=60)[1]
            equal((p.returncode, errors), (-what, b""), f"{what.name}, {threads} threads: ends by it")
            equal(sorted(os.listdir(".")), files, f"{what.name}, {threads} threads: no file is left over")
    equal((read("out.safetensors"), read("report.json")), (b"old", b"old"), "the old files are as they were")
    p = subprocess.Popen(QOBS + [*CALIBRATE, "model.safetensors"],
                         preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    while p.poll() is None and not any(f.endswith(".tmp") for f in os.listdir(".")):
        time.sleep(0.001)
    p.send_signal(signal.SIGHUP)
    equal(p.wait(timeout=300), 0, "SIGHUP that was ignored stays ignored")
    equal(sorted(os.listdir(".")), files, "the file is replaced, none is left over")
    check(read("out.safetensors") != b"old", "the file is replaced")


def test_long_names():
    """Names of any length are complete, also those that differ only in their last character."""
    tensors = {n * length + end + ".weight": ("F32", [1, 2], pack("F32", [float(k + 1), 0.0])) for k,
               (n, length, end) in
               enumerate((("m", 1022, "a"), ("m", 1022, "b"), ("m", 1023, ""), ("long.", 1000, "x"),
                          ("long.", 1000, "y")))}
    write("model.safetensors", st_bytes(tensors))
    fine("long names", *CALIBRATE, "--set", "symmetric=false", "model.safetensors", "--json", "report.json")
    got, _ = st_read("out.safetensors")
    equal(sorted(got), sorted(n + e for n in tensors for e in ("_scale", "_zero_point")), "long names: in the output")
    for name, (_, _, raw) in tensors.items():
        equal(got[name + "_scale"][2], [qparams("F32", unpack("F32", raw), 8, False)[0]],
              "long names: their own scales")
    equal(sorted(l["module"] for l in json.loads(read("report.json"))["layers"]), sorted(n[:-7] for n in tensors),
          "long names: in the report")
    table = run(*[w for w in CALIBRATE if w != "--quiet"], "model.safetensors").stdout
    check(all(len(line) < 300 for line in table.splitlines()), "long names: the table stays narrow")


# ---- Tests: calibrate ------------------------------------------------------------------------------------------------

def test_schemes():
    tensors, rows = model()
    write("model.safetensors", st_bytes(tensors, {"format": "pt"}))
    for scheme, wanted, bits, symmetric in (("W8A8", by_channel(rows), 8, True),
                                            ("W8A16", by_group(rows, 128), 8, True),
                                            ("INT8", by_channel(rows), 8, True),
                                            ("W4A16", by_group(rows, 128), 4, True),
                                            ("W4A8", by_group(rows, 128), 4, True),
                                            ("W4A16_ASYM", by_group(rows, 128), 4, False)):
        fine(scheme, "calibrate", "--quiet", "--scheme", scheme, "-o", "out.safetensors", "model.safetensors")
        expect_scales(scheme, "out.safetensors", wanted, bits, symmetric)
        metadata = st_read("out.safetensors")[1]
        equal([metadata.get(k) for k in ("format", "scheme", "preset")], ["pt", scheme, "llmc.memoryless_minmax"],
              f"{scheme}: metadata")
        own = metadata.get("settings", "").split()
        check(own[:1] == ["llmc.memoryless_minmax"] and (bits == 8 or f"num_bits={bits}" in own) and
              symmetric != ("symmetric=false" in own), f"{scheme}: settings in the metadata", str(own))
    table = fine("the table", "calibrate", "--scheme", "W8A8", "-o", "out.safetensors", "model.safetensors")
    check(all(m in table for m in LINEAR) and "4 layers" in table, "the table has every module", table)


def test_too_large_for_nvfp4():
    """The global scale would be 0, by which dequantization divides."""
    inputs = {f"layers.{i}.{m}.input": ("F64", [2, 16], pack("F64", [x] + 31 * [1.0]))
              for i, (m, x) in enumerate((("up_proj", 1.0), ("down_proj", -1e300)))}
    write("model.safetensors", st_bytes({n.replace("input", "weight"): ("F32", [2, 16], pack("F32", 32 * [1.0]))
                                         for n in inputs}))
    write("a.safetensors", st_bytes(inputs))
    refused("input of 1e300", ["layers.1.down_proj.input_global_scale", "is 0"], "calibrate", "--quiet", "--scheme",
            "NVFP4", "--preset", "kv=none", "--activations", "a.safetensors", "-o", "out.safetensors",
            "model.safetensors")


def test_strategies():
    tensors, rows = model()
    write("model.safetensors", st_bytes(tensors))
    asym = ("calibrate", "--quiet", "--scheme", "W4A16_ASYM", "-o", "out.safetensors", "model.safetensors", "--set")
    for what, settings, wanted in (
            ("groups of 32", ["group_size=32"], by_group(rows, 32)),
            ("blocks", ["group_size=null", "strategy=block", "block_structure=[4, 100]"], by_block(rows, 4, 100)),
            ("tensor", ["group_size=null", "strategy=tensor"], {m: ([1], [sum(r, [])]) for m, r in rows.items()}),
            ("channels by group size", ["strategy=null", "group_size=-1"], by_channel(rows)),
            ("channels by name", ["strategy=channel", "group_size=null"], by_channel(rows))):
        fine(what, *asym, *" --set ".join(s.replace(" ", "") for s in settings).split())
        expect_scales(what, "out.safetensors", wanted, 4, False)
    fine("8 bits of a 4-bit scheme", *asym, "num_bits=8", "--preset", "llmc.static_minmax")
    expect_scales("8 bits of a 4-bit scheme", "out.safetensors", by_group(rows, 128), 8, False)
    fine("zero points of a symmetric scheme", *CALIBRATE, "model.safetensors", "--set", "symmetric=false")
    expect_scales("zero points of a symmetric scheme", "out.safetensors", by_channel(rows), 8, False)


def test_big_blocks():
    """Several slices, and a last block that is smaller."""
    rows, height, half = 1000, 384, 512
    raw = b"".join(pack("BF16", [float(5 - 2 * (i // height))]) * half + pack("BF16",
                                                                              [float(6 - 2 * (i // height))]) * half
                   for i in range(rows))
    write("model.safetensors", st_bytes({"big.weight": ("BF16", [rows, 2 * half], raw)}))
    fine("big blocks", *CALIBRATE, "--set", "strategy=block", "--set", f"block_structure=[{height},{half}]",
         "model.safetensors")
    want = [qparams("BF16", [float(v)], 8, True)[0] for v in (5, 6, 3, 4, 1, 2)]
    equal(st_read("out.safetensors")[0].get("big.weight_scale"), ("BF16", [3, 2], want), "big blocks: scales")


def test_models():
    tensors, rows = model()
    wanted, names = by_channel(rows), sorted(tensors)
    os.mkdir("whole")
    write("whole/model.safetensors", st_bytes(tensors))
    fine("a directory", *CALIBRATE, "whole")
    expect_scales("a directory", "out.safetensors", wanted, 8, True)
    os.mkdir("sharded")
    shards = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for shard, held in shards.items():
        write(f"sharded/{shard}", st_bytes({n: tensors[n] for n in held}))
    index = {"metadata": {"total_size": 1}, "weight_map": {n: s for s, held in shards.items() for n in held}}
    write("sharded/model.safetensors.index.json", json.dumps(index).encode())
    first = read("out.safetensors")
    for path in ("sharded", "sharded/", "sharded/model.safetensors.index.json"):
        fine(path, *CALIBRATE, path)
        expect_scales(path, "out.safetensors", wanted, 8, True)
    tensors["packed.weight"] = ("I8", [2, 2], bytes(4))
    tensors["stack.experts.weight"] = ("F32", [2, 3, 4], pack("F32", [float(i) for i in range(24)]))
    write("model.safetensors", st_bytes(tensors))
    fine("what cannot be observed is left out", *CALIBRATE, "model.safetensors")
    equal(st_read("out.safetensors"), st_read(write("first.safetensors", first)), "what cannot be observed is left out")
    refused("a weight that is no matrix", ["stack.experts.weight", "--ignore"], *CALIBRATE,
            "--targets", "stack.experts", "model.safetensors")


def test_selection():
    tensors, rows = model()
    write("model.safetensors", st_bytes(tensors))

    def chosen(*options):
        fine(" ".join(options), *CALIBRATE, "model.safetensors", *options)
        return sorted(n[:-len(".weight_scale")] for n in st_read("out.safetensors")[0])

    everything = sorted(rows)
    equal(chosen(), everything, "the default leaves out embeddings, norms and lm_head")
    equal(chosen("--targets", "lm_head"), ["lm_head"], "a target overrides the default")
    equal(chosen("--targets", "re:.*q_proj$", "--targets", "lm_head"),
          ["lm_head"] + [m for m in everything if "q_proj" in m],
          "several targets")
    equal(chosen("--ignore", "re:.*mlp"), [m for m in everything if "mlp" not in m], "--ignore")
    equal(chosen("--targets", "re:model.layers.1", "--ignore", "re:.*down"), ["model.layers.1.self_attn.q_proj"],
          "both")
    equal(chosen("--targets", "re:.*layers.1.*q_proj$"), ["model.layers.1.self_attn.q_proj"], "a pattern to the end")
    equal(chosen("--targets", "Linear"), everything, "Linear is the default")
    equal(chosen("--targets", "Linear", "--targets", "lm_head"), ["lm_head"] + everything, "Linear and another target")
    refused("a pattern that begins in the middle", ["--targets", "re:.*q_proj"], *CALIBRATE, "model.safetensors",
            "--targets", "re:mlp")
    for command in (CALIBRATE, ("quantize", "--scheme", "W8A8", "-o", "out")):
        refused("a name of Hugging Face", ["hf download meta-llama/Llama-3.1-8B"], *command, "meta-llama/Llama-3.1-8B")
        refused("no model", ["none: No such file or directory"], *command, "none")


def test_json():
    tensors, rows = model()
    tensors["packed.weight"] = ("I8", [2, 2], bytes(4))
    write("model.safetensors", st_bytes(tensors))
    fine("--json", *CALIBRATE, "model.safetensors", "--json", "report.json", "--isa", "scalar")
    report = json.loads(read("report.json"))
    equal([report[k] for k in ("scheme", "preset", "model", "output", "isa", "skipped")],
          ["W8A8", "llmc.memoryless_minmax", "model.safetensors", "out.safetensors", "scalar", 1], "the report's head")
    equal(report["bytes"], sum(len(tensors[m + ".weight"][2]) for m in rows), "the report's bytes")
    layers = {l["module"]: l for l in report["layers"]}
    equal(sorted(layers), sorted(rows), "the report's layers")
    for m, r in rows.items():
        scales = [qparams(LINEAR[m][0], row, 8, True)[0] for row in r]
        equal([layers[m][k] for k in ("dtype", "shape", "scale_shape", "smallest_scale", "largest_scale")],
              [LINEAR[m][0], LINEAR[m][1], [len(r), 1], min(scales), max(scales)], f"the report on {m}")
    text = fine("--json -", *CALIBRATE, "model.safetensors", "--json", "-")
    equal(json.loads(text)["layers"], report["layers"], "--json - with --quiet is JSON alone")
    text = fine("--json - alone", *[w for w in CALIBRATE if w != "--quiet"], "model.safetensors", "--json", "-")
    equal(json.loads(text)["layers"], report["layers"], "--json - is JSON alone")


def test_nonfinite_weights():
    """nonfinite=ignore: scales of the finite numbers, and counts of the others."""
    rows, columns = 700, 1024  # several slices
    finite = [ROUND["F32"](random.Random(5).gauss(0, 1))] * columns
    weight = [list(finite) for _ in range(rows)]
    for k in (3, 333, 699):
        weight[k][:3] = [math.nan, math.inf, -math.inf]
        weight[k][17] = 5.0
    write("model.safetensors", st_bytes({"a.weight": ("F32", [rows, columns], pack("F32", sum(weight, []))),
                                         "b.weight": ("F32", [1, 16], pack("F32", [1.0] * 16))}))
    ignore = ("model.safetensors", "--set", "nonfinite=ignore", "--json", "report.json")
    want = [qparams("F32", [x for x in row if math.isfinite(x)], 8, True)[0] for row in weight]
    for threads in thread_counts():
        fine(f"ignore, {threads} threads", *CALIBRATE, *ignore, "--threads", threads)
        equal(st_read("out.safetensors")[0]["a.weight_scale"][2], want, f"ignore, {threads} threads: scales")
        equal([[l["module"], l["nan"], l["inf"]] for l in json.loads(read("report.json"))["layers"]],
              [["a", 3, 6], ["b", 0, 0]],
              f"ignore, {threads} threads: counted")
    table = fine("the table", *[w for w in CALIBRATE if w != "--quiet"], *ignore)
    check("3 NaN, 6 infinite" in table and "1 layers hold 3 NaN and 6 infinite" in table, "the table tells them", table)
    fine("under a global scale", "calibrate", "--quiet", "--scheme", "NVFP4", "--preset", "input=none", "-o",
         "out.safetensors", *ignore)
    equal(st_read("out.safetensors")[0]["a.weight_global_scale"][2], [f32(f32(1 / 5) * 2688)],
          "the global scale of finite numbers")
    equal([l["nan"] for l in json.loads(read("report.json"))["layers"]], [3, 0], "under a global scale: counted once")


def test_same_everywhere():
    source = random.Random(3)
    noise = source.randbytes(1 << 20)
    big = bytes(b & 0xbf if i & 1 else b for i, b in enumerate(noise)) * 3  # bf16 without NaN and infinity
    small, _ = model()
    write("model.safetensors", st_bytes(dict(small, **{"big.weight": ("BF16", [1536, 1024], big)})))
    outputs = {}
    for scheme, extra in (("W8A8", []), ("W4A16_ASYM", []), ("INT8", ["--set", "strategy=tensor"])):
        for isa in instruction_sets():
            for threads in thread_counts():
                fine(f"{scheme}, {isa}, {threads} threads", "calibrate", "--quiet", "--scheme", scheme, *extra, "-o",
                     "out.safetensors", "--isa", isa, "--threads", threads, "model.safetensors")
                outputs.setdefault(scheme, set()).add(read("out.safetensors"))
        equal(len(outputs[scheme]), 1, f"{scheme}: one output on every instruction set and number of threads")
    results = set()
    for isa in instruction_sets():
        for threads in thread_counts():
            results.add(fine(f"observe, {isa}, {threads} threads", "observe", "--preset", "llmc.minmax", "--base-name",
                             "input", "--set",
                             "group_size=64", "--json", "--isa", isa, "--threads", threads,
                             "model.safetensors:big.weight"))
    equal(len(results), 1, "observe: one output")


# ---- Tests: observe --------------------------------------------------------------------------------------------------

def test_observe():
    batches = [[-1.0, 0.5, 2.0, 0.25], [4.0, -0.5, 1.0, 3.0], [1.0, -3.0, 0.0, 0.125]]
    write("x.safetensors", st_bytes({f"b{i}": ("F32", [2, 2], pack("F32", b)) for i, b in enumerate(batches)}))
    for i, b in enumerate(batches):
        write(f"b{i}.npy", npy_bytes("<f4", [2, 2], pack("F32", b)))
    arguments = ("observe", "--preset", "llmc.minmax", "--set", "averaging_constant=0.25", "--base-name", "input",
                 "--strategy",
                 "tensor", "--each")
    ranges = [(-1.0, 2.0), (-0.875, 2.5), (-1.40625, 2.125)]
    want = {}
    for i, (low, high) in enumerate(ranges):
        for end in [f"_{i}"] + ([""] if i == 2 else []):
            want.update({"min_vals" + end: ("F32", [1], [low]), "max_vals" + end: ("F32", [1], [high]),
                         "scale" + end: ("F32", [1], [qparams("F32", (low, high), 8, True)[0]]),
                         "zero_point" + end: ("I8", [1], [0])})
    for what, specs in (("safetensors", [f"x.safetensors:b{i}" for i in range(3)]),
                        (".npy", [f"b{i}.npy" for i in range(3)])):
        equal(fine(what, *arguments, "--out", "out.safetensors", *specs), "", f"{what}: prints nothing")
        equal(st_read("out.safetensors")[0], want, f"{what}: results of every batch")
    text = fine("--json", *arguments, "--json", *specs)
    equal({k: (v["dtype"], v["shape"], v["values"]) for k, v in json.loads(text).items()}, want,
          "--json: the same results")
    text = fine("a table", *arguments[:-1], *specs)
    equal([line.split()[0] for line in text.splitlines()], ["min_vals", "max_vals", "scale", "zero_point"],
          "a table without --out")
    said = fine("--state", *arguments[:-1], "--state", "all.state", *specs).splitlines()
    equal(said[:4], text.splitlines(), "--state: the same table")
    check("all.state" in said[4] and "3 tensors observed" in said[4], "--state: says what it has saved", said[4:])
    for preset in ("static_minmax", "minmax", "mse"):
        counted = fine(f"{preset}: input by default", "observe", "--preset", "llmc." + preset, "--json", *specs)
        equal(counted, fine("input", "observe", "--preset", "llmc." + preset, "--base-name", "input", "--json", *specs),
              f"{preset}: the same as input")
    for options in ((), ("--json",), ("--state", "one.state")):
        p = run("observe", "--preset", "llmc.static_minmax", "--base-name", "weight", *options, *specs)
        check(p.returncode == 0 and p.stderr.startswith("qobs: warning: 2 of 3 tensors are ignored: base_name=weight"),
              "observe warns of ignored tensors", f"{p.returncode}: {p.stderr}")
    p = run("merge", "one.state", "one.state")
    check(p.returncode == 0 and p.stderr.startswith("qobs: warning: 4 of 6 tensors are ignored: base_name=weight"),
          "merge warns of ignored tensors", f"{p.returncode}: {p.stderr}")
    p = run("show", "--preset", "llmc.static_minmax", "--base-name", "weight", "--json",
            *[f"x.safetensors:b{i}" for i in range(3)])
    check(p.returncode == 0 and p.stderr.startswith("qobs: warning: 2 of 3 tensors are ignored"), "show warns, too",
          f"{p.returncode}: {p.stderr}")
    text = fine("torch", "observe", "--preset", "torch.MinMaxObserver", "--json", *specs)
    got = {k: v["values"][0] for k, v in json.loads(text).items()}
    equal(got, {"min_val": -3, "max_val": 4, "scale": f32(7 / 255), "zero_point": 109}, "torch: names and numbers")
    write("turned.npy", npy_bytes("<f8", [2, 3], pack("F64", [1, 4, 2, 5, 3, 6]), fortran=True))
    text = fine("Fortran order", "observe", "--preset", "llmc.memoryless_minmax", "--strategy", "channel", "--json",
                "turned.npy")
    equal(json.loads(text)["max_vals"], {"dtype": "F64", "shape": [2, 1], "values": [3, 6]}, "a .npy in Fortran order")


def test_g_idx():
    weight = [1.0, 8.0, 2.0, 7.0, -3.0, 6.0, 4.0, -5.0]
    write("w.safetensors", st_bytes({"w": ("F32", [2, 4], pack("F32", weight)),
                                     "g": ("I32", [4], pack("I32", [1, 0, 1, 0])),
                                     "off": ("I64", [4], pack("I64", [-1, 0, 1, 0])),
                                     "far": ("I32", [4], pack("I32", [0, 1, 9, 0]))}))
    arguments = ("observe", "--preset", "llmc.memoryless_minmax", "--set", "group_size=2", "--json", "w.safetensors:w",
                 "--g-idx")
    for g_idx, want in (("g", [8.0, 2.0, 6.0, 4.0]), ("off", [8.0, 7.0, 6.0, 4.0])):
        got = json.loads(fine(f"g_idx {g_idx}", *arguments, f"w.safetensors:{g_idx}"))
        equal(got["max_vals"], {"dtype": "F32", "shape": [2, 2], "values": want}, f"g_idx {g_idx}: maxima")
    refused("g_idx out of range", ["g_idx", "entry 2", "9"], *arguments, "w.safetensors:far")
    refused("g_idx that is a weight", ["g_idx", "F32"], *arguments, "w.safetensors:w")


def test_global_scale():
    """Scales under a given global scale."""
    rows = [[source.gauss(0, 1) for _ in range(32)] for source in [random.Random(9)] for _ in range(3)]
    rows = [[ROUND["BF16"](x) for x in r] for r in rows]
    write("w.safetensors", st_bytes({"w": ("BF16", [3, 32], pack("BF16", sum(rows, []))),
                                     "g": ("F32", [1], pack("F32", [777.25])),
                                     "two": ("F32", [2], bytes(8)), "n": ("I32", [1], bytes(4)),
                                     "zero": ("F32", [], bytes(4))}))
    nvfp4 = ("observe", "--preset", "llmc.memoryless_minmax", "--set", "type=float", "--set", "num_bits=4", "--set",
             "group_size=16",
             "--set", "strategy=tensor_group", "--set", "scale_dtype=float8_e4m3fn", "--json", "w.safetensors:w",
             "--global-scale")
    values = [c % 8 * 2.0 ** -9 if c < 8 else (8 + c % 8) * 2.0 ** (c // 8 - 10) for c in range(127)]  # e4m3
    bf16 = ROUND["BF16"]
    for given, number in (("w.safetensors:g", 777.25), ("777.25", 777.25), ("1e-3", f32(1e-3)), ("3e5", 3e5)):
        got = json.loads(fine(f"--global-scale {given}", *nvfp4, given))
        equal([got["global_scale"]["values"], got["global_scale"]["shape"]], [[number], [1]],
              f"--global-scale {given}: comes back")
        want = []
        for r in rows:
            for g in (r[:16], r[16:]):
                x = min(f32(bf16(max(map(abs, g)) / 6) * number), 448)
                code = min(range(127), key=lambda c: (abs(values[c] - x), c & 1))
                want.append(values[code] or 0.125)
        equal(got["scale"]["values"], want, f"--global-scale {given}: scales")
    own = json.loads(fine("its own", *nvfp4[:-1]))
    same = json.loads(fine("its own, given", *nvfp4, repr(own["global_scale"]["values"][0])))
    equal(same, own, "the observer's own global scale, given, changes nothing")
    channel = json.loads(fine("no tensor_group", "observe", "--preset", "llmc.memoryless_minmax", "--set",
                              "strategy=channel",
                              "--each", "--json",
                              "--global-scale", "3", "w.safetensors:w"))
    want = [f32(bf16(max(map(abs, r)) / 127.5) * 3) for r in rows]
    equal([channel[k]["values"] for k in ("scale_0", "scale", "global_scale_0", "global_scale")],
          [want, want, [3], [3]],
          "with any strategy, after every batch")
    for given, words in (("0", ["0", "positive"]), ("-1", ["-1", "positive"]), ("nan", ["nan"]), ("1e39", ["1e+39"]),
                         ("x.npy", ["x.npy"]),
                         ("w.safetensors:two", ["'two'", "single"]), ("w.safetensors:n", ["'n'"]),
                         ("w.safetensors:zero", ["0", "positive"])):
        refused(f"--global-scale {given}", ["--global-scale"] + words, *nvfp4, given)
    refused("--global-scale for torch", ["--global-scale", "torch.MinMaxObserver"], "observe", "--preset",
            "torch.MinMaxObserver",
            "--global-scale", "1", "w.safetensors:w")


def test_nonfinite():
    write("x.npy", npy_bytes("<f4", [2, 3], pack("F32", [1, -2, math.nan, 4, math.inf, 3])))
    arguments = ("observe", "--base-name", "input", "--strategy", "tensor", "--json", "x.npy", "--preset")
    for mode in ([], ["--nonfinite", "refuse"]):
        refused("NaN", ["x.npy", "1 NaN and 1 infinite of 6", "NaN at [0, 2]"], *arguments, "llmc.minmax", *mode)
    got = json.loads(fine("ignore", *arguments, "llmc.minmax", "--nonfinite", "ignore"))
    equal([got[k]["values"] for k in ("min_vals", "max_vals")], [[-2], [4]], "ignore: the finite numbers' range")
    p = run("observe", "--json", "--preset", "torch.MinMaxObserver", "--nonfinite", "propagate", "--out",
            "out.safetensors", "x.npy")
    check(p.returncode == 3 and p.stderr.startswith("qobs: warning: scale and zero_point are left out") and
          len(p.stderr.splitlines()) == 1, "propagate: a warning where upstream raises", p.stderr)
    got = st_read("out.safetensors")[0]
    check(sorted(got) == ["max_val", "min_val"] and math.isnan(got["min_val"][2][0]), "propagate: the range alone",
          str(got))
    fine("propagate", *arguments, "llmc.minmax", "--nonfinite", "propagate", "--out", "out.safetensors")
    check(all(math.isnan(st_read("out.safetensors")[0][k][2][0]) for k in ("min_vals", "max_vals", "scale")),
          "propagate: NaN scales")
    write("empty.npy", npy_bytes("<f4", [0, 3], b""))
    refused("nothing observed", ["no elements"], "observe", "--preset", "llmc.minmax", "--out", "out2.safetensors",
            "empty.npy")


if __name__ == "__main__":
    sys.exit(main(globals()))
