# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Arguments of public functions in other forms: taken, or refused by an error that names the argument."""
import pathlib

import pytest
import libqobs as qobs

np = pytest.importorskip("numpy")
X = np.ones((4, 4), np.float32)
COUNTS, EDGES = np.ones(8, np.float32), np.arange(9, dtype=np.float32)
TEXTS = [3, 2.5, {"a": 1}, object()]
NUMBERS = ["3", None, [], {}, object(), True]
FLAGS = ["no", "", 0, 1, None, [], 2.5]


def fails(call, name):
    with pytest.raises((TypeError, qobs.InvalidArgumentError)) as failure:
        call()
    text = str(failure.value)
    assert text.startswith(name) and "\n" not in text and len(text) < 400, text


def observer():
    return qobs.Observer("llmc.minmax strategy=tensor")


def run(name, function=qobs.quantize):
    """A function of the value of one argument."""
    return lambda value: function("m", "o", "W4A16", **{name: value})


def by_mse(**options):
    return qobs.range_by_mse(COUNTS, EDGES, config="modelopt.HistogramCalibrator", **options)


def by_percentile(value):
    return qobs.range_by_percentile(COUNTS, EDGES, config="modelopt.HistogramCalibrator", percentile=value)


CALLS = {  # name of the argument -> call, wrong values
    "x": [(lambda v: qobs.minmax(v), TEXTS), (lambda v: qobs.histogram(v), TEXTS), (lambda v: qobs.search(v), TEXTS),
          (lambda v: observer().observe(v), TEXTS), (lambda v: qobs.qparams_from_tensor(v, "llmc.minmax"), TEXTS),
          (lambda v: observer().record_tokens(v), TEXTS),
          (lambda v: qobs.fake_quantize(v, "llmc.minmax", X[:1, 0]), TEXTS),
          (lambda v: qobs.Quantizer("llmc.memoryless_minmax", dtype="float32", columns=4)(v), TEXTS)],
    "activations": [(lambda v: observer().observe_importance(v), TEXTS)],
    "amax": [(lambda v: observer().set_reference_amax(v), TEXTS), (lambda v: observer().set_global_amax(v), NUMBERS)],
    "weight": [(lambda v: observer().set_error_weights(v), TEXTS)],
    "hessian": [(lambda v: observer().set_hessian(v), TEXTS)],
    "g_idx": [(lambda v: qobs.minmax(X, g_idx=v, config="llmc.minmax"), TEXTS),
              (lambda v: observer().observe(X, v), TEXTS)],
    "axes": [(lambda v: qobs.minmax(X, v), ["ab", 2.5, {0}, ["a"], [2.5], (None,)]),
             (lambda v: qobs.minmax(X, v), [3, -3, [0, 5]])],
    "nonfinite": [(lambda v: qobs.minmax(X, nonfinite=v), [3, None, ["refuse"], "refuse "])],
    "preset": [(lambda v: qobs.Observer(v), [*TEXTS, None, b"llmc.minmax"]),
               (lambda v: qobs.settings(v), [*TEXTS, None])],
    "num_bits": [(lambda v: qobs.Observer("llmc.minmax", num_bits=v),
                  [object(), {}, 8.5, "a", 1e300, float("nan"), X])],
    "bins": [(lambda v: qobs.histogram(X, v), [*NUMBERS, 2.5, 0, -1, 10**400])],
    "range": [(lambda v: qobs.histogram(X, 4, v), [3, "ab", (1,), (1, 2, 3), (float("nan"), 1), (2, 1), (0, 1e300),
                                                   ("a", "b"), (0, float("inf")), {1, 2}])],
    "magnitude": [(lambda v: qobs.histogram(X, magnitude=v), FLAGS)],
    "skip_zeros": [(lambda v: qobs.histogram(X, skip_zeros=v), FLAGS)],
    "importance": [(lambda v: qobs.search(X, importance=v), [*TEXTS, X.astype("float64")[0], X[:, 0]])],
    "scale": [(lambda v: qobs.fake_quantize(X, "llmc.minmax", v), [*TEXTS, None])],
    "zero_point": [(lambda v: qobs.fake_quantize(X, "llmc.minmax", X[0, :1], v), TEXTS)],
    "format": [(lambda v: qobs.fake_quantize(X, "llmc.minmax", X[0, :1], format=v), [3, "fp8_e4m4", []])],
    "counts": [(lambda v: qobs.range_by_l2_norm(v, EDGES), TEXTS), (lambda v: observer().set_histogram(v), TEXTS),
               (lambda v: qobs.range_by_l2_norm(v, EDGES), [X, -COUNTS])],
    "bin_edges": [(lambda v: qobs.range_by_l2_norm(COUNTS, v), [*TEXTS, None, EDGES[:3]])],
    "percentile": [(by_percentile,
                    [*NUMBERS, -1, 101, float("nan"), 1e300])],
    "stride": [(lambda v: by_mse(stride=v), [*NUMBERS, -1, 0])],
    "batches": [(lambda v: observer().set_histogram(COUNTS, batches=v), [*NUMBERS, 0, -1])],
    "min": [(lambda v: observer().set_histogram(COUNTS, min=v), NUMBERS)],
    "observers": [(lambda v: qobs.fuse(v), [3, [3], "ab", [observer(), None], None]),
                  (lambda v: qobs.distributed.pack(v), [3, [3], None]),
                  (lambda v: qobs.distributed.merge_packed(v, []), [3, [3], None])],
    "packed": [(lambda v: qobs.distributed.unpack(v), [3, None, "a"]),
               (lambda v: qobs.distributed.merge_packed([], v), [3, None])],
    "others": [(lambda v: observer().merge(v), [3, [3], "ab", None])],
    "state": [(lambda v: qobs.Observer.load(v), [3, "abc", None, b"", b"abc"])],
    "framework": [(lambda v: qobs.Observer.load(observer().save(), framework=v), [3, "jax"])],
    "name": [(lambda v: observer().read(v), [3, None, b"scale", "scal"])],
    "threads": [(lambda v: qobs.set_threads(v), [True, "4", 0, -1, 2.0, 10**400])],
    "model_dir": [(lambda v: qobs.quantize(v, "o", "W4A16"), [3, None, [], 2.5]),
                  (lambda v: qobs.plan(v, "W4A16"), [3, None])],
    "out_dir": [(lambda v: qobs.quantize("m", v, "W4A16"), [3, None, []]), (lambda v: qobs.finish(v), [3, None])],
    "checkpoint_dir": [(lambda v: qobs.audit(v), [3, None])],
    "against": [(lambda v: qobs.audit("m", v), [3, []])],
    "out": [(lambda v: qobs.audit("m", out=v), [3, []])],
    "attest": [(lambda v: qobs.audit("m", "s", attest=v), [3, []])],
    "architectures": [(run("architectures"), [3, []]), (lambda v: qobs.audit("m", architectures=v), [3, []])],
    "scheme": [(lambda v: qobs.quantize("m", "o", v), [3, ["W4A16"]])],
    "config": [(lambda v: qobs.quantize("m", "o", config=v), [3, [], {1, 2}, {"a": object()}])],
    "recipe": [(lambda v: qobs.quantize("m", "o", recipe=v), [3, []])],
    "targets": [(run("targets"), [3, [3], {"a": 1}, [None]])],
    "ignore": [(run("ignore"), [3, [3], {"a": 1}, [None]])],
    "settings": [(run("settings"), [3, ["a=1"], "a=1", {3: 4}, {"a": {}}, {"a": object()}]),
                 (lambda v: qobs.plan("m", "W4A16", settings=v), [3, ["a=1"]]),
                 (run("settings", qobs.calibrate_checkpoint), [3, ["a=1"]])],
    "presets": [(run("presets", qobs.calibrate_checkpoint), [3, ["a"], {"weight": 3}, {3: "a"}])],
    "activations[0]": [(lambda v: qobs.quantize("m", "o", "W4A16", activations=[v]), [3, None])],
    "states[0]": [(lambda v: qobs.plan("m", "W4A16", states=[v]), [3, None])],
    "part": [(run("part"), [3, "12", (1,), (1, 2, 3), ("a", 2), (0, 2), (1.0, 2)])],
    "compat": [(run("compat"), [3, None, "vlm"])],
    "draft": [(run("draft"), [1, None, "kept"])],
    "dialect": [(run("dialect"), [3, []])],
    "fetch": [(run("fetch"), [3, ["cp {} {}"]])],
    "fill_experts": [(run("fill_experts"), [3, None, "maximum"]),
                     (run("fill_experts", qobs.calibrate_checkpoint), [True])],
    "progress": [(run("progress"), [3, "a", True])],
    "budget": [(lambda v: qobs.plan("m", "W4A16", budget=v), NUMBERS)],
    "max_kl": [(lambda v: qobs.plan("m", "W4A16", max_kl=v), NUMBERS)],
    "replace": [(run("replace"), FLAGS), (lambda v: qobs.finish("o", replace=v), FLAGS)],
    "keep_findings": [(run("keep_findings"), FLAGS)],
    "split_experts": [(run("split_experts"), FLAGS)],
    "keep_numbers": [(run("keep_numbers"), FLAGS)],
    "allow_mixed_sets": [(run("allow_mixed_sets"), FLAGS)],
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_kinds_are_refused_by_name(name):
    for call, values in CALLS[name]:
        for value in values:
            fails(lambda: call(value), name)


def test_a_dictionary_as_scheme_names_config():
    for function in (qobs.quantize, qobs.calibrate_checkpoint):
        with pytest.raises(TypeError, match="scheme: .*config takes a dictionary"):
            function("m", "o", {"config_groups": {}})


OF_MODELS = ("calibration", "calibrate", "calibrate_blocks", "quantize_blocks")


def test_every_argument_of_every_function_is_tried():
    """But for those that take any text, and those of models of torch, which their own tests try."""
    import inspect
    found = set()
    for name in qobs.__all__:
        function = getattr(qobs, name)
        if inspect.isfunction(function) and name not in OF_MODELS:
            found |= {p.name for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD}
    same = {"start_bin": "stride", "global_scale": "test_quantizer", "states": "states[0]",
            "activations": "activations[0]", "model": "model_dir", "out": "out_dir", "schemes": "targets",
            "count": "threads"}
    assert found - set(CALLS) <= set(same), found - set(CALLS) - set(same)


@pytest.mark.parametrize("name", ["torch_ao", "llmcompressor", "modelopt", "quark", "onnxruntime"])
def test_strict_drop_ins(name):
    import importlib
    module = importlib.import_module(f"libqobs.{name}")
    try:
        for value in FLAGS:
            fails(lambda: module.install(strict=value), "strict")
    except ImportError:
        pytest.skip(f"the framework of {name} is not installed")
    assert not module.installed()


def test_other_forms_that_are_taken():
    for axes in (1, -1, np.int64(1), [np.int64(1)], (1,), [1]):
        assert qobs.minmax(X, axes).min.shape == (4,)
    for bins in (4, np.int32(4)):
        assert qobs.histogram(X, bins, (np.float32(0), 2)).counts.tolist() == [0, 0, 16, 0]
    assert qobs.histogram(X, 4, [0, 2], skip_zeros=np.bool_(True)).counts.sum() == 16
    assert qobs.histogram(X, 4, range=None).counts.sum() == 16
    for value in (8, "8", np.int64(8), np.array(8)):
        assert qobs.Observer("llmc.minmax", num_bits=value).settings["num_bits"] == 8
    for path in (pathlib.Path("nowhere"), "nowhere", b"nowhere"):
        with pytest.raises(qobs.Error, match="nowhere"):
            qobs.quantize(path, "out", "W4A16")


@pytest.mark.parametrize("call, word", [
    (lambda: qobs.Observer("llmc.minmx"), "llmc.minmax"),
    (lambda: qobs.Observer("HistogramObserver"), "torch.HistogramObserver"),
    (lambda: qobs.Observer("llmc.minmax", num_bit=8), "num_bits"),
    (lambda: qobs.Observer("llmc.minmax groupsize=8"), "group_size"),
    (lambda: qobs.Observer("llmc.minmax", strategy="chanel"), "channel"),
    (lambda: observer().read("scal"), "scale"),
    (lambda: qobs.minmax(X, config="llmc.minmax", strateg="group"), "strategy"),
    (lambda: qobs.settings("llmc.memoryless_ms"), "llmc.memoryless_mse"),
    (lambda: qobs.fake_quantize(X, "llmc.minmax", X[0], format="fp8_e4m4"), "fp8_e4m3"),
    (lambda: run("compat")("vlm"), "vllm"),
])
def test_did_you_mean(call, word):
    with pytest.raises(qobs.InvalidArgumentError, match=f"did you mean '{word}'"):
        call()


@pytest.mark.parametrize("call", [lambda: qobs.Observer("xyzzy"), lambda: qobs.Observer("llmc.minmax", xyzzy=3),
                                  lambda: qobs.Observer("llmc.minmax", num_bits=99)])
def test_nothing_is_near(call):
    with pytest.raises(qobs.InvalidArgumentError) as failure:
        call()
    assert "did you mean" not in str(failure.value)


def test_typos_of_checkpoint_functions(root, tmp_path):
    model = root / "examples" / "tinylm"
    for options, word in (({"scheme": "W4A61"}, "W4A16"), ({"scheme": "NVFP"}, "NVFP4"),
                          ({"scheme": "W4A16", "settings": {"groupsize": 64}}, "group_size"),
                          ({"scheme": "W4A16", "preset": "llmc.memoryless_ms"}, "llmc.memoryless_mse")):
        with pytest.raises(qobs.InvalidArgumentError, match=f"did you mean '{word}"):
            qobs.quantize(model, tmp_path / "out", **options)


def test_nan_is_in_x():
    bad = X.copy()
    bad[1, 2] = np.nan
    config = "llmc.memoryless_minmax num_bits=8 strategy=channel"
    for call in (qobs.Quantizer(config, dtype="float32", columns=4), qobs.minmax, qobs.histogram, observer().observe,
                 qobs.search):
        with pytest.raises(qobs.NonfiniteError, match="^x"):
            call(bad)
