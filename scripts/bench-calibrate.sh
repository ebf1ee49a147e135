#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# qobs calibrate beside `cat FILE >/dev/null`, in alternating runs from a warm cache, medians of each.
#
#   scripts/bench-calibrate.sh QOBS MODEL.safetensors [REPETITIONS]
set -euo pipefail

qobs=$1 model=$2 repetitions=${3:-9}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

seconds() {
    local begin=$EPOCHREALTIME
    "$@" >/dev/null
    local end=$EPOCHREALTIME
    echo "$((${end/./} - ${begin/./}))" # microseconds
}
median() {
    sort -n "$1" | sed -n "$(((repetitions + 1) / 2))p"
}

cat "$model" >/dev/null
for ((i = 0; i < repetitions; i++)); do
    seconds cat "$model" >>"$out/cat"
    seconds "$qobs" calibrate "$model" --scheme W4A16 --quiet -o "$out/scales.safetensors" >>"$out/qobs"
done
c=$(median "$out/cat") q=$(median "$out/qobs")
# Peak memory beyond the mapped file: a mapped page counts once it has been read.
peak=$(/usr/bin/python3 - "$qobs" "$model" "$out/scales.safetensors" <<'P'
import os, resource, subprocess, sys
subprocess.run([sys.argv[1], "calibrate", sys.argv[2], "--scheme", "W4A16", "--quiet", "-o", sys.argv[3]], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 - os.path.getsize(sys.argv[2]) / 2**20)
P
)
awk -v c="$c" -v q="$q" -v p="$peak" 'BEGIN {
    printf "cat %.3f s, qobs calibrate %.3f s: %.2f of the speed of cat; peak memory %.1f MB beyond the mapped file\n",
           c / 1e6, q / 1e6, c / q, p }'
