# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibration text of python -m libqobs.record: what is read, and one line about what is not."""
import gzip
import io
import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from libqobs import _progress, _samples, record
from libqobs._texts import Unreadable, read_texts

ROWS = [{"id": i, "text": f"hello {i}\nworld é"} for i in range(3)]
TEXTS = [row["text"] for row in ROWS]
LINES = "\n".join(map(json.dumps, ROWS)).encode()
CHATS = [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]
# name of the file, bytes -> form, texts
READ = {
    "text": ("a.txt", b"hello world\n", "text", ["hello world\n"]),
    "text with a mark of UTF-8": ("a.txt", b"\xef\xbb\xbfhello", "text", ["hello"]),
    "text that begins like JSON": ("a.txt", b"[Chapter 1]\n{not JSON}", "text", ["[Chapter 1]\n{not JSON}"]),
    "a number": ("a.txt", b"42", "text", ["42"]),
    "JSON lines": ("a.jsonl", LINES, "JSON lines", TEXTS),
    "JSON lines by content": ("a.txt", b"\n" + LINES + b"\n\n", "JSON lines", TEXTS),
    "JSON lines of texts": ("a.jsonl", b'"a"\n"b"', "JSON lines", ["a", "b"]),
    "JSON": ("a.json", json.dumps(ROWS, indent=1).encode(), "JSON", TEXTS),
    "JSON by content": ("a", json.dumps(TEXTS).encode(), "JSON", TEXTS),
    "content": ("a.json", b'[{"content": "a"}, {"content": ""}, {"content": "b"}]', "JSON", ["a", "b"]),
    "messages": ("a.json", json.dumps([{"messages": CHATS[0]}]).encode(), "JSON", CHATS),
    "gzip of text": ("a.txt.gz", gzip.compress(b"hello"), "text", ["hello"]),
    "gzip of JSON lines": ("a.jsonl.gz", gzip.compress(LINES), "JSON lines", TEXTS),
}
# name of the file, bytes -> words of the error
REFUSED = {
    "UTF-16": ("a.txt", "hello".encode("utf-16"), "UTF-16.*iconv"),
    "UTF-16, other end first": ("a.txt", b"\xfe\xff" + "hello".encode("utf-16-be"), "UTF-16.*iconv"),
    "Latin-1": ("a.txt", "é".encode("latin-1"), "no text in UTF-8: byte 0 is 0xe9"),
    "zero bytes": ("a.txt", b"a\0b", "zero bytes"),
    "empty": ("a.txt", b"", "is empty"),
    "blank": ("a.txt", b" \n\t\n", "is empty"),
    "zip": ("a.zip", b"PK\x03\x04...", "zip archive"),
    "zstd": ("a.jsonl.zst", b"\x28\xb5\x2f\xfd....", "zstd -d"),
    "Arrow": ("a.arrow", b"ARROW1....", "Arrow file"),
    "Git LFS": ("a.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer"),
    "HTML": ("a.txt", b"<!DOCTYPE html>", "HTML"),
    "CSV": ("a.csv", b"id,text\n1,a", "is a table"),
    "cut gzip": ("a.gz", gzip.compress(b"hello" * 99)[:20], "."),
    "JSON lines that are none": ("a.jsonl", b'{"text": "a"}\nhello', "line 2 is no JSON"),
    "JSON that is none": ("a.json", b'[{"text": "a"}', "is no JSON"),
    "no column of text": ("a.jsonl", b'{"id": 1, "body": "a"}', "no column text.*--column names one of id, body"),
    "numbers": ("a.json", b'[{"text": 1}]', "column 'text' has int"),
    "an empty column": ("a.json", b'[{"text": ""}]', "column 'text' is empty"),
    "a list of numbers": ("a.json", b"[1, 2]", "row 1 is int"),
}


def written(folder, name, raw):
    path = folder / name
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("name, raw, form, texts", READ.values(), ids=READ)
def test_read(tmp_path, name, raw, form, texts):
    assert read_texts(written(tmp_path, name, raw)) == (form, texts)


@pytest.mark.parametrize("name, raw, words", REFUSED.values(), ids=REFUSED)
def test_refused_in_one_line(tmp_path, capsys, name, raw, words):
    path = written(tmp_path, name, raw)
    with pytest.raises(Unreadable, match=words):
        read_texts(path)
    with pytest.raises(SystemExit) as end:
        record.main(["model", "--text", str(path), "-o", str(tmp_path / "out")])
    said = capsys.readouterr().err.strip().split("\n")
    assert end.value.code == 2 and f"--text: {path}: " in said[-1] and sum("error:" in s for s in said) == 1
    assert not (tmp_path / "out").exists()


def test_columns(tmp_path):
    path = written(tmp_path, "a.jsonl", b'{"body": "a", "text": "b"}')
    assert read_texts(path, "body").texts == ["a"] and read_texts(path).texts == ["b"]
    with pytest.raises(Unreadable, match="no column 'bodi', but body, text; did you mean 'body'"):
        read_texts(path, "bodi")
    with pytest.raises(Unreadable, match="no column 'text'"):
        read_texts(written(tmp_path, "a.txt", b"hello"), "text")


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet
    raw = io.BytesIO()
    parquet.write_table(pyarrow.table({"id": [1, 2], "text": ["a", "b"]}), raw)
    path = written(tmp_path, "a.parquet", raw.getvalue())
    assert read_texts(path) == ("Parquet", ["a", "b"])
    with pytest.raises(Unreadable, match="no column 'x', but id, text"):
        read_texts(path, "x")
    with pytest.raises(Unreadable, match="column 'id' has int"):
        read_texts(path, "id")
    with pytest.raises(Unreadable, match="Parquet that pyarrow cannot read"):
        read_texts(written(tmp_path, "b.parquet", b"PAR1" + bytes(99) + b"PAR1"))


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unreadable, match="needs pyarrow: pip install pyarrow"):
        read_texts(written(tmp_path, "a.parquet", b"PAR1...PAR1"))


@pytest.mark.parametrize("arguments, words", [
    (["--text", "nowhere"], "nowhere: No such file"), (["--text", "."], "Is a directory"),
    (["--text", "nowhere", "--length", "0"], "allowed are numbers from 1"),
    (["--text", "x", "--samples", "-1"], "--samples"),
    (["--text", "x", "--samples", "many"], "is 'many'"), (["--text", "x", "-o", "FULL"], "FULL is not empty")])
def test_other_mistakes_are_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    os.makedirs("FULL/x")
    with pytest.raises(SystemExit) as end:
        record.main(["model", "-o", "out", *arguments])
    assert end.value.code == 2 and words in capsys.readouterr().err.strip().split("\n")[-1]


def test_a_line_of_progress():
    assert _progress.line("record", "samples", 3, 64, 12.0) == "record: 3 of 64 samples, 0:12, 4:04 left"
    assert _progress.line("record", "samples", 3, None, 75.0) == "record: 3 samples, 1:15"
    code = ("import time; from libqobs import _progress; _progress._SOON = 0\n"
            "for i in _progress.shown(range(4), 'record', 'samples'): time.sleep(.25)\nprint('end')")
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (plain.stdout, plain.stderr) == ("end\n", "")
    screen, terminal = pty.openpty()
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    seen = os.read(screen, 4096).decode()
    os.close(screen)
    assert done.stdout == b"end\n" and "record: 2 of 4 samples, 0:00, 0:00 left" in seen and seen.endswith("\r\x1b[K")


def test_ctrl_c_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_samples, "read_texts", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(SystemExit) as end:
        record.main(["model", "--text", "text", "-o", str(tmp_path / "out")])
    assert end.value.code == 130 and "interrupted" in capsys.readouterr().err
