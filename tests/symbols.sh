#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared library exports qobs_ names and nothing else.
set -eu
exported=$(nm -D --defined-only "$1" | awk '$2 ~ /[A-Z]/ {print $3}')
[ -n "$exported" ] || { echo "no exported symbols in $1"; exit 1; }
stray=$(echo "$exported" | grep -v '^qobs_' || true)
[ -z "$stray" ] || { echo "exported without the prefix: $stray"; exit 1; }
# Hidden tables and helpers carry the prefix as well; the header is the list of what may be seen.
header=$(dirname "$0")/../include/qobs/qobs.h
for symbol in $exported; do
    grep -qw "$symbol" "$header" || { echo "$symbol is exported, but not in the header"; exit 1; }
done
echo "$(echo "$exported" | wc -l) symbols"
