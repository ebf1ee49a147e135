# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Quantization block by block with the error of earlier layers in the rounding.

For a weight W, x its inputs in the unquantized model and y those in the model whose earlier weights are quantized,
also those of its own block: H = mean y y^T, E = W mean (x - y) y^T, A = H + k I and V = W + E A^-1. Codes and scales
of V are those that make (Q - V) A (Q - V)^T small. Up to a constant this is the mean of |W x - Q y|^2 and k |Q - W|^2:
the objective of GPTAQ (Li et al. 2025) and Qronos (Zhang et al. 2025) with a ridge. The ridge k stands for the tokens
that are missing."""
from __future__ import annotations

import copy
import json
import math
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from . import _library as c
from ._arguments import mapping, wrong_kind
from ._block_model import OUTSIDE, BlockModel, first_line
from ._block_store import Store, write, write_json
from ._block_weights import Group, Place, Stage, Weights, place_of, stages_of_experts
from ._blocks import Passes, Ranks, batches_of, described, directory_of, peak_bytes
from ._calibration import Calibration, calibration, words
from ._checkpoint import audit, quantize
from ._configuration import Described, describe
from ._functions import settings as settings_of
from ._hooks import Hooks, attention_modules
from ._names import modules_in
from ._observer import Observer
from ._progress import Line
from ._reports import QuantizeBlocksReport

_PRESET, _PLAIN = "qobs.local_hessian", "llmc.memoryless_minmax"
_SHARE = 0.1   # of the mean square of the inputs, at least; more where there are fewer than ten tokens for a column
# Preset, of which the first that has the weights of a scheme counts -> settings
_DEFAULTS: dict[str, dict[str, Any]] = {_PRESET: {"hessian_block_size": 1 << 20, "rounding": "descent"}, _PLAIN: {}}
_MOST_SUMS = 1 << 30  # bytes of the sums of experts that are quantized together
_CODES, _CONFIG, _LAYERS = "codes.safetensors", "config.json", "layers.json"


def quantize_blocks(model_dir: Any, out_dir: Any, batches: Iterable[Any], scheme: Any, *,
                    settings: Mapping[str, Any] | None = None, targets: Iterable[str] | str | None = None,
                    ignore: Iterable[str] | str | None = None, kv_cache: bool = False, fill_experts: str = "refuse",
                    group: Any = None, load: Mapping[str, Any] | None = None) -> QuantizeBlocksReport:
    """Quantizes the weights of a model that need not fit into memory, block by block, each under the inputs that it
    gets in the quantized model:

        qobs.quantize_blocks("model", "model-W4A16", batches, "W4A16", settings={"group_size": 64})

    The rounding mends the error of earlier layers: in place of the weight W it takes V, for which the outputs are
    nearest to those of the unquantized model. Scales and codes are those of qobs.local_hessian with descent, under the
    damped Hessian of the row; floats of 8 bits have the scales of their range and the nearest codes. Experts are
    rounded for the tokens that the router of the quantized model sends to them; one without tokens keeps its weights.

    model_dir, batches, group, load: as of calibrate_blocks. out_dir: a new or empty directory. It appears when it is
    complete, as quantize writes it. Until then its neighbour with ".blocks" after the name holds codes of complete
    blocks and the hidden states after them. The same call goes on where one has ended. scheme: "W4A16", "NVFP4" or
    "FP8", a configuration or a recipe; scales of inputs are those in the quantized model. settings: of the scheme's
    weights and of qobs.local_hessian. kv_cache: also scales of keys and values of attention in the quantized model, for
    an e4m3 cache; a configuration may ask for them, too. fill_experts: as of quantize, for scales of inputs of experts
    without tokens.
    The model runs in float32, twice: with its own weights and with the quantized ones.
    Memory: the float32 weights of one block twice, one batch, and 40 bytes for each pair of columns of one layer.
    Experts are taken together as far as 1 GB holds 16 bytes for each pair of columns of each; with scales of inputs,
    all of a block. Disk: what a block returns in float32 for all batches, four times.
    Returns the report of quantize for what was written, whose layers have "rounding": the objective before the descent
    and after it; and blocks, run, batches, seconds, peak_bytes as of calibrate_blocks. Errors: those of
    calibrate_blocks and quantize; UnsupportedError for layers that run several times in a block or in none, and for
    schemes of which some weights are floats of 8 bits and others are not."""
    given, ranks, begin = batches_of(batches), Ranks(group), time.monotonic()
    if not isinstance(out_dir, (str, os.PathLike)):
        raise wrong_kind(out_dir, "out_dir", "a path")
    described_as = describe(scheme, None, None, targets)
    preset = _preset_of(described_as)
    own = {**mapping(load, "load", "{'attn_implementation': 'eager'}"), "dtype": "float32"}
    model = BlockModel(directory_of(model_dir), own)
    wanted = {**_DEFAULTS[preset], **mapping(settings, "settings", "{'group_size': 64}")}
    observed = calibration(model.model, scheme, importance=_importance(described_as, preset, wanted), targets=targets,
                           ignore=ignore, kv_cache=kv_cache)
    job = _Job(model, observed, _layers(model, observed), preset, wanted, _options(observed, targets, ignore),
               fill_experts)
    store = Store(os.path.abspath(os.fspath(out_dir)), ranks.rank)
    run = {**described(model, observed, given, load, ranks), "settings": words(wanted), "fill_experts": fill_experts}
    try:
        ranks.same(lambda: store.open(run))
        taken = ranks.same(lambda: _begin(job, store) if ranks.rank == 0 else None)[0]
        job = job._replace(layers=[layer for layer in job.layers if layer.name in taken])
        ran = _Run(job, given, store, ranks).all()
        report = ranks.same(lambda: _publish(job, store) if ranks.rank == 0 else None)[0]
    finally:
        store.close()
    store.remove(ranks.rank)
    return {**report, "blocks": len(model.blocks), "run": ran, "batches": len(given),
            "seconds": time.monotonic() - begin, "peak_bytes": peak_bytes()}


def _options(observed: Calibration, targets: Any, ignore: Any) -> dict[str, Any]:
    given = {name: value for name, value in (("targets", targets), ("ignore", ignore)) if value is not None}
    return {**observed._described.options, **given}


def _preset_of(described_as: Described) -> str:
    """The preset of the scales of a scheme. Errors: UnsupportedError if none has its weights, or several."""
    found = {_preset_with(group.weights, described_as.label) for group in described_as.groups if group.weights}
    if len(found) == 1:
        return found.pop()
    reason = ("has floats of 8 bits, whose codes are the nearest, beside weights that are rounded by descent" if found
              else "quantizes no weights")
    raise c.UnsupportedError(f"{described_as.label}: {reason}; calibrate_blocks and quantize take it")


def _preset_with(weights: str, label: str) -> str:
    reason = ""
    for preset in _DEFAULTS:
        try:
            Observer(f"{preset} {weights} base_name=weight")
            return preset
        except c.InvalidArgumentError as failure:
            reason = reason or str(failure)
    raise c.UnsupportedError(f"{label}: {reason}; quantize_blocks takes integers, NVFP4, MXFP4 and floats of 8 bits")


def _importance(described_as: Described, preset: str, wanted: Mapping[str, Any]) -> bool | str:
    """The argument of calibration. Errors: InvalidArgumentError for a setting that the preset has not."""
    if preset == _PRESET:
        return f"{_PRESET} {words(wanted)}"
    for group in described_as.groups:
        Observer(f"{preset} {group.weights or ''} base_name=weight {words(wanted)}")
    return True


def _layers(model: BlockModel, observed: Calibration) -> list[_Layer]:
    """The layers to quantize. Errors: UnsupportedError if one is in no block."""
    own, there = observed._own_names, modules_in(model.directory)
    blocks = {id(module): i for i, block in enumerate(model.blocks) for module in block.modules()}
    found = []
    for known, module in observed.modules.items():
        name, place = known if known in there else own.get(known, known), place_of(module)
        found.append(_Layer(name, place, known, blocks.get(id(place.module), OUTSIDE),
                            model.dtype_in_files(f"{name}.weight")))
    outside = [layer.name for layer in found if layer.block == OUTSIDE]
    if outside:
        raise c.UnsupportedError(f"model_dir: {outside[0]} is in no block; ignore={outside!r} leaves it as it is")
    return found


class _Layer(NamedTuple):
    """A linear layer by its name in the files. known: its name in observers; dtype: in the files."""

    name: str
    place: Place
    known: str
    block: int
    dtype: Any


class _Job(NamedTuple):
    """A call. preset, settings: of the scales of weights; options: those of quantize that choose layers and
    schemes."""

    model: BlockModel
    observed: Calibration
    layers: list[_Layer]
    preset: str
    settings: dict[str, Any]
    options: dict[str, Any]
    fill_experts: str

    @property
    def of(self) -> dict[str, _Layer]:
        return {layer.name: layer for layer in self.layers}

    def inputs_of(self, names: Iterable[str]) -> dict[str, Observer]:
        """Observers of the inputs of layers, whose scales the scheme stores, by their names in states."""
        there = self.observed.observers
        known = {name: f"{layer.known}.input" for name, layer in self.of.items()}
        return {f"{name}.input": there[known[name]] for name in names if known[name] in there}

    def unseen(self, names: Iterable[str] | None) -> dict[str, bytes]:
        """States of the keys and values of attention whose layers are among these, or of all, until those of the blocks
        are known: quantize writes scales of the same names and shapes."""
        there = None if names is None else set(names)
        return {name: _unseen(observer, 1, 1, 1) for name, observer in self.observed.observers.items()
                if name.endswith("_states") and (there is None or there & _projections(name))}


def _projections(name: str) -> set[str]:
    """The layers by which quantize knows the attention of keys or values."""
    attention = name.rpartition(".")[0]
    return {f"{attention}.k_proj", f"{attention}.v_proj"}


def _unseen(observer: Observer, *shape: int) -> bytes:
    """The state of an observer that has seen ones."""
    return copy.copy(observer).observe(sys.modules["torch"].ones(1, *shape)).save()


# ---- Runs ------------------------------------------------------------------------------------------------------------

class _Silent:
    """In place of observers: nothing is observed."""

    open = live = False

    def names(self) -> list[str]:
        return []

    def clear(self) -> None:
        pass


class _Attention:
    """Observes keys and values of attention while it is entered and open."""

    def __init__(self, job: _Job):
        self._of = {name: o for name, o in job.observed.observers.items() if name.endswith("_states")}
        model, self.open = job.model, False
        modules = attention_modules(model.model) if self._of else {}
        blocks = {id(module): i for i, block in enumerate(model.blocks) for module in block.modules()}
        self._block = {name: blocks.get(id(module), OUTSIDE) for name, module in modules.items()}
        self._dtypes = {name: model.dtype_in_files(f"{name}.k_proj.weight") for name in modules}
        self._hooks = Hooks(model.model, {}, modules, self._receive)

    def __enter__(self) -> None:
        self._hooks.enter()

    def __exit__(self, *failure: Any) -> None:
        self._hooks.leave()

    def _receive(self, name: str, x: Any) -> None:
        if self.open and name in self._of:
            self._of[name].observe(x)

    def scales(self, block: int, ranks: Ranks) -> dict[str, Any]:
        """The scales of a block as a checkpoint stores them, of all ranks."""
        mine = {name: o for name, o in self._of.items() if self._block[name.rpartition(".")[0]] == block}
        ranks.merge(list(mine.values()))
        return {f"{name.removesuffix('_states')}_scale":
                o.qparams()[0].reshape(1).to(self._dtypes[name.rpartition(".")[0]]) for name, o in mine.items()}


class _Run:
    """All blocks in both streams: what each returns with its own weights, and with the quantized ones."""

    def __init__(self, job: _Job, batches: list[Any], store: Store, ranks: Ranks):
        self._job, self._model, self._batches, self._store, self._ranks = job, job.model, batches, store, ranks
        self._passes, self._attention = Passes(job.model, _Silent()), _Attention(job)
        self._line = Line("quantize")

    def all(self) -> int:
        """Returns how many blocks have run."""
        first = self._ranks.same(self._store.done)[0]
        hidden = self._store.hidden(first)
        self._ranks.same(lambda: self._store.check_hidden(hidden))
        count = len(self._model.blocks)
        self._model.load(OUTSIDE)
        with sys.modules["torch"].no_grad(), self._attention, self._line:
            for block in range(hidden + 1, count):
                self._block(block, complete=block < first)
                if block == 0:
                    self._passes.check(self._batches[0], self._store.get(0, 0)[0])
        return count - first

    def _block(self, block: int, complete: bool) -> None:
        model, store = self._model, self._store
        model.load(block)
        weights = _Weights(self._job, block)
        if complete:
            weights.read(store.folder_of(block))
        else:
            self._quantize(block, weights)
        store.begin_hidden(block)
        for i, batch in enumerate(self._batches):
            store.put(i, self._streams(block, batch, i, weights, observe=not complete))
            self._line.show(block, len(model.blocks), i + 1, len(self._batches))
        store.end_hidden(block)
        weights.release()
        model.drop()
        if not complete:
            weights.add_scales(self._attention.scales(block, self._ranks))
            self._ranks.same(lambda: store.add_files(block, weights.files()) if self._ranks.rank == 0 else None)
        store.drop_hidden(block)

    def _streams(self, block: int, batch: Any, number: int, weights: _Weights, observe: bool) -> list[Any]:
        """Returns the output of the block in both streams. observe: keys and values of the quantized one."""
        own = self._stream(block, batch, number, weights, False)
        self._attention.open = observe
        quantized = self._stream(block, batch, number, weights, True)
        self._attention.open = False
        return [own, quantized]

    def _stream(self, block: int, batch: Any, number: int, weights: _Weights, quantized: bool,
                whole: bool = True) -> Any:
        """What the block returns in one stream."""
        weights.use(quantized)
        given = self._store.get(block - 1, number)[quantized] if block else None
        return self._passes.run(block, batch, given, first=number == 0, whole=whole)

    def _quantize(self, block: int, weights: _Weights) -> None:
        """Stage after stage: the weights of a stage see inputs from codes of the stages before."""
        for stage in self._stages(block, weights):
            sums = [_Sums(group) for group in stage.groups]
            for i, batch in enumerate(self._batches):
                self._add(sums, *self._inputs(block, batch, i, weights, stage))
            for one in sums:
                one.merge(self._ranks)
            inputs = self._job.inputs_of(stage.names)
            self._ranks.merge(list(inputs.values()))
            weights.use(False)
            made = self._ranks.same(lambda: _codes(self._job, self._store.work, sums, inputs)
                                    if self._ranks.rank == 0 else None)[0]
            weights.add(made)

    def _add(self, sums: list[_Sums], own: list[Any], quantized: list[Any]) -> None:
        """Inputs of the same tokens, in the unquantized and in the quantized model, which observers see."""
        for one, x, y in zip(sums, own, quantized):
            one.add(x, y)
            for observer in self._job.inputs_of(one.group.places).values():
                observer.observe(y)

    def _inputs(self, block: int, batch: Any, number: int, weights: _Weights, stage: Stage) -> tuple[Any, Any]:
        """The inputs of a stage in both streams. The router of the quantized model chooses the experts of both."""
        found: list[Any] = []
        chosen = None

        def see(module: Any, args: tuple, kwargs: dict) -> None:
            nonlocal chosen
            rows, chosen = stage.inputs(args, kwargs, chosen)
            found.append(rows)
            self._passes.stop()
        with _hooked([stage.module], see):
            for quantized in (True, False):
                self._stream(block, batch, number, weights, quantized, whole=False)
        return found[1], found[0]

    def _stages(self, block: int, weights: _Weights) -> list[Stage]:
        """Layers that get the same tensor are a stage, in the order of their calls."""
        of_module: dict[Any, dict[str, Place]] = {}
        for name, place in weights.places.items():
            of_module.setdefault(place.module, {})[name] = place
        calls: list[tuple[Any, Any]] = []
        with _hooked(of_module, lambda module, args, kwargs: calls.append((module, [*args, *kwargs.values()][0]))):
            self._stream(block, self._batches[0], 0, weights, False)
        stages: list[tuple[Any, dict[str, Place]]] = []
        for module, x in calls:
            places = of_module.pop(module, None)
            if places is None:
                raise self._model.refused("a linear layer runs several times in a block")
            found = next((other for y, other in stages if y.data_ptr() == x.data_ptr() and y.shape == x.shape
                          and _are_linear(places, other)), None)
            if found is None:
                stages.append((x, places))
            else:
                found.update(places)
        for lost in of_module.values():
            raise self._model.refused(f"{next(iter(lost))} does not run for the first batch")
        return [stage for _, places in stages for stage in self._parts(places)]

    def _parts(self, places: dict[str, Place]) -> list[Stage]:
        """Experts with scales of inputs are one stage, since those without tokens take a scale from others."""
        if _are_linear(places):
            return [Stage([Group(places)])]
        return stages_of_experts(places, math.inf if self._job.inputs_of(places) else _MOST_SUMS)


def _are_linear(*several: Mapping[str, Place]) -> bool:
    return all(place.expert < 0 for places in several for place in places.values())


class _hooked:
    """Hooks before the calls of modules."""

    def __init__(self, modules: Iterable[Any], hook: Any):
        self._modules, self._hook = list(modules), hook

    def __enter__(self) -> None:
        self._handles = [m.register_forward_pre_hook(self._hook, with_kwargs=True) for m in self._modules]

    def __exit__(self, *failure: Any) -> None:
        for handle in self._handles:
            handle.remove()


# ---- Weights ---------------------------------------------------------------------------------------------------------

class _Weights(Weights):
    """The chosen layers of a block with both kinds of weights, and the files that hold the codes."""

    def __init__(self, job: _Job, block: int):
        super().__init__({layer.name: layer.place for layer in job.layers if layer.block == block})
        self._tensors: dict[str, Any] = {}
        self._layers: list[Any] = []
        self._arguments: dict[str, Any] = {}
        self._config: Any = None

    def add(self, made: _Made) -> None:
        """Takes the codes of a stage."""
        self._layers += made.layers
        self._arguments |= made.arguments
        self._config = made.config
        self._take(made.tensors)

    def add_scales(self, scales: Mapping[str, Any]) -> None:
        """Takes scales of keys and values."""
        self._tensors |= scales

    def _take(self, tensors: Mapping[str, Any]) -> None:
        from ._quantized import dequantize
        self._tensors |= tensors
        parts: dict[str, dict[str, Any]] = {}
        for name, value in tensors.items():
            module, _, part = name.rpartition(".")
            if module in self.places:
                parts.setdefault(module, {})[part] = value
        self.put((name, dequantize(found, self._arguments[name])) for name, found in parts.items())

    def files(self) -> dict[str, bytes]:
        from safetensors.torch import save
        return {_CODES: save(self._tensors), _CONFIG: json.dumps([self._config, self._arguments]).encode(),
                _LAYERS: json.dumps(self._layers).encode()}

    def read(self, folder: str) -> None:
        """The codes of a block that is complete."""
        from safetensors.torch import load_file
        with open(os.path.join(folder, _CONFIG), encoding="utf-8") as file:
            self._config, self._arguments = json.load(file)
        self._take(load_file(os.path.join(folder, _CODES)))


class _Sums:
    """Sums over the tokens of a group: H of its inputs in the quantized model, and E of each weight."""

    def __init__(self, group: Group):
        torch = sys.modules["torch"]
        self.group, n = group, group.columns
        self._weights = {name: place.weight for name, place in group.places.items()}
        rows = sum(w.shape[0] for w in self._weights.values())
        self._shared = 2 * rows >= n  # D = mean (x - y) y^T for all weights costs less than E of each
        self._count = 0
        self._h = torch.zeros(n, n, dtype=torch.float64)
        shapes = {"": n} if self._shared else {name: w.shape[0] for name, w in self._weights.items()}
        self._cross = {name: torch.zeros(count, n, dtype=torch.float64) for name, count in shapes.items()}

    def add(self, x: Any, y: Any) -> None:
        """Inputs of the same tokens, in the unquantized and in the quantized model."""
        self._count += y.shape[0]
        self._h += y.T @ y
        missed = x - y
        for name, total in self._cross.items():
            total += (missed if self._shared else missed @ self._weights[name].T).T @ y

    def merge(self, ranks: Ranks) -> None:
        """Sums of all ranks, in their order."""
        self._count = sum(ranks.gather(self._count))
        self._h = sum(ranks.gather(self._h))
        self._cross = {name: sum(ranks.gather(total)) for name, total in self._cross.items()}

    def corrected(self) -> tuple[Any, dict[str, Any]]:
        """A, and V by the name of the weight, which is W without tokens. Errors: NonfiniteError."""
        torch, n = sys.modules["torch"], self._h.shape[0]
        count = max(self._count, 1)
        a = self._h / count
        if not bool(a.isfinite().all()):
            raise c.NonfiniteError(f"{next(iter(self._weights))}: its inputs are not finite")
        mean = a.diagonal().mean().item()
        a.diagonal().add_(max(_SHARE, n / count) * mean if mean > 0 else 1)
        factor = torch.linalg.cholesky(a)
        found = {}
        for name, w in self._weights.items():
            cross = w.double() @ self._cross[""] if self._shared else self._cross[name]
            found[name] = w + torch.cholesky_solve(cross.T / count, factor).T
        return a, found


class _Made(NamedTuple):
    """Tensors of a stage as the output has them, layers of the report, the configuration's weights, and those of each
    layer."""

    tensors: dict[str, Any]
    layers: list[Any]
    config: Any
    arguments: dict[str, Any]


def _codes(job: _Job, work: str, sums: Iterable[_Sums], inputs: Mapping[str, Observer]) -> _Made:
    """Quantizes corrected weights as a model of their own, with all that quantize knows of names and fused sets.
    inputs: observers of the inputs of layers, by their names."""
    folder = os.path.join(work, "stage")
    shutil.rmtree(folder, ignore_errors=True)
    model, states, out = (os.path.join(folder, name) for name in ("model", "states", "out"))
    os.makedirs(model)
    shutil.copyfile(os.path.join(job.model.directory, "config.json"), os.path.join(model, "config.json"))
    corrected: dict[str, Any] = {}
    found = {name: observer.save() for name, observer in inputs.items() if observer.counts().batches}
    for one in sums:
        gram, weights = one.corrected()
        corrected |= weights
        if job.preset == _PRESET:
            found |= {f"{name}.importance": _with_hessian(job, name, gram) for name in weights}
    found |= job.unseen(corrected)
    _save_weights(job, corrected, os.path.join(model, "model.safetensors"))
    _save_states(found, states)
    given = [states] if found else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the whole model is told of once
        report = quantize(model, out, preset=job.preset, settings=job.settings, states=given,
                          fill_experts=job.fill_experts, keep_findings=True, **job.options)  # experts are missing
    from ._quantized import Checkpoint
    made = Checkpoint(out)
    tensors = {name: made.read(name).clone() for name in made.tensors if name.rpartition(".")[0] in corrected}
    result = _Made(tensors, report["layers"], made.quantization, {name: made.scheme(name) for name in corrected})
    shutil.rmtree(folder)
    return result


def _save_weights(job: _Job, corrected: Mapping[str, Any], path: str) -> None:
    """Saves weights in the dtype of the model's files, which decides about that of scales. Errors: OSError."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file
    try:
        save_file({f"{name}.weight": v.to(job.of[name].dtype).contiguous() for name, v in corrected.items()}, path,
                  {"format": "pt"})
    except SafetensorError as failure:
        raise OSError(f"{path}: {first_line(failure)}") from None


def _with_hessian(job: _Job, name: str, gram: Any) -> bytes:
    """The state of an observer of importance that has seen nothing but a Hessian."""
    observer = job.observed.observers.pop(f"{job.of[name].known}.importance")
    observer.set_hessian(gram[None])
    return observer.save()


def _save_states(states: Mapping[str, bytes], folder: str) -> None:
    """A directory as Calibration.save writes it."""
    os.makedirs(folder)
    files = {name: f"{i}.qobs" for i, name in enumerate(states)}
    for name, state in states.items():
        write(os.path.join(folder, files[name]), state)
    write_json(os.path.join(folder, "states.json"), {"states": files})


# ---- The end ---------------------------------------------------------------------------------------------------------

def _begin(job: _Job, store: Store) -> set[str]:
    """Quantizes the whole model without a search, which says early what quantize refuses. Codes and scales of the
    blocks take the places of those at the end. Returns the layers that quantize takes. Errors: those of quantize;
    UnsupportedError."""
    part, path = _whole(store)
    if not os.path.isdir(part) or not os.path.exists(path):
        _write_whole(job, part, path)
    with open(path, encoding="utf-8") as file:
        return {layer["name"] for layer in json.load(file)["layers"]}


def _write_whole(job: _Job, part: str, path: str) -> None:
    shutil.rmtree(part, ignore_errors=True)
    known = settings_of(_PLAIN) if job.preset != _PLAIN else job.settings
    plain = {name: value for name, value in job.settings.items() if name in known}
    with tempfile.TemporaryDirectory() as folder:
        states, found = os.path.join(folder, "states"), _all_unseen(job)
        _save_states(found, states)
        given = [states] if found else None
        report = quantize(job.model.directory, part, preset=_PLAIN, settings=plain, states=given, **job.options)
    for name in sorted({layer["name"] for layer in report["layers"]} - job.of.keys()):
        raise c.UnsupportedError(f"model_dir: {job.model.directory}: {name} is no linear layer, and quantize takes it; "
                                 f"ignore={[name]!r} leaves it as it is")
    write_json(path, report)


def _all_unseen(job: _Job) -> dict[str, bytes]:
    """States until those of the blocks are known: quantize writes scales of the same names and shapes."""
    return job.unseen(None) | {
        state: _unseen(observer, layer.place.weight.shape[1]) for name, layer in job.of.items()
        for state, observer in job.inputs_of([name]).items()}


def _whole(store: Store) -> tuple[str, str]:
    """The directory of the whole model, and its report."""
    return os.path.join(store.work, "whole"), os.path.join(store.work, "whole.json")


def _publish(job: _Job, store: Store) -> dict[str, Any]:
    """The whole model, with the codes and scales of the blocks in their places."""
    part, path = _whole(store)
    with open(path, encoding="utf-8") as file:
        report: dict[str, Any] = json.load(file)
    layers: dict[str, Any] = {}
    config: Any = None
    for block in range(len(job.model.blocks)):
        folder = store.folder_of(block)
        _put(part, os.path.join(folder, _CODES))
        with open(os.path.join(folder, _LAYERS), encoding="utf-8") as file:
            layers |= {layer["name"]: layer for layer in json.load(file)}
        with open(os.path.join(folder, _CONFIG), encoding="utf-8") as file:
            config = json.load(file)[0] or config
    _name_observer(os.path.join(part, "config.json"), config)
    report["layers"] = [layers[layer["name"]] for layer in report["layers"]]
    report["out"], report["findings"] = store.states, audit(part, job.model.directory)["findings"]
    if report["findings"]:
        raise c.FindingsError(f"the output has faults: {report['findings'][0]}")
    os.rename(part, store.states)
    return report


def _name_observer(path: str, config: Mapping[str, Any]) -> None:
    """The configuration says how scales were found."""
    with open(path, encoding="utf-8") as file:
        whole = json.load(file)
    for name, group in whole["quantization_config"]["config_groups"].items():
        group["weights"] = config["config_groups"][name]["weights"]
    write_json(path, whole, indent=2)


def _put(folder: str, codes: str) -> None:
    """Copies tensors over those of the same name, dtype and shape in the files of a directory."""
    wanted = {name: (kind, data) for name, kind, data in _tensors(codes)}
    for entry in sorted(os.listdir(folder)):
        if not entry.endswith(".safetensors"):
            continue
        path = os.path.join(folder, entry)
        places = [(name, kind, place) for name, kind, place in _tensors(path) if name in wanted]
        with open(path, "r+b") as out, open(codes, "rb") as source:
            for name, kind, (begin, end) in places:
                own, (first, last) = wanted.pop(name)
                if own != kind:
                    raise c.Error(f"{name}: is {own}, and the whole model has {kind}")
                source.seek(first)
                out.seek(begin)
                out.write(source.read(last - first))
    if wanted:
        raise c.Error(f"{next(iter(wanted))}: is not in the whole model")


def _tensors(path: str) -> Iterator[tuple[str, tuple[str, list[int]], tuple[int, int]]]:
    """Name, dtype and shape, first byte and the one after the last, of the tensors in a file."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, (entry["dtype"], entry["shape"]), (8 + size + begin, 8 + size + end)
