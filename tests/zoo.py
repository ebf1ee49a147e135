#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Small random models of transformers' classes, quantized and loaded again.

    zoo.py QOBS [--all | --types FILE] [--only REGEX] [--json FILE] [--schemes NAME...]

Needs torch, transformers and compressed-tensors. Twelve types, or with --all every model_type whose class of a head can
be built from a configuration made small by rules. A type is right if, in each scheme,

  - qobs quantize ends with 0, and qobs audit finds nothing,
  - each parameter of the dequantized model is near to the one before,
  - libqobs.check finds nothing: tensors, parameters, shapes, numbers and logits are those of the model, in
    transformers.

It is right, too, if the report says that transformers does not load it, and that is true. It is refused if qobs ends
with 2 and says why, or has nothing to quantize. --json writes a row for each type, of which models.py makes
docs/models.md. --types FILE names the types, one a line. Ends with `N passed, N failed`; the types that are not built
are listed, and what zoo_reasons.txt says of types whose figures look wrong to other judges and are not.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import types

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1", TQDM_DISABLE="1")
import torch
import transformers
from safetensors.torch import save_file
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

package = types.ModuleType("libqobs")  # its modules without its libraries
package.__path__ = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python", "libqobs")]
sys.modules["libqobs"] = package
from libqobs import check
from libqobs.architectures import configuration

TWELVE = {"llama": {}, "llama tied": {"tie_word_embeddings": True}, "qwen3": {"tie_word_embeddings": True},
          "qwen3_moe": {},
          "mixtral": {}, "gpt_oss": {}, "deepseek_v3": {}, "gemma3": {}, "gpt2": {}, "t5": {}, "granitemoe": {},
          "llava": {},
          "mamba": {}}
HEADS = "CAUSAL_LM IMAGE_TEXT_TO_TEXT SEQ_TO_SEQ_CAUSAL_LM MASKED_LM".split()
SCHEMES = {"W8A16": (0.02, ["--set", "strategy=channel"]), "FP8_DYNAMIC": (0.06, []), "NVFP4A16": (0.25, [])}

# Members of a configuration, and what they become.
SMALL = [(r"(hidden_size|d_model|n_embd|embed_dim|word_embed_proj_dim|embedding_size)$", 128),
         (r"(intermediate_size|ffn_hidden_size|d_ff|.*ffn_dim|n_inner|moe_intermediate_size|"
          r".*expert_intermediate_size)$", 256),
         (r"(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_decoder_layers)$", 2),
         (r"(num_attention_heads|n_heads?|num_heads|encoder_attention_heads|decoder_attention_heads)$", 4),
         (r"(num_key_value_heads|num_kv_heads)$", 2), (r"(head_dim|d_kv|v_head_dim|qk_nope_head_dim)$", 32),
         (r"qk_rope_head_dim$", 16), (r"(q_lora_rank|kv_lora_rank)$", 64), (r"vocab_size$", 256),
         (r"(num_experts|num_local_experts|n_routed_experts|moe_num_experts)$", 4),
         (r"(num_experts_per_tok|moe_top_k|num_selected_experts|top_k_experts)$", 2), (r"(n_group|topk_group)$", 1),
         (r"(first_k_dense_replace|moe_layer_start_index|n_shared_experts)$", 1),
         (r"(max_position_embeddings|n_positions|n_ctx|max_seq_len)$", 128), (r"image_size$", 32), (r"patch_size$", 16),
         (r"projection_dim$", 128), (r"(state_size|mamba_d_state)$", 16), (r"time_step_rank$", 16)]


def shrink(config):
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PreTrainedConfig):
            shrink(value)
        elif isinstance(value, int) and not isinstance(value, bool) and not name.startswith("_"):
            for pattern, small in SMALL:
                if re.fullmatch(pattern, name) and value > small:
                    setattr(config, name, small)
        elif name in ("layer_types", "mlp_layer_types") and isinstance(value, list):
            setattr(config, name, (sorted(set(value)) * 2)[:2])
        elif isinstance(value, int) and re.fullmatch(r"(pad|bos|eos|image|video|audio)_token_(id|index)", name):
            setattr(config, name, value % 200)
    for name in ("pad_token_id", "eos_token_id", "bos_token_id", "image_token_id", "image_token_index"):
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, getattr(config, name) % 200)


def class_of(kind):
    for head in HEADS:
        names = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {}).get(kind)
        if names:
            return getattr(transformers, names if isinstance(names, str) else names[0])
    return None


def build(kind, more):
    config = configuration(kind, CONFIG_MAPPING)
    shrink(config)
    for name, value in more.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    cls = class_of(kind)
    model = cls._from_config(config).to(torch.bfloat16).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.05)
    return cls, model


def write_dense(out, dense):
    """Writes the output as a plain checkpoint. Returns the number of quantized modules."""
    checkpoint = check.Checkpoint(out)
    checkpoint.config.pop("quantization_config", None)
    os.makedirs(dense)
    tensors = {name: value.contiguous() for name, value in check.plain_state(checkpoint).items()}
    save_file(tensors, f"{dense}/model.safetensors", {"format": "pt"})
    with open(f"{dense}/config.json", "w", encoding="utf-8") as file:
        json.dump(checkpoint.config, file)
    return len(checkpoint.quantized)


def load(folder, plain=False):
    """What transformers makes of a directory; plain: of its numbers, dequantized."""
    checkpoint = check.Checkpoint(folder)
    return check.Transformers(checkpoint).load("cpu", check.plain_state(checkpoint) if plain else None)


def judge(qobs, source, before, folder, scheme):
    """None, or what is wrong; raises Refused."""
    limit, options = SCHEMES[scheme]
    out = f"{folder}/{scheme}"
    run = subprocess.run([qobs, "quantize", source, "--scheme", scheme, "--threads", "1", "--quiet", "-o", out,
                          "--json", f"{out}.json", *options], capture_output=True, text=True)
    if run.returncode:
        raise Refused(run.returncode, " ".join(run.stderr.split()))
    audit = subprocess.run([qobs, "audit", out], capture_output=True, text=True)
    if audit.returncode:
        return f"the audit finds {audit.stdout.splitlines()[1:3]}"
    with open(f"{out}.json", encoding="utf-8") as file:
        said = all(runtime["transformers"] for runtime in json.load(file)["runtimes"])
    expected = load(out, plain=True)
    lost = {*expected.missing, *expected.unexpected} - {*before.missing, *before.unexpected}
    dequantized = dict(expected.model.named_parameters())
    for name, value in before.model.named_parameters():
        if name not in lost and check.distance(dequantized[name], value) > limit:
            return f"{name}: {check.distance(dequantized[name], value):.2g} from the model before"
    faults = [f"{fault['name']}: {fault['message']}" for fault in check.check(out, source)["faults"]]
    if said:
        return "; ".join(faults[:3]) or None
    return None if faults else "the report says that transformers does not load it, but it does"


class Refused(Exception):
    pass


def row_of(qobs, name, more, schemes):
    row = {"type": name, "verdict": "not built", "why": "", "schemes": {}}
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/source"
        try:
            cls, model = build(name.split()[0], more)
            model.save_pretrained(source)
            before = load(source)
            lost = before.missing + before.mismatched
            if lost:
                raise ValueError(f"transformers loses {lost[0]} when it saves and loads")
        except Exception as error:
            return {**row, "why": f"{type(error).__name__}: {error}"[:100]}
        row["class"] = cls.__name__
        for scheme in schemes:
            try:
                problem = judge(qobs, source, before, folder, scheme)
            except Refused as refusal:
                right = refusal.args[0] == 2 or "no layer was quantized" in refusal.args[1]
                row["schemes"][scheme] = "refused" if right else "wrong"
                row.update(verdict=row["schemes"][scheme], why=f"{scheme}: {refusal.args[1]}"[:300])
                if not right:
                    return row
                continue
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"[:160].replace("\n", " ")
            row["schemes"][scheme] = "wrong" if problem else "right"
            if problem:
                return {**row, "verdict": "wrong", "why": f"{scheme}: {problem}"}
            row["verdict"] = "right" if row["verdict"] == "not built" else row["verdict"]
    return row


def reasons():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "zoo_reasons.txt"), encoding="utf-8") as file:
        lines = [line.split(": ", 1) for line in file.read().splitlines() if line and line[0] != "#"]
    return {name: why for names, why in lines for name in names.split()}


def main():
    parser = argparse.ArgumentParser(description="quantizes and loads models of every class")
    parser.add_argument("qobs")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--types")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES), choices=SCHEMES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    kinds = {k: {} for k in CONFIG_MAPPING if class_of(k)} if options.all or options.types else TWELVE
    if options.types:
        with open(options.types, encoding="utf-8") as file:
            wanted = set(file.read().split())
        kinds = {k: v for k, v in kinds.items() if k in wanted}
    rows = []
    for name, more in kinds.items():
        if not re.search(options.only, name):
            continue
        rows.append(row_of(os.path.abspath(options.qobs), name, more, options.schemes))
        print(f"{name:32} {rows[-1]['verdict']:10} {rows[-1]['why']}", flush=True)
    if options.json:
        json.dump({"transformers": transformers.__version__, "schemes": options.schemes, "rows": rows},
                  open(options.json, "w", encoding="utf-8"), indent=1)
    for name, why in reasons().items():
        if any(r["type"] == name for r in rows):
            print(f"{name}: {why}")
    count = {v: sum(r["verdict"] == v for r in rows) for v in ("right", "refused", "wrong", "not built")}
    print(", ".join(f"{n} {v}" for v, n in count.items()))
    failed = count["wrong"] + (0 if options.all or options.types else count["not built"])
    print(f"{count['right'] + count['refused']} passed, {failed} failed")
    return 1 if failed or not count["right"] else 0


if __name__ == "__main__":
    sys.exit(main())
