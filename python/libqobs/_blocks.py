# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibration of models that are larger than memory: block by block, from the files of the model."""
from __future__ import annotations

import hashlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _library as c
from ._arguments import mapping, several, wrong_kind
from ._block_model import OUTSIDE, BlockModel
from ._block_store import Store
from ._calibration import Calibration, calibration, call_model
from ._observer import Observer
from ._progress import Line
from ._reports import BlocksReport
from .distributed import merge


def calibrate_blocks(model_dir: Any, batches: Iterable[Any], scheme: Any = None, *, states: Any, group: Any = None,
                     load: Mapping[str, Any] | None = None, **options: Any) -> BlocksReport:
    """Calibrates a model that need not fit into memory: its blocks run one after the other, each on all batches.

        qobs.calibrate_blocks("model", batches, "FP8", states="states")
        qobs.quantize("model", "model-FP8", "FP8", states=["states"])

    model_dir: a directory with safetensors files that transformers loads. batches: as of calibrate; they are run as
    they are, each several times. scheme, options: those of calibration, but for sensitivity. states: a new or empty
    directory. It appears when it is complete, with the files that Calibration.save writes for the same batches, byte
    for byte, and run.json, which says what was run. Until then its neighbour with ".blocks" after the name holds the
    states of each complete block and the hidden states after it.
    The same call goes on where one has ended, at whatever moment.
    group: of torch.distributed, or True for all its processes; each has its share of the batches, and rank 0 writes the
    states of all. load: arguments of from_pretrained, {"attn_implementation": "eager"}.

    Memory: the parameters of one block and of what is outside of blocks, as far as it is not mapped; the observers of
    one block; one batch. Disk: what a block returns for all batches, twice. The model runs in evaluation mode without a
    cache. Returns a report: blocks, run (those that this call ran), batches, seconds, peak_bytes (resident memory,
    mapped files included), states. Errors: those of calibration; InvalidArgumentError if the directory was begun with
    something else or a file in it has changed; UnsupportedError for a model whose layers do not run one after the
    other, each once: layers that run several times, share parameters, read what earlier ones but the last returned, or
    draw random numbers."""
    given = batches_of(batches)
    if options.get("sensitivity"):
        raise c.InvalidArgumentError("sensitivity: needs gradients through the whole model; calibration() has it")
    if not isinstance(states, (str, os.PathLike)):
        raise wrong_kind(states, "states", "a path")
    path = os.path.abspath(os.fspath(states))
    ranks = Ranks(group)
    begin = time.monotonic()
    model = BlockModel(directory_of(model_dir), mapping(load, "load", "{'attn_implementation': 'eager'}"))
    observed = calibration(model.model, scheme, **options)
    store = Store(path, ranks.rank)
    run = described(model, observed, given, load, ranks)
    names, ran = list(observed.observers), 0
    try:
        complete = ranks.same(lambda: store.open(run))
        if not all(complete):
            count, ran = _Run(model, observed, given, store, ranks).all()
            ranks.same(lambda: store.publish(count, names) if ranks.rank == 0 else None)
    finally:
        store.close()
    store.remove(ranks.rank)
    return {"blocks": len(model.blocks), "run": ran, "batches": len(given), "seconds": time.monotonic() - begin,
            "peak_bytes": peak_bytes(), "states": path}


def peak_bytes() -> int:
    """Resident memory of the process at most, mapped files included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def directory_of(model_dir: Any) -> str:
    if not isinstance(model_dir, (str, os.PathLike)):
        raise wrong_kind(model_dir, "model_dir", "a path")
    if not os.path.isdir(model_dir):
        raise c.InvalidArgumentError(f"model_dir: {os.fspath(model_dir)} is no directory")
    return os.fspath(model_dir)


def batches_of(batches: Any) -> list[Any]:
    found = several(batches, "batches", "batches")
    if not found:
        raise c.NoDataError("calibration: no batch was given")
    return found


class Ranks:
    """The processes that share the batches; group None: one."""

    def __init__(self, group: Any):
        self._group = None if group is True else group
        self._alone = group is None or group is False
        if self._alone:
            self.rank, self.count = 0, 1
            return
        import torch.distributed as dist
        if not dist.is_initialized():
            raise c.InvalidArgumentError("group: torch.distributed is not initialized; init_process_group does that")
        self.rank, self.count = dist.get_rank(self._group), dist.get_world_size(self._group)

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks."""
        if self._alone:
            return [value]
        import torch.distributed as dist
        found = [None] * self.count
        dist.all_gather_object(found, value, group=self._group)
        return found

    def same(self, function: Callable[[], Any]) -> list[Any]:
        """The results of all ranks. An error of one rank is an error on all."""
        failure, result = None, None
        try:
            result = function()
        except Exception as caught:
            failure = caught
        results = self.gather((result, failure and str(failure)))
        if failure is not None:
            raise failure
        for rank, (_, other) in enumerate(results):
            if other is not None:
                raise c.Error(f"rank {rank}: {other}")
        return [result for result, _ in results]

    def merge(self, observers: list[Observer]) -> None:
        if not self._alone and observers:
            merge(observers, self._group)


# ---- What is run -----------------------------------------------------------------------------------------------------

def described(model: BlockModel, observed: Calibration, batches: list[Any], load: Any,
               ranks: Ranks) -> dict[str, Any]:
    """What decides about the states, under the names of arguments."""
    import torch
    import transformers
    texts = sorted(f"{name} {observer!r}" for name, observer in observed.observers.items())
    return {"model_dir": {os.path.basename(path): _head(path) for path in model.files()},
            "scheme": f"{observed._described.label}, observers {_digest(texts)}",
            "batches": ranks.gather(f"{len(batches)} batches {_digest(batches)}"),
            "load": {key: str(value) for key, value in (load or {}).items()},
            "versions": f"torch {torch.__version__}, transformers {transformers.__version__}"}


def _head(path: str) -> str:
    """Size of a file and sum of its beginning, where safetensors has names, shapes and offsets."""
    with open(path, "rb") as file:
        return f"{os.path.getsize(path)} bytes {hashlib.sha256(file.read(1 << 20)).hexdigest()[:16]}"


def _digest(tree: Any) -> str:
    found = hashlib.sha256()
    _add(tree, found)
    return found.hexdigest()[:16]


def _add(tree: Any, to: Any) -> None:
    torch = sys.modules["torch"]
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            _add((str(key), value), to)
    elif isinstance(tree, (list, tuple)):
        to.update(f"[{len(tree)}".encode())
        for item in tree:
            _add(item, to)
    elif isinstance(tree, torch.Tensor):
        to.update(f"{tree.dtype}{tuple(tree.shape)}".encode())
        to.update(tree.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tree.numel() else b"")
    else:
        to.update(repr(tree).encode())


# ---- Runs ------------------------------------------------------------------------------------------------------------

class _Stopped(BaseException):
    """Ends a run of the model after the block that is in work."""


class _Run:
    """All blocks on all batches, from the first whose states are not complete."""

    def __init__(self, model: BlockModel, observed: Calibration, batches: list[Any], store: Store, ranks: Ranks):
        self._model, self._batches, self._store, self._ranks = model, batches, store, ranks
        self._observers = _Gate(model, observed)
        self._passes = Passes(model, self._observers)
        self._line = Line("calibration")

    def all(self) -> tuple[int, int]:
        """Returns the number of blocks with what comes after them, and how many have run."""
        first = self._ranks.same(self._store.done)[0]
        hidden = self._store.hidden(first)
        self._ranks.same(lambda: self._store.check_hidden(hidden))
        count = len(self._model.blocks)
        self._model.load(OUTSIDE)
        with self._observers.observed, sys.modules["torch"].no_grad(), self._line:
            if hidden >= 0:
                self._check(hidden)
            for block in range(hidden + 1, count):
                self._block(block, observe=block >= first)
                if block == 0:
                    self._check(0)
            total = count + any(self._ranks.gather(self._passes.after))
            for block in range(max(first, count), total):
                self._block(block, observe=True)
        return total, total - first

    def _check(self, hidden: int) -> None:
        self._passes.check(self._batches[0], self._store.get(hidden, 0))

    def _block(self, block: int, observe: bool) -> None:
        """A block; the number of blocks: what comes after them."""
        model, store, is_block = self._model, self._store, block < len(self._model.blocks)
        self._observers.open = observe
        if is_block:
            model.load(block)
            store.begin_hidden(block)
        for i, batch in enumerate(self._batches):
            given = store.get(block - 1, i) if block else None
            result = self._passes.run(block, batch, given, first=i == 0)
            if is_block:
                store.put(i, result)
            self._line.show(block, len(model.blocks), i + 1, len(self._batches))
        if is_block:
            store.end_hidden(block)
            model.drop()
        if observe:
            self._save(block)
        else:
            self._observers.taken([self._observers.names()])
        store.drop_hidden(block if is_block else block - 1)

    def _save(self, block: int) -> None:
        """States of the ranks become one; the first rank writes them."""
        names = self._observers.taken(self._ranks.gather(self._observers.names()))
        self._ranks.merge([observer for _, observer in names])
        self._ranks.same(lambda: self._store.add_states(block, ((name, o.save()) for name, o in names))
                         if self._ranks.rank == 0 else None)


class _Gate:
    """The observers, of which those get something that are in the block in work, or run between it and the one
    before."""

    def __init__(self, model: BlockModel, observed: Calibration):
        self.observed, self._model = observed, model
        self._receive = observed._receive
        self._left = dict(observed.observers)
        self.all = list(self._left)
        self._seen: dict[str, None] = {}
        self.open = True     # the states of the block in work are not complete
        self.live = False    # what runs has the values that the model in memory would have
        observed._hooks._receive = self._take

    def _take(self, name: str, x: Any) -> None:
        if not self.live:
            return
        module = name.rpartition(".")[0]
        for kind in ("input", "importance") if name.endswith(".input") else (name.rpartition(".")[2],):
            own = f"{module}.{kind}"
            if own in self._left:
                self._seen[own] = None
            elif own in self.all:
                raise self._model.refused(f"{module} runs in several blocks")
        if self.open:
            self._receive(name, x)

    def names(self) -> list[str]:
        """Observers that something has come for."""
        return list(self._seen)

    def clear(self) -> None:
        """As if nothing had come."""
        self._seen.clear()

    def taken(self, names: Iterable[list[str]]) -> list[tuple[str, Observer]]:
        """The observers of these names, in their order. They are not held here any more."""
        wanted = {name for several in names for name in several}
        found = [(name, o) for name, o in self._left.items() if name in wanted]
        for name, _ in found:
            del self._left[name], self.observed.observers[name]
        self._seen.clear()
        return found


class Passes:
    """Runs of the model in which one block computes. Those before it return what they have returned, and the run ends
    after it, so that everything else about a block is what the model makes of it: masks, positions, what is between."""

    def __init__(self, model: BlockModel, observers: Any):
        self._model, self._observers = model, observers
        self.after: list[str] = []

    def stop(self) -> None:
        """Ends the run; a hook in a block calls it."""
        raise _Stopped

    def run(self, block: int, batch: Any, given: Any, first: bool, whole: bool = True) -> Any:
        """What a block returns. given: what the one before has returned; first: the order is looked at, too. whole: the
        block does not stop before its end."""
        one = _Pass(self._model, self._observers, block, given, first)
        torch = sys.modules["torch"]
        random, buffers = torch.get_rng_state(), self._buffers()
        with one:
            self._observers.live = block == 0
            try:
                _call(self._model.model, batch)
            except _Stopped:
                pass
            finally:
                self._observers.live = False
        if block < len(self._model.blocks) and whole and not one.ended:
            raise self._model.refused(f"{self._model.names[block]} does not run")
        if not torch.equal(random, torch.get_rng_state()):
            raise self._model.refused("it draws random numbers")
        after = self._buffers()
        if len(buffers) != len(after) or not all(map(_is_same, buffers, after)):
            raise self._model.refused("it keeps a state in its buffers from call to call")
        return one.result

    def check(self, batch: Any, given: Any) -> None:
        """Runs the model without blocks. Errors: UnsupportedError if it does not call each once, in their order."""
        count, opened = len(self._model.blocks), self._observers.open
        self._observers.open = False
        self.run(count, batch, given, first=True)
        self._observers.open = opened
        self.after = self._observers.names()
        self._observers.clear()

    def _buffers(self) -> list[Any]:
        return [b.clone() for b in self._model.model.buffers() if not b.is_meta]


class _Pass:
    """One run. While it is entered, blocks do as Passes says."""

    def __init__(self, model: BlockModel, observers: Any, block: int, given: Any, first: bool):
        self._model, self._observers, self._block, self._given = model, observers, block, given
        self._unknown = _unknown(given)
        self._first = first and block > 0
        self._next = 0
        self.ended, self.result = False, None

    def __enter__(self) -> _Pass:
        for i, block in enumerate(self._model.blocks):
            block.forward = self._own(block.forward) if i == self._block else self._stand_in(i)
        return self

    def __exit__(self, *failure: Any) -> None:
        for block in self._model.blocks:
            del block.forward

    def _expect(self, number: int) -> None:
        if number != self._next:
            raise self._model.refused(f"{self._model.names[number]} runs where {self._names()} is expected")
        self._next += 1

    def _names(self) -> str:
        return self._model.names[self._next] if self._next < len(self._model.names) else "no other"

    def _stand_in(self, number: int) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._expect(number)
            if number != self._block - 1:
                return self._unknown
            self._observers.live = True
            return self._given
        return forward

    def _own(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self._expect(self._block)
            if self._first and not _has_nan(self._given) and _has_nan((args, kwargs)):
                raise self._model.refused(f"{self._model.names[self._block]} reads what earlier blocks than the one "
                                          "before have returned")
            before = _containers(kwargs)
            self.result = forward(*args, **kwargs)
            if before != _containers(kwargs):
                raise self._model.refused(f"{self._model.names[self._block]} changes an argument that others read")
            _check_tree(self.result, self._model, self._block)
            self.ended = True
            raise _Stopped
        return run


def _call(model: Any, batch: Any) -> None:
    for config in {id(k): k for k in (model.config, model.config.get_text_config())}.values():
        config.use_cache = False
    call_model(model, batch)


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _leaves(item)
    else:
        yield tree


def _has_nan(tree: Any) -> bool:
    torch = sys.modules["torch"]
    return any(isinstance(x, torch.Tensor) and x.is_floating_point() and bool(x.isnan().any()) for x in _leaves(tree))


def _is_same(before: Any, after: Any) -> bool:
    """Whether a buffer has its values; some models give it their dtype in the first call."""
    return bool(before.shape == after.shape and (before.to(after.dtype) == after).all())


def _unknown(tree: Any) -> Any:
    """A tree of the same form without a number in it: what depends on it is found out."""
    torch = sys.modules["torch"]
    if isinstance(tree, Mapping):
        return {key: _unknown(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_unknown(item) for item in tree)
    if isinstance(tree, torch.Tensor) and tree.is_floating_point():
        return torch.full_like(tree, float("nan"))
    return tree


def _containers(kwargs: Mapping[str, Any]) -> dict[str, int]:
    return {key: len(value) for key, value in kwargs.items() if isinstance(value, (dict, list))}


def _check_tree(tree: Any, model: BlockModel, block: int) -> None:
    torch = sys.modules["torch"]
    kinds = (type(None), bool, int, float, str, torch.Tensor)
    plain = isinstance(tree, kinds) or type(tree) in (tuple, list, dict)
    if not plain or not all(isinstance(leaf, kinds) for leaf in _leaves(tree)):
        raise model.refused(f"{model.names[block]} returns {type(tree).__name__}, no tensors")
