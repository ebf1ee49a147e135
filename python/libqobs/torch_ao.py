# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Drop-in for the observers of torch.ao.quantization and torchao.

    import libqobs.torch_ao
    libqobs.torch_ao.install()
    prepared = prepare_fx(model, qconfig_mapping, inputs)      # or prepare_pt2e(...)
    prepared(batch)                                            # the same state, sooner
    print(libqobs.dropin_calls())

docs/dropins.md lists what is served, what is declined and what differs. Read in torch 2.13 to 2.15 and torchao 0.18:
torch/ao/quantization/observer.py, torchao/quantization/pt2e/observer.py, torchao/quantization/observer.py,
torchao/quantization/pt2e/_affine_quantization.py."""
from __future__ import annotations

import importlib.util
import math
import weakref
from collections.abc import Callable
from typing import Any

from ._dropin import Declined, Dropin
from ._dropin_torch import EXACT, eligible, plain, ranges, small, unwatched
from ._functions import range_by_l2_norm
from ._library import NonfiniteError, call, lib
from ._minmax import minmax
from ._observer import Observer

_core = Dropin("torch.ao", "2.13", "2.14", "2.15")
_torchao = Dropin("torchao", "0.18")
installed = _core.installed
_combines: set[Any] = set()  # upstream's _combine_histograms, which qobs reproduces; subclasses may have another
_losses: set[Any] = set()  # the same of loss_fn and mse


def install(*, strict: bool = False) -> None:
    """Replaces the methods, those of torchao if it is there. A second call changes strict only. strict: a call that
    fails in qobs raises."""
    install_core(strict=strict)
    if importlib.util.find_spec("torchao") is not None:
        install_torchao(strict=strict)


def install_core(*, strict: bool = False) -> None:
    """The part of install for torch.ao."""
    import torch
    from torch.ao.quantization import observer
    if _core.begin(strict, torch.__version__):
        _replace_observers(_core, observer, "torch.ao")


def install_torchao(*, strict: bool = False) -> None:
    """The part of install for torchao."""
    import torchao
    from torchao.quantization import observer as affine
    from torchao.quantization.pt2e import _affine_quantization as affine_pt2e
    from torchao.quantization.pt2e import observer as pt2e
    if _torchao.begin(strict, torchao.__version__):
        _replace_observers(_torchao, pt2e, "torchao.pt2e")
        _replace(_torchao, affine.AffineQuantizedMinMaxObserver, "forward", "torchao", _affine)
        _replace(_torchao, affine.AffineQuantizedMSEObserver, "line_search", "torchao", _line_search)
        _losses.update((affine.AffineQuantizedMSEObserver.loss_fn, affine.AffineQuantizedMSEObserver.mse))
        _replace(_torchao, affine_pt2e.AffineQuantizedMinMaxObserver, "forward", "torchao.pt2e", _affine_pt2e)
        _replace(_torchao, affine_pt2e.AffineQuantizedMovingAverageMinMaxObserver, "forward", "torchao.pt2e",
                 _affine_average)


def uninstall() -> None:
    """Puts upstream's methods back."""
    _torchao.uninstall()
    _core.uninstall()


def _replace(dropin: Dropin, cls: type, name: str, package: str, attempt: Callable[..., Any]) -> None:
    label = cls.__name__ if name.endswith("forward") else f"{cls.__name__}.{name}"
    dropin.replace_method(cls, name, f"{package}.{label}", attempt)


def _replace_observers(dropin: Dropin, module: Any, package: str) -> None:
    for name, method, attempt in (
            ("MinMaxObserver", "forward", _min_max), ("MovingAverageMinMaxObserver", "forward", _moving_average),
            ("PerChannelMinMaxObserver", "_forward", _per_channel),
            ("MovingAveragePerChannelMinMaxObserver", "forward", _moving_average_per_channel),
            ("HistogramObserver", "forward", _histogram),
            ("HistogramObserver", "_non_linear_param_search", _non_linear_param_search)):
        _replace(dropin, getattr(module, name), method, package, attempt)
    _combines.add(module.HistogramObserver._combine_histograms)


def _ranges(observer: Any, x: Any, axis: int | None) -> Any:
    """Minimum and maximum of a batch in the dtype of the state. Rounding keeps the order of numbers, so that it may
    come last. Small tensors are declined first: reading the buffers of a module takes longer than all other checks."""
    if small(x, axis) or not plain(observer.min_val, observer.max_val) or (axis is not None and x.dim() < 2):
        raise Declined
    low, high = ranges(x, axis)
    dtype = observer.min_val.dtype
    return (low, high) if low.dtype == dtype else (low.to(dtype), high.to(dtype))


def _store(observer: Any, low: Any, high: Any) -> None:
    observer.min_val.copy_(low)
    observer.max_val.copy_(high)


def _widen(observer: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """The range of a batch and the state."""
    import torch
    return torch.min(low, observer.min_val), torch.max(high, observer.max_val)


def _average(observer: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """The moving average of a batch and the state."""
    old_low, old_high, share = observer.min_val, observer.max_val, observer.averaging_constant
    return old_low + share * (low - old_low), old_high + share * (high - old_high)


def _min_max(self: Any, x_orig: Any) -> Any:
    low, high = _ranges(self, x_orig, None)
    _store(self, *_widen(self, low, high))
    return x_orig


def _moving_average(self: Any, x_orig: Any) -> Any:
    low, high = _ranges(self, x_orig, None)
    if self.min_val != float("inf") or self.max_val != float("-inf"):
        low, high = _average(self, low, high)
    _store(self, low, high)
    return x_orig


def _of_channels(self: Any, x_orig: Any, combine: Callable[..., Any]) -> Any:
    low, high = _ranges(self, x_orig, self.ch_axis)
    if self.min_val.numel() and self.max_val.numel():
        low, high = combine(self, low, high)
    self.min_val.resize_(low.shape)
    self.max_val.resize_(high.shape)
    _store(self, low, high)
    return x_orig


def _per_channel(self: Any, x_orig: Any) -> Any:
    return _of_channels(self, x_orig, _widen)


def _moving_average_per_channel(self: Any, x_orig: Any) -> Any:
    return _of_channels(self, x_orig, _average)


# HistogramObserver

def _buffers(module: Any) -> tuple[Any, Any, Any]:
    """Minimum, maximum and counts of a HistogramObserver whose state qobs reads: float32, one range."""
    import torch
    buffers = module._buffers
    low, high, histogram = buffers["min_val"], buffers["max_val"], buffers["histogram"]
    if not plain(low, high, histogram) or low.numel() != 1 or high.numel() != 1 or histogram.dim() != 1 or \
            not low.dtype == high.dtype == histogram.dtype == torch.float32 or histogram.shape[0] != module.bins:
        raise Declined
    return low, high, histogram


class _State:
    """A libqobs.Observer with the state of a HistogramObserver, and that state as it was written to its buffers."""

    __slots__ = ("high", "histogram", "low", "most", "observer", "results")

    def __init__(self, low: Any, high: Any, histogram: Any):
        self.observer = Observer("torch.HistogramObserver", bins=histogram.shape[0], qscheme="per_tensor_affine",
                                 nonfinite="refuse")
        self.low, self.high, self.histogram, self.most = low.new_empty(()), low.new_empty(()), histogram.clone(), 0
        self.low.copy_(low.reshape(()))
        self.high.copy_(high.reshape(()))
        self.results = tuple((name, out.data_ptr(), 4 * out.numel()) for name, out in (
            (b"min_val", self.low), (b"max_val", self.high), (b"histogram", self.histogram)))
        if low != math.inf and high != -math.inf:
            self.observer.set_histogram(histogram, min=low.item(), max=high.item())
            self.most = int(histogram.max())

    def observe(self, x: Any) -> None:
        """Adds a batch. most: no count is larger."""
        self.observer.observe(x)
        handle = self.observer._handle
        for name, out, size in self.results:
            call(lib.observer_read, handle, name, out, size)
        self.most += x.numel()
        if self.most >= EXACT:
            self.most = int(self.histogram.max())
            if self.most >= EXACT:
                raise Declined


_states: weakref.WeakKeyDictionary[Any, _State] = weakref.WeakKeyDictionary()


def _histogram(self: Any, x_orig: Any) -> Any:
    """The state is in upstream's buffers after every batch. The observer's own state is used
    as long as they are equal."""
    import torch
    x = x_orig.detach()
    if x.dtype != torch.float32 or not eligible(x) or self.upsample_rate != 16 or \
            type(self)._combine_histograms not in _combines:
        raise Declined
    low, high, histogram = _buffers(self)
    state, equal = _states.pop(self, None), torch.equal
    if state is None or not (equal(state.low, low) and equal(state.high, high) and equal(state.histogram, histogram)):
        state = _State(low, high, histogram)
    try:
        state.observe(x)
    except NonfiniteError:
        raise Declined from None
    if low.dim():
        low.resize_(())
    if high.dim():
        high.resize_(())
    low.copy_(state.low)
    high.copy_(state.high)
    histogram.copy_(state.histogram)
    _states[self] = state
    return x_orig


_WORDS = ("quint8", "qint8", "uint8", "int8", "uint16", "int16")


def _non_linear_param_search(self: Any) -> Any:
    import torch
    dtype = str(self.dtype).rpartition(".")[2]
    low, high, histogram = _buffers(self)
    if dtype not in _WORDS or self.dst_nbins != 1 << torch.iinfo(self.dtype).bits or not unwatched(torch) or \
            not torch.isfinite(high - low):
        raise Declined
    edges = histogram.new_empty(self.bins + 1)
    edges[0], edges[-1] = low.reshape(()), high.reshape(())
    found = range_by_l2_norm(histogram, edges, dtype=dtype)
    return torch.full_like(low, found.min), torch.full_like(high, found.max)


# AffineQuantized*Observer of torchao

def _blocks(self: Any, x: Any, keepdim: bool) -> tuple[tuple[int, ...], Any, Any]:
    """The size of a block, and the minimum and maximum of each."""
    from torchao.quantization.quant_primitives import _get_reduction_params
    from torchao.quantization.utils import get_block_size
    if small(x, ()):
        raise Declined
    x = x.detach()
    if not eligible(x):
        raise Declined
    block = get_block_size(x.shape, self.granularity)
    shape, reduced = _get_reduction_params(block, x.size())
    if not reduced or len(shape) > 8 or (len(reduced) == len(shape) and small(x)):
        raise Declined
    low, high = minmax(x.view(shape), [d for d in range(len(shape)) if d not in reduced], nonfinite="propagate")
    if keepdim:
        kept = [1 if d in reduced else n for d, n in enumerate(shape)]
        low, high = low.reshape(kept), high.reshape(kept)
    return block, low, high


def _combine(self: Any, low: Any, high: Any, combine: Callable[..., Any]) -> None:
    if not (hasattr(self, "min_val") and hasattr(self, "max_val")):
        self.min_val, self.max_val = low, high
        return
    if not plain(self.min_val, self.max_val) or self.min_val.shape != low.shape or self.max_val.shape != high.shape:
        raise Declined
    _store(self, *combine(self, low, high))


def _affine(self: Any, input: Any) -> Any:
    _, low, high = _blocks(self, input, self.keepdim)
    _combine(self, low, high, _widen)
    return input


def _affine_of_pt2e(self: Any, input: Any, combine: Callable[..., Any]) -> Any:
    block, low, high = _blocks(self, input, False)
    _combine(self, low, high, combine)
    self.original_dtype, self.block_size = input.dtype, block
    return input


def _affine_pt2e(self: Any, input: Any) -> Any:
    return _affine_of_pt2e(self, input, _widen)


def _affine_average(self: Any, input: Any) -> Any:
    return _affine_of_pt2e(self, input, _average)


def _reduces(x: Any, granularity: Any) -> bool:
    from torchao.quantization.quant_primitives import _get_reduction_params
    from torchao.quantization.utils import get_block_size
    return bool(_get_reduction_params(get_block_size(x.shape, granularity), x.size())[1])


_GRANULARITIES = {"PerTensor": None, "PerAxis": "axis", "PerGroup": "group_size", "PerRow": "dim", "PerToken": None}
_INTEGERS = ("int8", "uint8", *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)))


def _line_search(self: Any, input: Any) -> tuple[Any, Any]:
    """The threshold with the smallest squared error. Errors are added up in double, upstream's in float32."""
    import torch
    granularity, cls = type(self.granularity).__name__, type(self)
    dtype = str(self.target_dtype).rpartition(".")[2]
    if input.dtype != torch.float32 or not eligible(input) or granularity not in _GRANULARITIES or \
            dtype not in _INTEGERS or self.zero_point_domain.name != "INT" or cls.loss_fn not in _losses or \
            cls.mse not in _losses or self.steps < 1 or not _reduces(input, self.granularity):
        raise Declined
    settings = {"mapping_type": self.mapping_type.name, "target_dtype": dtype, "granularity": granularity,
                "steps": self.steps, "nonfinite": "refuse"}
    argument = _GRANULARITIES[granularity]
    if argument is not None:
        settings[argument] = getattr(self.granularity, argument)
    for name in ("quant_min", "quant_max", "eps", "scale_dtype", "zero_point_dtype"):
        value = getattr(self, name)
        if value is not None:
            settings[name] = value
    try:
        found = Observer("torchao.AffineQuantizedMSEObserver", **settings).observe(input.detach())
    except NonfiniteError:
        raise Declined from None
    return found.read("min_val"), found.read("max_val")
