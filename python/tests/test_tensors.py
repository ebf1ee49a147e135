# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Inputs of every library, in place, and results in the framework of the input."""
import array
import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import libqobs as qobs
from libqobs import _tensor

ml_dtypes = pytest.importorskip("ml_dtypes")
RNG = np.random.default_rng(23)
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
CONFIG = "llmc.memoryless_minmax strategy=channel base_name=weight"


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_numpy_dtypes(dtype):
    x = RNG.standard_normal((5, 33)).astype(dtype)
    low, high = qobs.minmax(x, 0)
    assert same(low, x.min(axis=1)) and same(high, x.max(axis=1))
    assert low.dtype == dtype


def layouts(x):
    yield "transposed", x.T
    yield "reversed", x[::-1, ::-1]
    yield "stepped", x[1::3, ::2]
    yield "broadcast", np.broadcast_to(x[:1], (4, x.shape[1]))
    yield "column", x[:, 3:4]
    yield "permuted", x.reshape(6, 4, -1).transpose(2, 0, 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_numpy_strides(dtype):
    x = RNG.standard_normal((24, 64)).astype(dtype)
    for name, v in layouts(x):
        others = tuple(range(1, v.ndim))
        low, high = qobs.minmax(v, 0)
        assert same(low, v.min(axis=others)), name
        assert same(high, v.max(axis=others)), name
        assert _tensor.view(v).tensor.data == v.__array_interface__["data"][0], "a copy"


def test_unaligned():
    raw = bytearray(4 * 9 + 1)
    x = np.frombuffer(raw, np.float32, 9, 1)
    x[:] = range(9)
    assert qobs.minmax(x).max == 8


def test_scalar_and_empty():
    assert qobs.minmax(np.float32(3)).min == 3
    assert qobs.minmax(np.array(-2.5)).max.shape == ()
    with pytest.raises(qobs.NoDataError):
        qobs.minmax(np.zeros((0, 3), np.float32))
    o = qobs.Observer(CONFIG).observe(np.zeros((0, 3), np.float32))
    assert o.counts().batches == 0


def test_nine_dimensions():
    with pytest.raises(qobs.InvalidArgumentError, match="8"):
        qobs.minmax(np.zeros((1,) * 9, np.float32))


@pytest.mark.parametrize("x", [np.zeros(3, ">f4"), np.zeros(3, np.complex64), np.zeros(3, np.uint16), np.array(["a"])])
def test_numpy_dtypes_refused(x):
    with pytest.raises(TypeError, match="dtype"):
        qobs.minmax(x)


@pytest.mark.parametrize("x", [None, 3, "text", [1.0, 2.0], b"bytes", array.array("I", [1])])
def test_no_tensor(x):
    with pytest.raises(TypeError, match="^x: is "):
        qobs.minmax(x)


def test_integers_are_refused_by_the_library():
    with pytest.raises(qobs.InvalidArgumentError, match="^x: dtype is I32"):
        qobs.minmax(np.zeros(3, np.int32))


def test_bfloat16_results_have_ml_dtypes():
    x = RNG.standard_normal((4, 8)).astype(ml_dtypes.bfloat16)
    assert qobs.Observer(CONFIG).observe(x).scale.dtype == ml_dtypes.bfloat16


def test_temporaries_live():
    """The view of an expression holds it: nothing reads memory that has been released."""
    for _ in range(50):
        x = RNG.standard_normal((64, 512)).astype(np.float32)
        want = (x * 2).max(axis=1)
        v = _tensor.view(x * 2)
        junk = [np.full((64, 512), 1e30, np.float32) for _ in range(3)]
        assert same(qobs.minmax(np.asarray(v.owner), 0).max, want)
        assert same(qobs.minmax(x * 2, 0).max, want)
        del junk


def test_no_reference_stays():
    class Array(np.ndarray):
        pass

    x = np.ones((4, 4), np.float32).view(Array)
    o = qobs.Observer(CONFIG).observe(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None and o.scale.shape == (4, 1)


# Buffers

def test_buffers():
    x = RNG.standard_normal((6, 10)).astype(np.float32)
    m = memoryview(x)
    assert same(qobs.minmax(m, 0).min, x.min(axis=1))
    assert same(qobs.minmax(memoryview(x[::-2, ::3]), 1).max, x[::-2, ::3].max(axis=0))
    a = array.array("d", [3, -7, 2])
    assert qobs.minmax(a) == (-7, 3)
    a.append(1.0)  # the buffer has been released
    assert qobs.minmax(m.toreadonly()).min == x.min()


def test_without_numpy_and_torch(root):
    """Another process, in which neither can be imported: results are memoryviews."""
    p = subprocess.run([sys.executable, str(root / "python" / "tests" / "plain.py")], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    assert p.stdout == "[]\n"


def test_import_is_light():
    code = "import libqobs, sys; print([m for m in ('numpy', 'torch', 'ml_dtypes') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(("code", "dtype"), [(_tensor.BF16, ml_dtypes.bfloat16), (_tensor.F16, np.float16),
                                             (_tensor.F8_E4M3, ml_dtypes.float8_e4m3fn)])
def test_widened(code, dtype):
    """A framework without the dtype gets the numbers of every code as float32."""
    size = np.dtype(dtype).itemsize
    codes = np.arange(1 << 8 * size, dtype=f"u{size}")
    want = codes.view(dtype).astype(np.float32)
    got = np.frombuffer(_tensor._widen(codes.tobytes(), code), np.float32)
    assert np.array_equal(got, want, equal_nan=True)


# DLPack

class Packed:
    """An object that is nothing but DLPack."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **kwargs):
        return self.x.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class OnOtherDevice(Packed):
    def __dlpack_device__(self):
        return (2, 0)


def test_dlpack():
    x = RNG.standard_normal((6, 10)).astype(np.float32)
    for v in (x, x.T, x[::2, 1::3], x[:, :1], np.float64(x)):
        got = qobs.minmax(Packed(v), 0)
        assert same(got.min, v.min(axis=1)) and isinstance(got.min, np.ndarray)
    with pytest.raises(TypeError, match="device"):
        qobs.minmax(OnOtherDevice(x))
    with pytest.raises(TypeError, match="DLPack"):
        qobs.minmax(Packed(np.zeros(3, np.uint8)))


def test_dlpack_releases():
    x = np.ones((8, 8), np.float32)
    before = sys.getrefcount(x)
    for _ in range(10):
        qobs.minmax(Packed(x))
    assert sys.getrefcount(x) == before


# torch


@pytest.fixture
def t():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_torch(t, dtype):
    x = t.from_numpy(RNG.standard_normal((24, 64))).to(getattr(t, dtype))
    views = [x, x.t(), x[1::3, ::2], x[:1].expand(4, -1), x.reshape(6, 4, -1).permute(2, 0, 1), t.nn.Parameter(x)]
    for v in views:
        others = tuple(range(1, v.ndim))
        low, high = qobs.minmax(v, 0)
        assert low.dtype == x.dtype and not low.requires_grad
        assert t.equal(low, v.detach().amin(others)) and t.equal(high, v.detach().amax(others))
        assert _tensor.view(v).tensor.data == v.data_ptr(), "a copy"


def test_torch_is_numpy(t):
    x = RNG.standard_normal((16, 256)).astype(np.float32)
    config = "llmc.memoryless_minmax num_bits=4 group_size=128"
    a, b = qobs.qparams_from_tensor(x, config), qobs.qparams_from_tensor(t.from_numpy(x).requires_grad_(), config)
    assert same(a.scale, b.scale.numpy()) and same(a.zero_point, b.zero_point.numpy())


def test_torch_bfloat16_scales(t):
    x = t.randn(4, 8, dtype=t.bfloat16)
    o = qobs.Observer(CONFIG).observe(x)
    assert o.scale.dtype == t.bfloat16 and o.scale.shape == (4, 1)
    assert o.observe(x.float().numpy()[:0]) is o  # an empty one of another dtype is ignored


def test_torch_negative_bit(t):
    x = t.complex(t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0])).conj().imag
    assert x.is_neg() and qobs.minmax(x) == (-4, -3)


@pytest.mark.parametrize("make", [lambda t: t.zeros(3, device="meta"), lambda t: t.zeros(3, 3).to_sparse(),
                                  lambda t: t.zeros(3, dtype=t.complex64), lambda t: t.zeros(3, dtype=t.bool)])
def test_torch_refused(t, make):
    with pytest.raises(TypeError, match="^x: is a torch tensor"):
        qobs.minmax(make(t))


def test_torch_settings(t):
    s = qobs.Observer("torch.MinMaxObserver", dtype=t.qint8, qscheme=t.per_tensor_symmetric).settings
    assert s["dtype"] == "qint8" and s["qscheme"] == "per_tensor_symmetric"


def test_torch_storage_without_bytes():
    """Sharded parameters keep their shape when their memory is given back."""
    torch = pytest.importorskip("torch")
    x = torch.ones(64, 64)[8:]
    x.untyped_storage().resize_(0)
    with pytest.raises(qobs.InvalidArgumentError, match="0 bytes"):
        qobs.minmax(x)
