# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Records the activations of a model on disk, for qobs quantize --activations ACTIVATIONS_DIR:

    python -m libqobs.record MODEL_DIR --text FILE -o ACTIVATIONS_DIR [--samples 64] [--length 512] [--kv-cache]

FILE is UTF-8 text, JSON lines, JSON or Parquet (with pyarrow), also packed by gzip; --column says which column. Needs
torch and transformers. calibration() needs no disk: prefer it unless the activations themselves are wanted."""
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any

from . import _library as c
from . import _safetensors
from ._arguments import entries, flag, wrong_kind
from ._checkpoint import warn
from ._hooks import Hooks, attention_modules, linear_modules
from ._progress import shown
from ._samples import Wrong, add_sample_options, first_line, samples_of
from ._texts import READ


def recording(model: Any, directory: Any, *, targets: Iterable[str] | str | None = None,
              ignore: Iterable[str] | str | None = None, kv_cache: bool = False) -> Recording:
    """Writes the inputs of linear layers while a torch model runs, one safetensors file for each call of the model:

        with libqobs.record.recording(model, "activations") as r:
            for batch in batches:
                model(**batch)
        libqobs.quantize("model", "model-FP8", "FP8", activations=r.files)

    directory: a new or empty one. targets, ignore, kv_cache: as of libqobs.calibration with a scheme by name. Tensors
    are "<module>.input", "<attention>.k_states" and "v_states", in their own dtype and shape. A layer that runs twice
    in a call is recorded with its last input. Memory: the activations of one call. Disk: all of them. Errors:
    InvalidArgumentError, FileExistsError, OSError."""
    recorded = Recording(model, directory, ["Linear"] if targets is None else entries(targets, "targets"),
                         ["lm_head"] if ignore is None else entries(ignore, "ignore"), kv_cache)
    given = [("targets", targets), ("ignore", ignore)]
    warn([text
          for text in recorded.unused if any(text.startswith(name) and value is not None for name, value in given)])
    return recorded


def _check_empty(directory: str) -> None:
    if os.path.isdir(directory) and os.listdir(directory):
        raise FileExistsError(f"qobs: directory {directory} is not empty")


class Recording:
    """Files with activations; `files` are their paths in the order of the calls. See recording."""

    def __init__(self, model: Any, directory: Any, targets: list[str], ignore: list[str], kv_cache: bool):
        self.files: list[str] = []
        if not isinstance(directory, (str, os.PathLike)):
            raise wrong_kind(directory, "directory", "a path")
        self._model, self._directory = model, os.fspath(directory)
        chosen = linear_modules(model, [targets], ignore)
        self.unused = chosen.unused
        self._batch: dict[str, Any] = {}
        self._end: Any = None
        attention = attention_modules(model) if flag(kv_cache, "kv_cache") else {}
        self._hooks = Hooks(model, chosen.modules, attention, self._receive)

    def __enter__(self) -> Recording:
        _check_empty(self._directory)
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
    parser = argparse.ArgumentParser(prog="python -m libqobs.record", description="Records activations of a model.")
    parser.add_argument("model", help="directory of a model with its tokenizer, which transformers loads")
    parser.add_argument("--text", required=True, help=f"file of text; the samples are parts of it ({READ})")
    parser.add_argument("-o", "--out", required=True, help="new or empty directory")
    add_sample_options(parser)
    parser.add_argument("--kv-cache", action="store_true", help="also keys and values of attention")
    options = parser.parse_args(arguments)
    try:
        _run(options)
    except Wrong as failure:
        parser.error(str(failure))
    except (c.Error, FileExistsError) as failure:
        parser.error(str(failure).removeprefix("qobs: "))
    except KeyboardInterrupt:
        sys.stderr.write(f"{parser.prog}: interrupted; the files that are in {options.out} are complete\n")
        sys.exit(130)


def _run(options: argparse.Namespace) -> None:
    _check_empty(options.out)
    read = samples_of(options)
    import torch
    from transformers import AutoModelForCausalLM
    try:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype="auto")
    except (OSError, ValueError) as failure:
        raise Wrong(f"{options.model}: transformers cannot load it: {first_line(failure)}") from None
    with recording(model, options.out, kv_cache=options.kv_cache) as r, torch.no_grad():
        for sample in shown(read.samples, "record", "samples"):
            model(input_ids=sample[None], use_cache=False)
    print(f"{len(r.files)} files in {options.out}, from {read.form}")


if __name__ == "__main__":
    main()
