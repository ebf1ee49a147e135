# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Writes tensors of torch to safetensors files, without the package of that name."""
from __future__ import annotations

import ctypes
import json
import os
from typing import Any

_DTYPES = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16", "float8_e4m3fn": "F8_E4M3",
           "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8"}


def write(path: Any, tensors: dict[str, Any]) -> None:
    """Writes the file; it appears when it is complete. Tensors are on the CPU."""
    header, end = {}, 0
    tensors = {name: tensors[name].contiguous() for name in sorted(tensors)}
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[str(tensor.dtype).rpartition(".")[2]], "shape": list(tensor.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = f"{os.fspath(path)}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor in tensors.values():
                file.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise
