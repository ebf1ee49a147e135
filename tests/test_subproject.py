#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The library inside another project of Meson, which builds all of it again.

    python3 test_subproject.py PREFIX/bin/qobs      PREFIX has the examples
"""
import glob, json, os, shutil, sys

import cli
from cli import check, equal
from test_installed import EXAMPLES, ROW, SOURCE, attempt, cmake_example, environment, libdir, needs_library, sh


def test_subproject():
    shutil.copytree(EXAMPLES + "/meson", "parent")
    os.makedirs("parent/subprojects")
    os.symlink(SOURCE, "parent/subprojects/qobs")
    no_copy = {k: v for k, v in os.environ.items() if k != "PKG_CONFIG_PATH"}
    sh("meson setup b parent -Doptimization=1 --werror --prefix=/usr --force-fallback-for=qobs", no_copy)
    outputs = []
    for kind in ["both", "static", "shared"]:
        sh(f"meson configure b -Dqobs:default_library={kind} && ninja -C b", no_copy)
        outputs.append(sh("b/dynamic_tokens", no_copy))
        check(needs_library("b/dynamic_tokens") == (kind != "static"), f"{kind}: what is linked")
        targets = json.loads(sh("meson introspect --targets b", no_copy))
        others = {t["name"] for t in targets if t["type"] in ("executable", "custom", "run")}
        equal(others, {"dynamic_tokens"}, f"{kind}: the library alone")
        # The files that the parent project installs.
        root = os.path.abspath(kind)
        sh(f"meson install -C b --no-rebuild --destdir {root}", no_copy)
        env = environment("/usr", root)
        names = {os.path.basename(f) for f in glob.glob(libdir(root) + "/libqobs.*")}
        equal(("libqobs.a" in names, "libqobs.so" in names), (kind != "shared", kind != "static"), f"{kind}: libraries")
        sh(f"cc {EXAMPLES}/weight_scales.c $(pkg-config --cflags --libs qobs) -o a", env)
        check(needs_library("a") == (kind != "static"), f"{kind}: library of pkg-config")
        equal(sh("./a", env), ROW, f"{kind}: pkg-config")
        cmake_example(env, kind == "static")
        if kind == "shared":
            status, output = attempt(f"rm -rf c && cmake -S {EXAMPLES}/cmake -B c -Dqobs_USE_STATIC_LIBS=ON", env)
            check(status != 0 and "libqobs.a" in output, "a static library that is not there is missed", output)
    equal(len(set(outputs)), 1, "the same output of all kinds")


if __name__ == "__main__":
    sys.exit(cli.main({"test_subproject": test_subproject}))
