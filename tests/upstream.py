#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Runs the inputs of golden suites through the installed packages of upstream again.

    upstream.py [--dir DIRECTORY] [--suite NAME]... [--change-one] [--counts FILE]
    upstream.py --table FILE...

A drift of upstream is a failure. Suites whose packages are not installed are left out, with their names. Results are
held against the golden ones by the rule that each names, as the program's are. With --change-one the last bit of one
golden value of each suite is changed, and a suite passes if that is found. --counts writes the cases of each suite and
package to a file. --table prints those of several runs: package, version, cases, and how many are equal. Ends with `N
passed, N failed`.
"""
import argparse
import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import sys
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
import numpy as np  # noqa: E402
import cases as golden  # noqa: E402
import upstream_calls as calls  # noqa: E402
import upstream_formulas as formulas  # noqa: E402
import upstream_quantizers as quantizers  # noqa: E402

# Results that the calls do not give.
UNSEEN = ("threshold", "idx", "stop_", "divergences", "imatrix_", "lowest", "highest", "calib_")


def is_stable(case):
    """Not a format of compressed-tensors 0.20, which the newest llm-compressor does not take."""
    return case["config"].get("num_bits") != 6


def has_integers(case):
    return "activation_type" in case["config"]


def is_no_fusion(case):
    return "fused" not in case["config"]


def is_current(case):
    """True if the case depends neither on memory that observers share nor on a mode for debugging."""
    return not case.get("optional")


def is_of_release(case):
    """True unless the case is of another release of Model-Optimizer, which 0.48 is for all that come after it."""
    import modelopt
    return case["config"].get("version") in (None, "0.47" if modelopt.__version__ < "0.48" else "0.48")


# Suite, package that must be there, function, and which cases it runs.
RUNS = {
    "torch_minmax": ("torch", calls.torch_minmax, lambda c: c["name"] != "torch_minmax/nan_qparams"),
    "torch_histogram": ("torch", calls.torch_histogram, lambda c: True),
    "torch_histc": ("torch", calls.torch_histc, lambda c: True),
    "torchao": ("torchao", calls.torchao, lambda c: True),
    "ort": ("onnxruntime", calls.ort, lambda c: True),
    "ort_static": ("onnxruntime", calls.ort_static, has_integers),
    "ct_qparams": ("compressed_tensors", calls.ct_qparams, lambda c: True),
    "ct_qparams_2026_11": ("compressed_tensors", calls.ct_qparams, is_stable),
    "ct_quantize": ("compressed_tensors", calls.ct_quantize, is_stable),
    "llmc_minmax": ("llmcompressor", calls.llmc, is_no_fusion),
    "llmc_minmax_2026_11": ("llmcompressor", calls.llmc, is_no_fusion),
    "llmc_mse_2026_11": ("llmcompressor", calls.llmc, is_no_fusion),
    "quark_2026_11": ("quark.torch", quantizers.quark_all, is_current),
    "trt": ("modelopt", quantizers.maximum, lambda c: golden.case_is_of(c, ("MaxCalibrator",))),
    "trt_2026_11": ("modelopt", quantizers.modelopt, is_of_release),
    "nncf": ("nncf", formulas.nncf, lambda c: True),
    "aiedge": ("ai_edge_quantizer", formulas.aiedge, lambda c: True),
}

DISTRIBUTIONS = {"ai_edge_quantizer": "ai-edge-quantizer", "compressed_tensors": "compressed-tensors",
                 "modelopt": "nvidia-modelopt",
                 "quark.torch": "amd-quark"}


def change_one(cases, T):
    """The first case with an exact scale, amax or range, and the tensors with the last bit of its first element
    changed."""
    for case in cases:
        for q in ("scale", "amax", "bias_0", "highest", "global_scale", "scale_0", "histogram", "fake_quantized"):
            if q in case["expect"]:
                key = case["expect"][q]
                dtype, a = T[key]
                changed = np.array(a)
                bits = changed.reshape(-1).view(np.uint8)
                relative = "rel" in case["compare"].get(q, "")
                bits[1 if relative else 0] ^= 0x40 if relative else 1
                return [case], dict(T, **{key: (dtype, changed)})
    raise SystemExit("no value to change")


def run(suite, directory, changes):
    package, function, selects = RUNS[suite]
    try:
        importlib.import_module(package)
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
            wanted = {q: k for q, k in case["expect"].items() if q in got or not q.startswith(UNSEEN)
                      and not q.endswith("torch113")}
            bad = golden.check(dict(case, expect=wanted), T, got)
        passed, failed = passed + (not bad), failed + bool(bad)
        for line in bad[:2] if failed <= 10 and not changes else []:
            print(f"FAILED {case['name']}: {line}")
    if changes:
        passed, failed = failed, passed
    print(f"{suite}: {passed} passed, {failed} failed")
    return passed, failed


def counts(suite, passed, failed):
    """The package of a suite, its version, the suite, its cases, and those that are equal; None for one left out."""
    package = DISTRIBUTIONS.get(RUNS[suite][0], RUNS[suite][0])
    return [package, importlib.metadata.version(package), suite, passed + failed, passed] if passed + failed else None


def print_table(paths):
    """A suite that several runs have with one version counts once: the run with the fewest equal cases."""
    suites = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for package, version, suite, cases, equal in json.load(file):
                key = package, version.split("+")[0], suite
                suites[key] = min(suites.get(key, (cases, equal)), (cases, equal), key=lambda row: row[1] - row[0])
    rows = {}
    for (package, version, _), (cases, equal) in sorted(suites.items()):
        old = rows.get((package, version), (0, 0))
        rows[package, version] = old[0] + cases, old[1] + equal
    print(f"{'package':20} {'version':10} {'cases':>6} {'equal':>6}")
    for (package, version), (cases, equal) in rows.items():
        print(f"{package:20} {version:10} {cases:6} {equal:6}")
    cases, equal = (sum(row[i] for row in rows.values()) for i in range(2))
    return equal, cases - equal


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--table", nargs="+", metavar="FILE")
    ap.add_argument("--counts", metavar="FILE")
    ap.add_argument("--dir", default=golden.HERE)
    ap.add_argument("--suite", action="append")
    ap.add_argument("--change-one", action="store_true")
    a = ap.parse_args()
    if a.table:
        passed, failed = print_table(a.table)
    else:
        results = {suite: run(suite, a.dir, a.change_one) for suite in a.suite or RUNS}
        passed, failed = (sum(r[i] for r in results.values()) for i in range(2))
        if a.counts:
            with open(a.counts, "w", encoding="utf-8") as file:
                json.dump([row for row in (counts(suite, *r) for suite, r in results.items()) if row], file)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
