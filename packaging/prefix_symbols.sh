#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Names that a static library shares between its own files get the prefix qobs_inside_, so that a program may have the
# same names. Builds of Meson and CMake call it.
#
#   prefix_symbols.sh NM OBJCOPY LIBRARY                  in place
#   prefix_symbols.sh NM OBJCOPY LIBRARY AR OBJECT...     of new
set -eu
nm=$1 objcopy=$2 library=$3
shift 3
if [ $# -gt 0 ]; then
    ar=$1
    shift
    rm -f "$library"
    "$ar" crs "$library" "$@"
fi
names=$library.names
trap 'rm -f "$names"' EXIT
"$nm" -g --defined-only "$library" | awk 'NF == 3 && $3 !~ /^qobs_/ {print $3, "qobs_inside_" $3}' | sort -u >"$names"
"$objcopy" -D --redefine-syms="$names" "$library"
