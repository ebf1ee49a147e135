# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Drop-in for llm-compressor: the searches of memoryless_mse, mse, nvfp4_expanded_mse and imatrix_mse, and min/max.

    import qobs.llmcompressor
    qobs.llmcompressor.install()
    oneshot(...)                     # the same files, sooner
    print(qobs.dropin_calls())

Served are plain tensors on the CPU. Declined are other devices, batches of several observations in a search, torch.compile
and what qobs has no arithmetic for; upstream's own functions run then. Results are equal to the bit in float32 (but for
exact ties of two candidates) and in bfloat16 and float16. Read in llmcompressor 0.14: observers/mse_quant.py,
observers/min_max.py, observers/imatrix.py."""
from __future__ import annotations

from typing import Any

from ._dropin import Dropin, eligible
from ._functions import minmax
from ._functions import search as _search

_dropin = Dropin("llmcompressor", "0.14")
_SMALL = 1 << 16  # below so many elements torch is as fast


def install(*, strict: bool = False) -> None:
    """Replaces the functions. A second call changes strict only. strict: a call that fails in qobs raises."""
    import llmcompressor
    from llmcompressor.observers import imatrix, min_max, mse, mse_quant  # noqa: F401
    if _dropin.begin(strict, llmcompressor.__version__):
        _dropin.replace(mse_quant, "_grid_search_mse", "llmcompressor.search", _grid_search_mse)
        _dropin.replace(imatrix, "_grid_search", "llmcompressor.imatrix_search", _grid_search)
        _dropin.replace(min_max, "_get_min_max", "llmcompressor.minmax", _get_min_max)


def uninstall() -> None:
    """Puts upstream's functions back."""
    _dropin.uninstall()


def _get_min_max(observed: Any) -> Any:
    """observed: (observations, *shape of qparams, group)."""
    if not eligible(observed) or observed.numel() < _SMALL or observed.dim() < 3:
        return NotImplemented
    found = minmax(observed.detach(), tuple(range(1, observed.dim() - 1)), nonfinite="propagate")
    return found.min, found.max


def _format_of(args: Any) -> dict[str, Any] | None:
    """The settings of a scheme's number format; None: qobs has no such search."""
    kind = getattr(args.type, "value", args.type)
    settings = {"num_bits": args.num_bits, "type": kind, "symmetric": args.symmetric}
    strategy = getattr(args.strategy, "value", args.strategy)
    if args.scale_dtype is not None and strategy != "tensor_group":  # a search under a global scale has none
        if str(args.scale_dtype) != "torch.uint8":
            return None
        settings["scale_dtype"] = "uint8"
    return settings


def _grid_search_mse(observed: Any, args: Any, token_args: Any, maxshrink: float, patience: int, grid: float,
                     norm: float, triton_error_buffer: float, expand: float = 1.0) -> Any:
    """Every qparam of one observation is a row: (1, *shape, group) is a matrix of groups."""
    settings = _format_of(args) if eligible(observed) and observed.dim() >= 3 else None
    if settings is None or observed.shape[0] != 1 or observed.dtype.itemsize > 4:
        return NotImplemented
    rows = observed.detach().reshape(-1, observed.shape[-1])
    preset = "llmc.memoryless_mse" if expand == 1 else "llmc.nvfp4_expanded_mse"
    if expand != 1:
        settings["expand"] = expand
    found = _search(rows, preset, strategy="channel", base_name="weight", maxshrink=maxshrink, patience=patience,
                    grid=grid, norm=norm, nonfinite="refuse", **settings)
    shape = observed.shape[1:-1]
    return found.min.reshape(shape), found.max.reshape(shape)


def _grid_search(observed: Any, args: Any, maxshrink: float, patience: int, grid: int, norm: float,
                 expand: float = 1.0, importance_weights: Any = None) -> Any:
    """The search of imatrix_mse; importance belongs to columns, so that the groups of a row lie side by side."""
    settings = _format_of(args) if eligible(observed) and observed.dim() >= 3 else None
    native = str(observed.dtype) in ("torch.bfloat16", "torch.float16")
    if settings is None or observed.shape[0] != 1 or expand != 1 or (native and norm not in (1, 2, 3)) or \
            observed.dtype.itemsize > 4 or observed.dim() > 4:
        return NotImplemented
    values = observed.detach()
    rows, group = values.shape[1], values.shape[-1]
    columns = values.shape[2] * group if values.dim() == 4 else group
    importance = None
    if importance_weights is not None:
        weights = importance_weights.detach().float()
        if weights.dim() != values.dim() or weights.numel() not in (columns, values.numel()):
            return NotImplemented
        importance = weights.reshape(-1, columns)[0].contiguous()
        if weights.numel() != columns and not (weights.reshape(-1, columns) == importance).all():
            return NotImplemented
    if values.dim() == 4:
        settings |= {"strategy": "group", "group_size": group}
    else:
        settings |= {"strategy": "channel"}
    found = _search(values.reshape(rows, columns), "llmc.imatrix_mse", importance=importance, base_name="weight",
                    maxshrink=maxshrink, patience=patience, grid=grid, norm=norm, nonfinite="refuse", **settings)
    shape = values.shape[1:-1]
    return found.min.reshape(shape), found.max.reshape(shape)
