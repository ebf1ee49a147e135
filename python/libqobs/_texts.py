# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibration text out of a file: UTF-8 text, JSON lines, JSON or Parquet, also packed by gzip."""
from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from typing import Any, NamedTuple

from ._suggest import nearest

COLUMNS = ("text", "content", "messages", "conversations")
READ = "UTF-8 text, JSON lines, JSON and Parquet are read"

# First bytes of what is something else -> what it is.
_OTHERS = {b"\xff\xfe": "text in UTF-16 or UTF-32; iconv -f UTF-16 -t UTF-8 makes UTF-8 of it",
           b"\xfe\xff": "text in UTF-16; iconv -f UTF-16 -t UTF-8 makes UTF-8 of it",
           b"PK\x03\x04": "a zip archive; unpack it", b"\x28\xb5\x2f\xfd": "packed by zstd; zstd -d unpacks it",
           b"\xfd7zXZ": "packed by xz; xz -d unpacks it", b"BZh": "packed by bzip2; bzip2 -d unpacks it",
           b"ARROW1": "an Arrow file; save it as Parquet or JSON lines", b"%PDF": "a PDF document",
           b"GGUF": "a GGUF model", b"version https://git-lfs": "a Git LFS pointer; git lfs pull fetches the file",
           b"<!DOCTYPE": "a page of HTML", b"<html": "a page of HTML"}


class Unreadable(Exception):
    """Says in one line what a file is, or what is missing in it."""


class Texts(NamedTuple):
    """The texts of a file, or lists of messages; form: what the file is."""

    form: str
    texts: list[Any]


def read_texts(path: Any, column: str | None = None) -> Texts:
    """Reads a file. column: the member of objects, or the column of a table, that is the text; None: the first of
    COLUMNS that is there. Errors: Unreadable."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            raw = file.read()
        if raw.startswith(b"\x1f\x8b"):
            raw, name = gzip.decompress(raw), name.removesuffix(".gz")
    except (OSError, EOFError, zlib.error) as failure:
        raise Unreadable(str(getattr(failure, "strerror", None) or failure)) from None
    for beginning, kind in _OTHERS.items():
        if raw.startswith(beginning):
            raise Unreadable(f"is {kind}")
    if raw.startswith(b"PAR1"):
        return Texts("Parquet", _parquet(raw, column))
    return _of_text(_decoded(raw), os.path.splitext(name)[1].lower(), column)


def _decoded(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise Unreadable(f"is no text in UTF-8: byte {failure.start} is 0x{raw[failure.start]:02x}; {READ}") from None
    if "\0" in text:
        raise Unreadable(f"is no text: it has zero bytes; {READ}")
    if not text.strip():
        raise Unreadable("is empty")
    return text


def _of_text(text: str, ending: str, column: str | None) -> Texts:
    """Text by the ending of its file's name, or by what it looks like."""
    if ending in (".csv", ".tsv"):
        raise Unreadable("is a table; save its column of text as text, JSON lines or Parquet")
    if ending in (".jsonl", ".ndjson") or _is_object(text.lstrip().split("\n", 1)[0]):
        return Texts("JSON lines", _json_lines(text, column))
    if ending == ".json" or _is_json(text):
        return Texts("JSON", _json(text, column))
    if column is not None:
        raise Unreadable(f"is text, which has no column {column!r}")
    return Texts("text", [text])


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _json_lines(text: str, column: str | None) -> list[Any]:
    rows = []
    for i, line in enumerate(text.splitlines()):
        try:
            if line.strip():
                rows.append(json.loads(line))
        except (ValueError, RecursionError):
            raise Unreadable(f"is no JSON lines: line {i + 1} is no JSON") from None
    return _of_rows(rows, column)


def _json(text: str, column: str | None) -> list[Any]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise Unreadable(f"is no JSON: {failure}") from None
    return _of_rows(rows if isinstance(rows, list) else [rows], column)


def _of_rows(rows: list[Any], column: str | None) -> list[Any]:
    """The texts of rows: texts themselves, or objects with one column of text."""
    if all(isinstance(row, str) for row in rows):
        return rows
    names: dict[str, None] = {}
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise Unreadable(f"row {i + 1} is {type(row).__name__}, objects with a text or texts are expected")
        names |= dict.fromkeys(row)
    chosen = _column(list(names), column)
    found = [row[chosen] for row in rows if row.get(chosen)]
    for value in found:
        if not isinstance(value, (str, list)):
            raise Unreadable(f"its column {chosen!r} has {type(value).__name__}, texts are expected")
    if not found:
        raise Unreadable(f"its column {chosen!r} is empty")
    return found


def _column(names: list[str], column: str | None) -> str:
    if column is None:
        for name in COLUMNS:
            if name in names:
                return name
        raise Unreadable(f"has no column {', '.join(COLUMNS)}; --column names one of {', '.join(names[:20])}")
    if column not in names:
        near = nearest(column, names)
        hint = f"; did you mean {near!r}?" if near else ""
        raise Unreadable(f"has no column {column!r}, but {', '.join(names[:20])}{hint}")
    return column


def _parquet(raw: bytes, column: str | None) -> list[Any]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise Unreadable("is Parquet, which needs pyarrow: pip install pyarrow, or save it as JSON lines") from None
    try:
        file = parquet.ParquetFile(io.BytesIO(raw))
        chosen = _column(file.schema_arrow.names, column)
        return _of_rows(file.read([chosen]).to_pylist(), chosen)
    except (OSError, ValueError, NotImplementedError) as failure:  # pyarrow's exceptions are these
        raise Unreadable(f"is Parquet that pyarrow cannot read: {str(failure).splitlines()[0]}") from None
