# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Signals while C code calls Python. Python runs their handlers as soon as it runs any code in the main thread. In a
function that ctypes calls, what a handler raises there is lost, and so is what the function should have done."""
from __future__ import annotations

import signal
import threading
from typing import Any

import _signal  # the functions of signal without conversions to enumerations, which take 40 times as long

_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class Held:
    """While it is entered in the main thread, handlers of signals wait. They run at the end, or when `deliver` is
    called, and raise there what they raise: KeyboardInterrupt for Ctrl-C."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._pending: list[tuple[int, Any]] = []

    def __enter__(self) -> Held:
        if threading.current_thread() is not threading.main_thread():
            return self
        found = {n: _signal.getsignal(n) for n in _SIGNALS}
        self._handlers = {n: handler for n, handler in found.items() if callable(handler)}
        try:
            for n in self._handlers:
                _signal.signal(n, self._keep)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(self, *failure: Any) -> None:
        self._restore()
        self.deliver()

    def deliver(self) -> None:
        """Runs the handlers of the signals that have come."""
        while self._pending:
            number, frame = self._pending.pop(0)
            self._handlers[number](number, frame)

    def _keep(self, number: int, frame: Any) -> None:
        self._pending.append((number, frame))

    def _restore(self) -> None:
        raised: BaseException | None = None
        while True:  # a handler that is back may raise
            try:
                for n, handler in self._handlers.items():
                    _signal.signal(n, handler)
                break
            except BaseException as failure:
                raised = failure
        if raised is not None:
            raise raised
