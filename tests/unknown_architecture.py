#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Runs `qobs quantize` on a model whose types and classes have no row, so that the general rule alone decides.

    QOBS=build/tools/qobs unknown_architecture.py quantize MODEL -o OUT ...

Every model_type and class of config.json gets another name in a copy of the directory, and its own again in the output.
Other commands run as they are. It is a program for tests/zoo.py: its status 3 with an output says "unknown".
"""
import json
import os
import subprocess
import sys
import tempfile

SUFFIX = "_that_nobody_knows"


def renamed(value, change):
    if isinstance(value, list):
        return [renamed(v, change) for v in value]
    if not isinstance(value, dict):
        return value
    out = {k: renamed(v, change) for k, v in value.items()}
    if isinstance(out.get("model_type"), str):
        out["model_type"] = change(out["model_type"])
    if isinstance(out.get("architectures"), list):
        out["architectures"] = [change(a) for a in out["architectures"]]
    return out


def rewrite(source, out, change):
    with open(source, encoding="utf-8") as file:
        config = json.load(file)
    if os.path.lexists(out):
        os.unlink(out)
    with open(out, "w", encoding="utf-8") as file:
        json.dump(renamed(config, change), file)


def main():
    qobs, arguments = os.environ["QOBS"], sys.argv[1:]
    if arguments[:1] != ["quantize"]:
        os.execv(qobs, [qobs, *arguments])
    model, out = arguments[1], arguments[arguments.index("-o") + 1]
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(out))) as copy:
        for name in os.listdir(model):
            os.symlink(os.path.join(os.path.abspath(model), name), os.path.join(copy, name))
        rewrite(os.path.join(model, "config.json"), os.path.join(copy, "config.json"), lambda t: t + SUFFIX)
        status = subprocess.run([qobs, "quantize", copy, *arguments[2:]]).returncode
    config = os.path.join(out, "config.json")
    if os.path.exists(config):
        rewrite(config, config, lambda t: t.removesuffix(SUFFIX))
    return status


if __name__ == "__main__":
    sys.exit(main())
