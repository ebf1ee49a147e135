#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of files that are cut while a host program without the handler of bus errors reads them: an error and no
output, or the whole output, and never a signal. cut_file.c cuts before an allocation; its numbers go through a whole
call.

    CUT_FILE=PROGRAM test_cut_files.py QOBS
"""
import functools
import json
import os
import shutil
import subprocess
import sys

import cli
import test_dialects
import test_experts
import test_importance
import test_sources
import test_static_scales
from cli import check, equal
from test_quantize_command import make_model, tree, write

POINTS = 20  # cuts of a call, besides its first allocations
HEADERS = 8


def call(verb, model, other, scheme, cut, number, *options):
    """Returns whether the file was cut, the number of allocations, the status and the message."""
    p = subprocess.run([os.environ["CUT_FILE"], verb, model, other, scheme, cut, str(number), *options],
                       capture_output=True, text=True, check=False, timeout=60)
    if p.returncode != 0:
        return None, 0, p.returncode, p.stderr
    done, count, status, message = p.stdout.rstrip("\n").split(" ", 3)
    return done == "1", int(count), int(status), message


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def outcome(path):
    return tree(path) if os.path.isdir(path) else cli.read(path) if os.path.exists(path) else None


def cut_everywhere(what, verb, model, other, scheme, cut, *options, errors=8, named=3):
    """Cuts a file before allocations of a call from its first to its last one."""
    if not system_copies():
        return
    out = other if verb != "audit" else "nothing"
    arguments = (verb, model, other, scheme)
    whole = cli.read(cut)
    remove(out)
    done, count, status, message = call(*arguments, cut, 0, *options)
    good = outcome(out)
    equal((done, status), (False, 0), f"{what}: without a cut {message}")
    failures = causes = 0
    numbers = {1 + i * (count - 1) // (POINTS - 1) for i in range(POINTS)} | set(range(1, HEADERS))
    for number in sorted(numbers):
        remove(out)
        done, _, status, message = call(*arguments, cut, number, *options)
        write(cut, whole)
        here = f"{what}: cut before allocation {number} of {count}"
        check(done, f"{here}: no signal", f"exit status {status}")
        check(outcome(out) == (good if status == 0 else None), f"{here}: an error and no output", message)
        failures += status != 0
        causes += "became shorter" in message
    check(failures >= errors and causes >= named, f"{what}: cuts are found",
          f"{failures} errors in {len(numbers)}, {causes} with their cause")


@functools.cache
def system_copies():
    """False under emulators and in sandboxes: files are read in place there, as SECURITY.md says."""
    probe = """
import ctypes, os, sys
libc, text, got = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(b"x"), ctypes.create_string_buffer(1)
class Piece(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
here, there = Piece(ctypes.addressof(got), 1), Piece(ctypes.addressof(text), 1)
sys.exit(libc.process_vm_readv(os.getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0) != 1)
"""
    copies = sys.platform == "linux" and len(cli.QOBS) == 1 and \
        subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
    if not copies:
        print("left out: this system does not copy memory of a process")
        check(True, "nothing to test")
    return copies


# ---- Kinds of files --------------------------------------------------------------------------------------------------

WEIGHTS = "in/model.safetensors"


def test_plain():
    make_model("in", layers=2)
    for scheme in ("W4A16", "FP8_DYNAMIC", "NVFP4A16"):
        cut_everywhere(scheme, "quantize", "in", "out", scheme, WEIGHTS)
    cut_everywhere("scales alone", "calibrate", "in", "scales.safetensors", "W8A16", WEIGHTS)
    cut_everywhere("a plan", "plan", "in", "nothing", "W4A16", WEIGHTS)


def test_configuration():
    """Later the configuration is known, and its file is copied."""
    make_model("in", layers=1)
    cut_everywhere("config.json", "quantize", "in", "out", "W8A16", "in/config.json", named=0)


def test_index():
    make_model("in", layers=2)
    os.rename(WEIGHTS, "in/model-00001-of-00001.safetensors")
    names = json.loads(cli.read("in/model-00001-of-00001.safetensors")[8:].split(b"}}")[0] + b"}}")
    names.pop("__metadata__", None)
    index = {"metadata": {}, "weight_map": {n: "model-00001-of-00001.safetensors" for n in names}}
    write("in/model.safetensors.index.json", json.dumps(index).encode())
    cut_everywhere("an index", "quantize", "in", "out", "W8A16", "in/model.safetensors.index.json",
                   named=0)


def test_codes():
    """Quantized models of each format: codes, scales, zero points, global scales."""
    make_model("plain", layers=2)
    for scheme in ("W4A16", "W4A16_ASYM", "W8A16", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4A16"):
        remove("in")
        equal(cli.run("quantize", "plain", "--scheme", scheme, "--quiet", "-o", "in", "--keep-findings").returncode, 0,
              f"{scheme}: a source")
        cut_everywhere(f"from {scheme}", "quantize", "in", "out", "W8A16", WEIGHTS)
        cut_everywhere(f"an audit of {scheme}", "audit", "in", "plain", "", WEIGHTS)
        cut_everywhere(f"an audit of {scheme} against the cut original", "audit", "in", "plain", "",
                       "plain/model.safetensors")


def test_words():
    """AWQ and GPTQ."""
    order = [c * 7 % 4 for c in range(test_dialects.COLUMNS)]
    for what, tensors, config in (
            ("AWQ", test_dialects.Matrix("a").awq(), test_dialects.AWQ),
            ("GPTQ of 3 bits", test_dialects.Matrix("b", bits=3).gptq(), {**test_dialects.GPTQ, "bits": 3}),
            ("GPTQ in another order", test_dialects.Matrix("c").gptq(groups=order),
             {**test_dialects.GPTQ, "desc_act": True})):
        test_sources.make("in", tensors, quantization_config=config)
        cut_everywhere(what, "quantize", "in", "out", "W8A16", WEIGHTS)
        cut_everywhere(f"an audit of {what}", "audit", "in", "", "", WEIGHTS)


def test_experts_in_one_tensor():
    """Transposed matrices, whose columns are gathered, and blocks of MXFP4."""
    model = test_experts.Model(128)
    test_experts.make("in", model.joined(True), model_type="llama4_text")
    cut_everywhere("transposed experts", "quantize", "in", "out", "W8A8", WEIGHTS)
    test_experts.make("in", model.mxfp4(), model_type="gpt_oss", quantization_config={"quant_method": "mxfp4"})
    cut_everywhere("experts in MXFP4", "quantize", "in", "out", "W8A8", WEIGHTS)


def test_activations():
    """Recordings of static scales and of importance."""
    make_model("in", layers=1)
    inputs = {f"{m}.input": test_static_scales.bf16((64, 128), i) for i, m in enumerate(test_static_scales.MODULES)}
    name = "a.safetensors"
    write(name, cli.st_bytes(inputs))
    recorded, importance = f"activations={name}", f"importance={name}"
    cut_everywhere("static scales", "quantize", "in", "out", "FP8", name, recorded)
    cut_everywhere("static scales alone", "calibrate", "in", "scales.safetensors", "FP8", name, recorded)
    for preset in ("llmc.imatrix_mse", "qobs.local_hessian"):
        cut_everywhere(f"importance for {preset}", "quantize", "in", "out", "W4A16", name, importance,
                       f"preset={preset}")
    cut_everywhere("a plan with tokens", "plan", "in", "nothing", "W4A16", name, importance,
                   "preset=qobs.local_hessian")


def test_states():
    make_model("in", layers=1)
    os.mkdir("s")
    for i, module in enumerate(test_static_scales.MODULES):
        write("a", cli.st_bytes({"x": test_static_scales.bf16((64, 128), i)}))
        test_static_scales.observe(f"s/{module}.input.qobs", "a:x")
    cut_everywhere("a state", "quantize", "in", "out", "FP8", f"s/{module}.input.qobs", "states=s", named=0)


def test_importance_matrices():
    test_importance.make_model()
    for name in ("matrix.dat", "matrix.gguf"):
        cut_everywhere(name, "quantize", "model", "out", "W8A8", name, f"importance={name}", "preset=llmc.imatrix_mse")


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if callable(v)}))
