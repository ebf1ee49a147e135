# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Rows of architectures by the installed transformers."""
import json
import subprocess
import sys

import pytest

import libqobs as qobs
from libqobs import _checkpoint, _installed

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 128,
         "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 128,
         "tie_word_embeddings": False}


def write(folder, config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    names = ["lm_head"] + [f"model.layers.0.mlp.{n}_proj" for n in ("gate", "up", "down")]
    head = {f"{n}.weight": {"dtype": "BF16", "shape": [128, 128], "data_offsets": [i * 32768, i * 32768 + 32768]}
            for i, n in enumerate(names)}
    text = json.dumps(head).encode()
    data = bytes([0, 63]) * (16384 * len(names))
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


def knows(*names):
    return _checkpoint._lib().knows(*names)


def test_known():
    assert _installed.is_known(knows, LLAMA)
    assert _installed.is_known(knows, {"model_type": "of_nobody", "architectures": ["InternVLChatModel"]})
    assert not _installed.is_known(knows, {"model_type": "of_nobody", "architectures": ["Nobody"]})
    assert not _installed.is_known(knows, {**LLAMA, "text_config": {"model_type": "of_nobody"}})
    for other in ({}, [], {"architectures": 3, "model_type": None}):
        assert _installed.is_known(knows, other)  # an error of the run itself, or of another kind


def test_a_known_model_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("a process was started"))
    before = set(sys.modules)
    report = qobs.quantize(write(tmp_path / "in", LLAMA), tmp_path / "out", "W8A8")
    assert report["knowledge"]["source"] == "table"
    assert "transformers" not in set(sys.modules) - before


def test_installed(tmp_path, monkeypatch):
    """A model that the table does not know is quantized by the rows of the installed transformers."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(_installed, "is_known", lambda *a: False)
    report = qobs.quantize(write(tmp_path / "in", LLAMA), tmp_path / "out", "W8A8")
    assert report["knowledge"]["source"] == "installed"
    assert len(report["layers"]) == 3


def test_program(tmp_path):
    pytest.importorskip("transformers")
    model, out = write(tmp_path / "in", LLAMA), tmp_path / "rows.json"
    command = [sys.executable, "-m", "libqobs.architectures", str(model), "-o", str(out)]
    subprocess.run(command, check=True)
    row, = (r for r in json.loads(out.read_text())["architectures"] if r["types"] == ["llama"])
    assert "router" not in row and all(p.endswith("_proj") for p in row["linear"]), row
    write(tmp_path / "other", {"model_type": "of_nobody"})
    done = subprocess.run([*command[:3], str(tmp_path / "other"), "-o", str(out)], capture_output=True, text=True)
    assert done.returncode == 1 and "builds no class of 'of_nobody'" in done.stderr
