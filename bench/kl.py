#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Measures what scales cost a language model: the KL divergence of the unquantized model's next-token distribution to
that of the model with quantized linear layers, mean over held-out tokens. Weights are the numbers of the checkpoint
that `qobs quantize` writes; nothing else changes.

    kl.py QOBS MODEL [OPTION]...

MODEL is a directory with config.json and model.safetensors of a Llama model: examples/tinylm, or what kl_smollm2.py
makes. Its text is tokens.safetensors (I32 matrices `calibration` and `held_out`, and others of text of other kinds),
or, if the vocabulary is bytes, the licence texts that examples/tinylm was trained on (/usr/share/common-licenses, of
which the last 5 % are held out).

    --tokens N         calibration tokens (default 16384)
    --sequences N      held-out sequences (default all)
    --every N          quantize only every N-th layer, from the middle of the first N on (default 1)
    --group N          columns of a group of integers (default 128)
    --rounding NAME    of codes: nearest (default), or descent for the methods with a Hessian
    --passes N         of the descent, at most (default 4)
    --dampening SHARE  of the mean of H that is added to its diagonal, for scales and codes of descent (default 0)
    --corrected        measure quantize_blocks of the Python package, too; it needs transformers and --every 1
    --skip N           calibration sequences to leave out before those that are taken (default 0)
    --seed N           where sequences of licence texts begin (default 100)
    --peers            measure GPTQ of llm-compressor's oneshot, too
    --kinds            measure on held-out text of other kinds, too: licences and Python
    --only REGEX       measure cells whose name "METHOD / FORMAT" it is found in
    --json FILE        write each figure there, too; those that are there already are not measured again
    --threads N        of torch and of qobs (default 1)

Needs torch and safetensors.
"""
import argparse
import functools
import glob
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

BYTES = 256
HELD_OUT = 0.05  # of the licence texts
SEED = 100       # of the calibration sequences
E2M1 = (0, .5, 1, 1.5, 2, 3, 4, 6)

# Name, scheme, number of bits (0: e2m1; None: e4m3), settings
FORMATS = [("int4", "W4A16", 4, ["num_bits=4"]), ("int3 asym", "W4A16_ASYM", 3, ["num_bits=3"]),
           ("int2 asym", "W4A16_ASYM", 2, ["num_bits=2"]), ("NVFP4", "NVFP4A16", 0, []), ("MXFP4", "MXFP4A16", 0, []),
           ("FP8", "FP8_DYNAMIC", None, [])]
ROW = 1 << 20
METHODS = [("min/max", "llmc.memoryless_minmax", []), ("mse", "llmc.memoryless_mse", []),
           ("imatrix_mse", "llmc.imatrix_mse", []), ("mse_optimal", "qobs.mse_optimal", []),
           ("imatrix_optimal", "qobs.imatrix_optimal", []), ("local_hessian", "qobs.local_hessian", []),
           ("local_hessian, signed", "qobs.local_hessian", ["signed_scale=true"]),
           ("local_hessian, row", "qobs.local_hessian", [f"hessian_block_size={ROW}"]),
           ("local_hessian, row, signed", "qobs.local_hessian", [f"hessian_block_size={ROW}", "signed_scale=true"])]


# With descent: scales of each group alone under the Hessian of the row
GROUPS_OF_ROW = ("local_hessian, group scales, row", "qobs.local_hessian", [f"hessian_block_size={ROW}", "passes=0"])


def corrected(directory, passes, threads, _model, folder, calibration, _layers, form, group):
    """The weights of the model, as quantize_blocks writes them for sequences of some 512 tokens."""
    import libqobs as qobs
    output = os.path.join(folder, "corrected")
    shutil.rmtree(output, ignore_errors=True)
    _, scheme, bits, settings = form
    settings = dict(word.split("=") for word in settings)
    settings |= {"rounding_passes": passes} if bits is not None else {}
    batches = [{"input_ids": part} for part in calibration.split(max(1, 512 // calibration.shape[1]))]
    qobs.set_threads(threads)
    settings |= {"group_size": group} if bits else {}
    qobs.quantize_blocks(directory, output, batches, scheme, settings=settings)
    return dequantized_model(_model, output, bits, 1)


# ---- Models
class Llama:
    """The forward pass in float32, with a hook that sees the input of every linear layer."""

    def __init__(self, directory):
        with open(os.path.join(directory, "config.json")) as file:
            c = json.load(file)
        self.layers, self.hidden = c["num_hidden_layers"], c["hidden_size"]
        self.heads = c["num_attention_heads"]
        self.kv_heads = c.get("num_key_value_heads", self.heads)
        self.eps, self.theta = c["rms_norm_eps"], c.get("rope_theta", 10000.0)
        self.vocabulary = c["vocab_size"]
        self.weights = {k: v.float() for k, v in load_file(os.path.join(directory, "model.safetensors")).items()}

    def norm(self, x, weight):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * weight

    def attention(self, weights, prefix, x, see):
        batch, length, _ = x.shape
        size = self.hidden // self.heads
        see(prefix + "q_proj", x)
        q, k, v = ((x @ weights[f"{prefix}{n}_proj.weight"].T).view(batch, length, -1, size).transpose(1, 2)
                   for n in "qkv")
        angles = torch.arange(length)[:, None] * self.theta ** (-torch.arange(size // 2) / (size // 2))
        cos, sin = angles.cos(), angles.sin()

        def rotate(z):
            a, b = z.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        repeat = self.heads // self.kv_heads
        out = torch.nn.functional.scaled_dot_product_attention(
            rotate(q), rotate(k).repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1), is_causal=True)
        out = out.transpose(1, 2).reshape(batch, length, -1)
        see(prefix + "o_proj", out)
        return out @ weights[prefix + "o_proj.weight"].T

    def mlp(self, weights, prefix, x, see):
        see(prefix + "gate_proj", x)
        gate = torch.nn.functional.silu(x @ weights[prefix + "gate_proj.weight"].T)
        inner = gate * (x @ weights[prefix + "up_proj.weight"].T)
        see(prefix + "down_proj", inner)
        return inner @ weights[prefix + "down_proj.weight"].T

    def hidden_states(self, weights, tokens, see=lambda name, x: None):
        """The input of the head."""
        h = weights["model.embed_tokens.weight"][tokens]
        for i in range(self.layers):
            p = f"model.layers.{i}."
            h = h + self.attention(weights, p + "self_attn.", self.norm(h, weights[p + "input_layernorm.weight"]), see)
            h = h + self.mlp(weights, p + "mlp.", self.norm(h, weights[p + "post_attention_layernorm.weight"]), see)
        return self.norm(h, weights["model.norm.weight"])

    def log_probabilities(self, hidden_states):
        """The logits of the next token. The head is never quantized."""
        head = self.weights.get("lm_head.weight", self.weights["model.embed_tokens.weight"])
        return (hidden_states @ head.T).log_softmax(-1)


# ---- Text
def python_text():
    """Modules of the standard library."""
    names = ("argparse", "ast", "calendar", "doctest", "inspect", "pdb", "tarfile", "zipfile")
    return b"\n".join(open(os.path.join(os.path.dirname(os.__file__), name + ".py"), "rb").read() for name in names)


def texts(directory, model, length=128, seed=SEED):
    """Returns calibration sequences and held-out sequences by their kind, the latter with one token more."""
    path = os.path.join(directory, "tokens.safetensors")
    if os.path.exists(path):
        tensors = {k: v.long() for k, v in load_file(path).items()}
        return tensors.pop("calibration"), tensors
    if model.vocabulary != BYTES:
        sys.exit(f"kl.py: {directory}: has no tokens.safetensors, and its vocabulary is not bytes")
    files = sorted({os.path.realpath(f) for f in glob.glob("/usr/share/common-licenses/*")})
    text = b"\n".join(open(f, "rb").read() for f in files)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    cut = int(len(data) * (1 - HELD_OUT))
    starts = torch.randint(0, cut - length, (256,), generator=torch.Generator().manual_seed(seed))

    def held_out(tokens):
        return torch.stack([tokens[i:i + length + 1] for i in range(0, len(tokens) - length, length)])
    python = torch.frombuffer(bytearray(python_text()[:1 << 14]), dtype=torch.uint8).long()
    return (torch.stack([data[i:i + length] for i in starts]),
            {"held_out": held_out(data[cut:]), "python": held_out(python)})


# ---- Measuring
def record(model, sequences, path, every=1):
    """Writes the inputs of the chosen linear layers in bfloat16."""
    seen = {}

    def see(name, x):
        if is_chosen(name + ".weight", every):
            seen.setdefault(name + ".input", []).append(x.bfloat16())
    for batch in sequences.split(4):
        model.hidden_states(model.weights, batch, see)
    save_file({name: torch.cat(parts).contiguous() for name, parts in seen.items()}, path)


def numbers_of_bits(words, width, bits, count):
    """Rows of words of `width` bits as rows of numbers without a sign, low bits first."""
    stream = (words.long()[..., None] >> torch.arange(width)) & 1
    stream = stream.flatten(1)[:, :count * bits].view(words.shape[0], count, bits)
    return (stream << torch.arange(bits)).sum(-1)


def dequantized(tensors, name, shape, bits):
    """The numbers of a quantized weight. bits: those of FORMATS."""
    scale = tensors[name + "_scale"]
    scale = torch.exp2(scale.float() - 127) if scale.dtype == torch.uint8 else scale.float()
    scale = scale.reshape(shape[0], -1)
    group = -(-shape[1] // scale.shape[1])
    if name + "_global_scale" in tensors:
        scale = scale / tensors[name + "_global_scale"].float()

    def wide(t):
        return t.repeat_interleave(group, 1)[:, :shape[1]]

    if bits is None:
        return tensors[name].float() * wide(scale)
    packed = tensors[name + "_packed"]
    codes = numbers_of_bits(packed, 32 if bits else 8, bits or 4, shape[1])
    if bits == 0:
        return torch.tensor(E2M1 + tuple(-x for x in E2M1))[codes] * wide(scale)
    zero = torch.full_like(scale, 1 << bits - 1)
    if name + "_zero_point" in tensors:
        zero = numbers_of_bits(tensors[name + "_zero_point"].T, 32, bits, shape[0]).T.float()
    return (codes - wide(zero)) * wide(scale)


def is_chosen(name, every):
    match = re.fullmatch(r"model\.layers\.(\d+)\..*_proj\.weight", name)
    return match is not None and int(match[1]) % every == every // 2


def hidden_states(model, weights, held_out, batch=8):
    return [model.hidden_states(weights, part[:, :-1]) for part in held_out.split(batch)]


def compare(model, reference, weights, held_out, batch=8):
    """Returns the KL divergence per token, and the perplexity with these weights."""
    kl = nll = 0.0
    for part, hidden in zip(held_out.split(batch), reference):
        before = model.log_probabilities(hidden)
        after = before if weights is model.weights else \
            model.log_probabilities(model.hidden_states(weights, part[:, :-1]))
        kl += (before.exp() * (before - after)).sum().item()
        nll -= after.gather(-1, part[:, 1:, None]).sum().item()
    tokens = held_out[:, 1:].numel()
    return kl / tokens, math.exp(nll / tokens)


def chosen_layers(args, model):
    return "|".join(str(i) for i in range(model.layers) if i % args.every == args.every // 2)


def quantized(args, model, folder, method, form):
    """The weights of the model, those of the chosen layers as `qobs quantize` writes them."""
    _, preset, settings = method
    _, scheme, bits, scheme_settings = form
    output = os.path.join(folder, "quantized")
    settings = scheme_settings + settings + ([f"group_size={args.group}"] if bits else [])
    if args.rounding == "descent":
        settings += ["rounding=descent", f"rounding_passes={args.passes}"]
        settings += [f"dampening_frac={args.dampening}"] if "hessian" in preset else []
    command = [args.qobs, "quantize", args.model, "--scheme", scheme, "--preset", preset, "-o", output, "--replace",
               "--quiet", "--threads", str(args.threads)]
    for setting in settings:
        command += ["--set", setting]
    command += ["--targets", rf"re:model\.layers\.({chosen_layers(args, model)})\..*_proj$"]
    if "imatrix" in preset or "hessian" in preset:
        command += ["--importance", os.path.join(folder, "activations.safetensors")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"kl.py: {' '.join(command)}: {run.stderr}")
    return dequantized_model(model, output, bits, args.every)


def dequantized_model(model, output, bits, every):
    """The weights of the model, those of the chosen layers out of a quantized directory."""
    tensors = {}
    for path in glob.glob(os.path.join(output, "*.safetensors")):
        tensors.update(load_file(path))
    return {k: dequantized(tensors, k, w.shape, bits) if is_chosen(k, every) else w for k, w in model.weights.items()}


def is_possible(method, form):
    if form[2] is None:
        return method[0] in ("min/max", "corrected, row")
    if callable(method[1]):
        return method[2](form)
    signed = any("signed" in s for s in method[2])
    return not (signed and (form[2] == 0 or "asym" in form[0])) and not (method[0] == "mse" and form[2] == 0)


def figures_so_far(args):
    if not args.json or not os.path.exists(args.json):
        return {}
    with open(args.json) as file:
        return json.load(file)["figures"]


def methods(args):
    if args.rounding == "nearest":
        own = METHODS
    else:
        own = [m for m in METHODS + [GROUPS_OF_ROW] if "hessian" in m[1]]
    if args.corrected:
        make = functools.partial(corrected, args.model, args.passes, args.threads)
        own = own + [("corrected, row", make, lambda form: True)]
    return own + kl_peers.METHODS * args.peers


def measure(args, model, calibration, texts_of, folder, method, form):
    """Returns KL and perplexity for each kind of held-out text."""
    if callable(method[1]):
        weights = method[1](model, folder, calibration, chosen_layers(args, model), form, args.group)
    else:
        weights = quantized(args, model, folder, method, form)
    return {kind: compare(model, reference, weights, held_out) for kind, (held_out, reference) in texts_of.items()}


def table(args):
    model = Llama(args.model)
    calibration, held_out = texts(args.model, model, seed=args.seed)
    calibration = calibration[args.skip:][:max(1, args.tokens // calibration.shape[1])]
    figures = figures_so_far(args)
    with tempfile.TemporaryDirectory() as folder:
        record(model, calibration, os.path.join(folder, "activations.safetensors"), args.every)
        texts_of = {kind: (t[:args.sequences], hidden_states(model, model.weights, t[:args.sequences]))
                    for kind, t in held_out.items() if args.kinds or kind == "held_out"}
        perplexity = {kind: compare(model, hidden, model.weights, t)[1] for kind, (t, hidden) in texts_of.items()}
        for kind, (tokens, _) in texts_of.items():
            print(f"{kind}: {tokens[:, 1:].numel()} tokens, perplexity unquantized {perplexity[kind]:.3f}", flush=True)
        print(f"{calibration.numel()} calibration tokens; KL (perplexity)", flush=True)
        print("| | text |" + "|".join(f" {form[0]} " for form in FORMATS) + "|")
        print("|---|---|" + "---|" * len(FORMATS))
        for method in methods(args):
            found = {}
            for form in FORMATS:
                name = f"{method[0]} / {form[0]}"
                if args.rounding == "descent" and not callable(method[1]):
                    name += f" / descent {args.passes}"
                if not re.search(args.only, name) or not is_possible(method, form):
                    continue
                if name not in figures:
                    figures[name] = measure(args, model, calibration, texts_of, folder, method, form)
                    write_json(args.json, {"perplexity": perplexity, "figures": figures})
                found[form[0]] = figures[name]
            for kind in texts_of if found else ():
                cells = [" {:.4f} ({:.3f}) ".format(*found[form[0]][kind]) if form[0] in found else " "
                         for form in FORMATS]
                print(f"| {method[0]} | {kind} |" + "|".join(cells) + "|", flush=True)


def write_json(path, value):
    if path:
        with open(path, "w") as file:
            json.dump(value, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qobs")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--sequences", type=int)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--rounding", choices=["nearest", "descent"], default="nearest")
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--dampening", type=float, default=0)
    parser.add_argument("--corrected", action="store_true")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.corrected and args.every != 1:
        parser.error("--corrected needs --every 1")
    torch.set_num_threads(args.threads)
    table(args)


if __name__ == "__main__":
    import kl_peers
    import torch
    from safetensors.torch import load_file, save_file
    torch.set_grad_enabled(False)
    main()
