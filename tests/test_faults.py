#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Faults around the program: changed files, full disks, signals, missing permissions, files that are not regular.

    test_faults.py QOBS     ends with `N passed, N failed`; exit status 1 if any failed
"""
import ctypes, os, resource, signal, struct, subprocess, sys, time

from cli import *

CALIBRATE = ("calibrate", "--quiet", "--scheme", "W8A8", "-o", "out.safetensors")
SHOW = ("show", "--preset", "llmc.minmax", "model.safetensors:a.weight")
OBSERVE = ("observe", "--preset", "llmc.memoryless_minmax", "model.safetensors:a.weight")


def zeros(path, rows, columns):
    """Makes a checkpoint of one weight of zeros, as a sparse file."""
    with open(path, "wb") as f:
        text = json.dumps({"a.weight": {"dtype": "BF16", "shape": [rows, columns],
                                        "data_offsets": [0, 2 * rows * columns]}}).encode()
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + 2 * rows * columns)


def large_model():
    zeros("model.safetensors", 1 << 14, 1 << 13)  # a quarter of a GB


def many_channels():
    zeros("model.safetensors", 1 << 17, 2)  # 256 KB of scales
    write("old.safetensors", b"old")


def maps(process, name):
    try:
        return name in open(f"/proc/{process.pid}/maps").read()
    except OSError:
        return False


def start(*arguments, **more):
    return subprocess.Popen(QOBS + [str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **more)


def while_reading(*arguments):
    """Starts the program and waits until the model is mapped and the first temporary file exists, if there is one."""
    p = start(*arguments)
    while p.poll() is None and not (maps(p, "model.safetensors") and
                                    (arguments[0] != "calibrate" or any(f.endswith(".tmp") for f in os.listdir(".")))):
        time.sleep(0.0005)
    return p


def expect_error(what, p, status, words):
    out, err = p.communicate(timeout=300)
    lines = err.splitlines()
    check(p.returncode == status, f"{what}: exit status {status}", f"got {p.returncode}: {err.strip()}")
    check(len(lines) == 1 and lines[0].startswith("qobs: ") and all(w in lines[0] for w in words) and not out,
          f"{what}: one line with {', '.join(words)}", err + out)


# ---- Changed files ---------------------------------------------------------------------------------------------------

def test_shrinking():
    """A file that becomes shorter while it is mapped gives an error that names it, and no output."""
    write("out.safetensors", b"old")
    write("report.json", b"old")
    large_model()
    size = os.path.getsize("model.safetensors")
    slow = ("--isa", "scalar", "--threads")
    for threads in thread_counts()[:2]:
        for what, arguments in (("calibrate", (*CALIBRATE, "model.safetensors", "--json", "report.json")),
                                ("observe", (*OBSERVE, "--out", "out.safetensors")),
                                ("observe --json", (*OBSERVE, "--json")),
                                ("observe, a table", OBSERVE), ("show", SHOW), ("show --json", (*SHOW, "--json"))):
            before = sorted(os.listdir("."))
            p = while_reading(*arguments, *slow, threads)
            os.truncate("model.safetensors", 1 << 20)
            expect_error(f"{what}, {threads} threads", p, 1, ["model.safetensors", "became shorter", str(1 << 20),
                                                              str(size)])
            os.truncate("model.safetensors", size)
            equal(sorted(os.listdir(".")), before, f"{what}, {threads} threads: no file is left over")
    equal((read("out.safetensors"), read("report.json")), (b"old", b"old"), "the old files are as they were")


def test_writing():
    """The same for a file that is written to."""
    large_model()
    p = while_reading(*CALIBRATE, "model.safetensors", "--isa", "scalar", "--threads", "1")
    with open("model.safetensors", "r+b") as f:
        f.seek(-2, os.SEEK_END)
        f.write(b"xx")
    expect_error("a file that is written to", p, 1, ["model.safetensors", "written to"])
    equal(os.listdir("."), ["model.safetensors"], "a file that is written to: no output")


def test_replacing():
    """A file that is replaced by another: the map still shows the original."""
    large_model()
    write("new", b"new")
    p = while_reading(*CALIBRATE, "model.safetensors", "--isa", "scalar", "--threads", "1")
    os.rename("new", "model.safetensors")
    equal((p.communicate(timeout=300), p.returncode), (("", ""), 0), "a file that is replaced")
    equal(sorted(os.listdir(".")), ["model.safetensors", "out.safetensors"],
          "a file that is replaced: the output is there")


# ---- Full disks ------------------------------------------------------------------------------------------------------

def limited(size):
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}


def outputs():
    return (("calibrate", CALIBRATE[:-1] + ("old.safetensors", "model.safetensors")),
            ("observe --out", (*OBSERVE, "--strategy", "channel", "--out", "old.safetensors")),
            ("observe --state", (*OBSERVE, "--strategy", "channel", "--state", "old.safetensors")))


def test_file_size_limit():
    many_channels()
    for what, arguments in outputs():
        for size in (0, 10, 100000):
            before = snapshot()
            expect_error(f"{what}, {size} bytes", start(*arguments, **limited(size)), 1,
                         ["old.safetensors", "File too large"])
            equal(snapshot(), before, f"{what}, {size} bytes: nothing has changed")
    before = snapshot()
    p = start(*CALIBRATE, "model.safetensors", "--json", "report.json", **limited(10))
    expect_error("a report", p, 1, ["File too large"])
    picture = SHOW + ("--out", "picture.svg")
    if "without cairo" not in run(*picture).stderr:
        os.unlink("picture.svg")
        expect_error("a picture", start(*picture, **limited(10)), 1, ["picture.svg"])
    equal(snapshot(), before, "a report, a picture: nothing has changed")


def test_full_disk():
    many_channels()
    script = ('mount -t tmpfs -o size=64k none disk && cp old.safetensors disk && "$@"; status=$?; ls -A disk; '
              'cat disk/*; exit $status')
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    os.mkdir("disk")
    if subprocess.run(alone + ["mount", "-t", "tmpfs", "none", "disk"], capture_output=True).returncode != 0:
        print("skipped: full disk: no tmpfs can be mounted here")
        return
    for what, arguments in outputs():
        arguments = [a.replace("old.", "disk/old.") for a in arguments]
        p = subprocess.run(alone + ["sh", "-c", script, "sh"] + QOBS + arguments, capture_output=True, text=True,
                           timeout=60)
        equal((p.returncode, p.stdout), (1, "old.safetensors\nold"),
              f"{what}: exit status 1, the old file alone is there")
        check(len(p.stderr.splitlines()) == 1 and "disk/old.safetensors" in p.stderr and "No space left" in p.stderr,
              f"{what}: says why", p.stderr)


def test_full_standard_output():
    many_channels()
    for arguments in (OBSERVE, (*OBSERVE, "--json"), SHOW, ("info",), ("--help",), ("--version",),
                      ("calibrate", "--help"),
                      ("calibrate", "--scheme", "W8A8", "-o", "out.safetensors", "model.safetensors")):
        with open("/dev/full", "w") as full:
            p = subprocess.run(QOBS + list(arguments), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        check(p.returncode == 1 and len(p.stderr.splitlines()) == 1 and "standard output" in p.stderr,
              f"{' '.join(arguments[:3])}: a full standard output", f"{p.returncode}: {p.stderr}")
    refused("a report to a full device", ["/dev/full", "No space left"], *CALIBRATE, "model.safetensors", "--json",
            "/dev/full", status=1)
    refused("an output to a device", ["/dev/full", "regular file"], *CALIBRATE[:-1], "/dev/full", "model.safetensors")


# ---- Signals ---------------------------------------------------------------------------------------------------------

def test_interrupt():
    """SIGINT at any moment: no partial output (test_cli.py: calibrate, with its report)."""
    large_model()
    write("out.safetensors", b"old")
    before = sorted(os.listdir("."))
    for delay in (0, 0.002, 0.01, 0.05):
        for arguments in ((*OBSERVE, "--out", "out.safetensors"), (*OBSERVE, "--state", "out.safetensors"),
                          (*SHOW, "--json")):
            p = while_reading(*arguments, "--isa", "scalar", "--threads", "2" if len(thread_counts()) > 1 else "1")
            time.sleep(delay)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=300)
            equal((p.returncode, out, err), (-signal.SIGINT, "", ""),
                  f"{arguments[0]} {arguments[-2]}, after {delay} s: ends by it")
    equal(sorted(os.listdir(".")), before, "no file is left over")
    equal(read("out.safetensors"), b"old", "the old file is as it was")


def test_signals():
    """Every signal that ends a program and can be caught removes what is unfinished."""
    large_model()
    os.mkdir("d")
    os.symlink("../model.safetensors", "d/model.safetensors")
    write("d/config.json", b'{"model_type": "llama"}')
    before = sorted(os.listdir("."))
    for name in ("HUP", "INT", "TERM", "QUIT", "PIPE", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU", "ABRT"):
        number = getattr(signal, "SIG" + name)

        def prepare(number=number):  # nohup and shells without job control leave signals ignored
            signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        for arguments, sign in (((*CALIBRATE, "model.safetensors", "--json", "r.json"), ".tmp"),
                                (("quantize", "d", "--targets", "re:.*", "--scheme", "W8A16", "-o", "out", "--quiet"),
                                 ".unfinished")):
            if arguments[0] == "quantize" and name == "ABRT":
                continue  # abort() waits for nobody: the next run for that output removes the directory
            p = start(*arguments, "--isa", "scalar", "--threads", "1", preexec_fn=prepare)
            while p.poll() is None and not any(sign in f for f in os.listdir(".")):
                time.sleep(0.0005)
            p.send_signal(number)
            p.communicate(timeout=300)
            equal((p.returncode, sorted(os.listdir("."))), (-number, before), f"{arguments[0]}: SIG{name}")


# ---- Memory ----------------------------------------------------------------------------------------------------------

def test_no_memory():
    """No memory while inputs are read is a failure of the system: status 1, one line, nothing is written."""
    if b"__asan_init" in read(QOBS[-1]):
        print("skipped: no memory: a sanitizer needs it all")
        return
    large_model()
    os.mkdir("d")
    os.symlink("../model.safetensors", "d/model.safetensors")
    write("d/config.json", b'{"model_type": "llama"}')
    names = [f"model.layers.{i}.mlp.experts.{i}.down_proj.weight" for i in range(400000)]
    write("many.safetensors.index.json", json.dumps({"weight_map": {n: "x.safetensors" for n in names}}).encode())
    text = json.dumps({n: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in names}).encode()
    write("many.safetensors", struct.pack("<Q", len(text)) + text)
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))}
    tight = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (90 << 20, 90 << 20))}
    one = ("--threads", "1")
    for what, arguments, more, words in (
            ("a map", (*CALIBRATE, "model.safetensors", *one), limit, ["model.safetensors", "Cannot allocate memory"]),
            ("a map of observe", (*OBSERVE, *one), limit, ["model.safetensors", "Cannot allocate memory"]),
            ("a map of show", (*SHOW, *one), limit, ["model.safetensors", "Cannot allocate memory"]),
            ("a map of info", ("info", "model.safetensors"), limit, ["model.safetensors", "Cannot allocate memory"]),
            ("a map of quantize", ("quantize", "d", "--scheme", "W8A16", "--quiet", "-o", "out", *one), limit,
             ["model.safetensors", "Cannot allocate memory"]),
            ("a map of audit", ("audit", "d", *one), limit, ["model.safetensors", "Cannot allocate memory"]),
            ("a header", (*CALIBRATE, "many.safetensors", *one), tight, ["many.safetensors", "memory"]),
            ("an index", (*CALIBRATE, "many.safetensors.index.json", *one), tight, ["index.json", "memory"])):
        before = sorted(os.listdir("."))
        expect_error(f"no memory for {what}", start(*arguments, **more), 1, words)
        equal(sorted(os.listdir(".")), before, f"no memory for {what}: nothing is written")


def test_memory_of_many_tensors():
    """4,000 small tensors fit 13 MB: 2.5 KB of private memory each, and 3 MB for the program."""
    if b"__asan_init" in read(QOBS[-1]) or len(QOBS) > 1:
        print("skipped: memory of many tensors: a sanitizer or an emulator needs more")
        return
    os.mkdir("d")
    write("d/model.safetensors", st_bytes({f"model.layers.{i}.mlp.up_proj.weight": ("BF16", [2, 128], bytes(512))
                                           for i in range(4000)}))
    write("d/config.json", b'{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')

    def run(command, out, limit):
        p = start(command, "d", "--scheme", "W4A16", "--quiet", "-o", out, "--threads", "1",
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
        errors = p.communicate(timeout=300)[1]
        return p.returncode, errors

    for command, out in (("quantize", "out"), ("calibrate", "out.safetensors")):
        equal(run(command, out, 13_000_000), (0, ""), f"memory of many tensors: {command}")
    for limit in range(4_000_000, 10_000_000, 250_000):
        status, errors = run("quantize", f"out-{limit}", limit)
        check(status == 0 or (status == 1 and "memory" in errors), f"quantize in {limit} bytes says so", errors)


# ---- Threads ---------------------------------------------------------------------------------------------------------

def test_no_threads():
    """Where threads cannot be started, the program runs with fewer, says so and gives the same result."""
    write("model.safetensors", st_bytes(model()[0]))
    if len(thread_counts()) == 1:
        print("skipped: threads that cannot be started: this program has one")
        return
    os.chmod(".", 0o777)

    def one_process():
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    try:
        probe = subprocess.run(QOBS + ["--version"], preexec_fn=one_process, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        probe = None
    if not probe or probe.returncode != 0:
        print("skipped: threads that cannot be started: the program may not be run by others")
        return
    fine("with threads", *CALIBRATE[:-1], "wanted.safetensors", "model.safetensors", "--threads", "2")
    for command in (CALIBRATE, (*CALIBRATE, "--threads", "2")):
        p = subprocess.run(QOBS + [*command, "model.safetensors"], preexec_fn=one_process, capture_output=True,
                           text=True, timeout=60)
        check(p.returncode == 0 and "lets 1 of" in p.stderr and p.stderr.startswith("qobs: warning: --threads: ") or
              p.returncode == 0 and "--threads" not in command and len(os.sched_getaffinity(0)) == 1, "one thread",
              p.stderr)
        equal(read("out.safetensors"), read("wanted.safetensors"), "the same result")


def test_many_threads():
    """More threads than processors are cut, and a warning says so."""
    write("model.safetensors", st_bytes(model()[0]))
    if len(thread_counts()) == 1:
        return
    most = len(os.sched_getaffinity(0))
    for threads in (most, most + 1, 1024):
        p = run(*CALIBRATE, "model.safetensors", "--threads", str(threads))
        cut = f"may use {most} processors; {most} of {threads} threads are started"
        check(p.returncode == 0 and (cut in p.stderr) == (most < threads), f"{threads} threads", p.stderr)


# ---- Missing permissions ---------------------------------------------------------------------------------------------

def drop_override():
    """Drops the capabilities that let root write everywhere."""
    if os.geteuid() == 0:
        for capability in (1, 2, 3):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
            if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                os._exit(99)


def test_read_only():
    many_channels()
    os.mkdir("folder")
    write("folder/old.safetensors", b"old")
    write("old.safetensors", b"old")
    os.chmod("folder", 0o555)
    os.chmod("old.safetensors", 0o444)
    before = snapshot()
    for what, arguments in outputs():
        for where in ("folder/new.safetensors", "folder/old.safetensors", "old.safetensors"):
            changed = [where if a == "old.safetensors" else a for a in arguments]
            expect_error(f"{what} to {where}", start(*changed, preexec_fn=drop_override), 1,
                         [where, "Permission denied"])
    expect_error("a report", start(*CALIBRATE, "model.safetensors", "--json", "folder/report.json",
                                   preexec_fn=drop_override), 1,
               ["folder/report.json", "Permission denied"])
    equal(snapshot(), before, "nothing has changed")
    os.chmod("folder", 0o755)
    os.chmod("model.safetensors", 0)
    expect_error("a model that may not be read", start(*CALIBRATE, "model.safetensors", preexec_fn=drop_override), 2,
               ["model.safetensors", "Permission denied"])


def test_read_only_directory():
    """A directory that may not be written to is not replaced."""
    os.mkdir("d")
    write("d/model.safetensors", st_bytes({"model.q_proj.weight": ("BF16", [128, 128], b"\x80\x3f" * 16384)}))
    write("d/config.json", b'{"model_type": "llama"}')
    os.mkdir("out")
    write("out/old", b"old")
    os.chmod("out", 0o555)
    for options in ((), ("--replace",)):
        expect_error("a read-only output", start("quantize", "d", "--scheme", "W8A16", "--quiet", "-o", "out", *options,
                                                 preexec_fn=drop_override), 2, ["out", "Permission denied"])
    equal(os.listdir("out"), ["old"], "nothing has changed")
    os.chmod("out", 0o755)


# ---- Files that are not regular --------------------------------------------------------------------------------------

def test_pipes():
    os.mkfifo("pipe")
    os.mkfifo("pipe.safetensors")
    write("index.safetensors.index.json", json.dumps({"weight_map": {"a.weight": "pipe.safetensors"}}).encode())
    for name in ("pipe", "/dev/null", "/dev/zero"):
        kind = "a pipe" if name == "pipe" else "a character device"
        refused(f"calibrate {name}", [name, kind, "regular file"], *CALIBRATE, name)
        refused(f"observe {name}", [name, kind, "regular file"], "observe", "--preset", "llmc.minmax", name)
        refused(f"show {name}", [name, kind, "regular file"], "show", "--preset", "llmc.minmax", name)
        refused(f"merge {name}", [name, kind, "regular file"], "merge", name)
    refused("a shard that is a pipe", ["pipe", "a pipe", "regular file"], *CALIBRATE, "index.safetensors.index.json")
    for command in (CALIBRATE, ("observe", "--preset", "llmc.minmax"), ("merge",)):
        p = subprocess.run(QOBS + [*command, "/dev/stdin"], input="x", capture_output=True, text=True, timeout=60)
        check(p.returncode == 2 and "/dev/stdin: is a pipe; a regular file is needed" in p.stderr,
              f"{command[0]} /dev/stdin", p.stderr)
    write("model.safetensors", st_bytes(model()[0]))
    refused("an output to a pipe", ["pipe", "regular file"], *CALIBRATE[:-1], "pipe", "model.safetensors")


# ---- Dimensions ------------------------------------------------------------------------------------------------------

def test_dimensions():
    """Dimensions whose product overflows, and dimensions of 0."""
    for shape in ([1 << 32, 1 << 32], [1 << 31, 1 << 31, 4], [(1 << 53) - 1, (1 << 53) - 1]):
        entry = {"a.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}
        write("model.safetensors", struct.pack("<Q", len(json.dumps(entry))) + json.dumps(entry).encode())
        refused(f"shape {shape}", ["model.safetensors", "'a.weight'", "2^63"], *CALIBRATE, "model.safetensors")
        write("model.npy", npy_bytes("<f4", shape, b""))
        refused(f".npy of {shape}", ["model.npy", "2^63"], "observe", "--preset", "llmc.minmax", "model.npy")
    for shape in ([0, 128], [128, 0], [(1 << 53) - 1, 0], [0, (1 << 53) - 1]):
        write("model.safetensors", st_bytes({"a.weight": ("F32", shape, b"")}))
        for scheme in ("W8A8", "W4A16", "NVFP4"):
            refused(f"shape {shape}, {scheme}", ["'a.weight'", "no elements"], "calibrate", "--scheme", scheme,
                    "-o",
                    "out.safetensors", "model.safetensors")
        for preset in ("llmc.minmax", "torch.HistogramObserver"):
            refused(f"shape {shape}, {preset}", ["no elements"], "show", "--preset", preset, "model.safetensors")
        refused(f"shape {shape}, observe", ["no elements"], "observe", "--preset", "llmc.minmax", "model.safetensors")


if __name__ == "__main__":
    sys.exit(main(globals()))
