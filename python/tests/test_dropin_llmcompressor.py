# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The drop-in for llm-compressor: the same scales, and the same files of oneshot."""
import contextlib
import functools

import pytest
import libqobs as qobs
from dropin_tools import bits, files, served

torch = pytest.importorskip("torch")
pytest.importorskip("llmcompressor")
import libqobs.llmcompressor as dropin  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs  # noqa: E402
from datasets import Dataset  # noqa: E402
from llmcompressor import oneshot  # noqa: E402
from llmcompressor.modifiers.gptq import GPTQModifier  # noqa: E402
from llmcompressor.modifiers.quantization import QuantizationModifier  # noqa: E402
from llmcompressor.observers import Observer  # noqa: E402
from llmcompressor.observers import min_max as upstream_min_max  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

INT4 = {"num_bits": 4, "strategy": "group", "group_size": 128}
FORMATS = {
    "int4": INT4, "int4 asymmetric": {**INT4, "symmetric": False},
    "int8 channel": {"num_bits": 8, "strategy": "channel"},
    "fp8 tensor": {"num_bits": 8, "type": "float", "strategy": "tensor"},
    "fp8 block": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
    "nvfp4": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
              "scale_dtype": torch.float8_e4m3fn},
    "mxfp4": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8,
              "zp_dtype": torch.uint8},
}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def weight(dtype, rows=128, columns=1024, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, columns, generator=generator) * 0.02).to(dtype)


def observe(name, values, base="weight", **args):
    observer = Observer.load_from_registry(name, base_name=base, args=QuantizationArgs(observer=name, **args))
    ranges = []
    for value in values if isinstance(values, list) else [values]:
        observer(value)
        ranges.append((observer.min_vals.clone(), observer.max_vals.clone()))
    return bits([ranges, observer.get_qparams()])


def compare(label, *arguments, **keywords):
    wanted = observe(*arguments, **keywords)
    with served(dropin) as calls:
        found = observe(*arguments, **keywords)
    assert calls.get(f"llmcompressor.{label}") and not calls.declined(), calls
    assert found == wanted


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMATS)
def test_memoryless_mse(form, dtype):
    compare("search", "memoryless_mse", weight(dtype), **FORMATS[form])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nvfp4_expanded_mse(dtype):
    compare("search", "nvfp4_expanded_mse", weight(dtype, 16), **FORMATS["nvfp4"])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("base, strategy, shape",
                         [("input", "tensor", (4, 16, 512)), ("k", "attn_head", (2, 8, 64, 32))])
def test_mse_of_activations(base, strategy, shape, dtype):
    """A moving average of searches over several observations each."""
    batches = [weight(dtype, 1, torch.Size(shape).numel(), i).reshape(shape) * (i + 1) for i in range(3)]
    compare("search", "mse", batches, base, num_bits=8, type="float", strategy=strategy)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMATS)
def test_min_max(form, dtype):
    compare("minmax", "memoryless_minmax", weight(dtype), **FORMATS[form])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["static_minmax", "minmax"])
def test_min_max_of_activations(name, dtype):
    batches = [weight(dtype, 64, 2048, i).reshape(4, 16, 2048) * (i + 1) for i in range(3)]
    compare("minmax", name, batches, "input", num_bits=8, type="float", strategy="tensor")
    heads = [b.reshape(4, 16, 8, 256).transpose(1, 2) for b in batches]
    compare("minmax", name, heads, "q", num_bits=8, type="float", strategy="attn_head")


def imatrix(dtype, form, kwargs):
    args = QuantizationArgs(observer="imatrix_mse", observer_kwargs=kwargs, **FORMATS[form])
    observer = Observer.load_from_registry("imatrix_mse", base_name="weight", args=args)
    linear = torch.nn.Linear(1024, 64, bias=False, dtype=dtype)
    linear.weight.data = weight(dtype, 64)
    observer.attach(linear)
    with torch.no_grad():
        linear(weight(torch.float32, 128, seed=1).mul(weight(torch.float32, 1, seed=2).exp()).to(dtype))
    observer(linear.weight)
    observer.detach(linear)
    return bits([observer.min_vals, observer.max_vals])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["int4", "int4 asymmetric", "int8 channel", "nvfp4"])
@pytest.mark.parametrize("norm", [2.4, 3.0])
def test_imatrix_mse(form, dtype, norm):
    wanted = imatrix(dtype, form, {"norm": norm})
    with served(dropin) as calls:
        found = imatrix(dtype, form, {"norm": norm})
    assert calls.get("llmcompressor.imatrix_search") == 1 and not calls.declined(), calls
    assert found == wanted


@pytest.mark.parametrize("special", [float("nan"), float("inf")])
def test_nonfinite(special):
    """Minima and maxima are upstream's. A search fails in qobs and runs upstream's own function."""
    value = weight(torch.float32)
    value[3, 5] = special
    compare("minmax", "memoryless_minmax", value, **INT4)
    wanted = observe("memoryless_mse", value, **INT4)
    with pytest.raises(qobs.NonfiniteError), served(dropin):
        observe("memoryless_mse", value, **INT4)
    with served(dropin) as calls:
        dropin.install()
        assert observe("memoryless_mse", value, **INT4) == wanted
    assert calls["llmcompressor.search failed"] == 1, calls


# GPTQ

GPTQ_FORMATS = {**FORMATS, "int3 asymmetric": {**INT4, "num_bits": 3, "symmetric": False},
                "int4 tensor": {"num_bits": 4, "strategy": "tensor"}}


def gptq(form, dtype, batch, rows=100, columns=384):
    """A whole quantize_weight, whose blocks are 128 columns: scales in dtype, columns in the order of activations."""
    from llmcompressor.modifiers.gptq.gptq_quantize import quantize_weight
    args = QuantizationArgs(actorder="static", **GPTQ_FORMATS[form])
    observer = Observer.load_from_registry("memoryless_minmax", base_name="weight", args=args)
    parts = []
    for i in range(batch):
        value = weight(dtype, rows, columns, i)
        observer(value)
        parts.append((value.float(), observer.get_qparams()))
    inputs = weight(torch.float32, 512, columns, 9) * weight(torch.float32, 1, columns, 8).exp()
    inputs[:, 5] = 0  # a dead column

    def stacked(key):
        return None if parts[0][1][key] is None else torch.stack([p[1][key] for p in parts])
    factor = stacked("global_scale")
    found = quantize_weight(torch.stack([p[0] for p in parts]), torch.stack([inputs.T @ inputs] * batch),
                            stacked("scale"), stacked("zero_point"),
                            None if factor is None else factor.reshape(batch, -1)[:, 0], args)
    return bits(list(found))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", GPTQ_FORMATS)
@pytest.mark.parametrize("batch", [1, 2])
def test_gptq(form, dtype, batch):
    wanted = gptq(form, dtype, batch)
    for threads in (1, 3):
        qobs.set_threads(threads)
        try:
            with served(dropin) as calls:
                found = gptq(form, dtype, batch)
        finally:
            qobs.set_threads(1)
        assert calls.get("llmcompressor.gptq") == 3 and not calls.names("gptq declined", " failed"), calls
        assert found == wanted


def test_gptq_of_infinity():
    """An error in qobs changes nothing; upstream's own function runs after it."""
    from llmcompressor.modifiers.gptq.gptq_quantize import gptq_block_update
    args = QuantizationArgs(**FORMATS["int8 channel"])
    value = weight(torch.float32, 8, 128)[None]
    value[0, 2, 100] = float("inf")
    factor = torch.eye(128)[None] + torch.triu(weight(torch.float32, 128, 128))

    def update():
        arrays = [value.clone(), *(torch.zeros_like(value) for _ in range(3))]
        gptq_block_update(arrays[0], factor, *arrays[1:], scale=torch.full((1, 8, 1), .01), zero_point=None,
                          global_scale=None, g_idx=None, quant_args=args, i1=0)
        return bits(arrays)
    wanted = update()
    with pytest.raises(qobs.NonfiniteError, match=r"value: \[2\]\[100\] is inf"), served(dropin):
        update()
    with served(dropin) as calls:
        dropin.install()
        assert update() == wanted
    assert calls == {"llmcompressor.gptq failed": 1}, calls


def accumulated(inputs, layers, kind=None):
    """Hessians of layers that see inputs, one after the other, and their factors. kind: a dead column, or a Hessian
    that is not positive definite."""
    from llmcompressor.modifiers.gptq import helpers
    hessians, samples = [torch.zeros(96, 96) for _ in layers], [torch.zeros(()) for _ in layers]
    for x in inputs:
        for i, layer in enumerate(layers):
            hessians[i], samples[i] = helpers.accumulate_hessian(x, layer, hessians[i], samples[i])
    found = bits([hessians, samples])
    for h in hessians:
        weights, fallback = weight(torch.float32, 8, 96)[None], torch.zeros(1, dtype=torch.bool)
        if kind == "dead":
            h[:, 7] = h[7] = 0
        if kind == "indefinite":
            h[5, 5] = -1
        found += bits([helpers.factorize_hessian(weights, h[None], .01, fallback), weights, fallback])
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gptq_of_one_input(dtype):
    """Layers of one input get one product and one factor; changed contents, other inputs and other shares get
    theirs."""
    layers = [torch.nn.Linear(96, 8, bias=False) for _ in range(3)]
    inputs = [weight(dtype, 200, 96, i).reshape(2, 100, 96) for i in range(4)]
    for kind in (None, "dead", "indefinite"):
        wanted = accumulated(inputs, layers, kind)
        with served(dropin) as calls:
            assert accumulated(inputs, layers, kind) == wanted
            assert dropin._shared == {96} and len(dropin._factors) == 1
        assert calls == {"llmcompressor.hessian": 12, "llmcompressor.factor": 3}, calls
    assert dropin._product is None and not dropin._factors
    x, (h, n) = inputs[0], (torch.zeros(96, 96), torch.zeros(()))
    from llmcompressor.modifiers.gptq.helpers import accumulate_hessian
    wanted = accumulate_hessian(x * 2, layers[0], *accumulate_hessian(x, layers[0], h.clone(), n.clone()))
    with served(dropin):
        from llmcompressor.modifiers.gptq import helpers
        helpers.accumulate_hessian(x, layers[0], h, n)
        assert dropin._product.input() is x
        x *= 2
        assert bits(list(helpers.accumulate_hessian(x, layers[1], h, n))) == bits(list(wanted))
        del x
        inputs.clear()
        assert dropin._product is None


# Codes

@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["int3", "int4", "int8", "e4m3"])
@pytest.mark.parametrize("strategy", ["group", "channel"])
def test_codes(strategy, kind, dtype):
    """Codes of compressed-tensors' quantize: scales in the dtype of the weight and another one, zero points or none."""
    from compressed_tensors.quantization import quantize
    args = QuantizationArgs(num_bits=8 if kind == "e4m3" else int(kind[3:]), strategy=strategy,
                            type="float" if kind == "e4m3" else "int", group_size=128 if strategy == "group" else None)
    values = weight(dtype, 256, 1024)
    values[0, :6] = torch.tensor([0, -0., 1e-30, -1e-30, 2, -2])
    shape = (256, 8 if strategy == "group" else 1)
    code_dtype = args.pytorch_dtype()
    for scale_dtype in {torch.float32, dtype}:
        scale = (torch.rand(shape, generator=torch.Generator().manual_seed(3)) * .002 + .002).to(scale_dtype)
        zeros = torch.randint(-4, 4, shape, generator=torch.Generator().manual_seed(4)).to(code_dtype)
        for zero_point in (None, zeros, torch.zeros_like(zeros)):
            wanted = bits(quantize(values, scale, zero_point, args, dtype=code_dtype))
            with served(dropin) as calls:
                found = bits(quantize(values, scale, zero_point, args, dtype=code_dtype))
            assert calls == {"llmcompressor.codes": 1} and found == wanted


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fp4(dtype):
    """Every 16-bit number, of float32 those that bfloat16 has and their neighbours; packing keeps the sign of a
    zero."""
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
    from compressed_tensors.quantization.utils.fp4_utils import cast_to_fp4
    values = torch.arange(-1 << 15, 1 << 15, dtype=torch.int32).to(torch.int16).view(
        torch.float16 if dtype == torch.float16 else torch.bfloat16).to(dtype)
    values = values[values.isfinite()]
    if dtype == torch.float32:
        values = torch.cat([values, values.nextafter(torch.tensor(9.)), values.nextafter(torch.tensor(-9.))])
    values = values.repeat(2)[:values.numel() * 2 // 512 * 512].reshape(-1, 512)
    wanted = cast_to_fp4(values.clone())
    signed = torch.where(wanted == 0, wanted.copysign(values), wanted)
    packed = [pack_fp4_to_uint8(wanted), pack_fp4_to_uint8(signed)]
    with served(dropin) as calls:
        found = cast_to_fp4(values.clone())
        assert bits([pack_fp4_to_uint8(wanted), pack_fp4_to_uint8(signed)]) == bits(packed)
    assert calls == {"llmcompressor.fp4": 1, "llmcompressor.packing": 2}, calls
    assert bits(found) == bits(wanted)


class Subclass(torch.Tensor):
    pass


def vmapped(value):
    return torch.vmap(upstream_min_max._get_min_max)(torch.stack([value, value]))


def compiled(value):
    return torch.compile(lambda x: upstream_min_max._get_min_max(x), backend="eager", fullgraph=True)(value)


def searched(value, **args):
    return observe("memoryless_mse", value, **INT4, **args)


@pytest.mark.parametrize("case", ["subclass", "meta", "small", "gradient", "double", "scale_dtype", "fake", "mode",
                                  "vmap", "autocast", "compile"])
def test_declined(case):
    """A call that qobs does not serve runs upstream's own function and is counted."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    value, name, block = weight(torch.float32).unsqueeze(1), "minmax", contextlib.nullcontext()
    run = {"vmap": vmapped, "compile": compiled}.get(case, lambda x: upstream_min_max._get_min_max(x))
    if case == "subclass":
        value = value.as_subclass(Subclass)
    elif case == "meta":
        value = value.to("meta")
    elif case == "small":
        value = value[:4]
    elif case == "gradient":
        value = value.requires_grad_()
    elif case == "fake":
        value = FakeTensorMode().from_tensor(value)
    elif case == "mode":
        block = torch.device("cpu")
    elif case == "autocast":
        block = torch.autocast("cpu", torch.bfloat16)
    elif case == "double":
        name, run, value = "search", searched, weight(torch.float64, 8)
    elif case == "scale_dtype":
        name, run, value = "search", functools.partial(searched, scale_dtype=torch.float8_e4m3fn), value[:8, 0]
    wanted = run(value)
    with served(dropin) as calls, block:
        found = run(value)
    assert calls == {f"llmcompressor.{name} declined": 1}, calls
    if case not in ("meta", "fake"):
        assert bits(found) == bits(wanted)


def test_install_and_uninstall():
    """Back ends of ImplBackend stay registered, once, and take calls only while the drop-in is installed."""
    from compressed_tensors.utils.impl_backend import ImplBackend
    from llmcompressor.observers import mse, mse_quant
    functions = [mse._grid_search_mse, mse_quant._grid_search_mse]
    before = upstream_min_max._get_min_max
    dropin.install()
    dropin.install(strict=True)
    dropin.uninstall()
    dropin.install()
    assert upstream_min_max._get_min_max is not before
    assert [mse._grid_search_mse, mse_quant._grid_search_mse] == functions
    for name in ("_grid_search_mse", "gptq_block_update", "_quantize", "cast_to_fp4", "pack_fp4_to_uint8"):
        assert [f.__name__ for f, _, _ in ImplBackend._backends[name]].count("qobs_" + name.lstrip("_")) == 1
    dropin.uninstall()
    dropin.uninstall()
    calls = qobs.dropin_calls()
    observe("memoryless_mse", weight(torch.float32), **INT4)
    assert upstream_min_max._get_min_max is before and qobs.dropin_calls() == calls


# Whole runs

RUNS = {
    "W4A16 mse float32": (torch.float32, "W4A16", "memoryless_mse", "search"),
    "W4A16 mse bfloat16": (torch.bfloat16, "W4A16", "memoryless_mse", "search"),
    "NVFP4 mse float32": (torch.float32, "NVFP4", "memoryless_mse", "search"),
    "NVFP4 mse bfloat16": (torch.bfloat16, "NVFP4", "memoryless_mse", "search"),
    "FP8 float32": (torch.float32, "FP8", None, "minmax"),
    "FP8 bfloat16": (torch.bfloat16, "FP8", None, "minmax"),
    "GPTQ W4A16 float32": (torch.float32, "W4A16", None, "gptq"),
    "GPTQ W4A16_ASYM bfloat16": (torch.bfloat16, "W4A16_ASYM", None, "gptq"),
    "GPTQ NVFP4A16 bfloat16": (torch.bfloat16, "NVFP4A16", None, "gptq"),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A model with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, vocab_size=256, max_position_embeddings=512)
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def run(source, folder, dtype, scheme, observers, label):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 256, (2, 256), generator=generator).tolist()
    data = Dataset.from_dict({"input_ids": tokens, "attention_mask": [[1] * 256] * len(tokens)})
    words = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", pad_token="a")
    modifier = {"targets": "Linear", "ignore": ["lm_head"], "scheme": scheme}
    recipe = (GPTQModifier(**modifier) if label == "gptq" else
              QuantizationModifier(weight_observer=observers, **modifier))
    model = LlamaForCausalLM.from_pretrained(source, dtype=dtype)
    oneshot(model=model, processor=tokenizer, dataset=data, recipe=recipe,
            pipeline="sequential" if label == "gptq" else "basic",
            num_calibration_samples=len(tokens), max_seq_length=256, output_dir=str(folder))
    return bits(model.state_dict()), files(folder)


@pytest.mark.parametrize("name", RUNS)
def test_oneshot(name, source, tmp_path, monkeypatch):
    """state_dict and every saved byte."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    arguments, label = RUNS[name], RUNS[name][-1]
    wanted = run(source, tmp_path / "without", *arguments)
    with served(dropin) as calls:
        found = run(source, tmp_path / "with", *arguments)
    assert calls[f"llmcompressor.{label}"] > 10 and not calls.names(" failed"), calls
    assert label != "gptq" or (calls["llmcompressor.hessian"] == 28 and calls["llmcompressor.factor"] > 5), calls
    assert len(wanted[1]) >= 3 and found[0] == wanted[0] and found[1] == wanted[1]
