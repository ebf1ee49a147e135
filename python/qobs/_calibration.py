# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibration of a running torch model: hooks feed observers, and nothing is stored."""
from __future__ import annotations

import copy
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from . import _library as c
from . import _safetensors
from ._checkpoint import quantize
from ._hooks import Hooks, attention_modules, linear_modules
from ._observer import Observer, fuse
from ._tensor import framework_named

# The activations that presets of compressed-tensors store (quantization/quant_scheme.py).
_INPUTS = {
    "FP8": "type=float num_bits=8 strategy=tensor",
    "NVFP4": "type=float num_bits=4 strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn dynamic=local",
}
_STATES = "llmc.static_minmax type=float num_bits=8 strategy=tensor"
_IMPORTANCE = "llmc.imatrix_mse base_name=weight"
# Layers with one input that vLLM runs as one matrix, and which therefore share a global scale.
_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("q_a_proj", "kv_a_proj_with_mqa"), ("w1", "w3"))


def calibration(model: Any, scheme: str = "FP8", *, preset: str = "llmc.static_minmax",
                targets: Iterable[str] = ("Linear",), ignore: Iterable[str] = ("lm_head",), kv_cache: bool = False,
                queries: bool = False, importance: bool = False, settings: str = "") -> Calibration:
    """Observes the activations of a torch model while it runs:

        with qobs.calibration(model, scheme="FP8") as c:
            for batch in batches:
                model(**batch)
        c.quantize("model", "model-FP8")

    model: any torch module, on any device. scheme: FP8 and NVFP4, in any case, store scales of the inputs of linear
    layers; other schemes need kv_cache, queries or importance. preset: observer of the inputs; settings: more of it,
    "averaging_constant=0.05". targets, ignore: names of modules, "re:" patterns that match from the start, or names of
    classes: "Linear" means torch.nn.Linear and its subclasses. kv_cache: also observes keys and values of attention for
    an e4m3 cache; the model must be one of transformers. queries: the same of queries. importance: also collects the
    mean square of each column of the inputs, which weighs the columns of weights in searches (llmc.imatrix_mse and
    other presets with mse).

    Memory: one state for each observer: some 200 bytes for min/max, 8 bytes a column for importance. The model computes
    what it computes without. Tensors on a GPU are copied to the CPU one by one. One thread at a time may run the model.
    Errors: InvalidArgumentError. Reproduces the calibration of oneshot of llm-compressor and, for importance, the hook
    of IMatrixMSEObserver.attach."""
    states = "q" * queries + "kv" * kv_cache
    return Calibration(model, scheme, preset, targets, ignore, states, importance, settings)


def calibrate(model: Any, batches: Iterable[Any], scheme: str = "FP8", **options: Any) -> Calibration:
    """Runs batches through a torch model and returns what was observed: calibration() with the loop.

        qobs.calibrate(model, batches, "FP8").quantize("model", "model-FP8")

    batches: mappings of keyword arguments, tuples or lists of arguments, or one argument each; nothing of them is kept.
    options: those of calibration. The model runs in evaluation mode without gradients and is left in its own mode.
    Errors: those of calibration and of the model; NoDataError without a batch. Reproduces the basic pipeline of oneshot
    of llm-compressor, but for eager attention, which the model must have itself."""
    observed = calibration(model, scheme, **options)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with observed, sys.modules["torch"].no_grad():
            for batch in batches:
                if isinstance(batch, Mapping):
                    model(**batch)
                elif isinstance(batch, (tuple, list)):
                    model(*batch)
                else:
                    model(batch)
    finally:
        for module, training in modes.items():
            module.training = training
    observed.observed()
    return observed


class Calibration:
    """Observers of the activations of a model, by name: "<module>.input", "<module>.importance",
    "<attention>.q_states", "k_states" and "v_states". See calibration. It can be entered several times: batches add
    up."""

    def __init__(self, model: Any, scheme: str, preset: str, targets: Iterable[str], ignore: Iterable[str],
                 states: str, importance: bool, settings: str):
        self.scheme = scheme.upper()
        self.observers: dict[str, Observer] = {}
        if self.scheme not in _INPUTS and not states and not importance:
            raise c.InvalidArgumentError(f"scheme: is {scheme!r}; those with stored scales of activations are "
                                         f"{', '.join(_INPUTS)}. Others need kv_cache, queries or importance")
        modules = linear_modules(model, targets, ignore)
        attention = attention_modules(model) if states else {}
        self._dtypes = {name: m.weight.dtype for name, m in modules.items()}
        self._dtypes |= {name: m.k_proj.weight.dtype for name, m in attention.items()}
        for name in modules:
            if self.scheme in _INPUTS:
                config = f"{preset} base_name=input {_INPUTS[self.scheme]} {settings}"
                self.observers[f"{name}.input"] = Observer(config)
            if importance:
                self.observers[f"{name}.importance"] = Observer(_IMPORTANCE)
        for name in attention:
            for k in states:
                self.observers[f"{name}.{k}_states"] = Observer(f"{_STATES} base_name={k}")
        for observer in self.observers.values():
            observer._framework = framework_named("torch")  # also of those that are only merged into
        self._hooks = Hooks(model, modules, attention, self._receive)

    def __enter__(self) -> Calibration:
        self._hooks.enter()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._hooks.leave()

    def _receive(self, name: str, x: Any) -> None:
        observer = self.observers.get(name)
        if observer is not None:
            observer.observe(x)
        if name.endswith(".input"):
            observer = self.observers.get(f"{name.removesuffix('.input')}.importance")
            if observer is not None:
                observer.observe_importance(x)

    # Results

    def observed(self) -> dict[str, Observer]:
        """The observers that have data. Modules that have not run are missing, such as experts without tokens. Errors:
        NoDataError if there is none."""
        found = {name: o for name, o in self.observers.items()
                 if (o.results["imatrix_count"].item() if name.endswith(".importance") and "imatrix_count" in o.results
                     else o.counts().batches) > 0}
        if not found:
            raise c.NoDataError("calibration: no layer has run")
        return found

    def save(self, directory: Any) -> None:
        """Writes the observers that have data to a directory: states.json, which names them, and a file each.
        quantize(states=[...]) and qobs quantize --states read it; states of several machines merge.

        directory: a new or empty one; it appears when it is complete. Errors: NoDataError, FileExistsError, OSError;
        nothing is left then."""
        observers = self.observed()
        path = os.path.abspath(os.fspath(directory))
        if os.path.isdir(path) and os.listdir(path):
            raise FileExistsError(f"qobs: directory {path} is not empty")
        part = f"{path}.{os.getpid()}.part"
        os.mkdir(part)
        try:
            files = {name: f"{i}.qobs" for i, name in enumerate(observers)}
            for name, file in files.items():
                with open(os.path.join(part, file), "wb") as out:
                    out.write(observers[name].save())
            with open(os.path.join(part, "states.json"), "w", encoding="utf-8") as out:
                json.dump({"states": files}, out, indent=1)
            os.rename(part, path)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise

    def scales(self) -> dict[str, Any]:
        """Tensors as a checkpoint stores them, shape (1,), by name: input_scale (FP8), input_global_scale (NVFP4),
        q_scale, k_scale, v_scale. Scales have the dtype of the weight, global scales float32. Layers that vLLM fuses
        share a global scale. Errors: NoDataError."""
        observers = {name: copy.copy(o) for name, o in self.observed().items() if not name.endswith(".importance")}
        if self.scheme == "NVFP4":
            for members in _fused_inputs(observers):
                fuse(members)
        out = {}
        for name, observer in observers.items():
            module, kind = name.rsplit(".", 1)
            if kind == "input" and self.scheme == "NVFP4":
                out[f"{module}.input_global_scale"] = observer.read("global_scale").reshape(1)
            else:
                scale = observer.read("scale").reshape(1)
                out[f"{module}.{kind.removesuffix('_states')}_scale"] = scale.to(self._dtypes[module])
        return out

    def importance(self) -> dict[str, Any]:
        """Mean square of each column of the inputs, float32 of shape (columns,), by name of the module: importance of
        search. Errors: NoDataError."""
        observers = {name: o for name, o in self.observed().items() if name.endswith(".importance")}
        return {name.removesuffix(".importance"): o.read("imatrix_sum") / o.read("imatrix_count").item()
                for name, o in observers.items()}

    def write_scales(self, path: Any) -> None:
        """Writes scales() to a safetensors file, which appears when it is complete. Errors: NoDataError, OSError."""
        _safetensors.write(path, self.scales())

    def quantize(self, model_dir: Any, out_dir: Any, **options: Any) -> dict[str, Any]:
        """Quantizes the directory of the model with what was observed: qobs.quantize with scheme and states.

        options: those of qobs.quantize. With importance the default of preset is "llmc.imatrix_mse". Returns its
        report. Errors: those of qobs.quantize, NoDataError."""
        if any(name.endswith(".importance") for name in self.observers):
            options.setdefault("preset", "llmc.imatrix_mse")
        with tempfile.TemporaryDirectory() as folder:
            states = os.path.join(folder, "states")
            self.save(states)
            return quantize(model_dir, out_dir, self.scheme, states=[states], **options)


def _fused_inputs(observers: dict[str, Observer]) -> Iterable[list[Observer]]:
    for name in observers:
        module, _, last = name.removesuffix(".input").rpartition(".")
        for members in _FUSED:
            inputs = [f"{module}.{m}.input" if module else f"{m}.input" for m in members]
            if name.endswith(".input") and last == members[0] and all(i in observers for i in inputs):
                yield [observers[i] for i in inputs]
