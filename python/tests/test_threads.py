# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Many threads at once: the same numbers as one after another. Threads switch after every few bytecodes here; a
free-threaded Python runs them at the same time."""
import concurrent.futures
import copy
import pickle
import sys
import sysconfig
import threading

import pytest
import qobs

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
    subprocess.run([sys.executable, "-c", "import qobs, sys; assert not sys._is_gil_enabled()"], check=True)
