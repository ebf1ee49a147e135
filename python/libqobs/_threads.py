# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Threads for calls into the C library. They are Python's and run C code without the GIL."""
from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from . import _library as c
from ._arguments import shown


class Threads:
    """An executor of the C library. Each call starts its threads, so nothing is left to inherit by a fork. Handlers of
    signals wait meanwhile (_signals): what they raise would end a task, and C code takes it for done.

    failure: what the user's function has raised, or the handler of a signal; the call ends then and raises it."""

    def __init__(self, count: int | None):
        self.count = len(os.sched_getaffinity(0)) if count is None else count
        if not isinstance(self.count, int) or isinstance(self.count, bool) or not 1 <= self.count <= 4096:
            raise c.InvalidArgumentError(f"threads: is {shown(count)}, allowed are numbers from 1 to 4096 and None")
        self.failure: BaseException | None = None
        self._function = c.CALLBACKS["parallel_for"](self._parallel_for)
        self._executor = c.Executor(ctypes.sizeof(c.Executor), self.count, self._function, None)
        self._runtime = c.Runtime(ctypes.sizeof(c.Runtime), None, ctypes.addressof(self._executor))
        self.address = ctypes.addressof(self._runtime) if self.count > 1 else None

    def _parallel_for(self, context: Any, task: Any, argument: Any, count: int) -> None:
        numbers, lock = iter(range(count)), threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    i = next(numbers, None)
                if i is None:
                    return
                task(argument, i)

        threads: list[threading.Thread] = []
        try:
            for _ in range(min(self.count, count) - 1):
                thread = threading.Thread(target=work, daemon=True)
                thread.start()
                threads.append(thread)
        except (RuntimeError, MemoryError):  # as under a limit of processes: those that run take all tasks
            pass
        work()
        for thread in threads:
            thread.join()


_shared: dict[int, Threads] = {1: Threads(1)}  # never removed: observers keep their addresses
_count = 1
_change = threading.Lock()  # the number and the address change together


def set_threads(count: int | None) -> int:
    """Sets the number of threads of each call from now on, and returns the number before; 1 at first. None: one for
    each processor. Observers keep the number they were made with. Results do not depend on it.

    Many calls at the same time, such as one a layer, use processors better than many threads in one call. quantize and
    audit have threads of their own. Errors: InvalidArgumentError."""
    global _count
    threads = Threads(count)
    with _change:
        before, _count = _count, threads.count
        c.several = c.several or _count > 1
        c.runtime = _shared.setdefault(_count, threads).address
    return before
