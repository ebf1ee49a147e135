# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Hooks that hand out the activations of a running torch model: inputs of linear layers, states of attention."""
from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import _library as c

Receive = Callable[[str, Any], None]


def linear_modules(model: Any, targets: Iterable[str], ignore: Iterable[str]) -> dict[str, Any]:
    """Name -> linear layer. targets, ignore: names, "re:" patterns that match from the start, names of classes.
    Errors: InvalidArgumentError if there is none."""
    torch = sys.modules["torch"]
    found, targets, ignore = {}, list(targets), list(ignore)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and _matches(name, module, targets):
            if not _matches(name, module, ignore):
                found[name] = module
    if not found:
        raise c.InvalidArgumentError(f"targets: none of {targets} is a linear layer of the model")
    return found


def attention_modules(model: Any) -> dict[str, Any]:
    """Name -> attention module. Errors: InvalidArgumentError if there is none, or if its attention function cannot be
    replaced: the model is none of transformers."""
    found = {name: m for name, m in model.named_modules() if hasattr(m, "k_proj") and hasattr(m, "v_proj")}
    if not found or not hasattr(model, "set_attn_implementation"):
        raise c.InvalidArgumentError("kv_cache: the model has no attention with k_proj and v_proj, or is none of "
                                     "transformers")
    return found


def _matches(name: str, module: Any, entries: list[str]) -> bool:
    classes = {k.__name__ for k in type(module).__mro__}
    return any(re.match(e[3:], name) is not None if e.startswith("re:") else e == name or e in classes for e in entries)


class Hooks:
    """Calls receive(name, tensor) while it is entered: "<module>.input" after each call of a module that succeeded,
    "<attention>.q_states", "k_states" and "v_states" before the attention function. Tensors are detached and on the
    CPU; they are the model's own if that runs there. Leaves the model as it was."""

    def __init__(self, model: Any, modules: dict[str, Any], attention: dict[str, Any], receive: Receive):
        self._model, self._modules, self._receive = model, modules, receive
        self._attention = {module: name for name, module in attention.items()}
        self._handles: list[Any] = []
        self._own: str | None = None
        self._name = f"qobs_{id(self):x}"  # of the attention function

    def enter(self) -> None:
        """Puts the hooks in place. Errors: those of transformers; no hook is left then."""
        if self._handles or self._own is not None:
            raise c.InvalidArgumentError("calibration: is running already")
        if self._attention:
            self._enter_attention()
        for name, module in self._modules.items():
            self._handles.append(module.register_forward_hook(self._hook_of(f"{name}.input"), with_kwargs=True))

    def leave(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._own is not None:
            self._model.set_attn_implementation(self._own)
            for interface in _interfaces():
                interface._global_mapping.pop(self._name, None)
            self._own = None

    def _hook_of(self, name: str) -> Any:
        def hook(module: Any, args: tuple, kwargs: dict, output: Any) -> None:
            self._receive(name, (args[0] if args else kwargs["input"]).detach().cpu())
        return hook

    def _enter_attention(self) -> None:
        """Puts a function that hands out states before the model's own attention function."""
        functions, masks = _interfaces()
        own = self._model.config._attn_implementation
        registered = functions()

        def attention(module: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            name = self._attention.get(module)
            if name is not None:
                for letter, states in zip("qkv", (query, key, value)):
                    self._receive(f"{name}.{letter}_states", states.detach().cpu())
            eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
            function = registered[own] if own in registered else eager
            if function is None:
                raise c.UnsupportedError(f"kv_cache: {type(module).__name__} has no attention function {own}")
            return function(module, query, key, value, *args, **kwargs)

        functions.register(self._name, attention)
        masks.register(self._name, masks._global_mapping[own])
        self._own = own
        self._model.set_attn_implementation(self._name)


def _interfaces() -> tuple[Any, Any]:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface
    return AttentionInterface, AttentionMaskInterface
