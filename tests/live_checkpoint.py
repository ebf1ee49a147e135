#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares qobs quantize with a live run of llm-compressor, and reads its output with compressed-tensors.

    live_checkpoint.py QOBS MODEL

Needs llmcompressor and torch. MODEL is a directory with model.safetensors. For each preset of the installed
compressed-tensors model_free_ptq and qobs quantize write a directory each, of the same files and bytes. The schemes
with static activations, which model_free_ptq refuses, are compared without them; live_static.py has the activations.
compressed-tensors then decompresses the output of qobs, and qobs audit must find the same error in it. Prints the
presets that are equal. Ends with `N passed, N failed`.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import cli
import torch
from cli import check, read
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors import __version__
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
from live_cases import COMPAT
from llmcompressor import model_free_ptq
from safetensors.torch import load_file

STATIC = ("FP8", "NVFP4")


def files_of(root):
    return sorted(os.path.relpath(os.path.join(d, n), root) for d, _, names in os.walk(root) for n in names)


def compare(scheme, ours, theirs):
    """Returns True if both directories are equal."""
    if files_of(ours) != files_of(theirs):
        check(False, f"{scheme}: files", f"{files_of(ours)} {files_of(theirs)}")
        return False
    same = [read(f"{ours}/{name}") == read(f"{theirs}/{name}") for name in files_of(theirs)]
    for name, equal in zip(files_of(theirs), same):
        check(equal, f"{scheme}: {name}", "differs")
    return all(same)


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
        equal = []
        presets = [scheme for scheme in PRESET_SCHEMES if scheme != "UNQUANTIZED"]
        for scheme in presets:
            theirs, ours = f"{scratch}/theirs-{scheme}", f"{scratch}/ours-{scheme}"
            given, options = scheme, ["--scheme", scheme]
            if scheme in STATIC:
                given = QuantizationScheme(targets=[], weights=PRESET_SCHEMES[scheme]["weights"])
                config = {"config_groups": {"config_group_0": given.model_dump(mode="json")}}
                with open(f"{scratch}/{scheme}.json", "w", encoding="utf-8") as file:
                    json.dump(config, file)
                options = ["--config", f"{scratch}/{scheme}.json"]
            model_free_ptq(model_stub=source, save_directory=theirs, scheme=given, ignore=["lm_head"], device="cpu")
            subprocess.run([qobs, "quantize", source, *options, "--ignore", "lm_head", "--compat", COMPAT, "--quiet",
                            "-o", ours],
                           check=True)
            if compare(scheme, ours, theirs):
                equal.append(scheme)
            audit = subprocess.run([qobs, "audit", ours, "--against", source, "--json"], capture_output=True, text=True,
                                   check=False)
            found = {layer["name"]: layer["relative_error"] for layer in json.loads(audit.stdout)["layers"]}
            errors = decompress(scheme, ours, source)
            check(found.keys() == errors.keys(), f"{scheme}: modules", f"{found.keys()} {errors.keys()}")
            check(all(abs(found[m] - e) <= 1e-3 * e for m, e in errors.items()), f"{scheme}: errors",
                  f"{found} {errors}")
    print(f"compressed-tensors {__version__}: {len(equal)} of {len(presets)} presets byte for byte: {' '.join(equal)}")
    return cli.end()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
