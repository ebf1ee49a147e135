# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
import pathlib
import signal
from collections import Counter

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background with it ignored
passed = failed = 0
skipped: Counter = Counter()


@pytest.fixture(scope="session")
def root():
    return ROOT


def pytest_runtest_logreport(report):
    global passed, failed
    if report.failed:
        failed += 1
    elif report.skipped:
        skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
    elif report.when == "call" and report.passed:
        passed += 1


def pytest_collectreport(report):
    global failed
    failed += report.failed
    if report.skipped:
        skipped[f"{report.nodeid}: {report.longrepr[2].removeprefix('Skipped: ')}"] += 1


def pytest_unconfigure():
    """Prints what was skipped, and the last line that scripts/test.sh reads."""
    for reason, times in skipped.items():
        print(f"\nskipped: {times} times: {reason}", end="")
    print(f"\n{passed} passed, {failed} failed")
