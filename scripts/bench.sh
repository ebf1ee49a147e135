#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Builds and runs all benchmarks. Writes bench/results/<cpu>-<isa>.json, a report <cpu>-<isa>.md beside it, and charts.
# Prints the targets that are not reached. It takes about ten minutes on a machine with nothing else to do.
#
#   scripts/bench.sh [OPTION]...
#
#   --quick            one repetition of small sizes in half a minute: shows that everything runs, not how fast
#   --repetitions N    of every benchmark (3); pairs run 2 N + 1, growth within caches 14 N of a tenth of the time
#   --min-time SECONDS minimum time of a repetition (0.005)
#   --parts NAMES      separated by blanks: kernels functions growth pairs (with small inputs) torch calibrate (all)
#   --out DIRECTORY    directory of the results (bench/results)
#   --readme           also writes the figures in README.md
#   --build DIRECTORY  an existing build with the program and the benchmarks (default: builds build-bench)
#   --run-with COMMAND prefix of each measured command, which runs less than a minute, e.g. "taskset -c 1"
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '/^#   /s/^#   //p' "$0" >&2
    exit 2
}
{ # bash reads the block to its end first, so the file may change meanwhile
command="scripts/bench.sh $*"
quick='' repetitions=3 min_time=0.005 parts='kernels functions growth pairs torch calibrate' out=bench/results build='' run_with='' readme=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --readme) readme=(README.md) && shift ;;
    --quick) quick=1 repetitions=1 min_time=0.001 && shift ;;
    --repetitions | --min-time | --parts | --out | --build | --run-with)
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
        meson setup "$build" -Dprogram=enabled -Dtests=disabled -Dbench=enabled >/dev/null || { cat "$build/meson-logs/meson-log.txt" && exit 1; }
    ninja -C "$build" >"$build/ninja.log" || { grep -v '^\[' "$build/ninja.log" && exit 1; }
fi
python=/usr/bin/python3
pair_repetitions=$((2 * repetitions + 1))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
load=$(cut -d ' ' -f 1-3 /proc/loadavg)

# measure NAME COMMAND...: output goes to a log, which is shown on failure.
measure() {
    local name=$1
    shift
    printf '%s %s\n' "$(date +%H:%M:%S)" "$name"
    # shellcheck disable=SC2086 # a command and its arguments
    $run_with "$@" >"$work/log" 2>&1 </dev/null || { tail -n 30 "$work/log" && exit 1; }
}
wanted() {
    [[ " $parts " == *" $1 "* ]]
}
# benchmarks NAME REPETITIONS FILTER
benchmarks() {
    measure "$1" "$build/bench/bench-qobs" "--benchmark_filter=$3" "--benchmark_min_time=$min_time" "--benchmark_repetitions=$2" \
        --benchmark_enable_random_interleaving=true "--benchmark_out=$work/$1.json" --benchmark_out_format=json
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

collect() {
    $python -B bench/collect.py "$1" "cpu=$cpu" "date=$(date +%F)" "commit=$(git describe --always --dirty 2>/dev/null || echo unknown)" \
        "load=$load" "command=${command% }" "$work"/*.json
}
# Doubtful pairs are measured again later, because a disturbance may last for minutes. All figures count.
doubtful=''
find_doubtful() {
    mkdir "$work/first"
    doubtful=$($python -B bench/doubtful.py "$(collect "$work/first/all")")
}
measure_doubtful() {
    [[ -z $doubtful ]] || pairs "pairs-again-$1" "$doubtful"
}

cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
cpu=${cpu:-$(uname -m)}
benchmarks limits 1 '^limit/count$' # always runs: it records the machine
if [[ $quick ]]; then
    benchmarks quick 1 '^(limit/(read/L1|count|multiply)|small/|growth/elements/.*/(1024|2048|4096|8192)$|growth/(bins|group)/.*/1024$|observer/[a-z0-9]*/f32/torch|[a-z-]*/[a-z0-9-]*/[a-z0-9]*/[a-z0-9.-]*/L1$|pair/(avx2-plain|avx512-avx2)/.*/f32/.*/L1(/iterations:1)?$)'
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
        filters=('^small/' '^pair/minmax-read/' '^pair/(granularity|histogram)' '^pair/search-[a-z]')
        for dtype in f32 bf16 f16 f64; do
            filters+=("^pair/avx2-plain/[a-z-]*/$dtype/" '^pair/search-2-threads/' "^pair/avx512-avx2/[a-z-]*/$dtype/")
        done
        pairs pairs "${filters[@]}"
        find_doubtful
    }
fi
if wanted torch && $python -c 'import torch' 2>/dev/null; then
    if [[ $quick ]]; then
        measure torch $python -B bench/beside_torch.py "$build/src/libqobs.so" "$work/torch.json" --repetitions 1 --rows 64 --only 'minmax|search'
    else
        for i in 1 2 3; do # several processes: torch's searches differ by a half between them
            for only in minmax observer/ histc HistogramObserver search/norm-2\$ search/norm-2.4 search/norm-2.7; do
                part=torch-$i-${only//[^a-zA-Z0-9]/-}
                measure "$part" $python -B bench/beside_torch.py "$build/src/libqobs.so" "$work/$part.json" \
                    --repetitions $(((pair_repetitions + 2) / 3)) --only "$only"
            done
        done
    fi
elif wanted torch; then
    echo "without torch: python3-torch is not installed"
fi
measure_doubtful 1
if wanted calibrate; then
    megabytes=${quick:+32}
    $python scripts/make-checkpoint.py "$work/model.safetensors" --megabytes "${megabytes:-1024}"
    measure calibrate $python -B bench/beside_cat.py "$build/tools/qobs" "$work/model.safetensors" "$work/calibrate.json" \
        --repetitions $((5 * repetitions))
fi
measure_doubtful 2
measure_doubtful 3

name=$(tr -cs '[:alnum:]' - <<<"${cpu,,}")
name=${name%-}
mkdir -p "$out"
results=$(collect "$out/$name")
$python -B bench/report.py "$results" "${readme[@]}"
echo "wrote ${results%.json}.md"
exit
}
