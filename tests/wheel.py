#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""A wheel is small, fits every Python with one manylinux policy, and works alone in each that is here.

    wheel.py WHEEL...

There must be one WHEEL. Each Python gets an empty environment, without pip, that has the package alone. One environment
has pytest and the other distribution of PyPI whose name is like ours, too. Ends with "N passed, N failed".
"""
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

PLAIN = pathlib.Path(__file__).resolve().parents[1] / "python" / "tests" / "plain.py"
NAME = re.compile(r"libqobs-[^-]*-py3-none-manylinux_2_\d+_[a-z0-9_]+\.whl")
PAGES = ["python.md", "checkpoint.md", "presets/llmc.md"]
MOST = 4_000_000  # bytes; four libraries of others are a half of it


def pythons():
    """One of each version that the package supports."""
    versions = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")) + "/versions"
    for minor in range(10, 16):
        for python in [f"python3.{minor}", *sorted(glob.glob(f"{versions}/3.{minor}.*/bin/python3"))]:
            try:
                subprocess.run([python, "-c", "import venv"], check=True, stderr=subprocess.DEVNULL)
            except (OSError, subprocess.CalledProcessError):
                continue
            yield python
            break


def has_pages(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    return all(any(name.endswith("/libqobs/docs/" + page) for name in names) for page in PAGES)


def alone(python, wheel):
    with tempfile.TemporaryDirectory() as directory:
        there = directory + "/bin/python"
        pip = [sys.executable, "-m", "pip", "--python", there, "install", "-q", "--no-index", "--no-deps", wheel]
        for command in [[python, "-m", "venv", "--without-pip", directory], pip]:
            subprocess.run(command, check=True)
        return subprocess.run([there, str(PLAIN)], check=True, stdout=subprocess.PIPE, text=True).stdout == "[]\n"


BOTH = """
import sys
before = list(sys.meta_path)
import libqobs
assert sys.meta_path == before
import qobs
assert libqobs.quantize and not hasattr(qobs, "quantize") and "libqobs" not in qobs.__file__
"""


def beside(wheel):
    """Both distributions import, in either order of installation, and pytest says the same as before."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        python = directory + "/bin/python"
        ours, theirs = ["--no-index", "--no-deps", wheel], ["qobs==0.0.3", "pytest"]

        def pip(*arguments):
            subprocess.run([python, "-m", "pip", "-q", "--disable-pip-version-check", *arguments], check=True)

        def versions():
            command = [python, "-m", "pytest", "--version", "--version"]
            return subprocess.run(command, check=True, capture_output=True, text=True, cwd=directory).stdout
        pip("install", *theirs)
        before = versions()
        pip("install", *ours)
        good = versions() == before
        subprocess.run([python, "-c", BOTH], check=True)
        pip("uninstall", "-y", "qobs")
        subprocess.run([python, "-c", "import libqobs; libqobs.presets()"], check=True)
        pip("install", *theirs)
        subprocess.run([python, "-c", BOTH], check=True)
        return good


def main():
    passed = failed = 0
    wheels = sys.argv[1:]
    size = os.path.getsize(wheels[0])
    print(f"{wheels[0]}, {size} bytes")
    checks = [(f"the only wheel: {wheels}", len(wheels) == 1),
              (f"name: {wheels[0]}", NAME.fullmatch(os.path.basename(wheels[0]))), (f"size: {size} bytes", size < MOST),
              (f"pages: {' '.join(PAGES)}", has_pages(wheels[0]))]
    for python in pythons():
        try:
            checks.append((python, alone(python, wheels[0])))
        except subprocess.CalledProcessError as error:
            checks.append((f"{python}: {error}", False))
    try:
        checks.append(("beside qobs of PyPI", beside(os.path.abspath(wheels[0]))))
    except subprocess.CalledProcessError as error:
        checks.append((f"beside qobs of PyPI: {error}", False))
    for what, good in checks:
        passed, failed = passed + bool(good), failed + (not good)
        if not good:
            print(f"FAILED {what}")
    if len(checks) == 5:
        print("FAILED: no Python from 3.10 on")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
