# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The files of a quantized model: which tensors a module has, what is wrong with them by the configuration, and the
numbers that they stand for, by the specification of the formats. Needs torch and safetensors."""
from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open


class Fault(NamedTuple):
    """What is wrong with a tensor or module, and what it means."""

    name: str
    kind: str
    message: str


class Unreadable(Exception):
    """A file or argument that cannot be used: status 2."""


# ---- Files -----------------------------------------------------------------------------------------------------------

PART = re.compile(r"(.*)\.(weight(?:_packed|_scale|_zero_point|_global_scale|_shape|_g_idx)?)")
OF_INPUTS = re.compile(r"(.*)\.((?:input|output|[qkv])_(?:scale|zero_point|global_scale))")
DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64,
          "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu, "I32": torch.int32, "I16": torch.int16,
          "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")


def read_json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise Unreadable(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable(f"{path}: an object is expected")
    return value


class Checkpoint:
    """The tensors of a directory by name, with dtype and shape, and its configuration. Numbers are read on demand."""

    def __init__(self, folder: str):
        self.folder, self.faults = folder, list[Fault]()
        self.config = read_json(os.path.join(folder, "config.json"))
        self.quantization: dict[str, Any] = self.config.get("quantization_config") or {}
        self.tensors: dict[str, tuple[str, list[int]]] = {}
        self._files: dict[str, Any] = {}
        for file in self._shards():
            self._open(file)
        self.modules: dict[str, dict[str, str]] = {}  # module -> part -> tensor
        for name in self.tensors:
            match = PART.fullmatch(name)
            if match:
                self.modules.setdefault(match[1], {})[match[2]] = name
        self.quantized = {m for m, parts in self.modules.items() if parts.keys() - {"weight"}
                          or self.tensors[parts["weight"]][0] in ("I8", "U8", "F8_E4M3")}

    def _shards(self) -> list[str]:
        index = os.path.join(self.folder, "model.safetensors.index.json")
        if not os.path.exists(index):
            return ["model.safetensors"]
        self._map: dict[str, str] = read_json(index).get("weight_map", {})
        listed = sorted(set(self._map.values()))
        for file in sorted(set(filter(SHARD.fullmatch, os.listdir(self.folder))) - set(listed)):
            self.faults.append(Fault(file, "index", "the index does not list this file; no runtime reads it"))
        absent = [file for file in listed if not os.path.exists(os.path.join(self.folder, file))]
        self.faults += [Fault(file, "index", "the index lists this file, and it is not there") for file in absent]
        return [file for file in listed if file not in absent]

    def _open(self, file: str) -> None:
        path = os.path.join(self.folder, file)
        try:
            opened = safe_open(path, "pt")
        except (OSError, SafetensorError) as error:
            raise Unreadable(f"{path}: {error}") from None
        for name in opened.keys():
            part = opened.get_slice(name)
            self.tensors[name], self._files[name] = (part.get_dtype(), list(part.get_shape())), opened
        for name, where in getattr(self, "_map", {}).items():
            if where == file and name not in self.tensors:
                self.faults.append(Fault(name, "index", f"the index says that it is in {file}, and it is not"))

    def read(self, name: str) -> Any:
        return self._files[name].get_tensor(name)

    def of_module(self, module: str) -> dict[str, Any]:
        return {part: self.read(name) for part, name in self.modules[module].items()}

    def scheme(self, module: str) -> dict[str, Any]:
        """Format and arguments of a module's weights: of the group that names it, else of one that names classes."""
        groups = list((self.quantization.get("config_groups") or {}).values())
        named = [g for g in groups if any(matches(module, t) for t in g.get("targets") or [])]
        group = (named or [g for g in groups if any(t.isalnum() for t in g.get("targets") or [])] or groups or [{}])[0]
        return {"format": group.get("format") or self.quantization.get("format"), **(group.get("weights") or {})}

    @property
    def dtype(self) -> Any:
        name = self.config.get("dtype") or self.config.get("torch_dtype") or "bfloat16"
        return getattr(torch, str(name).removeprefix("torch."), torch.bfloat16)

    @property
    def elements(self) -> int:
        return sum(math.prod(self.shape_of(m)) for m in self.quantized) + sum(
            math.prod(self.tensors[n][1]) for n in self.plain())

    def plain(self) -> Iterator[str]:
        """The tensors that belong to no quantized module, nor to activations."""
        for name in self.tensors:
            match = PART.fullmatch(name)
            if not (match and match[1] in self.quantized) and not OF_INPUTS.fullmatch(name):
                yield name

    def shape_of(self, module: str) -> list[int]:
        """Rows and columns of a quantized module."""
        parts = self.modules[module]
        if "weight_shape" in parts:
            return [int(n) for n in self.read(parts["weight_shape"]).flatten()]
        shape = list(self.tensors[parts.get("weight_packed") or parts.get("weight") or parts["weight_scale"]][1])
        if "weight_packed" in parts and shape:
            shape[-1] = shape[-1] * 8 // (self.scheme(module).get("num_bits") or 4)
        return shape


def matches(name: str, pattern: str) -> bool:
    return bool(re.match(pattern[3:], name)) if pattern.startswith("re:") else name == pattern


# ---- Quantized modules, by the specification of their formats --------------------------------------------------------

CODES = {"pack-quantized": ("weight_packed", ["I32"]), "int-quantized": ("weight", ["I8"]),
         "float-quantized": ("weight", ["F8_E4M3"]), "naive-quantized": ("weight", ["I8", "F8_E4M3"]),
         "nvfp4-pack-quantized": ("weight_packed", ["U8"]), "mxfp4-pack-quantized": ("weight_packed", ["U8"]),
         "mxfp6-pack-quantized": ("weight_packed", ["U8"]), "mxfp8-quantized": ("weight", ["F8_E4M3"])}
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def scale_dtypes(scheme: Mapping[str, Any]) -> list[str]:
    kinds = {"mx": ["U8", "F8_E8M0"], "nv": ["F8_E4M3"]}
    return kinds.get(str(scheme.get("format"))[:2], ["BF16", "F16", "F32"])


def scale_shape(scheme: Mapping[str, Any], rows: int, columns: int) -> list[int] | None:
    """None: any."""
    strategy, size = scheme.get("strategy"), scheme.get("group_size")
    if strategy == "block":
        height, width = scheme["block_structure"]
        return [-(-rows // height), -(-columns // width)]
    if strategy in ("group", "tensor_group") and size:
        return [rows, -(-columns // size)]
    return {"tensor": [1], "channel": [rows, 1]}.get(str(strategy))


def wanted_parts(scheme: Mapping[str, Any], shape: list[int]) -> dict[str, tuple[list[str], list[int] | None]]:
    """The tensors that a module of rows and columns has beside its codes: dtypes and shape."""
    scales = scale_shape(scheme, *shape)
    wanted: dict[str, tuple[list[str], list[int] | None]] = {"weight_scale": (scale_dtypes(scheme), scales)}
    if scheme.get("strategy") == "tensor_group":
        wanted["weight_global_scale"] = (["F32"], [1])
    if scheme.get("symmetric") is False and scales:
        packed = scheme.get("format") == "pack-quantized"
        if packed:
            scales = [-(-scales[0] * scheme["num_bits"] // 32), *scales[1:]]
        wanted["weight_zero_point"] = (["I32"] if packed else ["I8", "U8", "F8_E4M3"], scales)
    if scheme.get("format") == "pack-quantized":
        wanted["weight_shape"] = (["I64", "I32"], [2])
    return wanted


def module_faults(checkpoint: Checkpoint, module: str) -> Iterator[Fault]:
    """What is wrong with the parts of a quantized module by the configuration."""
    scheme, parts = checkpoint.scheme(module), checkpoint.modules[module]
    if not scheme.get("num_bits"):
        yield Fault(module, "config", "it has codes or scales, and the configuration has no scheme for its weights")
        return
    codes, dtypes = CODES.get(str(scheme["format"]), ("weight", []))
    if codes not in parts:
        yield Fault(module, "codes", f"format {scheme['format']} needs {codes}, and the files lack it")
        return
    dtype, stored = checkpoint.tensors[parts[codes]]
    if dtypes and dtype not in dtypes:
        yield Fault(parts[codes], "dtype", f"is {dtype}; format {scheme['format']} has codes of {' or '.join(dtypes)}")
    if len(stored) != 2 or dtypes == ["I32"] and "weight_shape" not in parts:
        if len(stored) == 2:
            yield Fault(f"{module}.weight_shape", "missing", "no tensor of this name; packed codes cannot be read")
        return
    shape = checkpoint.shape_of(module)
    if dtypes == ["I32"] and stored != (words := [shape[0], -(-shape[1] * scheme["num_bits"] // 32)]):
        yield Fault(parts[codes], "shape", f"is {stored}; {shape[0]} x {shape[1]} codes of {scheme['num_bits']} bits "
                                           f"need {words}")
    for part, (allowed, expected) in wanted_parts(scheme, shape).items():
        if part not in parts:
            yield Fault(f"{module}.{part}", "missing", "the configuration needs it, and the files lack it; codes have "
                                                       "no meaning without it")
            continue
        dtype, found = checkpoint.tensors[parts[part]]
        if dtype not in allowed:
            yield Fault(parts[part], "dtype", f"is {dtype}; {' or '.join(allowed)} is expected")
        if expected is not None and found != expected:
            yield Fault(parts[part], "shape", f"is {found}; the configuration needs {expected}")


def unpack(words: Any, bits: int, columns: int) -> Any:
    """Codes in words of 32 bits, the lowest first, with their offset taken away. A code may lie in two words."""
    first = torch.arange(columns) * bits
    wide = torch.nn.functional.pad(words.to(torch.int64) & 0xffffffff, (0, 1))
    pairs = wide[..., first // 32] | (wide[..., first // 32 + 1] & (2 ** (bits - 1) - 1)) << 32
    return ((pairs >> first % 32) & (2 ** bits - 1)).float() - 2 ** (bits - 1)


def codes_of(parts: Mapping[str, Any], bits: int) -> Any:
    if "weight_shape" in parts:
        return unpack(parts["weight_packed"], bits, int(parts["weight_shape"].flatten()[1]))
    if "weight_packed" not in parts:
        return parts["weight"].float()
    if bits != 4:
        raise NotImplementedError(f"floats of {bits} bits")
    nibbles = torch.stack([parts["weight_packed"] & 15, parts["weight_packed"] >> 4], -1).flatten(-2).long()
    return torch.tensor(E2M1)[nibbles & 7] * torch.where(nibbles > 7, -1.0, 1.0)


def dequantize(parts: Mapping[str, Any], scheme: Mapping[str, Any]) -> Any:
    """The float32 matrix of a module: of its tensors ("weight_packed", "weight_scale", ...) and the arguments of its
    weights in the configuration."""
    codes, scale = codes_of(parts, scheme["num_bits"]), parts["weight_scale"]
    scale = torch.exp2(scale.view(torch.uint8).float() - 127) if scale.element_size() == 1 and scale.dtype != \
        torch.float8_e4m3fn else scale.float()
    if "weight_global_scale" in parts:
        scale = scale / parts["weight_global_scale"].float()

    def spread(values: Any) -> Any:
        """One value for each code: of groups, channels or blocks."""
        values = values.reshape(values.shape if values.ndim == 2 else (-1, 1))
        if "weight_g_idx" in parts and values.shape[1] > 1:
            return values[:, parts["weight_g_idx"].long()]
        for axis in (0, 1):
            size = (scheme.get("block_structure") or (0, 0))[axis] or (scheme.get("group_size") or 0) * axis
            size = size if size > 0 else -(-codes.shape[axis] // values.shape[axis])
            values = values.repeat_interleave(size, axis) if values.shape[axis] > 1 else values
        return values[:codes.shape[0], :codes.shape[1]]

    if "weight_zero_point" in parts:
        zero = parts["weight_zero_point"]
        if zero.dtype == torch.int32:  # packed along the rows
            zero = unpack(zero.T, scheme["num_bits"], codes.shape[0]).T
        codes = codes - spread(zero.float())
    return codes * spread(scale)


def plain_state(checkpoint: Checkpoint, device: str = "cpu") -> dict[str, Any]:
    """The tensors as of a checkpoint that is not quantized; on the device "meta" their shapes alone."""
    meta, state = device == "meta", {}
    for name in checkpoint.plain():
        kind, shape = checkpoint.tensors[name]
        dtype = torch.int64 if kind.startswith(("I", "U")) else checkpoint.dtype
        state[name] = torch.empty(shape, dtype=dtype, device="meta") if meta else checkpoint.read(name)
    for module in checkpoint.quantized:
        state[f"{module}.weight"] = torch.empty(
            checkpoint.shape_of(module), dtype=checkpoint.dtype, device="meta") if meta else dequantize(
                checkpoint.of_module(module), checkpoint.scheme(module)).to(checkpoint.dtype)
    return state


def distance(a: Any, b: Any) -> float:
    """Relative to b."""
    if a.shape != b.shape:
        return math.inf
    a, b = a.float(), b.float()
    return 0.0 if torch.equal(a, b) else float((a - b).norm() / b.norm().clamp_min(1e-30))
