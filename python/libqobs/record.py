# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Records the activations of a model on disk, for qobs quantize --activations ACTIVATIONS_DIR:

    python -m libqobs.record MODEL_DIR --text FILE -o ACTIVATIONS_DIR [--samples 64] [--length 512] [--kv-cache]

FILE is UTF-8 text, JSON lines, JSON or Parquet (with pyarrow), also packed by gzip; --column says which column. Needs torch and transformers. calibration() needs no disk: prefer it unless the activations themselves are wanted."""
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
from ._texts import COLUMNS, READ, Unreadable, read_texts


def recording(model: Any, directory: Any, *, targets: Iterable[str] | str | None = None,
              ignore: Iterable[str] | str | None = None, kv_cache: bool = False) -> Recording:
    """Writes the inputs of linear layers while a torch model runs, one safetensors file for each call of the model:

        with libqobs.record.recording(model, "activations") as r:
            for batch in batches:
                model(**batch)
        libqobs.quantize("model", "model-FP8", "FP8", activations=r.files)

    directory: a new or empty one. targets, ignore, kv_cache: as of libqobs.calibration with a scheme by name. Tensors are "<module>.input",
    "<attention>.k_states" and "v_states", in their own dtype and shape. A layer that runs twice in a call is recorded
    with its last input. Memory: the activations of one call. Disk: all of them. Errors: InvalidArgumentError,
    FileExistsError, OSError."""
    recorded = Recording(model, directory, ["Linear"] if targets is None else entries(targets, "targets"),
                         ["lm_head"] if ignore is None else entries(ignore, "ignore"), kv_cache)
    given = [("targets", targets), ("ignore", ignore)]
    warn([text for text in recorded.unused if any(text.startswith(name) and value is not None for name, value in given)])
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
    parser.add_argument("--column", help="column of JSON or Parquet with the text (default: the first of "
                        f"{', '.join(COLUMNS)})")
    parser.add_argument("-o", "--out", required=True, help="new or empty directory")
    parser.add_argument("--samples", type=_count, default=64, help="number of samples (default 64)")
    parser.add_argument("--length", type=_count, default=512, help="tokens of a sample (default 512)")
    parser.add_argument("--kv-cache", action="store_true", help="also keys and values of attention")
    options = parser.parse_args(arguments)
    try:
        _run(options)
    except _Wrong as failure:
        parser.error(str(failure))
    except (c.Error, FileExistsError) as failure:
        parser.error(str(failure).removeprefix("qobs: "))
    except KeyboardInterrupt:
        sys.stderr.write(f"{parser.prog}: interrupted; the files that are in {options.out} are complete\n")
        sys.exit(130)


class _Wrong(Exception):
    """An error of the command line, in one line."""


def _count(word: str) -> int:
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"is {word!r}, allowed are numbers from 1")
    return int(word)


def _run(options: argparse.Namespace) -> None:
    _check_empty(options.out)
    try:
        found = read_texts(options.text, options.column)
    except Unreadable as failure:
        raise _Wrong(f"--text: {options.text}: {failure}") from None
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as failure:
        raise _Wrong(f"needs torch and transformers: {failure}") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(options.model)
    except (OSError, ValueError) as failure:
        raise _Wrong(f"{options.model}: transformers finds no tokenizer there ({_first_line(failure)}); copy "
                     "tokenizer.json and tokenizer_config.json there, or run the model on token ids in "
                     "libqobs.record.recording") from None
    text = "\n\n".join(_as_text(text, tokenizer) for text in found.texts)
    tokens = tokenizer(text, return_tensors="pt").input_ids
    count = min(options.samples, tokens.shape[1] // options.length)
    if count < 1:
        raise _Wrong(f"--text: {options.text}: has {tokens.shape[1]} tokens, fewer than one sample of {options.length}")
    try:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype="auto")
    except (OSError, ValueError) as failure:
        raise _Wrong(f"{options.model}: transformers cannot load it: {_first_line(failure)}") from None
    samples = tokens[0, :count * options.length].split(options.length)
    with recording(model, options.out, kv_cache=options.kv_cache) as r, torch.no_grad():
        for sample in shown(samples, "record", "samples"):
            model(input_ids=sample[None], use_cache=False)
    print(f"{len(r.files)} files in {options.out}, from {found.form}")


def _first_line(failure: Exception) -> str:
    return (str(failure).splitlines() or [type(failure).__name__])[0]


def _as_text(text: Any, tokenizer: Any) -> str:
    """Messages of a conversation by the template of the model."""
    if isinstance(text, str):
        return text
    if all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in text) and tokenizer.chat_template:
        return str(tokenizer.apply_chat_template(text, tokenize=False))
    contents = [m.get("content", m.get("value")) if isinstance(m, dict) else m for m in text]
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) < len(contents):
        raise _Wrong("--text: has messages without a text; --column names a column of texts")
    return "\n".join(texts)


if __name__ == "__main__":
    main()
