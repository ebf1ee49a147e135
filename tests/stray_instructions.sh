#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
#   stray_instructions.sh BUILD
#
# The AVX2 kernels have no AVX-512, the AVX-512 kernels have it. All else of the library and the program has neither
# that nor AVX: it runs on every CPU.
set -eu
cd "$1"
avx='\sv[a-z0-9]+ .*%[xyz]mm' avx512='%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])'
fail() {
    echo "$*"
    exit 1
}

# with DIRECTORY EXPRESSION; without DIRECTORY EXPRESSION
with() {
    objdump -d --no-show-raw-insn "$1"/*.o | grep -qE "$2" || fail "no instruction like $2 in $1: is it the right one?"
}
without() {
    found=$(objdump -d --no-show-raw-insn "$1"/*.o | grep -E "$2" | head -n 5) || true
    [ -z "$found" ] || fail "$1 has instructions of later CPUs:
$found"
}
with src/libkernels_avx2.a.p "$avx"
with src/libkernels_avx512.a.p "$avx512"
for directory in src/lib*_avx2.a.p; do
    without "$directory" "$avx512"
done
for directory in src/lib*_scalar.a.p src/libqobs_inside.a.p checkpoint/*.a.p tools/qobs.p; do
    without "$directory" "$avx|$avx512"
done
