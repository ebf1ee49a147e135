# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""libqobs.gguf. The bytes are compared with upstream's by tests/test_gguf.c and tests/gguf_judge.py."""
import struct

import pytest
import libqobs as qobs

np = pytest.importorskip("numpy")

# Types whose bits are not all of the code, or whose numbers are so few that the largest one decides.
SIGNIFICANT = {"F16": 11, "BF16": 8, "TQ1_0": 1.6, "TQ2_0": 1.6, "Q2_0": 1.6, "Q1_0": 1}
X = np.random.default_rng(3).standard_normal((2, 3, 512)).astype("float32")


@pytest.mark.parametrize("of", qobs.gguf.types(), ids=lambda of: of.name)
def test_blocks_and_back(of):
    blocks = qobs.gguf.quantize(X, of.name)
    assert blocks.dtype == np.uint8 and blocks.shape == (2, 3, 512 // of.block_elements * of.block_bytes)
    y = qobs.gguf.dequantize(blocks, of.name)
    assert y.dtype == np.float32 and y.shape == X.shape
    bits = SIGNIFICANT.get(of.name, 8 * of.block_bytes / of.block_elements)
    assert np.abs(y - X).mean() < 2.5 * 2**-min(bits, 24)
    changed = qobs.gguf.quantize(X, of.name, np.where(np.arange(512) % 3, 9, 0.25).astype("float32"))
    assert (changed != blocks).any() == of.uses_importance


@pytest.mark.parametrize("of", [of for of in qobs.gguf.types() if of.block_elements > 1], ids=lambda of: of.name)
@pytest.mark.parametrize("importance", [None, np.linspace(0.01, 9, 512, dtype="float32")], ids=["plain", "importance"])
def test_optimal(of, importance):
    """No block has a larger error than that of ggml."""
    def errors(search):
        y = qobs.gguf.dequantize(qobs.gguf.quantize(X, of.name, importance, search), of.name)
        e = (y.astype(float) - X)**2 * (1 if importance is None else importance.astype(float))
        return e.reshape(-1, of.block_elements).sum(1)
    ggml, optimal = errors("ggml"), errors("optimal")
    assert (optimal <= ggml * (1 + 1e-13)).all()
    assert optimal.sum() < ggml.sum() * (1 - 1e-4) or (of.name == "Q1_0" and importance is None)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "Q6_K", "IQ4_XS", "MXFP4"])
def test_hessian(name):
    """The error of the outputs falls; H of blocks of columns knows less than that of all."""
    random = np.random.default_rng(3)
    inputs = random.standard_normal((1500, 512)) + 2 * random.standard_normal((1500, 1))
    h = inputs.T @ inputs / len(inputs)
    importance = np.ascontiguousarray(np.diag(h)).astype("float32")

    def error(hessian):
        d = X - qobs.gguf.dequantize(qobs.gguf.quantize(X, name, importance, hessian=hessian), name).astype(float)
        return ((d @ h) * d).sum()
    blocks = np.stack([h[i:i + 128, i:i + 128] for i in range(0, 512, 128)])
    whole, parts, nearest = error(h[None]), error(blocks), error(None)
    assert whole < 0.7 * nearest and whole < parts and error(h[None].astype("float32")) < 0.7 * nearest
    assert error(np.eye(512)[None]) <= nearest


def test_tokens():
    """H of few tokens counts as if the products of two columns were shrunk."""
    h = np.full((512, 512), 0.75) + np.diag(np.linspace(0.25, 2, 512))

    def codes(scale, tokens=0):
        return qobs.gguf.quantize(X, "Q4_K", hessian=(h * np.where(np.eye(512) > 0, 1, scale))[None], tokens=tokens)
    assert (codes(1, 512) == codes(1 - 2 / 3)).all() and (codes(1, 512 * 64) == codes(1 - 0.25 / 1.25)).all()
    assert (codes(1, 512) != codes(1)).any()
    with pytest.raises(qobs.InvalidArgumentError, match="^tokens: is -1"):
        codes(1, -1)


def test_names_and_halves():
    assert {"Q4_K", "Q6_K", "IQ4_XS", "NVFP4", "F16"} <= {of.name for of in qobs.gguf.types()}
    assert "IQ2_XS" not in {of.name for of in qobs.gguf.types()}
    half = X.astype("float16")
    assert (qobs.gguf.quantize(half, "q5_k") == qobs.gguf.quantize(half.astype("float32"), "Q5_K")).all()
    assert qobs.gguf.quantize(X[:0], "Q5_K").shape == (0, 3, 352)
    assert (qobs.gguf.dequantize(qobs.gguf.quantize(half, "F16"), "F16") == half).all()


def test_refusals():
    with pytest.raises(qobs.UnsupportedError, match="^type: IQ2_XS"):
        qobs.gguf.quantize(X, "IQ2_XS")
    with pytest.raises(qobs.InvalidArgumentError, match="^type: 'Q4_KM' is no type.*did you mean 'Q4_K'"):
        qobs.gguf.quantize(X, "Q4_KM")
    with pytest.raises(TypeError, match="^type: "):
        qobs.gguf.quantize(X, 4)
    with pytest.raises(qobs.InvalidArgumentError, match="^array: has 500 columns, Q4_K needs a multiple of 256"):
        qobs.gguf.quantize(np.ascontiguousarray(X[..., :500]), "Q4_K")
    with pytest.raises(qobs.InvalidArgumentError, match="^array: is not contiguous"):
        qobs.gguf.quantize(X[..., :256], "Q4_K")
    with pytest.raises(qobs.InvalidArgumentError, match="^array: is F64"):
        qobs.gguf.quantize(X.astype("float64"), "Q4_K")
    for wrong in (np.ones(511, "float32"), np.ones(512), np.ones((1, 512), "float32")):
        with pytest.raises(qobs.InvalidArgumentError, match="^importance: "):
            qobs.gguf.quantize(X, "Q4_K", wrong)
    with pytest.raises(qobs.InvalidArgumentError, match=r"^importance: \[0\] is -1"):
        qobs.gguf.quantize(X, "Q4_K", -np.ones(512, "float32"))
    with pytest.raises(qobs.InvalidArgumentError, match="^search: is 'best', allowed are ggml and optimal"):
        qobs.gguf.quantize(X, "Q4_K", search="best")
    with pytest.raises(TypeError, match="^search: "):
        qobs.gguf.quantize(X, "Q4_K", search=None)
    for wrong in (np.eye(512), np.ones((1, 512, 256)), np.eye(256)[None], np.eye(512, dtype="int32")[None]):
        with pytest.raises(qobs.InvalidArgumentError, match="^hessian: "):
            qobs.gguf.quantize(X, "Q4_K", hessian=wrong)
    with pytest.raises(qobs.UnsupportedError, match="^hessian: codes of this type"):
        qobs.gguf.quantize(X, "TQ2_0", hessian=np.eye(512)[None])
    with pytest.raises(qobs.NonfiniteError, match="^array: row 1, column 2 is NaN"):
        x = X.copy()
        x[0, 1, 2] = np.nan
        qobs.gguf.quantize(x, "Q4_K")
    with pytest.raises(qobs.NonfiniteError, match="^array: row 0 is too large for Q8_0"):
        qobs.gguf.quantize(X * np.float32(1e9), "Q8_0")
    with pytest.raises(qobs.InvalidArgumentError, match="^blocks: is uint8 with rows of 143"):
        qobs.gguf.dequantize(np.zeros(143, "uint8"), "Q4_K")


def write(path, number, data):
    """A file with one matrix of 6 rows and 512 columns."""
    def text(s):
        return struct.pack("<Q", len(s)) + s

    keys = text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
    keys += text(b"general.quantization_version") + struct.pack("<II", 4, 2)
    tensor = text(b"blk.0.ffn_up.weight") + struct.pack("<IQQIQ", 2, 512, 6, number, 0)
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + keys + tensor
    path.write_bytes(header + bytes(-len(header) % 32) + data)
    return path


def test_audit(tmp_path):
    blocks = qobs.gguf.quantize(X, "Q8_0").tobytes()
    original, sound = write(tmp_path / "in.gguf", 0, X.tobytes()), write(tmp_path / "out.gguf", 8, blocks)
    report = qobs.audit(sound, original)
    assert report["findings"] == [] and report["layers"][0]["format"] == "Q8_0"
    assert 0 < report["layers"][0]["relative_error"] < 0.01
    wrong = write(tmp_path / "bad.gguf", 8, b"\0\x7e" + blocks[2:])
    (finding,) = qobs.audit(wrong)["findings"]
    assert finding["module"] == "blk.0.ffn_up.weight" and "1 of 96 scales are not finite" in finding["finding"]
