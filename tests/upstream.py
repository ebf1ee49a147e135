#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Runs the inputs of golden suites through the installed packages of upstream again.

    upstream.py [--dir DIRECTORY] [--suite NAME]... [--change-one]

A drift of upstream is a failure. Suites whose packages are not installed are left out, with their names. Results are held
against the golden ones by the rule that each names, as the program's are. With --change-one the last bit of one golden value
of each suite is changed, and a suite passes if that is found. Ends with `N passed, N failed`.
"""
import argparse
import contextlib
import importlib
import io
import json
import os
import sys
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
import numpy as np  # noqa: E402
import run_cli as golden  # noqa: E402

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


# ---- Quark and Model-Optimizer --------------------------------------------------------------------------------------

def quark(case, T):
    from quark.torch.quantization.config import type as types
    from quark.torch.quantization.config.config import QTensorConfig
    from quark.torch.quantization.observer import observer
    cfg = case["config"]
    cls = getattr(observer, case["upstream"].split()[-1])
    enums = {"dtype": types.Dtype, "mx_element_dtype": types.Dtype, "qscheme": types.QSchemeType,
             "scale_type": types.ScaleType, "zero_point_type": types.ZeroPointType}
    keys = ("is_dynamic", "ch_axis", "group_size", "symmetric", "scale_format", "scale_calculation_mode")
    more = {k: cfg[k] for k in keys if cfg.get(k) is not None}
    more.update({k: getattr(e, cfg[k]) for k, e in enums.items() if cfg.get(k)})
    o = cls(QTensorConfig(observer_cls=cls, round_method=types.RoundType.half_even, **more))
    if cfg.get("quant_max_first_level"):
        o.quant_max_first_level = cfg["quant_max_first_level"]
    for key in case["inputs"]:
        o(to_torch(T[key]))
    scale, zero_point = o._calculate_qparams()[:2]
    got = {"scale": of_torch(scale), "zero_point": of_torch(zero_point)}
    return dict(got, **{q: of_torch(getattr(o, q)) for q in ("min_val", "max_val", "amax")
                        if torch.is_tensor(getattr(o, q, None))})


def modelopt(case, T):
    from modelopt.torch.quantization import calib
    cfg = dict(case["config"])
    cls = case["upstream"].split()[-1]
    module = {"BiasCalibrator": "bias", "NVFP4ActHeadroomCalibrator": "nvfp4_act_headroom"}[cls]
    make = getattr(importlib.import_module(f"{calib.__name__}.{module}"), cls)
    cfg = {k: v for k, v in cfg.items() if k not in ("n_batches", "warns")}
    if cfg.get("axis") is not None:
        cfg["axis"] = tuple(cfg["axis"])
    c, got = make(**cfg), {}
    for i, key in enumerate(case["inputs"]):
        x = to_torch(T[key])
        c.collect(x)
        if cls == "BiasCalibrator":
            got[f"bias_{i}"] = of_torch(c.compute_bias())
    if cls == "BiasCalibrator":
        return dict(got, dynamic_bias=of_torch(c.compute_dynamic_bias(x)))
    amax = c.compute_amax()
    if amax is None:
        raise ValueError("there is no amax")
    return {"running_max": of_torch(c._running_max), "histogram": of_torch(c._hist), "amax": of_torch(amax)}


# Observers that the calls above do not reach.
UNSEEN = ("threshold", "idx", "stop_", "divergences", "imatrix_")

# Suite, package that must be there, function, and which cases it runs.
MINMAX = ("PerTensorMinMaxObserver", "PerChannelMinMaxObserver", "PerGroupMinMaxObserver", "PerBlockMXObserver")
RUNS = {
    "torch_minmax": ("torch", torch_minmax, lambda c: c["name"] != "torch_minmax/nan_qparams"),
    "torchao": ("torchao", torchao, lambda c: True),
    "ort": ("onnxruntime", ort, lambda c: True),
    "ct_qparams_2026_11": ("compressed_tensors", ct_qparams, lambda c: c["config"].get("num_bits") != 6),
    "llmc_minmax_2026_11": ("llmcompressor", llmc, lambda c: "fused" not in c["config"]),
    "llmc_mse_2026_11": ("llmcompressor", llmc, lambda c: "fused" not in c["config"]),
    "quark_2026_11": ("quark.torch", quark, lambda c: golden.case_is_of(c, MINMAX)),
    "trt_2026_11": ("modelopt", modelopt, lambda c: golden.case_is_of(c, golden.MODELOPT)),
}


def change_one(cases, T):
    """The first case with an exact scale, amax or range, and the tensors with the last bit of its first element changed."""
    for case in cases:
        for q in ("scale", "amax", "bias_0", "highest", "global_scale", "scale_0"):
            if q in case["expect"]:
                key = case["expect"][q]
                dtype, a = T[key]
                changed = np.array(a)
                bits = changed.reshape(-1).view(np.uint8)
                bits[1 if "rel" in case["compare"].get(q, "") else 0] ^= 0x40 if "rel" in case["compare"].get(q, "") else 1
                return [case], dict(T, **{key: (dtype, changed)})
    raise SystemExit("no value to change")


def run(suite, directory, changes):
    global torch
    package, function, selects = RUNS[suite]
    try:
        importlib.import_module(package)
        torch = importlib.import_module("torch") if suite != "ort" else None
    except ImportError as e:
        print(f"{suite}: left out, {e}")
        return 0, 0
    with open(os.path.join(directory, suite + ".json"), encoding="utf-8") as file:
        cases = [c for c in json.load(file) if selects(c)]
    T = golden.read(os.path.join(directory, suite + ".safetensors"))
    if changes:
        cases, T = change_one(cases, T)
    passed = failed = 0
    for case in cases:
        bad, got, raised = [], None, None
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = function(case, T)
        except Exception as e:  # what upstream raises may be of any class
            raised = f"{type(e).__name__}: {e}"
        if "error" in case:
            bad = [] if raised else [f"does not raise; it did: {case['error'][:120]}"]
        elif raised:
            bad = [f"raises {raised[:200]}"]
        else:
            wanted = {q: k for q, k in case["expect"].items() if q in got or not q.startswith(UNSEEN)}
            bad = golden.check(dict(case, expect=wanted), T, got)
        passed, failed = passed + (not bad), failed + bool(bad)
        for line in bad[:2] if failed <= 10 and not changes else []:
            print(f"FAILED {case['name']}: {line}")
    if changes:
        passed, failed = failed, passed
    print(f"{suite}: {passed} passed, {failed} failed")
    return passed, failed


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--dir", default=golden.HERE)
    ap.add_argument("--suite", action="append")
    ap.add_argument("--change-one", action="store_true")
    a = ap.parse_args()
    results = [run(suite, a.dir, a.change_one) for suite in a.suite or RUNS]
    passed, failed = (sum(r[i] for r in results) for i in range(2))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
