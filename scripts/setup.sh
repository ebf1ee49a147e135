#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
#
# Installs what this machine lacks for building qobs, with apt-get (Debian 12 or later). Does nothing if all is there.
#
#   scripts/setup.sh [OPTION]...
#
#   --no-pictures without cairo, for -Dpictures=disabled
#   --tests   cmocka, and Python with numpy and pytest
#   --clang   the second compiler the tests use
#   --cross   compiler, emulator and libraries for aarch64; the emulator for older x86-64 CPUs
#   --bench   C++, Google Benchmark and gnuplot
#   --install Doxygen, and what the tests of an installed copy use
#   --python  what virtual environments need
#   --portable compilers, emulators and libraries for s390x, riscv64, musl and Windows
#   --windows clang for Windows, and wine
#   --fuzz    clang with libFuzzer and all sanitizers, valgrind, clang-tidy and cppcheck
#   --free-threaded what scripts/free-threaded.sh needs
set -euo pipefail

# Recommended packages are not installed, so the C library's headers are named, and dpkg-dev: Meson asks it for Debian's
# directory of libraries. Without an answer it takes lib64, where neither the loader nor CMake looks.
packages=(gcc libc6-dev dpkg-dev meson ninja-build pkg-config libsleef-dev libjson-c-dev libpcre2-dev libyaml-dev
          libpthreadpool-dev)
pictures=(libcairo2-dev)
foreign=()
for option; do
    case $option in
    # numpy takes the slow reference BLAS unless another one comes along with it.
    --tests) packages+=(libcmocka-dev python3 python3-numpy libopenblas0-pthread python3-pytest) ;;
    --no-pictures) pictures=() ;;
    --clang) packages+=(clang libomp-dev) ;;
    --cross)
        foreign+=(arm64)
        # Not libpthreadpool-dev:arm64: it cannot stand beside the native one. The cross build goes without.
        packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
                   libsleef-dev:arm64 libjson-c-dev:arm64 libpcre2-dev:arm64 libyaml-dev:arm64
                   libcmocka-dev:arm64 libgomp1:arm64)
        ;;
    --bench) packages+=(g++ libbenchmark-dev gnuplot-nox python3-numpy libopenblas0-pthread) ;;
    --install) packages+=(g++ cmake make doxygen mandoc zsh abigail-tools) ;;
    --python) packages+=(python3-venv) ;;
    --portable)
        foreign+=(s390x)
        packages+=(gcc-s390x-linux-gnu libc6-dev-s390x-cross libcmocka-dev:s390x libgomp1:s390x libsleef-dev:s390x
                   libjson-c-dev:s390x gcc-riscv64-linux-gnu libc6-dev-riscv64-cross musl-tools
                   gcc-mingw-w64-x86-64-posix qemu-user)
        ;;
    --windows) packages+=(clang-19 gcc-mingw-w64-x86-64-posix wine64) ;;
    --free-threaded) packages+=(make xz-utils libffi-dev libssl-dev zlib1g-dev) ;;
    --fuzz) packages+=(clang-19 libclang-rt-19-dev llvm-19 clang-tidy-19 cppcheck valgrind) ;;
    *)
        sed -n '/^#   /s/^#   //p' "$0" >&2
        exit 2
        ;;
    esac
done

packages+=("${pictures[@]}")

native=$(dpkg --print-architecture)
installed=$'\n'$(dpkg-query -W -f '${Package}:${Architecture} ${db:Status-Status}\n')$'\n'
missing=()
for package in "${packages[@]}"; do
    name=${package%:*}
    architecture=$native
    [[ $package == *:* ]] && architecture=${package#*:}
    [[ $installed == *$'\n'"$name:$architecture installed"$'\n'* ||
        $installed == *$'\n'"$name:all installed"$'\n'* ]] ||
        missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || {
        echo "setup: as root, without sudo: apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    }
    as_root=(sudo)
fi
# A machine that has just started may be installing its own updates: wait for the lock.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)

echo "setup: installing ${missing[*]}"
for architecture in "${foreign[@]}"; do
    [[ $architecture == "$native" ]] || "${as_root[@]}" dpkg --add-architecture "$architecture"
done
# A source that cannot be reached is only told of: what is wanted may come from another.
"${apt[@]}" update || echo "setup: apt-get update had trouble, going on" >&2
"${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null
