# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Many threads at once: the same numbers as one after another. Threads switch after every few bytecodes here; a
free-threaded Python runs them at the same time."""
import concurrent.futures
import copy
import ctypes
import pickle
import sys
import sysconfig
import threading

import pytest
import libqobs as qobs
from dropin_tools import bits, served
from libqobs import _library as c
from libqobs import _tensor

numpy = pytest.importorskip("numpy")
THREADS, ROUNDS = 16, 40
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.fixture(autouse=True)
def quick_switches():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def batch(i, n=256):
    return numpy.random.default_rng(i).standard_normal((3, n)).astype(numpy.float32)


def together(work, threads=THREADS):
    """Results of work(0) ... work(threads - 1), which begin at the same time."""
    barrier = threading.Barrier(threads)

    def run(i):
        barrier.wait()
        return work(i)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


def test_one_observer_sees_every_batch():
    observer = qobs.Observer("torch.MinMaxObserver")
    together(lambda i: [observer.observe(batch(ROUNDS * i + k)) for k in range(ROUNDS)])
    everything = numpy.concatenate([batch(i) for i in range(THREADS * ROUNDS)])
    assert observer.counts().batches == THREADS * ROUNDS and observer.counts().elements == everything.size
    assert (observer.read("min_val"), observer.read("max_val")) == (everything.min(), everything.max())


class Meeting:
    """An executor for a block. Calls of the C library that use it wait until `parties` of them are inside at once;
    met: whether they were, for each call."""

    def __init__(self, monkeypatch, parties, timeout):
        self.met, self._barrier = [], threading.Barrier(parties, timeout=timeout)
        self._function = c.CALLBACKS["parallel_for"](self._parallel_for)
        self._executor = c.Executor(ctypes.sizeof(c.Executor), 2, self._function, None)
        self._runtime = c.Runtime(ctypes.sizeof(c.Runtime), None, ctypes.addressof(self._executor))
        monkeypatch.setattr(c, "runtime", ctypes.addressof(self._runtime))

    def _parallel_for(self, context, task, argument, count):
        try:
            self._barrier.wait()
            self.met.append(True)
        except threading.BrokenBarrierError:
            self.met.append(False)
        for i in range(count):
            task(argument, i)


LARGE = 1 << 20


@pytest.mark.parametrize("work", [
    lambda x: bits(qobs.minmax(x)), lambda x: bits(qobs.histogram(x, 64, (-3, 3)).counts),
    lambda x: bits(qobs.qparams_from_tensor(x, "llmc.memoryless_minmax strategy=channel")[:2])])
def test_calls_are_in_the_library_at_the_same_time(work, monkeypatch):
    """Every call waits in C for the one of another thread, and would wait in vain if a lock kept that out."""
    arrays = [batch(i, LARGE // 3) for i in range(4)]
    wanted = [work(x) for x in arrays]
    meeting = Meeting(monkeypatch, 4, 60)
    assert together(lambda i: work(arrays[i]), 4) == wanted
    assert len(meeting.met) >= 4 and all(meeting.met)


def test_calls_on_one_observer_wait(monkeypatch):
    """The lock of an observer lets one call into the library."""
    meeting = Meeting(monkeypatch, 2, 0.2)
    observer = qobs.Observer("torch.MinMaxObserver")
    arrays = [batch(i, LARGE // 3) for i in range(2)]
    together(lambda i: observer.observe(arrays[i]), 2)
    assert meeting.met and not any(meeting.met)
    assert observer.read("max_val") == max(x.max() for x in arrays) and observer.counts().batches == 2


FUNCTIONS = {
    "minmax": lambda x: qobs.minmax(x, 0), "histogram": lambda x: qobs.histogram(x, 50).counts,
    "search": lambda x: qobs.search(x, num_bits=4, group_size=-1)[:4],
    "qparams": lambda x: qobs.qparams_from_tensor(x, "llmc.memoryless_minmax num_bits=4 group_size=32")[:2],
    "fake_quantize": lambda x: qobs.fake_quantize(x, "torch.MinMaxObserver", 0.03 + 0 * x[0, :1], 0 * x[0, :1]),
    "percentile": lambda x: qobs.range_by_percentile(qobs.histogram(abs(x), 200), config="modelopt.HistogramCalibrator",
                                                     percentile=99.0),
    "entropy": lambda x: qobs.range_by_entropy(qobs.histogram(abs(x), 200), start_bin=130),
    "l2_norm": lambda x: qobs.range_by_l2_norm(qobs.histogram(x, 64)),
    "observer": lambda x: qobs.Observer("quark.PerTensorMSEObserver").observe(x).save(),
    "error": lambda x: str(pytest.raises(qobs.InvalidArgumentError, qobs.Observer, "llmc.minmax",
                                         num_bits=x.shape[1]).value),
}


def test_functions_of_every_kind_beside_each_other():
    """Each thread calls all functions, every thread another one at the beginning."""
    names = list(FUNCTIONS)

    def work(i):
        order = names[i % len(names):] + names[:i % len(names)]
        return {name: [bits(FUNCTIONS[name](batch(i, 32 * (1 + i % 5)))) for _ in range(4)] for name in order}
    wanted = [work(i) for i in range(THREADS)]
    assert together(work) == wanted
    for name in names:
        assert len({repr(w[name]) for w in wanted}) > 4, name  # the results do differ from thread to thread


def test_shapes_are_forgotten_meanwhile():
    """The cache of shapes has a limit. If it is full, all arrays are dropped but those of views in use."""
    x = batch(0, 1024)

    def work(i):
        held = [_tensor.view(x[:, k:k + 37 * i + 1]) for k in range(3)]
        found = [bits(qobs.minmax(x[:, k:k + n])) for n in range(1 + 37 * i, 37 * i + 400) for k in (0, 3)]
        for view in held:
            shape = (ctypes.c_int64 * 2).from_address(view.tensor.shape)
            strides = (ctypes.c_int64 * 2).from_address(view.tensor.strides)
            assert (*shape, *strides) == (3, 37 * i + 1, 4096, 4)
        return found
    assert together(work) == [work(i) for i in range(THREADS)]


def test_drop_in():
    """Observers of torch, one for each thread: state and counts of calls."""
    torch = pytest.importorskip("torch")
    from libqobs import torch_ao
    from torch.ao.quantization import HistogramObserver, PerChannelMinMaxObserver

    def work(i):
        histogram, channels = HistogramObserver(bins=100), PerChannelMinMaxObserver()
        for k in range(4):
            x = torch.from_numpy(batch(10 * i + k, 4096))
            histogram(x)
            channels(x)
        return bits([histogram.state_dict(), channels.state_dict(), histogram.calculate_qparams()])
    wanted = [work(i) for i in range(4)]
    with served(torch_ao) as calls:
        assert together(work, 4) == wanted
    assert calls == {"torch.ao.HistogramObserver": 16, "torch.ao.PerChannelMinMaxObserver": 16,
                     "torch.ao.HistogramObserver._non_linear_param_search": 4}


@pytest.mark.parametrize("preset", [
    "torch.HistogramObserver", "llmc.memoryless_minmax num_bits=4 group_size=16 base_name=weight",
    "modelopt.HistogramCalibrator"])
def test_observers_are_independent(preset):
    def work(i):
        observer = qobs.Observer(preset)
        for k in range(ROUNDS // 4):
            observer.observe(batch(ROUNDS * (i % 4) + k))
        return observer.save()
    states = together(work)
    assert states == [work(i) for i in range(THREADS)] and len(set(states)) == 4


def test_functions_keep_their_tensors_apart():
    """minmax uses its structures again, so that two threads must not get the same ones."""
    arrays = [batch(i, 100 + 7 * i) for i in range(THREADS)]
    tensors = arrays
    torch = sys.modules.get("torch")
    if torch is not None:
        tensors = [torch.from_numpy(a) for a in arrays]

    def work(i):
        return [[qobs.minmax(x[i]), qobs.minmax(x[i], 0), qobs.search(x[i], num_bits=4, group_size=-1).min] for x in (
            arrays, tensors) for _ in range(ROUNDS)]
    for i, rounds in enumerate(together(work)):
        for (low, high), (lows, highs), found in rounds:
            assert (float(low), float(high)) == (arrays[i].min(), arrays[i].max())
            assert numpy.array_equal(lows, arrays[i].min(1)) and numpy.array_equal(highs, arrays[i].max(1))
            assert numpy.array_equal(found, rounds[0][2])


def test_readers_beside_writers():
    """Whoever reads gets a state between two batches."""
    observer = qobs.Observer("torch.HistogramObserver", bins=64)
    observer.observe(batch(0))

    def work(i):
        for k in range(ROUNDS):
            if i % 4 == 0:
                observer.observe(batch(k))
            elif i % 4 == 1:
                loaded = qobs.Observer.load(observer.save())
                total = loaded.read("histogram").sum(dtype="f8")  # growing spreads counts over bins in float
                assert abs(total - loaded.counts().elements) < 1 and loaded.counts().elements % batch(0).size == 0
            elif i % 4 == 2:
                assert copy.copy(observer).counts().elements % batch(0).size == 0
            else:
                assert pickle.loads(pickle.dumps(observer)).qparams().scale > 0
    together(work)
    assert observer.counts().batches == 1 + ROUNDS * THREADS // 4


def test_merges_in_both_directions():
    a, b = (qobs.Observer("torch.MinMaxObserver").observe(batch(i)) for i in range(2))
    together(lambda i: (a.merge(b) if i % 2 else b.merge(a)))
    assert a.read("min_val") == b.read("min_val") == min(batch(0).min(), batch(1).min())


def test_threads_of_a_call_change_meanwhile():
    wanted = qobs.minmax(batch(0, 200_000))
    before = qobs.set_threads(1)
    try:
        def work(i):
            for k in range(ROUNDS // 4):
                qobs.set_threads(1 + (i + k) % 3)
                assert qobs.minmax(batch(0, 200_000)) == wanted
        together(work, 4)
    finally:
        qobs.set_threads(before)


@pytest.mark.skipif(not FREE_THREADED, reason="a Python with a GIL")
def test_the_gil_stays_disabled():
    """The package has no extension module, whose import could enable it."""
    import subprocess
    subprocess.run([sys.executable, "-c", "import libqobs, sys; assert not sys._is_gil_enabled()"], check=True)
