# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Records the activations of a model on disk, for qobs quantize --activations ACTIVATIONS_DIR:

    python -m qobs.record MODEL_DIR --text FILE -o ACTIVATIONS_DIR [--samples 64] [--length 512] [--kv-cache]

Needs torch and transformers. calibration() needs no disk: prefer it unless the activations themselves are wanted."""
from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any

from . import _library as c
from . import _safetensors
from ._hooks import Hooks, attention_modules, linear_modules


def recording(model: Any, directory: Any, *, targets: Iterable[str] = ("Linear",), ignore: Iterable[str] = ("lm_head",),
              kv_cache: bool = False) -> Recording:
    """Writes the inputs of linear layers while a torch model runs, one safetensors file for each call of the model:

        with qobs.record.recording(model, "activations") as r:
            for batch in batches:
                model(**batch)
        qobs.quantize("model", "model-FP8", "FP8", activations=r.files)

    directory: a new or empty one. targets, ignore, kv_cache: as of qobs.calibration. Tensors are "<module>.input",
    "<attention>.k_states" and "v_states", in their own dtype and shape. A layer that runs twice in a call is recorded
    with its last input. Memory: the activations of one call. Disk: all of them. Errors: InvalidArgumentError,
    FileExistsError, OSError."""
    return Recording(model, directory, targets, ignore, kv_cache)


class Recording:
    """Files with activations; `files` are their paths in the order of the calls. See recording."""

    def __init__(self, model: Any, directory: Any, targets: Iterable[str], ignore: Iterable[str], kv_cache: bool):
        self.files: list[str] = []
        self._model, self._directory = model, os.fspath(directory)
        self._batch: dict[str, Any] = {}
        self._end: Any = None
        attention = attention_modules(model) if kv_cache else {}
        self._hooks = Hooks(model, linear_modules(model, targets, ignore), attention, self._receive)

    def __enter__(self) -> Recording:
        if os.path.isdir(self._directory) and os.listdir(self._directory):
            raise FileExistsError(f"qobs: directory {self._directory} is not empty")
        os.makedirs(self._directory, exist_ok=True)
        self._hooks.enter()
        self._end = self._model.register_forward_hook(self._write)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._hooks.leave()
        self._end.remove()

    def _receive(self, name: str, x: Any) -> None:
        if not name.endswith(".q_states"):
            self._batch[name] = x.clone()

    def _write(self, module: Any, args: Any, output: Any) -> None:
        batch, self._batch = self._batch, {}
        if not batch:
            raise c.NoDataError("recording: no layer has run")
        path = os.path.join(self._directory, f"{len(self.files):05}.safetensors")
        _safetensors.write(path, batch)
        self.files.append(path)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command. arguments: those of the command line; None: of this process."""
    parser = argparse.ArgumentParser(prog="python -m qobs.record", description="Records activations of a model.")
    parser.add_argument("model", help="directory of a model with its tokenizer, which transformers loads")
    parser.add_argument("--text", required=True, help="text file; the samples are parts of it")
    parser.add_argument("-o", "--out", required=True, help="new or empty directory")
    parser.add_argument("--samples", type=int, default=64, help="number of samples (default 64)")
    parser.add_argument("--length", type=int, default=512, help="tokens of a sample (default 512)")
    parser.add_argument("--kv-cache", action="store_true", help="also keys and values of attention")
    options = parser.parse_args(arguments)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    try:
        tokenizer = AutoTokenizer.from_pretrained(options.model)
    except (OSError, ValueError) as error:
        parser.error(f"{options.model}: transformers finds no tokenizer there ({str(error).splitlines()[0]}); copy tokenizer.json and "
                     "tokenizer_config.json there, or run the model on token ids in qobs.record.recording")
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype="auto")
    with open(options.text, encoding="utf-8") as file:
        tokens = tokenizer(file.read(), return_tensors="pt").input_ids
    count = min(options.samples, tokens.shape[1] // options.length)
    if count < 1:
        parser.error(f"--text: has {tokens.shape[1]} tokens, fewer than one sample of {options.length}")
    with recording(model, options.out, kv_cache=options.kv_cache) as r, torch.no_grad():
        for i in range(count):
            model(input_ids=tokens[:, i * options.length:(i + 1) * options.length], use_cache=False)
    print(f"{len(r.files)} files in {options.out}")


if __name__ == "__main__":
    main()
