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
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from . import _library as c
from . import _safetensors
from ._arguments import entries, flag, mapping, wrong_kind
from ._checkpoint import fused_sets, plan, quantize, warn
from ._configuration import Described, Group, describe
from ._functions import text
from ._hooks import Chosen, Expert, Hooks, attention_modules, check_model, linear_modules, own_names
from ._names import modules_in
from ._observer import Observer, fuse
from ._progress import shown
from ._reports import PlanReport, QuantizeReport
from ._schemes import INPUTS
from ._sensitivity import HALVES, Sensitivity
from ._tensor import framework_named

if TYPE_CHECKING:
    import torch

_STATES = "llmc.static_minmax type=float num_bits=8 strategy=tensor"
_IMPORTANCE = "llmc.imatrix_mse"
_HESSIAN = "qobs.local_hessian"
_Report = TypeVar("_Report")


def calibration(model: Any, scheme: Any = None, *, config: Any = None, recipe: Any = None,
                preset: str = "llmc.static_minmax", targets: Iterable[str] | str | None = None,
                ignore: Iterable[str] | str | None = None, kv_cache: bool = False, queries: bool = False,
                importance: bool | str = False, settings: str | Mapping[str, Any] = "", sensitivity: bool = False,
                seed: int = 0) -> Calibration:
    """Observes the activations of a torch model while it runs:

        with libqobs.calibration(model, scheme="FP8") as c:
            for batch in batches:
                model(**batch)
        c.quantize("model", "model-FP8")

    One of three says what to observe; without any it is the scheme FP8:

    - scheme (str): "FP8", "NVFP4", "W8A8_STATIC" and "W8A8_STATIC_ASYM", in any case, store scales of the inputs of
      linear layers; other schemes need kv_cache, queries, importance or sensitivity.
    - config (dict, str or path): a quantization_config, or the path of its JSON.
    - recipe (dict, str or path): a recipe of llm-compressor: its path, or its text of several lines. YAML needs PyYAML.

    scheme and config take what the others take, too: calibration(model, {...}).

    Parameters:

    - model (torch.nn.Module): on any device, also inside DistributedDataParallel or torch.compile, which is off
      meanwhile.
    - preset (str): observer of the inputs.
    - targets (list of str, or one): layers to observe: names of modules, "re:" patterns that match from the start, or
      names of classes. "Linear", the default, means torch.nn.Linear and its subclasses, and the experts of
      transformers 5, whose matrices are parameters. Names are those of the model or of its files, which transformers
      may call otherwise. A config or a recipe has its own.
    - ignore (list of str, or one): layers to leave, in the same words, beside those of a config or recipe; of a scheme
      the default is "lm_head".
    - kv_cache (bool): also keys and values of attention for an e4m3 cache; the model must be one of transformers.
    - queries (bool): the same of queries.
    - importance (bool or str): True also collects the mean square of each column of the inputs, which weighs the
      columns of weights in searches (llmc.imatrix_mse and other presets with mse, qobs.imatrix_optimal).
      "qobs.local_hessian", with settings of that preset after it, collects the products of columns instead: the
      Hessian of each group of columns, or of each hessian_block_size columns. The scheme says the format and the groups
      of the weights; settings change them: "qobs.local_hessian group_size=64".
    - settings (str or dict): more of the observer of the inputs, "averaging_constant=0.05".
    - sensitivity (bool): True also collects how much errors of each row of a weight change the log likelihood, for
      plan; it implies importance. Each call of the model is then followed by a backward pass with labels that the model
      draws from its own logits; sequences without padding, at least two, of text that the model was not trained on.
      Experts in one tensor have none.
    - seed (int): of these labels.

    Memory: one state for each observer: some 200 bytes for min/max, 8 bytes a column for importance, 8 bytes for each
    pair of columns of a block for a Hessian. sensitivity: 8 bytes a row of a weight, and the activations of a call for
    the backward pass, or with activation checkpointing of the model those of one block. The model computes what it
    computes without. Tensors on a GPU are copied to the CPU one by one. One thread at a time may run the model.
    An entry of targets or ignore that matches nothing is a libqobs.IncompleteWarning.
    Errors: InvalidArgumentError, TypeError. Reproduces the calibration of oneshot of llm-compressor and, for
    importance, the hook of IMatrixMSEObserver.attach."""
    check_model(model)
    described = describe(scheme, config, recipe, targets)
    flags = {name: flag(value, name) for name, value in (("kv_cache", kv_cache), ("queries", queries),
                                                         ("sensitivity", sensitivity))}
    states = "q" * flags["queries"] + "kv" * (flags["kv_cache"] or described.kv_cache)
    if not isinstance(importance, str):
        importance = flag(importance, "importance") or flags["sensitivity"]
    if not isinstance(preset, str):
        raise wrong_kind(preset, "preset", "the name of a preset")
    left = described.ignore
    if ignore is not None:
        left = left * (not described.by_name) + entries(ignore, "ignore")
    observed = Calibration(model, described, f"{preset} base_name=input", left, states, importance, words(settings),
                           seed if flags["sensitivity"] else None)
    given = [("targets", targets), ("ignore", ignore)]
    warn([text for text in observed.unused
          if any(text.startswith(name) and value is not None for name, value in given)])
    return observed


def call_model(model: Any, batch: Any) -> None:
    """Runs a batch: a mapping of keyword arguments, a tuple or list of arguments, or one argument."""
    if isinstance(batch, Mapping):
        model(**batch)
    elif isinstance(batch, (tuple, list)):
        model(*batch)
    else:
        model(batch)


def calibrate(model: Any, batches: Iterable[Any], scheme: Any = None, **options: Any) -> Calibration:
    """Runs batches through a torch model and returns what was observed: calibration() with the loop.

        libqobs.calibrate(model, batches, "FP8").quantize("model", "model-FP8")

    batches: mappings of keyword arguments, tuples or lists of arguments, or one argument each; nothing of them is kept.
    scheme, options: those of calibration. The model runs in evaluation mode, without gradients but for sensitivity, and
    is left in its own mode. A line on the terminal says how far it is.
    Errors: those of calibration and of the model; NoDataError without a batch. Reproduces the basic pipeline of oneshot
    of llm-compressor, but for eager attention, which the model must have itself."""
    if isinstance(batches, (str, bytes, Mapping)) or not isinstance(batches, Iterable) and not hasattr(
            batches, "__getitem__"):
        raise wrong_kind(batches, "batches", "a list or another iterable of batches")
    observed = calibration(model, scheme, **options)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with observed, sys.modules["torch"].no_grad():
            for batch in shown(batches, "calibration", "batches"):
                call_model(model, batch)
    finally:
        for module, training in modes.items():
            module.training = training
    observed.observed()
    return observed


def words(settings: Any) -> str:
    """Settings as the end of the text of a configuration."""
    if isinstance(settings, str):
        return settings
    found = mapping(settings, "settings", "{'averaging_constant': 0.05}")
    return " ".join(f"{key}={text(value, key)}" for key, value in found.items())


class Calibration:
    """Observers of the activations of a model, by name: "<module>.input", "<module>.importance",
    "<module>.sensitivity_a", "<module>.sensitivity_b", "<attention>.q_states", "k_states" and "v_states", where a
    module has the name of its weight in files. See calibration. It can be entered several times: batches add up."""

    def __init__(self, model: Any, described: Described, preset: str, ignore: list[str], states: str,
                 importance: bool | str, settings: str, seed: int | None):
        self.scheme: str | None = described.options.get("scheme")
        self._described = described
        self._model_type = getattr(getattr(model, "config", None), "model_type", None)
        self.observers: dict[str, Observer] = {}
        groups = described.groups
        self._importance = [_importance_config(group, described, importance) for group in groups] if importance else []
        if not any(group.inputs for group in groups) and not states and not importance:
            raise c.InvalidArgumentError(
                f"{described.label}: stores no scales of activations; schemes that do are {', '.join(INPUTS)}. "
                "kv_cache, queries, importance and sensitivity observe something for others")
        chosen = linear_modules(model, [group.targets for group in groups], ignore) if groups else Chosen({}, {}, [])
        self.unused, self.modules = chosen.unused, chosen.modules
        modules = self.modules
        attention = attention_modules(model) if states else {}
        self._own_names = own_names(model)
        self._dtypes = {name: m.weight.dtype for name, m in modules.items()}
        self._dtypes |= {name: m.k_proj.weight.dtype for name, m in attention.items()}
        for name, module in modules.items():
            group = groups[chosen.group[name]]
            if group.inputs:
                self.observers[f"{name}.input"] = Observer(f"{preset} {group.inputs} {settings}")
            if importance:
                self.observers[f"{name}.importance"] = Observer(self._importance[chosen.group[name]])
            for half in HALVES if seed is not None and not isinstance(module, Expert) else ():
                self.observers[f"{name}.{half}"] = Observer(f"{_IMPORTANCE} base_name=weight")
        for name in attention:
            for k in states:
                self.observers[f"{name}.{k}_states"] = Observer(f"{_STATES} base_name={k}")
        for observer in self.observers.values():
            observer._framework = framework_named("torch")  # also of those that are only merged into
        self._hooks = Hooks(model, modules, attention, self._receive)
        self._sensitivity = Sensitivity(model, modules, self._receive_sensitivity, seed) if seed is not None else None

    def __enter__(self) -> Calibration:
        self._hooks.enter()
        if self._sensitivity is not None:
            self._sensitivity.enter()
        return self

    def __exit__(self, *failure: Any) -> None:
        if self._sensitivity is not None:
            self._sensitivity.leave()
        self._hooks.leave()

    def _receive_sensitivity(self, name: str, row: Any) -> None:
        self.observers[name].observe_importance(row)

    def _receive(self, name: str, x: Any) -> None:
        if self._sensitivity is not None and self._sensitivity.backward:
            return
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
                 if (_tokens(o) if _is_mean_squares(name) else o.counts().batches) > 0}
        if not found:
            raise c.NoDataError("calibration: no layer has run")
        return found

    def save(self, directory: Any) -> None:
        """Writes the observers that have data to a directory: states.json, which names them, and a file each.
        quantize(states=[...]) and qobs quantize --states read it; states of several machines merge.

        directory: a new or empty one; it appears when it is complete. Errors: NoDataError, FileExistsError, OSError;
        nothing is left then."""
        self._save(directory, {})

    def _save(self, directory: Any, names: Mapping[str, str]) -> None:
        """save with other names for modules."""
        observers = self.observed()
        path = os.path.abspath(_path(directory, "directory"))
        if os.path.isdir(path) and os.listdir(path):
            raise FileExistsError(f"qobs: directory {path} is not empty")
        part = f"{path}.{os.getpid()}.part"
        os.mkdir(part)
        try:
            files = {}
            for i, (name, observer) in enumerate(observers.items()):
                module, kind = name.rsplit(".", 1)
                files[f"{names.get(module, module)}.{kind}"] = f"{i}.qobs"
                with open(os.path.join(part, f"{i}.qobs"), "wb") as out:
                    out.write(observer.save())
            with open(os.path.join(part, "states.json"), "w", encoding="utf-8") as out:
                json.dump({"states": files}, out, indent=1)
            os.rename(part, path)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise

    def scales(self) -> dict[str, torch.Tensor]:
        """Tensors as a checkpoint stores them, shape (1,), by name: input_scale, input_global_scale (NVFP4),
        input_zero_point (W8A8_STATIC_ASYM), q_scale, k_scale, v_scale. Scales have the dtype of the weight, global
        scales float32. Layers that vLLM fuses share a global scale. Errors: NoDataError."""
        observers = {name: copy.copy(o) for name, o in self.observed().items() if not _is_mean_squares(name)}
        local = [name.removesuffix(".input") for name, o in observers.items() if o.settings.get("dynamic") == "local"]
        for members in fused_sets(local, self._model_type):
            fuse(observers[f"{module}.input"] for module in members)
        out = {}
        for name, observer in observers.items():
            module, kind = name.rsplit(".", 1)
            kind = kind.removesuffix("_states")
            if module in local and kind == "input":
                out[f"{module}.input_global_scale"] = observer.read("global_scale").reshape(1)
                continue
            scale, zero_point, _ = observer.qparams()
            out[f"{module}.{kind}_scale"] = scale.reshape(1).to(self._dtypes[module])
            if zero_point is not None and observer.settings.get("symmetric") is False:
                out[f"{module}.{kind}_zero_point"] = zero_point.reshape(1)
        return out

    def importance(self) -> dict[str, torch.Tensor]:
        """Mean square of each column of the inputs, float32 of shape (columns,), by name of the module: importance of
        search. Errors: NoDataError; InvalidArgumentError if a Hessian was collected."""
        if self._has_hessian():
            raise c.InvalidArgumentError(f"importance: was collected for {_HESSIAN}, see hessian()")
        return self._means("imatrix_sum")

    def hessian(self) -> dict[str, torch.Tensor]:
        """Mean products of columns of the inputs, E[x x^T], float64 of shape (blocks, n, n), by name of the module;
        short blocks end with zeros. Errors: NoDataError; InvalidArgumentError if none was collected."""
        if not self._has_hessian():
            raise c.InvalidArgumentError(f"importance: is not {_HESSIAN}, so that there is no Hessian")
        return self._means("hessian_sum")

    def _has_hessian(self) -> bool:
        return any(text.startswith(_HESSIAN) for text in self._importance)

    def _means(self, name: str) -> dict[str, torch.Tensor]:
        observers = {name: o for name, o in self.observed().items() if name.endswith(".importance")}
        return {module.removesuffix(".importance"): o.read(name) / _tokens(o) for module, o in observers.items()}

    def write_scales(self, path: Any) -> None:
        """Writes scales() to a safetensors file, which appears when it is complete. Errors: NoDataError, OSError."""
        _safetensors.write(_path(path, "path"), self.scales())

    def plan(self, model_dir: Any, schemes: Iterable[str], **options: Any) -> PlanReport:
        """Predicts what schemes cost the model in a directory, with what was observed: libqobs.plan with states.

        options: those of libqobs.plan; the default of preset is that of quantize. Errors: those of libqobs.plan,
        NoDataError."""
        if any(name.endswith(".importance") for name in self.observers):
            _set_preset(self._importance, options)
        return self._with_states(model_dir, lambda states: plan(model_dir, schemes, states=[states], **options))

    def quantize(self, model_dir: Any, out_dir: Any, **options: Any) -> QuantizeReport:
        """Quantizes the directory of the model with what was observed: libqobs.quantize with scheme and states.

        options: those of libqobs.quantize. With importance the default of preset is "llmc.imatrix_mse", with a Hessian
        it is that preset with the settings of importance. Returns the report of quantize. Errors: those of
        libqobs.quantize, NoDataError."""
        if any(name.endswith(".importance") for name in self.observers):
            _set_preset(self._importance, options)
        return self._with_states(model_dir, lambda states: quantize(model_dir, out_dir, states=[states],
                                                                    **{**self._described.options, **options}))

    def _with_states(self, model_dir: Any, function: Callable[[str], _Report]) -> _Report:
        """Calls a function with a directory of states, whose names are those in the files of the model."""
        with tempfile.TemporaryDirectory() as folder:
            states = os.path.join(folder, "states")
            there = modules_in(model_dir)
            self._save(states, {file: own for file, own in self._own_names.items()
                                if file not in there and own in there})
            try:
                return function(states)
            except c.InvalidArgumentError as failure:
                lost = [file for file in self._own_names if f"{file}.input" in self.observers
                        and file not in there and self._own_names[file] not in there]
                if not lost or "recorded" not in str(failure):
                    raise
                raise c.InvalidArgumentError(
                    f"{failure}; the model has a layer {self._own_names[lost[0]]!r}, in files {lost[0]!r}, and "
                    f"{os.fspath(model_dir)} has none of these names") from None


def quantize_options(scheme: Any, importance: bool | str, **more: Any) -> dict[str, Any]:
    """The arguments of quantize for what calibration observes with these arguments. more: targets, ignore."""
    described = describe(scheme, None, None, more.get("targets"))
    options = {**described.options, **{name: value for name, value in more.items() if value is not None}}
    if importance:
        _set_preset([_importance_config(group, described, importance) for group in described.groups], options)
    return options


def _set_preset(importance: list[str], options: dict[str, Any]) -> None:
    """With importance its preset is the default, with a Hessian with its settings. importance: its observers."""
    preset, *words = importance[0].split()
    if options.setdefault("preset", preset) == _HESSIAN:
        own = dict(word.split("=", 1) for word in words[words.index("base_name=weight") + 1:])
        options["settings"] = {**own, **mapping(options.get("settings"), "settings", "{'group_size': 64}")}


def _importance_config(group: Group, described: Described, importance: bool | str) -> str:
    """The observer of importance: preset, settings of the weights, "base_name=weight", settings of the caller."""
    if isinstance(importance, bool):
        return f"{_IMPORTANCE} base_name=weight"
    preset, _, settings = importance.partition(" ")
    if preset != _HESSIAN:
        raise c.InvalidArgumentError(f"importance: is {importance!r}, allowed are True, False and {_HESSIAN!r} with "
                                     "settings")
    config = f"{preset} {group.weights or ''} base_name=weight {settings}".strip()
    try:
        Observer(config)
    except c.InvalidArgumentError as failure:
        raise c.InvalidArgumentError(f"importance: is {importance!r} with {described.label}: {failure}") from None
    return config


def _path(value: Any, name: str) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise wrong_kind(value, name, "a path")
    return os.fspath(value)


def _is_mean_squares(name: str) -> bool:
    """Whether an observer of that name sees rows of which it keeps mean squares."""
    return name.rpartition(".")[2] in ("importance", *HALVES)


def _tokens(importance: Observer) -> int:
    """Activations that an observer of importance has seen."""
    results = importance.results
    names = [name for name in ("imatrix_count", "hessian_count") if name in results]
    return int(results[names[0]].item()) if names else 0
