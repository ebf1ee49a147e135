# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""`python -m libqobs.check --runtime vllm`: models and faults of test_check.py, by vLLM's classes and loaders on the
CPU."""
import re

import pytest

pytest.importorskip("vllm")
from test_check import FAULTS, cache_scales, changed, made, seeded  # noqa: E402, F401

from libqobs import check  # noqa: E402

RIGHT = [(m, s) for m in ("llama", "tied", "gemma3_text", "qwen3_moe", "deepseek_v3")
         for s in ("W4A16", "W8A16", "FP8_DYNAMIC", "NVFP4A16")] + [
             ("llama", s) for s in ("W8A8", "MXFP4A16", "W4A16_ASYM", "FP8")] + [("llama4_text", "W4A16")]
# Its heads are a class of their own, which the target Linear does not claim.
NO_FAULT = {"ignore emptied, packed head", "ignore emptied, head of int8", "ignore with a wrong name"}


@pytest.mark.parametrize("name, scheme", RIGHT)
def test_right_ones_have_no_fault(made, name, scheme):  # noqa: F811
    model, out = made(name, scheme)
    for report in (check.check(out, model, "vllm"), check.check(out, runtime="vllm", memory=0)):
        assert report["faults"] == [] and report["runtime"].startswith("vLLM ") and report["quantized"] > 0


def test_scales_of_a_cache(made, tmp_path):  # noqa: F811
    model, out = changed(made, tmp_path, "llama", "W4A16", cache_scales())
    assert check.check(out, model, "vllm")["faults"] == []


# vLLM needs torchvision for Llava, and this environment cannot have it.
@pytest.mark.parametrize("name", [n for n, row in FAULTS.items() if row[0] != "llava"])
def test_a_fault_is_found(made, tmp_path, name):  # noqa: F811
    model, out, (where, kind) = seeded(made, tmp_path, name)
    reports = [check.check(out, model, "vllm")]
    if kind != "error":
        reports += [check.check(out, runtime="vllm"), check.check(out, runtime="vllm", memory=0)]
    place = re.match(r"model\.layers\.\d+\.\w+|[\w.]+", where)[0]  # it joins q, k, v, gate, up and experts
    for faults in (report["faults"] for report in reports):
        assert any(place in f"{f['name']}: {f['message']}" for f in faults) != (name in NO_FAULT), faults
        for fault in faults:
            assert len(f"{fault['name']}: {fault['message']}".split()) <= 25, fault


def test_unknown_classes(made, tmp_path):  # noqa: F811
    _, out = changed(made, tmp_path, "llama", "W8A8", lambda out: out.config.update(architectures=["NewForCausalLM"]))
    with pytest.raises(check.Unknown, match="vLLM .* does not know the class 'NewForCausalLM'"):
        check.check(out, runtime="vllm")
