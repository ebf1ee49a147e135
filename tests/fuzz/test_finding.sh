#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# scripts/fuzz.sh tells of a finding all that is needed to see it again. In DIRECTORY, with CLANG.
#
#   tests/fuzz/test_finding.sh DIRECTORY CLANG
set -euo pipefail
script=$(dirname "$0")/../../scripts/fuzz.sh top=$1 clang=$2
rm -rf "$top"
mkdir -p "$top/build/tests/fuzz"

# A target that fails for one input, longer than what libFuzzer prints; nothing to build.
echo 'build all: phony' >"$top/build/build.ninja"
"$clang" -fsanitize=fuzzer -x c - -o "$top/build/tests/fuzz/fuzz_fails" <<'C'
#include <stdint.h>
#include <stdlib.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 1000 && data[0] == '!' && data[999] == '!')
        abort();
    return 0;
}
C
cat >"$top/build/tests/fuzz/fuzz_seeds" <<'S'
#!/bin/sh
mkdir -p "$1/fails" && printf '!%0998d!' 0 >"$1/fails/failing"
S
chmod +x "$top/build/tests/fuzz/fuzz_seeds"

status=0
"$script" "$(realpath "$top")" 2 fails >"$top/told" || status=$?
[[ $status -eq 1 && $(grep -c '^seed 1$' "$top/told") -eq 1 ]]
[[ $(tail -n 1 "$top/told") == '0 passed, 1 failed' ]]
sed -n '/^input, for/{n;p}' "$top/told" | base64 -d >"$top/input"
cmp "$top/input" "$top/seeds/fails/failing"
! "$top/build/tests/fuzz/fuzz_fails" "$top/input" 2>/dev/null || exit 1

# Nothing that cannot be a seed.
for seed in 0 -1 x 1234567890123; do
    ! "$script" --seed $seed "$top" 2 2>/dev/null || exit 1
done
