# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""A plugin of pytest: `pytest -p libqobs.pytest --qobs` runs a test suite of a framework with the drop-ins."""
from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    """The options --qobs and --qobs-strict."""
    group = parser.getgroup("qobs")
    group.addoption("--qobs", action="store_true", help="run with the drop-ins of qobs")
    group.addoption("--qobs-strict", action="store_true", help="the same; a call that fails in qobs raises")


def _on(config: Any) -> bool:
    return bool(config.getoption("--qobs") or config.getoption("--qobs-strict"))


def pytest_configure(config: Any) -> None:
    """Installs the drop-ins of frameworks as they are imported. Small tensors are served, too: suites have few
    others."""
    if _on(config):
        from ._dropin_torch import serve_small
        serve_small()
        from .dropin import install
        install(strict=config.getoption("--qobs-strict"))


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """Prints how many calls were served."""
    if _on(config):
        from .dropin import report
        terminalreporter.section("qobs: calls of the drop-ins")
        terminalreporter.write_line(report())
