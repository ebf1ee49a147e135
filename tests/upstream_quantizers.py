#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Cases of golden suites, computed by Quark and Model-Optimizer; as upstream_calls.py."""
import importlib
import types

import cases as golden
from upstream_calls import numbered, of_torch, to_torch, torch


# ---- Quark and Model-Optimizer --------------------------------------------------------------------------------------

def quark(case, T):
    from quark.torch.quantization.config import type as kinds
    from quark.torch.quantization.config.config import QTensorConfig, TQTSpec
    from quark.torch.quantization.observer import lsq_observer, observer, tqt_observer
    cfg = case["config"]
    name = case["upstream"].split()[-1]
    cls = next(getattr(m, name) for m in (observer, lsq_observer, tqt_observer) if hasattr(m, name))
    enums = {"dtype": kinds.Dtype, "mx_element_dtype": kinds.Dtype, "qscheme": kinds.QSchemeType,
             "scale_type": kinds.ScaleType, "zero_point_type": kinds.ZeroPointType}
    keys = ("is_dynamic", "ch_axis", "group_size", "symmetric", "scale_format", "scale_calculation_mode")
    more = {k: cfg[k] for k in keys if cfg.get(k) is not None}
    more.update({k: getattr(e, cfg[k]) for k, e in enums.items() if cfg.get(k)})
    if cfg.get("threshold_init_meth"):
        more["qat_spec"] = TQTSpec(threshold_init_meth=getattr(kinds.TQTThresholdInitMeth, cfg["threshold_init_meth"]))
    o = cls(QTensorConfig(observer_cls=cls, round_method=kinds.RoundType.half_even, **more))
    if cfg.get("quant_max_first_level"):
        o.quant_max_first_level = cfg["quant_max_first_level"]
    if cfg.get("scope") is not None:
        o.scope = cfg["scope"]
    got = {}
    for i, key in enumerate(case["inputs"]):
        o(to_torch(T[key]))
        if cfg.get("qparams_after_each_batch"):
            got.update(numbered(quark_qparams(o), i))
    got.update(quark_qparams(o) if "scale" in case["expect"] or not got else {})
    return dict(got, **{q: of_torch(getattr(o, q)) for q in ("min_val", "max_val", "amax", "log_threshold")
                        if torch.is_tensor(getattr(o, q, None))})


def quark_qparams(o):
    scale, zero_point = o._calculate_qparams()[:2]
    return {"scale": of_torch(scale), "zero_point": of_torch(zero_point)}


def realign(case, T):
    """The two quantizers as post_calibration.py sees them."""
    from quark.torch.quantization.config.type import Dtype
    from quark.torch.quantization.post_calibration import realign_single_sequential_quantizer
    amax, scale = (to_torch(T[k]) for k in case["inputs"])
    first = types.SimpleNamespace(is_scale_quant=False, observer=types.SimpleNamespace(amax=amax), scale=amax.clone())
    second = types.SimpleNamespace(
        is_scale_quant=True, scale=scale, quant_spec=types.SimpleNamespace(dtype=Dtype.fp8_e4m3),
        observer=types.SimpleNamespace(quant_max_first_level=case["config"]["quant_max_first_level"]))
    realign_single_sequential_quantizer([first, second])
    return {"scale": of_torch(first.scale), "block_scale": of_torch(first._quantized_block_scale)}


def quark_all(case, T):
    return (realign if golden.case_is_of(case, ("realign_single_sequential_quantizer",)) else quark)(case, T)


def fake_quantized(case, T):
    from modelopt.torch.quantization import tensor_quant
    cfg, (x, amax) = case["config"], (to_torch(T[k]) for k in case["inputs"])
    if golden.case_is_of(case, ("scaled_e4m3",)):
        result = tensor_quant.scaled_e4m3(x, amax, None, *cfg["num_bits"])
    else:
        result = tensor_quant.fake_tensor_quant(x, amax, None, cfg["num_bits"], cfg["unsigned"], cfg["narrow_range"])
    return {"fake_quantized": of_torch(result)}


def calibrate_weights(case, T):
    from modelopt.torch.quantization.calib.histogram import calibrate_weights as calibrate
    class Quantizer(torch.nn.Module):
        num_bits, unsigned = 8, False
    module, cfg = torch.nn.Module(), case["config"]
    module.weight, module.weight_quantizer = torch.nn.Parameter(to_torch(T[case["inputs"][0]])), Quantizer()
    calibrate(module, **{k: cfg[k] for k in ("method", "perchannel", "percentile", "num_bins")})
    return {"amax": of_torch(module.weight_quantizer.amax)}


def maximum(case, T):
    from modelopt.torch.quantization.calib import MaxCalibrator
    cfg, got = case["config"], {}
    c = MaxCalibrator(cfg["num_bits"], cfg["axis"], cfg["unsigned"])
    for i, key in enumerate(case["inputs"]):
        if cfg["reset_before_last"] and i == len(case["inputs"]) - 1:
            c.reset()
        c.collect(to_torch(T[key]))
        got[f"amax_{i}"] = of_torch(c.compute_amax())
    return dict(got, amax=of_torch(c.compute_amax()))


E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def nvfp4(global_amax, norm_max):
    """A static NVFP4 quantizer in torch: that of Model-Optimizer is a kernel of Triton, which needs CUDA."""
    k = 448 * (1 / (global_amax * (448 / norm_max) / 6))
    numbers = torch.tensor(E2M1)
    middles = (numbers[1:] + numbers[:-1]) / 2

    def quantize(x, amax):
        scale = ((amax / 6 * k).clamp(-448, 448).to(torch.float8_e4m3fn).float() * (1 / k)).reshape(-1, 1)
        ratio = (x / scale).abs()
        low, high = torch.bucketize(ratio, middles), torch.bucketize(ratio, middles, right=True)
        code = torch.where(low % 2 == 0, low, high)  # a tie has two neighbours, of which one is even
        return torch.where(scale == 0, 0, torch.copysign(numbers[code], x) * scale)
    return quantize


def sweep(case, T):
    """MseCalibrator and NVFP4MSECalibrator, with squared errors or those of a local Hessian."""
    from modelopt.torch.quantization import calib, tensor_quant
    from modelopt.torch.quantization.model_calib import _LocalHessianAccumulator
    cfg, aux = case["config"], {k: to_torch(T[key]) for k, key in case["aux"].items()}
    x, got, more = to_torch(T[case["inputs"][0]]), {}, {}
    if "hessian" in case["expect"]:
        helper = _LocalHessianAccumulator(*x.shape, cfg.get("hessian_block", cfg.get("block_size")))
        for name in sorted(k for k in aux if k.startswith("act_")):
            helper.accumulate(aux[name])
        got["hessian"] = of_torch(helper.normalized_hessian())
        more["error_func"] = helper.build_error_func()
    if "NVFP4" in case["upstream"]:
        c = calib.NVFP4MSECalibrator(aux["initial_amax"], aux["global_amax"], axis=cfg["axis"],
                                     quant_func=nvfp4(aux["global_amax"], cfg["scale_norm_max"]), **more)
        x = x.reshape(-1, cfg["block_size"])
    else:
        def quantize(x, amax):
            if cfg["num_bits"] == [4, 3]:
                return tensor_quant.scaled_e4m3(x, amax, None, 4, 3)
            return tensor_quant.fake_tensor_quant(x, amax, None, cfg["num_bits"], cfg["unsigned"], cfg["narrow_range"])
        c = calib.MseCalibrator(aux["initial_amax"], axis=cfg["axis"], step_size=cfg["step_size"], quant_func=quantize,
                                start_multiplier=cfg["start_multiplier"], stop_multiplier=cfg["stop_multiplier"],
                                **more)
    c.collect(x)
    return dict(got, amax=of_torch(c.compute_amax()), candidates=of_torch(c._candidates))


def modelopt(case, T):
    if "MSECalibrator" in case["upstream"] or "MseCalibrator" in case["upstream"]:
        return sweep(case, T)
    name = case["upstream"].split()[-1]
    calls = {"fake_tensor_quant": fake_quantized, "scaled_e4m3": fake_quantized, "calibrate_weights": calibrate_weights}
    return calls.get(name, calibrator)(case, T)


def calibrator(case, T):
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
