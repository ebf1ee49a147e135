# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
import copy
import pickle
import threading

import numpy as np
import pytest
import libqobs as qobs

RNG = np.random.default_rng(25)
BATCHES = [RNG.standard_normal((8, 96)).astype(np.float32) * (1 + i) for i in range(4)]
PRESETS = {
    "torch.MinMaxObserver": {},
    "torch.HistogramObserver": {},
    "torch.MovingAveragePerChannelMinMaxObserver": {"ch_axis": 1},
    "llmc.minmax": {"base_name": "input", "strategy": "tensor"},
    "llmc.static_minmax": {"base_name": "input", "strategy": "tensor"},
    "llmc.memoryless_mse": {"base_name": "weight", "num_bits": 4, "group_size": 32},
    "modelopt.MaxCalibrator": {},
}
EACH = pytest.mark.parametrize(("preset", "settings"), PRESETS.items(), ids=PRESETS)


def observed(preset, settings, batches=BATCHES):
    o = qobs.Observer(preset, **settings)
    for x in batches:
        o.observe(x)
    return o


def results(o):
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in o.results.items()}


@EACH
def test_copies(preset, settings):
    """Saved, pickled and copied observers have the state, and go on in the same way."""
    o = observed(preset, settings, BATCHES[:2])
    others = [qobs.Observer.load(o.save()), pickle.loads(pickle.dumps(o)), copy.copy(o), copy.deepcopy(o)]
    for x in others:
        assert results(x) == results(o) and x.counts() == o.counts() and x.settings == o.settings
        assert x.save() == o.save() and repr(x) == repr(o)
    for x in [o, *others]:
        for batch in BATCHES[2:]:
            x.observe(batch)
    assert all(x.save() == o.save() for x in others)


@EACH
def test_reset(preset, settings):
    o = observed(preset, settings)
    o.reset()
    assert o.counts() == (0,) * 7 and o.save() == qobs.Observer(preset, **settings).save()
    for x in BATCHES:
        o.observe(x)
    assert results(o) == results(observed(preset, settings))


def test_results():
    o = observed("torch.MinMaxObserver", {})
    every = np.concatenate(BATCHES)
    assert set(o.results) >= {"min_val", "max_val", "scale", "zero_point"} and len(o.results) == len(list(o.results))
    assert o.results["min_val"] == every.min() and o.results["max_val"] == every.max()
    assert "nothing" not in o.results and o.results.get("nothing") is None
    with pytest.raises(KeyError):
        o.results["nothing"]
    q = o.qparams()
    assert q.scale == o.scale and q.zero_point == o.zero_point and q.global_scale is None
    assert o.preset == "torch.MinMaxObserver" and o.settings["dtype"] == "quint8"


def test_counts():
    o = observed("torch.MinMaxObserver", {"nonfinite": "ignore"})
    c = o.observe(np.array([np.nan, 1, np.inf], np.float32)).counts()
    assert (c.batches, c.elements, c.nan, c.inf) == (5, 4 * 8 * 96 + 3, 1, 1)
    o = observed("llmc.memoryless_minmax", {"base_name": "weight"})
    assert o.counts().ignored == 3


def test_errors_change_nothing():
    o = observed("torch.HistogramObserver", {})
    before = o.save()
    with pytest.raises(qobs.NonfiniteError):
        o.observe(np.array([1, np.nan], np.float32))
    with pytest.raises(qobs.Error):
        o.observe(np.zeros(3, np.int32))
    with pytest.raises(TypeError):
        o.observe([1.0])
    assert o.save() == before


@pytest.mark.parametrize(("make", "error", "words"), [
    (lambda: qobs.Observer("nobody.knows"), qobs.InvalidArgumentError, "nobody.knows"),
    (lambda: qobs.Observer("llmc.minmax", bits=4), qobs.InvalidArgumentError, "bits"),
    (lambda: qobs.Observer("llmc.minmax", num_bits=99), ValueError, "allowed are integers from 2 to 16"),
    (lambda: qobs.Observer("llmc.minmax num_bits"), qobs.InvalidArgumentError, "num_bits"),
    (lambda: qobs.Observer(3), TypeError, "preset"),
    (lambda: qobs.Observer("llmc.minmax").scale, qobs.NoDataError, "nothing has been observed"),
    (lambda: qobs.Observer("llmc.minmax").search_report(), qobs.InvalidArgumentError, "does not search"),
    (lambda: qobs.Observer("llmc.mse").search_report(), qobs.NoDataError, "."),
    (lambda: qobs.Observer.load(b"no state"), qobs.InvalidArgumentError, "."),
    (lambda: qobs.Observer("torch.MinMaxObserver").merge([qobs.Observer("torch.HistogramObserver")]), qobs.Error, "."),
])
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_error_classes():
    classes = [qobs.InvalidArgumentError, qobs.UnsupportedError, qobs.OutOfMemoryError, qobs.NonfiniteError,
               qobs.NoDataError, qobs.NoResultError]
    assert [e.status for e in classes] == list(range(-1, -7, -1)) and all(issubclass(e, qobs.Error) for e in classes)


def test_merge():
    whole = observed("torch.HistogramObserver", {})
    a, b = observed("torch.MinMaxObserver", {}, BATCHES[:2]), observed("torch.MinMaxObserver", {}, BATCHES[2:])
    a.merge(b)
    assert results(a) == results(observed("torch.MinMaxObserver", {}))
    h = observed("torch.HistogramObserver", {}, BATCHES[:2])
    h.merge([observed("torch.HistogramObserver", {}, BATCHES[2:]), qobs.Observer("torch.HistogramObserver")])
    assert h.results["histogram"].sum() == pytest.approx(whole.results["histogram"].sum())
    assert h.counts().batches == 4


def test_merged_at_once_from_both_sides():
    a, b = observed("torch.MinMaxObserver", {}), observed("torch.MinMaxObserver", {})
    threads = [threading.Thread(target=lambda x=x, y=y: [x.merge(y) for _ in range(200)]) for x, y in ((a, b), (b, a))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads) and results(a) == results(b)


def test_set_histogram():
    o = observed("torch.HistogramObserver", {})
    p = qobs.Observer("torch.HistogramObserver")
    p.set_histogram(o.results["histogram"], min=o.results["min_val"].item(), max=o.results["max_val"].item(), batches=4)
    assert p.scale == o.scale and p.zero_point == o.zero_point and p.counts().batches == 4
    h = qobs.histogram(BATCHES[0], 2048)
    p.set_histogram(h)
    assert p.results["max_val"] == BATCHES[0].max() and np.array_equal(p.results["histogram"], h.counts)
    with pytest.raises(qobs.InvalidArgumentError):
        p.set_histogram(h.counts, np.zeros(3, np.float32))


def test_importance():
    settings = {"num_bits": 4, "group_size": 32, "base_name": "weight"}
    o = qobs.Observer("llmc.imatrix_mse", **settings).observe_importance(np.abs(BATCHES[1])).observe(BATCHES[0])
    assert o.search_report().weighted
    o = qobs.Observer("llmc.imatrix_mse", **settings).observe(BATCHES[0])
    assert not o.search_report().weighted and o.search_report().fallback


def test_reference_amax():
    o = qobs.Observer("modelopt.MseCalibrator")
    o.set_reference_amax(np.array(3.0, np.float32))
    o.observe(BATCHES[0])
    assert "amax" in o.results
    with pytest.raises(qobs.InvalidArgumentError):
        o.set_reference_amax(np.array(3.0, np.float32))


@pytest.mark.parametrize("preset,settings,block", [
    ("modelopt.MseCalibrator", {"num_bits": 4, "axis": [0], "hessian_block_size": 16}, 16),
    ("modelopt.NVFP4MSECalibrator", {"hessian_block_size": 8}, 8),
    ("qobs.local_hessian", {"num_bits": 4, "group_size": 32}, 32)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_hessian(preset, settings, block, dtype):
    """The Hessian of integers is exact, and so are 64 times its entries."""
    generator = np.random.default_rng(1)
    weight = generator.normal(size=(16, 96)).astype(np.float32)
    x = generator.integers(-8, 9, (64, 96)).astype(np.float32)
    blocks = x.reshape(64, -1, block)
    hessian = (np.einsum("tni,tnj->nij", blocks, blocks) / 64).astype(dtype)
    a, b = qobs.Observer(preset, **settings), qobs.Observer(preset, **settings)
    a.observe_importance(x).observe(weight)
    b.set_hessian(hessian)
    assert pickle.loads(pickle.dumps(b)).save() == b.save()
    b.observe(weight)
    assert b.search_report().weighted and b.search_report() == a.search_report()
    name = "scale" if "scale" in a.results else "amax"
    assert np.array_equal(a.results[name], b.results[name])
    assert b.results["hessian_count"] == 1 and np.array_equal(b.results["hessian_sum"], hessian)
    with pytest.raises(qobs.InvalidArgumentError, match="hessian comes before the first"):
        b.set_hessian(hessian)
    b.reset()
    for wrong, words in ((hessian[0], "3"), (hessian[:, 1:], "squares"), (-hessian, "diagonal"),
                         (hessian * np.nan, "nan"),
                         (hessian.astype(np.float16), "F16")):
        with pytest.raises(qobs.InvalidArgumentError, match=words):
            b.set_hessian(wrong)
    with pytest.raises(qobs.InvalidArgumentError, match="without hessian_block_size"):
        qobs.Observer("modelopt.MseCalibrator").set_hessian(hessian)


def test_fuse():
    settings = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "base_name": "weight"}
    a, b = (observed("llmc.memoryless_minmax", settings, [x]) for x in BATCHES[:2])
    assert a.qparams().global_scale != b.qparams().global_scale
    qobs.fuse([a, b])
    assert a.qparams().global_scale == b.qparams().global_scale


def test_record_tokens():
    assert qobs.Observer("llmc.minmax").record_tokens(BATCHES[0]).counts().tokens == 8


def test_threads():
    """Calls of many threads on one observer wait for each other; nothing is lost."""
    o = qobs.Observer("torch.MinMaxObserver")
    threads = [threading.Thread(target=lambda: [(o.observe(x), o.results["scale"], o.counts()) for x in BATCHES * 10])
               for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert o.counts().batches == 8 * 40 and results(o) == results(observed("torch.MinMaxObserver", {}))


def test_memory_is_released():
    """1000 observers with 2 MB of histogram each, one after the other."""
    resource = pytest.importorskip("resource")
    x = BATCHES[0]
    for i in range(1000):
        qobs.Observer("torch.HistogramObserver", bins=1 << 17).observe(x)
        if i == 20:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_subclass():
    class Mine(qobs.Observer):
        pass

    o = Mine("torch.MinMaxObserver").observe(BATCHES[0])
    assert type(copy.deepcopy(o)) is Mine and type(Mine.load(o.save())) is Mine


def test_torch_results_after_pickling():
    torch = pytest.importorskip("torch")
    o = qobs.Observer("torch.MinMaxObserver").observe(torch.ones(3))
    assert isinstance(pickle.loads(pickle.dumps(o)).scale, torch.Tensor)
    assert isinstance(qobs.Observer.load(o.save()).scale, np.ndarray)
    assert isinstance(qobs.Observer.load(o.save(), framework="torch").scale, torch.Tensor)
