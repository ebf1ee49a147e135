#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Compares the binary interfaces of two versions: functions, parameters, structures and enumerations of libqobs and of
# libqobs-checkpoint, as their debug information and the public headers have them. Prints what abidiff (Debian's
# abigail-tools) finds. The exit status is 0 if both are the same, 1 if NEW differs, and 2 if there is no answer.
#
#   scripts/compare-releases.sh [-D...] OLD [NEW]
#
#   OLD, NEW     commits or tags; NEW defaults to this tree with its uncommitted changes
#   -D...        options of `meson setup`, for both: -Dcheckpoint_library=disabled compares libqobs alone
#
# Builds stay in build-releases/. A release compares itself with the one before: docs/versions.md says what may differ.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '/^#   /s/^#   //p' "$0" >&2
    exit 2
}
versions=() options=(-Dcheckpoint_library=enabled)
for argument; do
    case $argument in
    -D*) options+=("$argument") ;;
    -*) usage ;;
    *) versions+=("$argument") ;;
    esac
done
[[ ${#versions[@]} -eq 1 || ${#versions[@]} -eq 2 ]] || usage
command -v abidiff >/dev/null || { echo "abidiff is missing: apt-get install abigail-tools" >&2 && exit 2; }

top=$PWD/build-releases
# Kernels are not part of the interface: the scalar ones are built soonest.
build() { # SOURCE DIRECTORY
    rm -rf "$2"
    meson setup "$2" "$1" --buildtype=debug --prefix "$2/installed" --libdir lib -Ddefault_library=shared -Disa= \
        -Dprogram=disabled -Dtests=disabled -Dbench=disabled -Dreference=disabled "${options[@]}" &&
        nice meson install -C "$2"
}
build_version() { # COMMIT OR . and DIRECTORY
    local source=$PWD
    if [[ $1 != . ]]; then
        git rev-parse --verify --quiet "$1^{commit}" >/dev/null || { echo "$1: no commit" >&2 && exit 2; }
        source=$2.source
        rm -rf "$source"
        mkdir -p "$source"
        git archive "$1" | tar -x -C "$source"
    fi
    build "$source" "$2" >"$2.log" 2>&1 || { tail -n 30 "$2.log" >&2 && echo "$1: does not build" >&2 && exit 2; }
}
mkdir -p "$top"
old=$top/old new=$top/new
build_version "${versions[0]}" "$old"
build_version "${versions[1]:-.}" "$new"

differs=0 compared=0
for library in qobs qobs-checkpoint; do
    files=("$old/installed/lib/lib$library.so" "$new/installed/lib/lib$library.so")
    [[ -e ${files[0]} || -e ${files[1]} ]] || continue
    status=0
    abidiff --no-show-locs --headers-dir1 "$old/installed/include" --headers-dir2 "$new/installed/include" \
        --drop-private-types "${files[@]}" || status=$?
    # Bits 1 and 2 are errors of abidiff.
    [[ $((status & 3)) -eq 0 ]] || { echo "lib$library: abidiff failed" >&2 && exit 2; }
    [[ $status -eq 0 ]] || differs=1
    compared=$((compared + 1))
    echo "lib$library: $([[ $status -eq 0 ]] && echo 'the same interface' || echo 'the interface differs')"
done
[[ $compared -gt 0 ]] || { echo "no library was built" >&2 && exit 2; }
exit $differs
