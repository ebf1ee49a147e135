# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The drop-in for ONNX Runtime: the same histograms, thresholds and quantized models."""
import pytest
from dropin_tools import bits, served

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime.quantization")
import libqobs.onnxruntime as dropin  # noqa: E402
from onnxruntime.quantization import CalibrationMethod, QuantFormat, quantize_static  # noqa: E402
from onnxruntime.quantization import calibrate as upstream  # noqa: E402


class Reader(upstream.CalibrationDataReader):
    def __init__(self, batches):
        self.batches = list(batches)

    def get_next(self):
        return {"x": self.batches.pop(0)} if self.batches else None


def batches(count=5, shape=(32, 64)):
    generator = np.random.default_rng(4)
    return [(generator.standard_normal(shape) * (1 + i % 3)).astype(np.float32) for i in range(count)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """x -> MatMul -> Relu -> MatMul -> y."""
    generator = np.random.default_rng(1)
    weights = [onnx.numpy_helper.from_array(generator.standard_normal(s).astype(np.float32) * 0.1, n)
               for n, s in (("a", (64, 128)), ("b", (128, 16)))]
    node = onnx.helper.make_node
    nodes = [node("MatMul", ["x", "a"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "b"], ["y"])]
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [None, k]) for n, k in (("x", 64), ("y", 16))]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def collector(method, symmetric, bins, values, **options):
    """Histograms after every batch, and the result."""
    made = upstream.HistogramCollector(method, symmetric, bins, options.get("num_quantized_bins", 128), 99.9, "same")
    states = []
    for x in values:
        made.collect({"t": [x, x * 0.5], "u": [np.maximum(x, 0)]})
        states.append(dict(made.histogram_dict))
    return bits([states, {k: list(v) if isinstance(v, tuple) else vars(v)
                          for k, v in made.compute_collection_result().items()}])


@pytest.mark.parametrize("method, symmetric, bins",
                         [("entropy", False, 128), ("entropy", True, 500), ("percentile", False, 2048),
                          ("percentile", True, 2048), ("distribution", False, 512)])
def test_collectors(method, symmetric, bins):
    values = batches()
    wanted = collector(method, symmetric, bins, values)
    with served(dropin) as calls:
        found = collector(method, symmetric, bins, values)
    assert found == wanted
    assert not calls.declined(), calls
    name = "collect_absolute_value" if (method, symmetric) == ("percentile", True) else "collect_value"
    assert calls[f"onnxruntime.{name}"] == len(values)
    assert method != "entropy" or calls["onnxruntime.entropy"] == 2


@pytest.mark.parametrize("levels", [16, 100, 128])
def test_entropy(levels):
    """Histograms with gaps and outliers. The choice is upstream's to the bit of every divergence."""
    generator = np.random.default_rng(levels)
    for bins in (128, 301, 400):
        counts = generator.poisson(3, bins) * (generator.random(bins) > 0.3)
        counts[bins // 2] = 100000
        edges = np.linspace(-2, 2, bins + 1, dtype=np.float32)
        histogram = counts.astype(np.int64), edges, np.float32(-1.9), np.float32(1.5), np.float32(2)
        made = upstream.HistogramCollector("entropy", False, bins, levels, None, None)
        wanted = bits(made.get_entropy_threshold(histogram, levels))
        with served(dropin) as calls:
            assert bits(made.get_entropy_threshold(histogram, levels)) == wanted
        assert calls == {"onnxruntime.entropy": 1}


@pytest.mark.parametrize("case", ["nan", "float16", "empty", "elsewhere"])
def test_declined(case):
    def run(swap=lambda: None):
        made = upstream.HistogramCollector("entropy", False, 128, 128, None, None)
        x = batches(1)[0]
        if case == "elsewhere":
            made.collect({"t": x})
            made.histogram_dict["t"] = tuple(made.histogram_dict["t"])[:4] + (np.array(made.histogram_dict["t"][4]),)
        x = {"nan": np.where(x > 2, np.float32("nan"), x), "float16": x.astype(np.float16), "empty": x[:0]}.get(case, x)
        try:
            made.collect({"t": x})
        except Exception as e:
            return type(e), str(e)
        return bits(made.histogram_dict)
    wanted = run()
    with served(dropin) as calls:
        found = run()
    assert calls["onnxruntime.collect_value declined"] == 1 and found == wanted, calls


def qparams(path):
    """Name -> scale or zero point of every quantized tensor of a model."""
    return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer
            if t.name.endswith(("_scale", "_zero_point"))}


@pytest.mark.parametrize("method, options, calls_of", [
    ("Entropy", {}, {"collect_value": 1, "entropy": 4}),
    ("Entropy", {"ActivationSymmetric": True}, {"collect_value": 1, "entropy": 4}),
    ("Percentile", {}, {"collect_absolute_value": 1}),
    ("Percentile", {"CalibTensorRangeSymmetric": False, "CalibPercentile": 99}, {"collect_value": 1}),
    ("Percentile", {"ActivationSymmetric": True, "CalibPercentile": 90}, {"collect_absolute_value": 1}),
    ("MinMax", {}, {})])
def test_quantize_static(method, options, calls_of, model, tmp_path):
    """Scales, zero points and every byte of the quantized model, all batches in one collection. Every call is
    served."""
    def run(path):
        quantize_static(model, path, Reader(batches()), quant_format=QuantFormat.QDQ,
                        calibrate_method=CalibrationMethod[method], extra_options=options)
        return bits(qparams(path)), path.read_bytes()
    wanted = run(tmp_path / "without.onnx")
    with served(dropin) as calls:
        found = run(tmp_path / "with.onnx")
    assert {k.removeprefix("onnxruntime."): n for k, n in calls.items()} == calls_of
    assert len(wanted[0]) >= 8 and found[0] == wanted[0]
    assert found[1] == wanted[1]


@pytest.mark.parametrize("method, options", [
    ("Entropy", {"num_bins": 700, "num_quantized_bins": 100}), ("Entropy", {"symmetric": True, "num_bins": 300}),
    ("Percentile", {"num_bins": 333, "percentile": 95}), ("Percentile", {"symmetric": False, "percentile": 95})])
def test_collections(method, options, model, tmp_path):
    """Calibraters that collect three times, two batches each: histograms and thresholds of every tensor."""
    def run():
        made = upstream.create_calibrator(model, augmented_model_path=str(tmp_path / "augmented.onnx"),
                                          calibrate_method=CalibrationMethod[method], extra_options=options)
        for i in range(3):
            made.collect_data(Reader(batches(6)[2 * i:2 * i + 2]))
        return bits({k: vars(v) for k, v in made.compute_data().items()})
    wanted = run()
    with served(dropin) as calls:
        found = run()
    assert not calls.declined(), calls
    kind = "collect_absolute_value" if method == "Percentile" and options.get("symmetric", True) else "collect_value"
    assert calls.get("onnxruntime.entropy", 0) == (len(wanted) if method == "Entropy" else 0) and len(wanted) >= 4
    assert calls[f"onnxruntime.{kind}"] == 3
    assert found == wanted


@pytest.mark.parametrize("method", ["Entropy", "Percentile"])
def test_streaming(method, model, tmp_path):
    """One collect_data of upstream for each batch. Nothing is kept."""
    def calibrator():
        return upstream.create_calibrator(model, augmented_model_path=str(tmp_path / "augmented.onnx"),
                                          calibrate_method=CalibrationMethod[method])

    def ranges(made):
        return bits({k: vars(v) for k, v in made.compute_data().items()})
    one_by_one, all_at_once = calibrator(), calibrator()
    for x in batches():
        one_by_one.collect_data(Reader([x]))
    all_at_once.collect_data(Reader(batches()))
    with served(dropin, streaming=True) as calls:
        streamed = calibrator()
        streamed.collect_data(Reader(batches()))
        found = ranges(streamed)
        with pytest.raises(ValueError, match="No data"):
            calibrator().collect_data(Reader([]))
    assert calls["onnxruntime.streaming"] == 1, calls
    assert found == ranges(one_by_one) != ranges(all_at_once)
