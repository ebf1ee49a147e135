# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Drop-in for the calibraters of ONNX Runtime: histograms and entropy; optionally batches that are not kept.

    import libqobs.onnxruntime
    libqobs.onnxruntime.install()
    quantize_static(model, out, reader, calibrate_method=CalibrationMethod.Entropy)    # the same model, sooner
    print(libqobs.dropin_calls())

docs/dropins.md lists what is served, what is declined and what differs. Read in onnxruntime 1.32:
onnxruntime/quantization/calibrate.py."""
from __future__ import annotations

import weakref
from typing import Any

from ._dropin import Declined, Dropin
from ._library import NonfiniteError
from ._observer import Observer

_dropin = Dropin("onnxruntime", "1.32")
uninstall, installed = _dropin.uninstall, _dropin.installed


def install(*, strict: bool = False, streaming: bool = False) -> None:
    """Replaces the methods. A second call changes strict only. strict: a call that fails in qobs raises.

    streaming: every batch enters the histograms as soon as the model has run, and is not kept: memory no longer grows
    with the number of batches. The result is that of one collect_data for each batch, which differs from one
    collect_data for all of them: histograms then start with the range of the first batch."""
    import onnxruntime
    from onnxruntime.quantization import calibrate
    if _dropin.begin(strict, onnxruntime.__version__):
        collector = calibrate.HistogramCollector
        _dropin.replace_method(collector, "collect_value", "onnxruntime.collect_value", _collect_value)
        _dropin.replace_method(collector, "collect_absolute_value", "onnxruntime.collect_absolute_value",
                               _collect_absolute_value)
        _dropin.replace_method(collector, "get_entropy_threshold", "onnxruntime.entropy", _get_entropy_threshold)
        if streaming:
            original = calibrate.HistogramCalibrater.collect_data
            _dropin.replace_method(calibrate.HistogramCalibrater, "collect_data", "onnxruntime.streaming",
                                   lambda self, data_reader: _stream(original, self, data_reader))


# Histograms

#: collector -> tensor -> the observer of a histogram, and upstream's tuple for it
_observers: weakref.WeakKeyDictionary[Any, dict[str, tuple[Observer, Any]]] = weakref.WeakKeyDictionary()


def _observe(self: Any, name_to_arr: Any, preset: str) -> dict[str, tuple[Observer, Any]]:
    """The observers of all tensors after a batch, and the tuples they had before."""
    import numpy
    mine, out = _observers.pop(self, {}), {}
    for name, batch in name_to_arr.items():
        value = numpy.asarray(batch)
        old = self.histogram_dict.get(name)
        observer, known = mine.get(name) or (Observer(preset, num_bins=self.num_bins), None)
        if value.dtype != numpy.float32 or value.size == 0 or value.ndim > 8 or known is not old:
            raise Declined  # a histogram from elsewhere, too
        try:
            observer.observe(value)
        except NonfiniteError:
            raise Declined from None
        out[name] = observer, old
    return {**mine, **out}


def _keep(self: Any, found: dict[str, tuple[Observer, Any]]) -> None:
    self.histogram_dict.update({name: entry for name, (_, entry) in found.items()})
    _observers[self] = found


def _results(observer: Observer) -> tuple[Any, ...]:
    return (observer.read("hist"), observer.read("hist_edges"), observer.read("min_val").reshape(())[()],
            observer.read("max_val").reshape(())[()])


def _collect_value(self: Any, name_to_arr: Any) -> None:
    import numpy
    found = {}
    for name, (observer, old) in _observe(self, name_to_arr, "ort.EntropyCalibrater").items():
        if name not in name_to_arr:
            found[name] = observer, old
            continue
        results = _results(observer)
        threshold = results[1][-1]
        if old is None or old[4] == 0:
            threshold = numpy.array(threshold)
        elif len(old[0]) == len(results[0]):
            threshold = old[4]
        found[name] = observer, (*results, threshold)
    _keep(self, found)


def _collect_absolute_value(self: Any, name_to_arr: Any) -> None:
    found = {}
    for name, (observer, old) in _observe(self, name_to_arr, "ort.PercentileCalibrater symmetric=true").items():
        found[name] = observer, _results(observer) if name in name_to_arr else old
    _keep(self, found)


def _stream(original: Any, self: Any, data_reader: Any) -> None:
    """One collect_data of upstream for each batch."""
    class One:
        def __init__(self, *batches: Any):
            self._batches = list(batches)

        def get_next(self) -> Any:
            return self._batches.pop() if self._batches else None
    batch = data_reader.get_next()
    if not batch:
        original(self, One())  # raises
    while batch:
        original(self, One(batch))
        batch = data_reader.get_next()


# Entropy

def _get_entropy_threshold(self: Any, histogram: Any, num_quantized_bins: int) -> Any:
    """Upstream adds up counts in Python; integers add up to the same in numpy. The divergence is upstream's own, whose
    float32 sums decide between candidates."""
    import numpy
    from onnxruntime.quantization.calibrate import entropy
    from onnxruntime.quantization.quant_utils import smooth_distribution
    counts, edges = histogram[0], histogram[1]
    levels, centre = num_quantized_bins, counts.size // 2
    half = levels // 2
    if type(counts) is not numpy.ndarray or counts.dtype != numpy.int64 or half < 1 or centre < half or \
            counts.sum() >= 1 << 53:
        raise Declined
    below = numpy.concatenate(([0], numpy.cumsum(counts)))
    divergence = numpy.empty(centre - half + 1)
    bounds = []
    for i in range(half, centre + 1):
        first, last = centre - i, min(centre + i + 1, counts.size)
        bounds.append((first, last))
        inner = counts[first:last]
        p = inner.copy()
        p[0] += below[first]
        p[-1] += below[-1] - below[last]
        merged = inner.size // levels
        used = levels * merged
        if merged == 0:
            raise Declined
        sums = inner[:used].reshape(levels, merged).sum(1)
        sums[-1] += inner[used:].sum()
        filled = numpy.count_nonzero(p[:used].reshape(levels, merged), axis=1)
        means = (sums / numpy.maximum(filled, 1)).astype(numpy.int64)
        q = numpy.zeros(p.size, numpy.int64)
        q[:used] = numpy.repeat(numpy.where(filled == 0, 0, means), merged)
        smooth_p, smooth_q = smooth_distribution(p), smooth_distribution(q)
        divergence[i - half] = numpy.inf if smooth_p is None or smooth_q is None else \
            numpy.array(entropy(smooth_p, smooth_q), edges.dtype)
    first, last = bounds[numpy.argmin(divergence)]
    low, high = edges[first], edges[last]
    return histogram[2] if low < histogram[2] else low, histogram[3] if high > histogram[3] else high
