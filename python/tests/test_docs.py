# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
import doctest
import inspect
import json
import re

import pytest
import libqobs as qobs


@pytest.fixture
def tree(root, tmp_path, monkeypatch):
    """A working directory with the examples, as the page has it."""
    (tmp_path / "examples").symlink_to(root / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_page(root, tree):
    """The runs of docs/python.md print what it says."""
    pytest.importorskip("numpy")
    failed, tried = doctest.testfile(str(root / "docs" / "python.md"), module_relative=False,
                                     optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0 and tried >= 16


def test_calibration_of_the_page(root, tree):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    page, names = (root / "docs" / "python.md").read_text(), {}
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(block, "docs/python.md", "exec"), names)
    config = json.loads((tree / "tinylm-FP8" / "config.json").read_text())["quantization_config"]
    assert config["kv_cache_scheme"] and qobs.audit("tinylm-FP8")["findings"] == []
    assert qobs.audit("tinylm-blocks")["findings"] == []


def test_page_of_gguf(root, tmp_path, monkeypatch):
    gguf = pytest.importorskip("gguf")
    monkeypatch.chdir(tmp_path)
    page = {}  # its examples go on from one to the next
    for block in re.findall(r"```python\n(.*?)```", (root / "docs" / "gguf.md").read_text(), re.S):
        exec(compile(block, "docs/gguf.md", "exec"), page)
    (tensor,) = gguf.GGUFReader("out.gguf").tensors
    assert tensor.tensor_type == gguf.GGMLQuantizationType.Q4_K and list(tensor.shape) == [512, 64]


@pytest.mark.parametrize("name", qobs.__all__)
def test_everything_public_is_described(name):
    thing = getattr(qobs, name)
    assert inspect.getdoc(thing) and thing.__module__ == "libqobs"
    for part, method in vars(thing).items() if inspect.isclass(thing) and thing.__bases__ == (object,) else ():
        assert part.startswith("_") or inspect.getdoc(method), part


@pytest.mark.parametrize("name", [n for n in qobs.__all__ if inspect.isfunction(getattr(qobs, n))])
def test_every_function_is_annotated(name):
    signature = inspect.signature(getattr(qobs, name))
    assert signature.return_annotation is not signature.empty
    assert all(p.annotation is not p.empty for p in signature.parameters.values())


def test_every_function_is_on_the_page(root):
    page = (root / "docs" / "python.md").read_text()
    assert [n for n in qobs.__all__ if n not in page and not n[0].isupper()] == []
