#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The exercises of CONTRIBUTING.md: each patch of tests/exercises/ is all that such a change takes.

    exercises.py [--keep DIRECTORY] [PATCH]...

Copies the tree and builds the library once. Applies each patch to the copy, builds and runs the tests that are named
for it here, and takes the patch back. Without names: every patch. Ends with "N passed, N failed". With --keep the copy
and its build stay in DIRECTORY, and a second run only rebuilds what has changed.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATCHES = os.path.join(ROOT, "tests", "exercises")

# The tests of each patch, by their names in meson; "saved_states" proves that nothing else has changed.
TESTS = {
    "instruction-set": ["kernels portable", "functions", "minmax_layouts", "saved_states"],
    "number-format": ["format", "fake_quantize", "saved_states"],
    "packed-format": ["formats", "saved_states"],
    "sink": ["engine", "plan", "parts"],
    "state-part": ["exchange", "memory", "observer", "observer_in", "state", "untrusted", "preset pages",
                   "saved_states"],
    "observer": ["exchange", "memory", "observer", "state", "tensors", "untrusted", "preset pages", "saved_states"],
}
# -O1: each patch builds much of the library anew.
OPTIONS = ["-Doptimization=1", "-Dtests=enabled", "-Dprogram=enabled", "-Dbench=disabled", "-Dreference=disabled",
           "-Ddefault_library=static", "--werror"]


class Failure(Exception):
    pass


def run(*command, **options):
    """The output of a command; its failure comes with the output's end."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if not line.startswith("[")]
        raise Failure("\n".join([f"status {done.returncode}: {' '.join(command)}"] + lines[-60:]))
    return done.stdout


def files():
    """Returns the files that git tracks; without git, all that are no build."""
    if os.path.exists(os.path.join(ROOT, ".git")):
        return run("git", "ls-files", "-z", cwd=ROOT).rstrip("\0").split("\0")
    found = []
    for directory, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith(("build", ".", "__pycache__"))]
        found += [os.path.relpath(os.path.join(directory, name), ROOT) for name in names]
    return found


def copy_tree(target):
    """Files that have not changed keep their time, so that they are not built again. Files that the tree no longer
    has go."""
    wanted = set(files())
    for directory, _, names in os.walk(target):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.relpath(path, target) not in wanted:
                os.remove(path)
    for path in sorted(wanted):
        source, copy = os.path.join(ROOT, path), os.path.join(target, path)
        if not os.path.isfile(source):
            continue
        with open(source, "rb") as file:
            content = file.read()
        if os.path.exists(copy):
            with open(copy, "rb") as file:
                if file.read() == content:
                    continue
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(copy, "wb") as file:
            file.write(content)
        shutil.copymode(source, copy)


def apply(tree, patch, *options):
    # Outside of any repository, whose root the paths would otherwise be relative to.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(tree)}
    run("git", "apply", "-C1", *options, patch, cwd=tree, env=environment)


def build_and_test(tree, build, names):
    """How many tests have passed; raises for the first that has not."""
    run("meson", "setup", "--reconfigure", build, tree)
    tests = {test["name"]: test for test in json.loads(run("meson", "introspect", "--tests", build))}
    missing = [name for name in names if name not in tests]
    if missing:
        raise Failure(f"the build has no tests {', '.join(missing)}")
    outputs = {t["id"]: t["filename"] for t in json.loads(run("meson", "introspect", "--targets", build))}
    files_of_tests = {path for name in names for depend in tests[name]["depends"] for path in outputs[depend]}
    run("ninja", "-C", build, *sorted(os.path.relpath(path, build) for path in files_of_tests))
    for name in names:
        run("meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", "-t", "3", name)
    return len(names)


def exercise(tree, build, name):
    patch = os.path.join(PATCHES, name + ".patch")
    if name not in TESTS:
        raise Failure(f"{patch}: has no tests in exercises.py")
    apply(tree, patch)
    try:
        return build_and_test(tree, build, TESTS[name])
    finally:
        copy_tree(tree)


def main():
    parser = argparse.ArgumentParser(description="builds and tests the exercises of CONTRIBUTING.md")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where the copy and its build stay")
    parser.add_argument("patch", nargs="*", help="number-format, observer, ...")
    options = parser.parse_args()
    there = sorted(name[:-len(".patch")] for name in os.listdir(PATCHES) if name.endswith(".patch"))
    temporary = None if options.keep else tempfile.TemporaryDirectory()
    top = os.path.abspath(options.keep) if options.keep else temporary.name
    tree, build = os.path.join(top, "tree"), os.path.join(top, "build")
    passed = failed = 0
    try:
        copy_tree(tree)
        if not os.path.exists(os.path.join(build, "build.ninja")):
            run("meson", "setup", build, tree, *OPTIONS)
        for name in options.patch or there:
            begin = time.time()
            try:
                n = exercise(tree, build, name)
                passed += n
                print(f"{name}: {n} tests passed, {time.time() - begin:.0f} s", flush=True)
            except Failure as failure:
                failed += 1
                print(f"{name}: {failure}", flush=True)
    except Failure as failure:
        failed += 1
        print(failure)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
