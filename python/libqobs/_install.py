# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Installs drop-ins as soon as a program imports their frameworks, and not before: frameworks are slow to import, and
importing them may change others."""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

#: drop-in -> the modules whose import installs it, and the function that does
DROPINS = {
    "llmcompressor": {"llmcompressor": "install"},
    "torch_ao": {"torch": "install_core", "torchao": "install_torchao"},
    "modelopt": {"modelopt.torch.quantization": "install"},
    "onnxruntime": {"onnxruntime.quantization": "install"},
    "quark": {"quark.torch.quantization": "install"},
}


class _Loader(importlib.abc.Loader):
    """A module's own loader, and a call after it."""

    def __init__(self, loader: Any, then: Callable[[], None]):
        self._loader, self._then = loader, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[], None]] = {}

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        then = self.waiting.pop(name, None)
        if then is None:
            return None
        spec = importlib.util.find_spec(name)  # the finders after this one: the name waits no longer
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, then)
        return spec


_finder = _Finder()


def install(names: list[str] | None = None, *, strict: bool = False) -> None:
    """Installs drop-ins, now if their frameworks are imported, otherwise after their import: until uninstall() a finder
    of sys.meta_path waits for that.

    names: those of DROPINS; None: all."""
    wanted = list(DROPINS if names is None else names)
    for name in wanted:
        if name not in DROPINS:
            raise ValueError(f"names: {name} is no drop-in; there are {', '.join(DROPINS)}")
    for name in wanted:
        for trigger, function in DROPINS[name].items():
            def run(name: str = name, function: str = function) -> None:
                getattr(importlib.import_module(f"libqobs.{name}"), function)(strict=strict)
            if trigger in sys.modules:
                run()
            else:
                _finder.waiting[trigger] = run
    if _finder.waiting and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Takes back what install did: the functions of frameworks are upstream's, and nothing waits for an import."""
    _finder.waiting.clear()
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in DROPINS:
        dropin = sys.modules.get(f"libqobs.{name}")
        if dropin is not None:
            dropin.uninstall()
