# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Drop-in for llm-compressor: GPTQ, the searches of memoryless_mse, mse, nvfp4_expanded_mse and imatrix_mse, min/max,
and the codes that compressed-tensors saves.

    import libqobs.llmcompressor
    libqobs.llmcompressor.install()
    oneshot(...)                     # the same files, sooner
    print(libqobs.dropin_calls())

docs/dropins.md lists what is served, what is declined and what differs. Read in llmcompressor 0.14:
observers/mse_quant.py, observers/min_max.py, observers/imatrix.py, modifiers/gptq/gptq_quantize.py and helpers.py, and
in compressed-tensors 0.19: quantization/lifecycle/forward_helpers.py, quantization/utils/fp4_utils.py and
compressors/nvfp4/helpers.py. Functions with a registry of back ends, ImplBackend of compressed-tensors, get one more;
CT_ENFORCE_EAGER switches those off."""
from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

from ._dropin import Dropin
from ._dropin_torch import eligible, small
from ._minmax import minmax
from ._functions import gptq_block
from ._functions import search as _search
from ._quantizer import Quantizer

_dropin = Dropin("llmcompressor", "0.14")
installed = _dropin.installed


def install(*, strict: bool = False) -> None:
    """Replaces the functions. A second call changes strict only. strict: a call that fails in qobs raises."""
    import llmcompressor
    from compressed_tensors.compressors.nvfp4 import helpers as packing  # noqa: F401
    from compressed_tensors.utils.impl_backend import ImplBackend
    from llmcompressor.modifiers.gptq import gptq_quantize, helpers  # noqa: F401
    from llmcompressor.observers import imatrix, min_max, mse, mse_quant  # noqa: F401
    if _dropin.begin(strict, llmcompressor.__version__):
        _dropin.register(ImplBackend, "gptq_block_update", "llmcompressor.gptq", _gptq_block_update, eligible)
        _dropin.register(ImplBackend, "_grid_search_mse", "llmcompressor.search", _grid_search_mse, eligible)
        _dropin.register(ImplBackend, "_quantize", "llmcompressor.codes", _quantize, eligible)
        _dropin.register(ImplBackend, "cast_to_fp4", "llmcompressor.fp4", _cast_to_fp4, eligible)
        _dropin.register(ImplBackend, "pack_fp4_to_uint8", "llmcompressor.packing", _pack_fp4_to_uint8, eligible)
        _dropin.replace(helpers, "accumulate_hessian", "llmcompressor.hessian", _accumulate_hessian)
        _dropin.replace(helpers, "factorize_hessian", "llmcompressor.factor", _factorize_hessian)
        _dropin.replace(imatrix, "_grid_search", "llmcompressor.imatrix_search", _grid_search)
        _dropin.replace(min_max, "_get_min_max", "llmcompressor.minmax", _get_min_max)


def uninstall() -> None:
    """Puts upstream's functions back."""
    _dropin.uninstall()
    _forget()


def _get_min_max(observed: Any) -> Any:
    """observed: (observations, *shape of qparams, group)."""
    if small(observed) or observed.dim() < 3 or not eligible(observed):
        return NotImplemented
    found = minmax(observed, tuple(range(1, observed.dim() - 1)), nonfinite="propagate")
    return found.min, found.max


def _format_of(observed: Any, args: Any) -> dict[str, Any] | None:
    """The number format of a scheme and the granularity of its rows, as settings; None: qobs has no such search.

    A search under a global scale is made without it, in the dtype of the tensor."""
    import torch
    if not args.symmetric and args.zp_dtype != args.pytorch_dtype():
        return None
    settings = {"num_bits": args.num_bits, "type": getattr(args.type, "value", args.type),
                "symmetric": args.symmetric, "strategy": "channel"}
    if args.scale_dtype is not None and getattr(args.strategy, "value", args.strategy) != "tensor_group":
        if args.scale_dtype != torch.uint8 or args.type != "float" or args.num_bits not in (4, 8) or \
                args.group_size != 32 or observed.shape[-1] != 32:
            return None
        settings |= {"scale_dtype": "uint8", "strategy": "group", "group_size": 32}
    return settings


def _searchable(observed: Any) -> bool:
    return eligible(observed) and observed.dim() >= 3 and observed.dtype.itemsize <= 4


def _grid_search_mse(observed: Any, args: Any, token_args: Any, maxshrink: float, patience: int, grid: float,
                     norm: float, triton_error_buffer: float, expand: float = 1.0) -> Any:
    """The elements of every qparam make a row of a matrix."""
    settings = _format_of(observed, args) if _searchable(observed) else None
    if settings is None or (observed.shape[0] != 1 and settings["strategy"] == "group"):
        return NotImplemented
    shape = observed.shape[1:-1]
    rows = observed.detach().movedim(0, -2).reshape(shape.numel(), -1)
    found = _search(rows, "llmc.memoryless_mse", base_name="weight", maxshrink=maxshrink, patience=patience, grid=grid,
                    norm=norm, expand=expand, nonfinite="refuse", **settings)
    return found.min.reshape(shape), found.max.reshape(shape)


def _grid_search(observed: Any, args: Any, maxshrink: float, patience: int, grid: int, norm: float,
                 expand: float = 1.0, importance_weights: Any = None) -> Any:
    """The search of imatrix_mse; importance belongs to columns, so that the groups of a row lie side by side."""
    settings = _format_of(observed, args) if _searchable(observed) else None
    if settings is None or observed.shape[0] != 1 or expand != 1 or observed.dim() != 4:
        return NotImplemented
    values = observed.detach()[0]
    rows, groups, group = values.shape
    importance = None
    if importance_weights is not None:
        weights = importance_weights.detach()
        if weights.shape != observed.shape or weights.stride(1) != 0 or str(weights.dtype) != "torch.float32":
            return NotImplemented  # not one weight for each column
        importance = weights[0, 0].reshape(-1).contiguous()
    if groups > 1:
        settings |= {"strategy": "group", "group_size": group}
    found = _search(values.reshape(rows, -1), "llmc.imatrix_mse", importance=importance, base_name="weight",
                    maxshrink=maxshrink, patience=patience, grid=grid, norm=norm, nonfinite="refuse", **settings)
    shape = values.shape[:-1]
    return found.min.reshape(shape), found.max.reshape(shape)


def _gptq_block_update(W1: Any, Hinv1: Any, Q1: Any, Err1: Any, losses1: Any, *, scale: Any, zero_point: Any,
                       global_scale: Any, g_idx: Any, quant_args: Any, i1: int) -> Any:
    """W1: (batch, rows, columns) in float32, and the three results beside it. Everything between the blocks, the
    products of matrices, stays torch's."""
    from llmcompressor.modifiers.gptq.helpers import column_scale_window
    columns = W1.shape[-1]
    if W1.dim() != 3 or columns > 1024 or \
            any(str(x.dtype) != "torch.float32" or not x.is_contiguous() for x in (W1, Q1, Err1, losses1)):
        return NotImplemented
    scales, zeros = column_scale_window(scale, zero_point, global_scale, g_idx, quant_args, num_rows=W1.shape[-2],
                                        i1=i1,
                                        i2=i1 + columns)
    if scales.dtype.itemsize > 4:
        return NotImplemented
    for i in range(W1.shape[0]):
        gptq_block(W1[i], Hinv1[i].contiguous(), Q1[i], Err1[i], losses1[i], "llmc.memoryless_minmax", scales[i],
                   None if zeros is None else zeros[i], num_bits=quant_args.num_bits, strategy="channel",
                   type=getattr(quant_args.type, "value", quant_args.type), symmetric=quant_args.symmetric)
    return None


# Layers that share an input have equal Hessians: q, k and v; gate and up. Upstream computes each of them anew.

class _Product(NamedTuple):
    """What the input of the last layer adds to a Hessian."""

    input: Any    # a weak reference; the product is dropped with the input
    version: int  # of its contents
    value: Any


class _Factor(NamedTuple):
    """A Hessian and all that upstream makes of it."""

    hessian: Any
    share: float
    value: Any
    fallback: Any


_product: _Product | None = None
_factors: list[_Factor] = []  # the last two: o of as many columns comes between q and k
_shared: set[int] = set()  # columns of inputs that several layers share; factors of others are not kept


def _forget() -> None:
    global _product
    _product = None
    _factors.clear()
    _shared.clear()


def _drop_product(of: Any) -> None:
    global _product
    if _product is not None and _product.input is of:
        _product = None


class _Sum:
    """Stands for a Hessian within upstream's function and keeps what is added to it."""

    def __init__(self, device: Any):
        self.device, self.added = device, None

    def __iadd__(self, product: Any) -> _Sum:
        self.added = product
        return self


def _accumulate_hessian(inp: Any, module: Any, hessian: Any, num_samples: Any) -> Any:
    """Upstream's own product, once for the layers of an input."""
    global _product
    import torch
    from llmcompressor.modifiers.gptq import helpers
    if not isinstance(module, torch.nn.Linear) or not eligible(inp) or not eligible(hessian) or inp.is_inference():
        return NotImplemented
    last = _product
    if last is None or last.input() is not inp or last.version != inp._version:
        found = _Sum(hessian.device)
        helpers.accumulate_hessian.__qobs_original__(inp, module, found, torch.zeros_like(num_samples))
        last = _product = _Product(weakref.ref(inp, _drop_product), inp._version, found.added)
    else:
        _shared.add(inp.shape[-1])
    hessian += last.value
    num_samples += inp.shape[0] if inp.dim() > 2 else 1
    return hessian, num_samples


def _factorize_hessian(weights: Any, hessians: Any, percdamp: float, used_rtn_fallback: Any) -> Any:
    """Upstream's three calls of LAPACK, once for the layers of an input, in place on one copy in the order of columns,
    of which each of upstream's calls makes two. Batches of several layers stay upstream's."""
    import torch
    if hessians.shape[0] != 1 or not eligible(hessians) or not eligible(weights):
        return NotImplemented
    dead = torch.diagonal(hessians[0]) == 0
    weights.masked_fill_(dead, 0)
    for last in _factors:
        if last.share == percdamp and torch.equal(last.hessian, hessians):
            used_rtn_fallback |= last.fallback
            return hessians.copy_(last.value)
    work = hessians[0].t().contiguous().t()
    torch.diagonal(work).masked_fill_(dead, 1.0)
    torch.diagonal(work).add_(percdamp * torch.mean(torch.diag(work)))
    info = torch.empty((), dtype=torch.int32)
    torch.linalg.cholesky_ex(work, check_errors=False, out=(work, info))
    if info.item() == 0:
        torch.cholesky_inverse(work, out=work)
        torch.linalg.cholesky(work, upper=True, out=work)
    else:
        work = torch.eye(hessians.shape[-1])
        used_rtn_fallback[0] = True
    if hessians.shape[-1] in _shared:
        _factors[:] = [*_factors[-1:], _Factor(hessians.clone(), percdamp, work[None], used_rtn_fallback.clone())]
    return hessians.copy_(work)


# Codes. Scales come in the dtype of the weight or in another one, zero points in that of their scheme.

@functools.lru_cache(64)
def _quantizer(dtype: Any, columns: int, **options: Any) -> Quantizer:
    return Quantizer("llmc.memoryless_minmax", dtype=dtype, columns=columns, dynamic=False, **options)


def _e2m1(x: Any, **options: Any) -> Any:
    """Numbers or codes of elements as they are: every row has a scale of 1."""
    import torch
    rows = x.reshape(-1, x.shape[-1])
    found = _quantizer(x.dtype, x.shape[-1], type="float", num_bits=4, strategy="channel", **options)
    return found(rows, scale=torch.ones(rows.shape[0], 1, dtype=x.dtype)).codes


def _cast_to_fp4(x: Any) -> Any:
    if small(x) or x.dtype.itemsize > 4:
        return NotImplemented
    return _e2m1(x, dequantized=True).reshape(x.shape)


def _pack_fp4_to_uint8(x: Any) -> Any:
    """x: numbers of e2m1. A code of -0 has its sign, so that the last bit of every element is set: it rounds as before
    and is not zero."""
    import torch
    if small(x) or x.dim() != 2 or x.shape[1] % 2 != 0 or x.dtype.itemsize > 4:
        return NotImplemented
    marked = (x.contiguous().view(torch.int32 if x.dtype.itemsize == 4 else torch.int16) | 1).view(x.dtype)
    return _e2m1(marked, packed=True)


def _quantize(x: Any, scale: Any, zero_point: Any, q_min: Any, q_max: Any, args: Any, dtype: Any = None,
              global_scale: Any = None) -> Any:
    """Integers and e4m3 with a scale for each row or group. x: (rows, columns) or (rows, groups, group)."""
    strategy, kind = (getattr(value, "value", value) for value in (args.strategy, args.type))
    if small(x) or args.num_bits > 8 or str(dtype) != {"int": "torch.int8", "float": "torch.float8_e4m3fn"}[kind] or \
            x.dim() != {"channel": 2, "group": 3}.get(strategy) or scale.shape != (*x.shape[:-1], 1) or \
            global_scale is not None:
        return NotImplemented
    options = {"num_bits": args.num_bits, "type": kind, "symmetric": zero_point is None, "strategy": strategy}
    if strategy == "group":
        options["group_size"] = x.shape[-1]
    rows = x.detach().reshape(x.shape[0], -1).contiguous()
    zeros = None if zero_point is None else zero_point.detach().reshape(rows.shape[0], -1).contiguous()
    found = _quantizer(x.dtype, rows.shape[1], scale_dtype=scale.dtype,
                       zero_point_dtype=None if zeros is None else zeros.dtype, **options)
    scales = scale.detach().reshape(rows.shape[0], -1).contiguous()
    return found(rows, scale=scales, zero_point=zeros).codes.reshape(x.shape)
