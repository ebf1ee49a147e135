# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The preset schemes of compressed-tensors, as checkpoint/schemes/scheme_presets.c has them."""

# made by docs/scheme_tables.py
# The weights of each preset scheme, as settings of an observer.
WEIGHTS = {
    "W4A16": "num_bits=4 type=int symmetric=true strategy=group group_size=128",
    "W4A16_ASYM": "num_bits=4 type=int symmetric=false strategy=group group_size=128",
    "W8A16": "num_bits=8 type=int symmetric=true strategy=group group_size=128",
    "W8A8": "num_bits=8 type=int symmetric=true strategy=channel",
    "INT8": "num_bits=8 type=int symmetric=true strategy=channel",
    "W8A8_STATIC": "num_bits=8 type=int symmetric=true strategy=channel",
    "W8A8_STATIC_ASYM": "num_bits=8 type=int symmetric=true strategy=channel",
    "FP8": "num_bits=8 type=float symmetric=true strategy=tensor",
    "FP8_DYNAMIC": "num_bits=8 type=float symmetric=true strategy=channel",
    "FP8_BLOCK": "num_bits=8 type=float symmetric=true strategy=block block_structure=[128,128]",
    "NVFP4A16": "num_bits=4 type=float symmetric=true strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn",
    "NVFP4": "num_bits=4 type=float symmetric=true strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn",
    "MXFP4A16": "num_bits=4 type=float symmetric=true strategy=group group_size=32 scale_dtype=uint8",
    "MXFP4": "num_bits=4 type=float symmetric=true strategy=group group_size=32 scale_dtype=uint8",
    "MXFP4XFP8": "num_bits=4 type=float symmetric=true strategy=group group_size=32 scale_dtype=uint8",
    "MXFP6A16": "num_bits=6 type=float symmetric=true strategy=group group_size=32 scale_dtype=uint8",
    "MXFP6A8": "num_bits=6 type=float symmetric=true strategy=group group_size=32 scale_dtype=uint8",
    "MXFP8A16": "num_bits=8 type=float symmetric=true strategy=group group_size=32 scale_dtype=uint8",
    "MXFP8": "num_bits=8 type=float symmetric=true strategy=group group_size=32 scale_dtype=uint8",
    "W4AFP8": "num_bits=4 type=int symmetric=true strategy=group group_size=128",
    "W2A16": "num_bits=2 type=int symmetric=true strategy=group group_size=128",
    "W2A8": "num_bits=2 type=int symmetric=true strategy=group group_size=128",
    "W2A4": "num_bits=2 type=int symmetric=true strategy=group group_size=128",
    "W3A16": "num_bits=3 type=int symmetric=true strategy=group group_size=128",
    "W3A8": "num_bits=3 type=int symmetric=true strategy=group group_size=128",
    "W3A4": "num_bits=3 type=int symmetric=true strategy=group group_size=128",
    "W4A8": "num_bits=4 type=int symmetric=true strategy=group group_size=128",
    "W4A4": "num_bits=4 type=int symmetric=true strategy=group group_size=128",
    "W5A16": "num_bits=5 type=int symmetric=true strategy=group group_size=128",
    "W5A8": "num_bits=5 type=int symmetric=true strategy=group group_size=128",
    "W6A16": "num_bits=6 type=int symmetric=true strategy=group group_size=128",
    "W6A8": "num_bits=6 type=int symmetric=true strategy=group group_size=128",
    "W7A16": "num_bits=7 type=int symmetric=true strategy=group group_size=128",
    "W7A8": "num_bits=7 type=int symmetric=true strategy=group group_size=128",
}

# The inputs of the schemes that store their scales.
INPUTS = {
    "W8A8_STATIC": "num_bits=8 type=int symmetric=true strategy=tensor",
    "W8A8_STATIC_ASYM": "num_bits=8 type=int symmetric=false strategy=tensor",
    "FP8": "num_bits=8 type=float symmetric=true strategy=tensor",
    "NVFP4": "num_bits=4 type=float symmetric=true strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn"
    " dynamic=local",
}

# The devices for whose linear layers vLLM 0.32 has kernels, and those for a model of experts.
DEVICES = {
    "W4A16": ("gpu amx avx512", "gpu amx"),
    "W4A16_ASYM": ("gpu amx avx512", "gpu"),
    "W8A16": ("gpu", "gpu"),
    "W8A8": ("gpu amx avx512 avx2 arm", "gpu amx arm"),
    "INT8": ("gpu amx avx512 avx2 arm", "gpu amx arm"),
    "W8A8_STATIC": ("gpu amx avx512 avx2 arm", ""),
    "W8A8_STATIC_ASYM": ("gpu amx avx512 avx2 arm", ""),
    "FP8": ("gpu", "gpu"),
    "FP8_DYNAMIC": ("gpu amx avx512 avx2 arm", "gpu"),
    "FP8_BLOCK": ("gpu amx", "gpu amx"),
    "NVFP4A16": ("gpu", "gpu"),
    "NVFP4": ("gpu", "gpu"),
    "MXFP4A16": ("gpu", "gpu"),
    "MXFP4": ("gpu", "gpu"),
    "MXFP4XFP8": ("gpu", "gpu"),
    "MXFP6A16": ("", ""),
    "MXFP6A8": ("", ""),
    "MXFP8A16": ("gpu", "gpu"),
    "MXFP8": ("gpu", "gpu"),
    "W4AFP8": ("sm90", "sm90"),
    "W2A16": ("gpu", "gpu"),
    "W2A8": ("gpu", ""),
    "W2A4": ("gpu", ""),
    "W3A16": ("gpu", "gpu"),
    "W3A8": ("gpu", ""),
    "W3A4": ("gpu", ""),
    "W4A8": ("gpu amx avx512", ""),
    "W4A4": ("gpu amx avx512", ""),
    "W5A16": ("gpu", "gpu"),
    "W5A8": ("gpu", ""),
    "W6A16": ("gpu", "gpu"),
    "W6A8": ("gpu", ""),
    "W7A16": ("gpu", "gpu"),
    "W7A8": ("gpu", ""),
}
# end
