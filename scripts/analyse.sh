#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# clang-tidy and cppcheck over the library and the program. Ends with "N passed, N failed".
#
#   scripts/analyse.sh BUILD [OPTION]...
#
#   BUILD     a build by gcc, for its compile commands
#   OPTION    of clang-tidy
set -euo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0
count() {
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

# tidy COMMANDS OPTION...
tidy() {
    find src checkpoint tools -name '*.c' -not -path 'src/neon/*' -print0 |
        xargs -0 -P "$(nproc)" -n 4 clang-tidy-19 --quiet -p "$@"
}

commands=$(mktemp -d)
trap 'rm -r "$commands"' EXIT
# Options that gcc alone knows.
sed -E 's/ -fno-ipa-ra| -fno-ipa-cp-clone| --param=max-unswitch-[a-z]+=[0-9]+//g' "$1"/compile_commands.json \
    >"$commands"/compile_commands.json
count tidy "$commands" "${@:2}"
# Not the kernels: it takes hours for what the vector types expand to.
mapfile -t folders < <(find src -mindepth 1 -maxdepth 1 -type d | grep -Ev '/(templates|avx2|avx512|neon)$')
count cppcheck -j "$(nproc)" --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
    --suppressions-list=scripts/cppcheck-suppressions.txt -DQOBS_SLEEF -D__x86_64__ \
    -Iinclude -Isrc -Icheckpoint -Itools "${folders[@]}" checkpoint tools
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
