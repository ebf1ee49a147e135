# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""What all drop-ins share: replacing functions, deciding which calls are served, and counting.

A drop-in replaces hot functions of a framework and leaves its classes and their state alone. A call that qobs does not
serve runs upstream's own function; dropin_calls() counts it as declined. One that fails in qobs runs it, too, and is
counted as failed; with strict=True it raises."""
from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

_lock = threading.Lock()
_calls: Counter[str] = Counter()


def dropin_calls() -> dict[str, int]:
    """How often each replaced function was called since the program began: "NAME" served by qobs, "NAME declined" and
    "NAME failed" by upstream's own function."""
    with _lock:
        return dict(_calls)


def _count(name: str) -> None:
    with _lock:
        _calls[name] += 1


class Dropin:
    """The replaced functions of one framework.

    package: its name in sys.modules; tested: the version whose functions were read."""

    def __init__(self, package: str, tested: str):
        self._package, self._tested = package, tested
        self._replaced: list[tuple[Any, str, Any]] = []
        self.strict = False

    def begin(self, strict: bool, version: str) -> bool:
        """Returns False if the drop-in is installed already."""
        self.strict = strict
        if not version.startswith(self._tested):
            warnings.warn(f"qobs: the drop-in was made for {self._package} {self._tested}, not for {version}", stacklevel=3)
        return not self._replaced

    def replace(self, module: Any, name: str, label: str, attempt: Callable[..., Any]) -> None:
        """Replaces a function in its module and wherever the package has imported it by name. attempt returns
        NotImplemented for a call that it does not serve."""
        original = getattr(module, name)

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            try:
                served = attempt(*args, **kwargs)
            except Exception:
                if self.strict:
                    raise
                _count(f"{label} failed")
                return original(*args, **kwargs)
            if served is NotImplemented:
                _count(f"{label} declined")
                return original(*args, **kwargs)
            _count(label)
            return served
        for place in self._places(module):
            if getattr(place, name, None) is original:
                self._replaced.append((place, name, original))
                setattr(place, name, function)

    def _places(self, module: Any) -> list[Any]:
        prefix = self._package + "."
        return [module] + [m for key, m in list(sys.modules.items()) if key.startswith(prefix) and m is not module]

    def uninstall(self) -> None:
        """Puts upstream's functions back."""
        while self._replaced:
            place, name, original = self._replaced.pop()
            setattr(place, name, original)


def eligible(x: Any) -> bool:
    """Whether qobs may read a tensor: a plain one on the CPU, and nobody watches torch's operations."""
    import torch
    return ((type(x) is torch.Tensor or type(x) is torch.nn.Parameter) and x.device.type == "cpu" and
            x.layout is torch.strided and x.dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64) and
            0 < x.dim() <= 8 and x.numel() > 0 and not x.is_conj() and not x.is_neg() and
            torch._C._len_torch_function_stack() == 0 and torch._C._len_torch_dispatch_stack() == 0 and
            not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is None)
