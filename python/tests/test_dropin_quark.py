# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The drop-in for AMD Quark: the same states and scales."""
import copy

import pytest
from dropin_tools import bits, served

torch = pytest.importorskip("torch")
pytest.importorskip("quark.torch.quantization")
import qobs.quark as dropin  # noqa: E402
from quark.torch.quantization.config.config import QTensorConfig  # noqa: E402
from quark.torch.quantization.config.type import Dtype, QSchemeType, RoundType, ScaleType  # noqa: E402
from quark.torch.quantization.observer import observer as upstream  # noqa: E402

COMMON = {"dtype": Dtype.int8, "symmetric": True, "round_method": RoundType.half_even, "is_dynamic": False,
          "scale_type": ScaleType.float}
TENSOR = {**COMMON, "qscheme": QSchemeType.per_tensor}
GROUP = {**COMMON, "dtype": Dtype.int4, "qscheme": QSchemeType.per_group}
CASES = {
    "tensor": ("PerTensorMinMaxObserver", TENSOR), "tensor dynamic": ("PerTensorMinMaxObserver", {**TENSOR, "is_dynamic": True}),
    "channel 0": ("PerChannelMinMaxObserver", {**COMMON, "qscheme": QSchemeType.per_channel, "ch_axis": 0}),
    "channel 1": ("PerChannelMinMaxObserver", {**COMMON, "qscheme": QSchemeType.per_channel, "ch_axis": 1}),
    "group": ("PerGroupMinMaxObserver", {**GROUP, "ch_axis": -1, "group_size": 128}),
    "row": ("PerGroupMinMaxObserver", {**GROUP, "ch_axis": 1, "group_size": -1}),
    "power of two": ("PerTensorPowOf2MinMaxObserver", TENSOR),
    "MX fp4": ("PerBlockMXObserver", {**COMMON, "dtype": Dtype.fp4, "qscheme": QSchemeType.per_group, "ch_axis": -1,
                                      "group_size": 32, "scale_format": "e8m0", "scale_calculation_mode": "even"}),
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


@pytest.mark.parametrize("case", ["small", "subclass", "axis", "padding", "nan", "zeros"])
def test_declined(case):
    name, settings = CASES["MX fp4" if case in ("axis", "padding") else "percentile" if case in ("nan", "zeros") else "tensor"]
    x = batches(torch.float32)[0]
    if case == "small":
        x = x[:4]
    elif case == "subclass":
        x = x.as_subclass(type("Sub", (torch.Tensor,), {}))
    elif case == "axis":
        settings = {**settings, "ch_axis": 0}
    elif case == "padding":
        x = x[:, :500]
    elif case == "nan":
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
    assert list(calls) == [f"quark.{'PerTensorHistogramObserver' if case in ('nan', 'zeros') else name} declined"], calls
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
