#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares the KL divergence that `qobs plan` foretells with the measured one, for pure schemes and for mixtures.

    kl_predicted.py QOBS MODEL [OPTION]...

MODEL is as for kl.py. Sensitivity comes from text that the model was not trained on: of a model of bytes, every second
held-out sequence, so that the others measure; else the calibration text.

    --tokens N      tokens for sensitivity and importance (default 8192); sequences are used again, with other labels,
                    if the text has fewer
    --sequences N   held-out sequences that measure (default all)
    --group N       columns of a group of integers (default 128)
    --preset NAME   observer of the weights (default qobs.imatrix_optimal); qobs.local_hessian sees recorded inputs
    --set KEY=VALUE of it, any number of times
    --schemes A,B   (default W3A16,W4A16,W5A16,W6A16,W7A16,W8A16,NVFP4A16)
    --budgets A,B   bits an element of mixtures of the integers among them (default 4.5,5)
    --states DIR    states are saved there and used again

Needs torch, safetensors, transformers and the Python package of qobs.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import kl

GROUPED = "W"  # schemes of integers have groups


def hugging_face(model, directory):
    """The model as one of transformers."""
    import transformers
    with open(os.path.join(directory, "config.json")) as file:
        config = json.load(file)
    config["intermediate_size"] = model.weights["model.layers.0.mlp.up_proj.weight"].shape[0]
    config["tie_word_embeddings"] = "lm_head.weight" not in model.weights
    theta = config.setdefault("rope_theta", 10000.0)
    config.setdefault("rope_parameters", {"rope_type": "default", "rope_theta": theta})
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    theirs.load_state_dict(model.weights, strict=False)
    return theirs.float()


def collect(model, directory, sequences, states):
    import libqobs as qobs
    theirs = hugging_face(model, directory)
    with torch.no_grad():
        ours = model.log_probabilities(model.hidden_states(model.weights, sequences[:1]))
        other = theirs(input_ids=sequences[:1]).logits.log_softmax(-1)
    assert (ours - other).abs().max() < 1e-2, "transformers computes another model"
    batches = ({"input_ids": batch} for batch in sequences.split(2))
    qobs.calibrate(theirs, batches, "W4A16", sensitivity=True).save(states)


def record_inputs(args, model, sequences):
    """The inputs for a Hessian, in place of the importance in states."""
    kl.record(model, sequences, args.inputs)
    for path in glob.glob(os.path.join(args.states, "*.json")):
        with open(path) as file:
            index = json.load(file)
        index["states"] = {k: v for k, v in index["states"].items() if not k.endswith(".importance")}
        with open(path, "w") as file:
            json.dump(index, file)


def settings_of(args, schemes):
    return [w for s in schemes if s.startswith(GROUPED) for w in ("--set", f"{s}.group_size={args.group}")]


def options_of(args, command):
    """Arguments that plan and quantize share; quantize takes what weighs errors, plan needs sensitivity."""
    importance = ["--importance", args.inputs] if "hessian" in args.preset else []
    states = ["--states", args.states] if command == "plan" or not importance else []
    return [*states, *importance, "--threads", "1", *(w for s in args.set for w in ("--set", s))]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"kl_predicted.py: {' '.join(command)}: {done.stderr}")
    return done.stdout


def plan(args, schemes, *options):
    return json.loads(run([args.qobs, "plan", args.model, "--schemes", ",".join(schemes), "--preset", args.preset,
                           *options_of(args, "plan"), "--json", "-", *settings_of(args, schemes), *options]))


def bits_of(scheme):
    return int(scheme[1]) if scheme.startswith(GROUPED) else 0


def measure(args, model, reference, held_out, scheme_of, options):
    """KL of the checkpoint that `qobs quantize` makes. scheme_of: scheme of each module."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        run([args.qobs, "quantize", args.model, "-o", out, "--quiet", *options_of(args, "quantize"), *options])
        tensors = load_file(os.path.join(out, "model.safetensors"))
    weights = {k: kl.dequantized(tensors, k, w.shape, bits_of(scheme_of[k.removesuffix(".weight")]))
               if kl.is_chosen(k, 1) else w for k, w in model.weights.items()}
    return kl.compare(model, reference, weights, held_out)[0]


def table(args):
    model = kl.Llama(args.model)
    calibration, kinds = kl.texts(args.model, model)
    held_out = kinds["held_out"]
    if model.vocabulary == kl.BYTES:
        calibration, held_out = held_out[::2, :-1], held_out[1::2]
    distinct = calibration[:max(1, args.tokens // calibration.shape[1])]
    calibration = calibration.repeat(-(-args.tokens // calibration.numel()), 1)[:args.tokens // calibration.shape[1]]
    held_out = held_out[:args.sequences]
    if not os.path.exists(args.states):
        collect(model, args.model, calibration, args.states)
    if "hessian" in args.preset:
        with torch.no_grad():
            record_inputs(args, model, distinct)
    schemes = args.schemes.split(",")
    modules = [k.removesuffix(".weight") for k in model.weights if kl.is_chosen(k, 1)]
    with torch.no_grad():
        reference = kl.hidden_states(model, model.weights, held_out)
        print(f"{calibration.numel()} tokens foretell, {held_out[:, 1:].numel()} measure\n"
              "| scheme | bits | predicted | measured | ratio |\n|---|---|---|---|---|", flush=True)
        pure = {}
        for told in plan(args, schemes)["schemes"]:
            scheme = told["scheme"]
            options = ["--scheme", scheme, "--preset", args.preset]
            options += ["--set", f"group_size={args.group}"] if scheme.startswith(GROUPED) else []
            found = measure(args, model, reference, held_out, dict.fromkeys(modules, scheme), options)
            pure[scheme] = told["bits"], found
            print(f"| {scheme} | {told['bits']:.3f} | {told['kl']:.5f} | {found:.5f} | {told['kl'] / found:.2f} |",
                  flush=True)
        integers = [s for s in schemes if s.startswith(GROUPED)]
        for budget in filter(None, args.budgets.split(",")):
            mixture(args, model, reference, held_out, integers, float(budget), {s: pure[s] for s in integers})


def mixture(args, model, reference, held_out, schemes, budget, pure):
    """Beside the mixture: KL and log KL of the pure schemes around it, interpolated at its bits."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = os.path.join(folder, "recipe.yaml")
        told = plan(args, schemes, "--budget", str(budget), "-o", recipe)["mixture"]
        found = measure(args, model, reference, held_out, {m["name"]: m["scheme"] for m in told["layers"]},
                        ["--recipe", recipe])
    below = max((p for p in pure.values() if p[0] <= told["bits"]), default=(0, 0))
    above = min((p for p in pure.values() if p[0] > told["bits"]), default=(0, 0))
    share = (told["bits"] - below[0]) / (above[0] - below[0])
    linear = below[1] * (1 - share) + above[1] * share
    between = below[1] ** (1 - share) * above[1] ** share
    print(f"| mixture | {told['bits']:.3f} | {told['kl']:.5f} | {found:.5f} | {told['kl'] / found:.2f} | "
          f"neighbours: linear {linear:.5f}, geometric {between:.5f}; optimal {told['optimal']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qobs")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--sequences", type=int)
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--preset", default="qobs.imatrix_optimal")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--schemes", default="W3A16,W4A16,W5A16,W6A16,W7A16,W8A16,NVFP4A16")
    parser.add_argument("--budgets", default="4.5,5")
    parser.add_argument("--states")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        args.states = args.states or os.path.join(folder, "states")
        args.inputs = os.path.join(folder, "inputs.safetensors")
        table(args)


if __name__ == "__main__":
    import torch
    from safetensors.torch import load_file, save_file
    kl.torch, kl.load_file, kl.save_file = torch, load_file, save_file
    main()
