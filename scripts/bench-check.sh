#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Is one version faster than another? Builds both with the benchmarks of this tree, runs them in turns and says of each benchmark
# whether NEW is faster, slower or within noise. Exit status 1 if any is slower.
#
#   scripts/bench-check.sh [OPTION]... OLD [NEW]
#
#   OLD, NEW           commits; NEW is this tree as it stands, committed or not, if left out
#   --filter REGEX     benchmarks to run, as --benchmark_filter (a leading - takes those that do not match)
#   --seconds N        time for the measurement, without building (60)
#   --run-with COMMAND put before every run, e.g. "taskset -c 1"
#   --build-only       builds and stops: the next call need not build
#
# Builds are kept in build-check/. A run is a process of its own; the fastest of its repetitions counts. A benchmark is faster or
# slower if a distribution-free 99 % interval of the median ratio of runs next to each other leaves out 1, and that median is
# at least 2 % from it (bench/rules.py).
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '/^#   /s/^#   //p' "$0" >&2
    exit 2
}
filter=. seconds=60 run_with='' build_only='' versions=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --filter | --seconds | --run-with)
        [[ $# -ge 2 ]] || usage
        declare "$(tr - _ <<<"${1#--}")=$2"
        shift 2
        ;;
    --build-only) build_only=1 && shift ;;
    -*) usage ;;
    *) versions+=("$1") && shift ;;
    esac
done
[[ ${#versions[@]} -eq 1 || ${#versions[@]} -eq 2 ]] || usage

top=build-check
# Both are measured by the same benchmarks, or a change of them would count as one of speed.
build() { # DIRECTORY
    rm -rf "$1/bench"
    cp -pr bench "$1/bench"
    [[ -f $1/build/build.ninja ]] ||
        meson setup "$1/build" "$1" -Dprogram=disabled -Dtests=disabled -Dbench=enabled >"$1.log" || { cat "$1.log" && return 1; }
    nice ninja -C "$1/build" >"$1.log" || { grep -v '^\[' "$1.log" | head -n 60 && return 1; }
}
build_commit() { # COMMIT
    local commit
    commit=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "$1: no commit" >&2 && exit 2; }
    if [[ ! -d $top/$commit ]]; then
        mkdir -p "$top/$commit"
        git archive "$commit" | tar -x -C "$top/$commit"
    fi
    build "$top/$commit" >&2 || { echo "$1: does not build with the benchmarks of this tree" >&2 && exit 2; }
    echo "$top/$commit/build"
}
build_tree() {
    mkdir -p $top/tree
    git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
        [[ ! -e $file ]] || printf '%s\0' "$file"
    done | tar --null -T - -c | tar -x -C $top/tree
    build $top/tree >&2 || exit 2
    echo $top/tree/build
}
old=$(build_commit "${versions[0]}")
if [[ ${#versions[@]} -eq 2 ]]; then
    new=$(build_commit "${versions[1]}")
else
    new=$(build_tree)
fi
[[ ! $build_only ]] || exit 0
exec /usr/bin/python3 -B bench/compare.py "$old" "$new" --filter "$filter" --seconds "$seconds" --run-with "$run_with"
