# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Samples of tokens out of a file of text, for the commands of the package that run a model."""
from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from ._texts import COLUMNS, Unreadable, read_texts


class Wrong(Exception):
    """An error of the command line, in one line."""


class Samples(NamedTuple):
    """form: what the file is; samples: vectors of token numbers of one length."""

    form: str
    samples: list[Any]


def add_sample_options(parser: argparse.ArgumentParser) -> None:
    """Options that samples_of reads, beside model and text."""
    parser.add_argument("--column", help="column of JSON or Parquet with the text (default: the first of "
                        f"{', '.join(COLUMNS)})")
    parser.add_argument("--samples", type=count, default=64, help="number of samples (default 64)")
    parser.add_argument("--length", type=count, default=512, help="tokens of a sample (default 512)")


def count(word: str) -> int:
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"is {word!r}, allowed are numbers from 1")
    return int(word)


def samples_of(options: argparse.Namespace) -> Samples:
    """The samples that options ask for. Errors: Wrong."""
    try:
        found = read_texts(options.text, options.column)
    except Unreadable as failure:
        raise Wrong(f"--text: {options.text}: {failure}") from None
    try:
        import torch  # noqa: F401
        from transformers import AutoTokenizer
    except ImportError as failure:
        raise Wrong(f"needs torch and transformers: {failure}") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(options.model)
    except (OSError, ValueError) as failure:
        said = first_line(failure)
        reason = "" if said.endswith(":") else f" ({said})"  # a list of classes, which the next lines have, says nothing
        raise Wrong(f"{options.model}: transformers finds no tokenizer there{reason}; copy "
                    "tokenizer.json and tokenizer_config.json there, or give token ids in Python: to "
                    "libqobs.record.recording, calibrate_blocks or quantize_blocks") from None
    text = "\n\n".join(_as_text(text, tokenizer) for text in found.texts)
    tokens = tokenizer(text, return_tensors="pt").input_ids
    samples = min(options.samples, tokens.shape[1] // options.length)
    if samples < 1:
        raise Wrong(f"--text: {options.text}: has {tokens.shape[1]} tokens, fewer than one sample of {options.length}")
    return Samples(found.form, list(tokens[0, :samples * options.length].split(options.length)))


def first_line(failure: BaseException) -> str:
    return (str(failure).strip().splitlines() or [type(failure).__name__])[0]


def _as_text(text: Any, tokenizer: Any) -> str:
    """Messages of a conversation by the template of the model."""
    if isinstance(text, str):
        return text
    if all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in text) and tokenizer.chat_template:
        return str(tokenizer.apply_chat_template(text, tokenize=False))
    contents = [m.get("content", m.get("value")) if isinstance(m, dict) else m for m in text]
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) < len(contents):
        raise Wrong("--text: has messages without a text; --column names a column of texts")
    return "\n".join(texts)
