# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The class of the installed transformers for a checkpoint, and what it makes of the tensors: for libqobs.check."""
from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import torch

from ._quantized import Checkpoint, Unreadable

TOKENS = 24


class Unknown(Exception):
    """The runtime does not know the class: status 3."""


class Built(NamedTuple):
    """What a runtime made of a checkpoint."""

    model: Any
    missing: list[str]  # parameters that no tensor fills
    unexpected: list[str]  # tensors that no parameter takes
    mismatched: list[str]
    failed: dict[str, str]  # parameters that it could not make of their tensors


class Transformers:
    """The installed transformers, and its class for a checkpoint."""

    def __init__(self, checkpoint: Checkpoint):
        try:
            import transformers
        except ImportError:
            raise Unreadable("transformers is not installed: pip install transformers compressed-tensors") from None
        transformers.logging.set_verbosity(50)
        transformers.logging.disable_progress_bar()
        self.checkpoint, self.version = checkpoint, transformers.__version__
        self.said = f"transformers {self.version}"
        names = checkpoint.config.get("architectures") or [""]
        self.cls = getattr(transformers, names[0], None) or self._by_type(transformers)
        if self.cls is None or not hasattr(self.cls, "from_pretrained"):
            raise Unknown(f"{self.said} does not know the class {names[0]!r} of model_type "
                          f"{checkpoint.config.get('model_type')!r}")
        self.name = self.cls.__name__
        method = checkpoint.quantization.get("quant_method")
        if checkpoint.quantization and method != "compressed-tensors":
            raise Unreadable(f"quant_method is {method!r}; compressed-tensors, as qobs writes it, can be checked. "
                             "qobs audit reads the others")

    def _by_type(self, transformers: Any) -> Any:
        from transformers.models.auto import modeling_auto
        kind = self.checkpoint.config.get("model_type")
        for head in ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM"):
            name = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {}).get(kind)
            if name and not self.checkpoint.config.get("architectures"):
                return getattr(transformers, name if isinstance(name, str) else name[0], None)
        return None

    def config(self, plain: bool) -> Any:
        config = self.cls.config_class.from_pretrained(self.checkpoint.folder)
        if plain and hasattr(config, "quantization_config"):
            del config.quantization_config
        return config

    def load(self, device: str, state: dict[str, Any] | None = None) -> Built:
        """state: loads these tensors as a model that is not quantized."""
        where: dict[str, Any] = {"device_map": {"": "meta"}} if device == "meta" else {}
        failed: dict[str, str] = {}

        def note(*_: Any, loading_info: Any, **__: Any) -> None:
            """In place of a report that ends with an exception if a conversion failed."""
            failed.update({str(k): str(v).strip() for k, v in loading_info.conversion_errors.items()})

        with mock.patch("transformers.modeling_utils.log_state_dict_report", note):
            model, info = self.cls.from_pretrained(
                None if state is not None else self.checkpoint.folder, config=self.config(state is not None),
                state_dict=state, dtype=self.checkpoint.dtype, output_loading_info=True, ignore_mismatched_sizes=True,
                **where)
        if device != "meta" and getattr(model, "hf_quantizer", None):
            self._decompress(model)
        missing, unexpected, mismatched = (
            sorted(str(key[0] if isinstance(key, tuple) else key) for key in info[f"{what}_keys"])
            for what in ("missing", "unexpected", "mismatched"))
        return Built(model.eval(), missing, unexpected, mismatched, failed)

    @staticmethod
    def _decompress(model: Any) -> None:
        from compressed_tensors.offload.dispatch import remove_dispatch
        model.hf_quantizer.compressor.decompress_model(model=model)
        remove_dispatch(model)
        for module in model.modules():
            if hasattr(module, "quantization_scheme"):
                module.quantization_enabled = False  # inputs stay as they are

    def built_quantized(self) -> list[str]:
        """Names of the modules that compressed-tensors quantizes by the configuration."""
        from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
        with torch.device("meta"):
            model = self.cls(self.config(True))
        apply_quantization_config(model, QuantizationConfig.model_validate(self.checkpoint.quantization),
                                  run_compressed=False)
        return [n for n, m in model.named_modules() if getattr(m, "quantization_scheme", None) and hasattr(m, "weight")]

    @staticmethod
    def logits(model: Any) -> Any:
        """Of a few tokens, in float32; the model is converted."""
        size = getattr(model.config.get_text_config(), "vocab_size", None) or 100
        ids = (torch.arange(TOKENS).reshape(2, -1) + 3) % size
        more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
        with torch.no_grad():
            return torch.nn.Module.float(model)(input_ids=ids, **more).logits
