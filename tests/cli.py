# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Common parts of the program's tests: numbers, tensor files, running the program, a small model.

    python3 TEST QOBS [WRAPPER [ARGUMENT]...]     WRAPPER: a program that runs QOBS, such as an emulator

Needs the standard library only.
"""
import json, math, os, random, shutil, struct, subprocess, sys, tempfile, traceback

QOBS = sys.argv[2:] + [os.path.abspath(sys.argv[1])]
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "U8": 1, "F8_E4M3": 1}
PACK = {"F32": "f", "F16": "e", "F64": "d", "I8": "b", "I16": "h", "I32": "i", "I64": "q", "U8": "B", "F8_E4M3": "B"}
passed = failed = 0


def check(good, what, details=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAIL {what}" + (f"\n     {details}" if details else ""))


def equal(got, want, what):
    check(got == want, what, "" if got == want else f"got {got!r:.300}, expected {want!r:.300}")


# ---- Numbers ---------------------------------------------------------------------------------------------------------

def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    if math.isnan(x):
        return 0x7fc0
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def bf16_codes(values):
    """bf16_bits of each, many times as fast."""
    wide = struct.pack(f"<{len(values)}f", *values)
    if not any(wide[0::4]) and not any(wide[1::4]) and not math.isnan(sum(values)):
        return struct.unpack(f"<{2 * len(values)}H", wide)[1::2]  # all are BF16 already
    bits = struct.unpack(f"<{len(values)}I", wide)
    return [0x7fc0 if b & 0x7fffffff > 0x7f800000 else (b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits]


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


ROUND = {"F32": f32, "BF16": lambda x: bf16_value(bf16_bits(f32(x))), "F64": lambda x: x,
         "F16": lambda x: struct.unpack("<e", struct.pack("<e", f32(x)))[0]}
EPS = {"F32": 2.0 ** -23, "BF16": 2.0 ** -7, "F16": 2.0 ** -10, "F64": 2.0 ** -52}


def pack(dtype, values):
    if dtype == "BF16":
        return struct.pack(f"<{len(values)}H", *bf16_codes(values))
    return struct.pack(f"<{len(values)}{PACK[dtype]}", *values)


def unpack(dtype, data):
    if dtype == "BF16":
        wide = bytearray(2 * len(data))  # the upper halves of F32
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        return list(struct.unpack(f"<{len(data) // 2}f", wide))
    return list(struct.unpack(f"<{len(data) // SIZES[dtype]}{PACK[dtype]}", data))


def qparams(dtype, values, bits, symmetric):
    """Computes scale and zero point as compressed-tensors does: every operation is rounded to the dtype."""
    rnd, quant_min, quant_max = ROUND[dtype], -2.0 ** (bits - 1), 2.0 ** (bits - 1) - 1
    low, high = min(0.0, *values), max(0.0, *values)
    if symmetric:
        return rnd(max(-low, high) / ((quant_max - quant_min) / 2)) or EPS[dtype], 0
    scale = rnd(rnd(high - low) / (quant_max - quant_min))
    if scale == 0:
        return EPS[dtype], 0
    return scale, round(min(max(rnd(quant_min - rnd(low / scale)), quant_min), quant_max))


# ---- Files -----------------------------------------------------------------------------------------------------------

def write(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


def st_bytes(tensors, metadata=None):
    """Makes a safetensors file of {name: (dtype, shape, bytes)}."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def st_read(path, wanted=lambda name: True):
    """Returns {name: (dtype, shape, values)} of the tensors wanted, and the metadata."""
    raw = read(path)
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data, tensors = raw[8 + length:], {}
    for name, t in ((n, t) for n, t in header.items() if wanted(n)):
        begin, end = t["data_offsets"]
        tensors[name] = (t["dtype"], t["shape"], unpack(t["dtype"], data[begin:end]))
    return tensors, metadata


def npy_bytes(descr, shape, raw, fortran=False):
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + raw


# ---- Running ---------------------------------------------------------------------------------------------------------

THREADED = {"audit", "calibrate", "observe", "plan", "quantize", "show"}


def static_schemes():
    """Returns the schemes that store scales of activations, by the table of the document."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../docs/checkpoint.md")
    with open(path, encoding="utf-8") as file:
        rows = [[cell.strip() for cell in line.split("|")] for line in file]
    return {row[1] for row in rows if len(row) > 5 and row[4] == "yes"}


def run(*arguments, **keywords):
    """Runs the program: with one thread, which is the fastest with small files, unless a test or QOBS_WHOLE wants
    more."""
    words = [str(a) for a in arguments]
    if words[:1] and words[0] in THREADED and "QOBS_WHOLE" not in os.environ and "--threads" not in words:
        words[1:1] = ["--threads", "1"]
    return subprocess.run(QOBS + words, capture_output=True, text=True, timeout=300, **keywords)


def fine(what, *arguments):
    p = run(*arguments)
    check(p.returncode == 0 and not p.stderr, what, f"exit status {p.returncode}: {p.stderr.strip()}")
    return p.stdout


def on_terminal(*arguments, status=0, **variables):
    """Returns what the program writes to standard error if that is a terminal. variables: of the environment, whose
    TERM and NO_COLOR it gets only from here. status: that it must end with."""
    terminal, side = os.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("TERM", "NO_COLOR")} | variables
    p = subprocess.Popen(QOBS + [str(a) for a in arguments], stderr=side, stdout=subprocess.DEVNULL, env=environment)
    os.close(side)
    shown = b""
    try:
        while part := os.read(terminal, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    equal(p.wait(timeout=300), status, "on a terminal: exit status")
    os.close(terminal)
    return shown


def snapshot():
    """Returns every file below the working directory with its content; None for a pipe."""
    paths = [os.path.join(d, f) for d, _, files in os.walk(".") for f in files]
    return {p: read(p) if os.path.isfile(p) else None for p in paths}


def refused(what, words, *arguments, status=2):
    """Checks the exit status, one line with all the words, and that no file was created or changed."""
    before = snapshot()
    p = run(*arguments)
    lines = p.stderr.splitlines()
    check(p.returncode == status, f"{what}: exit status {status}", f"got {p.returncode}: {p.stderr.strip()}")
    check(len(lines) == 1 and lines[0].startswith("qobs: ") and all(w in lines[0] for w in words) and not p.stdout,
          f"{what}: one line with {', '.join(words)}", p.stderr.strip() + p.stdout)
    check(snapshot() == before, f"{what}: writes nothing", ", ".join(sorted(set(snapshot()) ^ set(before))))


def foreign_symbols(library):
    """Names that a library, static or shared, defines for programs, and that do not begin with qobs_."""
    names = subprocess.run(["nm", "-D" if ".so" in library else "-g", "--defined-only", library], check=True, text=True,
                           capture_output=True).stdout
    found = [line.split()[2] for line in names.splitlines() if len(line.split()) == 3]
    check(len(found) > 5, f"{library}: symbols", found)
    return sorted({name for name in found if not name.startswith("qobs_")})


def instruction_sets():
    lines = run("info").stdout.split("presets ")[0].split("instructions ")[1].splitlines()
    return [line.split()[0] for line in lines if "not usable" not in line]


def thread_counts():
    """Up to the processors: the program starts no more. Seven on any machine: python/tests/test_checkpoint.py."""
    if "without pthreadpool" in run("observe", "--preset", "llmc.minmax", "--threads", "2", "x").stderr:
        return ["1"]
    return [str(n) for n in (1, 2, 7) if n <= len(os.sched_getaffinity(0))]


# ---- A small model ---------------------------------------------------------------------------------------------------

LINEAR = {"model.layers.0.self_attn.q_proj": ("BF16", [24, 256]), "model.layers.0.mlp.up_proj": ("F16", [7, 384]),
          "model.layers.1.self_attn.q_proj": ("BF16", [8, 128]), "model.layers.1.mlp.down_proj": ("F32", [5, 128])}
OTHER = {"model.embed_tokens.weight": ("BF16", [10, 128]), "model.norm.weight": ("BF16", [128]),
         "lm_head.weight": ("BF16", [10, 128]),
         "model.layers.0.self_attn.q_proj.bias": ("BF16", [24]),
         "model.layers.0.input_layernorm.weight": ("F32", [128])}


def model():
    """Returns the tensors, and the values of the linear layers row by row."""
    source, tensors, rows = random.Random(7), {}, {}
    for name, (dtype, shape) in list({k + ".weight": v for k, v in LINEAR.items()}.items()) + list(OTHER.items()):
        values = [ROUND[dtype](source.gauss(0.3, 1) * 10 ** source.uniform(-4, 0)) for _ in range(math.prod(shape))]
        if name.endswith("up_proj.weight"):
            values[:shape[-1]] = [0.0] * shape[-1]  # a row of zeros
        tensors[name] = (dtype, shape, pack(dtype, values))
        if name[:-7] in LINEAR:
            rows[name[:-7]] = [values[i:i + shape[1]] for i in range(0, len(values), shape[1])]
    return tensors, rows


def expect_scales(what, path, wanted, bits, symmetric):
    """Compares scales with `wanted`: {module: (scale shape, groups of values)}."""
    got, _ = st_read(path)
    names = {m + end for m in wanted for end in [".weight_scale"] + ([] if symmetric else [".weight_zero_point"])}
    equal(sorted(got), sorted(names), f"{what}: names")
    for module, (shape, groups) in wanted.items():
        dtype = LINEAR[module][0]
        pairs = [qparams(dtype, g, bits, symmetric) for g in groups]
        equal(got.get(module + ".weight_scale"), (dtype, shape, [p[0] for p in pairs]), f"{what}: scale of {module}")
        if not symmetric:
            equal(got.get(module + ".weight_zero_point"), ("I8", shape, [p[1] for p in pairs]),
                  f"{what}: zero point of {module}")


def by_channel(rows):
    return {m: ([len(r), 1], r) for m, r in rows.items()}


def by_group(rows, size):
    return {m: ([len(r), len(r[0]) // size], [row[i:i + size] for row in r for i in range(0, len(row), size)])
            for m, r in rows.items()}


def by_block(rows, height, width):
    wanted = {}
    for m, r in rows.items():
        down, across = -(-len(r) // height), -(-len(r[0]) // width)
        blocks = [[x for row in r[i * height:(i + 1) * height] for x in row[j * width:(j + 1) * width]] + [0.0]
                  for i in range(down)
                  for j in range(across)]  # missing elements of a block are zeros, which do not widen the range
        wanted[m] = ([down, across], blocks)
    return wanted


def scratch():
    """The place of the tests' directories: memory, if it has room, because there it costs nothing to flush a file."""
    memory = "/dev/shm"
    room = "TMPDIR" not in os.environ and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= 1 << 30
    return memory if room else None


def end():
    """Prints `N passed, N failed`. Returns the exit status."""
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def main(tests):
    """Runs the functions named test_... in `tests`, each in its own directory, and prints `N passed, N failed`."""
    home = os.getcwd()
    for name, test in list(tests.items()):
        if not name.startswith("test_"):
            continue
        with tempfile.TemporaryDirectory(dir=scratch()) as directory:
            os.chdir(directory)
            try:
                test()
            except Exception:
                check(False, name, traceback.format_exc())
            os.chdir(home)
    return end()
