#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Builds the library for Windows, and packs it: DLL, static library, headers, CMake package. README's C program, linked
# with what is packed, runs under wine.
#
#   scripts/release-windows.sh OUT
#
#   OUT   the directory that gets qobs-VERSION-windows-x86_64.zip
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/setup.sh --windows
version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build)
name=qobs-$version-windows-x86_64
meson setup "$work/build" --cross-file scripts/cross/x86_64-w64-mingw32-clang.ini --prefix "$work/$name" \
    -Dsleef=disabled -Dprogram=disabled -Dtests=disabled -Dbench=disabled -Dreference=disabled
meson install -C "$work/build"
rm -rf "$work/$name/lib/pkgconfig" # its prefix is a path of this machine
cp LICENSE "$work/$name"

x86_64-w64-mingw32-gcc-posix -std=c11 -DQOBS_USE_SHARED -I"$work/$name/include" examples/weight_scales.c \
    "$work/$name/lib/libqobs.dll.a" -o "$work/$name/bin/weight_scales.exe"
printed=$(WINEPREFIX=$work/wine WINEDEBUG=-all /usr/lib/wine/wine64 "$work/$name/bin/weight_scales.exe" 2>"$work/log" |
    tr -d '\r')
[[ $printed == 'scales of the first row: 0.0933333 1.19209e-07' ]] || {
    echo "release-windows.sh: the example prints '$printed'" >&2
    cat "$work/log" >&2
    exit 1
}
rm "$work/$name/bin/weight_scales.exe"
(cd "$work" && /usr/bin/python3 -m zipfile -c "$out/$name.zip" "$name")
