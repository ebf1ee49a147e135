#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The library in projects of others: builds of a part of it, their sizes, the tarball by CMake's FetchContent, by Meson
and by Conan.

    python3 test_embedding.py BUILD [--sizes]     BUILD: a build of this tree, for `meson dist`

--sizes builds what docs/embedding.md has in its table of sizes and prints the table. CONAN names the conan to use.
"""
import glob, json, os, re, resource, shutil, struct, subprocess, sys

SIZES = "--sizes" in sys.argv and not sys.argv.remove("--sizes")
import cli
from cli import check, equal

BUILD = os.path.abspath(sys.argv[1])
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = SOURCE + "/examples/weight_scales.c"
ROW = "scales of the first row: 0.0933333 1.19209e-07\n"  # 0.7 / 7.5 and epsilon
PLAIN = {k: v for k, v in os.environ.items() if k not in ("PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "LD_LIBRARY_PATH")}
SMALL = {"families": "llmc", "features": "", "isa": "avx2"}
DTYPES = {"F32": 1, "BF16": 2, "F16": 3, "F64": 4}
# Options of meson, the most bytes of text and data, and what the table says.
BUILDS = [
    ("ranges of one family, scalar and AVX2, for size", dict(SMALL, buildtype="minsize"), 150_000),
    ("the same, for speed", dict(SMALL, buildtype="release"), None),
    ("codes, too, for size", dict(SMALL, features="codes", buildtype="minsize"), None),
    ("everything, scalar and AVX2", {"isa": "avx2", "buildtype": "release"}, 2_000_000),
    ("everything, for size", {"buildtype": "minsize"}, None),
    ("everything", {"buildtype": "release"}, 3_000_000),
]


def attempt(command, env=PLAIN, data=b""):
    p = subprocess.run(["bash", "-c", command], env=env, input=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return p.returncode, p.stdout.decode()


def sh(command, env=PLAIN, data=b""):
    """Returns the output of a command, which must succeed."""
    status, output = attempt(command, env, data)
    if status != 0:
        raise RuntimeError(f"{command}: exit status {status}: {output[-3000:]}")
    return output


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def program():
    """The first C program of the README, whose weight is in .bss so that it does not count."""
    text = re.search(r"^```c\n(.*?)^```", open(SOURCE + "/README.md", encoding="utf-8").read(), re.S | re.M)[1]
    text, changes = re.subn(r"\[256\] = {{0.5f, -0.7f}}", "[256]", text)
    equal(changes, 1, "the weight of the README's program")
    return text.replace("    qobs_error error;\n",
                        "    qobs_error error;\n    weight[0][0] = 0.5f, weight[0][1] = -0.7f;\n")


def cpu_time():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def link(library, source, name, options="-no-pie -s"):
    sh(f"cc -Os {options} -I{SOURCE}/include {source} {library} -lm -Wl,--gc-sections -o {name}")


def size(name):
    text, data = sh(f"size {name}").splitlines()[1].split()[:2]
    return int(text) + int(data)


def words_of(options):
    return " ".join(f"-D{k}={v}" for k, v in options.items())


def check_size(what, options, most):
    """Returns the bytes of `program`: at most so many, and by gcc 12 what docs/embedding.md says."""
    found = size("program")
    check(most is None or found <= most, what, f"{found} bytes of text and data, at most {most}")
    text = open(SOURCE + "/docs/embedding.md", encoding="utf-8").read()
    there = re.search(rf"\| `{re.escape(words_of(options))}` \| ([0-9,]+) KB \|", text)
    check(there, what + " is in docs/embedding.md")
    if there and sh("cc -dumpversion").strip() == "12":
        kilobytes = int(there[1].replace(",", ""))
        check(abs(1000 * kilobytes - found) <= 0.05 * found, what + " in docs/embedding.md",
              f"{kilobytes} KB, now {found} bytes")
    return found


def build(name, options):
    words = words_of(options)
    sh(f"meson setup {name} {SOURCE} -Ddefault_library=static -Dsleef=disabled -Dprogram=disabled -Dtests=disabled "
       f"-Dbench=disabled -Dreference=disabled --werror {words} && ninja -C {name}")
    return name + "/src/libqobs.a"


# ---- Golden cases ----------------------------------------------------------------------------------------------------

def golden_cases():
    """Cases of llm-compressor that one tensor decides: configuration, tensor, scale and zero point."""
    golden = SOURCE + "/tests/golden/llmc_minmax"
    tensors, _ = cli.st_read(golden + ".safetensors")
    for case in json.load(open(golden + ".json", encoding="utf-8")):
        c = case["config"]
        if c.get("n_batches") != 1 or c.get("fused") or "global_scale" in case["expect"]:
            continue
        keys = ["num_bits", "type", "symmetric", "strategy", "group_size", "block_structure", "scale_dtype", "zp_dtype",
                "base_name", "dynamic", "averaging_constant"]
        words = [f"{k}={str(c[k]).lower() if isinstance(c[k], bool) else json.dumps(c[k]).strip(chr(34))}"
                 .replace(" ", "")
                 for k in keys if c.get(k) is not None]
        wanted = [tensors[case["expect"][k]] for k in ("scale", "zero_point")]
        if "float8" in (c.get("zero_point_out_dtype") or "") + c["zp_dtype"]:  # the file has zero points of fp8 as F32
            wanted[1] = ("F8_E4M3", wanted[1][1], [int(z) for z in wanted[1][2]])
            check(not any(wanted[1][2]), case["name"] + ": zero points of fp8 are 0")
        yield case["name"], " ".join([f"llmc.{c['observer']} nonfinite=propagate",
                                      *words]), tensors[case["inputs"][0]], wanted


def record(text, tensor):
    dtype, shape, values = tensor
    data = cli.pack(dtype, values)
    return struct.pack(f"=i{len(text)}siii{len(shape)}q", len(text), text.encode(), DTYPES[dtype], len(shape),
                       len(data),
                       *shape) + data


def run_cases(library, left_out):
    """Runs the cases; all that fail name what is left out. Returns how many gave upstream's bits."""
    link(library, SOURCE + "/tests/small_cases.c", "cases", "")
    cases = list(golden_cases())
    refused = [("llmc.memoryless_mse", "searches"), ("qobs.mse_optimal", "families=qobs"),
               ("torch.HistogramObserver dtype=quint8", "families=torch")] if left_out else []
    extra = [record(text, ("F32", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8])) for text, _ in refused]
    lines = sh("./cases", PLAIN, b"".join([record(text, tensor) for _, text, tensor, _ in cases] + extra)).splitlines()
    equal(len(lines), len(cases) + len(extra), "a line for each case")
    good = 0
    for (name, text, _, wanted), line in zip(cases, lines):
        if left_out and line.startswith("error"):
            check("features=observers" in line, f"{name}: {text}", line)
            continue
        words = [f"{dtype} {cli.pack(dtype, values).hex()}" for dtype, _, values in wanted]
        equal(line, "ok " + " ".join(words), f"{name}: {text}")
        good += 1
    for (text, option), line in zip(refused, lines[len(cases):]):
        check(line.startswith("error") and option in line, f"{text} is left out", line)
    return good


def test_small():
    """The smallest build: its size, the cases that it has, its refusals."""
    library = build("small", BUILDS[0][1])
    write("program.c", program())
    link(library, "program.c", "program")
    equal(sh("./program"), ROW, "the README's program")
    check_size(*BUILDS[0])
    check(run_cases(library, True) >= 30, "cases of the small build")


def test_sizes():
    if not SIZES:
        return
    write("program.c", program())
    print("| build | options | text and data | at most |\n|---|---|---|---|")
    for i, (what, options, most) in enumerate(BUILDS):
        library = build(f"b{i}", options)
        link(library, "program.c", "program")
        equal(sh("./program"), ROW, what)
        if i > 0:
            check(run_cases(library, "families" in options) >= 30, what + ": cases")
        found = check_size(what, options, most)
        limit = f"{most / 1000:,.0f} KB" if most else ""
        print(f"| {what} | `{words_of(options)}` | {found / 1000:,.0f} KB | {limit} |", flush=True)


def test_unknown_words():
    status, output = attempt(f"meson setup u {SOURCE} -Dfamilies=llmd")
    check(status != 0 and "llmd" in output and "quark" in output, "an unknown family", output)
    status, output = attempt(f"meson setup u {SOURCE} -Dfeatures=codes -Dprogram=enabled")
    check(status != 0 and "program needs the whole library" in output, "a program of a part", output)
    status, output = attempt(f"cmake -S {SOURCE} -B u2 -DQOBS_FEATURES=search")
    check(status != 0 and "'search' is unknown" in output, "an unknown feature", output)
    os.mkdir("set")
    write("set/CMakeLists.txt", "cmake_minimum_required(VERSION 3.14)\nproject(set C)\nset(QOBS_FEATURES search)\n"
          f"add_subdirectory({SOURCE} qobs)\n")
    status, output = attempt("cmake -S set -B u3")
    check(status != 0 and "'search' is unknown" in output, "a feature by a variable of the project", output)


# ---- The tarball -----------------------------------------------------------------------------------------------------

archive = None


def tarball():
    """The tarball of `meson dist`, made once."""
    global archive
    if archive is None and os.path.exists(SOURCE + "/.git"):
        sh(f"meson dist -C {BUILD} --no-tests --formats gztar --allow-dirty")
        archive = glob.glob(BUILD + "/meson-dist/*.tar.gz")[0]
    if archive is None:
        print("skipped: the tarball, for want of git")
    return archive


def project(path, name):
    """The CMake project of docs/embedding.md with FetchContent for a program of the examples."""
    embedding = open(SOURCE + "/docs/embedding.md", encoding="utf-8").read()
    text = next(b for b in re.findall(r"^```cmake\n(.*?)^```", embedding, re.S | re.M)
                if "FetchContent" in b and f"project({name} " in b)
    check(len(text.splitlines()) <= 10, "the project has at most ten lines")
    write("CMakeLists.txt", re.sub(r"URL \S+?\)", f"URL {path})", text))
    shutil.copy(f"{SOURCE}/examples/{name}.c", f"{name}.c")


def test_fetch_content():
    """A stranger's project: 120 s of processor time are 60 s on two processors."""
    if not tarball():
        return
    small = ("-DCMAKE_BUILD_TYPE=MinSizeRel -DQOBS_FAMILIES=llmc '-DQOBS_FEATURES=codes' -DQOBS_ISA=avx2 "
             "-DQOBS_SLEEF=OFF")
    project(archive, "weight_scales")
    for name, options, most in [("s", small, 120), ("d", small + " -DBUILD_SHARED_LIBS=ON", None)]:
        before = cpu_time()
        sh(f"cmake -S . -B {name} {options} -DCMAKE_C_FLAGS=-Werror && cmake --build {name} -j2",
           dict(PLAIN, CCACHE_DISABLE="1"))
        used = cpu_time() - before
        equal(sh(f"{name}/weight_scales"), ROW, "the program")
        check(most is None or used <= most, "processor time of the build", f"{used:.0f} s, at most {most} s")
        print(f"FetchContent, {name}: {used:.0f} s of processor time")
    # Installed by CMake, found by CMake.
    sh(f"cmake --install d --prefix {os.getcwd()}/there")
    os.makedirs("found")
    write("found/CMakeLists.txt",
          "cmake_minimum_required(VERSION 3.14)\nproject(found C)\nfind_package(qobs 0.3 REQUIRED)\n"
          "add_executable(weight_scales ../weight_scales.c)\ntarget_link_libraries(weight_scales PRIVATE qobs::qobs)\n")
    sh("cmake -S found -B f && cmake --build f", dict(PLAIN, CMAKE_PREFIX_PATH=os.getcwd() + "/there"))
    equal(sh("f/weight_scales"), ROW, "the program with the installed library")


def test_fetch_checkpoint():
    """Ten lines that quantize a model; a program has names of the library's files for itself."""
    if not tarball():
        return
    project(archive, "quantize_model")
    with open("quantize_model.c", "a", encoding="utf-8") as f:
        for name in ("fail", "mapped_open"):
            f.write(f"int {name}(void);\nint {name}(void) {{ return 0; }}\n")
    model = SOURCE + "/examples/tinylm"
    for name, options in [("s", ""), ("d", "-DBUILD_SHARED_LIBS=ON")]:
        sh(f"cmake -S . -B {name} -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-Werror {options} && "
           f"cmake --build {name} -j2")
        sh(f"{name}/quantize_model {model} {name}-out && cmp {name}-out/model.safetensors s-out/model.safetensors")
        libraries = glob.glob(f"{name}/_deps/qobs-build/*.a") + glob.glob(f"{name}/_deps/qobs-build/*.so")
        equal(len(libraries), 2, f"libraries of {name}")
        for library in libraries:
            equal(cli.foreign_symbols(library), [], f"{library}: symbols without qobs_")
        sh(f"cmake --install {name} --prefix {os.getcwd()}/{name}-there")
        os.makedirs("found", exist_ok=True)
        write("found/CMakeLists.txt", "cmake_minimum_required(VERSION 3.14)\nproject(found C)\n"
              "find_package(qobs REQUIRED COMPONENTS checkpoint)\nadd_executable(quantize_model ../quantize_model.c)\n"
              "target_link_libraries(quantize_model PRIVATE qobs::checkpoint)\n")
        sh(f"rm -rf f && cmake -S found -B f && cmake --build f && f/quantize_model {model} {name}-found",
           dict(PLAIN, CMAKE_PREFIX_PATH=f"{os.getcwd()}/{name}-there",
                LD_LIBRARY_PATH=f"{os.getcwd()}/{name}-there/lib"))
    status, output = attempt("cmake -S . -B part -DQOBS_CHECKPOINT=ON -DQOBS_FAMILIES=llmc")
    check(status != 0 and "QOBS_FAMILIES" in output, "models need the whole library", output)


def test_meson_subproject_of_tarball():
    if not tarball():
        return
    os.makedirs("subprojects")
    sh(f"tar xf {archive} -C subprojects && mv subprojects/qobs-* subprojects/qobs")
    shutil.copy(PROGRAM, "weight_scales.c")
    write("meson.build", "project('weight_scales', 'c')\n"
          "executable('weight_scales', 'weight_scales.c', dependencies: dependency('qobs'))\n")
    before = cpu_time()
    sh("meson setup b --force-fallback-for=qobs --buildtype=minsize -Dqobs:default_library=static -Dqobs:families=llmc "
       "-Dqobs:features=codes -Dqobs:isa=avx2 -Dqobs:sleef=disabled && ninja -C b", dict(PLAIN, CCACHE_DISABLE="1"))
    used = cpu_time() - before
    equal(sh("b/weight_scales"), ROW, "the program")
    check(used <= 120, "processor time of the build", f"{used:.0f} s, at most 120 s")
    print(f"Meson's subproject: {used:.0f} s of processor time")


def system_package(conan, env, name, version, library, pkg_config, include=()):
    """Makes a package of Conan of a library of the system, in place of that of a registry."""
    os.mkdir(name)
    write(f"{name}/conanfile.py", f"""from conan import ConanFile
class System(ConanFile):
    name, version = "{name}", "{version}"
    settings = "os", "arch", "compiler", "build_type"
    def package_info(self):
        self.cpp_info.includedirs, self.cpp_info.libdirs, self.cpp_info.bindirs = {list(include)}, [], []
        self.cpp_info.system_libs = ["{library}"]
        self.cpp_info.set_property("pkg_config_name", "{pkg_config}")
""")
    sh(f"{conan} export {name}", env)


def test_conan():
    conan = os.environ.get("CONAN") or shutil.which("conan")
    if not tarball() or not conan:
        print("skipped: Conan's recipe" + ("" if conan else ", for want of conan"))
        return
    sh(f"tar xf {archive} && mv qobs-* qobs")
    env = dict(PLAIN, CONAN_HOME=os.getcwd() + "/home", CCACHE_DISABLE="1")
    sh(f"{conan} profile detect && {conan} create qobs/packaging/conan -s build_type=MinSizeRel "
       "-o 'qobs/*:families=llmc' -o 'qobs/*:features=codes' -o 'qobs/*:isa=avx2' -o 'qobs/*:sleef=False'", env)
    system_package(conan, env, "json-c", "0.16", "json-c", "json-c", ["/usr/include/json-c"])
    system_package(conan, env, "pcre2", "10.42", "pcre2-8", "libpcre2-8")
    system_package(conan, env, "libyaml", "0.2.5", "yaml", "yaml-0.1")
    sh(f"{conan} create qobs/packaging/conan --no-remote --build=missing -s build_type=MinSizeRel "
       "-o 'qobs/*:checkpoint=True'", env)


def test_vcpkg_port():
    """Nothing of vcpkg runs here: its files have the fields and functions that its documents ask for."""
    port = json.load(open(SOURCE + "/packaging/vcpkg/vcpkg.json", encoding="utf-8"))
    version = re.search(r"version: '(.*)'", open(SOURCE + "/meson.build", encoding="utf-8").read())[1]
    equal((port["name"], port["version"], port["license"]), ("qobs", version, "Apache-2.0"), "vcpkg.json")
    text = open(SOURCE + "/packaging/vcpkg/portfile.cmake", encoding="utf-8").read()
    calls = re.findall(r"^(\w+)\(", text, re.M)
    for name in ["vcpkg_cmake_configure", "vcpkg_cmake_install", "vcpkg_cmake_config_fixup", "vcpkg_install_copyright"]:
        check(name in calls, f"portfile.cmake calls {name}")
    # It runs with these functions as no-ops, so that its syntax is CMake's.
    stubs = "".join(f"function({n})\nendfunction()\n" for n in sorted(set(calls)) if n.startswith("vcpkg_"))
    write("port.cmake", "set(CURRENT_PACKAGES_DIR .)\nset(CURRENT_PORT_DIR .)\n" + stubs +
          f"include({SOURCE}/packaging/vcpkg/portfile.cmake)\n")
    sh("cmake -P port.cmake")
    wanted = {d["name"] for d in port["dependencies"]}
    check({"vcpkg-cmake", "vcpkg-cmake-config"} <= wanted, "helpers that the portfile calls", wanted)


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
