# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The drop-in for torch.ao and torchao: the same states, qparams, modules and saved bytes."""
import copy
import importlib
import io
import pickle
import warnings

import pytest
from dropin_tools import bits, served

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization")
import libqobs.torch_ao as dropin  # noqa: E402
from torch.ao.quantization import observer as core  # noqa: E402

MODULES = ["torch.ao.quantization.observer", "torchao.quantization.pt2e.observer"]
OBSERVERS = [
    ("MinMaxObserver", {}), ("MovingAverageMinMaxObserver", {}), ("PerChannelMinMaxObserver", {"ch_axis": 1}),
    ("PerChannelMinMaxObserver", {"ch_axis": -1}), ("MovingAveragePerChannelMinMaxObserver", {"ch_axis": 0}),
    ("HistogramObserver", {}), ("HistogramObserver", {"bins": 100, "dtype": torch.qint8,
                                                      "qscheme": torch.per_tensor_symmetric}),
]


def module(name):
    return pytest.importorskip(name)


def batches(dtype=torch.float32, shape=(4, 16, 64, 64), count=4):
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(shape, generator=generator).exp() * (1 + i % 3) - 1).to(dtype) for i in range(count)]


def run(cls, arguments, values):
    observer = cls(**arguments)
    states = []
    for x in values:
        assert observer(x) is x
        states.append(bits(observer.state_dict()))
    buffer = io.BytesIO()
    torch.save(observer.state_dict(), buffer)
    return bits([states, observer.calculate_qparams(), buffer.getvalue()])


def compare(cls, arguments, values, label=None):
    wanted = run(cls, arguments, values)
    with served(dropin) as calls:
        found = run(cls, arguments, values)
    assert sum(n for k, n in calls.items() if k.endswith(label or cls.__name__)) == len(values), calls
    assert not calls.declined(), calls
    assert found == wanted
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name, arguments", OBSERVERS)
@pytest.mark.parametrize("source", MODULES)
def test_observers(source, name, arguments, dtype):
    if name == "HistogramObserver" and dtype != torch.float32:
        return
    calls = compare(getattr(module(source), name), arguments, batches(dtype))
    assert name != "HistogramObserver" or calls.names("_non_linear_param_search")


@pytest.mark.parametrize("source", MODULES)
@pytest.mark.parametrize("case",
                         ["constant", "zero", "one range", "positive", "small", "strided", "parameter", "scalar"])
def test_histogram_of(source, case):
    x = batches(shape=(64, 65))
    if case == "constant":
        x = [torch.full((100,), 3.5), torch.full((7,), 3.5), *x]
    elif case == "zero":
        x = [torch.zeros(50), torch.zeros(20)]
    elif case == "one range":
        x = [v.clamp(-1, 1) for v in x]
    elif case == "positive":
        x = [v.abs() + 5 for v in x]
    elif case == "small":
        x = [v[0, :20] for v in x]
    elif case == "strided":
        x = [v.t()[::2] for v in x]
    elif case == "parameter":
        x = [torch.nn.Parameter(v) for v in x]
    elif case == "scalar":
        x = [torch.full((1,), 2.0), torch.full((1,), 4.0)]
    compare(module(source).HistogramObserver, {}, x)


@pytest.mark.parametrize("dtype", ["quint8", "qint8", "uint8", "int8", "int16", "uint16"])
def test_search_for_every_dtype(dtype):
    """Many histograms, so that a sum in another order would show."""
    arguments = {"dtype": getattr(torch, dtype)}
    values = batches(shape=(100, 100), count=12)
    wanted = [run(core.HistogramObserver, arguments, values[i:i + 1]) for i in range(len(values))]
    with served(dropin) as calls:
        found = [run(core.HistogramObserver, arguments, values[i:i + 1]) for i in range(len(values))]
    assert calls["torch.ao.HistogramObserver._non_linear_param_search"] == len(values)
    assert found == wanted


@pytest.mark.parametrize("case", ["small", "empty", "subclass", "inf", "nan", "bfloat16", "meta", "gradient"])
def test_declined(case):
    """A call that qobs does not serve runs upstream's own method and is counted."""
    x, cls = batches()[0], core.MinMaxObserver
    if case in ("inf", "nan"):
        x[0, 0, 0, 0], cls = float(case), core.HistogramObserver
    elif case == "bfloat16":
        x, cls = x.bfloat16(), core.HistogramObserver
    x = {"small": lambda: x[0, 0], "empty": lambda: x[:0], "meta": lambda: x.to("meta"),
         "subclass": lambda: x.as_subclass(type("Sub", (torch.Tensor,), {}))}.get(case, lambda: x)()
    if case == "gradient":
        x = x.requires_grad_()

    def observe():
        observer = cls()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                observer(x)
            except Exception as e:
                return str(e)
        return bits(observer.state_dict())
    wanted = observe()
    with served(dropin) as calls:
        found = observe()
    label = f"torch.ao.{cls.__name__}"
    assert calls == ({label: 1} if case == "gradient" else {f"{label} declined": 1}), calls
    assert found == wanted


@pytest.mark.parametrize("name, arguments", OBSERVERS)
def test_copies_pickles_and_scripts(name, arguments):
    """Classes are upstream's. TorchScript gets upstream's methods."""
    values = batches()

    def states():
        observer = getattr(core, name)(**arguments)
        observer(values[0])
        others = [copy.deepcopy(observer), pickle.loads(pickle.dumps(observer)), torch.jit.script(observer)]
        for other in others:
            other(values[1])
        assert not any(type(o) is not type(observer) for o in others[:2])
        loaded = getattr(core, name)(**arguments)
        loaded.load_state_dict(others[0].state_dict())
        return bits([o.state_dict() for o in (*others, loaded)] + [o.calculate_qparams() for o in (*others, loaded)])
    wanted = states()
    with served(dropin) as calls:
        found = states()
    assert calls and not calls.declined(), calls
    assert found == wanted


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 32, 3)
        self.c = torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.c(self.b(self.a(x).relu()).relu().mean((2, 3)))


@pytest.fixture
def net():
    torch.manual_seed(3)
    return Net().eval()


def saved(model):
    return bits([model.state_dict()])


def fx(net, values):
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
    prepared = prepare_fx(copy.deepcopy(net), get_default_qconfig_mapping("x86"), (values[0],))
    for x in values:
        prepared(x)
    before = saved(prepared)
    converted = convert_fx(prepared)
    state = {k: v.int_repr() if isinstance(v, torch.Tensor) and v.is_quantized else v
             for k, v in converted.state_dict().items() if isinstance(v, torch.Tensor)}
    return before, bits([state, converted(values[0])])


def pt2e(net, values):
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )
    exported = torch.export.export(copy.deepcopy(net), (values[0],), strict=True).module()
    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    for x in values:
        prepared(x)
    before = saved(prepared)
    converted = convert_pt2e(prepared)
    return before, bits([converted.state_dict(), converted(values[0])])


@pytest.mark.parametrize("flow", [fx, pt2e], ids=["FX", "PT2E"])
def test_nets(flow, net):
    if flow is pt2e:
        pytest.importorskip("torchao")
    values = batches(shape=(4, 3, 48, 48), count=3)
    wanted = flow(net, values)
    with served(dropin) as calls:
        found = flow(net, values)
    names = {k.rpartition(".")[2] for k in calls.names("Observer")}
    assert names >= {"HistogramObserver", "PerChannelMinMaxObserver"} and not calls.names(" failed"), calls
    assert found == wanted


GRANULARITIES = [("PerTensor", ()), ("PerAxis", (0,)), ("PerAxis", (1,)), ("PerGroup", (32,)), ("PerRow", ()),
                 ("PerToken", ()), ("PerBlock", ((16, 64),))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("granularity, values", GRANULARITIES)
@pytest.mark.parametrize("source, name", [
    ("torchao.quantization.observer", "AffineQuantizedMinMaxObserver"),
    ("torchao.quantization.pt2e._affine_quantization", "AffineQuantizedMinMaxObserver"),
    ("torchao.quantization.pt2e._affine_quantization", "AffineQuantizedMovingAverageMinMaxObserver")])
def test_affine(source, name, granularity, values, dtype):
    cls = getattr(module(source), name)
    kinds = importlib.import_module("torchao.quantization.granularity")
    primitives = importlib.import_module("torchao.quantization.quant_primitives")
    arguments = {"mapping_type": primitives.MappingType.ASYMMETRIC, "target_dtype": torch.uint8,
                 "granularity": getattr(kinds, granularity)(*values)}

    def states():
        observer = cls(**arguments)
        for x in batches(dtype, (256, 512)):
            observer(x)
        if "pt2e" in source:  # takes the enumerations of another module
            return bits([observer.min_val, observer.max_val, observer.block_size, str(observer.original_dtype)])
        return bits([observer.min_val, observer.max_val, observer.calculate_qparams()])
    wanted = states()
    with served(dropin) as calls:
        found = states()
    assert len(calls) == 1 and not calls.declined() and sum(calls.values()) == 4, calls
    assert found == wanted


def line_search(x, granularity, values, cls=None, **arguments):
    cls = cls or module("torchao.quantization.observer").AffineQuantizedMSEObserver
    kinds = importlib.import_module("torchao.quantization.granularity")
    mappings = importlib.import_module("torchao.quantization.quant_primitives").MappingType
    mapping = mappings[arguments.pop("mapping", "SYMMETRIC")]
    arguments = {"mapping_type": mapping, "target_dtype": torch.int8, **arguments}
    observer = cls(granularity=getattr(kinds, granularity)(*values), **arguments)
    observer(x)
    return bits([observer.min_val, observer.max_val, observer.calculate_qparams()])


TYPED = {"eps": 2.0 ** -23, "scale_dtype": torch.float32, "zero_point_dtype": torch.int32}


@pytest.mark.parametrize("arguments", [
    {"steps": 17}, {**TYPED, "quant_min": -8, "quant_max": 7},
    {**TYPED, "target_dtype": torch.uint8, "mapping": "ASYMMETRIC"}], ids=lambda a: "-".join(a) or "plain")
@pytest.mark.parametrize("granularity, values", [g for g in GRANULARITIES if g[0] != "PerBlock"])
def test_line_search(granularity, values, arguments):
    for x in batches(shape=(16, 96), count=1):
        wanted = line_search(x, granularity, values, **arguments)
        with served(dropin) as calls:
            assert line_search(x, granularity, values, **arguments) == wanted
        assert calls == {"torchao.AffineQuantizedMSEObserver.line_search": 1}


@pytest.mark.parametrize("case", ["bfloat16", "infinite", "PerBlock", "float8", "one element", "loss"])
def test_line_search_declined(case):
    x, arguments, granularity = batches(shape=(16, 32), count=1)[0], {}, ("PerTensor", ())
    if case == "bfloat16":
        x = x.bfloat16()
    elif case == "infinite":
        x[3, 5] = float("inf")
    elif case == "PerBlock":
        granularity = ("PerBlock", ((4, 8),))
    elif case == "float8":
        arguments = {"target_dtype": torch.float8_e4m3fn, "zero_point_domain":
                     module("torchao.quantization.quant_primitives").ZeroPointDomain.NONE}
    elif case == "one element":
        granularity = ("PerGroup", (1,))
    elif case == "loss":
        base = module("torchao.quantization.observer").AffineQuantizedMSEObserver
        arguments = {"cls": type("Absolute", (base,), {"mse": lambda self, a, b, block: (a - b).abs().mean()})}
    try:
        wanted = line_search(x, *granularity, **arguments)
    except (RuntimeError, ValueError, AssertionError) as e:
        wanted = type(e)
    with served(dropin) as calls:
        if isinstance(wanted, type):
            with pytest.raises(wanted):
                line_search(x, *granularity, **arguments)
        else:
            assert line_search(x, *granularity, **arguments) == wanted
    assert calls == {"torchao.AffineQuantizedMSEObserver.line_search declined": 1}


def test_install_and_uninstall():
    before = [c.__dict__.get("forward") for c in (core.MinMaxObserver, core.HistogramObserver)]
    dropin.install()
    dropin.install(strict=True)
    assert "__prepare_scriptable__" in core.MinMaxObserver.__dict__
    dropin.uninstall()
    assert "__prepare_scriptable__" not in core.MinMaxObserver.__dict__
    assert [c.__dict__.get("forward") for c in (core.MinMaxObserver, core.HistogramObserver)] == before
