# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Views of tensors of other frameworks, and results in the framework of the input.

No import of torch or numpy: an input is theirs only if they have been imported. A view holds its tensor: memory of a
temporary must live as long as the call.
"""
from __future__ import annotations

import array
import ctypes
import math
import struct
import sys
from collections.abc import Iterator
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16, \
    c_uint64, c_void_p, py_object
from typing import TYPE_CHECKING, Any, Protocol

from ._arguments import shown
from ._library import BF16, F8_E4M3, F16, F32, F64, I8, I16, I32, I64, U8, InvalidArgumentError, Tensor, lib

SIZES = {code: lib.dtype_size(code) for code in range(F32, U8 + 1)}
NAMES = {F32: "float32", BF16: "bfloat16", F16: "float16", F64: "float64", I8: "int8", I16: "int16", I32: "int32",
         I64: "int64", F8_E4M3: "float8_e4m3fn", U8: "uint8"}
_CODES = {name: code for code, name in NAMES.items()}
_SIZE = ctypes.sizeof(Tensor)
_addressof = ctypes.addressof
_char_of = ctypes.c_char.from_buffer
_indices: dict[tuple, tuple] = {}  # shape or strides -> their address, and the array that is there; never changed


class Array(Protocol):
    """A result: torch.Tensor, numpy.ndarray or, without numpy, memoryview, which has no arithmetic."""

    if TYPE_CHECKING:
        shape: Any
        dtype: Any
        ndim: int
        def item(self) -> Any: ...
        def tolist(self) -> Any: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Any]: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __array__(self, dtype: Any = None) -> Any: ...
        def __float__(self) -> float: ...
        def __add__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __getattr__(self, name: str) -> Any: ...  # what the framework has beside


class Unreadable(Exception):
    """A tensor that qobs cannot read, without the name of the argument."""

    def __init__(self, text: str, kind: type[Exception] = TypeError):
        super().__init__(text)
        self.kind = kind


def _index_array(numbers: tuple) -> tuple:
    found = _indices.get(numbers)
    if found is None:
        if len(_indices) >= 4096:  # views hold theirs
            _indices.clear()
        there = (c_int64 * max(len(numbers), 1))(*numbers)
        found = _indices[tuple(numbers)] = ctypes.addressof(there), there
    return found


class View:
    """A qobs_tensor over somebody's memory, with what keeps that memory alive."""

    __slots__ = ("tensor", "address", "dtype", "shape", "strides", "framework", "owner", "held")

    def __init__(self, owner, data, dtype, shape, strides, framework):
        indices = _indices.get(shape) or _index_array(shape)
        if strides is None:
            self.held = indices
            self.tensor = tensor = Tensor(_SIZE, data, dtype, len(shape), indices[0], None)
        else:
            steps = _index_array(strides)
            self.held = indices, steps
            self.tensor = tensor = Tensor(_SIZE, data, dtype, len(shape), indices[0], steps[0])
        self.address = _addressof(tensor)
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.framework = framework
        self.owner = owner

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def extended(self) -> View:
        """The same elements with a last dimension of length 1."""
        return View(self.owner, self.tensor.data, self.dtype, (*self.shape, 1),
                    None if self.strides is None else (*self.strides, 0), self.framework)

    def contiguous(self) -> bool:
        return self.strides is None

    def span(self) -> tuple[int, int]:
        """The addresses from its first byte to behind its last one; equal without elements."""
        first, size = self.tensor.data or 0, SIZES[self.dtype]
        if 0 in self.shape:
            return first, first
        if self.strides is None:
            return first, first + self.count * size
        steps = [(n - 1) * step for n, step in zip(self.shape, self.strides)]
        return first + sum(s for s in steps if s < 0), first + sum(s for s in steps if s > 0) + size


def _widen(raw: bytes, code: int) -> bytes:
    """Bytes of bfloat16, float16 or float8_e4m3fn as those of float32."""
    if code == BF16:
        wide = bytearray(2 * len(raw))
        high = 2 if sys.byteorder == "little" else 0
        wide[high::4], wide[high + 1::4] = raw[0::2], raw[1::2]
        return bytes(wide)
    if code == F16:
        return array.array("f", struct.unpack(f"={len(raw) // 2}e", raw)).tobytes()
    e4m3 = lib.format_find(b"fp8_e4m3")
    return array.array("f", [lib.format_decode(e4m3, c) for c in raw]).tobytes()


def _end(x, strides: tuple | None) -> int:
    """Bytes of memory from the first element of a tensor of torch to behind its last one."""
    count = x.numel()
    if strides is None or count == 0:
        return count * x.element_size()
    return sum((n - 1) * step for n, step in zip(x.shape, strides)) + x.element_size()


class Torch:
    """Tensors of torch."""

    name = "torch"

    def __init__(self, module):
        self.module = module
        self.tensor = module.Tensor
        self._empty = module.empty
        names = {name: getattr(module, name, None) for name in _CODES}
        self.codes = {dtype: _CODES[name] for name, dtype in names.items() if dtype is not None}
        self.dtypes = {code: dtype for dtype, code in self.codes.items()}
        self.dtypes_of_codes = self.dtypes.keys() & {I8, U8, F8_E4M3}
        self.plain = (module.Tensor, module.nn.Parameter)
        self._shape = module._C.TensorBase.shape.__get__  # a subclass may have a shape of its own
        self.empty_like = module.empty_like
        self._scalars = {}

    def readable(self, x) -> tuple:
        """The tensor, its address, its dtype and its strides in bytes, None without gaps. TypeError if qobs cannot read
        it; InvalidArgumentError if its memory was given back."""
        code = self.codes.get(x.dtype)
        if code is None:
            raise Unreadable(f"is a torch tensor of dtype {x.dtype}; the dtypes are {', '.join(_CODES)}")
        if not x.is_cpu:
            raise Unreadable(f"is a torch tensor on device {x.device}; only memory of the CPU can be observed")
        if x.layout is not self.module.strided:
            raise Unreadable(f"is a torch tensor of layout {x.layout}; only torch.strided can be observed")
        if x.is_neg():
            x = x.resolve_neg()
        strides = None
        if not x.is_contiguous():
            size = SIZES[code]
            strides = tuple([s * size for s in x.stride()])
        address, storage = x.data_ptr(), x.untyped_storage()
        size = storage.nbytes()
        if _end(x, strides) > size - (address - storage.data_ptr() if size else 0):
            raise Unreadable(f"its torch storage has {size} bytes, less than the tensor, as of a "
                                       "sharded parameter; gather it first", InvalidArgumentError)
        return x, address, code, strides

    def view(self, x) -> View:
        x, address, code, strides = self.readable(x)
        shape = x.shape if type(x) in self.plain else self._shape(x)
        return View(x, address, code, shape, strides, self)

    def why_not_writable(self, x) -> str | None:
        return "is a view that negates its memory" if x.is_neg() else None

    def scalar(self, code):
        """A new tensor of shape (). empty_like takes half the time of empty."""
        model = self._scalars.get(code)
        if model is None:
            model = self._empty((), dtype=self.dtypes[code])
            if type(model) is not self.tensor or not model.is_cpu:
                return model  # a mode makes other tensors, for now
            self._scalars[code] = model
        return self.empty_like(model)

    def empty(self, shape, code):
        dtype = self.dtypes.get(code)
        if dtype is None:  # a torch without this dtype
            return _widened(self, shape, code)
        out = self._empty(shape, dtype=dtype)
        return out.data_ptr(), lambda: out

    def wrap(self, raw: bytes, shape):
        return self.module.frombuffer(bytearray(raw), dtype=self.module.float32).reshape(shape)

    def edges(self, first: float, last: float, count: int):
        return self.module.linspace(first, last, count, dtype=self.module.float64).float()


class Numpy:
    """Arrays of numpy, with the dtypes of ml_dtypes if that is installed."""

    name = "numpy"

    def __init__(self, module):
        self.module = module
        self.array = module.ndarray
        self._empty = module.empty
        self.codes = {}
        self.dtypes_of_codes = {I8, U8}
        self.dtypes = {_CODES[name]: module.dtype(name) for name in _CODES if name not in ("bfloat16", "float8_e4m3fn")}

    def _code(self, dtype):
        code = _CODES.get(dtype.name) if dtype.isnative else None
        if code is None:
            raise Unreadable(f"is a numpy array of dtype {dtype.str if not dtype.isnative else dtype.name}; the dtypes "
                            f"are {', '.join(_CODES)} in the byte order of the machine")
        self.codes[dtype] = code
        self.dtypes.setdefault(code, dtype)
        return code

    def view(self, x) -> View:
        if type(x) is not self.array:
            x = self.array.view(x, self.array)  # a subclass may have a shape and a dtype of its own
        code = self.codes.get(x.dtype)
        if code is None:
            code = self._code(x.dtype)
        about = x.__array_interface__
        return View(x, about["data"][0], code, x.shape, about["strides"], self)

    def why_not_writable(self, x) -> str | None:
        return None if x.flags.writeable else "is read-only"

    def _dtype(self, code):
        try:
            import ml_dtypes
        except ImportError:
            return None
        dtype = self.dtypes[code] = self.module.dtype(getattr(ml_dtypes, NAMES[code]))
        return dtype

    def empty(self, shape, code):
        dtype = self.dtypes.get(code) or self._dtype(code)
        if dtype is None:
            return _widened(self, shape, code)
        if code == BF16 or code == F8_E4M3 or 0 in shape:
            out = self.module.empty(shape, dtype)
            return out.__array_interface__["data"][0], lambda: out
        out = self._empty(shape, dtype)
        return _addressof(_char_of(out)), lambda: out  # a third of the time

    def wrap(self, raw: bytes, shape):
        return self.module.frombuffer(bytearray(raw), self.module.float32).reshape(shape)

    def edges(self, first: float, last: float, count: int):
        return self.module.linspace(first, last, count).astype(self.module.float32)


class Buffer:
    """Memoryviews, for inputs that are neither torch's nor numpy's on a machine without numpy. Numbers of 16 and 8
    bits that are not integers become float32."""

    name = "buffer"
    dtypes_of_codes = frozenset({I8})
    _formats = {F32: "f", F64: "d", I8: "b", I16: "h", I32: "i", I64: "q"}

    def empty(self, shape, code):
        if code not in self._formats:
            return _widened(self, shape, code)
        raw = bytearray(math.prod(shape) * SIZES[code])
        return _address(raw), lambda: self._shaped(raw, shape, self._formats[code])

    @staticmethod
    def why_not_writable(x) -> str | None:
        return "is read-only" if memoryview(x).readonly else None

    @staticmethod
    def _shaped(raw, shape, letter):
        view = memoryview(raw)
        return view.cast(letter, list(shape)) if len(raw) > 0 else view.cast(letter)

    def wrap(self, raw: bytes, shape):
        return self._shaped(bytearray(raw), shape, "f")

    def edges(self, first: float, last: float, count: int):
        width = (last - first) / (count - 1)
        edges = array.array("f", [first + i * width for i in range(count)])
        edges[count - 1] = last
        return memoryview(edges)


def _address(raw: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(raw)) if raw else 0


def _widened(framework, shape, code):
    """Memory for a result whose dtype `framework` lacks, which becomes float32."""
    raw = bytearray(math.prod(shape) * SIZES[code])
    return _address(raw), lambda: framework.wrap(_widen(bytes(raw), code), shape)


class _DlTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int), ("device_id", c_int), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


def _gapless(shape: tuple, size: int) -> tuple:
    """Strides in C order without gaps, in bytes."""
    return tuple(size * math.prod(shape[d + 1:]) for d in range(len(shape)))


_DL_CPU = (1, 3)  # kDLCPU, kDLCUDAHost
_DL_CODES = {(2, 32): F32, (2, 64): F64, (2, 16): F16, (4, 16): BF16, (0, 8): I8, (0, 16): I16, (0, 32): I32,
             (0, 64): I64, (10, 8): F8_E4M3}
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = c_void_p
_capsule_pointer.argtypes = [py_object, c_char_p]


def _dlpack(x) -> View:
    device = x.__dlpack_device__()
    if int(device[0]) not in _DL_CPU:
        raise Unreadable(f"is a DLPack tensor on device {tuple(device)}; only memory of the CPU can be observed")
    capsule = x.__dlpack__()  # never consumed: its destructor releases the tensor
    t = _DlTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    code = _DL_CODES.get((t.code, t.bits)) if t.lanes == 1 else None
    if code is None:
        raise Unreadable(f"is a DLPack tensor of type code {t.code} with {t.bits} bits; the dtypes are "
                        f"{', '.join(_CODES)}")
    shape = tuple(t.shape[:t.ndim])
    strides = tuple(s * SIZES[code] for s in t.strides[:t.ndim]) if t.strides else None
    if strides is not None and strides == _gapless(shape, SIZES[code]):
        strides = None
    return View((x, capsule), (t.data or 0) + t.byte_offset, code, shape, strides, default_framework())


class _PyBuffer(Structure):
    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int),
                ("ndim", c_int), ("format", c_char_p), ("shape", POINTER(c_ssize_t)), ("strides", POINTER(c_ssize_t)),
                ("suboffsets", POINTER(c_ssize_t)), ("internal", c_void_p)]


_FULL_RO = 0x011C  # PyBUF_FULL_RO: indirect buffers, strides, format, read-only ones too
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [py_object, POINTER(_PyBuffer), c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [POINTER(_PyBuffer)]
_release_buffer.restype = None


def _buffer(x) -> View:
    with memoryview(x) as m:
        letter, itemsize, shape = m.format.lstrip("@="), m.itemsize, m.shape
        strides = None if m.c_contiguous else m.strides
        if m.suboffsets:
            raise Unreadable("is a buffer with suboffsets; its elements do not lie in one piece of memory")
    code = {("f", 4): F32, ("d", 8): F64, ("e", 2): F16, ("b", 1): I8, ("h", 2): I16, ("i", 4): I32, ("l", 4): I32,
            ("l", 8): I64, ("q", 8): I64}.get((letter, itemsize))
    if code is None:
        raise Unreadable(f"is a buffer of format {letter!r}; the formats are f, d, e, b, h, i, l and q")
    held = _PyBuffer()
    _get_buffer(x, ctypes.byref(held), _FULL_RO)  # raises BufferError
    address = held.buf
    _release_buffer(ctypes.byref(held))
    return View((x, memoryview(x)), address, code, shape, strides, default_framework())


_torch = _numpy = None
_buffers = Buffer()


def _find_torch():
    """Torch, if it has been imported completely."""
    global _torch
    module = sys.modules.get("torch")
    if _torch is None and hasattr(module, "Tensor") and hasattr(module, "strided"):
        _torch = Torch(module)
    return _torch


def _find_numpy():
    global _numpy
    module = sys.modules.get("numpy")
    if _numpy is None and hasattr(module, "ndarray") and hasattr(module, "linspace"):
        _numpy = Numpy(module)
    return _numpy


def default_framework():
    """The framework of results if the input's has no arrays: numpy if it is installed, else memoryviews."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return _buffers
    return _find_numpy()


def framework_named(name):
    """The framework of results of this name; the default one if it is not there or name is None."""
    if name == "torch":
        try:
            import torch  # noqa: F401
        except ImportError:
            return default_framework()
        return _find_torch()
    return _buffers if name == "buffer" else default_framework()


def view(x, name: str = "x") -> View:
    """A view of a tensor: torch (CPU, strided), numpy, DLPack (CPU) or a buffer. TypeError for anything else."""
    torch = _torch or _find_torch()
    try:
        if torch is not None and isinstance(x, torch.tensor):
            return torch.view(x)
        numpy = _numpy or _find_numpy()
        if numpy is not None:
            if isinstance(x, numpy.array):
                return numpy.view(x)
            if isinstance(x, numpy.module.generic):
                return numpy.view(numpy.module.asarray(x))
        if hasattr(x, "__dlpack__"):
            return _dlpack(x)
        return _buffer(x)
    except Unreadable as failure:
        raise failure.kind(f"{name}: {failure}") from None
    except (TypeError, BufferError):
        raise TypeError(f"{name}: is {shown(x)}, a tensor is expected: torch.Tensor, numpy.ndarray, an object with "
                        "__dlpack__ or a buffer") from None


def output(given, name: str, shape: tuple, dtype: int) -> View:
    """A view of an array that receives results: contiguous, of this dtype and this many elements; codes of one byte may
    be of any dtype of one byte. Errors: InvalidArgumentError."""
    expected = f"contiguous {NAMES[dtype]} of shape {list(shape)}"
    torch, numpy = _torch or _find_torch(), _numpy or _find_numpy()
    if torch is not None and isinstance(given, torch.tensor):
        framework, why = torch, torch.why_not_writable(given)
    elif numpy is not None and isinstance(given, numpy.array):
        framework, why = numpy, numpy.why_not_writable(given)
    else:
        framework = _buffers
        try:
            why = _buffers.why_not_writable(given)
        except (TypeError, ValueError, BufferError):
            why = f"is of class {type(given).__name__}, which results cannot be written to"
    if why is not None:
        raise InvalidArgumentError(f"{name}: {why}, a writable array, {expected}, is expected")
    try:
        own = _buffer(given) if framework is _buffers else framework.view(given)
    except Unreadable as failure:
        raise InvalidArgumentError(f"{name}: {failure}; {expected} is expected") from None
    if not own.contiguous() or own.count != math.prod(shape) or \
            own.dtype != dtype and not SIZES[own.dtype] == SIZES[dtype] == 1:
        gaps = "" if own.contiguous() else " with gaps"
        raise InvalidArgumentError(f"{name}: is {NAMES[own.dtype]} of shape {list(own.shape)}{gaps}, {expected} is "
                                   "expected")
    return own


def check_apart(outputs: dict[str, View], inputs: dict[str, View]) -> None:
    """Errors: InvalidArgumentError if an output lies in memory of an input or of another output."""
    seen = {name: x.span() for name, x in inputs.items()}
    for name, x in outputs.items():
        first, end = x.span()
        for other, (other_first, other_end) in seen.items():
            if first < other_end and other_first < end:
                raise InvalidArgumentError(f"{name}: overlaps {other} in memory, an array of its own is expected")
        seen[name] = first, end
