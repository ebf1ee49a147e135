# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The prepared quantizer: a configuration resolved once, for activations and KV caches while a model runs."""
from __future__ import annotations

import math
import weakref
from ctypes import byref, sizeof
from typing import Any, NamedTuple

from . import _library as c
from ._arguments import flag, integer
from ._functions import Config, address_of, one
from ._library import call, create, lib
from ._tensor import NAMES, SIZES, Array, View, check_apart, output, view

_CODES = {name: code for code, name in NAMES.items()}


class Quantized(NamedTuple):
    """Codes, scales and zero points, in the framework of the input. zero_point is None for symmetric configurations.

    codes: int8 for integers, float8_e4m3fn (uint8 where numpy has none), uint8 for fp4 and for packed codes; the dtype
    of the input if dequantized. scale has one row for each row of the input, or for each block of rows."""

    codes: Array
    scale: Array
    zero_point: Array | None


def _dtype(dtype: Any, name: str) -> int:
    if isinstance(dtype, str):
        word: Any = dtype
    else:  # np.float32, np.dtype("float32"), torch.float32
        word = getattr(dtype, "__name__", None) or getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    code = _CODES.get(word) if isinstance(word, str) else None
    if code is None:
        raise c.InvalidArgumentError(f"{name}: is {dtype!r:.60}, allowed are float32, bfloat16, float16, float64")
    return code


class Quantizer:
    """Quantizes matrices of one dtype and number of columns; any number of threads may call it at the same time.

    config: a preset and settings. Strategy channel has a scale for each row (a token, if rows are tokens), group one
    for each group of columns in a row. dtype: of the inputs, such as "bfloat16" or torch.bfloat16. columns: the length
    of their last dimension. dynamic: scales are those of each input, which an llmc preset without a search finds in one
    pass; else they are given. packed: two codes of 4 bits in a byte. dequantized: numbers in place of codes.
    scale_dtype, zero_point_dtype: of given ones; None: those of the configuration.
    Quantizers can be copied and pickled. Errors: InvalidArgumentError, UnsupportedError. The bits are those of
    qparams_from_tensor and of quantize of compressed-tensors."""

    __slots__ = ("__weakref__", "_handle", "_made", "_layouts", "_columns", "_dtype", "_dynamic")

    def __init__(self, config: str, *, dtype: Any, columns: int, dynamic: bool = True, packed: bool = False,
                 dequantized: bool = False, scale_dtype: Any = None, zero_point_dtype: Any = None, **settings: Any):
        setup = Config(config, settings)
        self._dtype, self._dynamic = _dtype(dtype, "dtype"), flag(dynamic, "dynamic")
        self._columns = integer(columns, "columns", 1, 1 << 40)
        args = c.QuantizerArgs(sizeof(c.QuantizerArgs), setup.handle, None, self._dtype, self._columns, self._dynamic,
                               flag(packed, "packed"), flag(dequantized, "dequantized"),
                               0 if scale_dtype is None else _dtype(scale_dtype, "scale_dtype"),
                               0 if zero_point_dtype is None else _dtype(zero_point_dtype, "zero_point_dtype"),
                               c.runtime)
        self._handle = create(lib.quantizer_create, byref(args))
        weakref.finalize(self, lib.quantizer_destroy, self._handle).atexit = False
        self._layouts: dict[int, c.QuantizedLayout] = {}
        self._made = (setup.text(), NAMES[args.dtype], args.columns, bool(args.dynamic), bool(args.packed),
                      bool(args.dequantized), NAMES.get(args.scale_dtype), NAMES.get(args.zero_point_dtype))

    def __reduce__(self) -> tuple:
        return _made_again, (type(self), self._made), getattr(self, "__dict__", None)

    def _layout(self, rows: int) -> c.QuantizedLayout:
        found = self._layouts.get(rows)
        if found is None:
            found = c.QuantizedLayout(sizeof(c.QuantizedLayout))
            call(lib.quantizer_layout, self._handle, rows, byref(found))
            if len(self._layouts) >= 256:
                self._layouts = {}
            self._layouts[rows] = found
        return found

    def _rows(self, value: View) -> tuple[int, int]:
        """Rows of an input, and bytes from row to row; 0: no gaps."""
        if value.dtype != self._dtype or not value.shape or value.shape[-1] != self._columns:
            raise c.InvalidArgumentError(f"x: is {NAMES[value.dtype]} of shape {list(value.shape)}, the quantizer "
                                         f"takes {NAMES[self._dtype]} with {self._columns} columns")
        rows = math.prod(value.shape[:-1])
        if value.strides is None:
            return rows, 0
        *outer, inner = value.strides
        size = SIZES[self._dtype]
        if (inner != size and self._columns > 1) or len(outer) != 1 or (outer[0] < self._columns * size and rows > 1):
            raise c.InvalidArgumentError("x: is neither contiguous nor a matrix of contiguous rows; copy it first")
        return rows, outer[0]

    def __call__(self, x: Any, *, codes: Any = None, scale: Any = None, zero_point: Any = None,
                 global_scale: Any = None) -> Quantized:
        """Quantizes x of shape (..., columns). codes, and scale and zero_point if dynamic: arrays that receive results:
        writable, contiguous, of the dtype and the number of elements of new ones, apart from x and from each other;
        None: new ones. If not dynamic, scale and zero_point are those to quantize by, in C order. global_scale: a
        number above 0, with strategy tensor_group.
        Errors: InvalidArgumentError, NonfiniteError (the message names row and column)."""
        value = view(x)
        rows, stride = self._rows(value)
        layout = self._layout(rows)
        factor = one(global_scale, "global_scale")
        framework = value.framework
        outputs: dict[str, View] = {}
        inputs = {"x": value}

        def array(given: Any, name: str, shape: tuple, dtype: int, is_output: bool) -> tuple:
            if given is None:
                return framework.empty(shape, dtype)
            if is_output:
                own = outputs[name] = output(given, name, shape, dtype)
            else:
                own = inputs[name] = _given(given, name, shape, dtype)
            return own.tensor.data, lambda: given

        qparams = (layout.qparam_rows, layout.qparam_columns)
        kind = layout.codes_dtype
        if kind in (c.F8_E4M3, c.U8) and kind not in framework.dtypes_of_codes:
            kind = c.U8 if c.U8 in framework.dtypes_of_codes else c.I8
        out, codes_of = array(codes, "codes", (*value.shape[:-1], layout.row_size // SIZES[kind]), kind, True)
        if not self._dynamic and scale is None:
            raise c.InvalidArgumentError("scale: is None, but the quantizer is not dynamic")
        scales, scale_of = array(scale, "scale", qparams, layout.scale_dtype, self._dynamic)
        zeros, zero_of = None, lambda: None
        if zero_point is not None or (self._dynamic and layout.has_zero_point):
            zeros, zero_of = array(zero_point, "zero_point", qparams, layout.zero_point_dtype, self._dynamic)
        if outputs:
            check_apart(outputs, inputs)
        args = c.QuantizerRunArgs(sizeof(c.QuantizerRunArgs), rows, value.tensor.data, stride, out, 0,
                                  layout.codes_size,
                                  scales, layout.scale_size, zeros, layout.zero_point_size if zeros else 0,
                                  address_of(factor), None, None, None)
        call(lib.quantizer_run, self._handle, byref(args), value="x")
        return Quantized(codes_of(), scale_of(), zero_of())


def _given(x: Any, name: str, shape: tuple, dtype: int) -> View:
    """A scale or zero point of the caller's."""
    own = view(x, name)
    if not own.contiguous() or own.count != math.prod(shape) or own.dtype != dtype:
        raise c.InvalidArgumentError(f"{name}: is {NAMES[own.dtype]} of shape {list(own.shape)}, contiguous "
                                     f"{NAMES[dtype]} of shape {list(shape)} is expected")
    return own


def _made_again(cls: type[Quantizer], made: tuple) -> Quantizer:
    """A quantizer of these arguments; cls may be a subclass whose own take others."""
    config, dtype, columns, dynamic, packed, dequantized, scale_dtype, zero_point_dtype = made
    quantizer = cls.__new__(cls)
    Quantizer.__init__(quantizer, config, dtype=dtype, columns=columns, dynamic=dynamic, packed=packed,
                       dequantized=dequantized, scale_dtype=scale_dtype, zero_point_dtype=zero_point_dtype)
    return quantizer
