#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests the Python package with the libraries of a build, without a wheel.

    python_package.py LIBQOBS LIBQOBS_CHECKPOINT [TEST]...

Puts the package beside the two libraries, as a wheel has them, into a temporary directory, and runs TESTs, files of
python/tests, there: all of them by default. Needs pytest; tests of packages that are not installed are skipped. Ends
with "N passed, N failed". Exit status 77: there is no pytest.
"""
import importlib.util
import os
import subprocess
import sys
import tempfile

PYTHON = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python")


def main():
    if not importlib.util.find_spec("pytest"):
        print("skipped: there is no pytest")
        return 77
    libraries = [os.path.abspath(path) for path in sys.argv[1:3]]
    tests = [os.path.join(PYTHON, "tests", name) for name in sys.argv[3:]] or [os.path.join(PYTHON, "tests")]
    with tempfile.TemporaryDirectory() as site:
        beside = os.path.join(site, ".libqobs.mesonpy.libs")  # as python/libqobs/_library.py expects it
        os.mkdir(beside)
        os.symlink(os.path.join(PYTHON, "libqobs"), os.path.join(site, "libqobs"))
        for path in libraries:
            os.symlink(path, os.path.join(beside, os.path.basename(path)))
        variables = dict(os.environ, PYTHONPATH=site, PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        return subprocess.run(command, env=variables).returncode


if __name__ == "__main__":
    sys.exit(main())
