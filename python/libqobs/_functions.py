# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Functions on one tensor or histogram, presets and their settings."""
from __future__ import annotations

import json
import math
from ctypes import addressof, byref, c_float, c_size_t, create_string_buffer, sizeof
from typing import Any, NamedTuple

from . import _library as c
from ._arguments import choice, encoded, flag, integer, number, shown, wrong_kind
from ._library import call, create, lib
from ._tensor import NAMES, SIZES, Array, check_apart, output, view

KINDS = {c.WORD: "word", c.BOOL: "bool", c.INTEGER: "integer", c.REAL: "real", c.AXES: "axes", c.PAIR: "pair",
         c.OWN_NAME: "own_name"}


class Setting(NamedTuple):
    """A setting and its limits. `min` and `max` are None if it has words; None restores the default."""

    key: str
    kind: str  #: word, bool, integer, real, axes (list of integers), pair (height and width) or own_name
    min: float | None
    max: float | None
    words: tuple[str, ...]
    default: Any  #: None: no value until it is set
    help: str


class QParams(NamedTuple):
    """Scale and zero point, in the framework of the input. Members are None if the preset has no such result."""

    scale: Array
    zero_point: Array | None
    global_scale: Array | None


class Histogram(NamedTuple):
    """Counts (int64) of shape (*qparams, bins), first and last edges of shape (*qparams): floats if there is one."""

    counts: Array
    first_edge: Any
    last_edge: Any

    @property
    def bin_edges(self) -> Array:
        """bins + 1 edges (float32) of equal width. One histogram only."""
        if not isinstance(self.first_edge, float):
            raise ValueError("qobs: bin_edges is for one histogram; these are several")
        count = view(self.counts)
        return count.framework.edges(self.first_edge, self.last_edge, count.shape[0] + 1)


class SearchReport(NamedTuple):
    """Report of a range search, summed over all qparams."""

    steps: int
    stop_step: int
    error_before: float
    error: float
    weighted: bool
    fallback: str | None  #: why importance was not used


class Search(NamedTuple):
    """Ranges with the smallest error: `best_step` int32, `errors` float64, each of the shape of min."""

    min: Array
    max: Array
    best_step: Array
    errors: Array
    report: SearchReport


class Range(NamedTuple):
    """The result of a range finder; the bins are included."""

    min: float
    max: float
    first_bin: int
    last_bin: int
    score: float


def text(value: Any, key: str) -> str:
    """A setting's value as qobs_config_set reads it."""
    if isinstance(value, str):
        return value
    if type(value).__module__ == "torch":
        return str(value).rpartition(".")[2]  # torch.quint8, torch.per_tensor_affine
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(text(v, key) for v in value) + "]"
    try:
        value = value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):  # several elements
        pass
    if value is not None and not isinstance(value, (bool, int, float)):
        raise wrong_kind(value, key, "a text, a number, a bool, a list or None")
    return json.dumps(value)


def parsed(value: bytes) -> Any:
    """The value of qobs_config_get."""
    try:
        return json.loads(value)
    except ValueError:
        return value.decode()


def config_text(handle: int) -> str:
    """The text of a configuration."""
    size = c_size_t()
    call(lib.config_text, handle, None, 0, byref(size))
    buffer = create_string_buffer(size.value)
    call(lib.config_text, handle, buffer, len(buffer), None)
    return buffer.value.decode()


class Config:
    """A qobs_config: `preset` is "PRESET" or "PRESET key=value ...", `settings` come on top."""

    __slots__ = ("handle",)

    def __init__(self, preset: str, settings: dict[str, Any]):
        self.handle = None
        if not isinstance(preset, str):
            raise wrong_kind(preset, "preset", "the name of a preset with settings")
        self.handle = create(lib.config_parse, encoded(preset, "preset"), None)
        for key, value in settings.items():
            call(lib.config_set, self.handle, encoded(key, "settings"), encoded(text(value, key), key))

    def __reduce__(self) -> tuple:
        raise TypeError("qobs: a configuration cannot be copied")

    def __del__(self, destroy=lib.config_destroy):
        destroy(self.handle)

    def text(self) -> str:
        """Preset and settings, of which a configuration like this can be made."""
        return config_text(self.handle or 0)


def presets() -> dict[str, str]:
    """The presets: name -> one line of description.

    A name is "FAMILY.CLASS" with the upstream class or registry name: llmc (llm-compressor), torch (torch.ao), quark
    (AMD Quark), modelopt (NVIDIA Model-Optimizer)."""
    return {lib.preset_name(i).decode(): lib.preset_summary(i).decode() for i in range(lib.preset_count())}


def settings(preset: str) -> dict[str, Setting]:
    """The settings of a preset: key -> Setting. Errors: InvalidArgumentError if there is no such preset."""
    config, info, out = Config(preset, {}), c.SettingInfo(), {}
    for i in range(lib.config_key_count(config.handle)):
        key = lib.config_key(config.handle, i)
        info.struct_size = sizeof(info)
        call(lib.config_key_info, config.handle, key, byref(info))
        words = tuple(lib.config_key_word(config.handle, key, w).decode() for w in range(info.word_count))
        out[key.decode()] = Setting(key.decode(), KINDS[info.kind], None if words else info.min,
                                    None if words else info.max, words, parsed(info.default_value), info.help.decode())
    return out


def layout_of(config, value, g_idx) -> c.QparamLayout:
    layout = c.QparamLayout(sizeof(c.QparamLayout))
    call(lib.config_qparam_layout, config.handle, value.address, _pointer(g_idx), byref(layout), value="x")
    return layout


def optional(x, name: str):
    return None if x is None else view(x, name)


def _pointer(v):
    return v.address if v is not None else None


def one(x: Any, name: str) -> Any:
    """A global scale, a number or a tensor of one element, as c_float. Errors: InvalidArgumentError unless it is finite
    and above 0 as float32; TypeError."""
    if x is None:
        return None
    if not isinstance(x, (int, float, str, bool)):
        value = view(x, name)
        if value.count != 1:
            raise TypeError(f"{name}: has shape {list(value.shape)}, a number or one element is expected")
        x = x.item() if hasattr(x, "item") else memoryview(x).tolist()
        while isinstance(x, list):
            x = x[0]
    factor = c_float(number(x, name))
    if not 0 < factor.value < math.inf:
        raise c.InvalidArgumentError(f"{name}: is {shown(x)}, allowed are numbers above 0 that float32 has")
    return factor


def address_of(factor: Any) -> int | None:
    """The address of a c_float, which is false if it is 0."""
    return None if factor is None else addressof(factor)


def histogram(x: Any, bins: int = 2048, range: tuple[float, float] | None = None, *, magnitude: bool = False,
              skip_zeros: bool = False, config: str | None = None, g_idx: Any = None, **settings: Any) -> Histogram:
    """Exact counts of the elements of a tensor in bins of equal width.

    x: as in minmax. range: elements from its first to its second number are counted; None or equal numbers: from the
    minimum to the maximum. magnitude: of |x|. skip_zeros: zeros count nowhere. config, g_idx, settings: one histogram
    for each qparam of that granularity; None: one.
    Errors: NonfiniteError if the extrema are wanted and x has NaN or infinity. Reproduces torch.histc on float32,
    bfloat16 and float16, but for its counts, which end at 2^24 and less."""
    value, groups, shape, setup = view(x), optional(g_idx, "g_idx"), (), None
    if config is not None:
        setup = Config(config, settings)
        layout = layout_of(setup, value, groups)
        shape = tuple(layout.shape[:layout.ndim])
    elif settings:
        raise TypeError(f"settings: {', '.join(settings)} need config")
    bins = integer(bins, "bins", 1, 1 << 24)
    options = c.HistogramOptions(sizeof(c.HistogramOptions), bins, *_ends(range), flag(magnitude, "magnitude"),
                                 flag(skip_zeros, "skip_zeros"))
    counts, done = value.framework.empty((*shape, bins), c.I64)
    first, done_first = value.framework.empty(shape, c.F32)
    last, done_last = value.framework.empty(shape, c.F32)
    n = math.prod(shape)
    args = c.HistogramArgs(sizeof(c.HistogramArgs), setup and setup.handle, value.address,
                           _pointer(groups), addressof(options), counts, 8 * n * bins, first, last, 4 * n, None,
                           c.runtime)
    call(lib.histogram, byref(args), value="x")
    if config is None:
        return Histogram(done(), c_float.from_address(first).value, c_float.from_address(last).value)
    return Histogram(done(), done_first(), done_last())


def _ends(range: Any) -> tuple[float, float]:
    """Errors: TypeError; InvalidArgumentError unless it is a range of finite numbers of float32."""
    if range is None:
        return 0.0, 0.0
    if not isinstance(range, (tuple, list)) or len(range) != 2:
        raise wrong_kind(range, "range", "two numbers or None")
    low, high = (c_float(number(x, "range")).value for x in range)
    if not -math.inf < low <= high < math.inf:
        raise c.InvalidArgumentError(f"range: is {shown(range)}, allowed are two finite numbers, the larger one last")
    return low, high


def report_of(report: c.SearchReport) -> SearchReport:
    fallback = report.fallback.decode() if report.fallback else None
    return SearchReport(report.steps, report.stop_step, report.error_before, report.error, report.weighted, fallback)


def search(x: Any, config: str = "llmc.memoryless_mse", *, importance: Any = None, global_scale: Any = None,
           g_idx: Any = None, **settings: Any) -> Search:
    """Searches the range with the smallest quantization error for every qparam.

    x: as in minmax. config: an llmc preset with mse in its name, and settings. importance: weight of each column of a
    weight tensor, float32 without gaps. global_scale: version 2025-10 only.
    Returns ranges with the dtype of x. Errors: NonfiniteError, InvalidArgumentError; UnsupportedError if the library
    was built without SLEEF and norm is not 1, 2 or 3. Reproduces _grid_search_mse and _grid_search of
    llm-compressor."""
    value, groups, weights = view(x), optional(g_idx, "g_idx"), optional(importance, "importance")
    if weights is not None and (weights.dtype != c.F32 or not weights.contiguous()):
        raise TypeError(f"importance: is {NAMES[weights.dtype]} of shape {list(weights.shape)}, contiguous float32 is "
                        "expected")
    factor = one(global_scale, "global_scale")
    setup = Config(config, settings)
    layout = layout_of(setup, value, groups)
    shape, n, size = tuple(layout.shape[:layout.ndim]), layout.count, layout.count * SIZES[value.dtype]
    report = c.SearchReport(sizeof(c.SearchReport))
    empty = value.framework.empty
    low, done_low = empty(shape, value.dtype)
    high, done_high = empty(shape, value.dtype)
    steps, done_steps = empty(shape, c.I32)
    errors, done_errors = empty(shape, c.F64)
    args = c.SearchArgs(sizeof(c.SearchArgs), setup.handle, value.address, _pointer(groups),
                        weights and weights.tensor.data, 4 * weights.count if weights else 0,
                        address_of(factor), low, high, size, steps, 4 * n, errors, 8 * n,
                        addressof(report), c.runtime)
    call(lib.search, byref(args), value="x")
    return Search(done_low(), done_high(), done_steps(), done_errors(), report_of(report))


def fake_quantize(x: Any, config: str, scale: Any, zero_point: Any = None, *, format: str | None = None,
                  global_scale: Any = None, g_idx: Any = None, **settings: Any) -> Array:
    """Quantizes and dequantizes every element with its qparam. Returns dtype, shape and framework of x, in C order.

    x: as in minmax. config: a preset and settings: granularity and number format. scale: one element for each qparam in
    C order, float32 or the dtype of x. zero_point: as many, of any dtype. format: the name of another number format,
    such as fp8_e4m3. global_scale: divides every scale.
    Errors: InvalidArgumentError. Reproduces fake_quantize of compressed-tensors and
    torch.fake_quantize_per_tensor_affine."""
    value, groups, scales, zeros = (view(x), optional(g_idx, "g_idx"), view(scale, "scale"),
                                    optional(zero_point, "zero_point"))
    setup, found, factor = Config(config, settings), None, one(global_scale, "global_scale")
    if format is not None:
        formats = [lib.format_at(i) for i in range(lib.format_count())]
        encoded(format, "format")
        found = choice(format, "format", {lib.format_name(f).decode(): f for f in formats})
    out, done = value.framework.empty(value.shape, value.dtype)
    args = c.FakeQuantizeArgs(sizeof(c.FakeQuantizeArgs), setup.handle, found, value.address,
                              _pointer(groups), scales.address, _pointer(zeros),
                              address_of(factor), out, None, value.count * SIZES[value.dtype], c.runtime)
    call(lib.fake_quantize, byref(args), value="x")
    return done()


def gptq_block(value: Any, factor: Any, quantized: Any, errors: Any, losses: Any, config: str, scale: Any,
               zero_point: Any = None, **settings: Any) -> None:
    """Quantizes a block of columns by GPTQ, in place: value keeps what compensation has left, and the other three
    receive what the columns became, (value - quantized) / factor[k][k], and the squares of these.

    value, quantized, errors, losses: contiguous float32 (rows, columns). factor: float32 (columns, columns), the block
    of the upper Cholesky factor of the inverse Hessian. scale: float32, bfloat16 or float16, and zero_point: of any
    dtype, both (rows, columns), of each element; strides may be 0. config: a preset and settings: the number format.
    Errors: InvalidArgumentError, NonfiniteError; nothing has changed then. Reproduces gptq_block_update of
    llm-compressor 0.14."""
    setup, inputs = Config(config, settings), {"factor": view(factor, "factor"), "scale": view(scale, "scale")}
    if zero_point is not None:
        inputs["zero_point"] = view(zero_point, "zero_point")
    block, scales, zeros = inputs["factor"], inputs["scale"], inputs.get("zero_point")
    four = {name: output(x, name, scales.shape, c.F32) for name, x in (
        ("value", value), ("quantized", quantized), ("errors", errors), ("losses", losses))}
    for name, x in four.items():
        if x.shape != scales.shape:
            raise c.InvalidArgumentError(f"{name}: has shape {list(x.shape)}, that of scale, {list(scales.shape)}, is "
                                         "expected")
    check_apart(four, inputs)
    args = c.GptqBlockArgs(sizeof(c.GptqBlockArgs), setup.handle, None, block.address, scales.address, _pointer(zeros),
                           *(x.tensor.data for x in four.values()), 4 * scales.count, c.runtime)
    call(lib.gptq_block, byref(args))


def _find(function, counts, bin_edges, config, settings, percentile=0.0, stride=0, start_bin=0) -> Range:
    if isinstance(counts, Histogram):
        bin_edges = counts.bin_edges if bin_edges is None else bin_edges
        counts = counts.counts
    elif bin_edges is None:
        raise TypeError("bin_edges: are None, but counts is no Histogram")
    heights, edges, setup = view(counts, "counts"), view(bin_edges, "bin_edges"), Config(config, settings)
    stride, start_bin = (integer(n, name, 0, (1 << 63) - 1) for n, name in ((stride, "stride"),
                                                                            (start_bin, "start_bin")))
    args = c.RangeArgs(sizeof(c.RangeArgs), setup.handle, heights.address, edges.address,
                       number(percentile, "percentile"), stride, start_bin, c.runtime)
    out = c.Range(sizeof(c.Range))
    call(function, byref(args), byref(out), histogram="counts")
    return Range(out.min, out.max, out.first_bin, out.last_bin, out.score)


def range_by_percentile(counts: Any, bin_edges: Any = None, *, config: str, percentile: float,
                        **settings: Any) -> Range:
    """The range that holds `percentile` (0 to 100) percent; score is the share of the counts in its bins, in percent.

    counts: a Histogram, or float32, float64, int32 or int64 of shape (bins,). bin_edges: float32 of shape (bins + 1,).
    config: a quark or modelopt preset. Reproduces get_min_max_by_percentile (Quark), compute_amax("percentile")
    (Model-Optimizer)."""
    return _find(lib.range_by_percentile, counts, bin_edges, config, settings, percentile=percentile)


def range_by_mse(counts: Any, bin_edges: Any = None, *, config: str, stride: int = 1, start_bin: int = 128,
                 **settings: Any) -> Range:
    """The range with the smallest mean squared error of the quantized bin centres, which is score.

    counts, bin_edges: as in range_by_percentile. config: a quark or modelopt preset. Candidates end at the centres of
    bins start_bin, start_bin + stride, ... Reproduces get_min_max_by_mse (Quark) and the documented
    compute_amax("mse") (Model-Optimizer)."""
    return _find(lib.range_by_mse, counts, bin_edges, config, settings, stride=stride, start_bin=start_bin)


def range_by_l2_norm(counts: Any, bin_edges: Any = None, *, config: str = "torch.HistogramObserver",
                     **settings: Any) -> Range:
    """The range with the smallest squared error if elements are spread evenly over their bins; score is that error.

    counts, bin_edges: as in range_by_percentile; only the first and the last edge are read. config: a torch preset.
    Reproduces _non_linear_param_search of HistogramObserver (torch.ao)."""
    return _find(lib.range_by_l2_norm, counts, bin_edges, config, settings)


def range_by_entropy(counts: Any, bin_edges: Any = None, *, config: str = "modelopt.HistogramCalibrator",
                     stride: int = 1, start_bin: int = 128, **settings: Any) -> Range:
    """The range with the smallest Kullback-Leibler divergence, which is score.

    counts, bin_edges: as in range_by_percentile. config: a modelopt preset with integers of 2 to 16 bits. Candidates
    hold the first start_bin, start_bin + stride, ... bins. Reproduces compute_amax("entropy") (Model-Optimizer)."""
    return _find(lib.range_by_entropy, counts, bin_edges, config, settings, stride=stride, start_bin=start_bin)
