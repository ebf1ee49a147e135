#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Runs qobs quantize over the cases of checkpoint.json and compares what it writes with what model_free_ptq of 0.14
wrote. The cases of checkpoint_next.json are of the newest pre-release (--compat next, live_cases.py --save).

    run_checkpoint.py QOBS [--isa NAME] [--threads N] [--only REGEX] [-v]

QOBS may be a command with arguments, such as an emulator and the program. golden_models.py makes the models. Every
file of an output is compared by its SHA-256; of 0.14 config.json and the index by that of their JSON with sorted keys,
without the version. The policy of a case says what else is right:

  exact      status 0 and every file equal
  refuse     status 2 and no output
  either     one of these, or any success if upstream fails
  nonfinite  refused, because NaN and infinity are refused

`qobs audit` finds nothing in an output, but in those of FAULTS.

Ends with `N passed, N failed`.
"""
import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import golden_models

HERE = Path(__file__).resolve().parent

# Outputs of 0.14 without the global scale of a set that a loader runs as one matrix.
FAULTS_OF_0_14 = dict.fromkeys(("moe_gate_up_NVFP4A16", "moe_fused_NVFP4A16", "mla_NVFP4A16"), "global scale")
# Outputs of upstream that a loader reads wrongly: the case, and a word of every finding in it.
FAULTS = {"moe_fused_part_ignored": "experts",  # one of three experts is left out
          "second_run_W4A16": "claims it",  # the ignore list of the second run is lost
          # A fused set in part, as the case asks for it.
          **dict.fromkeys(("ignore_regex_start", "ignore_part_of_fused", "targets_part_of_fused"),
                          "runs as one matrix"),
          **{f"v_huge_{dtype}_W4A16_ASYM": "finite" for dtype in ("bf16", "f16", "f32")}}  # a scale of infinity


def digest(data):
    return hashlib.sha256(data).hexdigest()[:32]


def without_nulls(value):
    if isinstance(value, dict):
        return {k: without_nulls(v) for k,
                v in value.items() if v is not None and not (k == "observer_kwargs" and v == {})}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


def canonical(path):
    """The JSON of a file as bytes that do not depend on the version and on the names of groups."""
    data = json.loads(path.read_text())
    quantization = data.get("quantization_config")
    if isinstance(quantization, dict):
        quantization.pop("version", None)
        groups = quantization.get("config_groups")
        if isinstance(groups, dict):
            quantization["config_groups"] = sorted(json.dumps(without_nulls(g), sort_keys=True)
                                                   for g in groups.values())
        data["quantization_config"] = without_nulls(quantization)
    return json.dumps(data, sort_keys=True).encode()


def files_of(root):
    return {os.path.relpath(os.path.join(d, name), root) for d, _, names in os.walk(root) for name in names}


def digests(root, exact):
    """Those of a directory's files; unless `exact`, config.json and the index as JSON."""
    def of(name):
        as_json = not exact and (name in ("config.json", "params.json") or name.endswith("index.json"))
        return digest(canonical(root / name) if as_json else (root / name).read_bytes())
    return {name: of(name) for name in sorted(files_of(root))}


def differences(case, out, exact):
    expected, found = case["files"], digests(out, exact)
    if found.keys() != expected.keys():
        return f"files missing: {sorted(set(expected) - set(found))}, more: {sorted(set(found) - set(expected))}"
    return next((f"{name} differs" for name in found if found[name] != expected[name]), None)


def findings(qobs, out, extra):
    """What the audit finds; a model without config.json cannot be audited."""
    if not (out / "config.json").exists() and not (out / "params.json").exists():
        return []
    run = subprocess.run([*qobs, "audit", str(out), "--json", *extra], capture_output=True, text=True, timeout=600)
    return [f["finding"] for f in json.loads(run.stdout)["findings"]] if run.stdout else [run.stderr.strip()[:200]]


def problem_of(case, compat, qobs, extra, models, scratch):
    out = scratch / "out"
    options = list(case["options"])
    if "config" in case:
        (scratch / "config.json").write_text(json.dumps(case["config"]))
        options += ["--config", str(scratch / "config.json")]
    command = [*qobs, "quantize", str(models / case["model"]), "--compat", compat, "--quiet", *extra, *options,
               "-o", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600)
    said = run.stderr.strip()[:200]
    if run.returncode not in (0, 2):
        return f"status {run.returncode}: {said}"
    if run.returncode == 2 and (out.exists() or len(os.listdir(scratch)) > ("config" in case)):
        return "refused, but something is left behind"
    if case["policy"] in ("refuse", "nonfinite"):
        return None if run.returncode == 2 else "went through"
    if run.returncode == 2:
        return None if case["policy"] == "either" else f"refused: {said}"
    faults = FAULTS if compat == "next" else {**FAULTS, **FAULTS_OF_0_14}
    found, word = findings(qobs, out, extra), faults.get(case["name"])
    if bool(found) != bool(word) or not all(word in f for f in found):
        return f"the audit finds {found}"
    return differences(case, out, compat == "next") if "files" in case else None


def main():
    parser = argparse.ArgumentParser(description="compares qobs quantize with model_free_ptq")
    parser.add_argument("qobs", type=shlex.split)
    parser.add_argument("--isa")
    parser.add_argument("--threads", help="default: one for each processor, if the program has threads")
    parser.add_argument("--only", default="")
    parser.add_argument("--sampled", action="store_true",
                        help="every third case unless QOBS_WHOLE is set (meson test --setup whole)")
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    extra = (["--threads", options.threads] if options.threads else []) + (["--isa", options.isa] if options.isa
                                                                           else [])
    cases = []
    for name in ("checkpoint.json", "checkpoint_next.json"):
        data = json.loads((HERE / name).read_text())
        cases += [(c, data.get("compat", "llm-compressor"))
                  for c in data["cases"] if re.search(options.only, c["name"])]
    cases = cases[::3 if options.sampled and not os.environ.get("QOBS_WHOLE") else 1]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as directory:
        golden_models.unpack(directory)
        for case, compat in cases:
            with tempfile.TemporaryDirectory() as scratch:
                problem = problem_of(case, compat, options.qobs, extra, Path(directory), Path(scratch))
            if problem:
                failed += 1
                print(f"FAILED {case['name']}, {compat}: {problem}")
            else:
                passed += 1
                if options.v:
                    print(f"passed {case['name']}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
