# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Drop-in for the calibrators of NVIDIA Model-Optimizer: largest magnitudes, histograms, entropy.

    import qobs.modelopt
    qobs.modelopt.install()
    mtq.quantize(model, config, forward_loop)      # the same amax, sooner
    print(qobs.dropin_calls())

docs/dropins.md lists what is served, what is declined and what differs. Read in nvidia-modelopt 0.47:
modelopt/torch/quantization/utils/core_utils.py, calib/histogram.py."""
from __future__ import annotations

import importlib
from typing import Any

from ._dropin import Declined, Dropin
from ._dropin_torch import counts, eligible, plain, ranges
from ._functions import range_by_entropy
from ._minmax import minmax

_dropin = Dropin("modelopt", "0.47")


def install(*, strict: bool = False) -> None:
    """Replaces the functions. A second call changes strict only. strict: a call that fails in qobs raises."""
    import modelopt
    from modelopt.torch.quantization.calib import histogram
    from modelopt.torch.quantization.utils import core_utils
    if _dropin.begin(strict, modelopt.__version__):
        _dropin.replace(core_utils, "reduce_amax", "modelopt.reduce_amax", _reduce_amax)
        _dropin.replace_method(histogram.HistogramCalibrator, "collect", "modelopt.HistogramCalibrator", _collect)
        _dropin.replace(histogram, "_compute_amax_entropy", "modelopt.entropy", _compute_amax_entropy)


def uninstall() -> None:
    """Puts upstream's functions back."""
    _dropin.uninstall()


def installed() -> bool:
    """Returns True if the functions are replaced."""
    return _dropin.installed


def _reduce_amax(input: Any, axis: Any = None, keepdims: bool = True, squeeze_scalar: bool = True) -> Any:
    """The largest magnitude over the axes that are reduced; None: over all."""
    import torch
    if axis is None:
        low, high = ranges(input, None)
        return torch.maximum(high.abs_(), low.abs_())
    n = input.dim()
    reduced = {a % n for a in ((axis,) if isinstance(axis, int) else axis)} if n else set()
    if not reduced:
        raise Declined  # torch reduces all dimensions if none is named
    low, high = ranges(input, tuple(d for d in range(n) if d not in reduced))
    amax = torch.maximum(high.abs_(), low.abs_())
    if keepdims:
        amax = amax.reshape([1 if d in reduced else input.shape[d] for d in range(n)])
    return amax.squeeze_() if squeeze_scalar and amax.numel() == 1 else amax


def _collect(self: Any, x: Any) -> None:
    """Counts of magnitudes by torch.histc. The state is a pair of tensors."""
    import torch
    state = self._calib_bin_edges, self._calib_hist
    empty = state[0] is None and state[1] is None
    if not self._torch_hist or not eligible(x.detach()) or (not empty and not plain(*state)):
        raise Declined
    x = x.detach().float()
    low, high = minmax(x, nonfinite="propagate")
    amax = torch.maximum(high.abs(), low.abs())
    if not torch.isfinite(amax) or amax == 0:
        raise Declined
    bins, edges = self._num_bins, self._calib_bin_edges
    if empty:
        edges = torch.linspace(0, amax, bins + 1)
    elif amax > edges[-1]:
        width = edges[1] - edges[0]
        bins = int((amax / width).ceil().item())
        edges = torch.arange(0, amax + width, width, device=x.device)
    last = amax if empty else edges[-1]
    heights = counts(x, bins, 0.0, last.item(), magnitude=True, skip_zeros=self._skip_zeros)
    if not empty:
        heights[:self._calib_hist.numel()] += self._calib_hist
    self._num_bins, self._calib_bin_edges, self._calib_hist = bins, edges, heights


def _compute_amax_entropy(calib_hist: Any, calib_bin_edges: Any, num_bits: Any, unsigned: bool, stride: int = 1,
                          start_bin: int = 128) -> Any:
    """Upstream gives bin 0 of its array the count of bin 1; so does this."""
    import torch
    numpy = importlib.import_module("numpy")
    if type(calib_hist) is not numpy.ndarray or calib_hist.ndim != 1 or not isinstance(num_bits, int) or \
            not 2 <= num_bits <= 16 or calib_hist.dtype.kind != "i" or not 0 < start_bin <= len(calib_hist) or \
            stride < 1 or len(calib_hist) < 2 or calib_hist[1:].sum() == 0:
        raise Declined
    edges = numpy.ascontiguousarray(calib_bin_edges, numpy.float32)
    found = range_by_entropy(calib_hist, edges, num_bits=num_bits, unsigned=bool(unsigned), stride=stride,
                             start_bin=start_bin)
    calib_hist[0] = calib_hist[1]
    return torch.tensor(found.max)
