# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibration of a running torch model: hooks feed observers, and nothing is stored."""
from __future__ import annotations

import ctypes
import json
import os
import re
import struct
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from . import _library as c
from ._checkpoint import quantize
from ._observer import Observer, fuse

# What compressed-tensors' presets store of activations (quantization/quant_scheme.py).
_INPUTS = {
    "FP8": "type=float num_bits=8 strategy=tensor",
    "NVFP4": "type=float num_bits=4 strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn dynamic=local",
}
_KV_CACHE = "type=float num_bits=8 strategy=tensor"
_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("q_a_proj", "kv_a_proj_with_mqa"), ("w1", "w3"))
_ATTENTION = "qobs_calibration"  # name of the attention function that observes keys and values
_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "float8_e4m3fn": "F8_E4M3", "int8": "I8"}


def calibration(model: Any, scheme: str = "FP8", *, preset: str = "llmc.static_minmax",
                targets: Iterable[str] = ("Linear",), ignore: Iterable[str] = ("lm_head",), kv_cache: bool = False,
                settings: str = "") -> Calibration:
    """Observes the activations of a torch model while it runs:

        with qobs.calibration(model, scheme="FP8") as c:
            for batch in batches:
                model(**batch)
        c.quantize("model", "model-FP8")

    model: any torch module. scheme: FP8 or NVFP4, in any case; others store no scales of activations. preset: observer
    of the inputs. targets, ignore: names of modules, "re:" patterns that match from the start, or names of classes;
    torch.nn.Linear and its subclasses are "Linear". kv_cache: also observes keys and values of attention; the model must
    be one of transformers. settings: more of the preset, "averaging_constant=0.05". Memory: the state of each
    observer, a few hundred bytes for min/max. Threads: the model runs in one at a time.
    Errors: InvalidArgumentError. Reproduces the calibration of oneshot of llm-compressor."""
    return Calibration(model, scheme, preset, targets, ignore, kv_cache, settings)


class Calibration:
    """Observers of the activations of a model, by name: "<module>.input", "<attention>.k_states". See calibration."""

    def __init__(self, model: Any, scheme: str, preset: str, targets: Iterable[str], ignore: Iterable[str],
                 kv_cache: bool, settings: str):
        name = scheme.upper()
        if name not in _INPUTS:
            raise c.InvalidArgumentError(f"scheme: is {scheme!r}; schemes with stored scales of activations are "
                                         f"{', '.join(_INPUTS)}")
        self.scheme = name
        self.observers: dict[str, Observer] = {}
        self._model, self._kv_cache, self._hooks = model, kv_cache, []
        self._implementation = None
        self._modules = _linear_modules(model, list(targets), list(ignore))
        if not self._modules:
            raise c.InvalidArgumentError("targets: no module of the model matches")
        self._dtypes = {module: _dtype_of(m) for module, m in self._modules.items()}
        for module in self._modules:
            self.observers[f"{module}.input"] = Observer(f"{preset} base_name=input {_INPUTS[name]} {settings}")
        self._attention = _attention_modules(model) if kv_cache else {}
        if kv_cache and not self._attention:
            raise c.InvalidArgumentError("kv_cache: the model has no attention with k_proj and v_proj")
        for module in self._attention.values():
            for k in "kv":
                self.observers[f"{module}.{k}_states"] = Observer(f"llmc.static_minmax base_name={k} {_KV_CACHE}")

    # Hooks

    def __enter__(self) -> Calibration:
        for name, module in self._modules.items():
            self._hooks.append(module.register_forward_pre_hook(self._hook_of(f"{name}.input"), with_kwargs=True))
        if self._attention:
            self._enter_attention()
        return self

    def __exit__(self, *failure: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if self._implementation is not None:
            self._model.set_attn_implementation(self._implementation)
            self._implementation = None

    def _hook_of(self, name: str) -> Any:
        observer = self.observers[name]

        def hook(module: Any, args: tuple, kwargs: dict) -> None:
            observer.observe((args[0] if args else kwargs["input"]).detach())
        return hook

    def _enter_attention(self) -> None:
        """Puts a function that observes before the model's own attention function."""
        from transformers import AttentionInterface
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
        own = self._model.config._attn_implementation
        calibration = self

        def attention(module: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            name = calibration._attention.get(module)
            if name is not None:
                calibration.observers[f"{name}.k_states"].observe(key.detach())
                calibration.observers[f"{name}.v_states"].observe(value.detach())
            eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
            function = eager if own == "eager" else ALL_ATTENTION_FUNCTIONS[own]
            return function(module, query, key, value, *args, **kwargs)

        AttentionInterface.register(_ATTENTION, attention)
        AttentionMaskInterface.register(_ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS[own])
        self._implementation = own
        self._model.set_attn_implementation(_ATTENTION)

    # Results

    def save(self, directory: Any) -> None:
        """Writes every observer that has data to a directory: states.json and a file each. quantize(states=[...]) and
        qobs quantize --states read it; directories of several machines merge."""
        os.makedirs(directory, exist_ok=True)
        files = {}
        for name, observer in self.observers.items():
            if observer.counts().batches > 0:
                files[name] = f"{len(files)}.qobs"
                with open(os.path.join(directory, files[name]), "wb") as file:
                    file.write(observer.save())
        if not files:
            raise c.NoDataError("calibration: the model has not run")
        with open(os.path.join(directory, "states.json"), "w", encoding="utf-8") as file:
            json.dump({"states": files}, file, indent=1)

    def scales(self) -> dict[str, Any]:
        """Tensors as a checkpoint stores them, by name: input_scale, input_global_scale, k_scale, v_scale. Layers that
        vLLM fuses share a global scale. Modules that have not run are left out."""
        with_data = {name: o for name, o in self.observers.items() if o.counts().batches > 0}
        if self.scheme == "NVFP4":
            for members in _fused_inputs(with_data):
                fuse(members)
        out = {}
        for name, observer in with_data.items():
            module, kind = name.rsplit(".", 1)
            base = kind.removesuffix("_states")
            if kind == "input" and self.scheme == "NVFP4":
                out[f"{module}.input_global_scale"] = observer.read("global_scale")
            else:
                scale = observer.read("scale")
                out[f"{module}.{base}_scale"] = scale.to(self._dtypes.get(module, scale.dtype))
        return out

    def write_scales(self, path: Any) -> None:
        """Writes scales() to a safetensors file."""
        header, data = {}, b""
        for name, tensor in sorted(self.scales().items()):
            tensor = tensor.reshape(-1).contiguous()
            raw = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
            dtype = _DTYPES[str(tensor.dtype).rsplit(".", 1)[1]]
            header[name] = {"dtype": dtype, "shape": [tensor.numel()], "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)

    def quantize(self, model_dir: Any, out_dir: Any, **options: Any) -> dict[str, Any]:
        """Quantizes the model's directory with these scales: qobs.quantize with scheme and states."""
        with tempfile.TemporaryDirectory() as directory:
            self.save(directory)
            return quantize(model_dir, out_dir, self.scheme, states=[directory], **options)


def _linear_modules(model: Any, targets: list[str], ignore: list[str]) -> dict[str, Any]:
    torch = sys.modules["torch"]
    found = {}
    for name, module in model.named_modules():
        classes = {k.__name__ for k in type(module).__mro__} if isinstance(module, torch.nn.Linear) else set()
        if classes and _matches(name, classes, targets) and not _matches(name, set(), ignore):
            found[name] = module
    return found


def _matches(name: str, classes: set[str], entries: list[str]) -> bool:
    return any(re.match(e[3:], name) is not None if e.startswith("re:") else e == name or e in classes for e in entries)


def _dtype_of(module: Any) -> Any:
    return module.weight.dtype


def _attention_modules(model: Any) -> dict[Any, str]:
    return {m: name for name, m in model.named_modules() if hasattr(m, "k_proj") and hasattr(m, "v_proj")}


def _fused_inputs(observers: dict[str, Observer]) -> Iterable[list[Observer]]:
    """Observers of the inputs of layers that vLLM runs as one matrix."""
    for name in observers:
        module, _, last = name.removesuffix(".input").rpartition(".")
        for members in _FUSED:
            if name.endswith(".input") and last == members[0]:
                inputs = [f"{module}.{m}.input" for m in members]
                if all(i in observers for i in inputs):
                    yield [observers[i] for i in inputs]
