# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The part of libqobs.so that the comparisons with torch and with another build need, by ctypes."""
import ctypes as c
import functools

F32, BF16, I8 = 1, 2, 5


class Tensor(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("data", c.c_void_p), ("dtype", c.c_int), ("ndim", c.c_int),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64))]


class Bins(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("count", c.c_int64), ("min", c.c_float), ("max", c.c_float),
                ("magnitude", c.c_bool), ("skip_zeros", c.c_bool)]


class Result(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char * 72), ("dtype", c.c_int), ("ndim", c.c_int),
                ("shape", c.c_int64 * 8), ("size", c.c_size_t)]


class Counts(c.Structure):
    _fields_ = [("struct_size", c.c_size_t)] + [(name, c.c_uint64) for name in
                                                ("batches", "elements", "nan", "inf", "tokens", "nonzero_tokens")]


def arguments(name, *fields):
    """Returns the class of a structure that begins with struct_size. Arguments by keyword; pointers are c_void_p."""
    def make(self, **values):
        c.Structure.__init__(self, struct_size=c.sizeof(type(self)), **values)
        self.values = values  # what pointers refer to lives as long
    kinds = [(field[0], field[1] if len(field) > 1 else c.c_void_p) for field in fields]
    return type(name, (c.Structure,), {"_fields_": [("struct_size", c.c_size_t)] + kinds, "__init__": make})


SIZE = c.c_size_t
MinmaxArgs = arguments("MinmaxArgs", ("config",), ("value",), ("g_idx",), ("axes",), ("axis_count", SIZE), ("min",),
                       ("max",),
                       ("size", SIZE), ("counts",), ("runtime",))
HistogramArgs = arguments("HistogramArgs", ("config",), ("value",), ("g_idx",), ("options",), ("counts",),
                          ("counts_size", SIZE),
                          ("first_edge",), ("last_edge",), ("edges_size", SIZE), ("totals",), ("runtime",))
SearchArgs = arguments("SearchArgs", ("config",), ("value",), ("g_idx",), ("importance",), ("importance_size", SIZE),
                       ("global_scale",), ("min",), ("max",), ("size", SIZE), ("best_step",), ("best_step_size", SIZE),
                       ("errors",),
                       ("errors_size", SIZE), ("report",), ("runtime",))
FakeQuantizeArgs = arguments("FakeQuantizeArgs", ("config",), ("format",), ("value",), ("g_idx",), ("scale",),
                             ("zero_point",),
                             ("global_scale",), ("out",), ("out_strides",), ("out_size", SIZE), ("runtime",))
QuantizerArgs = arguments("QuantizerArgs", ("config",), ("format",), ("dtype", c.c_int), ("columns", c.c_int64),
                          ("dynamic", c.c_int), ("packed", c.c_int), ("dequantized", c.c_int), ("scale_dtype", c.c_int),
                          ("zero_point_dtype", c.c_int), ("runtime",))
RunArgs = arguments("RunArgs", ("rows", c.c_int64), ("value",), ("value_stride", c.c_int64), ("codes",),
                    ("codes_stride", c.c_int64), ("codes_size", SIZE), ("scale",), ("scale_size", SIZE),
                    ("zero_point",), ("zero_point_size", SIZE), ("global_scale",), ("squared_error",), ("energy",),
                    ("counts",))
QparamBuffers = arguments("QparamBuffers", ("scale",), ("scale_size", SIZE), ("zero_point",), ("zero_point_size", SIZE),
                          ("global_scale",))
Layout = arguments("Layout", ("count", SIZE), ("scale_dtype", c.c_int), ("zero_point_dtype", c.c_int),
                   ("scale_size", SIZE),
                   ("zero_point_size", SIZE), ("shape", c.c_int64 * 8), ("ndim", c.c_int),
                   ("has_global_scale", c.c_bool))


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("message", c.c_char * 252)]


class Library:
    """Functions of the library by name. An error status raises RuntimeError."""

    def __init__(self, path, isa=None):
        """isa: the instruction set to use (the best)."""
        self.functions = c.CDLL(path)
        self.functions.qobs_isa_active.restype = c.c_char_p
        self.functions.qobs_isa_name.restype = c.c_char_p
        self.functions.qobs_config_destroy.argtypes = self.functions.qobs_observer_destroy.argtypes = [c.c_void_p]
        self.error = Error()
        if isa:
            self("qobs_isa_select", isa.encode())

    def __call__(self, name, *arguments):
        if getattr(self.functions, name)(*arguments, c.byref(self.error)) != 0:
            raise RuntimeError(f"{name}: {self.error.message.decode()}")

    def bound(self, name, *arguments):
        """Returns a call that costs little more than the function and returns its status."""
        return functools.partial(getattr(self.functions, name), *arguments, c.byref(self.error))

    def checked(self, call):
        if call() != 0:
            raise RuntimeError(self.error.message.decode())
        return call

    def active(self):
        return self.functions.qobs_isa_active().decode()

    def address(self, name):
        return c.cast(getattr(self.functions, name), c.c_void_p).value

    def size(self, observer, name):
        """Returns the bytes of an observer's result."""
        result = Result(c.sizeof(Result))
        self("qobs_observer_result_find", observer, name.encode(), c.byref(result))
        return result.size

    def count(self, config, value):
        """Returns the number of qparams of a tensor."""
        layout = Layout()
        self("qobs_config_qparam_layout", config, c.byref(value), None, c.byref(layout))
        return layout.count

    def elements(self, observer):
        """Returns the counts of an observer."""
        counts = Counts(c.sizeof(Counts))
        self("qobs_observer_counts", observer, c.byref(counts))
        return counts.elements

    def config(self, preset, settings=None):
        config = c.c_void_p()
        self("qobs_config_create", c.byref(config), preset.encode(), None)
        for key, value in (settings or {}).items():
            self("qobs_config_set", config, key.encode(), str(value).encode())
        return config

    def observer(self, preset, settings=None):
        observer = c.c_void_p()
        config = self.config(preset, settings)
        self("qobs_observer_create", c.byref(observer), config, None)
        self.functions.qobs_config_destroy(config)
        return observer


def view(address, dtype, shape):
    """Returns a view of a tensor in C order. The caller owns the memory."""
    return Tensor(c.sizeof(Tensor), address, dtype, len(shape), (c.c_int64 * len(shape))(*shape), None)
