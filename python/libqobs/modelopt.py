# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Drop-in for the calibrators of NVIDIA Model-Optimizer: largest magnitudes, histograms, entropy, searches.

    import libqobs.modelopt
    libqobs.modelopt.install()
    mtq.quantize(model, config, forward_loop)      # the same amax, sooner
    print(libqobs.dropin_calls())

docs/dropins.md lists what is served, what is declined and what differs. Read in nvidia-modelopt 0.47 and 0.48:
modelopt/torch/quantization/utils/core_utils.py, calib/histogram.py, calib/mse.py."""
from __future__ import annotations

import functools
import importlib
import types
from typing import Any

from ._dropin import Declined, Dropin
from ._dropin_torch import counts, eligible, plain, ranges, small
from ._functions import range_by_entropy
from ._library import NonfiniteError
from ._minmax import minmax
from ._observer import Observer

_dropin = Dropin("modelopt", "0.47", "0.48")
uninstall, installed = _dropin.uninstall, _dropin.installed


def install(*, strict: bool = False) -> None:
    """Replaces the functions. A second call changes strict only. strict: a call that fails in qobs raises."""
    import modelopt
    from modelopt.torch.quantization.calib import histogram, mse
    from modelopt.torch.quantization.utils import core_utils
    if _dropin.begin(strict, modelopt.__version__):
        _dropin.replace(core_utils, "reduce_amax", "modelopt.reduce_amax", _reduce_amax)
        _dropin.replace_method(histogram.HistogramCalibrator, "collect", "modelopt.HistogramCalibrator", _collect)
        _dropin.replace(histogram, "_compute_amax_entropy", "modelopt.entropy", _compute_amax_entropy)
        _dropin.replace_method(mse.MseCalibrator, "collect", "modelopt.MseCalibrator", _collect_errors)
        _dropin.replace_method(mse.NVFP4MSECalibrator, "_run_reference_collect", "modelopt.NVFP4MSECalibrator", _sweep)


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


def _quantizer(calibrator: Any) -> Any:
    """The quantizer whose fake quantization is searched, if that is upstream's own and nothing else."""
    from modelopt.torch.quantization import model_calib
    from modelopt.torch.quantization.nn.modules import tensor_quantizer
    function = calibrator._quant_func
    if (type(function) is not functools.partial or function.args or
            function.func is not model_calib._mse_quant_func or set(function.keywords) != {"quantizer"}):
        raise Declined
    q = function.keywords["quantizer"]
    kinds = (tensor_quantizer.TensorQuantizer, tensor_quantizer.StaticBlockScaleQuantizer)
    if (type(q) not in kinds or getattr(q, "_lsq", False) or q.backend is not None or q.pre_quant_scale is not None or
            q.rotate_is_enabled or q.rotate_back_is_enabled or q.bias_calibrator is not None or q._dynamic or
            q._use_constant_amax or q.is_mx_format or q._forward_hooks or q._forward_pre_hooks or
            (q.block_sizes is not None and not q.is_static_block_quant)):
        raise Declined
    return q


def _hessian(calibrator: Any, x: Any) -> Any:
    """The Hessian that weighs the errors of x, for blocks of columns of its rows; None: errors are squared.

    Upstream's error function is a closure over it. That function is known by its code, so that no other one with
    variables of these names is taken for it."""
    import torch
    from modelopt.torch.quantization import model_calib
    function = calibrator._error_func
    if function is None:
        return None
    maker = getattr(getattr(model_calib, "_LocalHessianAccumulator", None), "build_error_func", None)
    constants = getattr(getattr(maker, "__code__", None), "co_consts", ())
    if type(function) is not types.FunctionType or not any(c is function.__code__ for c in constants):
        raise Declined
    names = function.__code__.co_freevars
    held = {name: cell.cell_contents for name, cell in zip(names, function.__closure__ or ())}
    if set(held) != {"bs", "cout", "hessian"}:
        raise Declined
    hessian, block = held["hessian"], held["bs"]
    if not plain(hessian) or hessian.dtype is not torch.float32 or hessian.dim() != 3 or \
            tuple(hessian.shape[1:]) != (block, block) or block % 8 or not 8 <= block <= 512 or x.dim() != 2 or \
            x.numel() != held["cout"] * hessian.shape[0] * block or not torch.isfinite(hessian).all():
        raise Declined
    return hessian


def _check(calibrator: Any, x: Any, amax: Any) -> None:
    if small(x, calibrator._axis) or not eligible(x.detach()) or not plain(amax, calibrator._initial_amax):
        raise Declined


def _searched(x: Any, preset: str, amax: Any, hessian: Any, **settings: Any) -> Observer:
    """An observer that has searched x around an amax, in the arithmetic of the installed release."""
    import modelopt
    settings["version"] = "0.47" if modelopt.__version__ < "0.48" else "0.48"
    if hessian is not None:
        settings["hessian_block_size"] = hessian.shape[1]
    observer = Observer(preset, **settings)
    observer.set_reference_amax(amax)
    if hessian is not None:
        observer.set_hessian(hessian)
    try:
        observer.observe(x.detach())
    except NonfiniteError:
        raise Declined from None
    if observer.search_report().weighted != (hessian is not None):
        raise Declined
    return observer


def _channel_axes(calibrator: Any, x: Any) -> list[int]:
    """The dimensions that have an amax for each index. Upstream keeps the others as 1."""
    axis, n = calibrator._axis, x.dim()
    axes = [] if axis is None else sorted({a % n for a in ([axis] if isinstance(axis, int) else axis)})
    shape = [x.shape[d] if d in axes else 1 for d in range(n)] if axes else []
    if list(calibrator._initial_amax.shape) != shape or (axes and calibrator._initial_amax.numel() == 1) or \
            len(axes) == n:
        raise Declined
    return axes


def _parts(x: Any, amax: Any, axes: list[int], hessian: Any) -> list[tuple[Any, Any, Any]]:
    """Parts of x whose rows belong to the same columns of the weight, with their amax and Hessian. The rows of a
    quantizer with blocks are blocks of the weight's rows."""
    if hessian is None or x.shape[1] == len(hessian) * hessian.shape[1]:
        if hessian is not None and 1 in axes:
            raise Declined
        return [(x, amax, hessian)]
    each, rest = divmod(x.shape[1], hessian.shape[1])
    if axes != [0] or rest or len(hessian) % each:
        raise Declined
    n = len(hessian) // each
    x, amax = x.reshape(-1, n, x.shape[1]), amax.reshape(-1, n, 1)
    if len(x) == 1:  # a part would have a single amax, whose multiples are not rounded as those of several
        raise Declined
    return [(x[:, i], amax[:, i], hessian[i * each:(i + 1) * each]) for i in range(n)]


def _collect_errors(self: Any, x: Any) -> None:
    """Adds the errors of a batch to those of every candidate, tensors of float32."""
    import torch
    from modelopt.torch.quantization.calib import mse
    if type(self) is not mse.MseCalibrator:
        raise Declined
    q, axes = _quantizer(self), _channel_axes(self, x)
    if q._num_bits != (4, 3) and type(q._num_bits) is not int:
        raise Declined
    _check(self, x, self._initial_amax)
    sums = [_searched(part, "modelopt.MseCalibrator", amax, hessian, axis=axes or None,
                      num_bits=list(q._num_bits) if q._num_bits == (4, 3) else q._num_bits, unsigned=q._unsigned,
                      narrow_range=q._narrow_range, step_size=self._step_size, start_multiplier=self._start_multiplier,
                      stop_multiplier=self._stop_multiplier).read("error_sums")
            for part, amax, hessian in _parts(x, self._initial_amax, axes, _hessian(self, x))]
    candidates, errors = self._generate_candidates(x.device), torch.stack(sums, 1)
    if len(candidates) != errors.shape[2]:
        raise Declined
    losses = errors.reshape(-1, len(candidates)).T.float().reshape(-1, *(x.shape[d] for d in axes))
    if self._candidates is None:
        self._candidates, self._num_steps, self._losses_sum = candidates, len(candidates), [None] * len(candidates)
    for step, loss in enumerate(losses):
        before = self._losses_sum[step]
        self._losses_sum[step] = loss.clone() if before is None else before.add_(loss)


def _sweep(self: Any, x: Any) -> None:
    """The sweep of NVFP4 scales. Upstream's quantizer is a kernel of Triton: on CPUs it raises."""
    import torch
    from modelopt.torch.quantization.calib import mse
    from modelopt.torch.quantization.utils.numeric_utils import fp8_max_for_normalization
    amax = self._initial_amax
    if type(self) is not mse.NVFP4MSECalibrator or x.dim() != 2 or amax is None or amax.numel() != x.shape[0]:
        raise Declined
    hessian = _hessian(self, x)
    if self._hessian is not None and self._hessian is not hessian:  # which upstream reads on CUDA alone
        raise Declined
    q = _quantizer(self)
    if not q.is_nvfp4_static or not plain(self._global_amax) or \
            not torch.equal(self._global_amax.reshape(-1), q.global_amax.float().reshape(-1)):
        raise Declined
    _check(self, x, self._global_amax)
    block_size, weight = x.shape[1], x
    if hessian is not None:
        if block_size % hessian.shape[1]:
            raise Declined
        weight = x.reshape(-1, len(hessian) * hessian.shape[1])
    observer = _searched(weight, "modelopt.NVFP4MSECalibrator", self._global_amax, hessian, block_size=block_size,
                         four_over_six=fp8_max_for_normalization(q) == 256)
    candidates = self._generate_candidates(x.device)
    self._candidates, self._num_steps, self._losses_sum = candidates, len(candidates), None
    self._best_amax = observer.read("amax").reshape(amax.shape)
