# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Quantized weights of other projects for kl.py: GPTQ of llm-compressor by its own oneshot, Qronos and GPTQ of brevitas
by the functions of its program for language models, and scales of AutoRound without training, run as their users run
them. They see the model and the tokens that qobs sees.

Needs transformers and datasets, and llmcompressor, brevitas or auto-round: `--only '^GPTQ'`, `--only brevitas`,
`--only AutoRound`. brevitas imports unfoldNd, which it calls for convolutions alone; where it cannot be installed, an
empty module of that name with UnfoldNd and UnfoldTransposeNd does.
"""
import functools
import os
import re


def llama(model, folder):
    """The model of kl.py as one of transformers in float32, loaded from a folder that receives it."""
    from transformers import LlamaConfig, LlamaForCausalLM
    tensors = model.weights
    gate = tensors["model.layers.0.mlp.gate_proj.weight"]
    config = LlamaConfig(hidden_size=model.hidden, intermediate_size=gate.shape[0], num_hidden_layers=model.layers,
                         num_attention_heads=model.heads, num_key_value_heads=model.kv_heads,
                         vocab_size=model.vocabulary, rms_norm_eps=model.eps, max_position_embeddings=2048,
                         rope_parameters={"rope_type": "default", "rope_theta": model.theta},
                         tie_word_embeddings="lm_head.weight" not in tensors)
    made = LlamaForCausalLM(config)
    missing = made.load_state_dict(tensors, strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}, missing
    made.save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder, dtype="float32")


def tokenizer():
    """It is only asked for padding."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    words = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", pad_token="a")


def is_target(name, chosen):
    return re.fullmatch(rf"model\.layers\.({chosen})\..*_proj", name) is not None


def weights_of(made, model, chosen):
    """The numbers of the quantized weights, beside the others."""
    found = {k: v.detach().float() for k, v in made.state_dict().items()}
    return {k: found[k] if is_target(k.removesuffix(".weight"), chosen) else w for k, w in model.weights.items()}


def gptq(model, folder, calibration, chosen, form, group, observer=None):
    """form: a row of kl.py's FORMATS. The pipeline is oneshot's own, as are activation order and dampening; observer:
    None leaves the preset's."""
    from compressed_tensors.quantization import preset_name_to_scheme
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    _, scheme, bits, _ = form
    target = preset_name_to_scheme(scheme, [rf"re:model\.layers\.({chosen})\..*_proj$"])
    if bits:
        target.weights.num_bits, target.weights.group_size = bits, group
    if observer:
        target.weights.observer = observer
    made = llama(model, os.path.join(folder, "model"))
    rows = calibration.tolist()
    data = Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]})
    recipe = GPTQModifier(config_groups={"group_0": target}, ignore=["lm_head"])
    oneshot(model=made, processor=tokenizer(), dataset=data, recipe=recipe, num_calibration_samples=len(rows),
            max_seq_length=calibration.shape[1])
    return weights_of(made, model, chosen)


def gptq_mse(*arguments):
    return gptq(*arguments, observer="memoryless_mse")


def auto_round(model, folder, calibration, chosen, form, group, neuqi=False):
    """iters=0: nothing is trained. Scales are searched under E[x^2] of the inputs; those of asymmetric integers are
    only if neuqi. The weights come back in bfloat16."""
    os.environ["AR_WORK_SPACE"] = os.path.join(folder, "work")  # else in the current directory
    from auto_round import AutoRound
    from torch.utils.data import DataLoader
    name, _, bits, _ = form
    made = llama(model, os.path.join(folder, "model"))
    full = {"bits": 16, "act_bits": 16}
    others = {n: full for n, m in made.named_modules() if n.endswith("_proj") and not is_target(n, chosen)}
    scheme = {"bits": bits or 4, "group_size": group if bits else 16, "sym": "asym" not in name,
              "data_type": "int" if bits else "nv_fp", "act_bits": 16}
    rounding = AutoRound(made, tokenizer=tokenizer(), scheme=scheme, iters=0, layer_config=others,
                         dataset=DataLoader(calibration, batch_size=8), seqlen=calibration.shape[1],
                         nsamples=len(calibration), device_map="cpu", enable_torch_compile=False,
                         **({"enable_neuqi": True} if neuqi else {}))
    return weights_of(rounding.quantize()[0], model, chosen)


def auto_round_neuqi(*arguments):
    return auto_round(*arguments, neuqi=True)


def brevitas(algorithm, model, folder, calibration, chosen, form, group, scales="stats", **options):
    """algorithm: a function of brevitas' module gpxq, with options. scales: its --weight-param-method. Activation order
    is on, as in the functions' defaults, everything else as in its program's."""
    import torch
    from brevitas.graph.quantize import layerwise_quantize
    from brevitas_examples.common.generative.quantize import generate_quant_maps, generate_quantizers
    from brevitas_examples.llm.llm_quant import gpxq
    name, _, bits, _ = form
    asymmetric = "asym" in name
    made = llama(model, os.path.join(folder, "model"))
    quantizers = generate_quantizers(bits, scales, "float_scale", "asym" if asymmetric else "sym", "per_group", group,
                                     asymmetric, input_scale_precision="float_scale", quant_attn_mode="sdpa")
    maps = generate_quant_maps(**quantizers, dtype=torch.float32, device="cpu", quantize_embedding=False)
    others = [n for n, m in made.named_modules() if isinstance(m, torch.nn.Linear) and not is_target(n, chosen)]
    made = layerwise_quantize(made, compute_layer_map=maps, name_blacklist=others).eval()
    made.config.use_cache = False
    batches = [{"input_ids": rows} for rows in calibration.split(max(1, 512 // calibration.shape[1]))]
    made(**batches[0])  # scales become parameters
    getattr(gpxq, algorithm)(made, batches, **options)
    found = {n: m.quant_weight().value.detach() for n, m in made.named_modules() if is_target(n, chosen)}
    return {k: found.get(k.removesuffix(".weight"), w) for k, w in model.weights.items()}


# Name, function, which formats it has
METHODS = [("GPTQ", gptq, lambda form: form[0] != "MXFP4"),
           ("GPTQ, mse", gptq_mse, lambda form: form[2] != 0),
           ("brevitas, Qronos", functools.partial(brevitas, "apply_qronos"), lambda form: form[2] != 0),
           ("brevitas, Qronos, mse", functools.partial(brevitas, "apply_qronos", scales="mse"),
            lambda form: form[2] != 0),
           ("brevitas, Qronos, mse, alpha .001",  # that of its configurations for the paper
            functools.partial(brevitas, "apply_qronos", scales="mse", alpha=1e-3), lambda form: form[2] != 0),
           ("brevitas, GPTQ, mse", functools.partial(brevitas, "apply_gptq", scales="mse"), lambda form: form[2] != 0),
           ("AutoRound, iters=0", auto_round, lambda form: form[0] != "MXFP4"),
           ("AutoRound, iters=0, NeUQI", auto_round_neuqi, lambda form: "asym" in form[0])]
