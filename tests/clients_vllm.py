# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Runs vLLM on the CPU for clients.py: log probabilities of the whole vocabulary for each directory.

    clients_vllm.py [--device NAME] TOKENS.npy DIR...      writes DIR.vllm.npy, or DIR.vllm.error

--device runs vLLM as it is, with the library and the choices that it makes on such a processor: amx, avx512 (without
AMX) or avx2. It hides what the processor has beyond that. Without it:

vLLM has no kernel for quantized experts on CPUs without AMX. Its own methods create and load their tensors; the experts
are then dequantized here and run by its unquantized method. On CPUs with AMX it rounds the inputs of W4A16 to int8 (its
VLLM_CPU_INT4_W4A8), which costs more than bfloat16: linear layers are dequantized here, too, after its loader.
"""
import argparse
import os
import traceback

# Hidden on each device: functions of torch.cpu that vLLM asks, and limits of the libraries.
HIDDEN = {"amx": ([], {}),
          "avx512": (["_is_amx_tile_supported", "_is_amx_fp16_supported"], {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"})}
HIDDEN["avx2"] = ([*HIDDEN["avx512"][0], "_is_avx512_supported", "_is_avx512_bf16_supported"],
                  {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"})
parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=HIDDEN)
parser.add_argument("tokens")
parser.add_argument("directories", nargs="+")
options = parser.parse_args()
if options.device:
    os.environ.update(HIDDEN[options.device][1])

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind",
                  OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_PLUGINS="",
                  TORCHDYNAMO_DISABLE="1", TORCH_COMPILE_DISABLE="1", VLLM_LOGGING_LEVEL="ERROR")
import numpy as np
import torch


def install_linear():
    from vllm.model_executor.kernels.linear.mixed_precision.cpu import CPUWNA16LinearKernel as Kernel

    def after_loading(self, layer):
        words, scale = (getattr(layer, name).data for name in (self.w_q_name, self.w_s_name))  # rows are outputs
        layer.plain = dequantize(words, scale, self.config.group_size)
    Kernel.process_weights_after_loading = after_loading
    Kernel.apply_weights = lambda self, layer, x, bias=None: torch.nn.functional.linear(x, layer.plain, bias)


def dequantize(words, scale, group_size):
    codes = words.contiguous().view(torch.uint8).reshape(*words.shape[:-1], -1)
    codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).float() - 8
    return (codes * scale.float().repeat_interleave(group_size, -1)).to(torch.bfloat16)


def dequantize_experts(layer, name, method):
    """[experts, rows, columns] of int4 in words of 32 bits, with scales of groups."""
    words, scale = getattr(layer, name + "_weight_packed").data, getattr(layer, name + "_weight_scale").data
    return dequantize(words, scale, method.group_size)


def install_experts():
    from vllm.model_executor.layers.fused_moe import UnquantizedFusedMoEMethod
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
        compressed_tensors_moe_wna16 as wna16)
    wna16.select_wna16_moe_backend = lambda *a, **k: (None, None)

    def after_loading(self, layer):
        for name in ("w13", "w2"):
            weight = dequantize_experts(layer, name, self)
            for old in [n for n, _ in layer.named_parameters(recurse=False) if n.startswith(name + "_weight")]:
                delattr(layer, old)
            layer.register_parameter(name + "_weight", torch.nn.Parameter(weight, requires_grad=False))
        plain = UnquantizedFusedMoEMethod(self.moe)
        plain._setup_kernel(layer, layer.w13_weight, layer.w2_weight)
        self.moe_kernel, self.moe_quant_config, self.plain = plain.moe_kernel, plain.moe_quant_config, plain
    wna16.CompressedTensorsWNA16MoEMethod.process_weights_after_loading = after_loading
    wna16.CompressedTensorsWNA16MoEMethod.supports_eplb = False


def run(directory, tokens):
    from vllm import LLM, SamplingParams
    llm = LLM(model=directory, dtype="bfloat16", enforce_eager=True, max_model_len=128, skip_tokenizer_init=True,
              max_num_seqs=4, max_logprobs=-1, seed=0)
    outputs = llm.generate([{"prompt_token_ids": row.tolist()} for row in tokens],
                           SamplingParams(temperature=0, max_tokens=1, detokenize=False, prompt_logprobs=-1),
                           use_tqdm=False)
    return np.array([[[row[i].logprob for i in range(len(row))] for row in o.prompt_logprobs[1:]] for o in outputs],
                    "f4")


def main():
    tokens = np.load(options.tokens)
    if options.device:
        for name in HIDDEN[options.device][0]:
            setattr(torch.cpu, name, lambda: False)
    else:
        install_experts()
        if torch.cpu._is_amx_tile_supported():
            install_linear()
    for directory in options.directories:
        child = os.fork()
        if child == 0:
            try:
                np.save(directory + ".vllm.npy", run(directory, tokens))
            except BaseException as error:
                with open(directory + ".vllm.error", "w", encoding="utf-8") as file:
                    file.write(f"{type(error).__name__}: {error}\n")
                traceback.print_exc()
            os._exit(0)
        os.waitpid(child, 0)


main()
