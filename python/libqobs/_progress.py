# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""A line on the terminal while a model runs."""
from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TypeVar

_T = TypeVar("_T")
_SOON = 2.0  # seconds without a line
_OFTEN = 0.2  # seconds from line to line


def shown(items: Iterable[_T], label: str, unit: str) -> Iterator[_T]:
    """The items, one by one. If stderr is a terminal, a line says how many have been used; it goes at the end."""
    total = len(items) if isinstance(items, Sized) else None
    begin = last = time.monotonic()
    terminal, visible, done = sys.stderr is not None and sys.stderr.isatty(), False, 0
    try:
        for item in items:
            yield item
            done += 1
            now = time.monotonic()
            if terminal and now - begin > _SOON and now - last > _OFTEN:
                last, visible = now, True
                print(f"\r\x1b[K{line(label, unit, done, total, now - begin)}", end="", file=sys.stderr, flush=True)
    finally:
        if visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Line:
    """A line on the terminal about blocks that see batches; it goes at the end."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._begin = self._last = time.monotonic()
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._first: int | None = None

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *failure: Any) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def show(self, block: int, blocks: int, batch: int, batches: int) -> None:
        """block: its number from 0; batch: how many it has seen."""
        self._first = block if self._first is None else self._first
        now = time.monotonic()
        if self._terminal and now - self._last > _OFTEN:
            self._last = now
            done, total = (block - self._first) * batches + batch, (blocks - self._first) * batches
            name = f"{self._label}: block {min(block + 1, blocks)} of {blocks}"
            text = line(name, "batches", batch, batches, now - self._begin)
            left = (now - self._begin) / done * max(total - done, 0)
            print(f"\r\x1b[K{text.partition(' left')[0].rpartition(',')[0]}, {_minutes(left)} left", end="",
                  file=sys.stderr, flush=True)


def line(label: str, unit: str, done: int, total: int | None, seconds: float) -> str:
    """ "calibration: 3 of 64 batches, 0:12, 4:04 left" """
    of = "" if total is None else f" of {total}"
    left = "" if not total or not done else f", {_minutes(seconds / done * (total - done))} left"
    return f"{label}: {done}{of} {unit}, {_minutes(seconds)}{left}"


def _minutes(seconds: Any) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
