#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of an installed copy: commands of the README, examples, pkg-config, CMake, Meson, manual, completion.

    python3 test_installed.py PREFIX/bin/qobs

Needs the compilers, pkg-config, CMake, Meson, mandoc and zsh; the copy has the API reference.
"""
import glob, os, re, shutil, struct, subprocess, sys

import cli
from cli import check, equal, fine, run

PREFIX = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[1])))
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLES = PREFIX + "/share/doc/qobs/examples"
WARNINGS = "-Wall -Wextra -Wpedantic -Wconversion -Werror"
ROW = "scales of the first row: 0.0933333 1.19209e-07\n"  # 0.7 / 7.5 and epsilon
VERSION = re.search(r'#define QOBS_VERSION "(.*)"', open(SOURCE + "/include/qobs/qobs.h", encoding="utf-8").read())[1]


def libdir(prefix):
    return os.path.dirname(os.path.dirname(glob.glob(prefix + "/**/qobs.pc", recursive=True)[0]))


def environment(prefix, root=""):
    """Returns variables for tools to search in a prefix. root: DESTDIR of the installation."""
    lib = libdir(root + prefix)
    return dict(os.environ, PKG_CONFIG_PATH=lib + "/pkgconfig", PKG_CONFIG_SYSROOT_DIR=root, LD_LIBRARY_PATH=lib,
                CMAKE_PREFIX_PATH=root + prefix)


HERE = environment(PREFIX)
os.environ["LD_LIBRARY_PATH"] = HERE["LD_LIBRARY_PATH"]  # for the program, which functions of cli.py run


def attempt(command, env=HERE, data=b""):
    p = subprocess.run(["bash", "-c", command], env=env, input=data, timeout=600,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return p.returncode, p.stdout.decode()


def sh(command, env=HERE, data=b""):
    """Returns the output of a command, which must succeed."""
    status, output = attempt(command, env, data)
    check(status == 0, command, f"exit status {status}: {output[-2000:]}")
    return output


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def needs_library(program):
    """Returns true if the program needs the shared libqobs."""
    return "libqobs" in sh(f"readelf -d {program} | grep NEEDED")


# ---- Files -----------------------------------------------------------------------------------------------------------

def test_files():
    for header in os.listdir(SOURCE + "/include/qobs"):
        compiler = f"c++ {WARNINGS} -std=c++17 -xc++" if header.endswith(".hpp") else f"cc {WARNINGS} -xc"
        sh(f"{compiler} -fsyntax-only - $(pkg-config --cflags qobs)", data=f"#include <qobs/{header}>\n".encode())
    lib = libdir(PREFIX)
    soname = re.search(r"SONAME.*\[(.*)\]", sh(f"readelf -d {lib}/libqobs.so"))[1]
    equal(soname, "libqobs.so." + ".".join(VERSION.split(".")[:2]), "soname")
    share = PREFIX + "/share"
    for path in [f"{lib}/{soname}", f"{lib}/libqobs.a", f"{share}/man/man1/qobs.1",
                 f"{share}/doc/qobs/html/index.html", f"{share}/doc/qobs/README.md",
                 f"{share}/doc/qobs/docs/presets/llmc.md", f"{share}/doc/qobs/docs/pictures/compare.png"]:
        check(os.path.exists(path), f"{path} is installed")
    for name in os.listdir(SOURCE + "/examples"):
        if name.endswith(".c") or os.path.exists(f"{SOURCE}/examples/{name}/meson.build"):
            check(os.path.exists(f"{EXAMPLES}/{name}"), f"example {name} is installed")


def test_documents():
    """What the manual cites and what the pages link to is installed, but for what belongs to the tree."""
    pages = PREFIX + "/share/doc/qobs"
    for page in glob.glob(SOURCE + "/docs/*.md"):
        check(os.path.exists(f"{pages}/docs/{os.path.basename(page)}"), f"{page} is installed")
    for page in re.findall(r"docs/\w+(?:\.md)?", open(SOURCE + "/docs/qobs.1", encoding="utf-8").read()):
        check(os.path.exists(f"{pages}/{page}"), f"the manual's {page} is installed")


def test_versions():
    equal(sh("pkg-config --modversion qobs"), VERSION + "\n", "pkg-config and the header have the same version")
    equal(fine("version", "--version"), f"qobs {VERSION}\n", "the program and the header have the same version")
    package = libdir(PREFIX) + "/cmake/qobs"
    major, minor, patch = map(int, VERSION.split("."))
    for wanted, good in [("", True), (VERSION, True), (f"{VERSION} EXACT", True), (f"{major}.{minor}", True),
                         (f"{major}.{minor + 1}", False), (f"{major + 1}", False), (f"{major}", True),
                         (f"{major}.{minor - 1}", major > 0), (f"{major}.{minor - 1}...<{major + 1}", True),
                         (f"{major}.{minor}.{patch + 1}", False),
                         (f"{major}...<{major + 1}", True), (f"{major}...<{VERSION}", False),
                         (f"{major}...{VERSION}", True)]:
        write("CMakeLists.txt",
              f"cmake_minimum_required(VERSION 3.19)\nproject(p NONE)\nfind_package(qobs {wanted} REQUIRED)\n")
        status, output = attempt(f"rm -rf b && cmake -S . -B b -Dqobs_DIR={package}")
        check((status == 0) == good, f"find_package(qobs {wanted}): {'found' if good else 'refused'}", output)


def test_soname():
    """A program that was linked with the library of 0.2 does not start with this one alone."""
    lib = libdir(PREFIX)
    os.mkdir("old")
    write("old.c", "int qobs_config_describe(const char *name, void *error);\n"
                   "int qobs_config_describe(const char *name, void *error) { return !name + !error; }\n")
    write("program.c", "int qobs_config_describe(const char *name, void *error);\n"
                       "int main(void) { return qobs_config_describe(0, 0) - 2; }\n")
    sh("cc -shared -fPIC -Wl,-soname,libqobs.so.0.2 old.c -o old/libqobs.so.0.2 && "
       "cc program.c old/libqobs.so.0.2 -o program")
    env = dict(HERE, LC_ALL="C")
    status, output = attempt("./program", dict(env, LD_LIBRARY_PATH=os.path.abspath("old")))
    equal((status, output), (0, ""), "it starts with that library")
    status, output = attempt("./program", dict(env, LD_LIBRARY_PATH=lib))
    check(status == 127 and "libqobs.so.0.2: cannot open shared object file" in output, "it does not with this one",
          output)
    equal(sh("./program", dict(env, LD_LIBRARY_PATH=f"{lib}:{os.path.abspath('old')}")), "", "both side by side")
    # Nor does it find the new one at link time.
    status, output = attempt(f"cc program.c -L{lib} -lqobs -o other")
    check(status != 0 and "qobs_config_describe" in output, "an old name is missed by the linker", output)


# ---- README ----------------------------------------------------------------------------------------------------------

def blocks(language):
    readme = open(SOURCE + "/README.md", encoding="utf-8").read()
    section = re.search(r"^## Start\n(.*?)^## Python", readme, re.S | re.M)[1]
    embedding = open(SOURCE + "/docs/embedding.md", encoding="utf-8").read()
    return re.findall(rf"^```{language}\n(.*?)^```", section + embedding, re.S | re.M)


def test_readme():
    (program,) = [b for b in blocks("c") if "scales of the first row" in b]
    (cmake,), (meson,) = [b for b in blocks("cmake") if "find_package" in b], blocks("meson")
    commands = [b for b in blocks("sh") if "weight_scales" in b]
    equal(len(commands), 1, "one block of commands compiles the program")
    check(len(program.splitlines()) <= 30, "the program has at most 30 lines")
    write("weight_scales.c", program)
    equal(sh(commands[0]), ROW, "the README's commands")
    check(needs_library("weight_scales"), "they use the shared library")
    write("CMakeLists.txt", cmake)
    equal(sh("{ cmake -S . -B c && cmake --build c; } >/dev/null && c/weight_scales"), ROW,
          "the README's CMakeLists.txt")
    write("meson.build", meson)
    equal(sh("{ meson setup m && meson compile -C m; } >/dev/null && m/weight_scales"), ROW, "the README's meson.build")


def test_cpp():
    (snippet,) = [b for b in blocks("cpp") if "int main" not in b]
    include, body = snippet.split("\n", 1)
    write("snippet.cc", f"""{include}
int main()
{{
    const int64_t rows = 2, columns = 3;
    const std::vector<std::vector<float>> batches(2, {{0, 1, 2, 3, 4, 255}});
    const std::vector<float> weight(64 * 256, 1.0f);
    {body}
    return !(scale > 0.5f && scale < 1.5f && scales.size() == 128 && scales[0] > 0 && codes.size() == 64 * 256 &&
             codes[0] == 127);
}}
""")
    for standard in ["c++17", "c++20"]:
        sh(f"c++ -std={standard} {WARNINGS} snippet.cc $(pkg-config --cflags --libs qobs) -o snippet && ./snippet")


def test_readers():
    """The programs of docs/embedding.md for each reader."""
    programs = [("runtime", "c", "token 0: codes 50 and -127, scale 0.00996078\n"),
                ("converter", "c", "weight: first byte"), ("library", "cpp", "scalar: 0 differ\n")]
    embedding = open(SOURCE + "/docs/embedding.md", encoding="utf-8").read()
    for reader, language, wanted in programs:
        section = re.search(rf"^## For the author of a {reader}\n(.*?)^## ", embedding, re.S | re.M)[1]
        (program,) = [b for b in re.findall(rf"^```{language}\n(.*?)^```", section, re.S | re.M) if "int main" in b]
        write(f"{reader}.{language}", program)
        compiler = f"c++ -std=c++17 {WARNINGS}" if language == "cpp" else f"cc {WARNINGS}"
        sh(f"{compiler} {reader}.{language} $(pkg-config --cflags --libs qobs) -lm -o {reader}")
        output = sh(f"./{reader}")
        check(output.startswith(wanted), f"the program of the author of a {reader}", output)


def test_readme_in_usr_local():
    """Runs the README's installation with private /usr/local and /etc, and its commands without variables."""
    (install,) = [b.strip() for b in blocks("sh") if "meson install" in b]
    equal(install, "meson setup build -Dtests=disabled -Dbench=disabled -Dreference=disabled && ninja -C build\n"
          "meson install -C build && ldconfig", "the README's installation")
    build = os.environ.get("QOBS_BUILD")  # replaces the first line
    new = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), "bash", "-ec"]
    layers = "mount -t tmpfs tmpfs own\nmkdir own/{1,2,3,4}\n" + "".join(
        f"mount -t overlay overlay -o lowerdir={d},upperdir=own/{u},workdir=own/{w} {d}\n" for d, u,
        w in [("/usr/local", 1, 2), ("/etc", 3, 4)])
    os.mkdir("own")
    if not build or subprocess.run([*new, layers], stderr=subprocess.DEVNULL).returncode != 0:
        print(f"skipped: the README's installation, for want of {'mounts of its own' if build else 'QOBS_BUILD'}")
        return
    write("weight_scales.c", next(b for b in blocks("c") if "scales of the first row" in b))
    (compiled,) = [b for b in blocks("sh") if "weight_scales" in b]
    plain = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH",
                                                              "CMAKE_PREFIX_PATH")}
    sh(f"meson setup --reconfigure {build} {SOURCE} --prefix /usr/local")
    try:
        script = (f"{layers}meson install -C {build} --no-rebuild >installed.log\nldconfig\n{compiled}qobs --version\n"
                  "readlink -f $(command -v qobs)\n")
        p = subprocess.run([*new, script], env=plain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        equal(p.stdout.decode(), f"{ROW}qobs {VERSION}\n/usr/local/bin/qobs\n",
              "the README's commands after its installation")
    finally:
        sh(f"meson setup --reconfigure {build} {SOURCE} --prefix {PREFIX}")


# ---- Examples --------------------------------------------------------------------------------------------------------

def test_plain_c():
    source = f"{EXAMPLES}/weight_scales.c"
    for compiler in ["gcc", "clang"] if shutil.which("clang") else ["gcc"]:
        equal(sh(f"{compiler} {WARNINGS} {source} $(pkg-config --cflags --libs qobs) -o a && ./a"), ROW, compiler)
    sh(f"cc {source} $(pkg-config --static --cflags --libs qobs | sed s/-lqobs/-l:libqobs.a/) -o s")
    check(not needs_library("s"), "static")
    equal(sh("./s"), ROW, "static")


def test_runtime():
    sh(f"cc {WARNINGS} -O2 {EXAMPLES}/runtime.c $(pkg-config --cflags --libs qobs) -pthread -lm -o runtime")
    for _ in range(20):  # threads interleave differently
        output = sh("./runtime")
    check("out of memory" in output, "an arena that is too small", output)


def test_kv_cache():
    sh(f"cc {WARNINGS} {EXAMPLES}/kv_cache.c $(pkg-config --cflags --libs qobs) -lm -o kv_cache")
    output = sh("./kv_cache")
    check(output.startswith("keys in fp8: worst error"), "keys in fp8", output)


def test_stream():
    sh(f"cc {WARNINGS} {EXAMPLES}/stream_activations.c $(pkg-config --cflags --libs qobs) -o stream")
    columns, values = 37, [((i * 7919) % 1000 - 300) / 64 for i in range(37 * 150)]
    data = struct.pack(f"<{len(values)}f", *values)
    output = sh(f"./stream {columns} state", data=data)
    # The installed program with the same batches.
    batches = [data[i:i + 4 * columns * 64] for i in range(0, len(data), 4 * columns * 64)]
    for i, batch in enumerate(batches):
        cli.write(f"{i}.npy", cli.npy_bytes("<f4", (len(batch) // 4 // columns, columns), batch))
    files = [f"{i}.npy" for i in range(len(batches))]
    fine("observe", "observe", "--preset", "torch.HistogramObserver", "--set", "dtype=quint8", "--out", "o.safetensors",
         *files)
    fine("merge", "merge", "state", "--out", "m.safetensors")
    wanted, merged = cli.st_read("o.safetensors")[0], cli.st_read("m.safetensors")[0]
    equal(merged, wanted, "the state that was saved")
    scale, zero_point = re.search(r"scale (\S+), zero point (\S+)", output).groups()
    equal((cli.f32(float(scale)), int(zero_point)), (wanted["scale"][2][0], wanted["zero_point"][2][0]),
          "scale and zero point")
    check(f"{len(batches)} batches, {len(values)} elements" in output, "counts", output)
    status, output = attempt(f"./stream {columns}", data=struct.pack("<37f", *[float("nan")] * 37))
    check(status == 1 and "NaN" in output, "NaN is refused", output)


def test_symbols():
    """All names that a program meets have the prefix."""
    libraries = sorted(f for f in glob.glob(libdir(PREFIX) + "/libqobs*") if f.endswith((".a", ".so")))
    equal([os.path.basename(f) for f in libraries],
          ["libqobs-checkpoint.a", "libqobs-checkpoint.so", "libqobs.a", "libqobs.so"], "libraries")
    for library in libraries:
        equal(cli.foreign_symbols(library), [], f"{library}: symbols without qobs_")


def test_checkpoint():
    """The library for whole models by pkg-config and CMake, shared and static: the program's bytes."""
    source, model = f"{EXAMPLES}/quantize_model.c", SOURCE + "/examples/tinylm"
    sh(f"{PREFIX}/bin/qobs quantize {model} --scheme W4A16 --quiet -o wanted")
    flags = "$(pkg-config --cflags --libs qobs-checkpoint)"
    static = ("$(pkg-config --static --cflags --libs qobs-checkpoint | "
              "sed 's/-lqobs-checkpoint/-l:libqobs-checkpoint.a/; s/-lqobs /-l:libqobs.a /')")
    write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.14)\nproject(p C)\n"
          "find_package(qobs REQUIRED COMPONENTS checkpoint)\n"
          f"add_executable(quantize_model {source})\ntarget_link_libraries(quantize_model PRIVATE qobs::checkpoint)\n")
    build = "rm -rf b && cmake -S . -B b {} && cmake --build b && cp b/quantize_model q"
    for what, command, shared in [("pkg-config", f"cc {WARNINGS} {source} {flags} -o q", True),
                                  ("pkg-config, static", f"cc {WARNINGS} {source} {static} -o q", False),
                                  ("CMake", build.format(""), True),
                                  ("CMake, static", build.format("-Dqobs_USE_STATIC_LIBS=ON"), False)]:
        sh(command)
        check(needs_library("q") == shared, f"{what}: the library that is linked")
        sh(f"rm -rf made && ./q {model} made && cmp made/model.safetensors wanted/model.safetensors")


def cmake_example(env, static, options=""):
    sh(f"rm -rf c && cmake -S {EXAMPLES}/cmake -B c '-DCMAKE_CXX_FLAGS={WARNINGS}' {options} && cmake --build c", env)
    check(needs_library("c/weight_error") != static, "static" if static else "shared")
    sh("c/weight_error", env)


def test_cmake():
    cmake_example(HERE, False)
    cmake_example(HERE, True, "-Dqobs_USE_STATIC_LIBS=ON")
    # The tree may be moved.
    shutil.copytree(PREFIX, "moved", symlinks=True)
    moved = environment(os.path.abspath("moved"))
    sh(f"! grep -r '{PREFIX}' moved/lib/*/cmake")
    cmake_example(moved, False)
    check(os.path.abspath("moved") in sh("readelf -d c/weight_error | grep -E 'R(UN)?PATH'"),
          "the moved library is linked")


# ---- Manual and completion -------------------------------------------------------------------------------------------

def commands():
    return re.findall(r"^  ([a-z]+) {3}", fine("help", "--help"), re.M)


def options(text):
    return set(re.findall(r"^  (?:-., )?(--[a-z-]+)", text, re.M))


def test_manual():
    page = f"{PREFIX}/share/man/man1/qobs.1"
    sh(f"mandoc -T lint -W warning {page}")
    manual = open(page, encoding="utf-8").read()
    sections = dict(re.findall(r"^\.Ss qobs (\w+)\n(.*?)(?=^\.S[sh])", manual, re.M | re.S))
    equal(sorted(sections), sorted(commands()), "commands of the manual")
    for command, section in sections.items():
        listed = {"-" + o for o in re.findall(r"^\.It (?:Fl \w+ , )?Fl (-[a-z-]+)", section, re.M)}
        equal(listed, options(fine(command, command, "--help")), f"options of {command} in the manual")
    schemes = re.findall(r"^  ([A-Z]\w+) ", fine("help", "calibrate", "--help").split("schemes:")[1], re.M)
    shown = re.findall(r"^\.It ([A-Z].*)", manual.split(".Sh SCHEMES")[1].split(".Sh")[0], re.M)
    equal([s for line in shown for s in line.split(" , ")], schemes, "schemes of the manual")


def completions(shell, *words):
    quoted = " ".join(f"'{w}'" for w in words)
    if shell == "bash":
        script = f"""source {PREFIX}/share/bash-completion/completions/qobs
                     COMP_WORDS=({PREFIX}/bin/qobs {quoted}) COMP_CWORD={len(words)}
                     _qobs; printf '%s\\n' "${{COMPREPLY[@]}}" """
    else:
        script = f"""compadd() {{
                         while [[ $1 != -- ]]; do shift; done
                         shift; print -l -- ${{(M)@:#${{words[CURRENT]}}*}}
                     }}
                     _files() {{ print -l -- *; }}; words=({PREFIX}/bin/qobs {quoted}) CURRENT={len(words) + 1}
                     _qobs() {{ source {PREFIX}/share/zsh/site-functions/_qobs; }}; _qobs"""
    p = subprocess.run([shell, *(["-f"] if shell == "zsh" else []), "-c", script], capture_output=True, text=True,
                       timeout=60)
    check(p.returncode == 0 and not p.stderr, f"completion of {words} by {shell}", p.stderr)
    return {w.rstrip("=") for w in p.stdout.split()}


def test_completion():
    presets = set(fine("presets", "info", "--list", "presets").split())
    settings = set(fine("settings", "info", "--list", "settings").split())
    own = set(fine("own settings", "info", "--list", "settings", "torch.MinMaxObserver").split())
    refused = run("quantize", SOURCE + "/examples/tinylm", "--scheme", "W4A16", "--dialect", "x", "-o", "out").stderr
    dialects = set(refused.partition("known are ")[2].strip().split(", "))
    helped = fine("quantize", "quantize", "--help")
    check(len(presets) > 50 and own < settings and len(dialects) > 4 and all(d in helped for d in dialects),
          "names for completion", refused)
    write("tensor.npy", "")
    for shell in ["bash", "zsh"]:
        equal(completions(shell, ""), {*commands(), "--help", "--version"}, f"{shell}: commands")
        equal(completions(shell, "ob"), {"observe"}, f"{shell}: a command begun")
        for command in commands():
            equal(completions(shell, command, "-"), options(fine(command, command, "--help")),
                  f"{shell}: options of {command}")
        equal(completions(shell, "calibrate", "--scheme", "NV"), {"NVFP4", "NVFP4A16"}, f"{shell}: schemes")
        equal(completions(shell, "quantize", "--scheme", "W7"), {"W7A16", "W7A8"}, f"{shell}: schemes of quantize")
        equal(completions(shell, "observe", "--preset", ""), presets, f"{shell}: presets")
        equal(completions(shell, "observe", "--set", ""), settings, f"{shell}: settings")
        equal(completions(shell, "observe", "--preset", "torch.MinMaxObserver", "--set", ""), own,
              f"{shell}: settings of a preset")
        equal(completions(shell, "observe", "--nonfinite", "i"), {"ignore"}, f"{shell}: words of an option")
        equal(completions(shell, "quantize", "--dialect", ""), dialects, f"{shell}: dialects")
        equal(completions(shell, "info", "--isa", ""), set(cli.instruction_sets()), f"{shell}: instruction sets")
        equal(completions(shell, "info", "llmc.imatrix"), {"llmc.imatrix_mse"}, f"{shell}: a preset to explain")
        equal(completions(shell, "observe", "--preset", "llmc.minmax", "ten"), {"tensor.npy"}, f"{shell}: files")
    formats = {"nvfp4-pack-quantized"}
    equal(completions("bash", "quantize", "--set", "format", "=", "nv"), formats, "bash: formats")
    check(formats < completions("bash", "quantize", "--set", "format", "="), "bash: all formats")
    check("format" in completions("bash", "quantize", "--set", "f"), "bash: a format is a setting of quantize")
    check("format" in completions("zsh", "quantize", "--set", "f"), "zsh: a format is a setting of quantize")
    equal(completions("bash", "observe", "--preset", "=", "torch.MinMax"), {"torch.MinMaxObserver"}, "bash: --preset=")
    check(os.path.isfile(f"{PREFIX}/share/fish/vendor_completions.d/qobs.fish"), "completion of fish is installed")
    if shutil.which("fish"):
        p = subprocess.run(["fish", "-c", f"source {PREFIX}/share/fish/vendor_completions.d/qobs.fish; "
                            f"complete -C '{PREFIX}/bin/qobs calibrate --scheme NV'"], capture_output=True, text=True)
        equal(p.stdout.split(), ["NVFP4", "NVFP4A16"], "fish: schemes")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
