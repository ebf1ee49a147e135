#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of what is quantized and what `ignore` names, by the architecture of the model.

    test_architectures.py QOBS
"""
import json
import os
import re
import sys

import cli
from cli import check, equal
from test_quantize_command import quantize, read, refused, tensor
from test_sources import make

LAYER = "model.layers.0.mlp.down_proj"


def ignored(name, entries):
    return any(re.match(e[3:], name) if e.startswith("re:") else e == name for e in entries)


def run(what, names, *options, scheme="W8A8", status=0, **config):
    """Quantizes matrices of these names. Returns the names of those that are quantized, and `ignore`."""
    shapes = names if isinstance(names, dict) else {n: [128, 128] for n in names}
    make("in", {f"{n}.weight" if "_weight" not in n else n: tensor(s, 1) for n, s in shapes.items()}, **config)
    p = quantize("in", "-o", "out", "--replace", *options, scheme=scheme)
    equal(p.returncode, status, f"{what}: exit status {p.stderr}")
    out = cli.st_read("out/model.safetensors")[0]
    entries = json.loads(read("out/config.json"))["quantization_config"]["ignore"]
    return {n for n in shapes if f"{n}.weight_packed" in out or f"{n}.weight_scale" in out}, entries


def left_out(what, model_type, names, modules=(), linear=(LAYER,), **more):
    """names stay as they are and are in `ignore`, as modules are that the file does not name; linear is quantized."""
    taken, entries = run(what, [*names, *linear], model_type=model_type, **more)
    equal(taken, set(linear), f"{what}: what is quantized")
    for name in (*names, *modules):
        check(ignored(name, entries), f"{what}: ignore has {name}", str(entries))
    for name in linear:
        check(not ignored(name, entries), f"{what}: ignore has no {name}", str(entries))


def test_heads():
    """A head has its name in `ignore`, in the file or tied to the embeddings."""
    left_out("tied", "llama", ["model.embed_tokens"], ["lm_head"])
    left_out("untied", "llama", ["lm_head"])
    for kind, head in (("bert", "cls.predictions.decoder"), ("roberta", "lm_head.decoder"), ("whisper", "proj_out"),
                       ("distilbert", "vocab_projector"), ("albert", "predictions.decoder"), ("xlnet", "lm_loss"),
                       ("gpt_neox_japanese", "embed_out"), ("bark", "lm_heads.2"), ("rwkv", "head")):
        left_out(f"tied head of {kind}", kind, ["embed_tokens"], [head])
        left_out(f"head of {kind}", kind, [head])
    left_out("GPT-NeoX", "gpt_neox", ["embed_out"], ["lm_head"], ["gpt_neox.layers.0.mlp.dense_h_to_4h"])


def test_heads_of_parts():
    """Models of several parts: transformers has the head of the file elsewhere, or a part has a head of its own."""
    config = {"text_config": {"model_type": "llama"}, "vision_config": {"model_type": "clip_vision_model"}}
    left_out("LLaVA", "llava", ["language_model.lm_head"], ["lm_head"], ["language_model." + LAYER], **config)
    left_out("LLaVA, tied", "llava", ["language_model.model.embed_tokens"], ["lm_head"], ["language_model." + LAYER],
             **config)
    left_out("pair", "speech-encoder-decoder", ["decoder.embed_tokens"], ["decoder.cls.predictions.decoder"],
             decoder={"model_type": "bert"}, encoder={"model_type": "wav2vec2"})
    left_out("pair", "vision-encoder-decoder", ["decoder.transformer.wte"], ["decoder.lm_head"],
             decoder={"model_type": "gpt2"}, encoder={"model_type": "vit"})


def test_tables():
    left_out("T5", "t5", ["shared", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"], ["lm_head"],
             ["encoder.block.0.layer.0.SelfAttention.q"])
    left_out("RWKV", "rwkv", ["rwkv.emb", "head"], linear=["rwkv.blocks.0.attention.key"])
    left_out("CTRL", "ctrl", ["transformer.w"], linear=["transformer.h.0.multi_head_attention.Wq"])
    left_out("SAM", "sam", ["mask_decoder.iou_token", "mask_decoder.mask_tokens"])


def test_tables_by_rows():
    """Without a row a matrix with vocab_size rows is a table or a head, but for layers inside blocks and ..._proj."""
    names = {"model.w": [512, 128], "model.w_proj": [512, 128], LAYER: [512, 128]}
    taken, entries = run("rows", names, model_type="new", vocab_size=512, status=3)
    equal(taken, {"model.w_proj", LAYER}, "what is quantized")
    check(ignored("model.w", entries), "ignore has the table", str(entries))
    check(ignored("other.w", entries) and not ignored("other.w_proj", entries), "and its last component", str(entries))
    equal(run("rows", names, model_type="new", status=3)[0], set(names), "without vocab_size")


def test_routers():
    for kind, name in (("granitemoe", "model.layers.0.block_sparse_moe.router.layer"),
                       ("dbrx", "transformer.blocks.0.ffn.router.layer"), ("zaya", "model.layers.0.mlp.gate.down_proj"),
                       ("gemma4_text", "model.layers.0.router.proj"), ("qwen3_moe", "model.layers.0.mlp.gate"),
                       ("qwen2_moe", "model.layers.0.mlp.shared_expert_gate"),
                       ("deepseek_v32", "model.layers.0.self_attn.indexer.weights_proj"),
                       ("deepseek_v32", "model.layers.0.self_attn.indexer.wk")):
        left_out(f"router of {kind}", kind, [name])
    left_out("Aria", "aria", ["language_model.model.layers.0.mlp.router"], ["model.language_model.layers.0.mlp.router"],
             ["language_model." + LAYER], text_config={"model_type": "aria_text"})


def test_conv1d():
    """Conv1D of transformers stores [in, out]: such weights stay as they are."""
    names = [f"transformer.h.0.{n}" for n in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")]
    taken, entries = run("GPT-2", names, model_type="gpt2", status=3)
    equal((taken, all(ignored(n, entries) for n in names)), (set(), True), "GPT-2")
    refused("GPT-2", quantize("in", "-o", "out", "--replace", "--quiet", scheme="W8A8"), 3, "no layer was quantized",
            "Conv1D, which transformers does not load quantized: 4", names[0])
    left_out("GPT-2 in a pair", "vision-encoder-decoder", ["decoder." + n for n in names],
             linear=["encoder.encoder.layer.0.attention.attention.query"], decoder={"model_type": "gpt2"})
    equal(run("GPTBigCode", names, model_type="gpt_bigcode")[0], set(names), "nn.Linear of the same names")


def test_words():
    """Linear layers whose names have a word of other modules; a word before a block says nothing."""
    left_out("ALBERT", "albert", ["albert.encoder.embedding_hidden_mapping_in"])
    left_out("Gemma 3n", "gemma3n", ["model.embed_audio.embedding_projection"])
    for kind, name in (("convnext", "convnext.encoder.stages.0.layers.0.pwconv1"),
                       ("d_fine", "model.decoder.layers.0.gateway.gate"), ("new", "vision_embedder.blocks.0.fc1"),
                       ("prophetnet", "prophetnet.decoder.layers.0.self_attn.relative_pos_embeddings")):
        equal(run(kind, [name], model_type=kind, status=3 if kind == "new" else 0)[0], {name},
              f"{kind}: what is quantized")


def test_renamed():
    """What stays by --ignore has its other names in `ignore`; none of them is a module that is quantized."""
    visual, layer = "visual.blocks.0.attn.qkv", LAYER
    taken, entries = run("Qwen2-VL", [visual, layer], "--ignore", visual, model_type="qwen2_vl")
    equal((taken, entries.count(visual), ignored("model." + visual, entries)), ({layer}, 1, True), "Qwen2-VL")
    taken, entries = run("mixtral", [layer, "model.layers.0.block_sparse_moe.gate"], model_type="mixtral")
    check(ignored("model.layers.0.mlp.gate", entries), "Mixtral: ignore has the module's name", str(entries))


def test_attention():
    """q_proj, k_proj and v_proj in one matrix are split where transformers loads them so: all of them or none."""
    at, config = "transformer.decoder.layers.0.self_attn", {"model_type": "rf_detr"}
    parts = {f"{at}.{n}_proj.weight": tensor([128, 128], i) for i, n in enumerate("qkv")}
    rest = {f"{at}.in_proj_bias": tensor([384], 5), f"{LAYER}.weight": tensor([128, 128], 6)}
    joined = {f"{at}.in_proj_weight": ("BF16", [384, 128], b"".join(data for _, _, data in parts.values()))}
    out = []
    for tensors in ({**parts, **rest}, {**joined, **rest}):
        make("in", tensors, **config)
        p = quantize("in", "-o", "out", "--replace", scheme="FP8_DYNAMIC")
        equal(p.returncode, 0, f"exit status {p.stderr}")
        out.append(cli.st_read("out/model.safetensors")[0])
    equal(out[1], out[0], "what is written of one matrix and of three")
    shapes = {f"{at}.in_proj_weight": [384, 128], LAYER: [128, 128]}
    for pattern in (f"{at}.in_proj_weight", "re:.*self_attn"):
        taken, entries = run("RF-DETR", shapes, "--ignore", pattern, **config)
        equal(taken, {LAYER}, f"--ignore {pattern}: what is quantized")
        check(f"{at}.in_proj_weight" in cli.st_read("out/model.safetensors")[0], f"--ignore {pattern}: one matrix")
        check(ignored("model.decoder.layers.0.self_attn.k_proj", entries), "ignore has k_proj", str(entries))
    p = quantize("in", "-o", "out", "--replace", "--ignore", "re:.*k_proj", scheme="W8A8")
    refused("--ignore of k_proj", p, 2, f"attention of '{at}'", "--ignore 're:.*self_attn.*'")
    at = "vision_model.transformer.resblocks.0.attn"
    taken, entries = run("Step-3.7", {f"{at}.in_proj_weight": [384, 128], LAYER: [128, 128]}, model_type="step3p7")
    equal(taken, {LAYER}, "Step-3.7: transformers turns the rows of q_proj and k_proj, vLLM does not")
    for name in (f"{at}.qkv_proj", f"{at}.q_proj", "model.vision_model.layers.0.self_attn.q_proj"):
        check(ignored(name, entries), f"Step-3.7: ignore has {name}", str(entries))


def test_kept_by_vllm():
    """Layers that vLLM does not load quantized stay if they are few. If they are many, a warning names the --ignore."""
    tower, config = "vision_model.model.layers.0.self_attn.q_proj", {"model_type": "llama4", "vision_config": {}}
    few = [f"language_model.model.layers.{i}.self_attn.q_proj" for i in range(20)]
    left_out("few", "llama4", [tower], linear=few, vision_config={})
    taken = run("many", [tower, *few[:18]], **config)[0]
    equal(taken, {tower, *few[:18]}, "many: what is quantized")
    p = quantize("in", "-o", "out", "--replace", "--json", "report.json", scheme="W8A8")
    equal([r["vllm"] for r in json.loads(read("report.json"))["runtimes"]], [None], "many: vLLM does not load it")
    pattern = re.search(r"vLLM 0.32 loads no quantized .*'vision_model.*--ignore '(.*)'", p.stderr)
    check(pattern, "many: a warning names the pattern", p.stderr)
    taken, entries = run("many", [tower, *few[:18]], "--ignore", pattern[1], **config)
    equal((taken, ignored(tower, entries)), ({*few[:18]}, True), "what is quantized with it")


def test_classes_of_vllm():
    """What vLLM builds unquantized stays in models that transformers has not, many or few; the report says no more."""
    language = "language_model." + LAYER
    for cls, names, linear in (
            ("InternVLChatModel", ["mlp1.1", "mlp1.3"], [language, "vision_model.encoder.layers.0.attn.qkv"]),
            ("SkyworkR1VChatModel", ["mlp1.1", "mlp1.3"], [language]),
            ("DeepseekVLV2ForCausalLM", ["projector.layers.0", "projector.layers.2"], ["language.layers.0.up_proj"]),
            ("KimiVLForConditionalGeneration",
             ["vision_tower.encoder.blocks.0.wqkv", "vision_tower.encoder.blocks.0.mlp.fc0",
              "multi_modal_projector.linear_1"], [language]),
            ("Phi3VForCausalLM", ["model.vision_embed_tokens.img_projection.0"], [LAYER]),
            ("InternLM2ForRewardModel", ["v_head"], ["model.layers.0.attention.wqkv"])):
        left_out(cls, "of_nobody", names, linear=linear, architectures=[cls])
    config = {"model_type": "of_nobody", "architectures": ["InternVLChatModel"]}
    make("in", {f"{language}.weight": tensor([128, 128], 1)}, **config)
    quantize("in", "-o", "out", "--replace", "--json", "report.json", scheme="W8A8")
    runtime, = json.loads(read("report.json"))["runtimes"]
    equal((runtime["transformers"], bool(runtime["vllm"])), (False, True), "the report: vLLM alone has it")


def test_rows_without_vllm():
    """A file of rows that was made without vLLM claims nothing about it."""
    rows = {"transformers": "5.24.0", "vllm": "0", "architectures": [{"types": ["new"], "head": ["lm_head"]}]}
    with open("rows.json", "w", encoding="utf-8") as file:
        json.dump(rows, file)
    make("in", {f"{LAYER}.weight": tensor([128, 128], 1)}, model_type="new")
    p = quantize("in", "-o", "out", "--replace", "--json", "report.json", "--architectures", "rows.json", scheme="W8A8")
    runtime, = json.loads(read("report.json"))["runtimes"]
    equal((p.returncode, runtime["transformers"], runtime["vllm"]), (0, True, None), f"{p.stderr}")
    p = cli.run("quantize", "in", "--scheme", "W8A8", "-o", "out", "--replace", "--architectures", "rows.json")
    check("from the file, transformers 5.24.0, nothing of vLLM\n" in p.stdout, "the summary", p.stdout)


def test_general_rule():
    """Without rows a head that may be tied and what stays are in `ignore` for any prefix; what is quantized is not."""
    def entries_of(names, *options):
        make("in", {f"{n}.weight": tensor([128, 128], 1) for n in names}, model_type="new", architectures=["New"])
        quantize("in", "-o", "out", "--replace", *options, scheme="W8A8")
        out = cli.st_read("out/model.safetensors")[0]
        entries = json.loads(read("out/config.json"))["quantization_config"]["ignore"]
        return [n for n in names if f"{n}.weight_scale" in out], entries
    gate, embed, layer = "model.layers.0.block.gate", "model.embed_tokens", "model.layers.0.gate_up.proj"
    taken, entries = entries_of([gate, embed, layer])
    equal(taken, [layer], "what is quantized")
    for name in ("lm_head", "cls.predictions.decoder", "model.vocab_projector", "blocks.7.gate", "x.embed_tokens"):
        check(ignored(name, entries), f"ignore has {name}", str(entries))
    check(not ignored(layer, entries), "ignore has no quantized layer", str(entries))
    taken, entries = entries_of(["a.layers.0.score", "head.score"], "--targets", "re:a.*", "--targets", "Linear")
    equal(taken, ["a.layers.0.score"], "what is targeted by name")
    check(not any(ignored(n, entries) for n in taken), "a pattern that a quantized layer has is left out", str(entries))


def test_packed():
    """What no runtime loads is refused unless it is asked for; a warning and the report say what one does not load."""
    name = "backbone.layers.0.mixer.out_proj"
    for kind, module, scheme, ways in (("t5", LAYER, "W8A16", ()),
                                       ("falcon_mamba", name, "W4A16", ("mixer", "out_proj)")),
                                       ("mamba", name, "NVFP4A16", ("mixer", "out_proj)"))):
        make("in", {f"{module}.weight": tensor([128, 128], 1)}, model_type=kind)
        p = quantize("in", "-o", "refused", scheme=scheme)
        refused(f"{kind} {scheme}", p, 2, "no runtime loads this", "vLLM 0.32", "transformers 5.24 loads no packed",
                "--scheme FP8_DYNAMIC", *ways)
        check(not os.path.exists("refused"), f"{kind} {scheme}: there is no output")
        for options in (["--keep-findings"], ["--compat", "llm-compressor"]):
            p = quantize("in", "-o", "out", "--replace", *options, scheme=scheme)
            equal((p.returncode, "no runtime loads this" in p.stderr), (0, True), f"{kind} {scheme} {options}")
    at = "vision_tower.encoder.layers.0.self_attn"
    tower = {f"{at}.{n}_proj.weight": tensor([128, 128], i) for i, n in enumerate("qk")}
    tower[f"language_model.{LAYER}.weight"] = tensor([128, 128], 3)
    for kind, scheme, options, loads in (
            ("gemma3", "W8A16", [], False), ("gemma3", "W8A16", ["--ignore", "re:.*vision_tower.*"], True),
            ("gemma3", "FP8_DYNAMIC", [], True), ("llama", "W8A16", [], True), ("t5", "W8A8", [], True)):
        make("in", tower if kind == "gemma3" else {f"{LAYER}.weight": tensor([128, 128], 1)}, model_type=kind)
        p = quantize("in", "-o", "out", "--replace", "--json", "report.json", *options, scheme=scheme)
        runtime, = json.loads(read("report.json"))["runtimes"]
        equal(runtime["transformers"], loads, f"{kind} {scheme} {options}: transformers")
        equal("FP8_DYNAMIC and W8A8" in p.stderr, not loads, f"{kind} {scheme} {options}: warning")
        equal(runtime["vllm"] is None, kind == "t5", f"{kind} {scheme}: vLLM")


def test_ties():
    """transformers ties the weights of layers that share a block, not their scales: it loads them in no format."""
    for kind, block, vllm in (("zamba", "shared_transf", False), ("zamba2", "shared_transformer", True)):
        shared, own = f"model.layers.1.{block}.self_attn.q_proj", "model.layers.1.linear"
        make("in", {f"{n}.weight": tensor([128, 128], 1) for n in (shared, own)}, model_type=kind)
        for scheme in ("W8A16", "FP8_DYNAMIC", "NVFP4A16"):
            p = quantize("in", "-o", "out", "--replace", "--json", "report.json", scheme=scheme)
            if vllm:
                runtime, = json.loads(read("report.json"))["runtimes"]
                equal((p.returncode, runtime["transformers"]), (0, False), f"{kind} {scheme}")
                check(shared in p.stderr and "FP8_DYNAMIC and" not in p.stderr, f"{kind} {scheme}: warning", p.stderr)
            else:
                refused(f"{kind} {scheme}", p, 2, "no runtime loads this", f"ties no scales of {block}", "--ignore")
                check("--scheme" not in p.stderr, f"{kind} {scheme}: no scheme helps", p.stderr)
        pattern = f"re:(.*[.])?({block})([.].*)?$"
        p = quantize("in", "-o", "out", "--replace", "--json", "report.json", "--ignore", pattern, scheme="W8A16")
        runtime, = json.loads(read("report.json"))["runtimes"]
        equal((p.returncode, runtime["transformers"]), (0, True), f"{kind} with the pattern: {p.stderr}")
    left_out("DETR", "deformable_detr", ["bbox_embed.0.layers.0"], ["bbox_embed.3.layers.2"])


def test_converted():
    """transformers splits and joins some modules as it loads them, and finds some experts unquantized alone."""
    def loads(kind, module, scheme, *options):
        names = [module]
        if module == "experts":
            names = [f"{LAYER[:-10]}.experts.{i}.{n}_proj" for i in (0, 1) for n in ("gate", "up", "down")]
        make("in", {f"{n}.weight": tensor([384, 128], 1) for n in names}, model_type=kind)
        p = quantize("in", "-o", "out", "--replace", "--json", "report.json", *options, scheme=scheme)
        equal(p.returncode, 0, f"{kind} {scheme} {options}: exit status {p.stderr}")
        runtime, = json.loads(read("report.json"))["runtimes"]
        return runtime["transformers"], p.stderr

    qkv, shared = "encoder.layers.0.attn.Wqkv", "model.layers.0.mlp.shared_experts.up_proj"
    one_scale = ["--set", "strategy=tensor"]
    for kind, module, scheme, options, loaded in (
            ("nomic_bert", qkv, "W8A16", [], False), ("nomic_bert", qkv, "NVFP4A16", [], False),
            ("nomic_bert", qkv, "FP8_DYNAMIC", one_scale, False), ("nomic_bert", qkv, "FP8_DYNAMIC", [], True),
            ("nomic_bert", qkv, "W8A8", [], True), ("nomic_bert", qkv, "MXFP4A16", [], True),
            ("nomic_bert", LAYER, "W8A16", [], True), ("bert", qkv, "W8A16", [], True),
            ("minimax_m3_vl", shared, "FP8_DYNAMIC", one_scale, False), ("minimax_m3_vl", shared, "W8A16", [], True)):
        said, warning = loads(kind, module, scheme, *options)
        equal(said, loaded, f"{kind} {module} {scheme} {options}: transformers")
        equal("in this format" in warning, not loaded, f"{kind} {module} {scheme} {options}: warning {warning}")
    for scheme in ("W4A16", "FP8_DYNAMIC"):
        for kind in ("ernie4_5_vl_moe", "qwen3_vl_moe", "qwen3_moe"):
            equal(loads(kind, "experts", scheme)[0], kind == "qwen3_moe", f"experts of {kind} {scheme}")
    tower = "vision_tower.encoder.blocks.0.wqkv"
    make("in", {f"{n}.weight": tensor([384, 128], 1) for n in (tower, LAYER)}, model_type="kimi_k25")
    p = quantize("in", "-o", "refused", scheme="W8A16")
    refused("kimi_k25", p, 2, "no runtime loads this", "cannot split wqkv", "(wqkv)", "--scheme FP8_DYNAMIC")
    check(not os.path.exists("refused"), "kimi_k25: there is no output")
    pattern = re.search("--ignore '([^']*)'", p.stderr)
    check(pattern, "kimi_k25: the message names the pattern", p.stderr)
    p = quantize("in", "-o", "out", "--replace", "--json", "report.json", "--ignore", pattern[1], scheme="W8A16")
    runtime, = json.loads(read("report.json"))["runtimes"]
    equal((p.returncode, runtime["transformers"]), (0, True), f"kimi_k25 with the pattern: {p.stderr}")


def test_uneven():
    """Layers whose columns the group size does not divide stay if they are few; if not, the run stops."""
    few = {f"model.layers.{i}.altup.correction_coefs.weight": tensor([4, 4], i) for i in range(2)}
    rest = {f"{LAYER}.weight": tensor([128, 128], 5)}
    make("in", {**few, **rest}, model_type="gemma3n_text")
    equal(quantize("in", "-o", "out", "--replace", scheme="W4A16").returncode, 0, "few: exit status")
    entries = json.loads(read("out/config.json"))["quantization_config"]["ignore"]
    out = cli.st_read("out/model.safetensors")[0]
    for name in few:
        check(name in out and ignored(name[:-len(".weight")], entries), f"{name} stays, in ignore", str(entries))
    check(f"{LAYER}.weight_packed" in out, "few: the others are quantized")
    p = quantize("in", "-o", "out", "--replace", "--targets", "re:.*altup.*", "--targets", LAYER, scheme="W4A16")
    refused("targeted", p, 2, "2 layers", "altup.correction_coefs': have 4 columns, groups of 128",
            "re:.*[.]correction_coefs$")
    make("in", {"model.layers.0.mlp.up_proj.weight": tensor([128, 192], 5), **rest}, model_type="llama")
    refused("many", quantize("in", "-o", "out", "--replace", scheme="W4A16"), 2, "192 columns", "group_size=64")


def test_targets():
    """What is targeted by its name is quantized; what no target claims is not in `ignore`."""
    names = ["lm_head", "model.embed_tokens", "model.layers.0.mlp.gate", LAYER]
    taken, entries = run("heads", names, "--targets", "Linear", "--targets", "lm_head", model_type="llama")
    equal((taken, entries), ({"lm_head", LAYER}, names[1:3]), "--targets lm_head")
    taken, entries = run("tied", names[1:], "--targets", "lm_head", "--targets", LAYER, status=3, model_type="llama")
    equal((taken, entries), ({LAYER}, ["lm_head"]), "--targets lm_head, which is tied")
    taken, entries = run("one", names, "--targets", LAYER, model_type="llama")
    equal((taken, entries), ({LAYER}, []), "--targets of one layer")
    taken, entries = run("given", names, "--ignore", "re:.*lm_head", model_type="llama")
    equal(entries, ["re:.*lm_head", "model.embed_tokens", "model.layers.0.mlp.gate"], "--ignore of the head")


def test_compatible():
    """--compat llm-compressor writes `ignore` as it was given, and warns of what does not load."""
    for kind, names, words in (("llama", ["model.embed_tokens", LAYER], ["lm_head", "embeddings", "embed_tokens"]),
                               ("gpt2", ["transformer.h.0.mlp.c_fc"], ["Conv1D", "c_fc"])):
        make("in", {f"{n}.weight": tensor([128, 128], 1) for n in names}, model_type=kind, tie_word_embeddings=True)
        p = quantize("in", "-o", "out", "--replace", "--compat", "llm-compressor", scheme="W8A8")
        equal(json.loads(read("out/config.json"))["quantization_config"]["ignore"], [], "ignore")
        check(p.returncode == 0 and all(w in p.stderr for w in words), f"{kind}: warns of {words}", p.stderr)


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
