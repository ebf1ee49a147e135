# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The C library: its structures, functions and errors. No other file but _declarations.py knows the ABI."""
from __future__ import annotations

import ctypes
import os
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any

from ._declarations import CALLBACKS, CONSTANTS, FUNCTIONS, STRUCTURES
from ._signals import Held
from ._suggest import suggestion

# Each 0.MINOR may change structures: docs/versions.md.
ABI = (CONSTANTS["QOBS_VERSION_MAJOR"], CONSTANTS["QOBS_VERSION_MINOR"])
SETTING_VALUE = CONSTANTS["QOBS_SETTING_VALUE"]
OK = CONSTANTS["QOBS_OK"]
INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY, NONFINITE, NO_DATA, NO_RESULT, SYSTEM, CANCELLED, FINDINGS = (
    CONSTANTS["QOBS_ERROR_" + word] for word in
    "INVALID_ARGUMENT UNSUPPORTED OUT_OF_MEMORY NONFINITE NO_DATA NO_RESULT SYSTEM CANCELLED FINDINGS".split())
F32, BF16, F16, F64, I8, I16, I32, I64, F8_E4M3, U8 = (
    CONSTANTS["QOBS_" + word] for word in "F32 BF16 F16 F64 I8 I16 I32 I64 F8_E4M3 U8".split())
WORD, BOOL, INTEGER, REAL, AXES, PAIR, OWN_NAME = (
    CONSTANTS["QOBS_SETTING_" + word] for word in "WORD BOOL INTEGER REAL AXES PAIR OWN_NAME".split())

# Classes of structures: Tensor, MinmaxArgs and so on.
if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...
    ErrorText: Any
    Tensor: Any
else:
    globals().update(("".join(map(str.capitalize, name.split("_"))), of) for name, of in STRUCTURES.items())
    ErrorText = STRUCTURES["error"]


class Error(Exception):
    """A call of the C library has failed; nothing has changed. The text is the library's message, which names the
    argument, its value and what is allowed. `status` is the negative qobs_status."""

    status = 0


class InvalidArgumentError(Error, ValueError):
    """An argument or setting is wrong, or two of them contradict each other."""

    status = INVALID_ARGUMENT


class UnsupportedError(Error, NotImplementedError):
    """Valid, but not available on this machine or in this build."""

    status = UNSUPPORTED


class OutOfMemoryError(Error, MemoryError):
    """The library has got no memory."""

    status = OUT_OF_MEMORY


class NonfiniteError(Error, ValueError):
    """A tensor has NaN or infinity, and the setting nonfinite is refuse."""

    status = NONFINITE


class NoDataError(Error, LookupError):
    """Nothing has been observed for the result."""

    status = NO_DATA


class NoResultError(Error, ArithmeticError):
    """The observed ranges give no valid result; upstream raises an exception."""

    status = NO_RESULT


class SystemFailure(Error, OSError):
    """A file cannot be read or written."""

    status = SYSTEM


class Cancelled(Error):
    """The caller has stopped the call."""

    status = CANCELLED


class FindingsError(Error, ValueError):
    """The audit finds faults in what quantize or finish would write. findings: a list of them, module and finding."""

    status = FINDINGS
    findings: list[dict[str, str]] = []


class Warning(UserWarning):
    """What the program prints as a warning; the report has it, too."""


class IncompleteWarning(Warning):
    """Something that was given has no effect, or the result lacks something: the program ends with status 3."""


ERRORS = {e.status: e for e in (InvalidArgumentError, UnsupportedError, OutOfMemoryError, NonfiniteError, NoDataError,
                                NoResultError, SystemFailure, Cancelled, FindingsError)}


def path_of(library: str) -> str:
    """A library that the wheel has beside the package: "libqobs.so"."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = os.path.join(root, ".libqobs.mesonpy.libs")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        if name.startswith(library):
            return os.path.join(folder, name)
    raise ImportError(f"qobs: the C library is missing: no {library} in {folder}")


class Library:
    """Every function of the library as an attribute. Those that end with an error return a status and do not raise:
    `call` does."""

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...


def load(name: str, prefix: str = "", others: str | None = None) -> Library:
    """The functions of a library that begin with `prefix`, without it, and not with `others`."""
    library = ctypes.CDLL(path_of(name))
    functions = Library()
    for name, (result, *arguments) in FUNCTIONS.items():
        if name.startswith(prefix) and not (others and name.startswith(others)):
            function = getattr(library, "qobs_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(functions, name.removeprefix(prefix), function)
    return functions


def _load() -> Library:
    functions = load("libqobs.so", others="checkpoint_")
    number = functions.version_number()
    if (number // 10000, number // 100 % 100) != ABI:
        raise ImportError(f"qobs: the C library has version {functions.version().decode()}, the package needs "
                          f"{ABI[0]}.{ABI[1]}")
    return functions


lib = _load()
_byref = ctypes.byref
runtime: int | None = None  # address of the Runtime of set_threads, for every call that takes one
several = False  # a Runtime with several threads has been made, which calls Python


def status_of(function, *arguments) -> int:
    """Calls a function that may call Python."""
    if not several:
        return function(*arguments)
    with Held():
        return function(*arguments)


def call(function, *arguments, **named: str) -> None:
    """Calls a function that ends with an error, which this adds. Raises the exception of its status. named: what Python
    calls arguments that have other names in C."""
    error = ErrorText()
    if status_of(function, *arguments, _byref(error)) != OK:
        raise failure_of(error, **named)


def failure_of(error: ErrorText, **named: str) -> Error:
    """The exception of a call that has failed."""
    text = error.message.decode("utf-8", "replace")
    for name, own in named.items():
        if text.startswith(name) and not text[len(name):len(name) + 1].isidentifier():
            text = own + text[len(name):]
    if error.status == INVALID_ARGUMENT:
        text += suggestion(text)
    return ERRORS.get(error.status, Error)(text)


def create(function, *arguments, **named: str) -> int:
    """Calls a function whose first parameter receives a new object, and returns its address."""
    handle = c_void_p()
    call(function, _byref(handle), *arguments, **named)
    return handle.value or 0
