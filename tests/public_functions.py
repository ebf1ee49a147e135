#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Lists what the public headers declare, for test_arguments.c:

    public_functions.py OUTPUT HEADER...

A line FUNCTION(name, "parameters") for each function, and STRUCTURE(name, "members") for each structure that functions
take arguments in. Parameters named error are left out: every call is also made without."""
import re
import sys

from public_api import of_headers


def names(text, separator):
    found = (re.search(r"(\w+)(\[\w+\])?$", part) for part in text.split(separator))
    return [match[1] for match in found if match and match[1] != "void"]


def main(output, *headers):
    lines, members = [], {}
    for kind, name, text in of_headers(headers):
        if kind == "function":
            parameters = text[:-1].split(name + "(", 1)[1]
            words = [word for word in names(parameters, ",") if word != "error"]
            lines.append(f'FUNCTION({name}, "{" ".join(words)}")')
        elif kind == "struct" and re.search("_(args|buffers|state)$", name):
            members.setdefault(name, []).extend(names(text, ";"))
    lines += [f'STRUCTURE({name}, "{" ".join(words)}")' for name, words in members.items()]
    if not any(line.startswith("FUNCTION") for line in lines):
        sys.exit("no function found")
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(sorted(set(lines))) + "\n")


main(*sys.argv[1:])
