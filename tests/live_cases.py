#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Runs the golden cases of qobs quantize through the model_free_ptq that is installed, and compares whole directories.

    live_cases.py QOBS [--only REGEX] [--save FILE]

Needs llmcompressor. Its version decides what --compat is. Files are compared byte for byte, config.json too. Where
upstream fails, qobs succeeds or refuses; it may refuse what the policy of a case allows (golden/run_checkpoint.py).
With --save FILE gets the digests of upstream's files: with 0.14 those of all cases, with a later release those of the
cases in which it writes other files than 0.14, and of its new schemes. Ends with `N passed, N failed`.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import compressed_tensors
import compressed_tensors.entrypoints.convert.convert_file as convert_file
import llmcompressor
import llmcompressor.entrypoints.model_free as model_free
import safetensors.torch
import torch
from compressed_tensors.entrypoints.convert import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES, preset_name_to_scheme
from llmcompressor import model_free_ptq
from loguru import logger

GOLDEN = Path(__file__).resolve().parent / "golden"
sys.path.insert(0, str(GOLDEN))

import golden_models
from run_checkpoint import digests

COMPAT = "llm-compressor-0.14" if llmcompressor.__version__.startswith("0.14.0") else "next"
NEW = ("MXFP4XFP8", "MXFP6A16", "MXFP6A8")  # presets that 0.14 does not have
FLOATS = ("maxshrink", "grid", "norm", "expand")  # settings that a user gives as such
EDGES = [f"{values}_{dtype}" for values in ("ties", "v_zeros", "v_tiny", "v_huge", "v_nan", "v_inf")
         for dtype in ("bf16", "f16", "f32")]


def case_of(name, model, scheme, *options, policy="exact"):
    return {"name": f"{name}_{scheme}", "model": model,
            "options": ["--scheme", scheme, "--ignore", "lm_head", *options],
            "policy": policy}


def new_cases():
    for scheme in filter(PRESET_SCHEMES.__contains__, NEW):
        for model in ("llama", "llama_f16", "llama_f32"):
            yield case_of(f"preset_{model}", model, scheme)
            yield case_of(f"mse_{model}", model, scheme, "--preset", "llmc.memoryless_mse")
    if "MXFP6A16" in PRESET_SCHEMES:
        for model in (*EDGES, "v_signs_bf16", "cols_192", "cols_64", "rows_1", "shards", "moe_fused"):
            yield case_of(model, model, "MXFP6A16",
                          policy="nonfinite" if model.startswith(("v_nan", "v_inf")) else "exact")
        for model in ("cols_24", "cols_33"):
            yield case_of(model, model, "MXFP6A16", policy="refuse")


def given(case, option):
    options = case["options"]
    return [options[i + 1] for i, o in enumerate(options) if o == option]


def with_settings(weights, settings, preset):
    """The arguments of a user who sets these members, and nothing else, himself."""
    members = weights.model_dump(exclude_unset=True)
    for setting in settings:
        key, value = setting.split("=", 1)
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            pass
        if key == "strategy":
            members.pop("group_size", None)
        if key in QuantizationArgs.model_fields:
            members[key] = value
        else:
            members.setdefault("observer_kwargs", {})[key] = float(value) if key in FLOATS else value
    if preset:
        members["observer"] = preset[0].removeprefix("llmc.")
    return QuantizationArgs(**members)


def scheme_of(case):
    name, targets = given(case, "--scheme")[0], given(case, "--targets")
    settings, preset = given(case, "--set"), given(case, "--preset")
    if not targets and not settings and not preset:
        return name
    scheme = preset_name_to_scheme(name, targets)
    weights = with_settings(scheme.weights, settings, preset) if settings or preset else scheme.weights
    return QuantizationScheme(targets=targets, weights=weights, input_activations=scheme.input_activations)


def repair():
    """Without two faults of 0.14: it stores no matrix that is not contiguous, and finds fault with the index of some
    models."""
    save = safetensors.torch.save_file
    for module in (model_free, convert_file):
        module.save_file = lambda tensors, path, **more: save({n: t.contiguous() for n, t in tensors.items()}, path,
                                                              **more)
    model_free.validate_safetensors_index = lambda *arguments: None


def upstream(case, models, out):
    """Returns the message of its exception; None: it went through."""
    more = {}
    try:
        if case["name"].startswith("fp8_in_") and "no_converter" not in case["name"]:
            more["converter"] = FP8BlockDequantizer(targets=["re:.*self_attn.*", "re:.*mlp.*"])
        if "config" in case:
            more["config"] = QuantizationConfig.model_validate(case["config"])
        else:
            more["scheme"] = scheme_of(case)
        model_free_ptq(model_stub=str(models / case["model"]), save_directory=str(out), ignore=given(case, "--ignore"),
                       device="cpu", max_workers=1, **more)
    except Exception as error:  # what upstream refuses has many types
        return f"{type(error).__name__}: {error}"
    return None


def ours(case, qobs, models, scratch):
    options = list(case["options"])
    if "config" in case:
        (scratch / "config.json").write_text(json.dumps(case["config"]))
        options += ["--config", str(scratch / "config.json")]
    return subprocess.run([qobs, "quantize", str(models / case["model"]), "--compat", COMPAT, "--quiet", *options, "-o",
                           str(scratch / "ours")], capture_output=True, text=True, errors="replace", check=False)


def run(case, qobs, models):
    """Returns (what is wrong or None, upstream's message or None, the digests of its files; none if qobs refuses)."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        error = upstream(case, models, scratch / "theirs")
        found = ours(case, qobs, models, scratch)
        said = f"status {found.returncode}: {found.stderr.strip()[:200]}"
        files = {} if error else digests(scratch / "theirs", COMPAT == "next")
        if error or (found.returncode == 2 and case["policy"] != "exact"):
            return (None if found.returncode in (0, 2) else said), error, {} if COMPAT == "next" else files
        if found.returncode:
            return said, None, files
        theirs, got = (digests(scratch / side, True) for side in ("theirs", "ours"))
        differ = sorted(name for name in theirs.keys() | got.keys() if theirs.get(name) != got.get(name))
        return (f"{', '.join(differ)} differ" if differ else None), None, files


def is_new(case, files, golden):
    """True if the vectors of 0.14 do not say it: new files, or config.json in the form of the release."""
    known = golden.get(case["name"], {}).get("files", {})
    same = {n: d for n, d in files.items() if not n.endswith(".json")} == {n: d for n, d in known.items()
                                                                           if not n.endswith(".json")}
    return bool(files) and not same or case["name"].startswith(("config_", "set_", "second_run", "preset_W4",
                                                                "preset_FP8"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("qobs")
    parser.add_argument("--only", default="")
    parser.add_argument("--save")
    options = parser.parse_args()
    logger.remove()
    torch.set_num_threads(1)
    if options.save and COMPAT != "next":
        repair()
    golden = {c["name"]: c for c in json.loads((GOLDEN / "checkpoint.json").read_text())["cases"]}
    passed = failed = 0
    saved = []
    with tempfile.TemporaryDirectory() as directory:
        golden_models.unpack(directory)
        for case in [*golden.values(), *new_cases()]:
            if not re.search(options.only, case["name"]):
                continue
            problem, error, files = run(case, options.qobs, Path(directory))
            passed, failed = passed + (problem is None), failed + (problem is not None)
            if problem:
                print(f"FAILED {case['name']}: {problem}", flush=True)
            if error and case["policy"] == "exact":
                print(f"note: upstream refuses {case['name']}: {error[:150]}", flush=True)
            if COMPAT != "next":
                saved.append({**case, "files": files} if files and "files" in case else case)
            elif files and not problem and is_new(case, files, golden):
                saved.append({**case, "policy": "exact", "files": files})
            elif case["name"] not in golden:
                saved.append(case)
    if options.save:
        source = f"llm-compressor {llmcompressor.__version__} model_free_ptq(device=\"cpu\"), compressed-tensors " \
                 f"{compressed_tensors.__version__}, torch {torch.__version__.split('+')[0]}"
        text = ",\n".join(json.dumps({k: v for k, v in sorted(c.items())}) for c in saved)
        compat = f'"compat": "{COMPAT}",\n' if COMPAT == "next" else ""
        Path(options.save).write_text(f'{{"source": {json.dumps(source)},\n{compat}"cases": [\n{text}\n]}}\n')
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
