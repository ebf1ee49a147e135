#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares qobs quantize with a live run of llm-compressor, and reads its output with compressed-tensors.

    live_checkpoint.py QOBS MODEL

Needs llmcompressor 0.14.0 and torch. MODEL is a directory with model.safetensors. For each scheme model_free_ptq and qobs
quantize write a directory each: files and bytes must be the same, config.json and the index as JSON. compressed-tensors
then decompresses the output of qobs, and qobs audit must find the same error in it. Ends with `N passed, N failed`.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from llmcompressor import model_free_ptq
from safetensors.torch import load_file

SCHEMES = ["W4A16", "W4A16_ASYM", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4", "MXFP8", "W8A16", "W3A16"]
passed = failed = 0


def check(good, what, details=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAILED {what}: {details}")


def files_of(root):
    return sorted(os.path.relpath(os.path.join(d, n), root) for d, _, names in os.walk(root) for n in names)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def without_nulls(value):
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None and v != {} and k != "version"}
    return value


def compare(scheme, ours, theirs):
    check(files_of(ours) == files_of(theirs), f"{scheme}: files", f"{files_of(ours)} {files_of(theirs)}")
    for name in files_of(theirs):
        a, b = read(f"{ours}/{name}"), read(f"{theirs}/{name}")
        same = without_nulls(json.loads(a)) == without_nulls(json.loads(b)) if name.endswith(".json") else a == b
        check(same, f"{scheme}: {name}", "differs")


def decompress(scheme, out, model):
    """The relative error of each module, as compressed-tensors reads it."""
    config = QuantizationConfig(**json.load(open(f"{out}/config.json", encoding="utf-8"))["quantization_config"])
    (group,) = config.config_groups.values()
    compressor = BaseCompressor.load_from_registry(str(getattr(group.format, "value", group.format)))
    stored, original = load_file(f"{out}/model.safetensors"), load_file(f"{model}/model.safetensors")
    errors = {}
    for name in [n for n in stored if n.endswith(".weight_scale")]:
        module = name[:-len(".weight_scale")]
        parts = {k[len(module) + 1:]: v for k, v in stored.items() if k.startswith(module + ".")}
        weight = compressor.decompress(parts, group)["weight"]
        before = original[module + ".weight"].double()
        errors[module] = ((weight.double() - before).norm() / before.norm()).item()
    return errors


def main(qobs, model):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        source = f"{scratch}/model"
        os.mkdir(source)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(f"{model}/{name}", source)
        for scheme in SCHEMES:
            theirs, ours = f"{scratch}/theirs-{scheme}", f"{scratch}/ours-{scheme}"
            model_free_ptq(model_stub=source, save_directory=theirs, scheme=scheme, ignore=["lm_head"], device="cpu")
            subprocess.run([qobs, "quantize", source, "--scheme", scheme, "--ignore", "lm_head", "--compat", "llm-compressor",
                            "--quiet", "-o", ours], check=True)
            compare(scheme, ours, theirs)
            audit = subprocess.run([qobs, "audit", ours, "--against", source, "--json"], capture_output=True, text=True, check=False)
            found = {layer["name"]: layer["relative_error"] for layer in json.loads(audit.stdout)["layers"]}
            errors = decompress(scheme, ours, source)
            check(found.keys() == errors.keys(), f"{scheme}: modules", f"{found.keys()} {errors.keys()}")
            check(all(abs(found[m] - e) <= 1e-3 * e for m, e in errors.items()), f"{scheme}: errors", f"{found} {errors}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
