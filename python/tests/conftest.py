# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
passed = failed = 0


@pytest.fixture(scope="session")
def root():
    return ROOT


def pytest_runtest_logreport(report):
    global passed, failed
    if report.failed:
        failed += 1
    elif report.when == "call" and report.passed:
        passed += 1


def pytest_collectreport(report):
    global failed
    failed += report.failed


def pytest_unconfigure():
    """The last line that scripts/test.sh reads."""
    print(f"\n{passed} passed, {failed} failed")
