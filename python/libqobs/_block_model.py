# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""A model of transformers that is never whole in memory: parameters are on the meta device until they are loaded, by
the loading code of transformers, from the files."""
from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from . import _library as c

OUTSIDE = -1  # in place of the number of a block: all that is in none
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}


def first_line(failure: BaseException) -> str:
    return (str(failure).strip().splitlines() or [type(failure).__name__])[0]


class BlockModel:
    """The model of a directory. blocks: the layers of its longest stack, in their order; names: theirs. load and drop
    bring and remove parameters."""

    def __init__(self, directory: str, options: Mapping[str, Any]):
        self.directory = directory
        self.model, self._files, self._settings = _on_meta(directory, options)
        self.class_name = type(self.model).__name__
        self.names, self.blocks = _stack(self.model)
        self._check_sharing()
        self._keys = self._places()
        self._meta: dict[str, Any] = {}

    def files(self) -> list[str]:
        """The files of its parameters, and its configuration."""
        config = os.path.join(self.directory, "config.json")
        return [*self._files, *([config] if os.path.exists(config) else [])]

    def dtype_in_files(self, name: str) -> Any:
        """The dtype of a tensor in the files, or of one in the innermost module of its name that has some."""
        inside = name
        while inside and inside not in self._dtypes:
            inside = inside.rpartition(".")[0]
        if inside:
            return getattr(sys.modules["torch"], _DTYPES[self._dtypes[inside]])
        raise c.InvalidArgumentError(f"model_dir: {self.directory}: its files lack {name}")

    def bytes_a_token(self) -> int:
        """Inputs and outputs of the matrices of the largest block."""
        def of(block: Any) -> int:
            return sum(sum(p.shape[-2:]) * p.element_size() for p in block.parameters() if p.ndim > 1)
        return max(map(of, self.blocks))

    def place(self, name: str) -> int:
        """The block that a module, parameter or buffer of that name belongs to, or OUTSIDE."""
        for i, block in enumerate(self.names):
            if name == block or name.startswith(f"{block}."):
                return i
        return OUTSIDE

    def load(self, place: int) -> None:
        """Brings the parameters of a block, or of all that is in none. Errors: InvalidArgumentError."""
        wanted = self._keys.get(place, {})
        with contextlib.ExitStack() as files, _quiet():
            slices: dict[str, Any] = {}
            for path, keys in wanted.items():
                file = files.enter_context(_opened(path))
                slices |= {key: file.get_slice(key) for key in keys}
            parameters = self._parameters(place)
            if place != OUTSIDE:
                self._meta = dict(parameters)
            try:
                type(self.model)._load_pretrained_model(self.model, slices, self._files, self._settings)
            except (OSError, RuntimeError, ValueError) as failure:
                raise c.InvalidArgumentError(f"model_dir: {self.directory}: transformers cannot load it: "
                                             f"{first_line(failure)}") from None
        self.model.tie_weights(missing_keys=set(self._missing), recompute_mapping=False)
        self._make_buffers(place)
        lost = [name for name, p in self._parameters(place).items() if p.is_meta] if place != OUTSIDE else []
        if lost:
            raise c.InvalidArgumentError(f"model_dir: {self.directory}: its files lack {', '.join(sorted(lost)[:3])} "
                                         f"of {self.class_name}, which transformers would fill with random numbers")

    def drop(self) -> None:
        """Removes the parameters of the block that was loaded last."""
        for name, parameter in self._meta.items():
            owner, _, last = name.rpartition(".")
            setattr(self.model.get_submodule(owner), last, parameter)
        self._meta = {}

    def _parameters(self, place: int) -> dict[str, Any]:
        return {name: p for name, p in self.model.named_parameters() if self.place(name) == place}

    def _places(self) -> dict[int, dict[str, list[str]]]:
        """Place -> file -> the tensors in it that transformers makes the place's parameters of."""
        from transformers.core_model_loading import rename_source_key
        mapping = self._settings.weight_mapping or []
        converters = [entry for entry in mapping if hasattr(entry, "operations")]
        renamings = [entry for entry in mapping if not hasattr(entry, "operations")]
        state, prefix = self.model.state_dict(), self.model.base_model_prefix
        self._missing, self._dtypes = set(state), dict[str, str]()
        found: dict[int, dict[str, list[str]]] = {}
        for path in self._files:
            with _opened(path) as file:
                for key in file.keys():
                    self._add_dtype(key, file.get_slice(key).get_dtype())
                    name, _ = rename_source_key(key, renamings, converters, prefix, state)
                    if name not in state:
                        name, _ = rename_source_key(key, [], [], prefix, state)
                    found.setdefault(self.place(name), {}).setdefault(path, []).append(key)
                    self._missing.discard(name)
        return found

    def _add_dtype(self, key: str, dtype: str) -> None:
        """Notes the dtype of a tensor for it, and for the modules around it that have none yet."""
        self._dtypes[key] = dtype
        while key and dtype in _DTYPES:
            self._dtypes.setdefault(key, dtype)
            key = key.rpartition(".")[0]

    def _make_buffers(self, place: int) -> None:
        """Fills buffers that no file has, as transformers does after loading."""
        torch = sys.modules["torch"]
        found = False
        for name, module in self.model.named_modules():
            empty = [k for k, b in module._buffers.items() if b is not None and b.is_meta]
            if not empty or self.place(name) != place:
                continue
            for k in empty:
                module._buffers[k] = torch.empty_like(module._buffers[k], device="cpu")
            module._is_hf_initialized, found = False, True
        if found:
            self.model.initialize_weights()

    def _check_sharing(self) -> None:
        """Errors: UnsupportedError if two blocks, or a block and the rest, have a parameter in common."""
        places: dict[int, str] = {}
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            first = places.setdefault(id(parameter), name)
            if self.place(first) != self.place(name):
                raise self.refused(f"{first} and {name} are one parameter")

    def refused(self, reason: str) -> c.UnsupportedError:
        """The error of a model that cannot run block by block."""
        return c.UnsupportedError(f"model_dir: {self.directory}: {self.class_name} cannot run block by block: {reason}"
                                  "; calibration() takes it in memory")


def _on_meta(directory: str, options: Mapping[str, Any]) -> tuple[Any, list[str], Any]:
    """The model without data, the files of its parameters, and how transformers loads them."""
    cls, seen = _class_of(directory), []
    loader = cls._load_pretrained_model

    def load(model: Any, state: Any, files: Any, settings: Any, *more: Any, **named: Any) -> Any:
        seen.append((files, settings))
        return loader(model, state, files, settings, *more, **named)

    own = "_load_pretrained_model" in cls.__dict__
    cls._load_pretrained_model = staticmethod(load)
    try:
        with _quiet():
            model = cls.from_pretrained(directory, **{"dtype": "auto", **options}, device_map="meta")
    except Exception as failure:  # also those of safetensors
        raise c.InvalidArgumentError(f"model_dir: {directory}: transformers cannot load it: "
                                     f"{first_line(failure)}") from None
    finally:
        if own:
            cls._load_pretrained_model = staticmethod(loader)
        else:
            del cls._load_pretrained_model
    files, settings = seen[-1]
    if settings.hf_quantizer is not None:
        raise c.UnsupportedError(f"model_dir: {directory}: is quantized already; calibrate the model before")
    if not files or not all(str(file).endswith(".safetensors") for file in files):
        raise c.UnsupportedError(f"model_dir: {directory}: has no safetensors files; save_pretrained writes them")
    return model.eval(), [str(file) for file in files], dataclasses.replace(settings, device_map=None)


def _class_of(directory: str) -> Any:
    """The class that the config names, or that of causal language models."""
    try:
        import torch  # noqa: F401
        import transformers
        from transformers.core_model_loading import rename_source_key  # noqa: F401
    except ImportError as failure:
        raise c.UnsupportedError(f"calibrate_blocks: needs torch and transformers 5: {failure}") from None
    try:
        config = transformers.AutoConfig.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError) as failure:
        raise c.InvalidArgumentError(f"model_dir: {directory}: transformers finds no model there: "
                                     f"{first_line(failure)}") from None
    name = (getattr(config, "architectures", None) or [""])[0]
    cls = getattr(transformers, name, None) if name else None
    if cls is None:
        cls = transformers.AutoModelForCausalLM._model_mapping.get(type(config), None)
    if cls is None:
        raise c.UnsupportedError(f"model_dir: {directory}: transformers {transformers.__version__} has no class "
                                 f"{name or type(config).__name__!r}")
    if getattr(config, "is_encoder_decoder", False):
        raise c.UnsupportedError(f"model_dir: {directory}: {cls.__name__} cannot run block by block: it has an encoder "
                                 "and a decoder; calibration() takes it in memory")
    return cls


def _stack(model: Any) -> tuple[list[str], list[Any]]:
    """Names and modules of the blocks: the largest list of modules that is in no other, of those that transformers does
    not split if there are such."""
    torch = sys.modules["torch"]
    lists = {name: m for name, m in model.named_modules() if isinstance(m, torch.nn.ModuleList) and len(m) > 0}
    top = {name: m for name, m in lists.items() if not any(name.startswith(f"{other}.") for other in lists)}
    whole = set(getattr(model, "_no_split_modules", None) or ())
    whole |= set(getattr(getattr(model, model.base_model_prefix, model), "_no_split_modules", None) or ())
    of_blocks = {name: m for name, m in top.items() if {type(block).__name__ for block in m} <= whole}
    if not top:
        raise c.UnsupportedError(f"model_dir: {type(model).__name__} cannot run block by block: it has no list of "
                                 "layers; calibration() takes it in memory")
    name, blocks = max((of_blocks or top).items(), key=lambda item: sum(p.numel() for p in item[1].parameters()))
    return [f"{name}.{i}" for i in range(len(blocks))], list(blocks)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """A safetensors file. Errors: InvalidArgumentError."""
    import safetensors
    try:
        file = safetensors.safe_open(path, framework="pt")
    except (OSError, safetensors.SafetensorError) as failure:
        raise c.InvalidArgumentError(f"model_dir: {path}: cannot be read: {first_line(failure)}") from None
    with file as opened:
        yield opened


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No bar of transformers for each block."""
    from transformers.utils import logging
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()
