#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Writes the members of the argument structures of qobs/checkpoint.h as rows of C, for test_checkpoint_members.c.

    checkpoint_members.py HEADER OUTPUT

A row: MEMBER(function, name, kind). A member of a type that this file does not know is an error, so that a new member
cannot go untested.
"""
import re
import sys

from public_api import of_headers

KINDS = {"size_t": "COUNT", "const char *": "TEXT", "const char *const *": "LIST", "bool": "FLAG",
         "qobs_compat": "ENUMERATION", "qobs_fill_experts": "ENUMERATION", "qobs_draft": "ENUMERATION",
         "const qobs_runtime *": "RUNTIME",
         "double": "NUMBER", "void *": "CONTEXT", "char * *": "RESULT", "size_t *": "RESULT",
         "int( *": "PROGRESS"}

declared = list(of_headers(sys.argv[1:2]))
rows = []
for kind, name, text in declared:
    found = re.match(r"qobs_checkpoint_(\w+)_args$", name)
    if kind != "struct" or not found:
        continue
    pointer = re.match(r"(int\( \*)(\w+)\)", text)
    type_name, member = pointer.groups() if pointer else re.match(r"(.*?)(\w+)$", text).groups()
    if type_name.strip() not in KINDS:
        sys.exit(f"{sys.argv[1]}: {found[1]}.{member}: unknown type '{type_name.strip()}'")
    rows.append(f"MEMBER({found[1]}, {member}, {'SIZE' if member == 'struct_size' else KINDS[type_name.strip()]})")
functions = {name[16:]: text for kind, name, text in declared
             if kind == "function" and name.startswith("qobs_checkpoint_")}
with_arguments = sorted(name for name, text in functions.items() if "(const qobs_checkpoint_" in text)
if with_arguments != sorted({row[7:].split(",")[0] for row in rows}):
    sys.exit(f"{sys.argv[1]}: functions {with_arguments} and structures differ")
others = functions.keys() - set(with_arguments) - {"fused_sets", "knows", "handle_bus_errors"}
if others:
    sys.exit(f"{sys.argv[1]}: no test calls {', '.join(sorted(others))}")
with open(sys.argv[2], "w", encoding="utf-8") as file:
    file.write("\n".join(rows) + "\n")
