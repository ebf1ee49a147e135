# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Makes GGUF files for tests, with the standard library only. PyPI's gguf reads them, too (tests/gguf_judge.py)."""
import struct

U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
PACK = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(kind, v):
    return text(v) if kind == STRING else struct.pack("<" + PACK[kind], v)


def key(name, kind, v):
    """An array: a list."""
    if isinstance(v, list):
        return text(name) + struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(value(kind, x) for x in v)
    return text(name) + struct.pack("<I", kind) + value(kind, v)


def tensor_info(name, kind, shape, offset):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)


def gguf(keys, tensors, version=3, alignment=32):
    """keys: (name, kind, value). tensors: name to (number of the type, shape with columns last, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(key(*k) for k in keys)
    data = b""
    for name, (kind, shape, content) in tensors.items():
        data += bytes(-len(data) % alignment)
        out += tensor_info(name, kind, shape, len(data))
        data += content
    return out + bytes(-len(out) % alignment) + data
