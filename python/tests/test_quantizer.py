# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""qobs.Quantizer: its results are those of qparams_from_tensor and fake_quantize, in new and in given arrays."""
import copy
import mmap
import pickle
import subprocess
import sys
import threading

import pytest
import libqobs as qobs

np = pytest.importorskip("numpy")

CONFIGS = ["num_bits=8 strategy=channel", "num_bits=8 strategy=channel symmetric=false", "num_bits=4 group_size=32",
           "num_bits=8 type=float group_size=64", "num_bits=8 strategy=tensor",
           "num_bits=4 type=float group_size=32 scale_dtype=uint8"]


def matrix(rows, columns, dtype="float32"):
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(dtype)


def test_rows_of_int8():
    x = np.array([[1, -2, 0.5, 4], [0, 0, 0, 0.25]], "float32")
    codes, scale, zero_point = qobs.Quantizer("llmc.memoryless_minmax num_bits=8 strategy=channel", dtype="float32",
                                              columns=4)(x)
    assert zero_point is None and scale.shape == (2, 1)
    assert scale[:, 0].tolist() == (np.float32([4, 0.25]) / np.float32(127.5)).tolist()
    assert codes.tolist() == [[32, -64, 16, 127], [0, 0, 0, 127]]


@pytest.mark.parametrize("settings", CONFIGS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_results(settings, dtype):
    config = f"llmc.memoryless_minmax {settings}"
    x = matrix(7, 128, dtype)
    expected = qobs.qparams_from_tensor(x, config)
    got = qobs.Quantizer(config, dtype=dtype, columns=128, dequantized=True)(x)
    assert np.array_equal(got.scale.ravel(), expected.scale.ravel())
    zero_point = None
    if "symmetric=false" in settings:
        zero_point = expected.zero_point
        assert np.array_equal(got.zero_point.ravel(), zero_point.ravel())
    assert np.array_equal(got.codes, qobs.fake_quantize(x, config, expected.scale, zero_point))
    static = qobs.Quantizer(config, dtype=dtype, columns=128, dequantized=True, dynamic=False)
    assert np.array_equal(static(x, scale=got.scale, zero_point=got.zero_point).codes, got.codes)


def test_given_arrays_and_strides():
    config = "llmc.memoryless_minmax num_bits=4 group_size=32"
    wide = matrix(6, 96)
    x = wide[:, :64]
    quantizer = qobs.Quantizer(config, dtype=wide.dtype, columns=64, packed=True)
    expected = quantizer(np.ascontiguousarray(x))
    codes, scale = np.zeros((6, 32), "uint8"), np.zeros((6, 2), "float32")
    got = quantizer(x, codes=codes, scale=scale)
    assert got.codes is codes and got.scale is scale
    assert np.array_equal(codes, expected.codes) and np.array_equal(scale, expected.scale) and codes.any()
    for arguments, words in (({"codes": codes[:5]}, "codes"), ({"scale": scale.T}, "scale"),
                             ({"scale": scale.astype("float64")}, "scale")):
        with pytest.raises(qobs.InvalidArgumentError, match=words):
            quantizer(x, **arguments)


def test_dimensions_and_global_scale():
    x = matrix(12, 32)
    settings = "num_bits=4 type=float strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn"
    config = f"llmc.memoryless_minmax {settings}"
    expected = qobs.qparams_from_tensor(x, config)
    quantizer = qobs.Quantizer(config, dtype="float32", columns=32, packed=True)
    got = quantizer(x.reshape(3, 4, 32), global_scale=expected.global_scale)
    assert got.codes.shape == (3, 4, 16) and got.codes.dtype == np.uint8
    assert np.array_equal(got.scale.ravel(), expected.scale.ravel())
    with pytest.raises(qobs.InvalidArgumentError, match="global_scale"):
        quantizer(x)


def test_refusals():
    config = "llmc.memoryless_minmax num_bits=8 strategy=channel"
    quantizer = qobs.Quantizer(config, dtype="float32", columns=8)
    for x, words in ((matrix(2, 9), "columns"), (matrix(2, 8, "float64"), "float64"), (matrix(8, 2).T, "contiguous")):
        with pytest.raises(qobs.InvalidArgumentError, match=words):
            quantizer(x)
    bad = matrix(3, 8)
    bad[2, 5] = np.nan
    with pytest.raises(qobs.NonfiniteError, match=r"\[2, 5\]"):
        quantizer(bad)
    with pytest.raises(qobs.InvalidArgumentError, match="dtype"):
        qobs.Quantizer(config, dtype="int8", columns=8)
    with pytest.raises(qobs.UnsupportedError, match="dynamic"):
        qobs.Quantizer("llmc.memoryless_mse norm=2 strategy=channel", dtype="float32", columns=8)
    with pytest.raises(qobs.InvalidArgumentError, match="scale"):
        qobs.Quantizer(config, dtype="float32", columns=8, dynamic=False)(matrix(2, 8))


def test_threads():
    quantizer = qobs.Quantizer("llmc.memoryless_minmax num_bits=8 strategy=channel", dtype="float32", columns=512)
    x = matrix(64, 512)
    expected, wrong = quantizer(x), []

    def work():
        for _ in range(20):
            got = quantizer(x)
            if not (np.array_equal(got.codes, expected.codes) and np.array_equal(got.scale, expected.scale)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_torch():
    torch = pytest.importorskip("torch")
    config = "llmc.memoryless_minmax num_bits=8 type=float strategy=channel"
    x = torch.randn(5, 64).bfloat16()
    codes, scale, _ = qobs.Quantizer(config, dtype=torch.bfloat16, columns=64)(x)
    expected = qobs.qparams_from_tensor(x, config)
    assert codes.dtype == torch.float8_e4m3fn and torch.equal(scale.ravel(), expected.scale.ravel())
    assert torch.equal(codes.float().bfloat16() * scale, qobs.fake_quantize(x, config, scale))


# ---- Copies and ends -------------------------------------------------------------------------------------------------

CHANNEL = "llmc.memoryless_minmax num_bits=8 strategy=channel"


class Named(qobs.Quantizer):
    """A subclass with arguments and members of its own."""

    def __init__(self, name):
        super().__init__(CHANNEL, dtype="float32", columns=64, packed=False)
        self.name = [name]


COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda q: pickle.loads(pickle.dumps(q))}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_have_their_own_quantizer(copied):
    x = matrix(4, 64)
    for make in (lambda: qobs.Quantizer(CHANNEL, dtype="float32", columns=64),
                 lambda: qobs.Quantizer("llmc.memoryless_minmax", dtype="float32", columns=64, num_bits=4,
                                        group_size=32, packed=True), lambda: Named("a")):
        quantizer = make()
        expected = quantizer(x)
        other = copied(quantizer)
        assert type(other) is type(quantizer) and other._handle != quantizer._handle
        del quantizer
        for _ in range(3):
            got = other(x)
            assert np.array_equal(got.codes, expected.codes) and np.array_equal(got.scale, expected.scale)
    assert other.name == ["a"]


def test_copies_in_a_torch_module():
    torch = pytest.importorskip("torch")

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.quantizer = qobs.Quantizer(CHANNEL, dtype=torch.float32, columns=64)
            self.observer = qobs.Observer("llmc.minmax")
    layer = Layer()
    x = torch.randn(4, 64)
    layer.observer.observe(x)
    other = copy.deepcopy(layer)
    expected = layer.quantizer(x).codes
    del layer
    assert torch.equal(other.quantizer(x).codes, expected) and other.observer.counts().batches == 1


def test_copies_of_an_observer_of_a_subclass():
    class Own(qobs.Observer):
        def __init__(self, name):
            super().__init__("llmc.minmax")
            self.name = [name]
    observer = Own("a")
    observer.observe(matrix(2, 8))
    shallow, deep = copy.copy(observer), copy.deepcopy(observer)
    assert shallow.name is observer.name and deep.name == ["a"] and deep.name is not observer.name
    assert deep.counts().batches == 1 and type(deep) is Own


def test_a_quantizer_that_fails_to_begin_ends_in_silence():
    """No exception is ignored where the object ends; objects are usable as long as they live."""
    code = f"""
import atexit, numpy as np, libqobs as qobs
def last():
    print(q(np.ones((1, 4), "float32")).codes.tolist(), o.counts().batches)
atexit.register(last)
for arguments in ({{}}, {{"dtype": "float32"}}, {{"dtype": "f4", "columns": 4}},
                  {{"dtype": "float32", "columns": 4, "packed": "no"}}):
    for make in (lambda: qobs.Quantizer({CHANNEL!r}, **arguments), lambda: qobs.Quantizer(3, **arguments)):
        try: make()
        except (TypeError, ValueError): pass
        else: print("accepted", arguments)
for empty in (qobs.Quantizer.__new__(qobs.Quantizer), qobs.Observer.__new__(qobs.Observer)):
    del empty
try: qobs.Observer(3)
except TypeError: pass
q, o = qobs.Quantizer({CHANNEL!r}, dtype="float32", columns=4), qobs.Observer("llmc.minmax")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[[127, 127, 127, 127]] 0\n" and done.stderr == "", done


# ---- Given arrays ----------------------------------------------------------------------------------------------------

def refused(call, words):
    with pytest.raises(qobs.InvalidArgumentError, match=words):
        call()


def test_read_only_outputs_are_refused(tmp_path):
    quantizer, x = qobs.Quantizer(CHANNEL, dtype="float32", columns=64), matrix(4, 64)
    codes, scale = np.zeros((4, 64), np.int8), np.zeros((4, 1), np.float32)
    codes.setflags(write=False)
    scale.setflags(write=False)
    (tmp_path / "codes").write_bytes(bytes(256))
    mapped = np.memmap(tmp_path / "codes", np.int8, "r", shape=(4, 64))
    for given in (codes, mapped, memoryview(bytes(256)).cast("b"), memoryview(codes)):
        refused(lambda: quantizer(x, codes=given), "codes: is read-only")
    refused(lambda: quantizer(x, scale=scale), "scale: is read-only")
    assert not codes.any() and not scale.any() and not mapped.any()
    refused(lambda: quantizer(x[:1], scale=np.float32(7)), "scale: is read-only|scale: is of class")
    refused(lambda: quantizer(x, codes=3), "codes: is of class int")
    static = qobs.Quantizer(CHANNEL, dtype="float32", columns=64, dynamic=False)
    wanted = quantizer(x)
    wanted.scale.setflags(write=False)  # an input of this one
    assert np.array_equal(static(x, scale=wanted.scale).codes, wanted.codes)
    assert static(x[:1], scale=np.float32(7)).scale == 7


def test_outputs_have_the_dtype_and_the_size():
    quantizer, x = qobs.Quantizer(CHANNEL, dtype="float32", columns=64), matrix(4, 64)
    for given in (np.zeros((4, 8), np.float64), np.zeros((4, 32), np.int16), np.zeros((4, 63), np.int8),
                  np.zeros((8, 64), np.int8)[::2], np.zeros((64, 4), np.int8).T):
        refused(lambda: quantizer(x, codes=given), "codes: is .*contiguous int8 of shape")
    for given in (np.zeros((4, 1), np.float64), np.zeros(2, np.float64), np.zeros((4, 1), np.int32)):
        refused(lambda: quantizer(x, scale=given), "scale: is .*contiguous float32 of shape")
    buffer = bytearray(256)
    assert np.array_equal(np.frombuffer(buffer if quantizer(x, codes=memoryview(buffer).cast("b")) else b"", np.int8),
                          quantizer(x).codes.ravel())


def test_a_subclass_with_a_shape_of_its_own_is_taken_as_it_is():
    class Liar(np.ndarray):
        shape = property(lambda self: (4, 64))
    quantizer, x = qobs.Quantizer(CHANNEL, dtype="float32", columns=64), matrix(4, 64)
    small = np.zeros(16, np.int8).view(Liar)
    refused(lambda: quantizer(x, codes=small), r"shape \[16\]")
    refused(lambda: quantizer(np.zeros(16, np.float32).view(Liar)), "shape")
    assert qobs.minmax(np.arange(16, dtype=np.float32).view(Liar)).max == 15


def test_outputs_lie_apart():
    quantizer, x = qobs.Quantizer(CHANNEL, dtype="float32", columns=64), matrix(4, 64)
    before, raw = x.copy(), np.zeros(300, np.uint8)
    refused(lambda: quantizer(x, codes=x.view(np.int8).ravel()[:256].reshape(4, 64)), "codes: overlaps x")
    refused(lambda: quantizer(x, scale=x.reshape(-1)[:4]), "scale: overlaps x")
    refused(lambda: quantizer(x, codes=raw[:256].view(np.int8).reshape(4, 64), scale=raw[252:268].view(np.float32)),
            "scale: overlaps codes")
    assert np.array_equal(x, before) and not raw.any()
    wide = np.zeros((4, 128), np.float32)
    quantizer(wide[:, :64], codes=raw[:256].view(np.int8).reshape(4, 64), scale=raw[256:272].view(np.float32))
    static = qobs.Quantizer(CHANNEL, dtype="float32", columns=64, dynamic=False)
    refused(lambda: static(x, scale=raw[:16].view(np.float32), codes=raw[:256].view(np.int8)), "codes: overlaps scale")


def test_the_page_end_is_not_passed():
    """Codes at the very end of a mapping: nothing is written behind them."""
    quantizer, x = qobs.Quantizer(CHANNEL, dtype="float32", columns=64), matrix(4, 64)
    page = mmap.mmap(-1, mmap.PAGESIZE)
    codes = np.frombuffer(page, np.int8)[-256:].reshape(4, 64)
    assert np.array_equal(quantizer(x, codes=codes).codes, quantizer(x).codes)


def test_storages_of_torch():
    torch = pytest.importorskip("torch")
    quantizer, x = qobs.Quantizer(CHANNEL, dtype="float32", columns=64), torch.randn(4, 64)
    for size in (0, 16, 255):
        codes = torch.zeros(4, 64, dtype=torch.int8)
        codes.untyped_storage().resize_(size)
        refused(lambda: quantizer(x, codes=codes), f"torch storage has {size} bytes")
        cut = torch.zeros(4, 64)
        inner = cut[:, 1:]
        cut.untyped_storage().resize_(4 * size)
        for call in (quantizer, qobs.minmax, lambda t: qobs.minmax(inner), qobs.Observer("llmc.minmax").observe):
            refused(lambda: call(cut), "torch storage has")
    part = torch.zeros(512, dtype=torch.int8)[256:]
    assert torch.equal(quantizer(x, codes=part).codes.view(4, 64), quantizer(x).codes)
    negative = torch._neg_view(torch.zeros(4, 1))
    refused(lambda: quantizer(x, scale=negative), "scale: is a view that negates")

    class Liar(torch.Tensor):
        shape = property(lambda self: torch.Size((4, 64)))
    refused(lambda: quantizer(x, codes=torch.zeros(16, dtype=torch.int8).as_subclass(Liar)), r"shape \[16\]")


def test_numbers_as_global_scale():
    config = ("llmc.memoryless_minmax num_bits=4 type=float strategy=tensor_group group_size=16 "
              "scale_dtype=float8_e4m3fn")
    quantizer, x = qobs.Quantizer(config, dtype="float32", columns=32), matrix(2, 32)
    scale = qobs.qparams_from_tensor(x, config).scale
    calls = (lambda n: quantizer(x, global_scale=n), lambda n: qobs.fake_quantize(x, config, scale, global_scale=n),
             lambda n: qobs.search(x, "llmc.memoryless_mse", version="2025-10", global_scale=n))
    for call in calls:
        for number in (0.0, -1, float("nan"), float("inf"), 1e300, 1e-300, -0.0, np.float32(-2), np.zeros(1)):
            refused(lambda: call(number), "global_scale: is .*above 0")
        for number in (True, "1", [], None.__class__):
            with pytest.raises(TypeError):
                call(number)
    for number in (2, 2.0, np.float32(2), np.array([2.0]), np.float64(2)):
        assert np.array_equal(quantizer(x, global_scale=number).codes, quantizer(x, global_scale=2.0).codes)


@pytest.mark.parametrize("name", ["dynamic", "packed", "dequantized"])
def test_flags_are_bools(name):
    for value in ("no", "", 0, 1, None, [], 1.0):
        with pytest.raises(TypeError, match=f"{name}: is .*True or False is expected"):
            qobs.Quantizer(CHANNEL, dtype="float32", columns=4, **{name: value})
    qobs.Quantizer(CHANNEL, dtype="float32", columns=4, **{name: np.bool_(name == "dynamic")})


def test_dtypes_in_every_form():
    for dtype in ("float32", np.float32, np.dtype("float32")):
        qobs.Quantizer(CHANNEL, dtype=dtype, columns=4)
    for dtype in (None, 3, int, "f4", np.int8, [], "scale_dtype"):
        refused(lambda: qobs.Quantizer(CHANNEL, dtype=dtype, columns=4), "dtype: is")
    refused(lambda: qobs.Quantizer(CHANNEL, dtype="float32", columns=4, scale_dtype="int8x"), "scale_dtype: is")


# ---- A block of GPTQ, whose outputs are given, too -------------------------------------------------------------------

def test_outputs_of_a_gptq_block():
    from libqobs._functions import gptq_block
    value, factor, scale = matrix(4, 8), np.eye(8, dtype=np.float32), np.full((4, 8), .1, np.float32)
    config = "llmc.memoryless_minmax num_bits=4 strategy=channel"

    def arrays():
        return {"value": value.copy(), "quantized": np.zeros((4, 8), "float32"), "errors": np.zeros((4, 8), "float32"),
                "losses": np.zeros((4, 8), "float32")}

    def call(given):
        gptq_block(given["value"], factor, given["quantized"], given["errors"], given["losses"], config, scale)
    good = arrays()
    call(good)
    assert good["quantized"].any()
    for name in good:
        read_only = arrays()
        read_only[name].setflags(write=False)
        refused(lambda: call(read_only), f"{name}: is read-only")
        for wrong in (good[name].astype("float64"), np.zeros((4, 7), "float32"), np.zeros((8, 4), "float32").T,
                      np.zeros(32, "float32"), scale, factor[:4]):
            refused(lambda: call({**arrays(), name: wrong}), f"{name}: ")
    both = arrays()
    refused(lambda: call({**both, "losses": both["errors"]}), "losses: overlaps errors")
    assert np.array_equal(both["value"], value) and not both["errors"].any()
