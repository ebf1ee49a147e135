#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
#   stray_instructions.sh AVX2 AVX512 OTHER...
#
# The library AVX2 has no AVX-512. OTHER, libraries and directories of objects, have neither that nor AVX: they run on
# every CPU.
set -eu
avx='\sv[a-z0-9]+ .*%[xyz]mm' avx512='%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])'
fail() {
    echo "$*"
    exit 1
}
code() {
    objdump -d --no-show-raw-insn "$@"
}
with() {
    code "$1" | grep -qE "$2" || fail "no instruction like $2 in $1: is it the right library?"
}
without() {
    name=$1 expression=$2
    # shellcheck disable=SC2086 # several files
    found=$(code $name | grep -E "$expression" | head -n 5) || true
    [ -z "$found" ] || fail "$name has instructions of later CPUs:
$found"
}
with "$1" "$avx"
with "$2" "$avx512"
without "$1" "$avx512"
shift 2
for file; do
    [ ! -d "$file" ] || file=$(echo "$file"/*.o)
    without "$file" "$avx|$avx512"
done
