# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The drop-in for AMD Quark: the same states and scales."""
import copy

import pytest
from dropin_tools import bits, served

torch = pytest.importorskip("torch")
pytest.importorskip("quark.torch.quantization")
import libqobs.quark as dropin  # noqa: E402
from quark.torch.quantization.config.config import QTensorConfig  # noqa: E402
from quark.torch.quantization.config.type import Dtype, QSchemeType, RoundType, ScaleType, ZeroPointType  # noqa: E402
from quark.torch.quantization.observer import observer as upstream  # noqa: E402

COMMON = {"dtype": Dtype.int8, "symmetric": True, "round_method": RoundType.half_even, "is_dynamic": False,
          "scale_type": ScaleType.float}
TENSOR = {**COMMON, "qscheme": QSchemeType.per_tensor}
GROUP = {**COMMON, "dtype": Dtype.int4, "qscheme": QSchemeType.per_group}
MX = {**COMMON, "dtype": Dtype.fp4, "qscheme": QSchemeType.per_group, "ch_axis": -1, "group_size": 32,
      "scale_format": "e8m0", "scale_calculation_mode": "even"}
CASES = {
    "tensor": ("PerTensorMinMaxObserver", TENSOR),
    "tensor dynamic": ("PerTensorMinMaxObserver", {**TENSOR, "is_dynamic": True}),
    "channel 0": ("PerChannelMinMaxObserver", {**COMMON, "qscheme": QSchemeType.per_channel, "ch_axis": 0}),
    "channel 1": ("PerChannelMinMaxObserver", {**COMMON, "qscheme": QSchemeType.per_channel, "ch_axis": 1}),
    "group": ("PerGroupMinMaxObserver", {**GROUP, "ch_axis": -1, "group_size": 128}),
    "row": ("PerGroupMinMaxObserver", {**GROUP, "ch_axis": 1, "group_size": -1}),
    "power of two": ("PerTensorPowOf2MinMaxObserver", TENSOR),
    "MX fp4": ("PerBlockMXObserver", MX), "MX buffers": ("PerBlockMXBufferReuseObserver", MX),
    "MX differences": ("PerBlockMXDiffsObserver", MX),
    "percentile": ("PerTensorPercentileObserver", TENSOR), "MSE": ("PerTensorMSEObserver", TENSOR),
    "MSE asymmetric": ("PerTensorMSEObserver", {**TENSOR, "symmetric": False}),
}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def batches(dtype):
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(256, 512, generator=generator).clamp(-4, 8) * (3 - i)).to(dtype) for i in range(3)] + \
        [torch.randn(256, 512, generator=generator).to(dtype).clamp(-4) * 4]


def run(name, settings, values):
    observer = getattr(upstream, name)(QTensorConfig(observer_cls=getattr(upstream, name), **settings))
    states = []
    for x in values:
        assert observer(x) is x
        states.append([{k: v for k, v in vars(observer).items() if isinstance(v, (torch.Tensor, int, float))},
                       observer.state_dict(), dict(observer.named_buffers())])
    return bits([states, observer._calculate_qparams()])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_observers(case, dtype):
    name, settings = CASES[case]
    values = batches(dtype)
    wanted = run(name, settings, values)
    with served(dropin) as calls:
        found = run(name, settings, values)
    assert sum(n for k, n in calls.items() if not k.endswith("ed")) >= len(values) - (case == "MSE asymmetric"), calls
    assert not calls.names(" failed") and (not calls.declined() or case == "MSE asymmetric"), calls
    assert found == wanted


def histogram(dtype, symmetric, scale_type, zero_point_type, seed):
    """An observer of three batches whose range grows."""
    settings = {**TENSOR, "dtype": Dtype[dtype], "symmetric": symmetric, "scale_type": scale_type,
                "zero_point_type": zero_point_type}
    observer = upstream.PerTensorMSEObserver(QTensorConfig(observer_cls=upstream.PerTensorMSEObserver, **settings))
    generator = torch.Generator().manual_seed(seed)
    for i in range(3):
        observer(torch.randn(60_000, generator=generator) * (1 + 0.4 * i) + (0 if symmetric else 4))
    return observer


@pytest.mark.parametrize("zero_point_type", ZeroPointType, ids=str)
@pytest.mark.parametrize("scale_type", [ScaleType.float, ScaleType.float16, ScaleType.pof2], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4", "uint4", "fp8_e4m3", "fp8_e5m2"])
def test_squared_errors(dtype, scale_type, zero_point_type):
    """The rule alone, from few and from thousands of candidates. A histogram whose edges do not fit raises upstream."""
    tried = 0
    for symmetric in (True, False):
        observer = histogram(dtype, symmetric, scale_type, zero_point_type, len(dtype) + symmetric)
        state, first = (observer.calib_hist, observer.calib_bin_edges), int((observer.calib_bin_edges < 0).sum())
        if len(state[1]) != len(state[0]) + 1:
            continue
        for start_bin in (len(state[0]) - 1, len(state[0]) - 70, first + 300, 10**6):
            wanted = bits(observer.get_min_max_by_mse(*state, start_bin=start_bin))
            with served(dropin) as calls:
                assert bits(observer.get_min_max_by_mse(*state, start_bin=start_bin)) == wanted
            assert calls == {"quark.PerTensorMSEObserver": 1}
            tried += 1
    assert tried >= 4


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("dtype", [Dtype.int8, Dtype.uint8], ids=str)
@pytest.mark.parametrize("kind", ["PerTensor", "PerChannel"])
def test_powers_of_two(kind, dtype, symmetric):
    """Scales and zero points after every batch; uniform, normal and heavy-tailed batches choose other powers. A batch
    of bfloat16 and one whose errors are all 0 are declined."""
    name, generator = f"{kind}PowOf2MinMSEObserver", torch.Generator().manual_seed(3)
    scheme = {"qscheme": QSchemeType.per_tensor}
    if kind == "PerChannel":
        scheme = {"qscheme": QSchemeType.per_channel, "ch_axis": 1}
    normal = torch.randn(256, 512, generator=generator) + (0 if symmetric else 1)
    values = [normal, torch.rand(256, 512, generator=generator), normal ** 5, normal.bfloat16(), (normal * 4).round()]

    def run():
        cls, found = getattr(upstream, name), []
        for x in values:
            settings = {**COMMON, "dtype": dtype, "symmetric": symmetric, **scheme}
            observer = cls(QTensorConfig(observer_cls=cls, **settings))
            for factor in (1, 3):
                observer(x * factor)
                found.append([observer._calculate_qparams(), vars(observer)["original_tensor"]])
        return bits(found)
    wanted = run()
    with served(dropin) as calls:
        assert run() == wanted
    assert len({repr(w[0]) for w in wanted}) >= 4
    assert calls[f"quark.{name}"] >= 6 and calls[f"quark.{name} declined"] >= 2 and not calls.names(" failed"), calls


def test_nearly_equal_errors():
    """Two values with many bins between them: most candidates have the same error, or nearly so."""
    observer = histogram("int8", True, ScaleType.float, ZeroPointType.int32, 0)
    edges = torch.linspace(0, 3, 2049)
    for seed in range(4):
        counts = torch.zeros(2048)
        counts[torch.randint(700, (4,), generator=torch.Generator().manual_seed(seed))] = 1000 + seed
        wanted = bits(observer.get_min_max_by_mse(counts, edges, start_bin=128))
        with served(dropin) as calls:
            assert bits(observer.get_min_max_by_mse(counts, edges, start_bin=128)) == wanted, seed
        assert calls == {"quark.PerTensorMSEObserver": 1}


@pytest.mark.parametrize("case", ["edges", "negative", "stride", "subclass"])
def test_declined_squared_errors(case):
    def attempt():
        observer = histogram("int8", True, ScaleType.float, ZeroPointType.int32, 0)
        counts, edges, stride = observer.calib_hist, observer.calib_bin_edges, 1
        if case == "edges":
            edges = edges[:-1]
        elif case == "negative":
            edges = edges - 100
        elif case == "stride":
            stride = 3
        else:
            observer.__class__ = type("Sub", (upstream.PerTensorMSEObserver,), {})
        try:
            return bits(observer.get_min_max_by_mse(counts, edges, stride))
        except Exception as e:
            return type(e), str(e)
    wanted = attempt()
    with served(dropin) as calls:
        assert attempt() == wanted
    assert calls["quark.PerTensorMSEObserver declined"] == 1 and not calls.names(" failed"), calls


def attempt_bits(function):
    """The bits of a result, or the error."""
    try:
        return bits(function())
    except Exception as e:
        return type(e), str(e)


def mx(name, **settings):
    cls = getattr(upstream, name)
    return cls(QTensorConfig(observer_cls=cls, **{**MX, **settings}))


def mx_values(case, dtype):
    """Two batches; the first one has the larger magnitudes in some blocks."""
    generator = torch.Generator().manual_seed(len(case))
    shape = {"dimensions": (2, 3, 16, 128), "one row": (1, 4096), "large": (256, 512)}.get(case, (64, 128))
    values = [torch.randn(shape, generator=generator) * torch.randn((*shape[:-1], 1), generator=generator).exp()
              for _ in range(2)]
    if case == "tiny":
        values = [v * 1e-38 if dtype != torch.float16 else v * 1e-7 for v in values]
    elif case == "powers":
        values = [1.5 * torch.exp2(torch.randint(-25, 15, shape, generator=generator)) for _ in range(2)]
    elif case == "huge":
        limit = torch.finfo(dtype).max / 4
        values = [v.clamp(-4, 4).double().mul(limit).to(dtype) for v in values]
    elif case == "zeros":
        for v in values:
            v[::2, :64] = -0.0
    elif case == "bits":
        values = [torch.randint(-2**31, 2**31, shape, generator=generator).to(torch.int32).view(torch.float32)
                  for _ in range(2)]
    values = [v.to(dtype) for v in values]
    if case == "bits":
        values = [v.nan_to_num(0, 0, 0) for v in values]
    elif case == "strides":
        values = [v.t().contiguous().t() for v in values]
    return values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("element", ["fp4", "fp6_e2m3", "fp6_e3m2", "fp8_e4m3", "fp8_e5m2"])
def test_mx_scales(element, dtype):
    """Scales and zero points after every batch. A case counts as a search if a block has another scale than without
    one. Elements of float8 are as exact with either scale, unless they are as small as in some of the powers. The
    squares of those errors are 0 in float16."""
    searches = 0
    for case in ("plain", "dimensions", "one row", "large", "tiny", "huge", "zeros", "powers", "bits", "strides"):
        for size, scope in ((32, 1), (16, 3), (64, 0)):
            def run(size=size, scope=scope, case=case):
                observer, found = mx("PerBlockMXDiffsObserver", dtype=Dtype[element], group_size=size), []
                observer.scope = scope
                for x in mx_values(case, dtype):
                    observer(x)
                    found.append([observer._calculate_qparams(), observer.scale, observer.zero_point, observer.amax,
                                  observer.last_x])
                return found
            wanted = run()
            with served(dropin) as calls:
                assert bits(run()) == bits(wanted), (case, size, scope)
            assert calls == {"quark.PerBlockMXObserver": 2, "quark.PerBlockMXDiffsObserver": 2}, (case, calls)
            if scope == 1:
                searches += bits(wanted[0][0][0]) != bits(run(scope=0)[0][0][0])
    assert searches >= (6 if element < "fp8" else dtype != torch.float16)


@pytest.mark.parametrize("case", ["small", "nan", "infinity", "axis", "padding", "tensor", "float64", "gradient",
                                  "scheme"])
def test_declined_mx_scales(case):
    def run():
        observer = mx("PerBlockMXDiffsObserver", **({"ch_axis": 0} if case == "axis" else {}))
        x = mx_values("plain", torch.float64 if case == "float64" else torch.float32)[0]
        if case == "small":
            x = x[:4]
        elif case in ("nan", "infinity"):
            x[0, 5] = float(case)
        elif case == "padding":
            x = x[:, :100]
        elif case == "tensor":
            x = x.as_subclass(type("Sub", (torch.Tensor,), {}))
        elif case == "gradient":
            x.requires_grad_()
        elif case == "scheme":
            observer.qscheme_str_name = "per_channel"
        observer(x)
        return observer._calculate_qparams()
    wanted = attempt_bits(run)
    with served(dropin) as calls:
        found = attempt_bits(run)
    assert calls["quark.PerBlockMXDiffsObserver declined"] == 1 and not calls.names(" failed"), calls
    assert found == wanted


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mx_buffers(dtype, dynamic, monkeypatch):
    """Magnitudes, the tensor that has them, counts and shapes of the shared buffers. The shape of the blocks changes,
    and so does the dtype. There are infinity, NaN, more elements than the buffers may have, and few elements."""
    cls = upstream.PerBlockMXBufferReuseObserver
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(shape, generator=generator).to(dtype) * 2 ** i for i, shape in enumerate(
        [(256, 512), (256, 512), (2, 128, 512), (128, 1024), (64, 1024), (64, 1024), (64, 1024), (1024, 1024), (8, 64),
         (256, 512)])]
    values[3][1, 5], values[9][0, 5] = float("-inf"), float("nan")
    values[5] = values[5].float()

    def run():
        monkeypatch.setattr(cls, "_device_buffers", {})
        monkeypatch.setattr(cls, "_gpu_stats", {})
        found = []
        for _ in range(2):
            observer = mx(cls.__name__, is_dynamic=dynamic)
            observer.max_input_numel = 2 ** 19
            for x in values:
                before = observer.amax
                assert observer(x) is x
                buffers = [(k, v["shape"], v["block_x"].shape, v["amax"].shape)
                           for k, v in cls._device_buffers.items()]
                found.append([observer.amax is before, observer.amax.stride(), bits(observer.amax),
                              {k: dict(v) for k, v in cls._gpu_stats.items()}, buffers])
        return found
    wanted = run()
    with served(dropin) as calls:
        found = run()
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert a == b, i
    assert calls == {"quark.PerBlockMXBufferReuseObserver": 14, "quark.PerBlockMXBufferReuseObserver declined": 6,
                     "quark.PerBlockMXObserver": 2}
    assert {w[0] for w in wanted} == {True, False}


@pytest.mark.parametrize("case", ["axis", "padding", "tensor", "float64", "debug", "gradient"])
def test_declined_mx_buffers(case, monkeypatch):
    """Upstream's buffers cannot be used again after a tensor that needs a gradient."""
    def run():
        monkeypatch.setattr(upstream.PerBlockMXBufferReuseObserver, "_device_buffers", {})
        observer = mx("PerBlockMXBufferReuseObserver", **({"ch_axis": 0} if case == "axis" else {}))
        x = batches(torch.float64 if case == "float64" else torch.float32)[0]
        if case == "padding":
            x = x[:, :500]
        elif case == "tensor":
            x = x.as_subclass(type("Sub", (torch.Tensor,), {}))
        elif case == "debug":
            observer.buffer_reuse_debug = True
        elif case == "gradient":
            x.requires_grad_()
        observer(x)
        return observer.amax, observer._calculate_qparams()
    wanted = attempt_bits(run)
    with served(dropin) as calls:
        found = attempt_bits(run)
    assert list(calls) == ["quark.PerBlockMXBufferReuseObserver declined"], calls
    assert found == wanted


@pytest.mark.parametrize("name", ["PerBlockMXDiffsObserver", "PerBlockMXBufferReuseObserver"])
def test_subclasses_of_mx(name):
    """Subclasses are served, and their own methods are called."""
    x, calls_of = batches(torch.float32)[0], []

    class Sub(getattr(upstream, name)):
        @classmethod
        def _can_use_buffers(cls, *arguments):
            calls_of.append(arguments)
            return super()._can_use_buffers(*arguments)

        def forward(self, x_orig):
            return super().forward(x_orig * 3)

    def run():
        calls_of.clear()
        observer = Sub(QTensorConfig(observer_cls=Sub.__base__, **MX))
        observer(x)
        return bits([observer.amax, observer._calculate_qparams()]), list(calls_of)
    wanted = run()
    with served(dropin) as calls:
        assert run() == wanted
    assert calls[f"quark.{name}"] == 1 and not calls.declined(), calls
    assert len(wanted[1]) == (name == "PerBlockMXBufferReuseObserver")


@pytest.mark.parametrize("case", ["small", "subclass", "axis", "padding", "nan", "nan in a block", "zeros"])
def test_declined(case):
    name, settings = CASES["MX fp4" if case in ("axis", "padding", "nan in a block") else
                           "percentile" if case in ("nan", "zeros") else "tensor"]
    x = batches(torch.float32)[0]
    if case == "small":
        x = x[:4]
    elif case == "subclass":
        x = x.as_subclass(type("Sub", (torch.Tensor,), {}))
    elif case == "axis":
        settings = {**settings, "ch_axis": 0}
    elif case == "padding":
        x = x[:, :500]
    elif case.startswith("nan"):
        x[0, 0] = float("nan")
    elif case == "zeros":
        x = torch.zeros(100)

    def attempt():
        try:
            return run(name, settings, [x])
        except Exception as e:
            return type(e), str(e)
    wanted = attempt()
    with served(dropin) as calls:
        found = attempt()
    declined = "PerTensorHistogramObserver" if case in ("nan", "zeros") else name
    assert list(calls) == [f"quark.{declined} declined"], calls
    assert found == wanted or case == "nan"


def test_quantize_model():
    """A quantized network: state_dict and output."""
    from quark.torch import ModelQuantizer
    from quark.torch.quantization.config.config import QConfig, QLayerConfig
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
    values = batches(torch.float32)
    weight = QTensorConfig(observer_cls=upstream.PerChannelMinMaxObserver, **CASES["channel 0"][1])
    inputs = QTensorConfig(observer_cls=upstream.PerTensorPercentileObserver, **TENSOR)
    config = QConfig(global_quant_config=QLayerConfig(weight=weight, input_tensors=inputs))

    def quantize():
        quantizer = ModelQuantizer(copy.deepcopy(config))
        model = quantizer.freeze(quantizer.quantize_model(copy.deepcopy(net), values))
        return bits([model.state_dict(), model(values[0])])
    wanted = quantize()
    with served(dropin) as calls:
        found = quantize()
    assert {"quark.PerChannelMinMaxObserver", "quark.PerTensorHistogramObserver"} <= set(calls), calls
    assert not calls.names(" failed") and found == wanted
