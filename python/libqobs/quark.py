# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Drop-in for the observers of AMD Quark: minima and maxima, magnitudes and scales of MX blocks, histograms, squared
errors.

    import libqobs.quark
    libqobs.quark.install()
    ModelQuantizer(config).quantize_model(model, loader)      # the same scales, sooner
    print(libqobs.dropin_calls())

docs/dropins.md lists what is served, what is declined and what differs. Read in amd-quark 0.13:
quark/torch/quantization/observer/observer.py."""
from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import byref, c_double
from typing import Any

from ._dropin import Declined, Dropin
from ._dropin_torch import counts, eligible, plain, ranges, small
from ._functions import fake_quantize, range_by_mse
from ._library import call, lib
from ._minmax import minmax
from ._tensor import view

_dropin = Dropin("quark", "0.13")
uninstall, installed = _dropin.uninstall, _dropin.installed


def install(*, strict: bool = False) -> None:
    """Replaces the methods. A second call changes strict only. strict: a call that fails in qobs raises."""
    import quark
    from quark.torch.quantization.observer import observer
    if _dropin.begin(strict, quark.__version__):
        for name, method, attempt in (
                ("PerTensorMinMaxObserver", "forward", _per_tensor),
                ("PerChannelMinMaxObserver", "_forward", _per_channel),
                ("PerGroupMinMaxObserver", "_forward", _per_group), ("PerBlockMXObserver", "forward", _mx),
                ("PerBlockMXBufferReuseObserver", "forward", _mx_buffers),
                ("PerBlockMXDiffsObserver", "calculate_qparams", _mx_scale),
                ("PerTensorHistogramObserver", "forward", _histogram),
                ("PerTensorMSEObserver", "get_min_max_by_mse", _by_mse),
                ("PerTensorPowOf2MinMSEObserver", "_calculate_one_batch_quant_param", _power_of_two),
                ("PerChannelPowOf2MinMSEObserver", "_calculate_one_batch_quant_param", _powers_of_two)):
            _dropin.replace_method(getattr(observer, name), method, f"quark.{name}", attempt)


def _store(self: Any, low: Any, high: Any, dtype: Any) -> None:
    """A new range. The state is first written in its dtype, then gets that of the batch."""
    self.min_val.resize_(low.shape)
    self.max_val.resize_(high.shape)
    self.min_val.copy_(low)
    self.max_val.copy_(high)
    self.min_val, self.max_val = self.min_val.to(dtype), self.max_val.to(dtype)


def _per_tensor(self: Any, x_orig: Any) -> Any:
    import torch
    if small(x_orig) or not plain(self.min_val, self.max_val):  # reading buffers takes longer than declining
        raise Declined
    low, high = ranges(x_orig, None)
    if not self.is_dynamic:
        low, high = torch.min(low, self.min_val), torch.max(high, self.max_val)
    if low.shape != self.min_val.shape or high.shape != self.max_val.shape:
        raise Declined
    _store(self, low, high, x_orig.dtype)
    return x_orig


def _per_channel(self: Any, x_orig: Any) -> Any:
    import torch
    if small(x_orig, self.ch_axis) or not plain(self.min_val, self.max_val) or self.ch_axis is None or x_orig.dim() < 2:
        raise Declined
    low, high = ranges(x_orig, self.ch_axis)
    low, high = low.to(self.min_val.dtype), high.to(self.max_val.dtype)
    if not self.is_dynamic and self.min_val.numel() == low.numel() == high.numel():
        low, high = torch.minimum(self.min_val, low), torch.maximum(self.max_val, high)
    _store(self, low, high, x_orig.dtype)
    return x_orig


def _per_group(self: Any, x_orig: Any) -> Any:
    """Groups of the last dimension; upstream moves other axes there."""
    size, axis, n = self.group_size, self.ch_axis, x_orig.dim()
    if not plain(self.min_val, self.max_val) or size is None or axis is None or axis not in (-1, n - 1) or n < 2 or \
            x_orig.numel() == 0 or (size == -1 and n != 2) or size < -1 or size == 0 or \
            (size > 0 and x_orig.shape[-1] % size):
        raise Declined
    low, high = ranges(x_orig.detach().reshape(-1, x_orig.shape[-1] if size == -1 else size), 0)
    self.group_count = 1 if size == -1 else x_orig.shape[-1] // size
    _store(self, low, high, x_orig.dtype)
    return x_orig


def _has_blocks(self: Any, x: Any) -> bool:
    """Returns True if qobs may read a tensor whose last dimension has blocks without padding."""
    return self.axis in (-1, x.dim() - 1) and eligible(x) and x.shape[-1] % self.block_size == 0


def _block_amax(self: Any, x: Any) -> Any:
    """Largest magnitudes of blocks of the last dimension without padding. The bits of NaN depend on torch's vectors."""
    import torch
    size = self.block_size
    if not _has_blocks(self, x) or not plain(self.amax):
        raise Declined
    low, high = ranges(x.reshape(-1, x.shape[-1] // size, size), (0, 1))
    amax = torch.maximum(high.abs_(), low.abs_())
    if math.isnan(amax.max()):
        raise Declined
    return amax


def _restart(self: Any, shape: Any) -> None:
    """Drops the magnitudes of batches with blocks of another shape."""
    import torch
    if self.amax.shape != shape and self.amax.dim() > 0:
        self.amax = torch.tensor(0.0, dtype=torch.float32)


def _mx(self: Any, x_orig: Any) -> Any:
    import torch
    amax = _block_amax(self, x_orig)
    if not self.is_dynamic:
        _restart(self, amax.shape)
        amax = torch.max(self.amax, amax)
    self.amax = amax
    return x_orig


def _mx_buffers(self: Any, x_orig: Any) -> Any:
    """The same, but magnitudes of the same shape are written in place. The buffers that all observers share are
    allocated and counted for the calls of upstream, and not written."""
    import torch
    if small(x_orig) or self.buffer_reuse_debug or x_orig.dtype is torch.float64 or \
            x_orig.numel() > self.max_input_numel:
        raise Declined  # upstream rounds float64; above the limit it calls PerBlockMXObserver
    amax = _block_amax(self, x_orig)
    blocks = *amax.shape, self.block_size
    calls = self._gpu_stats.setdefault(str(x_orig.device), {"reuse_count": 0, "total_bytes": 0, "call_count": 0})
    calls["call_count"] += 1
    if self._can_use_buffers(blocks, x_orig.device):
        calls["reuse_count"] += 1
    else:
        self._allocate_buffers(blocks, x_orig.device)
    if not self.is_dynamic:
        _restart(self, amax.shape)
    if self.amax.shape != amax.shape:
        self.amax = amax if self.is_dynamic else torch.max(self.amax, amax)
    elif self.is_dynamic:
        self.amax.copy_(amax)
    else:
        torch.maximum(self.amax, amax, out=self.amax)
    return x_orig


#: upstream's dtypes of elements -> formats
_ELEMENTS = {"fp4": "fp4_e2m1", "fp6_e2m3": "fp6_e2m3", "fp6_e3m2": "fp6_e3m2", "fp8_e4m3": "fp8_e4m3",
             "fp8_e5m2": "fp8_e5m2"}


def _mx_scale(self: Any) -> Any:
    """The power of two, from that of the magnitude down to self.scope below it, with the smallest squared error of each
    block. torch adds up the errors in the order and dtype of upstream."""
    import torch
    from quark.torch.quantization.utils import get_dtype_params
    x, amax, size, dtype = self.last_x, self.amax, self.block_size, self.dtype.value
    if dtype not in _ELEMENTS or self.qscheme_str_name != "per_group" or small(x, 0) or not _has_blocks(self, x) or \
            not eligible(amax) or amax.numel() * size != x.numel() or x.dtype is torch.float64 or \
            not torch.isfinite(amax).all():
        raise Declined
    blocks, eps, smallest = x.reshape(-1, x.shape[-1] // size, size), torch.finfo(torch.float32).eps, None
    largest = best = torch.ceil(torch.log2(amax)) - get_dtype_params(self.mx_dtype)[2]
    for below in range(self.scope + 1):
        exponent = largest - below
        scale = torch.pow(2.0, exponent)
        rounded = fake_quantize(x, "quark.PerBlockMXObserver ch_axis=-1 scale_format=e8m0",
                                scale.masked_fill(scale == 0, eps).float(), format=_ELEMENTS[dtype],
                                group_size=size)
        errors = (blocks - rounded.view(blocks.shape)).square_().sum(-1)
        if errors.isnan().any():
            raise Declined
        if smallest is None:
            smallest = errors
        else:
            best = torch.where(errors < smallest, exponent, best)
            smallest = torch.minimum(errors, smallest)
    scale = torch.pow(2.0, best)
    self.scale = scale.masked_fill(scale == 0, self.eps)
    self.zero_point = torch.zeros_like(self.scale)
    return self.scale, self.zero_point


def _histogram(self: Any, x_orig: Any) -> Any:
    """Counts by torch.histc: of magnitudes, or of the numbers if the range is asymmetric. A range that grows to the
    left stays upstream's."""
    import torch
    x = x_orig.detach()
    state = self.calib_bin_edges, self.calib_hist
    if not eligible(x) or not plain(*state):
        raise Declined
    x = x.float()
    low, high = minmax(x, nonfinite="propagate")
    symmetric = self.symmetric is None or bool(self.symmetric)
    if symmetric:
        low, high = torch.zeros_like(low), torch.maximum(high.abs(), low.abs())
    elif self._skip_zeros:
        raise Declined
    if not (torch.isfinite(low) and torch.isfinite(high)) or low == high:
        raise Declined
    bins, edges, first, last = self._num_bins, self.calib_bin_edges, low.item(), high.item()
    empty = edges.nelement() == 0 and self.calib_hist.nelement() == 0
    if empty:
        edges = torch.linspace(first, last, bins + 1)
    else:
        if low < edges[0]:
            raise Declined
        if high > edges[-1]:
            width = (edges[1] - edges[0]).item()
            bins += int(((last - edges[-1]) / width).ceil().item())
            edges = torch.arange(edges[0].item(), last + width, width, device=x.device)
            if high > edges[-1]:
                raise Declined
        first, last = edges[0].item(), edges[-1].item()
    heights = counts(x, bins, first, last, magnitude=symmetric, skip_zeros=self._skip_zeros)
    if not empty:
        heights[:self.calib_hist.numel()] += self.calib_hist
    self.device, self._num_bins, self.calib_bin_edges, self.calib_hist = x_orig.device, bins, edges, heights
    return x_orig


_SEARCHED = ("int4", "uint4", "int8", "uint8", "fp8_e4m3", "fp8_e5m2")


#: relative to the smallest error. torch adds up the errors of bins in float32, qobs in double; that differs by less.
_TIE = 4e-6


def _nearly_best(search: Callable[[int, int], Any], first: int, bins: int) -> list[int]:
    """Every candidate whose error is the smallest one but for _TIE, in order. search(start, stride) finds the best of
    start, start + stride, ...: classes that have none are left out, others are halved."""
    stride = min(64, bins - first)
    classes = [(start, stride, search(start, stride)) for start in range(first, first + stride)]
    limit, found = min(best.score for _, _, best in classes) * (1 + _TIE), []
    while classes:
        start, stride, best = classes.pop()
        if not best.score <= limit:
            continue
        if start + stride >= bins:
            found.append(start)
            continue
        for half in (start, start + stride):
            holds = (best.last_bin - half) % (2 * stride) == 0
            classes.append((half, 2 * stride, best if holds else search(half, 2 * stride)))
    return sorted(found)


def _by_mse(self: Any, calib_hist: Any, calib_bin_edges: Any, stride: int = 1, start_bin: int = 2045) -> Any:
    """The centre of a bin with the smallest mean squared error. Upstream's own float32 sums decide between candidates
    that are nearly as good as the best."""
    import torch
    from quark.torch.quantization.observer import observer
    dtype, edges, bins = self.dtype.value, calib_bin_edges, calib_hist.numel()
    if type(self) is not observer.PerTensorMSEObserver or dtype not in _SEARCHED or not eligible(calib_hist) or \
            not eligible(edges) or not calib_hist.dtype == edges.dtype == torch.float32 or edges.dim() != 1 or \
            edges.shape[0] != bins + 1 or stride != 1 or start_bin < 0 or \
            (self.device is not None and torch.device(self.device).type != "cpu") or \
            self.eps != torch.finfo(torch.float32).eps or not torch.isfinite(edges).all() or \
            edges[min(start_bin, bins - 1)] < 0:  # upstream raises
        raise Declined
    settings = {"dtype": dtype, "symmetric": bool(self.symmetric), "scale_type": self.scale_type.value,
                "zero_point_type": self.zero_point_type.value}

    def search(start: int, stride: int) -> Any:
        return range_by_mse(calib_hist, edges, config="quark.PerTensorMSEObserver", start_bin=start, stride=stride,
                            **settings)
    centres, zero, errors = (edges[1:] + edges[:-1]) / 2, torch.tensor(0), []
    candidates = _nearly_best(search, min(start_bin, bins - 1), bins)
    if not candidates:
        raise Declined  # infinite errors
    for i in candidates if len(candidates) > 1 else ():
        rounded = self.scaling_fp8(centres, centres[i]) if dtype.startswith("fp8") else \
            self.int_fake_tensor_quant(centres, zero, centres[i])
        errors.append(((rounded - centres) ** 2 * calib_hist).mean())
    return zero, centres[candidates[torch.argmin(torch.stack(errors)) if errors else 0]]


def _shift(self: Any, low: Any, high: Any, cls: Any, granularity: str) -> Any:
    """The power of two, from four times to a quarter of the scale of the range, with the smallest squared error of the
    last batch; all channels are shifted alike. Errors that differ by less than sums in float32 do are declined."""
    import torch
    x, start, dtype = self.original_tensor, cls.__mro__[1], self.dtype.value
    if type(self) is not cls or dtype not in ("int8", "uint8") or x is None or x.dtype != torch.float32 or \
            small(x) or not eligible(x) or self.pos_range != 5 or \
            torch.device(self.compute_device).type != "cpu" or not plain(low, high):
        raise Declined
    scale, zero_point = start._calculate_one_batch_quant_param(self, low, high)
    position, errors, total = self._scale2pos(scale), [], c_double()
    scales = [self._pos2scale(position + i - 2) for i in range(5)]
    value = view(x)
    for candidate in scales:
        rounded = view(fake_quantize(x, f"torch.{granularity}", candidate, zero_point, dtype=f"q{dtype}"))
        call(lib.measure_error, value.address, rounded.address, byref(total), byref(c_double()))
        errors.append(total.value)
    best, second = sorted(errors)[:2]
    if not sum(errors) < math.inf or second - best <= 1e-4 * second:
        raise Declined
    self.original_tensor = None
    return scales[errors.index(best)], zero_point


def _power_of_two(self: Any, min_val: Any, max_val: Any) -> Any:
    from quark.torch.quantization.observer import observer
    return _shift(self, min_val, max_val, observer.PerTensorPowOf2MinMSEObserver, "MinMaxObserver")


def _powers_of_two(self: Any, min_val: Any, max_val: Any) -> Any:
    from quark.torch.quantization.observer import observer
    if self.ch_axis is None:
        raise Declined
    return _shift(self, min_val, max_val, observer.PerChannelPowOf2MinMSEObserver,
                  f"PerChannelMinMaxObserver ch_axis={self.ch_axis}")
