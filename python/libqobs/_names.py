# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Names of modules as the files of a model have them. torch.compile and DistributedDataParallel put components before
names; transformers gives modules other names than their weights have in files, and stacks the experts of a layer."""
from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

# Components that wrappers add: torch.compile, FSDP, activation checkpointing.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_PARALLEL = ("DistributedDataParallel", "DataParallel")


def unwrapped(model: Any) -> Any:
    """The model inside torch.compile, DistributedDataParallel and DataParallel."""
    while True:
        parallel = any(k.__name__ in _PARALLEL for k in type(model).__mro__)
        inner = getattr(model, "module", None) if parallel else getattr(model, "_modules", {}).get("_orig_mod")
        if inner is None:
            return model
        model = inner


def is_compiled(module: Any) -> bool:
    """Whether torch.compile has made the module, or its call."""
    return "_orig_mod" in getattr(module, "_modules", {}) or getattr(module, "_compiled_call_impl", None) is not None


def own_name(name: str) -> str:
    """A name of named_modules without the components of wrappers."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _reverted(model: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """Tensors under the names that transformers' save_pretrained gives them; {} if it knows no other names."""
    loading = sys.modules.get("transformers.core_model_loading")
    if loading is None or not hasattr(model, "config"):
        return {}
    try:
        return loading.revert_weight_conversion(model, tensors)
    except Exception:  # marks are not always the shapes that a conversion needs
        return {}


def file_names(model: Any, modules: Iterable[str]) -> dict[str, str]:
    """Own name -> name in the files, for modules with a weight."""
    torch = sys.modules["torch"]
    modules = list(modules)
    marks = {f"{name}.weight": torch.empty(1, device="meta") for name in modules}
    found = {id(mark): name for name, mark in _reverted(model, dict(marks)).items()}
    return {name: found.get(id(marks[f"{name}.weight"]), f"{name}.weight").removesuffix(".weight") for name in modules}


def expert_names(model: Any, name: str, experts: Any) -> dict[tuple[int, str], str]:
    """(expert, "gate_proj", "up_proj" or "down_proj") -> name in the files. Experts that lie in one tensor there have
    the names that quantize gives their matrices."""
    torch = sys.modules["torch"]
    count, parts = experts.num_experts, ("gate_proj", "up_proj") if experts.has_gate else ("up_proj",)
    stacked = "gate_up_proj" if experts.has_gate else "up_proj"
    names = {}
    for weight, of in ((stacked, parts), ("down_proj", ("down_proj",))):
        # Each number of the mark says its expert and its part, wherever the conversion puts it.
        mark = torch.arange(count * len(of), dtype=torch.float32).reshape(count, len(of), 1)
        files = _reverted(model, {f"{name}.{weight}": mark}) or {f"{name}.{weight}": mark}
        for file, part in files.items():
            numbers = [int(x) for x in part.flatten().tolist()]
            if len(numbers) == 1:
                names[numbers[0] // len(of), of[numbers[0] % len(of)]] = file.removesuffix(".weight")
                continue
            stem = file.rpartition(weight)[0] or f"{file}."
            names |= {(n // len(of), of[n % len(of)]): f"{stem}{n // len(of)}.{of[n % len(of)]}" for n in numbers}
    return names


def modules_in(directory: Any) -> set[str]:
    """Names of modules with a weight in the safetensors files of a directory; stacked experts by the name of their
    layer."""
    found = set()
    for folder, _, files in os.walk(directory):
        for file in files:
            if not file.endswith(".safetensors"):
                continue
            try:
                with open(os.path.join(folder, file), "rb") as f:
                    header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            except (OSError, ValueError, OverflowError):  # quantize says what is wrong with it
                continue
            found |= {name.rpartition(".")[0] for name in header}
    return found
