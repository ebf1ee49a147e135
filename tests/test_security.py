#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Promises of SECURITY.md for the program: bounded memory, one output, no control characters from a file.

    test_security.py QOBS     ends with `N passed, N failed`; exit status 1 if any failed
"""
import json, os, struct, subprocess, sys, tempfile

from cli import *

CALIBRATE = ("calibrate", "--scheme", "W8A8", "-o", "out.safetensors", "--json", "report.json", "--set",
             "symmetric=false")
NAMES = ["../up", "../../../../tmp/qobs-escaped", "/tmp/qobs-escaped", "/etc/passwd", "a/b/c", "out.safetensors", "~/x",
         "$(touch escaped)",
         "`touch escaped`", "; touch escaped", "%s%n%n%n", "-o", "--json", "\x1b]0;title\x07\x1b[2J", "a\nb\r\n",
         "\u202egnp", "\x9b31m",
         "NUL", "x" * 4000]


def tree(*roots):
    return sorted(os.path.join(d, f) for r in roots for d, _, files in os.walk(r) for f in files)


def test_names():
    """Names in a checkpoint choose no path, and put no control character on a terminal."""
    row = pack("F32", [1.0, -2.0])
    os.makedirs("deep/er")
    os.chdir("deep/er")
    tensors = {n + ".weight": ("F32", [1, 2], row) for n in NAMES}
    write("model.safetensors", st_bytes(tensors, {"format": "\x1b[2J", "../x": "../y"}))
    for command in (CALIBRATE, ("calibrate", "--scheme", "W4A16", "-o", "out.safetensors")):
        p = run(*command, "model.safetensors", *(["--targets", "re:.*"]))
        check(not any(c < " " and c != "\n" or "\x7f" <= c <= "\x9f" for c in p.stdout + p.stderr),
              "no control characters", repr(p.stdout)[:300])
    fine("names", *CALIBRATE, "--targets", "re:(.|\n)*", "--quiet", "model.safetensors")
    equal(sorted(n for n in st_read("out.safetensors")[0] if n.endswith("_scale")),
          sorted(n + "_scale" for n in tensors), "names arrive as they are")
    equal(tree("../.."), ["../../deep/er/model.safetensors", "../../deep/er/out.safetensors",
                          "../../deep/er/report.json"], "no other file")
    check(not os.path.exists("/tmp/qobs-escaped"), "nothing outside")
    for name in NAMES:
        p = run("observe", "--preset", "llmc.minmax", "--out", "observed.safetensors",
                f"model.safetensors:{name}.weight")
        equal((p.returncode, p.stderr), (0, ""), f"observe {name!r:.40}")
        p = run("show", "--preset", "llmc.minmax", f"model.safetensors:{name}.weight")
        check(not any(c < " " and c != "\n" or "\x7f" <= c <= "\x9f" for c in p.stdout), f"show {name!r:.40}",
              repr(p.stdout)[:200])
        p = run("observe", "--preset", "llmc.minmax", f"model.safetensors:{name}")
        check(p.returncode == 2 and not any(c < " " and c != "\n" or "\x7f" <= c <= "\x9f" for c in p.stderr),
              f"no tensor {name!r:.40}", repr(p.stderr))
    equal(tree("../.."), ["../../deep/er/model.safetensors", "../../deep/er/observed.safetensors",
                          "../../deep/er/out.safetensors",
                          "../../deep/er/report.json"], "no other file after observe and show")
    os.chdir("../..")


def test_index():
    """An index names only regular files in or below its directory."""
    os.mkdir("model")
    secret = st_bytes({"a.weight": ("F32", [1, 2], bytes(8))})
    write("secret.safetensors", secret)
    for shard in ("../secret.safetensors", os.path.abspath("secret.safetensors"), "x/../../secret.safetensors", "..",
                  "", "/", "model/.."):
        write("model/m.safetensors.index.json", json.dumps({"weight_map": {"a.weight": shard}}).encode())
        refused(f"shard {shard!r}", ["not allowed", "relative path"], *CALIBRATE, "model/m.safetensors.index.json")
    for shard, words in ((".", ["allowed"]), ("\u0000x", ["JSON"])):
        write("model/m.safetensors.index.json", json.dumps({"weight_map": {"a.weight": shard}}).encode())
        refused(f"shard {shard!r}", words, *CALIBRATE, "model/m.safetensors.index.json")


def peak(*arguments):
    """Returns the exit status and the peak memory in bytes, without that of the parent."""
    code = ("import os,resource,subprocess,sys; p = subprocess.run(sys.argv[1:], capture_output=True); "
            "print(p.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)")
    out = subprocess.run([sys.executable, "-c", code] + QOBS + list(arguments), capture_output=True, text=True,
                         timeout=300).stdout
    return tuple(map(int, out.split()))


def test_memory():
    """The bounds of SECURITY.md, for the headers that need most memory for their size."""
    if b"__asan_init" in read(QOBS[-1]):
        print("skipped: bounds of memory: a sanitizer needs several times as much")
        return
    most = 1 << 22
    pairs = lambda n, form: b",".join(form % i for i in range(n))
    headers = {
        "metadata": b'{"__metadata__":{' + pairs(most - 3, b'"%08x":"0123456"') + b"}}",
        "values of unknown keys":
            b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"more":[' + b"0," * (most - 20) + b"0]}}",
        "tensors": b"{" + pairs(most // 8, b'"%07x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}') + b"}",
    }
    for what, text in headers.items():
        write("big.safetensors", struct.pack("<Q", len(text)) + text)
        status, memory = peak("observe", "--preset", "llmc.minmax", "big.safetensors")
        check(status == 2 and memory < 3 << 29, f"{what}: {len(text)} bytes are refused within 1.5 GB",
              f"{status}, {memory}")
        print(f"{what}: header of {len(text)} bytes, {memory >> 20} MB")
    write("big.safetensors", struct.pack("<Q", 100000001) + b"{" + b" " * 100000000)
    status, memory = peak("observe", "--preset", "llmc.minmax", "big.safetensors")
    check(status == 2 and memory < 64 << 20, "a longer header is not read", f"{status}, {memory}")
    write("big.safetensors", struct.pack("<Q", 100000000) + b"[" * 100000000)
    status, memory = peak("observe", "--preset", "llmc.minmax", "big.safetensors")
    check(status == 2 and memory < 1 << 29, "a deep one is not followed", f"{status}, {memory}")


def test_outputs():
    """The written file is the named one, also through links."""
    os.mkdir("there")
    write("model.safetensors", st_bytes(model()[0]))
    write("there/target", b"old")
    os.symlink("there/target", "link")
    os.symlink("nowhere/target", "broken")
    quiet = ("calibrate", "--quiet", "--scheme", "W8A8", "model.safetensors", "-o")
    fine("a link", *quiet, "link")
    check(os.path.islink("link") and read("there/target") != b"old", "what the link points to is replaced")
    p = run(*quiet, "broken")
    check(p.returncode == 1 and "broken" in p.stderr and not os.path.exists("nowhere"), "a broken link is refused",
          p.stderr)
    refused("the model itself", ["model.safetensors", "is an input"], *quiet, "model.safetensors")
    os.link("model.safetensors", "same")
    refused("the model under another name", ["same", "is an input"], *quiet, "same")
    # Links with the name of a temporary file are never followed.
    write("victim", b"victim")
    p = subprocess.Popen(["sh", "-c", 'for n in 0 1 2; do ln -s victim "out.$$-$n.tmp"; done; exec "$@"',
                          "sh"] + QOBS + [*quiet, "out"])
    equal(p.wait(timeout=60), 0, "links where temporary files go")
    equal(read("victim"), b"victim", "links where temporary files go: not followed")


def test_index_is_input():
    """The index of a checkpoint is a part of it, and so is that of recordings."""
    os.mkdir("model")
    row = st_bytes({"m.q_proj.weight": ("F32", [1, 2], pack("F32", [1.0, -2.0]))})
    write("model/a.safetensors", row)
    index = json.dumps({"weight_map": {"m.q_proj.weight": "a.safetensors"}}).encode()
    path = "model/model.safetensors.index.json"
    write(path, index)
    for option in ("-o", "--json"):
        rest = () if option == "-o" else ("-o", "out.safetensors")
        refused(f"the index as {option}", [path, "is an input"], "calibrate", "--scheme", "W8A8", "model", option,
                path, *rest)
        equal(read(path), index, f"the index as {option}: unchanged")
    write("seen.safetensors", st_bytes({"m.q_proj.input": ("F32", [3, 2], pack("F32", [1.0, -2.0]) * 3)}))
    index = json.dumps({"weight_map": {"m.q_proj.input": "seen.safetensors"}}).encode()
    write("seen.safetensors.index.json", index)
    refused("the index of recordings", ["seen.safetensors.index.json", "is an input"], "calibrate", "--scheme", "FP8",
            "model", "--activations",
            "seen.safetensors.index.json", "-o", "seen.safetensors.index.json")
    equal(read("seen.safetensors.index.json"), index, "the index of recordings: unchanged")


def test_one_output_twice():
    """The report never replaces the scales, whatever their paths look like."""
    write("model.safetensors", st_bytes(model()[0]))
    os.mkdir("x")
    for first, second in (("o", "./o"), ("x/../o", "o"), (os.path.abspath("o"), "o")):
        refused(f"{first} and {second}", ["--json", "is also --out"], "calibrate", "--scheme", "W8A8",
                "model.safetensors", "-o", first, "--json", second)
        check(not os.path.exists("o"), f"{first} and {second}: nothing is written")


def test_closed_descriptors():
    """With standard output or error closed, messages go nowhere: not into the report or the scales."""
    write("model.safetensors", st_bytes(model()[0]))
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        command = " ".join([*QOBS, "calibrate --quiet --scheme W4A16 --set group_size=2 -o o model.safetensors "
                                   "--json r.json "])
        status = subprocess.call(["sh", "-c", command + closed])
        equal(status, 0, closed)
        json.loads(read("r.json"))
        check(st_read("o")[0], f"{closed}: scales")
        os.remove("r.json")
        os.remove("o")


def test_escape_sequences():
    """Error messages with names out of files have no control characters and a limited length."""
    row = pack("F32", [1.0, -2.0])
    names = ["\x1b[2J", "a\nqobs: forged", "n" * 60000]
    tensors = {n + f".{p}_proj.weight": ("F32", [1, 2], row) for n in names for p in "qk"}
    write("model.safetensors", st_bytes(tensors))
    write("seen.safetensors", st_bytes({n + ".q_proj.input": ("F32", [3, 2], row * 3) for n in names}))
    p = run("calibrate", "model.safetensors", "--scheme", "FP8", "--activations", "seen.safetensors", "-o", "o")
    check(not any(c < " " and c != "\n" or "\x7f" <= c <= "\x9f" for c in p.stderr), "no control characters",
          repr(p.stderr)[:300])
    check(len(p.stderr) < 20000, "no endless message", str(len(p.stderr)))
    check(not any(line.startswith("qobs: forged") for line in p.stderr.split("\n")), "no forged line", p.stderr[:300])


def test_messages():
    """Messages are short, name what is wrong and keep integers."""
    long = "n" * 60000
    write("x.safetensors",
          st_bytes({long: ("I32", [2], b"\0" * 8), "w": ("F32", [2, 2], struct.pack("<4f", 1, math.nan, 3, 4)),
                    long + ".w": ("F32", [2], struct.pack("<2f", 1, math.nan))}))
    for command in (("observe", "--preset", "llmc.minmax"), ("show", "--preset", "llmc.minmax")):
        for name in (long, long + ".w", long + "x"):
            p = run(*command, f"x.safetensors:{name}")
            check(p.returncode == 2 and len(p.stderr) < 1200, f"{command[0]}: a short message",
                  str(len(p.stderr)) + p.stderr[-300:])
    for preset, options, state in (("llmc.minmax", (), "a"), ("llmc.minmax", ("--set", "averaging_constant=0.5"), "b"),
                                   ("torch.MinMaxObserver", (), "c")):
        fine(state, "observe", "--preset", preset, "--nonfinite", "ignore", *options, "x.safetensors:w", "--state",
             state)
    refused("another setting", ["b: its setting averaging_constant is 0.5", "observer's is 0.01; the observer is a"],
            "merge", "a", "b")
    refused("another preset", ["c", "preset is torch.MinMaxObserver", "observer's is llmc.minmax"], "merge", "a", "c")
    path = "p" * 5000
    for command in (("calibrate", "--scheme", "W8A8", "-o", "o"), ("quantize", "--scheme", "W8A8", "-o", "o"),
                    ("audit",),
                    ("observe", "--preset", "llmc.minmax")):
        p = run(*command, path)
        check(p.returncode == 2 and len(p.stderr) < 1200 and "p...p" in p.stderr and "File name too long" in p.stderr,
              f"{command[0]}: a path of 5000 bytes", p.stderr)
    os.mkdir("d")
    write("d/model.safetensors", st_bytes({"model.q_proj.weight": ("BF16", [128, 128], b"\0" * 32768)}))
    write("d/config.json", b"{}")
    refused("a value of 100,000 characters", ["strategy", "100000 characters", "allowed are 127"], "observe",
            "--preset",
            "llmc.minmax", "--set", "strategy=" + "x" * 100000, "x.safetensors:w")
    number = "9007199254740993"
    refused("a large integer", [number, "to 9007199254740992"], "observe", "--preset", "llmc.minmax", "--set",
            "strategy=group",
            "--set", f"group_size={number}", "x.safetensors:w")
    refused("a large integer", [number], "quantize", "d", "--scheme", "W4A16", "-o", "out", "--set",
            f"group_size={number}")


# ---- Outputs and inputs ----------------------------------------------------------------------------------------------

def spellings(path):
    """Other names of a file: links, hard links, detours."""
    os.symlink(os.path.abspath(path), "link")
    os.link(path, "hard")
    folder, name = os.path.split(path)
    return [path, f"./{path}", os.path.abspath(path),
            f"{folder or '.'}/../{os.path.basename(os.path.abspath(folder or '.'))}/{name}",
            "link", "hard"]


def pictures():
    return "without cairo" not in run("show", "--preset", "llmc.minmax", "x.safetensors", "--out", "x.svg").stderr


def test_outputs_are_no_inputs():
    """No output replaces an input or another output, under any name: status 2, one line, nothing changes."""
    os.mkdir("d")
    tensors = {"model.layers.0.self_attn.q_proj.weight": ("BF16", [128, 128], b"\x80\x3f" * 16384)}
    write("d/model.safetensors", st_bytes(tensors))
    write("d/model.safetensors.index.json",
          json.dumps({"weight_map": {n: "model.safetensors" for n in tensors}}).encode())
    write("d/config.json", b'{"model_type": "llama"}')
    write("d/tokenizer.json", b"{}")
    write("g.npy", npy_bytes("<i4", [128], b"\0" * 512))
    write("scheme.json", b'{"config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8}}}}')
    write("seen.safetensors",
          st_bytes({"model.layers.0.self_attn.q_proj.input": ("F32", [1, 128], b"\0\0\x80\x3f" * 128)}))
    name = next(iter(tensors))
    observe = ("observe", "--preset", "llmc.minmax", f"d/model.safetensors:{name}")
    fine("a state", *observe, "--state", "s0")
    fine("a state", *observe, "--state", "s1")
    calibrate = ("calibrate", "d", "--scheme", "FP8", "--activations", "seen.safetensors", "--quiet")
    quantize = ("quantize", "d", "--scheme", "W8A16", "--quiet")
    drawn = {}
    if pictures():
        write("tensors.svg", st_bytes(tensors))
        drawn = {("show", "--preset", "llmc.minmax", "tensors.svg"): (["--out"], ["tensors.svg"])}
    cases = {
        observe: (["--out", "--state"], ["d/model.safetensors"]),
        ("observe", "--preset", "llmc.minmax", f"d:{name}"): (["--out", "--state"], ["d/model.safetensors.index.json"]),
        ("observe", "--preset", "llmc.minmax", "--base-name", "weight", "--set", "strategy=group", "--set",
         "group_size=128", "--g-idx", "g.npy",
         f"d:{name}"): (["--out"], ["g.npy"]),
        ("merge", "s0", "s1"): (["--out", "--state"], ["s0", "s1"]),
        calibrate: (["-o", "--json"], ["d/model.safetensors", "d/model.safetensors.index.json", "seen.safetensors"]),
        (*quantize, "-o", "out"): (["--json"], ["d/model.safetensors", "d/config.json", "d/tokenizer.json",
                                                "d/model.safetensors.index.json"]),
        ("quantize", "d", "--config", "scheme.json", "--quiet", "-o", "out"): (["--json"], ["scheme.json"]),
        **drawn}
    more = {"calibrate": {"--json": ("-o", "new")}}
    for command, (options, inputs) in cases.items():
        for path in inputs:
            for spelling in spellings(path):
                if command[0] == "show" and not spelling.endswith(".svg"):
                    continue
                for option in options:
                    extra = more.get(command[0], {}).get(option, ())
                    refused(f"{command[0]} {option} {spelling} for {path}",
                            ["--out" if option == "-o" else option, spelling], *command, *extra,
                            option, spelling)
            os.remove("link")
            os.remove("hard")
    os.mkdir("old")
    write("old/x", b"x")
    for what, words, arguments in (
            ("two outputs of observe", ["--state", "--out"], (*observe, "--out", "y", "--state", "./y")),
            ("two outputs of merge", ["--state", "--out"], ("merge", "s0", "s1", "--out", "d/../y", "--state", "y")),
            ("two outputs of calibrate", ["--json", "--out"], (*calibrate, "-o", "y", "--json", os.path.abspath("y"))),
            ("a report in an old output", ["--json", "old/r.json", "lies in"],
             (*quantize, "-o", "old", "--replace", "--json", "old/r.json")),
            ("a new report in the model", ["--json", "d/r.json", "lies in"],
             (*quantize, "-o", "out", "--json", "d/r.json")),
            ("a report of calibrate in the model", ["--json", "d/r.json", "lies in"],
             ("calibrate", "d", "--scheme", "W8A8", "--quiet", "-o", "y", "--json", "d/r.json")),
            ("scales in the model", ["--out", "d/r.safetensors", "lies in"],
             ("calibrate", "d", "--scheme", "W8A8", "--quiet", "-o", "d/r.safetensors")),
            ("results of observe in the model", ["--out", "d/r.safetensors", "lies in"],
             ("observe", "--preset", "llmc.memoryless_minmax", f"d:{name}", "--out", "d/r.safetensors")),
            ("a state in the model", ["--state", "lies in"],
             ("observe", "--preset", "llmc.memoryless_minmax", f"d:{name}", "--state", "d/../d/state")),
            ("a report among the parts", ["--json", "lies in"],
             ("quantize", "--finish", "old", "--json", "old/r.json"))):
        before = sorted(os.listdir("d"))
        refused(what, words, *arguments)
        equal(sorted(os.listdir("d")), before, f"{what}: the model is as before")
    os.mkdir("old.parts")
    refused("a report in the parts", ["--json", "lies in"], *quantize, "-o", "old/", "--part", "1/2", "--json",
            "old.parts/r.json")


def test_empty_names():
    """An empty name is a wrong option."""
    write("x.safetensors", st_bytes({"x": ("F32", [2], b"\0" * 8)}))
    for arguments in (("observe", "--preset", "llmc.minmax", "x.safetensors", "--out", ""),
                      ("observe", "--preset", "llmc.minmax", "x.safetensors", "--state="), ("merge", "x", "--out", ""),
                      ("show", "--preset", "llmc.minmax", "x.safetensors", "-o", ""),
                      ("calibrate", "x.safetensors", "--scheme", "W8A8", "-o", ""),
                      ("calibrate", "x.safetensors", "--scheme", "W8A8", "-o", "y", "--json", ""),
                      ("quantize", "d", "--scheme", "W8A8", "-o", ""),
                      ("quantize", "d", "--scheme", "W8A8", "-o", "y", "--json", ""),
                      ("quantize", "--finish", "")):
        refused(" ".join(arguments), ["is ''", "needed"], *arguments)


def test_modes():
    """A file or directory that is replaced keeps its mode; a new one has that of the umask."""
    write("x.safetensors", st_bytes({"a.weight": ("BF16", [2, 128], b"\x80\x3f" * 256)}))
    os.mkdir("d")
    write("d/model.safetensors", st_bytes({"model.q_proj.weight": ("BF16", [128, 128], b"\x80\x3f" * 16384)}))
    write("d/config.json", b'{"model_type": "llama"}')
    fine("a state", "observe", "--preset", "llmc.minmax", "x.safetensors", "--state", "s")
    cases = {"out": [("observe", "--preset", "llmc.minmax", "x.safetensors", "--out", "out"),
                     ("merge", "s", "--out", "out"),
                     ("calibrate", "x.safetensors", "--scheme", "W8A8", "--quiet", "-o", "out"),
                     ("calibrate", "x.safetensors", "--scheme", "W8A8", "--quiet", "-o", "more", "--json", "out"),
                     ("quantize", "d", "--scheme", "W8A16", "--quiet", "-o", "copy", "--replace", "--json", "out")],
             "state": [("observe", "--preset", "llmc.minmax", "x.safetensors", "--state", "state"),
                       ("merge", "s", "--state", "state")],
             "p.svg": [("show", "--preset", "llmc.minmax", "x.safetensors", "--out", "p.svg")] if pictures() else []}
    for path, commands in cases.items():
        for command in commands:
            for mode in (0o600, 0o640, 0o777, None):
                if os.path.exists(path):
                    os.remove(path)
                if mode is not None:
                    write(path, b"old")
                    os.chmod(path, mode)
                run(*command)
                umask = os.umask(0)
                os.umask(umask)
                equal(oct(os.stat(path).st_mode & 0o777), oct(0o666 & ~umask if mode is None else mode),
                      f"{command[0]} {command[-2]}: mode")
                check(read(path) != b"old", f"{command[0]} {command[-2]}: is written")
    os.chmod("copy", 0o700)
    fine("a directory again", *cases["out"][-1])
    equal(oct(os.stat("copy").st_mode & 0o777), oct(0o700), "the mode of a directory")


def test_both_or_none():
    """Of two outputs none appears if one of them cannot be written. That is said before anything is read."""
    write("x.safetensors", st_bytes({"x": ("F32", [2], b"\0" * 8)}))
    fine("a state", "observe", "--preset", "llmc.minmax", "x.safetensors", "--state", "s")
    for command in (("observe", "--preset", "llmc.minmax", "x.safetensors"), ("merge", "s")):
        refused(f"{command[0]}: no place for --out", ["no/x"], *command, "--state", "new", "--out", "no/x", status=1)
        refused(f"{command[0]}: no place for --state", ["no/x"], *command, "--out", "new", "--state", "no/x", status=1)
    write("m.safetensors", st_bytes({"m.q_proj.weight": ("F32", [1, 2], pack("F32", [1.0, -2.0]))}))
    write("nan.safetensors", st_bytes({"m.q_proj.input": ("F32", [1, 2], pack("F32", [1.0, math.nan]))}))
    refused("no place for the scales", ["no/x", "No such file"], "calibrate", "m.safetensors", "--scheme", "FP8",
            "--activations", "nan.safetensors",
            "-o", "no/x", status=1)


if __name__ == "__main__":
    sys.exit(main(globals()))
