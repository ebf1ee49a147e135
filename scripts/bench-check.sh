#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Compares the speed of two versions. Builds both with the benchmarks of this tree and runs them in turns. Says for each
# benchmark if NEW is faster, slower or within noise. The exit status is 1 if any is slower.
#
#   scripts/bench-check.sh [OPTION]... OLD [NEW]
#
#   OLD, NEW           commits; NEW defaults to this tree with its uncommitted changes
#   --filter REGEX     benchmarks to run, as --benchmark_filter (a leading - inverts the match)
#   --seconds N        time of the measurement without the build (60)
#   --run-with COMMAND prefix of every run, e.g. "taskset -c 1"
#   --build-only       builds and stops, so that the next call does not build
#
# Builds stay in build-check/. Each run is one process, and the fastest of its repetitions counts. A benchmark is faster
# or slower if a distribution-free 99 % interval of the median ratio of adjacent runs leaves out 1, and that median is
# at least 2 % from 1 (bench/rules.py).
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
# The same benchmarks measure both versions. Otherwise a change of a benchmark would look like a change of speed.
build() { # DIRECTORY
    rm -rf "$1/bench"
    cp -pr bench "$1/bench"
    [[ -f $1/build/build.ninja ]] ||
        meson setup "$1/build" "$1" -Dprogram=disabled -Dtests=disabled -Dbench=enabled >"$1.log" ||
            { cat "$1.log" && return 1; }
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
