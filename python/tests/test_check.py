# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""`python -m libqobs.check`: right models of several classes and schemes, and one fault in each of the others."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import libqobs as qobs

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
pytest.importorskip("compressed_tensors")
from safetensors.torch import load_file, save_file  # noqa: E402

from libqobs import check  # noqa: E402

LAYERS = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL = {**LAYERS, "vocab_size": 256, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
VISION = {**LAYERS, "image_size": 32, "patch_size": 16, "projection_dim": 64}
CONFIGS = {
    "llama": lambda t: t.LlamaConfig(**SMALL, tie_word_embeddings=False),
    "tied": lambda t: t.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "qwen3_moe": lambda t: t.Qwen3MoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64,
                                            tie_word_embeddings=False),
    "llava": lambda t: t.LlavaConfig(text_config=t.LlamaConfig(**SMALL), vision_config=t.CLIPVisionConfig(**VISION),
                                     image_token_index=255),
    "gemma3_text": lambda t: t.Gemma3TextConfig(**SMALL, sliding_window=64, tie_word_embeddings=True),
    "llama4_text": lambda t: t.Llama4TextConfig(**SMALL, intermediate_size_mlp=128, num_local_experts=4,
                                                num_experts_per_tok=1, attention_chunk_size=64),
    "deepseek_v3": lambda t: t.DeepseekV3Config(**{
        **SMALL, "num_key_value_heads": 4}, moe_intermediate_size=64, n_routed_experts=4, n_group=1, topk_group=1,
        topk_method="noaux_tc", n_shared_experts=1, first_k_dense_replace=1, num_experts_per_tok=2, q_lora_rank=64,
        kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16)}
GROUPS = {"W4A16": {"group_size": 32}, "W8A16": {"group_size": 32}, "W4A16_ASYM": {"group_size": 32}}
L0, L1 = "model.layers.0.", "model.layers.1."


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Directories of models and of what they became, made once."""
    root, known = tmp_path_factory.mktemp("check"), {}

    def model(name):
        if name not in known:
            torch.manual_seed(0)
            config = CONFIGS[name](transformers)
            cls = getattr(transformers.models.auto.modeling_auto, "AutoModelForImageTextToText" if name == "llava"
                          else "AutoModelForCausalLM")
            built = cls.from_config(config).to(torch.bfloat16)
            for parameter in built.parameters():
                if parameter.ndim > 1:
                    parameter.data.normal_(0, 0.05)
            known[name] = root / name
            built.save_pretrained(known[name], max_shard_size="200KB" if name == "llama" else "1GB")
        return known[name]

    def out(name, scheme):
        if (name, scheme) not in known:
            known[name, scheme] = root / f"{name}-{scheme}"
            states = [static(name)] if scheme == "FP8" else None
            qobs.quantize(model(name), known[name, scheme], scheme, settings=GROUPS.get(scheme), states=states,
                          threads=1)
        return model(name), known[name, scheme]

    def static(name):
        built = transformers.AutoModelForCausalLM.from_pretrained(model(name), dtype=torch.bfloat16)
        with qobs.calibration(built, "FP8") as seen, torch.no_grad():
            built(torch.arange(64).reshape(2, 32) + 3)
        seen.save(root / f"{name}-states")
        return root / f"{name}-states"

    return out


# ---- Right ones ------------------------------------------------------------------------------------------------------

RIGHT = [(m, s) for m in ("llama", "tied", "llava", "gemma3_text")
         for s in ("W4A16", "W8A16", "W8A8", "FP8_DYNAMIC", "NVFP4A16", "MXFP4A16")] + [
             (m, s) for m in ("qwen3_moe", "deepseek_v3", "llama4_text") for s in ("W4A16", "W8A16", "FP8_DYNAMIC")] + [
                 ("llama", "FP8"), ("llama", "W4A16_ASYM"), ("llama", "FP8_BLOCK"), ("llama", "MXFP8A16")]


@pytest.mark.parametrize("name, scheme", RIGHT)
def test_right_ones_have_no_fault(made, name, scheme):
    model, out = made(name, scheme)
    report = check.check(out, model)
    assert report["faults"] == [] and report["device"] == "cpu" and report["quantized"] > 0
    compared = any("logits of" in note for note in report["notes"])
    assert compared or name in ("deepseek_v3", "llama4_text"), report["notes"]  # shapes too small; experts are split
    names = check.check(out, memory=0)
    assert names["faults"] == [] and names["device"] == "meta"


# ---- Faults ----------------------------------------------------------------------------------------------------------

def tensors_of(path):
    files = sorted(f for f in os.listdir(path) if f.endswith(".safetensors"))
    return {name: tensor for f in files for name, tensor in load_file(f"{path}/{f}").items()}


class Output:
    """A copy of an output, to be changed: tensors by name, and the configuration."""

    def __init__(self, path):
        self.path = path
        self.files = {f: load_file(path / f) for f in sorted(os.listdir(path)) if f.endswith(".safetensors")}
        self.config = json.loads((path / "config.json").read_text())
        self.scheme = self.config["quantization_config"]

    def of(self, name):
        return next(tensors for tensors in self.files.values() if name in tensors)

    def __getitem__(self, name):
        return self.of(name)[name]

    def __setitem__(self, name, value):
        self.of(name)[name] = value.contiguous()

    @property
    def group(self):
        return next(iter(self.scheme["config_groups"].values()))

    def save(self):
        for file, tensors in self.files.items():
            save_file(tensors, self.path / file, {"format": "pt"})
        index = self.path / "model.safetensors.index.json"
        if index.exists():
            where = {name: file for file, tensors in self.files.items() for name in tensors}
            index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
        (self.path / "config.json").write_text(json.dumps(self.config))


def at(name, change):
    """Changes one tensor."""
    return lambda out: out.__setitem__(name, change(out[name]))


def drop(*names):
    return lambda out: [out.of(name).pop(name) for name in names]


def move(old, new):
    def change(out):
        tensors = out.of(old)
        tensors[new] = tensors.pop(old)
    return change


def swap(pairs, parts):
    """Exchanges the parts of modules, (one, the other)."""
    def change(out):
        for a, b in ((f"{a}.{p}", f"{b}.{p}") for a, b in pairs for p in parts):
            out[a], out[b] = out[b].clone(), out[a].clone()
    return change


def swap_rows(value):
    rows = torch.arange(len(value))
    rows[0], rows[5] = 5, 0
    return value[rows]


def unquantize(module):
    """The module is that of the model before; the configuration stays."""
    def change(out):
        for tensors in out.files.values():
            for name in [n for n in tensors if n.startswith(module + ".weight")]:
                del tensors[name]
        next(iter(out.files.values()))[module + ".weight"] = tensors_of(out.model)[module + ".weight"]
    return change


def ignore(change):
    return lambda out: out.scheme.update(ignore=change(out.scheme["ignore"]))


def claim_head(out):
    out.scheme["ignore"] = []
    out.group["targets"].append("re:.*lm_head$")


def cache_scales(*dropped):
    """Adds the scales of a key/value cache of FP8, but for some."""
    def change(out):
        out.scheme["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True,
                                         "dynamic": False}
        names = {f"{layer}self_attn.{which}_scale" for layer in (L0, L1) for which in "kv"}
        next(iter(out.files.values())).update({n: torch.full((1,), 0.5).bfloat16() for n in names - {*dropped}})
    return change


Q, DOWN = L0 + "self_attn.q_proj", L1 + "mlp.down_proj"
LLAVA_UP, LLAVA_DOWN = f"language_model.{L0}mlp.up_proj", f"language_model.{L1}mlp.down_proj"
MOE0, MOE1, LLAMA4 = L0 + "mlp.experts.", L1 + "mlp.experts.", L0 + "feed_forward.experts."
# Changes: model, scheme, change, the beginning of a fault's name and its kind; "": several are possible.
FAULTS = {
    "tensor dropped": ("llama", "W8A16", drop("model.norm.weight"), "model.norm.weight", "missing"),
    "tensor renamed": ("tied", "W8A8", move(L0 + "input_layernorm.weight", L0 + "input_norm.weight"),
                       L0 + "input_norm.weight", "unexpected"),
    "codes of another shape": ("llama", "W4A16", at(DOWN + ".weight_packed", lambda x: x[:, :8]),
                               DOWN + ".weight_packed", "shape"),
    "embeddings of another shape": ("llama", "FP8_DYNAMIC", at("model.embed_tokens.weight", lambda x: x[:200]),
                                    "model.embed_tokens.weight", "shape"),
    "scale times 1.2, 8 bits": ("llama", "W8A16", at(Q + ".weight_scale", lambda x: x * 1.2), Q + ".weight", "error"),
    "scale times 1.2, 4 bits": ("llava", "W4A16", at(LLAVA_UP + ".weight_scale", lambda x: x * 1.2),
                                LLAVA_UP + ".weight", "error"),
    "global scale times 1.2": ("tied", "NVFP4A16", at(Q + ".weight_global_scale", lambda x: x * 1.2),
                               Q + ".weight", "error"),
    "rows swapped": ("tied", "MXFP4A16", at(DOWN + ".weight_packed", swap_rows), DOWN + ".weight", "error"),
    "experts exchanged": ("qwen3_moe", "W8A16", swap([(MOE0 + "1.up_proj", MOE0 + "2.up_proj")],
                                                     ("weight_packed", "weight_scale")),
                          MOE0 + "1.up_proj.weight", "error"),
    "experts that were one tensor exchanged": (
        "llama4_text", "FP8_DYNAMIC", swap([(LLAMA4 + "0.down_proj", LLAMA4 + "3.down_proj"), (
            LLAMA4 + "1.up_proj", LLAMA4 + "1.gate_proj")], ("weight", "weight_scale")),
        LLAMA4 + "1.gate_proj.weight", "error"),
    "ignore emptied, packed head": ("tied", "W4A16", ignore(lambda names: []), "lm_head", "missing"),
    "ignore emptied, head of int8": ("llama", "W8A8", ignore(lambda names: []), "lm_head", "unquantized"),
    "ignore with a wrong name": ("llama", "W4A16", ignore(lambda names: [n.replace("lm_h", "model.h") for n in names]),
                                 "lm_head", "unquantized"),
    "targets claim a tied head": ("gemma3_text", "FP8_DYNAMIC", claim_head, "lm_head", "missing"),
    "tied head lost": ("tied", "W8A8", lambda out: out.config.update(tie_word_embeddings=False),
                       "lm_head.weight", "missing"),
    "another format": ("llama", "W8A8", lambda out: out.group.update(format="pack-quantized"), Q, "codes"),
    "configuration of another scheme": ("llama", "W4A16", lambda out: out.group["weights"].update(
        num_bits=8, group_size=64), Q + ".weight_packed", "shape"),
    "scales missing": ("llava", "W8A8", drop(LLAVA_DOWN + ".weight_scale"), LLAVA_DOWN + ".weight_scale", "missing"),
    "scales of an expert missing": ("qwen3_moe", "FP8_DYNAMIC", drop(MOE1 + "2.down_proj.weight_scale"),
                                    MOE1 + "2.down_proj", ""),
    "an expert missing": ("qwen3_moe", "FP8_DYNAMIC", drop(
        MOE1 + "3.down_proj.weight_scale", MOE1 + "3.down_proj.weight"), MOE1[:-1], ""),
    "zero points missing": ("llama", "W4A16_ASYM", drop(Q + ".weight_zero_point"), Q + ".weight_zero_point", "missing"),
    "scales as integers": ("llama", "W8A8", at(Q + ".weight_scale", lambda x: x.to(torch.int32)),
                           Q + ".weight_scale", "dtype"),
    "scales of NVFP4 in bfloat16": ("llama", "NVFP4A16", at(Q + ".weight_scale", lambda x: x.bfloat16()),
                                    Q + ".weight_scale", "dtype"),
    "scale of keys missing": ("llama", "W4A16", cache_scales(L1 + "self_attn.k_scale"),
                              L1 + "self_attn.k_scale", "missing"),
    "scale of inputs missing": ("llama", "FP8", drop(Q + ".input_scale"), Q + ".input_scale", "missing"),
    "square matrix transposed": ("llama", "W8A8", at(Q + ".weight", lambda x: x.T), Q + ".weight", "error"),
    "matrix transposed": ("gemma3_text", "W8A8", at(DOWN + ".weight", lambda x: x.T), DOWN, "shape"),
    "global scale missing": ("tied", "NVFP4A16", drop(Q + ".weight_global_scale"),
                             Q + ".weight_global_scale", "missing"),
    "module no longer quantized": ("tied", "W8A8", unquantize(Q), Q, "unquantized"),
    "quantized module ignored": ("llama", "W8A8", ignore(lambda names: [*names, Q]), Q, "quantized"),
    "not finite": ("llama", "W4A16", at(Q + ".weight_scale", lambda x: x.fill_(float("nan"))), Q + ".weight", "error"),
    "norm changed": ("llama", "W4A16", at("model.norm.weight", lambda x: x * 1.01), "model.norm.weight", "error"),
}


def seeded(made, tmp_path, name):
    kind, scheme, change, *expected = FAULTS[name]
    return *changed(made, tmp_path, kind, scheme, change), expected


def changed(made, tmp_path, name, scheme, change):
    model, right = made(name, scheme)
    shutil.copytree(right, tmp_path / "out")
    out = Output(tmp_path / "out")
    out.model = model
    change(out)
    out.save()
    return model, tmp_path / "out"


def test_scales_of_a_cache(made, tmp_path):
    model, out = changed(made, tmp_path, "llama", "W4A16", cache_scales())
    assert check.check(out, model)["faults"] == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(made, tmp_path, name):
    model, out, (where, kind) = seeded(made, tmp_path, name)
    reports = [check.check(out, model)]
    if kind != "error":  # nothing is compared with the model before, and nothing is loaded
        reports += [check.check(out), check.check(out, memory=0)]
    for faults in (report["faults"] for report in reports):
        assert any(f["name"].startswith(where) and kind in f["kind"] for f in faults), faults
        for fault in faults:
            assert len(f"{fault['name']}: {fault['message']}".split()) <= 25, fault


def test_a_shard_that_the_index_lacks(made, tmp_path):
    model, right = made("llama", "W8A8")
    shutil.copytree(right, tmp_path / "out")
    index = tmp_path / "out" / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    lost = max(content["weight_map"].values())
    content["weight_map"] = {k: v for k, v in content["weight_map"].items() if v != lost}
    index.write_text(json.dumps(content))
    faults = check.check(tmp_path / "out")["faults"]
    assert faults[0]["name"] == lost and faults[0]["kind"] == "index"
    assert any(f["kind"] == "missing" for f in faults[1:])
    os.remove(tmp_path / "out" / max(content["weight_map"].values()))
    faults = check.check(tmp_path / "out")["faults"]
    assert any(f["kind"] == "index" and "not there" in f["message"] for f in faults)


def test_a_model_that_was_quantized_from_another(made):
    _, out = made("llama", "W8A8")
    other, _ = made("tied", "W8A8")
    assert {f["kind"] for f in check.check(out, other)["faults"]} >= {"names"}


# ---- The command -----------------------------------------------------------------------------------------------------

@pytest.fixture
def run(capsys):
    def run(*words):
        try:
            status = check.main([str(word) for word in words])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()
    return run


def test_status_and_report(made, tmp_path, run):
    model, out = made("llama", "W8A8")
    report = tmp_path / "report.json"
    done = subprocess.run([sys.executable, "-m", "libqobs.check", out, "--against", model, "--json", report],
                          capture_output=True, text=True)
    written = json.loads(report.read_text())
    assert done.returncode == written["status"] == 0 and written["faults"] == []
    assert written["class"] == "LlamaForCausalLM" and written["quantized"] == 14
    assert re.search(r"^right: LlamaForCausalLM of transformers 5\.", done.stdout, re.M)

    _, wrong, _ = seeded(made, tmp_path, "scales as integers")
    status, said, _ = run(wrong, "--json", report)
    written = json.loads(report.read_text())
    assert status == written["status"] == 1 and written["faults"][0]["name"] == Q + ".weight_scale"
    assert said.startswith(f"{Q}.weight_scale: is I32;")


def test_wrong_usage_and_unknown_classes(made, tmp_path, run):
    _, out = made("llama", "W8A8")
    assert run(tmp_path / "absent")[0] == 2 and run()[0] == 2 and run(out, "--runtime", "other")[0] == 2
    assert run(out, "--json", tmp_path / "absent" / "report.json")[0] == 2
    status, _, error = run(out, "--against", out)
    assert status == 2 and "give the model before" in error
    shutil.copytree(out, tmp_path / "out")
    config = json.loads((out / "config.json").read_text())
    config.update(architectures=["TotallyNewForCausalLM"], model_type="totally_new")
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    status, _, error = run(tmp_path / "out")
    assert status == 3 and "does not know the class 'TotallyNewForCausalLM'" in error
    config["quantization_config"]["quant_method"] = "gptq"
    (tmp_path / "out" / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    status, _, error = run(tmp_path / "out")
    assert status == 2 and "quant_method is 'gptq'" in error
    (tmp_path / "out" / "config.json").write_text("{")
    status, _, error = run(tmp_path / "out")
    assert status == 2 and "config.json" in error
