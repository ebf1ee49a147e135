# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
import pickle
import threading

import numpy as np
import pytest
import libqobs as qobs

RNG = np.random.default_rng(24)
X = RNG.standard_normal((32, 256)).astype(np.float32)
INT4 = "llmc.memoryless_minmax num_bits=4 group_size=128"


# No release may lose one of these.
PRESETS = {
    "llmc": "memoryless_minmax static_minmax minmax memoryless_mse mse nvfp4_expanded_mse imatrix_mse "
        "nvfp4_expanded_imatrix fouroversix",
    "torch": "MinMaxObserver MovingAverageMinMaxObserver PerChannelMinMaxObserver "
        "MovingAveragePerChannelMinMaxObserver HistogramObserver FixedQParamsObserver PlaceholderObserver",
    "quark": "PlaceholderObserver PerTensorMinMaxObserver PerChannelMinMaxObserver PerGroupMinMaxObserver "
        "PerTensorHistogramObserver PerTensorHistogramObserverPro PerTensorPercentileObserver PerTensorMSEObserver "
        "TQTObserver LSQObserver PerTensorPowOf2MinMaxObserver PerChannelPowOf2MinMaxObserver "
        "PerTensorPowOf2MinMSEObserver PerChannelPowOf2MinMSEObserver PerBlockMXObserver PerBlockMXBufferReuseObserver "
        "PerBlockMXDiffsObserver PerBlockBFPObserver",
    "ort": "MinMaxCalibrater EntropyCalibrater PercentileCalibrater DistributionCalibrater",
    "torchao": "AffineQuantizedMinMaxObserver AffineQuantizedMovingAverageMinMaxObserver AffineQuantizedMSEObserver "
        "AffineQuantizedFixedQParamObserver",
    "modelopt": "MaxCalibrator HistogramCalibrator MseCalibrator NVFP4MSECalibrator BiasCalibrator "
        "NVFP4ActHeadroomCalibrator",
    "aiedge": "OCTAV OSCAR",
    "nncf": "WeightCompression ScaleEstimation",
    "qobs": "mse_optimal imatrix_optimal local_hessian",
}
# Settings without a default.
NEEDED = {
    "torch.FixedQParamsObserver": {"scale": 0.5, "zero_point": 3},
    "quark.PerChannelMinMaxObserver": {"ch_axis": 1},
    "quark.PerChannelPowOf2MinMaxObserver": {"ch_axis": 1},
    "quark.PerChannelPowOf2MinMSEObserver": {"ch_axis": 1},
    "quark.PerGroupMinMaxObserver": {"ch_axis": 1, "group_size": 32},
    "quark.PerBlockMXObserver": {"ch_axis": 1, "group_size": 32, "scale_format": "e8m0"},
    "quark.PerBlockMXBufferReuseObserver": {"ch_axis": 1, "group_size": 32, "scale_format": "e8m0"},
    "quark.PerBlockMXDiffsObserver": {"ch_axis": 1, "group_size": 32},
    "quark.PerBlockBFPObserver": {"ch_axis": 1, "group_size": 8},
}


def test_presets():
    presets = qobs.presets()
    assert {f"{family}.{name}" for family, names in PRESETS.items() for name in names.split()} <= set(presets)
    assert all(presets.values())


@pytest.mark.parametrize("preset", qobs.presets())
def test_settings(preset):
    """The defaults are what a new configuration has, and can be given back."""
    described = qobs.settings(preset)
    needed = NEEDED.get(preset, {})
    expected = {k: s.default for k, s in described.items()}
    assert {**expected, **needed} == qobs.Observer(preset, **needed).settings
    for s in described.values():
        assert s.help and (s.words or s.min <= s.max)
        assert s.kind in ("word", "bool", "integer", "real", "axes", "pair", "own_name")


@pytest.mark.parametrize("preset", NEEDED)
def test_settings_without_default(preset):
    for key in NEEDED[preset]:
        others = {k: value for k, value in NEEDED[preset].items() if k != key}
        with pytest.raises(qobs.InvalidArgumentError, match=key):
            qobs.Observer(preset, **others)


def test_settings_of_every_type():
    s = qobs.Observer("llmc.memoryless_minmax num_bits=4", group_size=np.int64(64), symmetric=False,
                      strategy="group").settings
    assert (s["num_bits"], s["group_size"], s["symmetric"], s["strategy"]) == (4, 64, False, "group")
    s = qobs.Observer("llmc.memoryless_minmax", strategy="block", block_structure=[16, 32]).settings
    assert s["block_structure"] == [16, 32]
    assert qobs.Observer("llmc.memoryless_minmax num_bits=4", num_bits=None).settings["num_bits"] == 8


def test_minmax():
    for axes in (None, 0, -1, (0, 1), [1, 0], ()):
        kept = {a % 2 for a in ([] if axes is None else np.atleast_1d(axes).astype(int))}
        others = tuple({0, 1} - kept)
        low, high = qobs.minmax(X, axes)
        assert np.array_equal(low, X.min(axis=others)) and np.array_equal(high, X.max(axis=others)), axes
    assert np.array_equal(qobs.minmax(X[0, ::2], 0).min, X[0, ::2])
    low, high = qobs.minmax(X, config=INT4)
    assert np.array_equal(low, X.reshape(32, 2, 128).min(axis=2))
    assert np.array_equal(high, X.reshape(32, 2, 128).max(axis=2))


def test_minmax_g_idx():
    g_idx = np.arange(256, dtype=np.int32) % 2
    low, _ = qobs.minmax(X, config=INT4, g_idx=g_idx)
    assert np.array_equal(low, np.stack([X[:, 0::2].min(axis=1), X[:, 1::2].min(axis=1)], axis=1))


def test_minmax_nonfinite():
    x = np.array([[1, np.nan], [np.inf, 2]], np.float32)
    with pytest.raises(qobs.NonfiniteError, match="1 NaN and 1 infinite") as e:
        qobs.minmax(x)
    assert e.value.status == -4 and isinstance(e.value, ValueError)
    assert qobs.minmax(x, nonfinite="ignore") == (1, 2)
    assert qobs.minmax(x, 0, nonfinite="ignore").max.tolist() == [1, 2]
    assert np.isnan(qobs.minmax(x, nonfinite="propagate").min)


def test_minmax_errors():
    with pytest.raises(qobs.InvalidArgumentError, match="axes"):
        qobs.minmax(X, 2)
    with pytest.raises(qobs.InvalidArgumentError, match="axes"):
        qobs.minmax(X, -3)
    with pytest.raises(qobs.InvalidArgumentError, match="axes"):
        qobs.minmax(X, 0, config=INT4)
    with pytest.raises(TypeError, match="config"):
        qobs.minmax(X, num_bits=4)
    with pytest.raises(qobs.InvalidArgumentError, match="nonfinite"):
        qobs.minmax(X, nonfinite="perhaps")


def test_histogram():
    h = qobs.histogram(X, 64, (-4, 4))
    counts, _ = np.histogram(X, 64, (-4, 4))  # widths are a power of two: no element lies between two rules
    assert np.array_equal(h.counts, counts) and h.counts.dtype == np.int64
    assert np.array_equal(h.bin_edges, np.linspace(-4, 4, 65, dtype=np.float32))
    h = qobs.histogram(X, 100)
    assert h.counts.sum() == X.size and (h.first_edge, h.last_edge) == (X.min(), X.max())
    h = qobs.histogram(np.array([0, 0, -2, 1], np.float32), 2, magnitude=True, skip_zeros=True)
    assert h.counts.tolist() == [1, 1] and (h.first_edge, h.last_edge) == (1, 2)


def test_histogram_of_groups():
    h = qobs.histogram(X, 8, config=INT4)
    assert h.counts.shape == (32, 2, 8) and (h.counts.sum(axis=2) == 128).all()
    assert np.array_equal(h.first_edge, X.reshape(32, 2, 128).min(axis=2))
    with pytest.raises(ValueError, match="several"):
        h.bin_edges


@pytest.mark.parametrize("bins", [0, -1, (1 << 24) + 1])
def test_histogram_errors(bins):
    with pytest.raises(qobs.InvalidArgumentError, match="bins"):
        qobs.histogram(X, bins)


def test_search_is_the_observer():
    config = "llmc.memoryless_mse num_bits=4 group_size=128"
    s = qobs.search(X, config)
    o = qobs.Observer(config, base_name="weight").observe(X)
    assert np.array_equal(s.min, o.results["min_vals"]) and np.array_equal(s.max, o.results["max_vals"])
    assert s.report == o.search_report() and s.report.error < s.report.error_before
    assert s.best_step.dtype == np.int32 and s.errors.shape == s.min.shape
    assert s.errors.sum() == pytest.approx(s.report.error)


def test_search_importance():
    weights = np.ones(256, np.float32)
    weights[:128] = 0
    weights[3] = 100
    s = qobs.search(X, "llmc.memoryless_mse num_bits=4 group_size=128", importance=weights)
    assert s.report.weighted
    with pytest.raises(TypeError, match="importance"):
        qobs.search(X, importance=weights[::2])
    with pytest.raises(qobs.InvalidArgumentError, match="importance"):
        qobs.search(X, "llmc.memoryless_mse num_bits=4 group_size=128", importance=weights[:5])


def test_fake_quantize():
    scale, zero_point, global_scale = qobs.qparams_from_tensor(X, INT4)
    assert global_scale is None
    out = qobs.fake_quantize(X, INT4, scale, zero_point)
    s = np.repeat(scale, 128, axis=1)
    assert np.array_equal(out, np.clip(np.round(X / s), -8, 7).astype(np.float32) * s)
    assert np.array_equal(qobs.fake_quantize(X.T.copy().T, INT4, scale, zero_point), out)
    with pytest.raises(qobs.InvalidArgumentError, match="format"):
        qobs.fake_quantize(X, INT4, scale, format="fp99")
    with pytest.raises(qobs.InvalidArgumentError, match="scale"):
        qobs.fake_quantize(X, INT4, scale[:3])


def test_global_scale():
    config = "llmc.memoryless_minmax num_bits=4 type=float strategy=tensor_group group_size=16"
    scale, _, global_scale = qobs.qparams_from_tensor(X, config)
    assert global_scale.size == 1 and scale.shape == (32, 16)
    out = qobs.fake_quantize(X, config, scale, global_scale=global_scale)
    assert np.abs(out - X).max() < np.abs(X).max() / 4
    assert np.array_equal(out, qobs.fake_quantize(X, config, scale, global_scale=float(global_scale.item())))
    with pytest.raises(TypeError, match=r"global_scale: has shape \[2\]"):
        qobs.fake_quantize(X, config, scale, global_scale=np.ones(2, np.float32))


def test_range_finders():
    h = qobs.histogram(X, 2048, magnitude=True, range=(0, float(np.abs(X).max())))
    modelopt = "modelopt.HistogramCalibrator"
    p = qobs.range_by_percentile(h, config=modelopt, percentile=99)
    assert p.min == -p.max and np.quantile(np.abs(X), 0.99) == pytest.approx(p.max, rel=0.01)
    wider = qobs.range_by_percentile(h.counts, h.bin_edges, config=modelopt, percentile=99.9)
    assert wider.max > p.max
    for r in (qobs.range_by_mse(h, config=modelopt, stride=8), qobs.range_by_entropy(h, stride=8)):
        assert 0 < r.max <= h.last_edge * (1 + 1e-6) and r.score >= 0
    r = qobs.range_by_l2_norm(qobs.histogram(X, 2048))
    assert X.min() <= r.min < 0 < r.max <= X.max()
    with pytest.raises(qobs.InvalidArgumentError, match="percentile"):
        qobs.range_by_percentile(h, config=modelopt, percentile=101)
    with pytest.raises(TypeError, match="bin_edges"):
        qobs.range_by_mse(h.counts, config=modelopt)


def test_compute_qparams_is_an_observer():
    o = qobs.Observer(INT4, base_name="weight").observe(X)
    q = qobs.qparams_from_tensor(X, "llmc.memoryless_minmax", num_bits=4, group_size=128)
    assert np.array_equal(q.scale, o.scale) and np.array_equal(q.zero_point, o.zero_point)


def test_settings_text_round_trip():
    """A described setting can be set: words one by one, numbers at their limits."""
    for preset in qobs.presets():
        for s in qobs.settings(preset).values():
            for value in [*s.words, None] if s.words else [s.default, None]:
                try:
                    qobs.Observer(preset, **{**NEEDED.get(preset, {}), s.key: value})
                except qobs.InvalidArgumentError as e:  # another setting contradicts, as the message says
                    assert s.key in str(e) or any(k in str(e) for k in qobs.settings(preset))


def test_threads_give_the_same_bits(monkeypatch):
    weight = np.random.default_rng(0).standard_normal((256, 512), dtype=np.float32)

    def results():
        found = qobs.search(weight, num_bits=4, group_size=64)
        observer = qobs.Observer("torch.HistogramObserver").observe(weight).observe(3 * weight)
        return [found.min, found.max, *qobs.minmax(weight, 0),
                                                   qobs.histogram(weight).counts, observer.results["histogram"]]
    one = results()
    started = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda t: (started.append(t), start(t)))
    assert qobs.set_threads(3) == 1
    try:
        three = results()
        assert pickle.loads(pickle.dumps(qobs.Observer("llmc.minmax").observe(weight))).counts().batches == 1
    finally:
        assert qobs.set_threads(1) == 3
    assert started and all(a.tobytes() == b.tobytes() for a, b in zip(one, three, strict=True))
    assert not any(t.is_alive() for t in started)


@pytest.mark.parametrize("most", [0, 1])
def test_threads_that_cannot_start(monkeypatch, most):
    """A limit of processes stops threads from starting. Those that run do all the work."""
    weight = np.random.default_rng(1).standard_normal((1024, 4096), dtype=np.float32)
    one = qobs.minmax(weight, 0)
    start, started = threading.Thread.start, []

    def limited(thread):
        if len(started) >= most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)
    monkeypatch.setattr(threading.Thread, "start", limited)
    qobs.set_threads(8)
    try:
        eight = qobs.minmax(weight, 0)
    finally:
        qobs.set_threads(1)
    assert len(started) == most
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, eight, strict=True))


CUT = "llmc.minmax\0num_bits=99"


@pytest.mark.parametrize("call", [
    lambda: qobs.Observer(CUT),
    lambda: qobs.Observer("llmc.minmax", strategy="tensor\0"),
    lambda: qobs.Observer("llmc.minmax", **{"strategy\0": "tensor"}),
    lambda: qobs.Observer("llmc.minmax").observe(np.ones((2, 2), np.float32)).read("scale\0"),
    lambda: qobs.settings("llmc.minmax\0"),
    lambda: qobs.fake_quantize(np.ones((2, 2), np.float32), "llmc.minmax", np.ones(1, np.float32), format="int8\0"),
    lambda: qobs.quantize("model\0", "out", "W4A16"),
    lambda: qobs.quantize("model", "out", "W4A16\0"),
    lambda: qobs.quantize("model", "out", "W4A16", ignore=["lm_head\0x"]),
    lambda: qobs.audit("out\0"),
])
def test_texts_are_not_cut(call):
    with pytest.raises(qobs.InvalidArgumentError, match="U[+]0000"):
        call()


@pytest.mark.parametrize("call", [lambda h, **s: qobs.range_by_mse(h, config="modelopt.HistogramCalibrator", **s),
                                  qobs.range_by_entropy])
def test_searches_begin_at_bin_128(call):
    """As compute_amax of Model-Optimizer. With this stride the first candidate is the only one."""
    h = qobs.histogram(np.abs(X), 2048)
    found = [call(h, stride=2048, **start) for start in ({}, {"start_bin": 128}, {"start_bin": 129})]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("call", [
    lambda n: qobs.Observer("torch.HistogramObserver").set_histogram(np.ones(2048, np.float32), max=1.0, batches=n),
    lambda n: qobs.histogram(np.ones(4, np.float32), n),
    lambda n: qobs.range_by_mse(np.ones(2048, np.float32), np.arange(2049, dtype=np.float32),
                                config="modelopt.HistogramCalibrator", stride=n),
    lambda n: qobs.range_by_entropy(np.ones(2048, np.float32), np.arange(2049, dtype=np.float32), start_bin=n),
    lambda n: qobs.quantize("model", "out", "W4A16", part=(n, 2)),
])
@pytest.mark.parametrize("number", [-1, (1 << 64) + 1, 10**400])
def test_integers_do_not_wrap(call, number):
    with pytest.raises(qobs.InvalidArgumentError, match="allowed are"):
        call(number)


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", 1 << 40])
def test_numbers_of_threads(count):
    with pytest.raises(qobs.InvalidArgumentError, match="threads"):
        qobs.set_threads(count)
    assert qobs.set_threads(1) == 1
