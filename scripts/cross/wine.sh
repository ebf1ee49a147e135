#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Runs a program for Windows by wine64 of Debian, which is in no PATH. wine 8 sometimes loses the connection to its
# server before a program begins ("wine client error:0: recvmsg: Connection reset by peer"): it is then started anew,
# twice at most. A program that has begun runs once.
#
#   wine.sh PROGRAM [ARGUMENT]...
wine=${WINE:-/usr/lib/wine/wine64}
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
for attempt in 1 2 3; do
    "$wine" "$@" 2>"$errors"
    status=$?
    [[ $attempt -lt 3 && $status -eq 1 && $(head -c 19 "$errors") == 'wine client error:0' ]] || break
done
cat "$errors" >&2
exit "$status"
