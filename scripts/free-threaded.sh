#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Builds a Python without a global interpreter lock from Debian's source package, for scripts/test.sh python. Takes ten
# minutes of a processor and 900 MB; installs the headers it needs with apt-get.
#
#   scripts/free-threaded.sh DIRECTORY
#
# The program is DIRECTORY/bin/python3.13t.
set -euo pipefail
if [[ $# -ne 1 || $1 == -* ]]; then
    sed -n '/^#   /s/^#   //p' "$0" >&2
    exit 2
fi
"$(dirname "$0")/setup.sh" --free-threaded
mkdir -p "$1"
directory=$(cd "$1" && pwd)
cd "$directory"

source=http://deb.debian.org/debian/pool/main/p/python3.13/python3.13_3.13.5.orig.tar.xz
sum=93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640
if ! echo "$sum  source.tar.xz" | sha256sum --check --status 2>/dev/null; then
    python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' $source source.tar.xz
    echo "$sum  source.tar.xz" | sha256sum --check --status
fi
rm -rf source
mkdir source
tar -xf source.tar.xz --strip-components=1 -C source
cd source
./configure --disable-gil --prefix="$directory" --with-ensurepip=install
make -j"$(nproc)"
make install
rm -rf "$directory/source"
