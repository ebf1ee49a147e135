# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
import doctest
import inspect

import pytest
import qobs


def test_page(root):
    """The runs of docs/python.md print what it says."""
    failed, tried = doctest.testfile(str(root / "docs" / "python.md"), module_relative=False,
                                     optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0 and tried >= 12


@pytest.mark.parametrize("name", qobs.__all__)
def test_everything_public_is_described(name):
    thing = getattr(qobs, name)
    assert inspect.getdoc(thing) and thing.__module__ == "qobs"
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
