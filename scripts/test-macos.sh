#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Builds the library on macOS in build-macos and runs the short tests, kernels and golden cases. Needs Homebrew. Ends
# with Meson's summary.
set -euo pipefail
cd "$(dirname "$0")/.."
brew install meson ninja cmocka
[[ -e build-macos/build.ninja ]] ||
    meson setup --werror -Dprogram=disabled -Dcheckpoint_library=disabled -Dtests=enabled -Dbench=disabled \
        -Dreference=disabled build-macos
ninja -C build-macos
meson test -C build-macos --print-errorlogs --suite fast --suite kernels --suite golden
