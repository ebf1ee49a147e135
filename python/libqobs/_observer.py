# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Observers."""
from __future__ import annotations

import contextlib
import copy
import ctypes
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from ctypes import byref, c_void_p, sizeof
from typing import Any, NamedTuple

from . import _library as c
from ._arguments import encoded, integer, number, several, wrong_kind
from ._functions import Config, Histogram, QParams, SearchReport, config_text, parsed, report_of
from ._library import call, create, lib
from ._tensor import Array, default_framework, framework_named, view


class Counts(NamedTuple):
    """Counts of all batches: `batches` tensors that entered the state, `elements` of them, `nan`, `inf`, `tokens` rows
    of 2-dimensional tensors, `nonzero_tokens` (quark), `ignored` tensors after the first (llmc, base_name=weight)."""

    batches: int
    elements: int
    nan: int
    inf: int
    tokens: int
    nonzero_tokens: int
    ignored: int


class Results(Mapping[str, Array]):
    """The results of an observer that exist now, by upstream name: an array for each, read when it is looked up."""

    __slots__ = ("_observer",)

    def __init__(self, observer: Observer):
        self._observer = observer

    def __getitem__(self, name: str) -> Array:
        if name not in self:
            raise KeyError(name)
        return self._observer.read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._observer._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._observer._names())

    def __len__(self) -> int:
        return len(self._observer._names())

    def __repr__(self) -> str:
        return f"Results({', '.join(self)})"


class Observer:
    """Is fed batches of tensors and computes their scales and zero points.

    preset: the name of a preset, or "PRESET key=value ..."; settings: upstream's names, on top. presets() and
    settings() list both. Errors: InvalidArgumentError names the setting, its value and what is allowed.

        observer = libqobs.Observer("llmc.minmax", num_bits=8, base_name="input")
        for batch in batches:
            observer.observe(batch)
        scale, zero_point, _ = observer.qparams()

    Results are arrays in the framework of the last observed tensor: torch, numpy, or for DLPack and buffers numpy if it
    is installed, else memoryview. Observers can be copied, pickled and merged. Threads: calls on one observer wait for
    each other; different observers run at the same time, the GIL is released meanwhile. set_threads sets the threads of
    one call."""

    __slots__ = ("__weakref__", "_handle", "_framework", "_lock")

    def __init__(self, preset: str, **settings: Any):
        config = Config(preset, settings)
        self._own(create(lib.observer_create, config.handle, c.runtime), None)

    def _own(self, handle: int, framework: Any) -> None:
        self._handle = handle
        self._framework = framework
        self._lock = threading.RLock()
        weakref.finalize(self, lib.observer_destroy, handle).atexit = False  # others that end then may use it

    @classmethod
    def _of(cls, handle: int, framework: Any) -> Observer:
        observer = cls.__new__(cls)
        observer._own(handle, framework)
        return observer

    # Batches

    def observe(self, x: Any, g_idx: Any = None) -> Observer:
        """Observes one batch and returns the observer. Empty tensors are ignored.

        x: float32, bfloat16, float16 or float64 of at most 8 dimensions and any strides, read in place. Later batches
        have the same dtype and give the same shape of scales, unless docs/presets states otherwise. g_idx: group of
        each column, int32 or int64 (GPTQ's order of activations).
        Errors: NonfiniteError; InvalidArgumentError. After an error nothing has changed. Reproduces forward (torch.ao,
        Quark), Observer.forward (llm-compressor) and collect (Model-Optimizer)."""
        value = view(x)
        groups = None if g_idx is None else view(g_idx, "g_idx")
        with self._lock:
            call(lib.observer_observe, self._handle, value.address, groups and groups.address, value="x")
            self._framework = value.framework
        return self

    def observe_importance(self, activations: Any) -> Observer:
        """Observes activations, shape (..., columns), that weight the columns of the weight that is observed later
        (llmc.imatrix_mse, qobs.imatrix_optimal, qobs.local_hessian; modelopt searches with hessian_block_size).
        Reproduces the hook of IMatrixMSEObserver.attach, and Model-Optimizer's local Hessian."""
        self._give(lib.observer_observe_importance, activations, "activations")
        return self

    def record_tokens(self, x: Any) -> Observer:
        """Counts the tokens of a tensor without observing it (record_observed_tokens of llm-compressor)."""
        self._give(lib.observer_record_tokens, x, "x")
        return self

    def set_reference_amax(self, amax: Any) -> None:
        """Sets the magnitudes whose multiples are tried, before the first batch (modelopt.MseCalibrator: shape of
        result amax; modelopt.NVFP4MSECalibrator: 1 element)."""
        self._give(lib.observer_set_reference_amax, amax, "amax")

    def set_error_weights(self, weight: Any) -> None:
        """Sets weights of the squared error, one for each index of the last dimension, before the first batch
        (modelopt.MseCalibrator, modelopt.NVFP4MSECalibrator)."""
        self._give(lib.observer_set_error_weights, weight, "weight")

    def set_hessian(self, hessian: Any) -> None:
        """Sets the Hessian of the squared error before the first batch, in place of activations
        (modelopt.MseCalibrator and modelopt.NVFP4MSECalibrator with hessian_block_size; qobs.local_hessian).

        hessian: float32 or float64 of shape (blocks, b, b), the means of x xᵀ over tokens for blocks of b columns of
        activations x. It replaces activations observed before and counts as those of one token."""
        self._give(lib.observer_set_hessian, hessian, "hessian")

    def set_global_amax(self, amax: float) -> None:
        """Sets the magnitude that gives the global scale: that of the complete tensor or of fused layers."""
        with self._lock:
            call(lib.observer_set_global_amax, self._handle, number(amax, "amax"))

    def set_histogram(self, counts: Any, bin_edges: Any = None, *, min: float = 0.0, max: float = 0.0,
                      batches: int = 1) -> None:
        """Replaces everything observed by a histogram from outside, such as one of a state_dict.

        counts: a Histogram, or float32, float64, int32 or int64 of shape (bins,). bin_edges: float32 or float64 of
        shape (bins + 1,); None: bins of equal width from min to max. batches: how many were counted."""
        if isinstance(counts, Histogram):
            min, max, counts = counts.first_edge, counts.last_edge, counts.counts
        heights = view(counts, "counts")
        edges = None if bin_edges is None else view(bin_edges, "bin_edges")
        state = c.HistogramState(sizeof(c.HistogramState), heights.address,
                                 edges and edges.address, number(min, "min"), number(max, "max"),
                                 integer(batches, "batches", 1, 1 << 62))
        with self._lock:
            call(lib.observer_set_histogram, self._handle, byref(state))
            self._framework = heights.framework

    def _give(self, function: Any, x: Any, name: str) -> None:
        value = view(x, name)
        with self._lock:
            call(function, self._handle, value.address, value=name)
            self._framework = self._framework or value.framework

    # Results

    @property
    def results(self) -> Results:
        """The results by name: scale, zero_point, and those that docs/presets lists."""
        return Results(self)

    @property
    def scale(self) -> Array:
        """Result scale. Errors: NoDataError before the first batch."""
        return self.read("scale")

    @property
    def zero_point(self) -> Array:
        """Result zero_point. Errors: NoDataError before the first batch."""
        return self.read("zero_point")

    def qparams(self) -> QParams:
        """Scale, zero point and global scale; None for those the preset does not have. Errors: NoDataError,
        NoResultError."""
        out, done = c.QparamBuffers(sizeof(c.QparamBuffers)), []
        with self._lock:
            names = self._names()
            for name in ("scale", "zero_point"):
                if name == "scale" or name in names:
                    address, size, result = self._place(name)
                    setattr(out, name, address)
                    setattr(out, f"{name}_size", size)
                    done.append(result)
            call(lib.qparams_from_observer, self._handle, byref(out))  # one search in a histogram for both
            factor = self.read("global_scale") if "global_scale" in names else None
        return QParams(done[0](), done[1]() if len(done) > 1 else None, factor)

    def _place(self, name: str) -> tuple[int, int, Any]:
        """Memory for a result: its address, its bytes, and the function that returns the array."""
        result = c.Result(sizeof(c.Result))
        call(lib.observer_result_find, self._handle, encoded(name, "name"), byref(result))
        framework = self._framework or default_framework()
        address, done = framework.empty(tuple(result.shape[:result.ndim]), result.dtype)
        return address, result.size, done

    def read(self, name: str) -> Array:
        """One result, with its dtype and shape. bfloat16 and float8_e4m3fn become float32 where numpy has no
        ml_dtypes."""
        with self._lock:
            address, size, done = self._place(name)
            call(lib.observer_read, self._handle, encoded(name, "name"), address, size)
        return done()

    def _names(self) -> list[str]:
        result, names = c.Result(sizeof(c.Result)), []
        with self._lock:
            for i in range(lib.observer_result_count(self._handle)):
                call(lib.observer_result_info, self._handle, i, byref(result))
                names.append(result.name.decode())
        return names

    def counts(self) -> Counts:
        """Counts of all batches."""
        counts = c.Counts(sizeof(c.Counts))
        with self._lock:
            call(lib.observer_counts, self._handle, byref(counts))
        return Counts(*(getattr(counts, name) for name in Counts._fields))

    def search_report(self) -> SearchReport:
        """Report of the last batch's search. Errors: NoDataError if none was searched."""
        report = c.SearchReport(sizeof(c.SearchReport))
        with self._lock:
            call(lib.observer_search_report, self._handle, byref(report))
        return report_of(report)

    # Configuration

    @property
    def preset(self) -> str:
        """The name of the preset."""
        return lib.config_preset(lib.observer_config(self._handle)).decode()

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting with its value; None: it has none."""
        config, value, out = lib.observer_config(self._handle), ctypes.create_string_buffer(c.SETTING_VALUE), {}
        for i in range(lib.config_key_count(config)):
            key = lib.config_key(config, i)
            call(lib.config_get, config, key, value, len(value))
            out[key.decode()] = parsed(value.value)
        return out

    # States

    def reset(self) -> None:
        """Removes everything observed."""
        with self._lock:
            lib.observer_reset(self._handle)

    def merge(self, others: Observer | Iterable[Observer]) -> None:
        """Adds the state of others, as if their batches came from other machines; docs/presets describes exceptions.

        They have the same settings, dtype and shape of scales. Those without data are skipped. Reproduces
        sync_activation_stats of llm-compressor."""
        others = [others] if isinstance(others, Observer) else checked(others, "others")
        with _locked([self, *others]):
            call(lib.observer_merge, self._handle, _handles(others), len(others))
            if self._framework is None:
                self._framework = next((o._framework for o in others if o._framework), None)

    def save(self) -> bytes:
        """Settings and state, for load on any machine by this or a later version."""
        with self._lock:
            buffer = ctypes.create_string_buffer(lib.observer_save_size(self._handle))
            call(lib.observer_save, self._handle, buffer, len(buffer))
        return buffer.raw

    @classmethod
    def load(cls, state: bytes | bytearray | memoryview, *, framework: str | None = None) -> Observer:
        """An observer from the bytes of save. Results come in `framework`, torch or numpy, until a tensor is observed.
        Errors: InvalidArgumentError if the bytes differ in any way from saved ones."""
        if not isinstance(state, (bytes, bytearray, memoryview)):
            raise wrong_kind(state, "state", "the bytes of save")
        if framework not in (None, "torch", "numpy", "buffer"):
            raise c.InvalidArgumentError(f"framework: is {framework!r}, allowed are 'torch', 'numpy' and None")
        raw = bytes(state)
        handle = create(lib.observer_load, raw, len(raw), c.runtime, buffer="state")
        return cls._of(handle, framework and framework_named(framework))

    def __copy__(self) -> Observer:
        return self._copied(dict(getattr(self, "__dict__", {})))

    def __deepcopy__(self, memo: dict) -> Observer:
        return self._copied(copy.deepcopy(getattr(self, "__dict__", {}), memo))

    def _copied(self, members: dict[str, Any]) -> Observer:
        """A copy; members: those of a subclass."""
        with self._lock:
            other = type(self)._of(create(lib.observer_clone, self._handle, c.runtime), self._framework)
        if members:
            other.__dict__.update(members)
        return other

    def __reduce__(self) -> tuple:
        framework = self._framework and self._framework.name
        return _restored, (type(self), self.save(), framework), getattr(self, "__dict__", None)

    def __repr__(self) -> str:
        text = config_text(lib.observer_config(self._handle))
        return f"Observer({text!r}, batches={self.counts().batches})"


def _restored(cls: type[Observer], state: bytes, framework: str | None) -> Observer:
    return cls.load(state, framework=framework)


def checked(items: Any, name: str) -> list[Observer]:
    """Observers. Errors: TypeError names what is none."""
    found = several(items, name, "observers")
    for i, item in enumerate(found):
        if not isinstance(item, Observer):
            raise wrong_kind(item, f"{name}[{i}]", "an Observer")
    return found


def _handles(observers: list[Observer]) -> Any:
    return (c_void_p * max(len(observers), 1))(*(o._handle for o in observers))


@contextlib.contextmanager
def _locked(observers: list[Observer]) -> Iterator[None]:
    """Locks are taken in one order, so that two merges cannot wait for each other."""
    with contextlib.ExitStack() as stack:
        for observer in sorted(set(observers), key=id):
            stack.enter_context(observer._lock)
        yield


def fuse(observers: Iterable[Observer]) -> None:
    """Gives observers of fused layers (q_proj, k_proj, v_proj; gate_proj, up_proj) one global scale, that of the
    largest magnitude. All have data and strategy tensor_group. Reproduces FusionHandler of llm-compressor."""
    observers = checked(observers, "observers")
    with _locked(observers):
        call(lib.observers_fuse, _handles(observers), len(observers))


def qparams_from_tensor(x: Any, config: str, *, g_idx: Any = None, **settings: Any) -> QParams:
    """Scale, zero point and global scale of one tensor: an observer for it alone.

    x: as in Observer.observe. config: "PRESET" or "PRESET key=value ..."; settings come on top. Errors: those of
    Observer and observe.

        scale, zero_point, _ = libqobs.qparams_from_tensor(weight, "llmc.memoryless_minmax num_bits=4
        group_size=128")"""
    return Observer(config, **settings).observe(x, g_idx).qparams()
