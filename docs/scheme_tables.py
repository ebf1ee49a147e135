#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Checks the tables of schemes and formats in documents and in the Python package; with --write it rewrites them.

    scheme_tables.py [--write] PRINTER      PRINTER: the program scheme_tables of the build

A block lies between two lines that hold its beginning and its end. All other text is written by hand. The table of
devices must agree with docs/devices.json, which tests/clients_devices.py records.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCKS = {
    "common": ("README.md", "<!-- common schemes: written by docs/scheme_tables.py -->",
               "<!-- end of common schemes -->"),
    "schemes": ("docs/checkpoint.md", "<!-- schemes -->", "<!-- end -->"),
    "written": ("docs/checkpoint.md", "<!-- formats that are written -->", "<!-- end -->"),
    "read": ("docs/checkpoint.md", "<!-- formats that are read -->", "<!-- end -->"),
    "dialects": ("docs/checkpoint.md", "<!-- dialects -->", "<!-- end -->"),
    "manual": ("docs/qobs.1", '.\\" schemes', '.\\" end'),
    "python": ("python/libqobs/_schemes.py", "# made by docs/scheme_tables.py", "# end"),
}


def differences(python):
    """What the table of devices says otherwise than docs/devices.json, in which runs are recorded."""
    table = {}
    exec(python, table)
    recorded = json.loads((ROOT / "docs/devices.json").read_text(encoding="utf-8"))["schemes"]
    for scheme, models in recorded.items():
        for column, model in enumerate(("dense", "experts")):
            for device, found in models.get(model, {}).items():
                said = device in table["DEVICES"][scheme][column].split()
                if said != found["runs"]:
                    yield f"{scheme}, {model}, {device}: the table says {said}, docs/devices.json {found['runs']}"


def main():
    write, printer = "--write" in sys.argv, sys.argv[-1]
    text = subprocess.run([printer], check=True, capture_output=True, text=True).stdout
    blocks = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in text.split("@")[1:]}
    stale = set()
    for name, (file, begin, end) in BLOCKS.items():
        path = ROOT / file
        before, _, rest = path.read_text(encoding="utf-8").partition(f"{begin}\n")
        old, found, after = rest.partition(f"{end}\n")
        if not found:
            sys.exit(f"{file}: has no block from '{begin}' to '{end}'")
        blank = "\n" if file.endswith(".md") else ""
        new = f"{blank}{blocks[name]}{blank}"
        if new != old:
            stale.add(file)
            if write:
                path.write_text(f"{before}{begin}\n{new}{end}\n{after}", encoding="utf-8")
    wrong = list(differences(blocks["python"]))
    for line in wrong:
        print(line)
    for file in sorted(stale):
        print(f"{file}: " +
              ("rewritten" if write else "is stale; run docs/scheme_tables.py --write build/tests/scheme_tables"))
    failed = len(wrong) + (0 if write else len(stale))
    print(f"{len(BLOCKS)} blocks passed, 0 failed" if not failed else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
