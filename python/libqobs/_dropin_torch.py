# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Parts that the drop-ins for torch share: which tensors qobs may read, and torch's reductions."""
from __future__ import annotations

import functools
from typing import Any

from ._dropin import Declined
from ._functions import histogram
from ._minmax import minmax

_small = 1 << 16  # elements; with one range torch is as fast below
_small_axes = 1 << 12  # the same with several ranges
EXACT = 1 << 24  #: counts below are exact in float32


def serve_small() -> None:
    """Small tensors are served, too: for the tests of upstream, which have few others."""
    global _small, _small_axes
    _small = _small_axes = 1


def small(x: Any, axes: Any = None) -> bool:
    """Returns True if torch finds the range of a tensor, or its ranges for the axes that stay, as fast as qobs."""
    return bool(x.numel() < (_small if axes is None else _small_axes))


def eligible(x: Any) -> bool:
    """Returns True if qobs may read a tensor: a plain one on the CPU, and nobody watches torch's operations."""
    import torch
    return ((type(x) is torch.Tensor or type(x) is torch.nn.Parameter) and x.is_cpu and x.layout is torch.strided and
            x.dtype in _dtypes(torch) and 0 < x.dim() <= 8 and x.numel() > 0 and unwatched(torch) and
            not x.is_neg() and not (x.requires_grad and torch.is_grad_enabled()))


@functools.lru_cache(1)
def _dtypes(torch: Any) -> frozenset[Any]:
    return frozenset((torch.float32, torch.bfloat16, torch.float16, torch.float64))


def unwatched(torch: Any) -> bool:
    """Returns True if no mode, functional transformation or tracer sees torch's operations and autocast changes
    none."""
    c = torch._C
    return (c._len_torch_function_stack() == 0 and c._len_torch_dispatch_stack() == 0 and
            c._functorch.peek_interpreter_stack() is None and c._get_tracing_state() is None and
            not torch.is_autocast_enabled("cpu"))


def plain(*buffers: Any) -> bool:
    """Returns True if the buffers of a state are ordinary tensors on the CPU."""
    import torch
    return all(type(b) is torch.Tensor and b.is_cpu for b in buffers)


def ranges(x: Any, axes: Any) -> Any:
    """torch.aminmax of a tensor without its gradient, for kept axes if there are any."""
    if small(x, axes):
        raise Declined
    x = x.detach()
    if not eligible(x):
        raise Declined
    return minmax(x, axes, nonfinite="propagate")


def counts(x: Any, bins: int, low: float, high: float, **options: Any) -> Any:
    """torch.histc of an eligible float32 tensor, low below high. Counts of torch stop at 2^24: those are declined."""
    found = histogram(x, bins, (low, high), **options).counts
    if x.numel() >= EXACT and found.max() >= EXACT:
        raise Declined
    return found.float()
