#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Lists every public function with its users: libqobs-checkpoint, the program, the Python package, the examples, and
docs/embedding.md. A function of the core headers without one fails: it belongs into experimental.h, or nowhere. A
function of experimental.h that one of them uses fails, too: it belongs into the core.

    api_users.py [ROOT]
"""
import re
import sys
from pathlib import Path

from public_api import declarations, without_comments

USERS = {"checkpoint": "checkpoint/**/*.[ch]", "program": "tools/**/*.[ch]", "package": "python/libqobs/*.py",
         "examples": "examples/**/*.c*", "embedding.md": "docs/embedding.md"}
EXPERIMENTAL = "experimental.h"


def words(path):
    """The names that a file uses: in Python those of the library's functions, which lack the prefix there."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".py":
        found = re.findall(r"\b(?:_?lib(?:\(\))?|functions)\.(\w+)", text)
        return {prefix + name for name in found for prefix in ("qobs_", "qobs_checkpoint_")}
    return set(re.findall(r"\bqobs_\w+", without_comments(text)))


def main(root):
    functions = {}
    for header in sorted((root / "include" / "qobs").glob("*.h")):
        for kind, name, _ in declarations(header.read_text(encoding="utf-8")):
            if kind == "function":
                functions[name] = header.name
    used = {user: set().union(*map(words, sorted(root.glob(pattern)))) for user, pattern in USERS.items()}
    wrong = []
    for name, header in functions.items():
        # The library that defines a function is no user of it.
        users = [user for user in USERS if name in used[user] and (user, header) != ("checkpoint", "checkpoint.h")]
        print(f"{header} {name}: {', '.join(users) or 'none'}")
        if bool(users) == (header == EXPERIMENTAL):
            wrong.append(f"{name} of {header} has " + (f"the users {', '.join(users)}" if users else "no user"))
    core = sum(header != EXPERIMENTAL for header in functions.values())
    print(f"{core} functions in the core headers, {len(functions) - core} in {EXPERIMENTAL}, {len(wrong)} wrong")
    if wrong or core < 100 or core == len(functions):
        sys.exit("\n".join(wrong) or "these cannot be all functions")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
