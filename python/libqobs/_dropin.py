# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Parts that all drop-ins share: replacing functions, deciding which calls are served, and counting.

A drop-in replaces the slow functions of a framework and leaves its classes and their state alone. A call that qobs does
not serve runs upstream's own function; dropin_calls() counts it as declined. One that fails in qobs runs it, too, and
is counted as failed; with strict=True it raises."""
from __future__ import annotations

import functools
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

from ._arguments import flag

_lock = threading.Lock()
_calls: dict[str, int] = {}


def dropin_calls() -> dict[str, int]:
    """Counts the calls of each replaced function since the program began: "NAME" served by qobs, "NAME declined" and
    "NAME failed" by upstream's own function. A function that torch.compile traces counts once for each trace."""
    with _lock:
        return dict(_calls)


def _count(name: str) -> None:
    with _lock:
        _calls[name] = _calls.get(name, 0) + 1


def _never() -> bool:
    return False


class Declined(Exception):
    """Raised within a served call that turns out not to be served; nothing has changed."""


class Dropin:
    """The replaced functions of one framework.

    package: its name in sys.modules; tested: the beginnings of the versions whose functions were read."""

    def __init__(self, package: str, *tested: str):
        self._package, self._tested = package, tested
        self._replaced: list[tuple[Any, str, Any]] = []
        self._labels: set[str] = set()  # of registered back ends
        self.strict = False

    def begin(self, strict: bool, version: str) -> bool:
        """Returns False if the drop-in is installed already."""
        self.strict = flag(strict, "strict")
        if not self._replaced and not version.startswith(self._tested):
            tested = ", ".join(self._tested)
            warnings.warn(f"qobs: the drop-in was made for {self._package} {tested}, not for {version}", stacklevel=3)
        return not self._replaced

    def installed(self) -> bool:
        """Returns True if functions are replaced."""
        return bool(self._replaced)

    def replace(self, module: types.ModuleType, name: str, label: str, attempt: Callable[..., Any]) -> None:
        """Replaces a function in its module and wherever the package has imported it by name. attempt returns
        NotImplemented for a call that it does not serve."""
        original = getattr(module, name)
        function = self._function(original, label, attempt)
        prefix = self._package + "."
        for place in [module,
                      *(m for key, m in list(sys.modules.items()) if key.startswith(prefix) and m is not module)]:
            if place.__dict__.get(name) is original:
                self._set(place, name, original, function)

    def register(self, registry: Any, name: str, label: str, attempt: Callable[..., Any],
                 may_serve: Callable[[Any], bool]) -> None:
        """Adds a back end for an entrypoint to compressed-tensors' ImplBackend, before all others. attempt: as in
        replace; other calls run upstream's eager function. may_serve: says of the first argument whether they may be
        tried, and must not raise; calls of other tensors go on to upstream's other back ends. A registry forgets
        nothing: while the drop-in is not installed, the back end takes no call."""
        self._replaced.append((registry, "", None))
        if label in self._labels:
            return
        self._labels.add(label)
        function = self._function(functools.partial(registry.call, name), label, attempt)
        function.__name__ = f"qobs_{name.lstrip('_')}"
        is_compiling = sys.modules["torch"].compiler.is_compiling

        def takes(*args: Any, **kwargs: Any) -> bool:
            if is_compiling() or not self._replaced:
                return False
            if may_serve(args[0] if args else next(iter(kwargs.values()))):
                return True
            _count(f"{label} declined")
            return False
        registry.register(name, takes, -1)(function)

    def replace_method(self, cls: type, name: str, label: str, attempt: Callable[..., Any]) -> None:
        """Replaces a method of a class; those of subclasses that override it stay. torch.jit.script gets a copy of the
        object with upstream's methods."""
        original = cls.__dict__[name]
        self._set(cls, name, original, self._function(original, label, attempt))
        torch = sys.modules.get("torch")
        if torch is not None and issubclass(cls, torch.nn.Module) and "__prepare_scriptable__" not in cls.__dict__:
            self._set(cls, "__prepare_scriptable__", None, _scriptable)

    def _set(self, place: Any, name: str, original: Any, value: Any) -> None:
        self._replaced.append((place, name, original))
        setattr(place, name, value)

    def _function(self, original: Callable[..., Any], label: str, attempt: Callable[..., Any]) -> Callable[..., Any]:
        declined = f"{label} declined"

        def trace_declined() -> None:
            _count(declined)
        is_compiling = _never
        torch = sys.modules.get("torch")
        if torch is not None:
            is_compiling = torch.compiler.is_compiling
            trace_declined = torch.compiler.assume_constant_result(trace_declined)

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():  # a compiler may be reading this very function: nothing but upstream's own
                trace_declined()
                return original(*args, **kwargs)
            try:
                served = attempt(*args, **kwargs)
            except Declined:
                served = NotImplemented
            except Exception:
                if self.strict:
                    raise
                _count(f"{label} failed")
                return original(*args, **kwargs)
            if served is NotImplemented:
                _count(declined)
                return original(*args, **kwargs)
            _count(label)
            return served
        function.__qobs_original__ = original  # type: ignore[attr-defined]
        return function

    def uninstall(self) -> None:
        """Puts upstream's functions back."""
        while self._replaced:
            place, name, original = self._replaced.pop()
            if not name:
                continue  # a registered back end
            if original is None:
                delattr(place, name)
            else:
                setattr(place, name, original)


def _scriptable(module: Any) -> Any:
    """A copy of a module whose class has upstream's methods, which TorchScript can read."""
    cls: Any = type(module)
    own = {}
    for name in dir(cls):
        original = getattr(getattr(cls, name, None), "__qobs_original__", None)
        if original is not None:
            own[name] = original
    if not own:
        return module
    copy = cls.__new__(cls)
    copy.__dict__ = module.__dict__.copy()
    copy.__class__ = type(cls.__name__, (cls,), {**own, "__module__": cls.__module__})
    return copy
