#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Builds the fuzz targets and runs each for SECONDS, as many at a time as there are processors. Says how many inputs
# were run and what they reached, and ends with "N passed, N failed". Findings are printed, and stay in
# DIRECTORY/findings; inputs that reached something new stay in DIRECTORY/corpus, where the next run begins.
#
#   scripts/fuzz.sh [--seed N | --seed random] DIRECTORY SECONDS [TARGET]...
#
#   --seed    what the inputs are drawn from: 1, so that a run from an empty DIRECTORY repeats the inputs of another
#             as far as it gets; random: another one each time, which is printed
set -euo pipefail
cd "$(dirname "$0")/.."
seed=1
if [[ ${1-} == --seed && $# -ge 2 ]]; then
    seed=$2
    [[ $seed != random ]] || seed=$((1 + RANDOM * 32768 + RANDOM))
    shift 2
fi
if [[ $# -lt 2 || $2 == *[!0-9]* || ! $seed =~ ^[1-9][0-9]{0,8}$|^10[0-9]{8}$ ]]; then
    sed -n '/^#   /s/^#   //p' "$0" >&2
    exit 2
fi
top=$1 seconds=$2
targets=("${@:3}")
[[ ${#targets[@]} -gt 0 ]] || targets=(api kernels state settings safetensors npy gguf imatrix shards schemes)

# The newest clang there is with libFuzzer.
clang=
for candidate in clang-19 clang-16 clang-14; do
    if command -v $candidate >/dev/null && echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
        $candidate -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null; then
        clang=$candidate
        break
    fi
done
if [[ -z $clang ]]; then
    echo "fuzz: no clang with libFuzzer; scripts/setup.sh --fuzz installs one" >&2
    exit 1
fi

if [[ ! -e $top/build/build.ninja ]]; then
    CC="$(command -v ccache || true) $clang" meson setup "$top/build" --buildtype=debugoptimized -Dfuzz=true \
        -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false -Ddefault_library=static \
        -Dprogram=enabled -Dpictures=disabled -Dtests=disabled -Dbench=disabled
fi
ninja --quiet -C "$top/build"
mkdir -p "$top/findings"
rm -rf "$top/seeds"
"$top/build/tests/fuzz/fuzz_seeds" "$top/seeds"

# The run may take longer than its inputs, because the machine may be busy. An input has 200 s: the ranges of a state
# with 8,192 bins that ort.EntropyCalibrater searches took 46 s of a Zen 4 with both sanitizers.
run() {
    mkdir -p "$top/corpus/$1"
    UBSAN_OPTIONS=print_stacktrace=1 timeout $((seconds * 2 + 120)) "$top/build/tests/fuzz/fuzz_$1" \
        -seed="$seed" -max_total_time="$seconds" -timeout=200 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$top/findings/$1-" "$top/corpus/$1" "$top/seeds/$1" >"$top/$1.log" 2>&1
}

echo "seed $seed"
passed=0 failed=0 running=()
finish() {
    local target=${running[0]%:*} status=0
    wait "${running[0]#*:}" || status=$?
    running=("${running[@]:1}")
    local executed reached
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$top/$target.log")
    # Nothing where the target failed before libFuzzer's first line.
    reached=$(sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) corp: \([0-9]*\).*/\1 edges, \2 features, \3 inputs kept/p' \
        "$top/$target.log" | tail -n 1)
    if [[ $status -eq 0 && ${executed:-0} -gt 0 && -n $reached ]]; then
        passed=$((passed + 1))
        printf '%-12s %10d inputs, %s\n' "$target" "$executed" "$reached"
    else
        failed=$((failed + 1))
        echo "FAILED: $target, status $status"
        grep -aE -A 30 'FINDING|ERROR|runtime error' "$top/$target.log" | head -n 60 ||
            tail -n 20 "$top/$target.log" || true
        tell_input "$target"
    fi
}

# The input in full, as libFuzzer itself prints only short ones.
tell_input() {
    local file
    file=$(sed -n 's/.*Test unit written to //p' "$top/$1.log" | tail -n 1)
    if [[ -s $file ]]; then
        echo "input, for \`base64 -d >input; $top/build/tests/fuzz/fuzz_$1 input\`:"
        base64 -w 0 "$file"
        echo
    else
        echo "input: none was written, or an empty one; seed $seed"
    fi
}
for target in "${targets[@]}"; do
    [[ ${#running[@]} -lt $(nproc) ]] || finish
    run "$target" &
    running+=("$target:$!")
done
while [[ ${#running[@]} -gt 0 ]]; do
    finish
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
