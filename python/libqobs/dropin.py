# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Drop-ins for frameworks that a program imports later, and scripts that run unchanged with them.

    install()    each drop-in, as soon as its framework is imported
    uninstall()  takes all of them back, and the import hook

    python -m libqobs.dropin [--strict] [--only NAME,NAME] [--calls] SCRIPT [ARGUMENT ...]
    python -m libqobs.dropin [...] -m MODULE [ARGUMENT ...]

A drop-in is installed when the script imports its framework. --strict: a call that fails in qobs raises. --only: the
drop-ins llmcompressor, torch_ao, modelopt, quark, onnxruntime. --calls: prints dropin_calls() at the end."""
from __future__ import annotations

import argparse
import os
import runpy
import sys

from ._dropin import dropin_calls
from ._install import DROPINS, install, uninstall

__all__ = ["install", "main", "report", "uninstall"]


def report() -> str:
    """dropin_calls() as a table."""
    calls = dropin_calls()
    return "\n".join(f"{n:8d} {name}" for name, n in sorted(calls.items())) or "no call"


def main(arguments: list[str] | None = None) -> None:
    """The program. arguments: without its name."""
    parser = argparse.ArgumentParser("python -m libqobs.dropin", description="Runs a script with the drop-ins of qobs.")
    parser.add_argument("--strict", action="store_true", help="a call that fails in qobs raises")
    parser.add_argument("--only", metavar="NAMES", help=f"drop-ins, separated by commas: {', '.join(DROPINS)}")
    parser.add_argument("--calls", action="store_true", help="print how many calls were served, at the end")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    try:
        install(given.only.split(",") if given.only else None, strict=given.strict)
    except ValueError as e:
        parser.error(str(e))
    sys.argv = [given.script, *given.arguments]
    try:
        if given.module:
            sys.path[0] = os.getcwd()
            runpy.run_module(given.script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(given.script))
            runpy.run_path(given.script, run_name="__main__")
    finally:
        if given.calls:
            print(f"qobs: calls of the drop-ins\n{report()}", file=sys.stderr)


if __name__ == "__main__":
    main()
