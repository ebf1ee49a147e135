# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Minimum and maximum of a tensor. Drop-ins call this for small tensors, so that structures are used again."""
from __future__ import annotations

import functools
from ctypes import addressof, byref, c_int, sizeof
from math import prod
from typing import Any, NamedTuple

from . import _library as c
from . import _tensor
from ._arguments import wrong_kind
from ._functions import Config, layout_of, optional
from ._library import call, lib
from ._tensor import SIZES, Array, View, view


class MinMax(NamedTuple):
    """Minima and maxima with the dtype of the tensor."""

    min: Array
    max: Array


class _Frame:
    """The structures of one call, for one thread at a time."""

    __slots__ = ("args", "error", "held", "references", "tensor")

    def __init__(self) -> None:
        self.error, self.tensor = c.ErrorText(), c.Tensor(sizeof(c.Tensor))
        self.args = c.MinmaxArgs(sizeof(c.MinmaxArgs), None, addressof(self.tensor))
        self.references = byref(self.args), byref(self.error)
        self.held: Any = None  # the arrays that tensor points to


_frames: list[_Frame] = []
_minmax = lib.minmax
_new = tuple.__new__


@functools.lru_cache(None)
def _policy(nonfinite: str) -> Config | None:
    return None if nonfinite == "refuse" else Config("llmc.memoryless_minmax strategy=tensor", {"nonfinite": nonfinite})


@functools.lru_cache(4096)
def _kept(axes: Any, n: int) -> tuple[tuple[int, ...], Any]:
    """Kept axes of n dimensions in order, and as an array."""
    for a in (axes := (axes,) if isinstance(axes, int) else axes):
        if not -n <= a < n:
            raise c.InvalidArgumentError(f"axes: has {a}, x has {n} dimensions")
    axes = tuple(sorted({a % n for a in axes}))
    return axes, (c_int * max(len(axes), 1))(*axes)


_NONE = _kept((), 0)


def _hashable(axes: Any) -> Any:
    """Axes as _kept takes them, which checks that they are integers."""
    if hasattr(axes, "__index__"):
        return axes.__index__()
    if not isinstance(axes, (list, tuple)):
        raise wrong_kind(axes, "axes", "an integer, a list of integers or None")
    for a in axes:
        if not hasattr(a, "__index__"):
            raise wrong_kind(axes, "axes", "a list of integers")
    return tuple(a.__index__() for a in axes)


def minmax(x: Any, axes: int | tuple[int, ...] | list[int] | None = None, *, config: str | None = None,
           nonfinite: str = "refuse", g_idx: Any = None, **settings: Any) -> MinMax:
    """Minimum and maximum of a tensor, for every index of the kept `axes` or every qparam of `config`.

    x: float32, bfloat16, float16 or float64 of any shape and strides. axes: dimensions to keep, negative ones count
    from the end; None: one range of shape (). config: a preset and settings, for its granularity; g_idx: its column
    groups, int32 or int64. nonfinite: refuse, ignore or propagate NaN and infinity.
    Returns MinMax with the dtype of x and the shape of the kept axes in the order of x, or that of the scales of
    config. Errors: NonfiniteError, InvalidArgumentError. Reproduces torch.aminmax, reduce_amax (Model-Optimizer) and
    get_current_min_max (llm-compressor)."""
    if config is not None:
        if axes is not None:
            raise c.InvalidArgumentError("axes and config: only one of them may be given")
        if nonfinite != "refuse":
            settings["nonfinite"] = nonfinite
        return _of_config(view(x), optional(g_idx, "g_idx"), Config(config, settings))
    if settings:
        raise TypeError(f"settings: {', '.join(settings)} need config")
    if not isinstance(nonfinite, str):
        raise wrong_kind(nonfinite, "nonfinite", "refuse, ignore or propagate")
    torch = _tensor._torch
    if g_idx is None and torch is not None and type(x) in torch.plain:
        return _of_torch(torch, x, axes, nonfinite)
    value = view(x)
    kept, array, shape = (*_NONE, ())
    if axes is not None:
        n = len(value.shape)
        kept, array = _kept(_hashable(axes), n)
        shape = tuple(value.shape[a] for a in kept)
        if len(kept) == n > 0:
            value = value.extended()  # the library gives one range if every dimension is kept
    setup = _policy(nonfinite)
    return _call(value, optional(g_idx, "g_idx"), shape, setup.handle if setup else None, addressof(array), len(kept))


def _of_config(value: View, groups: View | None, setup: Config) -> MinMax:
    layout = layout_of(setup, value, groups)
    return _call(value, groups, tuple(layout.shape[:layout.ndim]), setup.handle, None, 0)


def _call(value: View, groups: View | None, shape: tuple[int, ...], config: int | None, axes: int | None,
          axis_count: int) -> MinMax:
    low, done_low = value.framework.empty(shape, value.dtype)
    high, done_high = value.framework.empty(shape, value.dtype)
    args = c.MinmaxArgs(sizeof(c.MinmaxArgs), config, value.address, groups and groups.address, axes, axis_count, low,
                        high, prod(shape) * SIZES[value.dtype], None, c.runtime)
    call(lib.minmax, byref(args), value="x")
    return MinMax(done_low(), done_high())


def _of_torch(torch: Any, x: Any, axes: Any, nonfinite: str) -> MinMax:
    """The same as the end of minmax, in a third of the time."""
    try:
        x, address, code, strides = torch.readable(x)
    except _tensor.Unreadable as failure:
        raise failure.kind(f"x: {failure}") from None
    shape = x.shape
    n = len(shape)
    if axes is None:
        array, kept_count, low, size = _NONE[1], 0, torch.scalar(code), SIZES[code]
    else:
        kept, array = _kept(axes if isinstance(axes, int) else _hashable(axes), n)
        kept_count = len(kept)
        if kept_count == n > 0:
            return _of_torch(torch, x.unsqueeze(-1), kept, nonfinite)  # one range if every dimension is kept
        low = x.new_empty([shape[a] for a in kept])
        size = low.numel() * SIZES[code]
    try:
        frame = _frames.pop()
    except IndexError:
        frame = _Frame()
    high = torch.empty_like(low)
    indices = _tensor._indices.get(shape) or _tensor._index_array(shape)
    tensor, args = frame.tensor, frame.args
    tensor.data, tensor.dtype, tensor.ndim, tensor.shape = address, code, n, indices[0]
    if strides is None:
        tensor.strides, frame.held = None, indices
    else:
        steps = _tensor._index_array(strides)
        tensor.strides, frame.held = steps[0], (indices, steps)
    setup = _policy(nonfinite)
    args.config = setup and setup.handle
    args.axes, args.axis_count = addressof(array), kept_count
    args.min, args.max, args.size, args.runtime = low.data_ptr(), high.data_ptr(), size, c.runtime
    if c.status_of(_minmax, *frame.references) if c.several else _minmax(*frame.references):
        raise c.failure_of(frame.error, value="x")
    _frames.append(frame)
    return _new(MinMax, (low, high))
