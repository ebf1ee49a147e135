#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Cases of golden suites, computed by torch, torchao, ONNX Runtime, compressed-tensors and llm-compressor.

Each function takes a case and its tensors and returns results as a safetensors file holds them."""
import importlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
import numpy as np  # noqa: E402
import cases as golden  # noqa: E402

try:
    import torch
except ImportError:  # a suite of packages without it
    torch = None


def to_torch(tensor):
    dtype, a = tensor
    if dtype == "BF16":
        return torch.from_numpy(a.astype(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(a))


def of_torch(t):
    """As a safetensors file holds it; 8-bit floats as the F32 that golden files have."""
    t = torch.as_tensor(t).detach().cpu()
    if "float8" in str(t.dtype):
        t = t.float()
    names = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int8: "I8",
             torch.uint8: "U8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64"}
    if t.dtype == torch.bfloat16:
        return "BF16", t.contiguous().view(torch.int16).numpy().astype(np.uint16)
    return names[t.dtype], t.contiguous().numpy()


def numbered(results, i):
    return {f"{name}_{i}": value for name, value in results.items()}


# ---- torch.ao and torchao -------------------------------------------------------------------------------------------

def torch_minmax(case, T):
    from torch.ao.quantization import observer
    cfg = {k: v for k, v in case["config"].items() if k not in golden.META and v is not None}
    for key in ("dtype", "qscheme"):
        if key in cfg:
            cfg[key] = getattr(torch, cfg[key])
    o = getattr(observer, case["upstream"].split(".")[-1].split()[0])(**cfg)
    got = {}
    for i, key in enumerate(case["inputs"]):
        o(to_torch(T[key]))
        if any(q.endswith(f"_{i}") for q in case["expect"]):
            got.update(numbered(qparams_of(o), i))
    return dict(got, **qparams_of(o), min_val=of_torch(o.min_val), max_val=of_torch(o.max_val))


def qparams_of(o):
    scale, zero_point = o.calculate_qparams()
    results = {"scale": of_torch(scale)}
    return dict(results, zero_point=of_torch(zero_point)) if zero_point is not None else results


def torchao(case, T):
    cfg = case["config"]
    from torchao.quantization import granularity
    if cfg["path"] == "pt2e":
        from torchao.quantization.pt2e import _affine_quantization as module
        from torchao.quantization.pt2e.observer import MappingType, ZeroPointDomain
        g = importlib.import_module("torchao.quantization.pt2e.observer")
    else:
        from torchao.quantization import observer as module
        from torchao.quantization.quant_primitives import MappingType, ZeroPointDomain
        g = granularity
    args = [tuple(cfg["granularity_args"])] if cfg["granularity"] == "PerBlock" else cfg["granularity_args"]
    kind = getattr(g, cfg["granularity"], None) or getattr(granularity, cfg["granularity"])
    keys = ["quant_min", "quant_max", "eps", "preserve_zero", "averaging_constant", "is_dynamic", "steps", "run_once"]
    keys += ["keepdim"] if cfg.get("keepdim") else []
    more = {k: cfg[k] for k in keys if cfg.get(k) is not None}
    for k in ("scale_dtype", "zero_point_dtype"):
        if cfg.get(k):
            more[k] = getattr(torch, cfg[k])
    if cfg.get("zero_point_domain"):
        more["zero_point_domain"] = getattr(ZeroPointDomain, cfg["zero_point_domain"])
    inputs = [to_torch(T[k]) for k in case["inputs"]]
    values = inputs if "has_scale" not in cfg else inputs[:1]
    if cfg.get("has_scale"):
        more.update(zip(["scale", "zero_point"], inputs[1:]))
    o = getattr(module, cfg["cls"])(getattr(MappingType, cfg["mapping_type"]), getattr(torch, cfg["target_dtype"]),
                                    kind(*args), **more)
    if cfg.get("set_qparams"):
        o.set_qparams(*inputs[1:])
    got = {}
    for i, x in enumerate(values):
        o(x)
        if f"scale_{i}" in case["expect"]:
            got.update(numbered(qparams_of(o), i))
    got.update(qparams_of(o))
    return dict(got, **{q: of_torch(getattr(o, q)) for q in ("min_val", "max_val") if hasattr(o, q)})


def torch_histogram(case, T):
    """The observer of each dtype; the histogram does not depend on it."""
    from torch.ao.quantization.observer import HistogramObserver
    got = {}
    for q in [q for q in case["expect"] if q.startswith("scale_")] or ["scale_quint8_affine"]:
        _, dtype, scheme = q.split("_")
        o = HistogramObserver(dtype=getattr(torch, dtype), qscheme=getattr(torch, "per_tensor_" + scheme),
                              bins=case["config"]["bins"])
        for key in case["inputs"]:
            o(to_torch(T[key]))
        scale, zero_point = o.calculate_qparams()
        low, high = o._non_linear_param_search()
        got.update({q: of_torch(scale), "zero_point" + q[5:]: of_torch(zero_point), "histogram": of_torch(o.histogram),
                    "min_val": of_torch(o.min_val), "max_val": of_torch(o.max_val),
                    "new_min": of_torch(low), "new_max": of_torch(high)})
    return got


def torch_histc(case, T):
    cfg = case["config"]
    return {"histogram": of_torch(torch.histc(to_torch(T[case["inputs"][0]]), cfg["bins"], cfg["min"], cfg["max"]))}


# ---- ONNX Runtime ---------------------------------------------------------------------------------------------------

def ort(case, T):
    from onnxruntime.quantization.calibrate import HistogramCollector
    cfg = case["config"]
    c = HistogramCollector(cfg["method"], cfg["symmetric"], cfg["num_bins"], cfg.get("num_quantized_bins"),
                           cfg.get("percentile"), cfg.get("scenario"))
    for key in case["inputs"]:
        c.collect({"t": np.array(T[key][1])})
    hist, edges, low, high = c.get_histogram_dict()["t"][:4]
    r = c.compute_collection_result()["t"]
    got = {"histogram": ("I64", hist), "hist_edges": ("F32", edges), "data_min": ("F32", np.array(low)),
           "data_max": ("F32", np.array(high)), "edge_sample": ("F32", np.append(edges[::37], edges[-1]))}
    if cfg["method"] == "distribution":
        got.update(avg=("F32", r.avg_std[0]), std=("F32", r.avg_std[1]), lowest=("F32", r.range_value[0]),
                   highest=("F32", r.range_value[1]))
    else:
        got.update(lowest=("F32", np.array(r[0])), highest=("F32", np.array(r[1])))
    return got


def ort_static(case, T):
    """Scale and zero point of the range, as quantize_static derives them."""
    import onnx
    from onnxruntime.quantization import quant_utils
    cfg = case["config"]
    low, high = (np.array(T[case["expect"][q]][1]) for q in ("lowest", "highest"))
    kind, symmetric, least = (cfg.get(k) for k in ("activation_type", "activation_symmetric", "min_real_range"))
    kind = getattr(onnx.TensorProto, (kind or "QInt8")[1:].upper())
    numbers = quant_utils.get_qmin_qmax_for_qType(kind, reduce_range=cfg.get("reduce_range", False),
                                                  symmetric=symmetric)
    zero_point, scale = quant_utils.compute_scale_zp(low, high, *numbers, symmetric, least)
    if cfg.get("activation_restricted_asymmetric"):
        zero_point, scale = quant_utils.snap_zero_point_to_uint8(low, high, *map(int, numbers), min_real_range=least)
    names = {"float32": "F32", "float64": "F64", "float16": "F16"}
    return {"scale": (names[str(scale.dtype)], scale), "zero_point": ("I32", np.array(zero_point, dtype=np.int32))}


# ---- compressed-tensors and llm-compressor --------------------------------------------------------------------------

def quantization_args(cfg):
    from compressed_tensors.quantization import QuantizationArgs
    keys = ("num_bits", "type", "symmetric", "strategy", "group_size", "block_structure", "dynamic")
    more = {k: cfg[k] for k in keys if cfg.get(k) is not None}
    for k in ("scale_dtype", "zp_dtype"):
        if cfg.get(k):
            more[k] = getattr(torch, cfg[k])
    return QuantizationArgs(**more)


def ct_qparams(case, T):
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    inputs = [to_torch(T[k]) for k in case["inputs"]]
    if "generate_gparam" in case["upstream"]:
        return {"global_scale": of_torch(generate_gparam(*inputs))}
    cfg = case["config"]
    scale, zero_point = calculate_qparams(inputs[0], inputs[1], quantization_args(cfg),
                                          inputs[2] if cfg.get("has_global_scale") else None)
    return {"scale": of_torch(scale), "zero_point": of_torch(zero_point)}


def ct_quantize(case, T):
    from compressed_tensors.quantization.lifecycle import forward
    from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp
    cfg = case["config"]
    args, inputs = quantization_args(cfg), [to_torch(T[k]) for k in case["inputs"]]
    shared = inputs[-1] if cfg["has_global_scale"] else None
    if "compute_dynamic" in case["upstream"]:
        scale, zero_point = compute_dynamic_scales_and_zp(inputs[0], args, torch.nn.Module(), shared)
        fake = forward.fake_quantize(inputs[0], scale, zero_point, args, shared)
        return {"scale": of_torch(scale), "zero_point": of_torch(zero_point), "fake_quantized": of_torch(fake)}
    x, scale = inputs[:2]
    zero_point = inputs[2].to(getattr(torch, cfg["zp_dtype"])) if cfg["has_zero_point"] else None
    codes = forward.quantize(x, scale, zero_point, args, global_scale=shared)
    got = {}
    if "quantized_cast" in case["expect"]:
        cast = forward.quantize(x, scale, zero_point, args, dtype=args.pytorch_dtype(), global_scale=shared)
        got = {"quantized_cast": of_torch(cast)}
    return {**got, "quantized": of_torch(codes),
            "dequantized": of_torch(forward.dequantize(codes, scale, zero_point, args, global_scale=shared)),
            "fake_quantized": of_torch(forward.fake_quantize(x, scale, zero_point, args, shared))}


SEARCH = ("averaging_constant", "maxshrink", "patience", "grid", "norm", "expand")


def llmc(case, T):
    from llmcompressor.observers import Observer
    cfg = case["config"]
    more = {k: cfg[k] for k in SEARCH if cfg.get(k) is not None}
    if "grid" in more:
        more["grid"] = int(more["grid"])
    o = Observer.load_from_registry(cfg["observer"], base_name=cfg["base_name"], args=quantization_args(cfg), **more)
    inputs = [to_torch(T[k]) for k in case["inputs"]]
    for name, key in sorted(case.get("aux", {}).items()):
        if name.startswith("act_"):
            module = torch.nn.Linear(inputs[0].shape[-1], 1)
            if o._imatrix_sum is None:
                o.attach(module)
                keep = module
            keep._forward_pre_hooks[next(iter(keep._forward_pre_hooks))](keep, (to_torch(T[key]),))
    for x in inputs:
        o(x)
    got = {"min_vals": of_torch(o.min_vals), "max_vals": of_torch(o.max_vals)}
    if getattr(o, "_imatrix_sum", None) is not None:
        got.update(imatrix_sum=of_torch(o._imatrix_sum), imatrix_count=of_torch(o._imatrix_count))
    return dict(got, **{k: of_torch(v) for k, v in o.get_qparams().items() if v is not None})
