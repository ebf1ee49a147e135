# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""What the C headers declare, as ctypes. declarations.txt lists it: `tests/public_api.py --write` makes the file from
the headers, and a test compares the two.

Names have no prefix `qobs_`. Pointers within structures are addresses: ctypes takes several times as long to make typed
ones. Whoever fills them keeps what they point to.
"""
from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_size_t, c_void_p
from typing import Any

CONSTANTS: dict[str, int] = {}  # the values of enumerations, too; with the prefix QOBS_
STRUCTURES: dict[str, Any] = {}  # name -> class
CALLBACKS: dict[str, Any] = {}  # member of a structure or parameter -> the type of the function
FUNCTIONS: dict[str, tuple] = {}  # name -> result, arguments

_SCALARS: dict[str, Any] = {"bool": c_bool, "char": c_char, "double": c_double, "float": c_float, "int": c_int,
                            "size_t": c_size_t, "void": None}
_SCALARS |= {f"{kind}{bits}_t": getattr(ctypes, f"c_{kind}{bits}") for kind in ("int", "uint")
             for bits in (8, 16, 32, 64)}
_ADDRESSES = ("tensor", "runtime")  # passed as numbers
_FUNCTION = re.compile(r"(.*?)\( ?\*(\w+)\)\((.*)\)$")
_VARIABLE = re.compile(r"(.*?)(\w+)(?:\[(\w+)\])?$")


def _parameters(text: str) -> Iterator[str]:
    """Splits at commas outside of brackets."""
    depth = start = 0
    for i, letter in enumerate(text + ","):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield text[start:i]
            start = i + 1


def _type(text: str, member: bool) -> Any:
    """Of a type without a name, such as "const qobs_tensor *"."""
    base, stars = text.replace("const", "").replace("*", "").strip(), text.count("*")
    if stars == 0:
        return _SCALARS[base]
    if stars == 1 and base == "char" and (not member or "const" in text):
        return c_char_p
    if member:
        return c_void_p
    if stars == 2:
        return POINTER(c_char_p if base == "char" else c_void_p)
    name = base.removeprefix("qobs_")
    return POINTER(STRUCTURES[name]) if name in STRUCTURES and name not in _ADDRESSES else c_void_p


def _variable(text: str, member: bool) -> tuple[str, Any]:
    """The name and type of a member or a parameter."""
    found = _FUNCTION.match(text)
    if found:
        result, name, parameters = found.groups()
        CALLBACKS[name] = CFUNCTYPE(_type(result, member), *_arguments(parameters))
        return name, CALLBACKS[name]
    kind, name, count = _VARIABLE.match(text).groups()  # type: ignore[union-attr]
    of = _type(kind, member)
    return name, of * (int(count) if count.isdecimal() else CONSTANTS[count]) if count else of


def _arguments(text: str) -> list:
    return [] if text == "void" else [_variable(parameter, False)[1] for parameter in _parameters(text)]


def _read() -> None:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "declarations.txt")
    found: dict[str, dict[str, list[str]]] = {"constant": {}, "enum": {}, "struct": {}, "function": {}}
    with open(path, encoding="utf-8") as file:
        for line in file:
            head, text = line.rstrip("\n").split(": ", 1)
            kind, name = head.split()
            found[kind][name] = text.split("; ")
    CONSTANTS.update((name, int(text)) for name, (text,) in found["constant"].items())
    for name, members in found["enum"].items():
        _SCALARS[name], last = c_int, -1
        for member, _, value in (text.partition(" = ") for text in members):
            last = CONSTANTS[member] = int(value) if value else last + 1
    for name, members in found["struct"].items():
        name = name.removeprefix("qobs_")
        STRUCTURES[name] = type(name, (Structure,), {"_fields_": [_variable(text, True) for text in members]})
    for name, (text,) in found["function"].items():
        result, parameters = text[:-1].split(name + "(", 1)
        FUNCTIONS[name.removeprefix("qobs_")] = (_type(result, False), *_arguments(parameters))


_read()
