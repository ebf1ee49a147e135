#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of qobs quantize --fetch: the bytes of a local run, two shards on the disk, runs that stop and go on.

    test_fetch.py QOBS

QOBS_KILLS is the number of random moments at which a run is killed (default 8).
"""
import http.server
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import cli
from cli import check, equal
from test_quantize_command import make_model, read, refused, tensor, tree, write

QOBS = os.path.abspath(sys.argv[1])
KILLS = int(os.environ.get("QOBS_KILLS", "8"))
FILES, STANDS = "out.parts/fetch/files", "out.parts/fetch/model"
INDEX = "model.safetensors.index.json"
COPY = 'echo {} >> "$OLDPWD/log"; cp "$OLDPWD/all/{}" {}'


def start(*options, command=COPY, scheme="W4A16", out="out"):
    return [QOBS, "quantize", "in", "--scheme", scheme, "-o", out, "--fetch", command, "--quiet", *options]


def fetch(*options, **keywords):
    return subprocess.run(start(*options, **keywords), capture_output=True, text=True, timeout=300, check=False)


def local(*options, scheme="W4A16"):
    """Makes `one`, and returns its warnings."""
    run = subprocess.run([QOBS, "quantize", "all", "--scheme", scheme, "-o", "one", "--quiet", *options],
                         capture_output=True, text=True, timeout=300, check=False)
    equal(run.returncode, 0, "the local run")
    return run.stderr


def fetched():
    """The files that commands have fetched, in order."""
    return read("log").decode().split() if os.path.exists("log") else []


def without_shards():
    """Makes `in`: the model `all` without its shards."""
    shutil.copytree("all", "in", ignore=shutil.ignore_patterns("*.safetensors"))


def twelve(**keywords):
    make_model("all", layers=24, shards=12, **keywords)
    without_shards()


def split(count):
    """The members of each fused set lie in `count` shards."""
    shards, where = {f"model-{i + 1:05}-of-{count:05}.safetensors": {} for i in range(count)}, {}
    for layer in range(6):
        for i, module in enumerate("qkvo"):
            key, name = f"model.layers.{layer}.self_attn.{module}_proj.weight", list(shards)[(layer + i) % count]
            shards[name][key] = tensor([64, 128], 4 * layer + i)
            where[key] = name
    for name, tensors in shards.items():
        write(f"all/{name}", cli.st_bytes(tensors))
    write(f"all/{INDEX}", json.dumps({"weight_map": where}).encode())
    write("all/config.json", b'{"model_type": "llama"}')
    without_shards()


class Watch(threading.Thread):
    """Counts the source shards on the disk, and the bytes that stand-ins take there."""

    def __init__(self):
        super().__init__()
        self.most, self.bytes, self.looks, self.ended = 0, 0, 0, False
        self.start()

    def run(self):
        while not self.ended:
            try:
                self.most = max(self.most, sum(n.endswith(".safetensors") for n in os.listdir(FILES)))
                self.bytes = max(self.bytes, sum(512 * os.lstat(f"{STANDS}/{n}").st_blocks for n in os.listdir(STANDS)
                                                 if n.endswith(".safetensors")))
                self.looks += 1
            except FileNotFoundError:
                pass
            time.sleep(0.0005)

    def __exit__(self, *_):
        self.ended = True
        self.join()

    def __enter__(self):
        return self


def test_same_bytes():
    twelve()
    before = tree("in")
    local()
    with Watch() as watch:
        run = fetch()
    equal((run.returncode, run.stderr), (0, ""), "a model that is fetched")
    equal(tree("out"), tree("one"), "the bytes of a local run")
    equal(tree("in"), before, "the model's directory stays as it is")
    equal(sorted(os.listdir(".")), ["all", "in", "log", "one", "out"], "nothing is left")
    shards = sorted(n for n in os.listdir("all") if n.endswith(".safetensors"))
    equal(sorted(fetched()), sorted(2 * shards), "each shard is fetched once for its header and once as a whole")
    check(watch.looks > 20 and 1 <= watch.most <= 2, "shards on the disk", f"{watch.most} in {watch.looks} looks")
    check(watch.bytes <= 12 * 16384, "bytes of the stand-ins", watch.bytes)


def test_large_shards():
    """Stand-ins take no room for weights."""
    make_model("all", layers=4, width=1024, shards=4)
    without_shards()
    local(scheme="NVFP4A16")
    with Watch() as watch:
        equal(fetch(scheme="NVFP4A16").returncode, 0, "large shards")
    equal(tree("out"), tree("one"), "large shards: the bytes of a local run")
    check(watch.looks > 20 and watch.most <= 2 and watch.bytes <= 4 * 16384, "large shards on the disk",
          (watch.most, watch.bytes))


def test_sets_across_shards():
    for count, options in ((2, ()), (3, ()), (4, ()), (4, ("--compat", "llm-compressor")),
                           (4, ("--preset", "llmc.memoryless_mse"))):
        for name in ("all", "in", "one", "out"):
            shutil.rmtree(name, ignore_errors=True)
        split(count)
        local(*options, scheme="NVFP4A16")
        with Watch() as watch:
            run = fetch(*options, scheme="NVFP4A16")
        what = " ".join((f"sets over {count} shards", *options))
        equal((run.returncode, run.stderr), (0, ""), what)
        equal(tree("out"), tree("one"), f"{what}: the bytes of a local run")
        check(watch.most <= 2, f"{what} on the disk", watch.most)


def test_quantized_source():
    """Shapes, group indices, scales and zero points are read before the weights, by each part."""
    make_model("bf16", layers=8, shards=8)
    layers = [n[:-len(".weight")] for n in json.loads(read(f"bf16/{INDEX}"))["weight_map"] if n.endswith("proj.weight")]
    write("recorded", cli.st_bytes({f"{n}.input": tensor([4, 128], i) for i, n in enumerate(layers)}))
    for dialect, source, scheme in (("compressed-tensors", "W4A16", "FP8_DYNAMIC"), ("awq", "W4A16_ASYM", "W4A16_ASYM"),
                                    ("gptq", "W4A16", "W4A16"), ("compressed-tensors", "NVFP4A16", "MXFP4A16"),
                                    ("modelopt", "FP8", "FP8")):
        for name in ("all", "in", "one", "out", "log"):
            shutil.rmtree(name, ignore_errors=True) if name != "log" else write(name, b"")
        quantized = [QOBS, "quantize", "bf16", "--scheme", source, "--dialect", dialect, "-o", "all", "--quiet",
                     *(["--activations", "recorded"] if source == "FP8" else [])]
        equal(subprocess.run(quantized, check=False).returncode, 0, f"a source of {dialect}")
        without_shards()
        warnings = local(scheme=scheme)
        run = fetch(scheme=scheme)
        equal((run.returncode, run.stderr), (0, warnings), f"a source of {dialect} {source}")
        equal(tree("out"), tree("one"), f"a source of {dialect} {source}: the bytes of a local run")
        check(all(fetched().count(n) <= 4 for n in set(fetched())),
              f"a source of {dialect} {source} is not fetched for each part", fetched())


def test_index_and_configuration():
    """A model of which nothing is there, and one with some shards."""
    twelve()
    local()
    shutil.rmtree("in")
    os.mkdir("in")
    equal(fetch().returncode, 0, "index and configuration are fetched")
    wanted = tree("one")
    del wanted["tokenizer.json"]
    equal(tree("out"), wanted, "without the files that nobody names")
    equal((tree("in"), fetched()[:2]), ({}, [INDEX, "config.json"]), "they are fetched first")
    shutil.rmtree("in")
    shutil.rmtree("out")
    os.remove("log")
    without_shards()
    here = "model-00003-of-00012.safetensors"
    shutil.copy(f"all/{here}", "in")
    equal(fetch().returncode, 0, "a model with a shard")
    equal(tree("out"), tree("one"), "a model with a shard: the bytes of a local run")
    check(here not in fetched() and os.path.exists(f"in/{here}"), "a shard that is there is not fetched and not removed",
          fetched())


def test_one_file():
    """A model in one file has no index: what to do is said, whether its file is there or not."""
    twelve()
    shutil.rmtree("in")
    os.mkdir("in")
    write("in/config.json", b'{"model_type": "llama"}')
    refused("no index to fetch", fetch(command="cp nowhere {}"), 1, INDEX, "failed 3 times", "cannot stat",
            "a model in one file has no index", "leave --fetch out")
    write("in/model.safetensors", cli.st_bytes({"model.layers.0.mlp.up_proj.weight": tensor([64, 128], 1)}))
    refused("nothing to fetch", fetch(), 2, "fetch: changes nothing: in has model.safetensors", "leave --fetch out")
    equal(fetched(), [], "nothing is fetched for a model in one file")


def test_header_first():
    """A command that writes its file bit by bit is stopped when the header is there."""
    twelve()
    local()
    slow = 'test -e "$OLDPWD/seen-{}" && exec cp "$OLDPWD/all/{}" {}; touch "$OLDPWD/seen-{}"; ' \
           'head -c 1500 "$OLDPWD/all/{}" > {}; sleep 100'
    before = time.monotonic()
    run = fetch(command=slow)
    equal((run.returncode, run.stderr), (0, ""), "slow commands")
    equal(tree("out"), tree("one"), "slow commands: the bytes of a local run")
    check(time.monotonic() - before < 60, "slow commands are stopped", time.monotonic() - before)


def shard(number):
    return f"model-{number:05}-of-00012.safetensors"


def test_failures():
    twelve()
    local()
    twice = 'echo try {} >> "$OLDPWD/tries"; test $(grep -c "try {}" "$OLDPWD/tries") -gt 2 || ' \
            f'case {{}} in {shard(5)}) exit 3;; esac; {COPY}'
    equal(fetch(command=twice).returncode, 0, "a fetch that fails twice")
    equal(read("tries").decode().split().count(shard(5)), 4, "it is tried again twice, and fetched as a whole later")
    equal(tree("out"), tree("one"), "a fetch that fails twice: the bytes of a local run")


FAULTS = (("that fails", 'echo " server: 404 "; exit 22', ("exit status 22", "server: 404")),
          ("that is killed", "kill -9 $$", ("signal 9",)),
          ("that leaves nothing", "echo saved as /other/{}", ("leaves no file", "saved as /other")),
          ("that leaves a directory", "mkdir -p {}/x", ("no regular file",)),
          ("that is not there", "no-such-command {}", ("exit status 127", "no-such-command")),
          ("whose file is cut off", 'head -c 60000 "$OLDPWD/all/{}" > {}', ("has 60000 of",)),
          ("whose file is too long", 'cp "$OLDPWD/all/{}" {}; echo >> {}', ("has ", "of ")),
          ("whose file is empty", "> {}", ("has 0 of",)),
          ("on a full disk", 'cat "$OLDPWD/all/{}" > {} && cat {} > /dev/full', ("exit status", "No space left")))


def together(runs):
    """Runs programs at the same time."""
    started = [subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for run in runs]
    return [subprocess.CompletedProcess(run.args, run.wait(), *run.communicate()) for run in started]


def test_faults():
    """Shard 7 fails three times after its header; the next run goes on from there."""
    twelve()
    local()
    commands, good = [], []
    for i, (_, bad, _) in enumerate(FAULTS):
        fine = COPY.replace("/log", f"/log{i}")
        commands.append(f'if test {{}} = {shard(7)} && grep -q {{}} "$OLDPWD/log{i}"; then {bad}; else {fine}; fi')
        good.append(fine)
        write(f"log{i}", b"")
    runs = together([start(command=command, out=f"out{i}") for i, command in enumerate(commands)])
    for i, (run, (what, _, words)) in enumerate(zip(runs, FAULTS)):
        refused(f"a command {what}", run, 1, shard(7), "3 times", *words)
        equal(sorted(os.listdir(f"out{i}.parts")), ["fetch"] + sorted(f"part-{k}-of-12" for k in range(1, 7)),
              f"a command {what}: the parts stay")
        files = f"out{i}.parts/fetch/files"
        check(not [n for n in os.listdir(files) if os.path.isfile(f"{files}/{n}")], f"a command {what}: no shard stays",
              os.listdir(files))
        shutil.rmtree(f"{files}/{shard(7)}", ignore_errors=True)
        write(f"log{i}", b"")
    for i, run in enumerate(together([start(command=command, out=f"out{i}") for i, command in enumerate(good)])):
        what = FAULTS[i][0]
        equal((run.returncode, run.stderr), (0, ""), f"a command {what}: the next run")
        equal(tree(f"out{i}"), tree("one"), f"a command {what}: the bytes of a local run")
        equal(read(f"log{i}").decode().split(), [shard(k) for k in range(7, 13)],
              f"a command {what}: what is done is not fetched again")


class Server:
    """Serves `all` over HTTP. cut(shard, n): how the n-th request for a shard ends: a status, or the bytes after which
    the connection breaks; None: well."""

    def __init__(self, cut):
        requests, self.cuts = {}, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                name = os.path.basename(handler.path)
                requests[name] = requests.get(name, 0) + 1
                end, data = cut(name, requests[name]), read(f"all/{name}")
                self.cuts += end is not None
                handler.send_response(end if end and end >= 400 and end < 600 else 200)
                handler.send_header("Content-Length", str(len(data)))
                handler.end_headers()
                try:
                    handler.wfile.write(data[:end])
                except OSError:  # the command has been stopped
                    pass

            def log_message(handler, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


PYTHON = f"""{sys.executable} -c 'import sys, urllib.request as u; u.urlretrieve(sys.argv[2], sys.argv[1])' {{}}"""
GET = "curl -fsSLo {}" if shutil.which("curl") else PYTHON


def test_http():
    """Connections that break, in headers and in shards, and a server that is busy. Two failures are no end, three are
    one; the next run goes on."""
    twelve()
    local()
    ends = {(shard(2), 1): 40, (shard(2), 2): 200, (shard(5), 2): 70000, (shard(5), 3): 503, (shard(8), 2): 1}
    with Server(lambda name, n: ends.get((name, n))) as server, Watch() as watch:
        run = fetch(command=f"{GET} {server.address}/{{}}")
    equal((run.returncode, run.stderr), (0, ""), "connections that break")
    equal(server.cuts, len(ends), "each of them breaks")
    equal(tree("out"), tree("one"), "connections that break: the bytes of a local run")
    check(watch.most <= 2, "connections that break: shards on the disk", watch.most)
    shutil.rmtree("out")
    with Server(lambda name, n: 70000 if name == shard(7) and n > 1 else None) as server:
        run = fetch(command=f"{GET} {server.address}/{{}}")
    refused("three connections that break", run, 1, shard(7), "3 times")
    asked = []
    with Server(lambda name, n: asked.append(name)) as server:
        equal(fetch(command=f"{GET} {server.address}/{{}}").returncode, 0, "the next run")
    equal(asked, [shard(k) for k in range(7, 13)], "what is done is not fetched again")
    equal(tree("out"), tree("one"), "three connections that break: the bytes of a local run")


def test_full_disk():
    """A disk without room for stand-ins, for a shard, for the second one, for outputs; then it grows."""
    twelve()
    local()
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    os.mkdir("disk")
    if subprocess.run(alone + ["mount", "-t", "tmpfs", "none", "disk"], capture_output=True, check=False).returncode:
        print("skipped: full disk: no tmpfs can be mounted here")
        return
    script = ('mount -t tmpfs -o size=$0k none disk && "$@"; echo $?; mount -o remount,size=64m disk; '
              '"$@"; echo $?; ls -A disk; cp -r disk/out .')
    for size in (8, 40, 150, 300, 450, 600, 800):
        shutil.rmtree("out", ignore_errors=True)
        run = subprocess.run(alone + ["sh", "-c", script, str(size), *start(out="disk/out")], capture_output=True,
                             text=True, timeout=120, check=False)
        equal(run.stdout, "1\n0\nout\n", f"a disk of {size} KB: the first run fails, the second one does not")
        check(len(run.stderr.splitlines()) == 1 and "No space left" in run.stderr, f"a disk of {size} KB: says why",
              run.stderr)
        equal(tree("out"), tree("one"), f"a disk of {size} KB: the bytes of a local run")


def test_changed_model():
    """Shard 5 has a number that is none; then somebody mends it while headers, hashes and parts of the first stay."""
    twelve()
    local()
    good = read(f"all/{shard(5)}")
    write(f"all/{shard(5)}", good[:-4] + b"\xc0\x7f" + good[-2:])
    refused("a number that is none", fetch(), 2, "model.layers")
    parts = tree("out.parts")
    write(f"all/{shard(5)}", good)
    refused("a shard that has changed", fetch(), 1, shard(5), "not those that were fetched before", "out.parts")
    header = cli.st_bytes({"model.layers.8.self_attn.q_proj.weight": tensor([128, 128], 1)})
    write(f"all/{shard(5)}", header)
    refused("a shard of another size", fetch(), 1, shard(5), f"has {len(header)} of {len(good)}")
    write(f"all/{shard(5)}", good.replace(b"layers.8.self_attn.q", b"layers.8.self_attn.z"))
    refused("a shard with another header", fetch(), 1, shard(5), "header", "out.parts")
    for name, data in parts.items():
        check(read(f"out.parts/{name}") == data, "nothing is lost", name)
    write(f"all/{shard(5)}", good)
    refused("other options", fetch("--preset", "llmc.memoryless_mse"), 2, "part ", "other options", "out.parts")
    os.rename("out.parts/part-1-of-12", "out.parts/part-1-of-7")
    refused("parts of another number", fetch(), 2, "parts of 7", "out.parts")
    shutil.rmtree("out.parts")
    equal(fetch().returncode, 0, "a run from the beginning")
    equal(tree("out"), tree("one"), "a run from the beginning: the bytes of a local run")


def test_refusals():
    twelve()
    where = json.loads(read(f"in/{INDEX}"))["weight_map"]
    for name in ("a b.safetensors", "a;touch x.safetensors", "$(touch x).safetensors", "-rf.safetensors", "a/b.safetensors",
                 ".a.safetensors", "a\nb.safetensors", "`x`.safetensors", "'.safetensors", "ä.safetensors", "a.bin",
                 "../a.safetensors", "a" * 200 + ".safetensors"):
        write(f"in/{INDEX}", json.dumps({"weight_map": {**where, "model.layers.0.x": name}}).encode())
        refused(f"the name {name!r}", fetch(), 2, INDEX)
        equal(fetched(), [], f"nothing is fetched for {name!r}")
    write(f"in/{INDEX}", json.dumps({"weight_map": where}).encode())
    refused("a scheme that nobody knows", fetch(scheme="W5A17"), 2, "W5A17")
    refused("a command without {}", fetch(command="cp a b"), 2, "fetch", "{}")
    refused("a model that has all shards", subprocess.run(
        [QOBS, "quantize", "all", "--scheme", "W4A16", "-o", "out", "--fetch", COPY], capture_output=True, text=True,
        check=False), 2, "fetch", "changes nothing")
    refused("a file for a model", subprocess.run(
        [QOBS, "quantize", f"in/{INDEX}", "--scheme", "W4A16", "-o", "out", "--fetch", COPY], capture_output=True,
        text=True, check=False), 2, "model", "directory")
    write("out/file", b"")
    refused("an output that holds files", fetch(), 2, "out", "--replace")
    equal(fetched(), [], "refusals fetch nothing")
    equal(fetch("--replace").returncode, 0, "an output that is replaced")
    equal(os.path.exists("out/file"), False, "an output that is replaced as a whole")
    finish = subprocess.run([QOBS, "quantize", "--finish", "out", "--fetch", COPY], capture_output=True, text=True,
                            check=False)
    refused("--finish with --fetch", finish, 2, "--fetch", "changes nothing")
    write("model.gguf", b"GGUF\3\0\0\0" + bytes(16))
    for what, command in (("GGUF", ["quantize", "model.gguf", "--scheme", "Q4_K_M", "-o", "out.gguf"]),
                          ("convert", ["convert", "in", "-o", "out2"])):
        run = subprocess.run([QOBS, *command, "--fetch", COPY], capture_output=True, text=True, check=False)
        refused(f"{what} with --fetch", run, 2, "--fetch", *(["GGUF", "fetch the file first"] if what == "GGUF" else []))
        check(not os.path.exists(command[-1]), f"{what} with --fetch: nothing is written")


def test_parts():
    """Each part is made by a run of its own, with one set of headers."""
    twelve()
    local()
    for i in (2, 1, 3):
        equal(fetch("--part", f"{i}/3").returncode, 0, f"part {i} of 3")
    equal(len(fetched()), 24, "shards are fetched once for their headers and once as a whole")
    equal(subprocess.run([QOBS, "quantize", "--finish", "out", "--quiet"], check=False).returncode, 0, "finish")
    equal(tree("out"), tree("one"), "parts: the bytes of a local run")


def test_report():
    twelve()
    run = subprocess.run([*start("--json", "-")], capture_output=True, text=True, check=False)
    report = json.loads(run.stdout)
    equal((len(report["layers"]), "part" in report), (72, False), "the report is that of the model")


def test_stopped():
    """A signal ends the command, too; another run waits for the command of one that was killed."""
    twelve()
    local()
    hangs = f'case {{}} in {shard(4)}) echo $$ > "$OLDPWD/pid"; sleep 100;; esac; {COPY}'
    run = subprocess.Popen(start(command=hangs), stderr=subprocess.PIPE)
    while not os.path.exists("pid") or not read("pid"):
        time.sleep(0.01)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=30)
    equal(run.returncode, -signal.SIGTERM, "a run that is stopped")
    check(not os.path.exists(f"/proc/{int(read('pid'))}"), "its command is stopped", read("pid"))
    os.remove("pid")
    waits = f'case {{}} in {shard(4)}) echo $$ > "$OLDPWD/pid"; sleep 1; touch "$OLDPWD/ended";; esac; {COPY}'
    run = subprocess.Popen(start(command=waits), stderr=subprocess.PIPE)
    while not os.path.exists("pid") or not read("pid"):
        time.sleep(0.01)
    run.kill()
    run.communicate()
    equal(fetch(command=f'test -e "$OLDPWD/ended" || exit 9; {COPY}').returncode, 0, "a run after one that was killed")
    equal(tree("out"), tree("one"), "after it: the bytes of a local run")


def test_kills():
    twelve()
    local()
    wanted, generator, kills = tree("one"), random.Random(1), 0
    with Watch() as watch:
        while kills < KILLS:
            run = subprocess.Popen(start(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                run.communicate(timeout=generator.random() * 0.5)
                equal(run.returncode, 0, "a run that nobody kills")
            except subprocess.TimeoutExpired:
                run.send_signal(generator.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
                run.communicate()
                kills += 1
            if os.path.exists("out"):
                equal(tree("out"), wanted, "an output that is there is complete")
                shutil.rmtree("out")
                shutil.rmtree("out.parts", ignore_errors=True)
    equal(fetch().returncode, 0, "the last run")
    equal(tree("out"), wanted, f"after {kills} kills: the bytes of a local run")
    check(watch.looks > 20 and watch.most <= 2, "shards on the disk", watch.most)
    equal(sorted(n for n in os.listdir(".") if not re.match(r"\.", n)), ["all", "in", "log", "one", "out"],
          "nothing is left")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
