# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The C library: its structures, functions and errors. No other file knows the ABI.

Names are those of the headers in include/qobs without the prefix `qobs_`. ctypes releases the GIL in every call.
Pointers within structures are addresses: ctypes takes several times as long to make typed ones. Whoever fills them
keeps what they point to.
"""
from __future__ import annotations

import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64,
                    c_size_t, c_uint32, c_uint64, c_void_p)
from typing import TYPE_CHECKING, Any

from ._signals import Held
from ._suggest import suggestion

ABI = (0, 2)  # each 0.MINOR may change structures: docs/versions.md
MAX_NDIM = 8
PLAN_MAX_NDIM = MAX_NDIM + 3
SETTING_VALUE = 64
RESULT_NAME = 72

(OK, INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY, NONFINITE, NO_DATA, NO_RESULT, SYSTEM, CANCELLED,
 FINDINGS) = range(0, -10, -1)
F32, BF16, F16, F64, I8, I16, I32, I64, F8_E4M3, U8 = range(1, 11)
WORD, BOOL, INTEGER, REAL, AXES, PAIR, OWN_NAME = range(1, 8)


class Error(Exception):
    """A call of the C library has failed; nothing has changed. The text is the library's message, which names the
    argument, its value and what is allowed. `status` is the negative qobs_status."""

    status = 0


class InvalidArgumentError(Error, ValueError):
    """An argument or setting is wrong, or two of them contradict each other."""

    status = INVALID_ARGUMENT


class UnsupportedError(Error, NotImplementedError):
    """Valid, but not available on this machine or in this build."""

    status = UNSUPPORTED


class OutOfMemoryError(Error, MemoryError):
    """The library has got no memory."""

    status = OUT_OF_MEMORY


class NonfiniteError(Error, ValueError):
    """A tensor has NaN or infinity, and the setting nonfinite is refuse."""

    status = NONFINITE


class NoDataError(Error, LookupError):
    """Nothing has been observed for the result."""

    status = NO_DATA


class NoResultError(Error, ArithmeticError):
    """The observed ranges give no valid result; upstream raises an exception."""

    status = NO_RESULT


class SystemFailure(Error, OSError):
    """A file cannot be read or written."""

    status = SYSTEM


class Cancelled(Error):
    """The caller has stopped the call."""

    status = CANCELLED


class FindingsError(Error, ValueError):
    """The audit finds faults in what quantize or finish would write. findings: a list of them, module and finding."""

    status = FINDINGS
    findings: list[dict[str, str]] = []


class Warning(UserWarning):
    """What the program prints as a warning; the report has it, too."""


class IncompleteWarning(Warning):
    """Something that was given has no effect, or the result lacks something: the program ends with status 3."""


ERRORS = {e.status: e for e in (InvalidArgumentError, UnsupportedError, OutOfMemoryError, NonfiniteError, NoDataError,
                                NoResultError, SystemFailure, Cancelled, FindingsError)}


class ErrorText(Structure):
    _fields_ = [("status", c_int), ("message", c_char * 252)]


class Tensor(Structure):
    _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("dtype", c_int), ("ndim", c_int),
                ("shape", c_void_p), ("strides", c_void_p)]


Allocate = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
Release = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
Task = CFUNCTYPE(None, c_void_p, c_size_t)
ParallelFor = CFUNCTYPE(None, c_void_p, Task, c_void_p, c_size_t)


class Allocator(Structure):
    _fields_ = [("struct_size", c_size_t), ("allocate", Allocate), ("release", Release), ("context", c_void_p)]


class Executor(Structure):
    _fields_ = [("struct_size", c_size_t), ("threads", c_size_t), ("parallel_for", ParallelFor),
                ("context", c_void_p)]


class Runtime(Structure):
    _fields_ = [("struct_size", c_size_t), ("allocator", c_void_p), ("executor", c_void_p)]


class SettingInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("key", c_char_p), ("kind", c_int), ("min", c_double), ("max", c_double),
                ("word_count", c_size_t), ("help", c_char_p), ("default_value", c_char * SETTING_VALUE)]


class Counts(Structure):
    _fields_ = [("struct_size", c_size_t), ("batches", c_uint64), ("elements", c_uint64), ("nan", c_uint64),
                ("inf", c_uint64), ("tokens", c_uint64), ("nonzero_tokens", c_uint64), ("ignored", c_uint64)]


class SearchReport(Structure):
    _fields_ = [("struct_size", c_size_t), ("steps", c_int32), ("stop_step", c_int32), ("error_before", c_double),
                ("error", c_double), ("weighted", c_bool), ("fallback", c_char_p)]


class RangeBuffers(Structure):
    _fields_ = [("struct_size", c_size_t), ("min", c_void_p), ("max", c_void_p), ("size", c_size_t)]


class QparamBuffers(Structure):
    _fields_ = [("struct_size", c_size_t), ("scale", c_void_p), ("scale_size", c_size_t), ("zero_point", c_void_p),
                ("zero_point_size", c_size_t), ("global_scale", c_void_p)]


class HistogramState(Structure):
    _fields_ = [("struct_size", c_size_t), ("counts", c_void_p), ("bin_edges", c_void_p),
                ("min", c_float), ("max", c_float), ("batches", c_uint64)]


class QparamLayout(Structure):
    _fields_ = [("struct_size", c_size_t), ("count", c_size_t), ("scale_dtype", c_int), ("zero_point_dtype", c_int),
                ("scale_size", c_size_t), ("zero_point_size", c_size_t), ("shape", c_int64 * MAX_NDIM),
                ("ndim", c_int), ("has_global_scale", c_bool)]


class Result(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char * RESULT_NAME), ("dtype", c_int), ("ndim", c_int),
                ("shape", c_int64 * MAX_NDIM), ("size", c_size_t)]


class MinmaxArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("value", c_void_p),
                ("g_idx", c_void_p), ("axes", c_void_p), ("axis_count", c_size_t), ("min", c_void_p),
                ("max", c_void_p), ("size", c_size_t), ("counts", c_void_p), ("runtime", c_void_p)]


class HistogramOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("count", c_int64), ("min", c_float), ("max", c_float),
                ("magnitude", c_bool), ("skip_zeros", c_bool)]


class HistogramArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("value", c_void_p),
                ("g_idx", c_void_p), ("options", c_void_p), ("counts", c_void_p),
                ("counts_size", c_size_t), ("first_edge", c_void_p), ("last_edge", c_void_p),
                ("edges_size", c_size_t), ("totals", c_void_p), ("runtime", c_void_p)]


class SearchArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("value", c_void_p),
                ("g_idx", c_void_p), ("importance", c_void_p), ("importance_size", c_size_t),
                ("global_scale", c_void_p), ("min", c_void_p), ("max", c_void_p), ("size", c_size_t),
                ("best_step", c_void_p), ("best_step_size", c_size_t), ("errors", c_void_p),
                ("errors_size", c_size_t), ("report", c_void_p), ("runtime", c_void_p)]


class CalculateArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("dtype", c_int), ("count", c_size_t),
                ("min", c_void_p), ("max", c_void_p), ("size", c_size_t), ("global_scale", c_void_p),
                ("scale", c_void_p), ("scale_size", c_size_t), ("zero_point", c_void_p),
                ("zero_point_size", c_size_t), ("global_scale_dtype", c_int)]


class QuantizeArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("format", c_void_p), ("value", c_void_p),
                ("g_idx", c_void_p), ("scale", c_void_p), ("zero_point", c_void_p),
                ("global_scale", c_void_p), ("codes", c_void_p), ("codes_size", c_size_t), ("runtime", c_void_p),
                ("squared_error", c_void_p), ("energy", c_void_p), ("packed", c_int)]


class ConfigNeeds(Structure):
    _fields_ = [("struct_size", c_size_t), ("searches_range", c_bool), ("searches_scale", c_bool),
                ("importance", c_bool), ("importance_required", c_bool), ("hessian", c_bool),
                ("signed_scale", c_bool), ("global_scale", c_bool), ("one_tensor", c_bool)]


class QuantizerArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("format", c_void_p), ("dtype", c_int),
                ("columns", c_int64), ("dynamic", c_int), ("packed", c_int), ("dequantized", c_int),
                ("scale_dtype", c_int), ("zero_point_dtype", c_int), ("runtime", c_void_p)]


class QuantizedLayout(Structure):
    _fields_ = [("struct_size", c_size_t), ("row_size", c_size_t), ("codes_size", c_size_t), ("count", c_size_t),
                ("qparam_rows", c_int64), ("qparam_columns", c_int64), ("scale_dtype", c_int),
                ("zero_point_dtype", c_int), ("scale_size", c_size_t), ("zero_point_size", c_size_t),
                ("has_zero_point", c_bool), ("has_global_scale", c_bool), ("codes_dtype", c_int)]


class QuantizerRunArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("rows", c_int64), ("value", c_void_p), ("value_stride", c_int64),
                ("codes", c_void_p), ("codes_stride", c_int64), ("codes_size", c_size_t), ("scale", c_void_p),
                ("scale_size", c_size_t), ("zero_point", c_void_p), ("zero_point_size", c_size_t),
                ("global_scale", c_void_p), ("squared_error", c_void_p), ("energy", c_void_p), ("counts", c_void_p)]


class RoundReport(Structure):
    _fields_ = [("struct_size", c_size_t), ("error_before", c_double), ("error", c_double),
                ("squared_error", c_double), ("energy", c_double), ("changed", c_uint64), ("passes", c_int)]


class RoundArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("format", c_void_p), ("value", c_void_p),
                ("scale", c_void_p), ("zero_point", c_void_p), ("global_scale", c_void_p), ("hessian", c_void_p),
                ("hessian_count", c_int64), ("passes", c_int), ("codes", c_void_p), ("codes_size", c_size_t),
                ("report", c_void_p), ("runtime", c_void_p)]


class GptqBlockArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("format", c_void_p), ("factor", c_void_p),
                ("scale", c_void_p), ("zero_point", c_void_p), ("value", c_void_p), ("quantized", c_void_p),
                ("errors", c_void_p), ("losses", c_void_p), ("value_size", c_size_t), ("runtime", c_void_p)]


class DequantizeArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("format", c_void_p), ("codes", c_void_p),
                ("g_idx", c_void_p), ("scale", c_void_p), ("zero_point", c_void_p),
                ("global_scale", c_void_p), ("out", c_void_p), ("out_strides", c_void_p),
                ("out_size", c_size_t), ("dtype", c_int), ("runtime", c_void_p)]


class PackArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("bits", c_int), ("dim", c_int), ("rows", c_int64), ("columns", c_int64),
                ("word_bits", c_int), ("offset", c_int), ("codes", c_void_p), ("codes_size", c_size_t),
                ("packed", c_void_p), ("packed_size", c_size_t)]


class FakeQuantizeArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("format", c_void_p), ("value", c_void_p),
                ("g_idx", c_void_p), ("scale", c_void_p), ("zero_point", c_void_p),
                ("global_scale", c_void_p), ("out", c_void_p), ("out_strides", c_void_p),
                ("out_size", c_size_t), ("runtime", c_void_p), ("amax", c_void_p)]


class CalibrateArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("value", c_void_p), ("amax", c_void_p),
                ("amax_size", c_size_t), ("runtime", c_void_p)]


class RangeArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("config", c_void_p), ("histogram", c_void_p),
                ("bin_edges", c_void_p), ("percentile", c_double), ("stride", c_int64),
                ("start_bin", c_int64), ("runtime", c_void_p)]


class Range(Structure):
    _fields_ = [("struct_size", c_size_t), ("min", c_float), ("max", c_float), ("first_bin", c_int64),
                ("last_bin", c_int64), ("score", c_double)]


class FormatArrayArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("format", c_void_p), ("x", c_void_p), ("x_size", c_size_t),
                ("out", c_void_p), ("out_size", c_size_t), ("saturate", c_bool)]


class Run(Structure):
    _fields_ = [("offset", c_int64), ("stride", c_int64), ("length", c_int64), ("qparam", c_int64)]


# C name without prefix -> class, for the comparison with the headers in python/tests.
STRUCTURES = {
    "error": ErrorText, "tensor": Tensor, "allocator": Allocator, "executor": Executor, "runtime": Runtime,
    "setting_info": SettingInfo, "counts": Counts, "search_report": SearchReport, "range_buffers": RangeBuffers,
    "qparam_buffers": QparamBuffers, "histogram_state": HistogramState, "qparam_layout": QparamLayout,
    "result": Result, "minmax_args": MinmaxArgs, "histogram_options": HistogramOptions,
    "histogram_args": HistogramArgs, "search_args": SearchArgs, "calculate_args": CalculateArgs,
    "config_needs": ConfigNeeds, "quantizer_args": QuantizerArgs, "quantized_layout": QuantizedLayout,
    "quantizer_run_args": QuantizerRunArgs, "quantize_args": QuantizeArgs,
    "round_report": RoundReport, "round_args": RoundArgs, "gptq_block_args": GptqBlockArgs, "dequantize_args": DequantizeArgs, "pack_args": PackArgs,
    "fake_quantize_args": FakeQuantizeArgs, "calibrate_args": CalibrateArgs, "range_args": RangeArgs, "range": Range,
    "format_array_args": FormatArrayArgs, "run": Run,
}

_E = POINTER(ErrorText)
_T = c_void_p  # address of a Tensor
_R = c_void_p  # address of a Runtime
_size_p = POINTER(c_size_t)
_handle_p = POINTER(c_void_p)
_handle = c_void_p  # config, observer, format, plan

# name -> result, arguments. Those that return a status (c_int with an error at the end) raise exceptions.
FUNCTIONS = {
    "version": (c_char_p,),
    "version_number": (c_int,),
    "status_string": (c_char_p, c_int),
    "dtype_size": (c_size_t, c_int),
    "dtype_name": (c_char_p, c_int),
    "isa_count": (c_size_t,),
    "isa_name": (c_char_p, c_size_t),
    "isa_summary": (c_char_p, c_size_t),
    "isa_usable": (c_bool, c_size_t),
    "isa_active": (c_char_p,),
    "isa_select": (c_int, c_char_p, _E),
    "preset_count": (c_size_t,),
    "preset_name": (c_char_p, c_size_t),
    "preset_summary": (c_char_p, c_size_t),
    "config_create": (c_int, _handle_p, c_char_p, _R, _E),
    "config_destroy": (None, _handle),
    "config_parse": (c_int, _handle_p, c_char_p, _R, _E),
    "config_clone": (c_int, _handle_p, _handle, _R, _E),
    "config_set": (c_int, _handle, c_char_p, c_char_p, _E),
    "config_set_all": (c_int, _handle, c_char_p, _E),
    "config_set_int": (c_int, _handle, c_char_p, c_int64, _E),
    "config_set_real": (c_int, _handle, c_char_p, c_double, _E),
    "config_set_bool": (c_int, _handle, c_char_p, c_bool, _E),
    "config_check": (c_int, _handle, _E),
    "config_preset": (c_char_p, _handle),
    "config_get": (c_int, _handle, c_char_p, c_char_p, c_size_t, _E),
    "config_text": (c_int, _handle, c_char_p, c_size_t, _size_p, _E),
    "config_key_count": (c_size_t, _handle),
    "config_key": (c_char_p, _handle, c_size_t),
    "config_key_info": (c_int, _handle, c_char_p, POINTER(SettingInfo), _E),
    "config_key_word": (c_char_p, _handle, c_char_p, c_size_t),
    "config_qparam_dtypes": (c_int, _handle, c_int, POINTER(c_int), POINTER(c_int), _E),
    "config_describe": (c_int, _handle, POINTER(ConfigNeeds), _E),
    "config_layout": (c_int, _handle, _T, _T, POINTER(QparamLayout), _E),
    "describe_qparams": (c_int, c_char_p, _T, POINTER(QparamLayout), _E),
    "compute_qparams": (c_int, c_char_p, _T, POINTER(QparamBuffers), _R, _E),
    "config_qparams": (c_int, _handle, _T, _T, POINTER(QparamBuffers), _R, _E),
    "observer_create": (c_int, _handle_p, _handle, _R, _E),
    "observer_destroy": (None, _handle),
    "observer_open": (c_int, _handle_p, c_char_p, _R, _E),
    "observer_clone": (c_int, _handle_p, _handle, _R, _E),
    "observer_config": (c_void_p, _handle),
    "observer_size": (c_int, _handle, _T, _size_p, _E),
    "observer_create_in": (c_int, _handle_p, c_void_p, c_size_t, _handle, _R, _E),
    "observer_observe": (c_int, _handle, _T, _T, _E),
    "observer_update_min_max": (c_int, _handle, _T, _T, POINTER(RangeBuffers), _E),
    "observer_update_global_min_max": (c_int, _handle, _T, POINTER(RangeBuffers), _E),
    "observer_update_qparams": (c_int, _handle, _T, _T, POINTER(QparamBuffers), _E),
    "observer_update_qparams_along_dim": (c_int, _handle, _T, POINTER(c_int), c_size_t, POINTER(QparamBuffers), _E),
    "observer_record_tokens": (c_int, _handle, _T, _E),
    "observer_observe_importance": (c_int, _handle, _T, _E),
    "observer_set_reference_amax": (c_int, _handle, _T, _E),
    "observer_set_error_weights": (c_int, _handle, _T, _E),
    "observer_set_hessian": (c_int, _handle, _T, _E),
    "observer_set_histogram": (c_int, _handle, POINTER(HistogramState), _E),
    "observer_search_report": (c_int, _handle, POINTER(SearchReport), _E),
    "observer_reset": (None, _handle),
    "observer_reset_batches": (None, _handle),
    "observer_merge": (c_int, _handle, _handle_p, c_size_t, _E),
    "observer_save_size": (c_size_t, _handle),
    "observer_save": (c_int, _handle, c_void_p, c_size_t, _E),
    "observer_load": (c_int, _handle_p, c_void_p, c_size_t, _R, _E),
    "observer_counts": (c_int, _handle, POINTER(Counts), _E),
    "observer_result_count": (c_size_t, _handle),
    "observer_result_info": (c_int, _handle, c_size_t, POINTER(Result), _E),
    "observer_result_find": (c_int, _handle, c_char_p, POINTER(Result), _E),
    "observer_read": (c_int, _handle, c_char_p, c_void_p, c_size_t, _E),
    "observer_read_as": (c_int, _handle, c_char_p, c_int, c_void_p, c_size_t, _E),
    "observer_qparams": (c_int, _handle, POINTER(QparamBuffers), _E),
    "observers_fuse": (c_int, _handle_p, c_size_t, _E),
    "observer_set_global_amax": (c_int, _handle, c_double, _E),
    "minmax": (c_int, POINTER(MinmaxArgs), _E),
    "global_minmax": (c_int, POINTER(MinmaxArgs), _E),
    "count_tokens": (c_int, _T, POINTER(c_uint64), POINTER(c_uint64), _E),
    "histogram": (c_int, POINTER(HistogramArgs), _E),
    "histogram_to_float": (c_int, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, _E),
    "search": (c_int, POINTER(SearchArgs), _E),
    "global_search": (c_int, POINTER(SearchArgs), _E),
    "calculate_qparams": (c_int, POINTER(CalculateArgs), _E),
    "global_scale": (c_int, _handle, c_int, c_double, c_double, POINTER(c_float), _E),
    "quantize": (c_int, POINTER(QuantizeArgs), _E),
    "quantizer_create": (c_int, _handle_p, POINTER(QuantizerArgs), _E),
    "quantizer_size": (c_size_t,),
    "quantizer_create_in": (c_int, _handle_p, c_void_p, c_size_t, POINTER(QuantizerArgs), _E),
    "quantizer_destroy": (None, _handle),
    "quantizer_layout": (c_int, _handle, c_int64, POINTER(QuantizedLayout), _E),
    "quantizer_run": (c_int, _handle, POINTER(QuantizerRunArgs), _E),
    "round_codes": (c_int, POINTER(RoundArgs), _E),
    "gptq_block": (c_int, POINTER(GptqBlockArgs), _E),
    "dequantize": (c_int, POINTER(DequantizeArgs), _E),
    "pack": (c_int, POINTER(PackArgs), _E),
    "unpack": (c_int, POINTER(PackArgs), _E),
    "fake_quantize": (c_int, POINTER(FakeQuantizeArgs), _E),
    "calibrate_weights": (c_int, POINTER(CalibrateArgs), _E),
    "measure_error": (c_int, _T, _T, POINTER(c_double), POINTER(c_double), _E),
    "range_by_percentile": (c_int, POINTER(RangeArgs), POINTER(Range), _E),
    "range_by_mse": (c_int, POINTER(RangeArgs), POINTER(Range), _E),
    "range_by_l2_norm": (c_int, POINTER(RangeArgs), POINTER(Range), _E),
    "range_by_entropy": (c_int, POINTER(RangeArgs), POINTER(Range), _E),
    "format_count": (c_size_t,),
    "format_at": (c_void_p, c_size_t),
    "format_find": (c_void_p, c_char_p),
    "format_name": (c_char_p, _handle),
    "format_bits": (c_int, _handle),
    "format_min": (c_double, _handle),
    "format_max": (c_double, _handle),
    "format_size": (c_size_t, _handle),
    "format_decode": (c_float, _handle, c_uint32),
    "format_encode": (c_uint32, _handle, c_float, c_bool),
    "format_round": (c_float, _handle, c_float, c_bool),
    "format_round_array": (c_int, POINTER(FormatArrayArgs), _E),
    "format_encode_array": (c_int, POINTER(FormatArrayArgs), _E),
    "plan_create": (c_int, _handle_p, _handle, _T, _T, _R, _E),
    "plan_destroy": (None, _handle),
    "plan_shape": (c_int, _handle, POINTER(c_int64), c_size_t),
    "plan_run_count": (c_int64, _handle),
    "plan_run": (c_int, _handle, c_int64, POINTER(Run), _E),
    "plan_copy": (c_int, _handle, _T, c_void_p, c_size_t, _E),
}


def path_of(library: str) -> str:
    """A library that the wheel has beside the package: "libqobs.so"."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = os.path.join(root, ".libqobs.mesonpy.libs")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        if name.startswith(library):
            return os.path.join(folder, name)
    raise ImportError(f"qobs: the C library is missing: no {library} in {folder}")


class Library:
    """Every function of the library as an attribute. Those that end with an error return a status and do not raise:
    `call` does."""

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...


def _load() -> Library:
    library = ctypes.CDLL(path_of("libqobs.so"))
    functions = Library()
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(library, "qobs_" + name)
        function.restype = result
        function.argtypes = arguments
        setattr(functions, name, function)
    number = functions.version_number()
    if (number // 10000, number // 100 % 100) != ABI:
        raise ImportError(f"qobs: the C library has version {functions.version().decode()}, the package needs "
                          f"{ABI[0]}.{ABI[1]}")
    return functions


lib = _load()
_byref = ctypes.byref
runtime: int | None = None  # address of the Runtime of set_threads, for every call that takes one
several = False  # a Runtime with several threads has been made, which calls Python


def status_of(function, *arguments) -> int:
    """Calls a function that may call Python."""
    if not several:
        return function(*arguments)
    with Held():
        return function(*arguments)


def call(function, *arguments, **named: str) -> None:
    """Calls a function that ends with an error, which this adds. Raises the exception of its status. named: what Python
    calls arguments that have other names in C."""
    error = ErrorText()
    if status_of(function, *arguments, _byref(error)) != OK:
        raise failure_of(error, **named)


def failure_of(error: ErrorText, **named: str) -> Error:
    """The exception of a call that has failed."""
    text = error.message.decode("utf-8", "replace")
    for name, own in named.items():
        if text.startswith(name) and not text[len(name):len(name) + 1].isidentifier():
            text = own + text[len(name):]
    if error.status == INVALID_ARGUMENT:
        text += suggestion(text)
    return ERRORS.get(error.status, Error)(text)


def create(function, *arguments, **named: str) -> int:
    """Calls a function whose first parameter receives a new object, and returns its address."""
    handle = c_void_p()
    call(function, _byref(handle), *arguments, **named)
    return handle.value or 0
