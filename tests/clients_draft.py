# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Loads the draft layers of quantized models by vLLM's own loaders on the CPU.

    clients_draft.py QOBS

Python is that of vLLM. Six families of models with draft layers are made, small and random, and quantized by W4A16,
with the draft as vLLM is known to load it, and kept. Right: vLLM takes every tensor of the draft, and every parameter
is filled. Experts are loaded and not run: the CPU has no kernel for them. Ends with "N passed, N failed".
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind",
                  OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_PLUGINS="",
                  TORCHDYNAMO_DISABLE="1", TORCH_COMPILE_DISABLE="1", VLLM_LOGGING_LEVEL="ERROR")
import torch
from safetensors.torch import save_file

H, VOCABULARY, EXPERTS, HEADS = 128, 256, 4, 4
NORMS = ("input_layernorm", "post_attention_layernorm")
# vLLM takes these from the model that drafts are for, or gives them a default.
SHARED = re.compile(r"lm_head[.]weight$|embed_tokens[.]weight$|[.]attn[.][qkv]_(scale|zero_point)$")


# ---- Models: names and shapes of the tensors of the files on the hub -------------------------------------------------


def matrices(prefix, **shapes):
    return {f"{prefix}.{name}.weight": torch.randn(shape) * 0.05 for name, shape in shapes.items()}


def norms(prefix, *names, size=H):
    return {f"{prefix}.{name}.weight": torch.ones(size) for name in names}


def mlp(prefix):
    return matrices(prefix, gate_proj=(H, H), up_proj=(H, H), down_proj=(H, H))


def experts(prefix, shared="shared_experts", router="gate", rows=EXPERTS):
    found = matrices(prefix, **{router: (rows, H)})
    for i in range(EXPERTS):
        found |= mlp(f"{prefix}.experts.{i}")
    return found | (mlp(f"{prefix}.{shared}") if shared else {})


def correction(name, *shape):
    return {name: torch.zeros(shape)}


def attention(prefix, bias=False, gate=1):
    """Four heads of 32 numbers; keys and values have two."""
    found = matrices(prefix, q_proj=(gate * H, H), k_proj=(H // 2, H), v_proj=(H // 2, H), o_proj=(H, H))
    return found | ({f"{prefix}.{n}_proj.bias": torch.zeros(r) for n, r in (("q", H), ("k", H // 2), ("v", H // 2))}
                    if bias else {})


def latent_attention(prefix):
    return {**matrices(prefix, q_a_proj=(H, H), q_b_proj=(64 * HEADS, H), kv_a_proj_with_mqa=(H + 32, H),
                       kv_b_proj=(64 * HEADS, H), o_proj=(H, 32 * HEADS)),
            **norms(prefix, "q_a_layernorm", "kv_a_layernorm")}


def nextn(prefix):
    """The parts of a draft layer that is numbered as a layer of the model."""
    return {**norms(prefix, "enorm", "hnorm"), **norms(prefix + ".shared_head", "norm"),
            **matrices(prefix, eh_proj=(H, 2 * H), embed_tokens=(VOCABULARY, H)),
            **matrices(prefix + ".shared_head", head=(VOCABULARY, H))}


COMMON = {"vocab_size": VOCABULARY, "hidden_size": H, "num_attention_heads": HEADS, "num_key_value_heads": 2,
          "head_dim": 32, "intermediate_size": H, "moe_intermediate_size": H, "num_hidden_layers": 2,
          "hidden_act": "silu",
          "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": False,
          "num_experts_per_tok": 2, "norm_topk_prob": True, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16"}
LATENT = {"q_lora_rank": H, "kv_lora_rank": H, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32,
          "num_key_value_heads": HEADS}
ROUTED = {"n_routed_experts": EXPERTS, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
          "routed_scaling_factor": 1.0}


def deepseek_v3():
    tensors = nextn("model.layers.2")
    for p in ("model.layers.0", "model.layers.1", "model.layers.2"):
        tensors |= {**latent_attention(p + ".self_attn"), **norms(p, *NORMS)}
        tensors |= mlp(p + ".mlp") if p[-1] == "0" else {
            **experts(p + ".mlp"), **correction(p + ".mlp.gate.e_score_correction_bias", EXPERTS)}
    return tensors, {**LATENT, **ROUTED, "moe_layer_freq": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
                     "architectures": ["DeepseekV3ForCausalLM"]}


def glm4_moe():
    tensors = nextn("model.layers.2")
    for p in ("model.layers.0", "model.layers.1", "model.layers.2"):
        tensors |= {**attention(p + ".self_attn", bias=True), **norms(p, *NORMS)}
        tensors |= mlp(p + ".mlp") if p[-1] == "0" else {
            **experts(p + ".mlp"), **correction(p + ".mlp.gate.e_score_correction_bias", EXPERTS)}
    return tensors, {**ROUTED, "attention_bias": True, "partial_rotary_factor": 0.5, "use_qk_norm": False,
                     "architectures": ["Glm4MoeForCausalLM"]}


def qwen3_next():
    tensors = {**norms("mtp", "norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"), **matrices("mtp", fc=(H, 2 * H))}
    for p in ("model.layers.0", "model.layers.1", "mtp.layers.0"):
        tensors |= {**attention(p + ".self_attn", gate=2), **norms(p + ".self_attn", "q_norm", "k_norm", size=32),
                    **norms(p, *NORMS), **experts(p + ".mlp", shared="shared_expert"),
                    **matrices(p + ".mlp", shared_expert_gate=(1, H))}
    return tensors, {"num_experts": EXPERTS, "decoder_sparse_step": 1, "mlp_only_layers": [],
                     "partial_rotary_factor": 0.25,
                     "shared_expert_intermediate_size": H, "layer_types": ["full_attention"] * 2,
                     "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
                     "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
                     "architectures": ["Qwen3NextForCausalLM"]}


def mimo():
    draft = "model.mtp_layers.0"
    tensors = {**norms(draft, "token_layernorm", "hidden_layernorm", "final_layernorm"),
               **matrices(draft, input_proj=(H, 2 * H))}
    for p in ("model.layers.0", "model.layers.1", draft):
        tensors |= {**attention(p + ".self_attn", bias=True), **norms(p, *NORMS), **mlp(p + ".mlp")}
    return tensors, {"attention_bias": True, "architectures": ["MiMoForCausalLM"],
                     "auto_map": {"AutoConfig": "configuration_mimo.MiMoConfig"}}


def ernie4_5_moe():
    draft = "model.mtp_block.0"
    tensors = {**matrices("model.mtp_linear_proj", **{"0": (H, 2 * H)}), **norms("model.mtp_emb_norm", "0"),
               **norms("model.mtp_hidden_norm", "0"),
               **correction("model.layers.1.mlp.moe_statics.e_score_correction_bias", 1, EXPERTS)}
    for p in ("model.layers.0", "model.layers.1", draft):
        tensors |= {**attention(p + ".self_attn"), **norms(p, *NORMS),
                    **(experts(p + ".mlp") if p[-1] == "1" else mlp(p + ".mlp"))}
    return tensors, {"moe_num_experts": EXPERTS, "moe_k": 2, "moe_num_shared_experts": 1, "moe_layer_start_index": 1,
                     "moe_layer_end_index": 1, "moe_layer_interval": 1, "use_bias": False, "moe_capacity": [64, 64, 64],
                     "architectures": ["Ernie4_5_MoeForCausalLM"]}


def longcat_flash():
    draft = "model.mtp.layers.0"
    tensors = {**matrices("model.mtp", embed_tokens=(VOCABULARY, H)), **norms("model.mtp", "norm"),
               **matrices(draft, eh_proj=(H, 2 * H)), **norms(draft, *NORMS, "enorm.m", "hnorm.m"),
               **latent_attention(draft + ".self_attn"), **mlp(draft + ".transformer_layer.mlp")}
    for p in ("model.layers.0", "model.layers.1"):
        tensors |= {**experts(p + ".mlp", shared=None, router="router.classifier", rows=EXPERTS + 2),
                    **correction(p + ".mlp.router.e_score_correction_bias", EXPERTS + 2)}
        for k in "01":
            tensors |= {**latent_attention(f"{p}.self_attn.{k}"), **mlp(f"{p}.mlps.{k}"),
                        **norms(p, *(f"{n}.{k}" for n in NORMS))}
    return tensors, {**LATENT, "num_hidden_layers": None, "num_layers": 2, "ffn_hidden_size": H,
                     "expert_ffn_hidden_size": H,
                     "n_routed_experts": EXPERTS, "zero_expert_num": 2, "zero_expert_type": "identity", "moe_topk": 2,
                     "routed_scaling_factor": 1.0, "mla_scale_q_lora": True, "mla_scale_kv_lora": True,
                     "qk_head_dim": 64,
                     "router_bias": False, "architectures": ["LongcatFlashForCausalLM"]}


FAMILIES = (deepseek_v3, glm4_moe, qwen3_next, mimo, ernie4_5_moe, longcat_flash)


def make(family, directory):
    tensors, config = family()
    tensors |= {**matrices("model", embed_tokens=(VOCABULARY, H)), "lm_head.weight": torch.randn(VOCABULARY, H),
                **norms("model", "norm")}
    os.makedirs(directory)
    wide = {name: t if "correction_bias" in name else t.to(torch.bfloat16) for name, t in tensors.items()}
    save_file(wide, f"{directory}/model.safetensors", {"format": "pt"})
    config = {k: v for k, v in {**COMMON, "model_type": family.__name__, **config}.items() if v is not None}
    with open(f"{directory}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(f"{directory}/configuration_mimo.py", "w", encoding="utf-8") as file:
        file.write("from transformers import Qwen2Config\n\n\n"
                   "class MiMoConfig(Qwen2Config):\n    model_type = 'mimo'\n")


# ---- vLLM ------------------------------------------------------------------------------------------------------------


def draft_of(directory):
    """The configuration of vLLM, and its model of the draft without weights."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
        compressed_tensors_moe_wna16 as wna16)
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    wna16.select_wna16_moe_backend = lambda *a, **k: (None, None)
    config = EngineArgs(model=directory, dtype="bfloat16", enforce_eager=True, max_model_len=64,
                        skip_tokenizer_init=True,
                        max_num_seqs=2, trust_remote_code=True,
                        speculative_config={"method": "mtp", "num_speculative_tokens": 1}).create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{directory}.rendezvous", 0, backend="gloo")
        initialize_model_parallel(1, 1)
        with set_default_torch_dtype(torch.bfloat16):
            return config, initialize_model(vllm_config=config,
                                            model_config=config.speculative_config.draft_model_config)


def watch(model):
    """Returns a set that gets the storage of each tensor that a weight loader receives."""
    from vllm.model_executor.model_loader import weight_utils
    taken, default = set(), weight_utils.default_weight_loader

    def watched(loader):
        def load(*arguments, **named):
            tensor = named.get("loaded_weight", arguments[1] if len(arguments) > 1 else None)
            taken.add(tensor.untyped_storage().data_ptr())
            return loader(*arguments, **named)
        return load
    for module in list(sys.modules.values()):
        if vars(module).get("default_weight_loader") is default:
            module.default_weight_loader = watched(default)
    for parameter in model.parameters():
        loader = getattr(parameter, "weight_loader", None)
        if loader is not None:
            fixed = isinstance(getattr(type(parameter), "weight_loader", None), property)
            setattr(parameter, "_weight_loader" if fixed else "weight_loader", watched(loader))
    return taken


def faults(directory, draft):
    """Names of tensors of the draft that vLLM does not take, and of parameters that nothing fills."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader
    config, model = draft_of(directory)
    taken, tensors = watch(model), {}
    loader = get_model_loader(config.load_config)

    def weights():
        for name, tensor in loader.get_all_weights(config.speculative_config.draft_model_config, model):
            tensors[name] = tensor
            yield name, tensor
    with set_current_vllm_config(config):
        loaded = model.load_weights(weights())
    skipped = [n for n, t in tensors.items() if re.search(draft, n) and t.untyped_storage().data_ptr() not in taken]
    unfilled = [n for n, _ in model.named_parameters() if n not in loaded and not SHARED.search(n)]
    return [f"{n} is not taken" for n in sorted(skipped)] + [f"{n} is not filled" for n in sorted(unfilled)]


def in_child(function, *arguments):
    """Runs the function in a process of its own. vLLM keeps state for the life of a process."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        try:
            found = function(*arguments)
        except BaseException as error:
            traceback.print_exc()
            found = [f"{type(error).__name__}: {error}"[:300]]
        os.write(theirs, json.dumps(found[:5]).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as file:
        text = file.read()
    os.wait()
    return json.loads(text or '["the process ended"]')


def main():
    passed = failed = 0
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as root:
        for family in FAMILIES:
            model = f"{root}/{family.__name__}"
            make(family, model)
            for draft in ("as-loaded", "keep"):
                out = f"{model}-{draft}"
                subprocess.run([sys.argv[1], "quantize", model, "--scheme", "W4A16", "--draft", draft, "-o", out,
                                "--quiet"],
                               check=True)
                found = in_child(faults, out, r"mtp|layers[.]2[.]")
                passed, failed = passed + (not found), failed + bool(found)
                print(f"{family.__name__}, draft {draft}: {'; '.join(found) or 'vLLM takes every tensor'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
