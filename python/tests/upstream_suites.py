#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Runs upstream's own tests without and with the drop-ins: none that passes without may be lost.

    upstream_suites.py [--scratch FOLDER] [--source NAME=FOLDER ...] [NAME ...]

NAME: a row of SUITES. llmcompressor comes from its source distribution on PyPI. The packages of torch, torchao,
Model-Optimizer, ONNX Runtime and Quark on PyPI bring no tests; --source names a checkout of the version that is
installed. Needs pytest and the framework. Every run has its own TMPDIR. Ends with `N passed, N failed`: failed are
lost tests and suites of which no call was served."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree

SUITES = {
    "llmcompressor": ["tests/llmcompressor/observers", "tests/llmcompressor/modifiers/calibration"],
    "llmcompressor-modifiers": ["tests/llmcompressor/modifiers/quantization", "tests/llmcompressor/modifiers/transform",
                                "tests/llmcompressor/modifiers/gptq", "tests/llmcompressor/entrypoints/model_free"],
    "torchao": ["test/quantization/test_observer.py"],
    "torchao-pt2e": ["test/quantization/pt2e/test_quantize_pt2e.py",
                     "test/quantization/pt2e/test_affine_fake_quantize.py"],
    "modelopt": [f"tests/unit/torch/quantization/{n}.py" for n in (
        "test_calib", "test_calibrator", "test_mse_calibrator", "test_layerwise_calibrate", "test_local_hessian",
        "test_tensor_quantizer_cpu", "test_quantize_cpu", "test_nvfp4_act_headroom", "test_nvfp4_static_export_cpu")],
}
DISTRIBUTIONS = {"llmcompressor": "llmcompressor==0.14.0", "llmcompressor-modifiers": "llmcompressor==0.14.0"}
CALL = re.compile(r"\w+\.[\w.]+( declined| failed)?")  # a name of dropin_calls()
TIMEOUT = 1800  # seconds of one run


def download(requirement, folder):
    """The unpacked source distribution of a requirement, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tar.gz")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d",
                   str(folder),
                   requirement]
        if subprocess.run(command, check=False).returncode:
            return None
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
    return next(p for p in folder.iterdir() if p.is_dir())


def run(source, files, scratch, options):
    """The names of passed tests, the other outcomes, and the calls of the drop-ins."""
    results = scratch / "results.xml"
    (scratch / "tmp").mkdir(parents=True)
    environment = {**os.environ, "TMPDIR": str(scratch / "tmp"), "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors",
               f"--junitxml={results}", *options, *files]
    with (scratch / "output").open("w") as output:
        try:
            subprocess.run(command, cwd=source, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False,
                           timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return set(), {"timeout": 1}, {}
    if not results.exists():
        return set(), {"no results": 1}, {}
    passed, others = set(), {}
    for case in ElementTree.parse(results).iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        if kinds:
            others[kinds[0]] = others.get(kinds[0], 0) + 1
        else:
            passed.add(f"{case.get('classname')}::{case.get('name')}")
    counts = (scratch / "output").read_text(errors="replace").partition("qobs: calls of the drop-ins")[2]
    words = [line.split(maxsplit=1) for line in counts.splitlines()[1:]]
    return passed, others, {w[1]: int(w[0]) for w in words if len(w) == 2 and CALL.fullmatch(w[1])}


def compare(name, source, scratch):
    """Passed and failed tests of one suite."""
    files = [f for f in SUITES[name] if (source / f).exists()]
    print(f"{name}: {', '.join(files) or 'no test file'} of {source}", flush=True)
    without, others, _ = run(source, files, scratch / "without", [])
    print(f"    without: {len(without)} passed, {others}", flush=True)
    with_qobs, others, calls = run(source, files, scratch / "with", ["-p", "libqobs.pytest", "--qobs"])
    print(f"    with:    {len(with_qobs)} passed, {others}", flush=True)
    for call, n in sorted(calls.items()):
        print(f"        {n:6d} {call}")
    lost = sorted(without - with_qobs)
    for test in lost:
        print(f"    LOST {test}")
    idle = not any(not call.endswith((" declined", " failed")) for call in calls)
    if idle:
        print("    FAILED no call was served")
    return len(without & with_qobs), len(lost) + idle


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=pathlib.Path, help="a folder that is kept; otherwise a temporary one")
    parser.add_argument("--source", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SUITES))
    given = parser.parse_args()
    sources = {n: pathlib.Path(f).resolve() for n, _, f in (s.partition("=") for s in given.source)}
    passed = failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        scratch = (given.scratch or pathlib.Path(temporary)).resolve()
        for name in given.names or [n for n in SUITES if n in DISTRIBUTIONS or n in sources]:
            source = sources.get(name)
            if source is None and name in DISTRIBUTIONS:
                source = download(DISTRIBUTIONS[name], scratch / DISTRIBUTIONS[name])
            if source is None:
                print(f"{name}: left out, no source")
                failed += 1
                continue
            good, bad = compare(name, source, pathlib.Path(tempfile.mkdtemp(dir=scratch, prefix=f"{name}-")))
            passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
