#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what documents say of the interface.

The C example in the README is examples/weight_scales.c, which another test runs. Every qobs_ name and every member of
namespace qobs that a document mentions is in the public headers. The first column of a table of renames in
docs/versions.md, whose head is "0.1 | 0.2" or "0.2 | 0.3", has names that no header has any more. That page and NEWS.md
may mention them.
"""
import glob
import re
import sys

root = sys.argv[1]


def read(path):
    return open(path, encoding="utf-8").read()


example = read(root + "/examples/weight_scales.c")
if example not in re.findall(r"```c\n(.*?)```", read(root + "/README.md"), re.S):
    sys.exit("README.md does not show examples/weight_scales.c as it is")
if len(example.splitlines()) > 30:
    sys.exit("the example is longer than 30 lines")

headers = glob.glob(root + "/include/qobs/*.h*")
code = {path: re.sub(r"/\*.*?\*/|//[^\n]*", "", read(path), flags=re.S) for path in headers}
c = set(re.findall(r"\bqobs_\w+", "".join(text for path, text in code.items() if path.endswith(".h"))))
cpp = set(re.findall(r"\w+", code[root + "/include/qobs/qobs.hpp"]))
if len(c) < 100:
    sys.exit(f"the headers have {len(c)} names, which cannot be all")

RENAMES = re.compile(r"^\| (0\.[12]) \| 0\.[23] \|.*\n\|[-|]+\n((?:\|.*\n)+)", re.M)
tables = RENAMES.findall(read(root + "/docs/versions.md"))
old = {name for _, table in tables for cell in re.findall(r"^\| (.*?) \|", table, re.M)
       for name in re.findall(r"`(qobs_\w+)`", cell)}
wrong, seen = [f"docs/versions.md: {name} is said to have another name now, but a header has it" for name in old & c], 0
if {release for release, _ in tables} != {"0.1", "0.2"}:
    wrong.append("docs/versions.md has no table of renames for each release")
documents = [root + "/docs/qobs.1"]
for pattern in ["*.md", "docs/*.md", "docs/presets/*.md", "bench/**/*.md", "examples/**/*.md", "tests/**/*.md"]:
    documents += glob.glob(f"{root}/{pattern}", recursive=True)
for path in documents:
    text = re.sub(r"\n## Where to read\n.*?(?=\n## )", "", read(path), flags=re.S)  # layers.py compares these names
    for name in re.findall(r"(?<![\w/-])qobs_[a-z0-9_]*[a-z0-9]\b", text):
        seen += 1
        if name not in c and not (name in old and path.endswith(("/NEWS.md", "/docs/versions.md"))):
            wrong.append(f"{path}: no header has {name}")
    for name in re.findall(r"\bqobs::(\w+)", text):
        if name not in ("qobs", "checkpoint") and name not in cpp:  # targets of CMake
            wrong.append(f"{path}: qobs.hpp has no {name}")
if len(old) < 20 or seen < 100:
    wrong.append(f"{seen} names and {len(old)} renames in the documents, which cannot be all")
if wrong:
    sys.exit("\n".join(wrong))
print(f"the README's example is the compiled one; {seen} names in {len(documents)} documents are in the headers")
