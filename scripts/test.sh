#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Installs what is missing, builds qobs in build-test and tests it. Ends with "N passed, N failed"; exit status 0
# only if all passed; the lines before say what was left out. Times are those of two processors on a fresh machine.
#
#   scripts/test.sh fast        the build and suite fast: two minutes
#   scripts/test.sh             what says that qobs works here: ten minutes
#   scripts/test.sh --all       every compiler, sanitizer, emulator and framework: 40 minutes
#   scripts/test.sh STAGE...    these stages, by their names; --help lists them
#
#   --full    kernel checks 16 times and fuzzing at length, all tests under emulators; hours
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $* != *--help* ]] || sed -n '/^#   /s/^#   //p' "$0"
packages=(--tests)
[[ $* == fast ]] || packages+=(--install --python) # stages that need more install it while others build
scripts/setup.sh "${packages[@]}"
# ccache, if it is installed, for every compiler.
[[ ! -d /usr/lib/ccache ]] || export PATH=/usr/lib/ccache:$PATH
exec /usr/bin/python3 -B scripts/run_stages.py "$@"
