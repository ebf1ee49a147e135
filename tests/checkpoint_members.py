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

KINDS = {"size_t": "COUNT", "const char *": "TEXT", "const char *const *": "LIST", "bool": "FLAG",
         "qobs_compat": "ENUMERATION", "qobs_fill_experts": "ENUMERATION", "qobs_draft": "ENUMERATION", "const qobs_runtime *": "RUNTIME",
         "double": "NUMBER", "void *": "CONTEXT", "char **": "RESULT", "size_t *": "RESULT", "int (*)": "PROGRESS"}

header = re.sub(r"/\*.*?\*/", "", open(sys.argv[1], encoding="utf-8").read(), flags=re.S)
rows = []
for function, members in re.findall(r"typedef struct qobs_checkpoint_(\w+)_args \{(.*?)\}", header, re.S):
    for member in filter(None, (m.strip() for m in members.split(";"))):
        if member.startswith("int (*"):
            type_name, name = "int (*)", re.match(r"int \(\*(\w+)\)", member)[1]
        else:
            type_name, name = re.match(r"(.*?)(\w+)$", member, re.S).groups()
        if type_name.strip() not in KINDS:
            sys.exit(f"{sys.argv[1]}: {function}.{name}: unknown type '{type_name.strip()}'")
        rows.append(f"MEMBER({function}, {name}, {'SIZE' if name == 'struct_size' else KINDS[type_name.strip()]})")
functions = re.findall(r"QOBS_API int qobs_checkpoint_(\w+)\(const qobs_checkpoint_\w+_args", header)
if sorted(functions) != sorted({row[7:].split(",")[0] for row in rows}):
    sys.exit(f"{sys.argv[1]}: functions {functions} and structures differ")
others = set(re.findall(r"QOBS_API\b[^;(]*?\bqobs_checkpoint_(\w+)\(", header)) - set(functions) - {"fused_sets", "knows"}
if others:
    sys.exit(f"{sys.argv[1]}: no test calls {', '.join(sorted(others))}")
with open(sys.argv[2], "w", encoding="utf-8") as file:
    file.write("\n".join(rows) + "\n")
