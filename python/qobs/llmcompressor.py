# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Drop-in for llm-compressor: GPTQ, the searches of memoryless_mse, mse, nvfp4_expanded_mse and imatrix_mse, and min/max.

    import qobs.llmcompressor
    qobs.llmcompressor.install()
    oneshot(...)                     # the same files, sooner
    print(qobs.dropin_calls())

docs/dropins.md lists what is served, what is declined and what differs. Read in llmcompressor 0.14:
observers/mse_quant.py, observers/min_max.py, observers/imatrix.py, modifiers/gptq/gptq_quantize.py. Functions with a
registry of back ends, ImplBackend of compressed-tensors, get one more; CT_ENFORCE_EAGER switches those off."""
from __future__ import annotations

from typing import Any

from ._dropin import Dropin
from ._dropin_torch import eligible, small
from ._minmax import minmax
from ._functions import gptq_block
from ._functions import search as _search

_dropin = Dropin("llmcompressor", "0.14")


def install(*, strict: bool = False) -> None:
    """Replaces the functions. A second call changes strict only. strict: a call that fails in qobs raises."""
    import llmcompressor
    from compressed_tensors.utils.impl_backend import ImplBackend
    from llmcompressor.modifiers.gptq import gptq_quantize  # noqa: F401
    from llmcompressor.observers import imatrix, min_max, mse, mse_quant  # noqa: F401
    if _dropin.begin(strict, llmcompressor.__version__):
        _dropin.register(ImplBackend, "gptq_block_update", "llmcompressor.gptq", _gptq_block_update, eligible)
        _dropin.register(ImplBackend, "_grid_search_mse", "llmcompressor.search", _grid_search_mse, eligible)
        _dropin.replace(imatrix, "_grid_search", "llmcompressor.imatrix_search", _grid_search)
        _dropin.replace(min_max, "_get_min_max", "llmcompressor.minmax", _get_min_max)


def uninstall() -> None:
    """Puts upstream's functions back."""
    _dropin.uninstall()


def installed() -> bool:
    """Returns True if the functions are replaced."""
    return _dropin.installed


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
    """W1: (batch, rows, columns) in float32, and the three results beside it. Everything between the blocks, the products
    of matrices, stays torch's."""
    from llmcompressor.modifiers.gptq.helpers import column_scale_window
    columns = W1.shape[-1]
    if W1.dim() != 3 or columns > 1024 or \
            any(str(x.dtype) != "torch.float32" or not x.is_contiguous() for x in (W1, Q1, Err1, losses1)):
        return NotImplemented
    scales, zeros = column_scale_window(scale, zero_point, global_scale, g_idx, quant_args, num_rows=W1.shape[-2], i1=i1,
                                        i2=i1 + columns)
    if scales.dtype.itemsize > 4:
        return NotImplemented
    for i in range(W1.shape[0]):
        gptq_block(W1[i], Hinv1[i].contiguous(), Q1[i], Err1[i], losses1[i], "llmc.memoryless_minmax", scales[i],
                   None if zeros is None else zeros[i], num_bits=quant_args.num_bits, strategy="channel",
                   type=getattr(quant_args.type, "value", quant_args.type), symmetric=quant_args.symmetric)
    return None
