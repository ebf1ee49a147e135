#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Makes a virtual environment with packages of PyPI; that of an earlier run with the same packages serves.
#
#   scripts/environment.sh DIRECTORY PACKAGE...
set -euo pipefail
directory=$1
if [[ -x $directory/bin/python && -e $directory/packages && $(<"$directory/packages") == "${*:2}" ]]; then
    exit 0
fi
rm -rf "$directory"
python3 -m venv "$directory"
timeout 1800 "$directory/bin/pip" install --disable-pip-version-check "${@:2}"
echo "${*:2}" >"$directory/packages"
