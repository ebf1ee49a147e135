# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Arrays as blocks of the types of GGUF files, and back. The bytes are ggml's. Experimental: it may change before
1.0."""
from __future__ import annotations

import math
from ctypes import byref, sizeof
from typing import Any, NamedTuple

from . import _library as c
from ._arguments import encoded
from ._library import call, lib
from ._tensor import NAMES, SIZES, Array, View, view


class Type(NamedTuple):
    """A type. Rows of an array are whole blocks."""

    name: str
    number: int  #: in files
    block_elements: int
    block_bytes: int
    uses_importance: bool  #: importance changes the bytes of the search "ggml"
    made: bool  #: by quantize


def _type(name: Any) -> Type:
    found = c.GgufType(sizeof(c.GgufType))
    call(lib.gguf_describe_type, encoded(name, "type"), byref(found), name="type")
    return Type(found.name.decode(), found.number, found.block_elements, found.block_size,
                bool(found.uses_importance), bool(found.made))


def types() -> tuple[Type, ...]:
    """The types that quantize makes. It refuses those of ggml whose grids are searched (IQ1, IQ2, IQ3)."""
    made, i = [], 0
    while (name := lib.gguf_type_name(i)) is not None:
        made.append(_type(name.decode()))
        i += 1
    return tuple(t for t in made if t.made)


def _contiguous(x: Any, name: str) -> View:
    found = view(x, name)
    if not found.shape or not found.contiguous():
        fault = "not contiguous; copy it first" if found.shape else "a single number"
        raise c.InvalidArgumentError(f"{name}: is {fault}")
    return found


def quantize(array: Any, type: str, importance: Any = None, search: str = "ggml", hessian: Any = None,
             tokens: int = 0) -> Array:
    """Blocks of an array of shape (..., columns), float32, bfloat16 or float16, as uint8 of shape
    (..., bytes of a row). type: a name such as "Q4_K". importance: float32, a number from 0 on for each column, such as
    the mean square of its activations; with the search "ggml" types that do not use it ignore it.
    search: "ggml" makes the bytes of ggml. "optimal" lowers the sum of importance * (element - number)**2 of each
    block, without importance the sum of squares, for every type but F32, F16 and BF16; it takes longer (docs/gguf.md).
    hessian: the mean of x x^T over the inputs x of the array as a matrix, float64 or float32 of shape (blocks, n, n),
    as Calibration.hessian() has it; n: all columns, or blocks of them. Codes are then rounded by descent, so that the
    error of the outputs is small, with the scales of the search.
    tokens: that many inputs x. The fewer they are, the less the products of two columns count; 0 and 1: they count in full.
    Errors: InvalidArgumentError; UnsupportedError for types of grids; NonfiniteError for NaN, infinity and numbers
    whose scale is beyond float16."""
    value, of = _contiguous(array, "array"), _type(type)
    columns, weights = value.shape[-1], None
    if of.made and columns % of.block_elements:
        raise c.InvalidArgumentError(f"array: has {columns} columns, {of.name} needs a multiple of {of.block_elements}")
    if importance is not None:
        weights = _contiguous(importance, "importance")
        if weights.dtype != c.F32 or weights.shape != (columns,):
            raise c.InvalidArgumentError(f"importance: is {NAMES[weights.dtype]} of shape {list(weights.shape)}, "
                                         f"float32 of shape [{columns}] is expected")
    products = None if hessian is None else view(hessian, "hessian")
    rows, row = math.prod(value.shape[:-1]), columns // of.block_elements * of.block_bytes
    dtype = c.U8 if c.U8 in value.framework.dtypes_of_codes else c.I8
    out, result = value.framework.empty((*value.shape[:-1], row), dtype)
    args = c.GgufQuantizeArgs(sizeof(c.GgufQuantizeArgs), of.name.encode(), value.dtype, rows, columns,
                              value.tensor.data, weights.tensor.data if weights else None, out, rows * row, c.runtime,
                              encoded(search, "search"), products.address if products else None,
                              tokens, 0, None)
    call(lib.gguf_quantize, byref(args), value="array", dtype="array", hessian_count="tokens")
    return result()


def dequantize(blocks: Any, type: str) -> Array:
    """The float32 of shape (..., columns) that blocks of quantize stand for: uint8 of shape (..., bytes of a row).
    Errors: InvalidArgumentError, UnsupportedError."""
    value, of = _contiguous(blocks, "blocks"), _type(type)
    row = value.shape[-1]
    if value.dtype not in (c.U8, c.I8) or row % of.block_bytes:
        raise c.InvalidArgumentError(f"blocks: is {NAMES[value.dtype]} with rows of {row}, {of.name} needs uint8 and a "
                                     f"multiple of {of.block_bytes}")
    rows, columns = math.prod(value.shape[:-1]), row // of.block_bytes * of.block_elements
    out, result = value.framework.empty((*value.shape[:-1], columns), c.F32)
    args = c.GgufDequantizeArgs(sizeof(c.GgufDequantizeArgs), of.name.encode(), rows, columns, value.tensor.data,
                                rows * row, out, rows * columns * SIZES[c.F32], c.runtime)
    call(lib.gguf_dequantize, byref(args))
    return result()
