#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares what the public headers declare with python/libqobs/declarations.txt: constants, functions, structures with
their members in order, enumerations with their values. So a signature, the size of a structure and a value change only
with that file. The Python package makes its ctypes of it.

    public_api.py [--write]

A release freezes the file: from then on functions stay, and structures and enumerations only get longer
(docs/versions.md). Other scripts import what reads a header here.
"""
import difflib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "python" / "libqobs" / "declarations.txt"


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def words(text):
    return re.sub(r"\s*([(),;*{}\[\]])\s*", r"\1", " ".join(text.split())).replace("*", " *").replace("  ", " ").strip()


def declarations(text):
    """Yields (kind, name, text) for what a header declares: constant, struct or enum by members, function."""
    text = without_comments(text)
    for match in re.finditer(r"^#define (QOBS_(?!VERSION_PATCH)\w+) (\d+)\s*$", text, flags=re.M):
        yield "constant", *match.groups()
    text = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", text, flags=re.M)
    text = re.sub(r'extern "C" \{', " ", text)
    for kind, body, name in re.findall(r"typedef (struct|enum) \w+ \{(.*?)\} (\w+);", text, re.S):
        members = re.split(";" if kind == "struct" else ",", body)
        yield from ((kind, name, words(member)) for member in members if member.strip())
    for name, declaration in sorted((m[2], m[1])
                                    for m in re.finditer(r"QOBS_API([^;{]*?\b(qobs_\w+)\([^;]*\));", text)):
        yield "function", name, words(declaration)


def of_headers(paths):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            yield from declarations(file.read())


def by_member(text):
    lines = (line.partition(": ") for line in text.splitlines())
    return [f"{head}: {member}\n" for head, _, members in lines for member in members.split("; ")]


def main(arguments):
    headers, found = sorted((ROOT / "include" / "qobs").glob("*.h")), {}
    for kind, name, text in of_headers(headers):
        found.setdefault(f"{kind} {name}: ", []).append(text)
    text = "".join(f"{head}{'; '.join(members)}\n" for head, members in found.items())
    if arguments == ["--write"]:
        FILE.write_text(text, encoding="utf-8")
        return 0
    difference = list(difflib.unified_diff(by_member(FILE.read_text(encoding="utf-8")), by_member(text), FILE.name,
                                           "the headers", n=0))
    sys.stdout.writelines(difference)
    functions = sum(head.startswith("function") for head in found)
    print(f"{len(found)} declarations, {functions} functions; public_api.py --write takes what the headers say")
    return int(bool(difference) or functions == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
