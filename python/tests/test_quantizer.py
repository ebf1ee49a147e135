# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""qobs.Quantizer: its results are those of compute_qparams and fake_quantize, in new and in given arrays."""
import threading

import pytest
import qobs

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
    expected = qobs.compute_qparams(x, config)
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
    expected = qobs.compute_qparams(x, config)
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
    expected = qobs.compute_qparams(x, config)
    assert codes.dtype == torch.float8_e4m3fn and torch.equal(scale.ravel(), expected.scale.ravel())
    assert torch.equal(codes.float().bfloat16() * scale, qobs.fake_quantize(x, config, scale))
