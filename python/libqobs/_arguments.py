# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Arguments as callers give them: what is refused is named, with its value and what is allowed."""
from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ._library import InvalidArgumentError
from ._suggest import nearest

_PLAIN = (str, bytes, bool, int, float, list, tuple, dict, set, type(None))


def shown(value: Any) -> str:
    """A value in an error: on one line, of at most 60 characters; other objects by their class."""
    if not isinstance(value, _PLAIN):
        return f"of class {type(value).__name__}"
    try:
        text = repr(value)
    except ValueError:  # Python writes no integers of more than 4300 digits
        text = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def wrong_kind(value: Any, name: str, expected: str) -> TypeError:
    """The error of an argument that is something else."""
    return TypeError(f"{name}: is {shown(value)}, {expected} is expected")


def flag(value: Any, name: str) -> bool:
    """A bool; texts such as "no" would be true. Also those of numpy."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise wrong_kind(value, name, "True or False")
    return bool(value)


def number(value: Any, name: str) -> float:
    """A number as float, which may be infinite or NaN."""
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        return float(value)
    except OverflowError:
        raise InvalidArgumentError(f"{name}: is {shown(value)}, allowed are numbers of float64") from None
    except (TypeError, ValueError, RuntimeError):  # the last: a tensor of several elements
        raise wrong_kind(value, name, "a number") from None


def integer(value: Any, name: str, least: int, most: int) -> int:
    """An integer within limits: ctypes would cut off its high bits."""
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise wrong_kind(value, name, "an integer") from None
    if not least <= count <= most:
        raise InvalidArgumentError(f"{name}: is {shown(count)}, allowed are {least} to {most}")
    return count


def choice(value: Any, name: str, allowed: Mapping[str, int]) -> int:
    """What a word stands for."""
    if not isinstance(value, str) or value not in allowed:
        near = nearest(value, allowed) if isinstance(value, str) else None
        hint = f"; did you mean {near!r}?" if near else ""
        raise InvalidArgumentError(f"{name}: is {shown(value)}, allowed are {', '.join(allowed)}{hint}")
    return allowed[value]


def encoded(value: Any, name: str) -> bytes:
    """A text as C reads it. U+0000 would end it early."""
    if not isinstance(value, str):
        raise wrong_kind(value, name, "a text")
    if "\0" in value:
        raise InvalidArgumentError(f"{name}: {value!r:.100} has U+0000, texts without it are allowed")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{name}: {value!r:.100} has half a surrogate pair, no text in UTF-8") from None


def mapping(value: Any, name: str, form: str) -> Mapping[str, Any]:
    """A mapping, or none. form: an example of it."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong_kind(value, name, f"a dictionary such as {form}")
    for key in value:
        if not isinstance(key, str):
            raise wrong_kind(key, f"{name}: a key", "a text")
    return value


def several(value: Any, name: str, of: str) -> list[Any]:
    """The items of an iterable. of: what they are."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise wrong_kind(value, name, f"a list of {of}")
    return list(value)


def entries(value: Any, name: str) -> list[str]:
    """Names and patterns of modules: one text, several, or None for none."""
    found = ([value] if isinstance(value, str) else [] if value is None else
             several(value, name, "texts, one text or None"))
    for i, entry in enumerate(found):
        if not isinstance(entry, str):
            raise wrong_kind(entry, f"{name}[{i}]", "a text")
        try:
            re.compile(entry[3:] if entry.startswith("re:") else "")
        except re.error as failure:
            raise InvalidArgumentError(f"{name}: {entry!r} is no pattern: {failure}") from None
    return found
