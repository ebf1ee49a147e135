#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of qobs audit --fix: faults that are put into sound checkpoints are mended in a new directory, or named.

    test_audit_fix.py QOBS
"""
import json
import os
import shutil
import struct
import sys

import cli
from cli import check, equal, read, write
from test_seeded_faults import E, FAULTS, KEYS, MODULES, Q, audit, drop, float32, make_sound, parts, put, store

# Faults of test_seeded_faults.py whose mend needs no original, and a word of the mend.
MENDED = {
    "the input scale of one matrix of an expert is missing": "whose inputs are the same",
    "the input scales of an expert are missing": "the widest of the experts of its layer",
    "the input scale of a layer is missing": "whose inputs are the same",
    "an input scale is 0": "whose inputs are the same",
    "an input scale is NaN": "whose inputs are the same",
    "an input scale is infinite": "whose inputs are the same",
    "global scales differ within q, k, v": "has the global scale of",
    "global scales differ within w13": "has the global scale of",
    "a layer is not quantized, but claimed": "is one of the layers that are not quantized",
    "experts of another layer are claimed": "is one of the layers that are not quantized",
    "the tied head is not ignored": "is one of the layers that are not quantized",
    "the head is not ignored": "is one of the layers that are not quantized",
    "a quantized layer is ignored": "is no more one of the layers",
}


def tree(folder):
    return {name: read(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}


def seed(spelling, change):
    """Writes "out", a copy of a sound checkpoint with a fault."""
    for folder in ("out", "new"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(spelling, "out", ignore=lambda *_: ["model.safetensors"])
    tensors = {k: [d, list(s), b] for k, (d, s, b) in parts(f"{spelling}/model.safetensors").items()}
    config = json.loads(read("out/config.json"))
    index = spelling == "modelopt"
    change(tensors, config, lambda part: KEYS[part][index] if part in KEYS else part)
    store("out", tensors)
    write("out/config.json", json.dumps(config).encode())


def fix(*options):
    run = cli.run("audit", "out", "--fix", "-o", "new", *options)
    return run.returncode, run.stdout + run.stderr


def test_seeded():
    """Each fault is mended, and the new directory has none; or it is named, and the exit status says so."""
    make_sound()
    for spelling in ("ct", "modelopt"):
        for what, (word, change) in FAULTS.items():
            seed(spelling, change)
            before = tree("out")
            status, text = fix()
            equal(tree("out"), before, f"{spelling}: {what}: the checkpoint is as it was")
            if what in MENDED:
                equal(status, 0, f"{spelling}: {what}: exit status {text}")
                check(f"mended: " in text and MENDED[what] in text, f"{spelling}: {what}: {MENDED[what]}", text)
                equal(audit("new")[0], 0, f"{spelling}: {what}: the audit of the new directory")
            else:
                check(status == 3 and word in text, f"{spelling}: {what}: is named as left", f"{status} {text}")
                check(os.path.exists("new") == ("mended: " in text), f"{spelling}: {what}: written if mended", text)


def dequantized(path, spelling):
    """The numbers of a layer of NVFP4, up to the codes: scales of groups under the global scale."""
    tensors = parts(path)
    scale = [e4m3(c) for c in tensors[Q + ".weight_scale"][2]]
    (number,) = struct.unpack("<f", tensors[f"{Q}.{KEYS['global'][spelling == 'modelopt']}"][2])
    return [s * number if spelling == "modelopt" else s / number for s in scale]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    return mantissa * 2.0 ** -9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)


def test_global_scales():
    """Scales under the global scale of the set mean what they meant, but for a rounding to e4m3."""
    make_sound()
    for spelling in ("ct", "modelopt"):
        for times, bound in ((4, 0), (3, 1 / 16), (1 / 3, 1 / 16)):
            def change(t, c, k):
                name = f"{Q}.{k('global')}"
                t[name][2] = float32(struct.unpack("<f", t[name][2])[0] * times)
            seed(spelling, change)
            before = dequantized("out/model.safetensors", spelling)
            status, text = fix()
            equal(status, 0, f"{spelling}, {times}: exit status {text}")
            own, new = parts("out/model.safetensors"), parts("new/model.safetensors")
            changed = {n.rpartition(".")[0] for n in own if own[n] != new[n]}
            largest = (times > 1) == (spelling == "modelopt")  # the layer has the widest range: the others change
            siblings = {Q.replace("q_proj", n) for n in ("k_proj", "v_proj")}
            equal(changed, siblings if largest else {Q}, f"{spelling}, {times}: layers that change")
            after = dequantized("new/model.safetensors", spelling)
            worst = max(abs(a - b) / a for a, b in zip(before, after))
            check(worst <= bound + 1e-6, f"{spelling}, {times}: scales mean what they meant", f"{worst}")


def test_names():
    """Names of the other dialect are renamed; the file is then that of the sound checkpoint."""
    make_sound()
    sound = {s: parts(f"{s}/model.safetensors") for s in ("ct", "modelopt")}
    for spelling, other in (("ct", "modelopt"), ("modelopt", "ct")):
        names = {sound: foreign for sound, foreign in (p if spelling == "ct" else p[::-1] for p in KEYS.values())}

        def rename(t, c, k):
            for name in list(t):
                module, _, last = name.rpartition(".")
                if last in ("weight_global_scale", "weight_scale_2", "input_global_scale", "input_scale"):
                    t[f"{module}.{names[last]}"] = sound[other][f"{module}.{names[last]}"]
                    del t[name]
        seed(spelling, rename)
        status, text = fix()
        equal(status, 0, f"names of {other} in {spelling}: exit status {text}")
        check(text.count("and is its reciprocal") == 2 * len(MODULES), "every name is told", text[:300])
        new = parts("new/model.safetensors")
        equal(sorted(new), sorted(sound[spelling]), f"{spelling}: the names")
        for name, (dtype, _, data) in sound[spelling].items():
            if name.endswith("_scale_2") or "global_scale" in name or name.endswith("input_scale"):
                (x,), (y,) = struct.unpack("<f", data), struct.unpack("<f", new[name][2])
                check(abs(x / y - 1) < 1e-6, f"{spelling}: {name}", f"{x} {y}")
            else:
                equal((new[name][0], new[name][2]), (dtype, data), f"{spelling}: {name}")
        index = json.loads(read("new/model.safetensors.index.json"))
        equal(sorted(index["weight_map"]), sorted(new), f"{spelling}: the index")


def test_files():
    """Files that have nothing to mend are copied; hf_quant_config.json has the same lists as config.json."""
    make_sound()
    seed("ct", drop(E + ".up_proj.input"))
    write("out/tokenizer.json", b"{}\n")
    config = read("out/config.json")
    equal(fix()[0], 0, "a scale that is added")
    equal((read("new/tokenizer.json"), read("new/config.json")), (b"{}\n", config), "the other files")
    index = json.loads(read("new/model.safetensors.index.json"))["weight_map"]
    check(E + ".up_proj.input_global_scale" in index, "the index has it", str(list(index)[:3]))
    seed("modelopt", lambda t, c, k: c["quantization_config"]["ignore"].append(E + ".up_proj"))
    write("out/hf_quant_config.json", json.dumps({"quantization": {
        "quant_algo": "NVFP4", "exclude_modules": ["lm_head", E + ".up_proj", "model.layers.*.mlp.gate"]}}).encode())
    equal(fix()[0], 0, "both configurations")
    equal(json.loads(read("new/hf_quant_config.json"))["quantization"]["exclude_modules"],
          ["lm_head", "model.layers.*.mlp.gate"], "hf_quant_config.json")


def test_experts():
    """Experts in one tensor: a pattern of all names by which loaders ask."""
    make_sound()
    change = FAULTS["experts of another layer are claimed"][1]
    for spelling, entry in (("ct", "re:model.layers.2.mlp.experts.*"), ("modelopt", "model.layers.2.mlp.experts*")):
        def both(t, c, k):
            change(t, c, k)
            t["model.layers.2.mlp.experts.down_proj"] = t["model.layers.2.mlp.experts.gate_up_proj"]
        seed(spelling, both)
        before = json.loads(read("out/config.json"))["quantization_config"]["ignore"]
        status, text = fix()
        equal(status, 0, f"{spelling}: exit status {text}")
        equal(json.loads(read("new/config.json"))["quantization_config"]["ignore"], before + [entry], spelling)


def test_refused():
    make_sound()
    seed("ct", put("input", float32(0)))
    for words, options in (("--fix needs -o", ("--fix",)), ("--out is for --fix", ("-o", "new")),
                           ("out: is not for against", ("--fix", "-o", "new", "--against", "in")),
                           ("out: ", ("--fix", "-o", "out"))):
        run = cli.run("audit", "out", *options)
        check(run.returncode == 2 and words in run.stderr, f"{options}", run.stderr + run.stdout[:200])
    os.makedirs("new")
    write("new/file", b"of somebody")
    status, text = fix()
    check(status == 2 and "new" in text, "a directory with files", text)
    equal(tree("new"), {"file": b"of somebody"}, "nothing is replaced")
    shutil.rmtree("new")
    seed("ct", lambda t, c, k: None)
    status, text = fix()
    equal((status, os.path.exists("new")), (0, False), f"a checkpoint without a fault {text}")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
