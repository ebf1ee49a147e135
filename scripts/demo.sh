#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# From nothing to a quantized checkpoint: installs what is missing, builds the program in build-demo and runs it on the
# example model.
set -euo pipefail
cd "$(dirname "$0")/.."

# quietly COMMAND...: its output is shown only when it fails.
quietly() {
    local output status=0
    output=$("$@" 2>&1 </dev/null) || status=$?
    [[ $status -eq 0 ]] || printf '%s\n' "$output" >&2
    return "$status"
}

# show COMMAND...: prints the command, then runs it.
show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

scripts/setup.sh --no-pictures
echo "building the program in build-demo, with -O1: quicker than a release, the same results"
[[ -e build-demo/build.ninja ]] ||
    quietly meson setup -Doptimization=1 -Dprogram=enabled -Dpictures=disabled -Dtests=disabled -Dbench=disabled \
        build-demo
if [[ -t 1 ]]; then
    ninja -C build-demo tools/qobs # one line that says how far it is
else
    quietly ninja -C build-demo tools/qobs
fi

qobs=build-demo/tools/qobs
# A checkpoint for vLLM: 4-bit integers, a scale for every 128 columns of a row.
show $qobs quantize examples/tinylm --scheme W4A16 --preset llmc.memoryless_mse --replace -o build-demo/tinylm-W4A16
show $qobs audit build-demo/tinylm-W4A16 --against examples/tinylm
# Activations: the input of one layer, as 8-bit integers with one scale.
show $qobs observe --preset llmc.minmax --set num_bits=8 --set strategy=tensor \
    examples/tinylm/activations.safetensors:model.layers.0.mlp.down_proj.input
