#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
#   symbols.sh SHARED STATIC SOVERSION
#
# The shared library exports what the headers declare and nothing else, under a soname that ends in SOVERSION; no name
# that the static library gives to a program lacks the prefix.
set -eu
include=$(dirname "$0")/../include/qobs
fail() {
    echo "$*"
    exit 1
}
names() {
    nm "$@" | awk 'NF == 3 && $2 ~ /[A-Z]/ {print $3}' | sort -u
}

exported=$(names -D --defined-only "$1")
declared=$(cat "$include/qobs.h" "$include/stateless.h" "$include/format.h" "$include/plan.h" "$include/quantizer.h" \
    "$include/gguf.h" "$include/experimental.h" |
    grep -o '\bqobs_[a-z0-9_]*(' | tr -d '(' | sort -u)
[ -n "$exported" ] || fail "no exported symbols in $1"
[ "$exported" = "$declared" ] || fail "exported and declared are not the same:
$(printf '%s\n%s\n' "$exported" "$declared" | sort | uniq -u)"

static=$(names --extern-only --defined-only "$2")
[ -n "$static" ] || fail "no symbols in $2"
stray=$(echo "$static" | grep -Ev '^(__odr_asan\.)?qobs_' || true) # the address sanitizer names every variable twice
[ -z "$stray" ] || fail "without the prefix, in $2: $stray"

soname=$(readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$soname" = "libqobs.so.$3" ] || fail "the soname of $1 is '$soname', expected libqobs.so.$3"
echo "$(echo "$exported" | wc -l) symbols, $(echo "$static" | wc -l) in the static library"
