#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares what the public headers declare with tests/public_api.txt: functions, structures with their members in order,
enumerations with their values. So a signature, the size of a structure and a value change only with that file.

    public_api.py [--write] FILE HEADER...

A release freezes the file: from then on functions stay, and structures and enumerations only get longer
(docs/versions.md).
"""
import difflib
import re
import sys


def words(text):
    return re.sub(r"\s*([(),;*{}\[\]])\s*", r"\1", " ".join(text.split())).replace("*", " *").replace("  ", " ").strip()


def declarations(text):
    """Lines for what a header declares."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", text, flags=re.M)
    text = re.sub(r'extern "C" \{', " ", text)
    for kind, body, name in re.findall(r"typedef (struct|enum) \w+ \{(.*?)\} (\w+);", text, re.S):
        members = re.split(";" if kind == "struct" else ",", body)
        yield from (f"{kind} {name}: {words(member)}" for member in members if member.strip())
    for name, declaration in sorted((m[2], m[1]) for m in re.finditer(r"QOBS_API([^;{]*?\b(qobs_\w+)\([^;]*\));", text)):
        yield f"function {name}: {words(declaration)}"


def main(arguments):
    write = arguments[0] == "--write"
    path, *headers = arguments[write:]
    found = []
    for header in headers:
        with open(header, encoding="utf-8") as file:
            found += [line + "\n" for line in declarations(file.read())]
    if write:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(found)
        return 0
    with open(path, encoding="utf-8") as file:
        expected = file.readlines()
    difference = [line for line in difflib.unified_diff(expected, found, path, "the headers", n=0)]
    sys.stdout.writelines(difference)
    functions = sum(line.startswith("function") for line in found)
    print(f"{len(found)} lines, {functions} functions; public_api.py --write takes what the headers say")
    return int(bool(difference) or functions == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
