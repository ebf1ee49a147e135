# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Quantization scales and zero points on CPUs, bit for bit those of llm-compressor, torch.ao, torchao, AMD Quark,
NVIDIA Model-Optimizer, ONNX Runtime, ai-edge-quantizer and NNCF. docs/python.md starts with three runs to paste."""
from . import distributed, gguf
from ._blocks import calibrate_blocks
from ._calibration import Calibration, calibrate, calibration
from ._corrected import quantize_blocks
from ._checkpoint import Progress, audit, calibrate_checkpoint, finish, handle_bus_errors, plan, quantize
from ._dropin import dropin_calls
from ._functions import (Histogram, QParams, Range, Search, SearchReport, Setting, fake_quantize, histogram, presets,
                         range_by_entropy, range_by_l2_norm, range_by_mse, range_by_percentile, search, settings)
from ._library import (Cancelled, Error, FindingsError, IncompleteWarning, InvalidArgumentError, NoDataError,
                       NonfiniteError, NoResultError, OutOfMemoryError, SystemFailure, UnsupportedError, Warning,
                       lib as _lib)
from ._minmax import MinMax, minmax
from ._observer import Counts, Observer, Results, qparams_from_tensor, fuse
from ._quantizer import Quantized, Quantizer
from ._reports import AuditReport, BlocksReport, CalibrateReport, PlanReport, QuantizeBlocksReport, QuantizeReport
from ._tensor import Array
from ._threads import set_threads

__version__: str = _lib.version().decode()

__all__ = [
    "Array", "AuditReport", "BlocksReport", "CalibrateReport", "Calibration", "Cancelled", "Counts", "Error",
    "FindingsError", "Histogram", "IncompleteWarning", "InvalidArgumentError", "MinMax", "NoDataError", "NoResultError",
    "NonfiniteError", "Observer", "OutOfMemoryError", "PlanReport", "Progress", "QParams", "Quantized",
    "QuantizeBlocksReport", "QuantizeReport", "Quantizer", "Range", "Results", "Search", "SearchReport", "Setting",
    "SystemFailure", "UnsupportedError", "Warning", "audit", "calibrate", "calibrate_blocks", "calibrate_checkpoint",
    "calibration", "qparams_from_tensor", "dropin_calls", "fake_quantize", "finish", "fuse", "handle_bus_errors",
    "histogram", "minmax", "plan", "presets", "quantize", "quantize_blocks", "range_by_entropy", "range_by_l2_norm",
    "range_by_mse", "range_by_percentile", "search", "set_threads", "settings",
]
for _name in __all__:
    globals()[_name].__module__ = "libqobs"
del _name
