#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of files that are something else than their names say: every reader calls them what they are.

    test_file_kinds.py QOBS
"""
import gzip
import io
import json
import os
import pickle
import shutil
import sys
import tarfile
import zipfile

import cli
from cli import check, equal
from test_quantize_command import quantize, refused, tensor, tree, write

NAME = "model.layers.0.mlp.up_proj.weight"
MODEL = cli.st_bytes({NAME: tensor([32, 128], 1), "lm_head.weight": tensor([64, 128], 2)})
CONFIG = json.dumps({"model_type": "llama"}).encode()


def zipped():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\2}q\0.")
    return data.getvalue()


def tarred():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.safetensors"), io.BytesIO())
    return data.getvalue()


KINDS = {
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0f" * 32 + b"\nsize 4976698672\n",
                "a Git LFS pointer", "git lfs pull"),
    "HTML": (b"\r\n  <HTML lang='en'><head><title>504 Gateway Time-out</title></head></HTML>", "an HTML page", "fetch"),
    "XML": (b"\xef\xbb\xbf<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML", "server"),
    "JSON": (b'{"error": "Repository not found"}', "error", "server"),
    "text": (b"Entry not found", "Entry not found", "fetch"),
    "nothing": (b"", "empty", "0 bytes"),
    "zeros": (bytes(70000), "zeros", "unfinished"),
    "GGUF": (b"GGUF" + (3).to_bytes(4, "little") + bytes(16), "llama.cpp", "GGUF", "audit"),
    "zip": (zipped(), "a zip archive", "save_pretrained"),
    "pickle": (pickle.dumps({"weight": list(range(50))}, 4), "a pickle", "save_pretrained"),
    "gzip": (gzip.compress(MODEL), "gzip", "unpack"),
    "tar": (tarred(), "a tar archive", "unpack"),
    "npy": (cli.npy_bytes("<f4", (2, 8), bytes(64)), "NumPy", ".npy"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5", "safetensors"),
    "UTF-16": (CONFIG.decode().encode("utf-16"), "UTF-16", "UTF-8"),
    "safetensors": (MODEL, "a safetensors file", ""),
    "state": (b"qobs" + bytes(range(60)), "state of an observer", ""),
}


def model(shards=False):
    shutil.rmtree("in", ignore_errors=True)
    write("in/config.json", CONFIG)
    write("in/model-1.safetensors" if shards else "in/model.safetensors", MODEL)
    if shards:
        weight_map = {NAME: "model-1.safetensors", "lm_head.weight": "model-1.safetensors"}
        write("in/model.safetensors.index.json", json.dumps({"weight_map": weight_map}).encode())


# Per reader: whether the model has an index, the file, what reads it, and the kinds that it takes.
IN = ("quantize", "in", "-o", "out", "--quiet", "--scheme", "W8A16")
READERS = {
    "a model": (False, "in/model.safetensors", IN, {"safetensors"}),
    "a model under audit": (False, "in/model.safetensors", ("audit", "in"), {"safetensors"}),
    "a file to calibrate": (False, "file.safetensors", ("calibrate", "file.safetensors", "--scheme", "W8A16", "-o",
                                                        "s.safetensors"), {"safetensors"}),
    "a shard": (True, "in/model-1.safetensors", IN, {"safetensors"}),
    "an index": (True, "in/model.safetensors.index.json", IN, set()),
    "config.json": (False, "in/config.json", IN, set()),
    "hf_quant_config.json": (False, "in/hf_quant_config.json", IN, {"JSON"}),
    "a file in place of a model": (False, "weights", ("quantize", "weights", *IN[2:]), {"safetensors", "state",
                                                                                            "GGUF"}),
    "a recipe": (False, "recipe.yaml", (*IN[:-2], "--recipe", "recipe.yaml"), set()),
    "a configuration": (False, "group.json", (*IN[:-2], "--config", "group.json"), {"JSON"}),
    "activations": (False, "a.safetensors", (*IN, "--activations", "a.safetensors"), {"safetensors", "npy"}),
    "importance": (False, "i.safetensors", (*IN, "--preset", "llmc.imatrix_mse", "--importance", "i.safetensors"),
                   {"safetensors", "GGUF", "npy"}),
    "an older imatrix": (False, "i.dat", (*IN, "--preset", "llmc.imatrix_mse", "--importance", "i.dat"), {"GGUF"}),
    "tensors to observe": (False, "x.safetensors", ("observe", "--preset", "llmc.minmax", "x.safetensors"),
                           {"safetensors", "npy"}),
    "an array to observe": (False, "x.npy", ("observe", "--preset", "llmc.minmax", "x.npy"), {"npy"}),
    "a file without an ending": (False, "x", ("observe", "--preset", "llmc.minmax", "x"), {"npy", "safetensors"}),
    "a state": (False, "x.state", ("merge", "x.state"), {"state"}),
}


def test_kinds():
    """Every reader says what a file is, and how to get the one that was meant."""
    for reader, (shards, path, command, taken) in READERS.items():
        for kind, (data, *words) in KINDS.items():
            if kind in taken:
                continue
            model(shards)
            write(path, data)
            before = tree(".")
            p = cli.run(*command)
            check(p.returncode in (1, 2) and path.split("/")[-1] in p.stderr and all(w in p.stderr for w in words)
                  and p.stderr.count("\n") == 1,
                  f"{reader}: {kind}", f"exit status {p.returncode}: {p.stderr}")
            equal(tree("."), before, f"{reader}: {kind}: nothing is written")
            os.remove(path)


def test_cut():
    """A file that ends before its tensors or its header do is called cut."""
    for size in (len(MODEL) - 1, len(MODEL) // 2, 100, 40, 9):
        for command, path in ((IN, "in/model.safetensors"), (("audit", "in"), "in/model.safetensors"),
                              (("observe", "--preset", "llmc.minmax", f"x.safetensors:{NAME}"), "x.safetensors")):
            model()
            write(path, MODEL[:size])
            refused(f"{size} bytes", cli.run(*command), 2, "is cut off", "fetch it again")


def test_links():
    """Caches of hubs consist of links; one to nothing is named."""
    for path, command in (("in/model.safetensors", IN), ("in/tokenizer.json", IN),
                          ("x.npy", ("observe", "--preset", "llmc.minmax", "x.npy"))):
        model()
        if os.path.lexists(path):
            os.remove(path)
        os.symlink("../../blobs/4d3a", path)
        refused(path, cli.run(*command), 2, path, "is a link to '../../blobs/4d3a'", "not there")


def test_other_weights():
    """A model in another format is called so, with the way to safetensors."""
    for name, words in (("pytorch_model.bin", ("PyTorch", "save_pretrained")), ("consolidated.00.pth", ("PyTorch",)),
                        ("llama-7b.Q4_K_M.gguf", ("llama.cpp", "safetensors")), ("tf_model.h5", ("TensorFlow",)),
                        ("flax_model.msgpack", ("Flax",)), ("onnx/model.onnx", ("ONNX",)),
                        ("README.md", ("holds no safetensors file",))):
        for command in (IN, ("audit", "in"), ("calibrate", "in", "--scheme", "W8A16", "-o", "s.safetensors")):
            shutil.rmtree("in", ignore_errors=True)
            write("in/config.json", CONFIG)
            write(f"in/{name}", zipped())
            refused(f"{name}: {command[0]}", cli.run(*command), 2, "holds no safetensors file", *words,
                    *([] if name == "README.md" else [name]))


# ---- Parts of a model in folders -------------------------------------------------------------------------------------

PART = cli.st_bytes({"linear.weight": tensor([16, 128], 5), "linear.bias": tensor([16], 6)})
PARTS = {
    "modules of sentence-transformers": {"modules.json": b'[{"idx": 2, "path": "2_Dense"}]',
                                         "1_Pooling/config.json": b"{}", "2_Dense/config.json": b"{}",
                                         "2_Dense/model.safetensors": PART},
    "adapters for speech and pictures": {"speech-lora/adapter_config.json": b"{}",
                                         "speech-lora/adapter_model.safetensors": PART},
    "a codec in shards": {"speech_tokenizer/model.safetensors.index.json":
                              b'{"weight_map": {"linear.weight": "model-1.safetensors"}}',
                          "speech_tokenizer/model-1.safetensors": PART,
                          "speech_tokenizer/preprocessor_config.json": b"{}"},
    "the original": {"original/params.json": b"{}", "original/model.safetensors": PART,
                     "original/consolidated.00.pth": b"PK\3\4"},
    "an adapter of the model": {"adapter_config.json": b'{"peft_type": "LORA"}', "adapter_model.safetensors": PART},
}


def test_parts():
    """Folders are parts of a model: they are copied with their weights, and the model's own layers are quantized."""
    for what, files in PARTS.items():
        for shards in (False, True):
            model(shards)
            shutil.rmtree("out", ignore_errors=True)
            for name, data in files.items():
                write(f"in/{name}", data)
            p = quantize("in", "-o", "out", scheme="W8A8")
            equal(p.returncode, 0, f"{what}: exit status {p.stderr}")
            out = tree("out")
            equal({n: out.get(n) for n in files}, files, f"{what}: files")
            check("copied as before" in p.stderr and "no part" not in p.stderr, f"{what}: the warning", p.stderr)
            codes = cli.st_read(f"out/model{'-1' if shards else ''}.safetensors")[0]
            equal(codes[NAME][0], "I8", f"{what}: the model is quantized")
            equal(cli.run("audit", "out").returncode, 0, f"{what}: the audit")


def test_parts_by_processes():
    """Several processes copy them once, and the output is that of one run."""
    for shards in (False, True):
        model(shards)
        for out in ("out", "whole"):
            shutil.rmtree(out, ignore_errors=True)
        write("in/2_Dense/model.safetensors", PART)
        equal(quantize("in", "-o", "whole", scheme="W8A8").returncode, 0, "one run")
        for part in ("2/2", "1/2"):
            equal(quantize("in", "-o", "out", "--part", part, scheme="W8A8").returncode, 0, f"part {part}")
        p = cli.run("quantize", "--finish", "out")
        equal(p.returncode, 0, f"the parts are joined {p.stderr}")
        equal(tree("out"), tree("whole"), "the output")


def test_no_parts():
    """A state of training, and a file that a loader would take for the model, are left out."""
    model(True)
    write("in/checkpoint-500/trainer_state.json", b"{}")
    for name in ("checkpoint-500/model.safetensors", "consolidated.safetensors"):
        write(f"in/{name}", PART)
    p = quantize("in", "-o", "out", scheme="W8A8")
    check(all(f"{n}: is no part of the model" in p.stderr and n not in tree("out")
              for n in ("checkpoint-500/model.safetensors", "consolidated.safetensors")),
          "they are named", p.stderr)
    shutil.rmtree("out")
    write("in/2_Dense/model.safetensors", PART)
    p = quantize("in", "-o", "out", "--compat", "llm-compressor", scheme="W8A8")
    check("2_Dense/model.safetensors: is no part of the model; left out" in p.stderr
          and "2_Dense/model.safetensors" not in tree("out"), "upstream's way", p.stderr)


# ---- Adapters --------------------------------------------------------------------------------------------------------

A = "model.layers.0.mlp."
ADAPTERS = {
    "LoRA of a layer": (f"{A}up_proj.base_layer.weight", f"{A}up_proj.lora_A.default.weight", "LoRA"),
    "without the adapter's name": (f"base_model.model.{A}up_proj.lora_A.weight",
                                   f"base_model.model.{A}up_proj.lora_B.weight", "LoRA"),
    "LoRA of an embedding": ("model.embed_tokens.lora_embedding_A", "model.embed_tokens.lora_embedding_B", "LoRA"),
    "DoRA": (f"{A}up_proj.lora_magnitude_vector", f"{A}down_proj.lora_magnitude_vector.default.weight", "DoRA"),
    "a head that was trained": ("score.original_module.weight", "score.modules_to_save.default.weight",
                                "modules_to_save"),
    "IA3": (f"{A}down_proj.ia3_l.default", f"{A}down_proj.base_layer.weight", "IA3"),
    "LoHa": (f"{A}up_proj.hada_w1_a", f"{A}up_proj.hada_w2_b.default", "LoHa"),
    "LoKr": (f"{A}up_proj.lokr_w1", f"{A}up_proj.lokr_t2.default", "LoKr"),
    "OFT": (f"{A}up_proj.oft_R.default.weight", f"{A}up_proj.oft_r", "OFT"),
    "of kohya": ("lora_unet_mid_block.lora_down.weight", "lora_unet_mid_block.lora_up.weight", "LoRA"),
    "of diffusers": ("unet.to_q.lora.down.weight", "unet.to_q.lora.up.weight", "LoRA"),
    "of MLX": (f"{A}up_proj.lora_a", f"{A}up_proj.lora_b", "LoRA"),
    "prompts": ("prompt_embeddings", "prompt_encoder.default.embedding.weight", "prompt tuning"),
}


def test_adapters():
    """Weights of adapters are no layers: every command that quantizes refuses them and says how to merge."""
    for what, (first, second, kind) in ADAPTERS.items():
        for command in (IN, ("calibrate", "in", "--scheme", "W8A16", "-o", "s.safetensors")):
            model()
            write("in/model.safetensors",
                  cli.st_bytes({NAME: tensor([32, 128], 1), first: tensor([8, 128], 2), second: tensor([32, 8], 3)}))
            way = "without it" if what == "prompts" else "merge it first"
            refused(f"{what}: {command[0]}", cli.run(*command), 2, "adapter", way,
                    *([kind] if "base_layer" not in first + second else []))
            check(not os.path.exists("out"), f"{what}: nothing is written")


def test_names_alike():
    """Names of layers that look like those of adapters are layers: RWKV, MLA, SAM, DeepSeek."""
    names = ["attn.w_lora.lora.0", "self_attn.q_a_proj", "prompt_encoder.shared_embedding.dense",
             "linear_q_lora_A_list.0", "mlp.base_layers.0",
             "blora_A", "model.layers.0.oft_rank_proj"]
    model()
    write("in/model.safetensors",
          cli.st_bytes({f"model.layers.0.{n}.weight": tensor([32, 128], i) for i, n in enumerate(names)}))
    equal(quantize("in", "-o", "out", scheme="W8A16").returncode, 0, "exit status")


def test_adapter_directories():
    """A directory with an adapter and no model is called so, in whichever format it is."""
    for what, files in (("safetensors",
                         {"adapter_model.safetensors": cli.st_bytes({f"{A}up_proj.lora_A.weight":
                                                             tensor([8, 128], 1)})}),
                        ("another name of weights", {"adapter_model.safetensors": MODEL}),
                        ("a pickle", {"adapter_model.bin": zipped()}),
                        ("with config.json", {"adapter_model.safetensors": MODEL, "config.json": CONFIG})):
        for command in (IN, ("audit", "in")):
            shutil.rmtree("in", ignore_errors=True)
            for name, data in {"adapter_config.json": b'{"peft_type": "LORA"}', **files}.items():
                write(f"in/{name}", data)
            refused(f"{what}: {command[0]}", cli.run(*command), 2, "in: holds an adapter", "merge_and_unload")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
