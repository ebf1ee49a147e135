# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Hooks that hand out the activations of a running torch model: inputs of linear layers, states of attention."""
from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import _library as c
from ._arguments import wrong_kind
from ._names import expert_names, file_names, is_compiled, own_name, unwrapped

Receive = Callable[[str, Any], None]


class Chosen(NamedTuple):
    """Linear layers by name, which is that of the files (_names), each with the index of its group; entries of targets
    and ignore that match nothing, with what would."""

    modules: dict[str, Any]
    group: dict[str, int]
    unused: list[str]


def check_model(model: Any) -> None:
    """Errors: TypeError unless it is a torch module."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise wrong_kind(model, "model", "a torch module")


def linear_modules(model: Any, targets: list[list[str]], ignore: list[str]) -> Chosen:
    """Linear layers, or experts of a layer of experts one by one. targets: those of each group; of several groups the
    first with a name or pattern takes a layer, then the first with a class. targets, ignore: names in the model or in
    its files, "re:" patterns that match from the start, names of classes. Errors: InvalidArgumentError if there is
    none."""
    check_model(model)
    model = unwrapped(model)
    there = dict(_candidates(model))
    found, group = {}, {}
    for file, (module, names, classes) in there.items():
        taken = next((i for by in (names, classes) for i, entries in enumerate(targets) if _matches(entries, by)), None)
        if taken is not None and not _matches(ignore, names) and not _matches(ignore, classes):
            found[file], group[file] = module, taken
    unused = [f"targets: {entry!r} matches no linear layer{_hint(entry, there)}" for entries in targets
              for entry in entries
              if not any(_matches([entry], names | classes) for _, names, classes in there.values())]
    unused += [f"ignore: {entry!r} matches no module{_hint(entry, there)}" for entry in ignore
               if not any(_matches([entry], names | classes) for _, names, classes in there.values()) and
               not any(_matches([entry], {own_name(n)} | _classes(m)) for n, m in model.named_modules())]
    if not found:
        hint = f" ({'; '.join(unused)})" if unused else ""
        raise c.InvalidArgumentError(f"targets: none of {[e for t in targets for e in t]} that is not ignored is a "
                                     f"linear layer of the model{hint}")
    return Chosen(found, group, unused)


def _candidates(model: Any) -> Iterator[tuple[str, tuple[Any, set[str], set[str]]]]:
    """Name in the files -> layer, its names, its classes."""
    torch = sys.modules["torch"]
    linear = {own_name(n): m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    files = file_names(model, linear)
    for name, module in linear.items():
        yield files[name], (module, {name, files[name]}, _classes(module))
    for name, module in model.named_modules():
        if not _is_experts(module):
            continue
        for (expert, part), file in expert_names(model, own_name(name), module).items():
            names = {f"{own_name(name)}.{expert}.{part}", file}
            yield file, (Expert(module, expert, part), names, {"Linear"} | _classes(module))


def _hint(entry: str, there: dict[str, tuple[Any, set[str], set[str]]]) -> str:
    """What would match: a pattern for the last component of names, or the entries of a list in one text."""
    words = re.findall(r"[\w.:*]+", entry)
    if len(words) > 1 and not entry.startswith("re:"):
        return f"; a list is expected: {words}"
    last = entry.strip(".*").rpartition(".")[2]
    count = sum(any(n.rpartition(".")[2] == last for n in names) for _, names, _ in there.values())
    return f"; names match as a whole: 're:.*{last}' finds {count}" if count else ""


def attention_modules(model: Any) -> dict[str, Any]:
    """Name in the files -> attention module. Errors: InvalidArgumentError if there is none, or if its attention
    function cannot be replaced: the model is none of transformers."""
    model = unwrapped(model)
    found = {own_name(n): m for n, m in model.named_modules() if hasattr(m, "k_proj") and hasattr(m, "v_proj")}
    if not found or not hasattr(model, "set_attn_implementation"):
        raise c.InvalidArgumentError("kv_cache: the model has no attention with k_proj and v_proj, or is none of "
                                     "transformers")
    files = file_names(model, [f"{name}.k_proj" for name in found])
    return {files[f"{name}.k_proj"].rpartition(".")[0]: m for name, m in found.items()}


def own_names(model: Any) -> dict[str, str]:
    """Name in the files -> name in the model, for linear layers and attention."""
    torch, model = sys.modules["torch"], unwrapped(model)
    linear = [own_name(n) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    files = {file: name for name, file in file_names(model, linear).items()}
    return files | {f.rpartition(".")[0]: n.rpartition(".")[0] for f, n in files.items() if f.endswith(".k_proj")}


def _classes(module: Any) -> set[str]:
    return {k.__name__ for k in type(module).__mro__}


def _matches(entries: list[str], names: set[str]) -> bool:
    return any(any(re.match(e[3:], n) for n in names) if e.startswith("re:") else e in names for e in entries)


def _is_experts(module: Any) -> bool:
    """Experts of transformers 5: the matrices of a layer are parameters of three dimensions."""
    return getattr(getattr(module, "down_proj", None), "ndim", 0) == 3 and all(
        hasattr(module, k) for k in ("num_experts", "has_gate", "has_bias", "is_transposed", "_apply_gate"))


class Expert:
    """One matrix of a layer of experts."""

    def __init__(self, module: Any, expert: int, part: str):
        self.module, self.expert, self.part = module, expert, part

    @property
    def weight(self) -> Any:
        return self.module.down_proj


class Hooks:
    """Calls receive(name, tensor) while it is entered: "<module>.input" after each call of a module that succeeded,
    "<attention>.q_states", "k_states" and "v_states" before the attention function. Tensors are detached and on the
    CPU; they are the model's own if that runs there. Inputs of experts are computed once more, expert by expert. Leaves
    the model as it was."""

    def __init__(self, model: Any, modules: dict[str, Any], attention: dict[str, Any], receive: Receive):
        self._compiled = any(is_compiled(m) for m in model.modules())
        self._eager: Any = None
        self._model, self._receive = unwrapped(model), receive
        self._modules = {name: m for name, m in modules.items() if not isinstance(m, Expert)}
        self._experts: dict[Any, dict[tuple[int, str], str]] = {}
        for name, m in modules.items():
            if isinstance(m, Expert):
                self._experts.setdefault(m.module, {})[m.expert, m.part] = name
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
        if self._compiled:  # what torch.compile has made already calls no new hooks
            self._eager = sys.modules["torch"].compiler.set_stance("force_eager")
            self._eager.__enter__()
        for name, module in self._modules.items():
            self._handles.append(module.register_forward_hook(self._hook_of(f"{name}.input"), with_kwargs=True))
        for module, names in self._experts.items():
            self._handles.append(module.register_forward_hook(self._hook_of_experts(names), with_kwargs=True))

    def leave(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._eager is not None:
            self._eager.__exit__(None, None, None)
            self._eager = None
        if self._own is not None:
            self._model.set_attn_implementation(self._own)
            for interface in _interfaces():
                interface._global_mapping.pop(self._name, None)
            self._own = None

    def _hook_of(self, name: str) -> Any:
        def hook(module: Any, args: tuple, kwargs: dict, output: Any) -> None:
            self._receive(name, (args[0] if args else kwargs["input"]).detach().cpu())
        return hook

    def _hook_of_experts(self, names: dict[tuple[int, str], str]) -> Any:
        def hook(module: Any, args: tuple, kwargs: dict, output: Any) -> None:
            values = [*args, *kwargs.values()]
            with sys.modules["torch"].no_grad():
                self._run_experts(module, values[0].detach().flatten(0, -2), values[1].flatten(0, -2), names)
        return hook

    def _run_experts(self, module: Any, states: Any, chosen: Any, names: dict[tuple[int, str], str]) -> None:
        """Hands out the inputs of the experts that tokens reach. states: a row a token; chosen: its experts."""
        linear = sys.modules["torch"].nn.functional.linear
        stacked = "gate_up_proj" if module.has_gate else "up_proj"
        for expert in range(module.num_experts):
            x = states[(chosen == expert).any(-1)]
            if x.shape[0] == 0:
                continue
            for part in ("gate_proj", "up_proj"):
                if (expert, part) in names:
                    self._receive(f"{names[expert, part]}.input", x.cpu())
            if (expert, "down_proj") not in names:
                continue
            weight = getattr(module, stacked)[expert]
            bias = getattr(module, f"{stacked}_bias")[expert] if module.has_bias else None
            x = linear(x, weight.T if module.is_transposed else weight, bias)
            x = module._apply_gate(x) if module.has_gate else module.act_fn(x)
            self._receive(f"{names[expert, 'down_proj']}.input", x.cpu())

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
