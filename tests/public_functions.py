#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Lists what the public headers declare, for test_arguments.c:

    public_functions.py OUTPUT HEADER...

A line FUNCTION(name, "parameters") for each function, and STRUCTURE(name, "members") for each structure that functions
take arguments in. Parameters named error are left out: every call is also made without."""
import re
import sys


def names(declarations, separator):
    found = []
    for declaration in declarations.split(separator):
        match = re.search(r"(\w+)(\[\w+\])?\s*$", declaration.strip())
        if match and match[1] != "void":
            found.append(match[1])
    return found


def main(output, *headers):
    lines = []
    for header in headers:
        with open(header, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for name, parameters in re.findall(r"QOBS_API[^;(]*?\b(qobs_\w+)\(([^;]*)\);", text):
            words = [word for word in names(parameters, ",") if word != "error"]
            lines.append(f'FUNCTION({name}, "{" ".join(words)}")')
        for members, name in re.findall(r"typedef struct \w+ \{([^{}]*)\} (qobs_\w+_(?:args|buffers|state));", text, re.S):
            lines.append(f'STRUCTURE({name}, "{" ".join(names(members, ";"))}")')
    if not any(line.startswith("FUNCTION") for line in lines):
        sys.exit("no function found")
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(sorted(set(lines))) + "\n")


main(*sys.argv[1:])
