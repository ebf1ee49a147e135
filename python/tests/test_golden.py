# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Upstream's results, bit for bit: the golden vectors of the C library, with arrays of numpy and of torch."""
import importlib.util
import json
import pathlib

import numpy as np
import pytest
import libqobs as qobs

try:
    import torch
except ImportError:
    torch = None

ml_dtypes = pytest.importorskip("ml_dtypes")
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
spec = importlib.util.spec_from_file_location("golden_cases", GOLDEN / "cases.py")
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
cases.ZERO_SIGNS.update(cases.zero_signs())

SUITES = ["torch_minmax", "llmc_minmax", "quark"]
TENSORS = {suite: cases.read(GOLDEN / f"{suite}.safetensors") for suite in SUITES}
CASES = [(suite, case) for suite in SUITES for case in json.loads((GOLDEN / f"{suite}.json").read_text())
         if case["inputs"] and not case["config"].get("fused") and not case.get("optional")]
NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int8": "I8", "int16": "I16",
         "int32": "I32", "int64": "I64", "float8_e4m3fn": "F8_E4M3"}
SPECIAL = {"BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn}


def numpy_array(tensor):
    dtype, a = tensor
    return a.view(SPECIAL[dtype]) if dtype in SPECIAL else a


def torch_tensor(tensor):
    dtype, a = tensor
    t = torch.from_numpy(a.copy().view(np.int16) if dtype == "BF16" else a.copy())
    return t.view(torch.bfloat16) if dtype == "BF16" else t


def plain(result):
    """A result as cases.read returns it; of numpy or torch as the library was given."""
    if torch is not None and isinstance(result, torch.Tensor):
        name = str(result.dtype).rpartition(".")[2]
        if name in ("bfloat16", "float8_e4m3fn"):
            result = result.view(torch.int16 if name == "bfloat16" else torch.int8)
        a = result.numpy()
    else:
        a, name = result, result.dtype.name
    if name == "bfloat16":
        return "BF16", a.view(np.uint16)
    if name == "float8_e4m3fn":
        return "F8_E4M3", a.view(np.uint8)
    return NAMES[name], a


def observe(suite, case, tensor):
    config, stored = case["config"], TENSORS[suite]
    inputs = [stored[k] for k in case["inputs"]]
    settings = {k: v for k, v in config.items() if k not in cases.META and v is not None}
    if config.get("base_name"):
        settings["base_name"] = config["base_name"]
    if any(np.issubdtype(a.dtype, np.floating) and not np.isfinite(a).all() for _, a in inputs):
        settings["nonfinite"] = "propagate"
    g_idx = tensor(inputs.pop()) if config.get("has_g_idx") else None
    observer, got = qobs.Observer(cases.preset(suite, case), **settings), {}
    for i, x in enumerate(inputs):
        x = tensor(x)
        observer.observe(x, g_idx)
        results = {name: plain(r) for name, r in observer.results.items()}
        got.update({f"{name}_{i}": r for name, r in results.items()})
    got.update(results)
    return got


def ids():
    return [case["name"] for _, case in CASES]


@pytest.mark.parametrize("library", [
    "numpy", pytest.param("torch", marks=pytest.mark.skipif(not torch, reason="no torch"))])
@pytest.mark.parametrize(("suite", "case"), CASES, ids=ids())
def test_case(suite, case, library):
    tensor = numpy_array if library == "numpy" else torch_tensor
    if "error" in case:
        with pytest.raises(qobs.Error, match="."):
            observe(suite, case, tensor)
        return
    assert cases.check(case, TENSORS[suite], observe(suite, case, tensor)) == []
