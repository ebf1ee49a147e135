# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The known name that is nearest to an unknown one, for errors."""
from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

# The messages of the library: "key: 'WORD' is unknown; known are A, B" and "key: is 'WORD', allowed are A, B".
_UNKNOWN = re.compile(r"(?:'([^']{3,63})' is (?:unknown|no \w+)[^;]*; known are|"
                      r"is '([^']{3,63})', allowed are) (.*)", re.S)
_LIKE = 0.7  # share of the characters, of both words together, that two words have in common, in order


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The nearest of the names; also by what follows their dot, or by a beginning of theirs. None: none is near."""
    best, found = _LIKE, None
    for name in names:
        for form in {name, name.rpartition(".")[2]}:
            if form.lower() == word.lower() or form.lower().startswith(word.lower()):
                return name
            like = SequenceMatcher(None, word.lower(), form.lower()).ratio()
            if like > best:
                best, found = like, name
    return found


def suggestion(message: str) -> str:
    """What to add to a message of the library that calls a word unknown; empty if no known word is near."""
    match = _UNKNOWN.search(message)
    if match is None or "did you mean" in message:
        return ""
    word, names = match[1] or match[2], set(re.findall(r"[\w.\-]{2,}(?=,|$| and )", match[3]))
    near = nearest(word, sorted(names | set(_cut(message))))
    return f"; did you mean {near!r}?" if near else ""


def _cut(message: str) -> Iterable[str]:
    """The names of a list that is too long for a message: those of presets and of schemes."""
    from ._library import lib
    from ._schemes import WEIGHTS
    if message.startswith("preset"):
        return [lib.preset_name(i).decode() for i in range(lib.preset_count())]
    return WEIGHTS if message.startswith("scheme") else ()
