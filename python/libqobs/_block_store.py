# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The directory of a calibration block by block, before its states are complete: what was begun, the states of each
block that is done, and the hidden states after the last one. Whatever moment the process ends at, it can go on."""
from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _library as c

_INDEX = "index.json"
_RUN = "run.json"


class Store:
    """states: the directory that appears at the end; work: the one beside it, with one folder for each rank."""

    def __init__(self, states: str, rank: int):
        self.states, self.work = states, f"{states}.blocks"
        self._own = os.path.join(self.work, f"rank-{rank}")
        self._lock: Any = None

    # The run that was begun

    def open(self, run: Mapping[str, Any]) -> bool:
        """Begins, or goes on with the same run. Returns whether its states are complete. Errors: InvalidArgumentError
        if another run was begun there, FileExistsError, OSError."""
        begun = _read_json(os.path.join(self.states, _RUN))
        if begun is not None:
            _check_same(run, begun, f"{self.states} holds states of", "remove it or choose another directory")
            return True
        if os.path.isdir(self.states) and os.listdir(self.states):
            raise FileExistsError(f"qobs: directory {self.states} is not empty")
        os.makedirs(self._own, exist_ok=True)
        self._take()
        path = os.path.join(self._own, _RUN)
        begun = _read_json(path)
        if begun is None:
            write_json(path, run)
        else:
            _check_same(run, begun, f"{self.work} was begun with", "go on with that, or remove it to begin again")
        return False

    def _take(self) -> None:
        self._lock = open(os.path.join(self._own, "lock"), "w", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise c.InvalidArgumentError(f"states: another process is at work in {self.work}") from None

    def close(self) -> None:
        """Lets other processes go on."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # States of blocks

    def done(self) -> int:
        """Blocks whose states are complete. Errors: InvalidArgumentError if a file of one is not what was written."""
        count = 0
        while os.path.isdir(self.folder_of(count)):
            _checked(self.folder_of(count), "remove that folder and those of later blocks, and run it again")
            count += 1
        return count

    def add_states(self, block: int, states: Iterable[tuple[str, bytes]]) -> None:
        """Writes the states of a block, by the name of the observer."""
        def fill(folder: str) -> Mapping[str, str]:
            names = {}
            for i, (name, state) in enumerate(states):
                names[name] = f"{i}.qobs"
                write(os.path.join(folder, names[name]), state)
            return names
        _complete(self.folder_of(block), fill)

    def add_files(self, block: int, files: Mapping[str, bytes]) -> None:
        """Writes files of a block, by their names."""
        def fill(folder: str) -> Mapping[str, str]:
            for name, data in files.items():
                write(os.path.join(folder, name), data)
            return {}
        _complete(self.folder_of(block), fill)

    def folder_of(self, block: int) -> str:
        return os.path.join(self.work, f"block-{block:05}")

    # Hidden states

    def hidden(self, before: int) -> int:
        """The last block before one after which this process has hidden states; -1: there are none."""
        found = [-1]
        for name in os.listdir(self._own):
            number = name.removeprefix("hidden-")
            if number != name and number.isdigit() and int(number) < before:
                found.append(int(number))
        return max(found)

    def check_hidden(self, block: int) -> None:
        """Errors: InvalidArgumentError if a file is not what was written."""
        if block >= 0:
            _checked(self._hidden_of(block), "remove that folder and run it again: it computes them from the first "
                     "block on, and the states of complete blocks stay")

    def begin_hidden(self, block: int) -> None:
        self._part = f"{self._hidden_of(block)}.part"
        shutil.rmtree(self._part, ignore_errors=True)
        os.mkdir(self._part)
        self._files: dict[str, list[int]] = {}

    def put(self, batch: int, tree: Any) -> None:
        """Writes what a block returns for a batch."""
        buffer = io.BytesIO()
        sys.modules["torch"].save(tree, buffer)
        name = f"{batch:06}.pt"
        raw = buffer.getbuffer()
        write(os.path.join(self._part, name), raw)
        self._files[name] = [len(raw), zlib.crc32(raw)]

    def end_hidden(self, block: int) -> None:
        write_json(os.path.join(self._part, _INDEX), {"files": self._files})
        shutil.rmtree(self._hidden_of(block), ignore_errors=True)
        os.rename(self._part, self._hidden_of(block))

    def get(self, block: int, batch: int) -> Any:
        """What a block has returned for a batch."""
        path = os.path.join(self._hidden_of(block), f"{batch:06}.pt")
        return sys.modules["torch"].load(path, weights_only=True)

    def drop_hidden(self, before: int) -> None:
        """Removes hidden states after earlier blocks."""
        while (block := self.hidden(before)) >= 0:
            shutil.rmtree(self._hidden_of(block))

    def _hidden_of(self, block: int) -> str:
        return os.path.join(self._own, f"hidden-{block:05}")

    # The end

    def publish(self, count: int, names: Iterable[str]) -> None:
        """The states of all blocks become the directory that Calibration.save writes, and run.json beside them. names:
        the order of the observers."""
        there: dict[str, str] = {}
        for block in range(count):
            index = _read_json(os.path.join(self.folder_of(block), _INDEX)) or {}
            there |= {name: os.path.join(self.folder_of(block), file) for name, file in index["names"].items()}
        if not there:
            raise c.NoDataError("calibration: no layer has run")
        part = os.path.join(self.work, "states.part")
        shutil.rmtree(part, ignore_errors=True)
        os.mkdir(part)
        files = {}
        for i, name in enumerate(name for name in names if name in there):
            files[name] = f"{i}.qobs"
            _link(there[name], os.path.join(part, files[name]))
        write_json(os.path.join(part, "states.json"), {"states": files})
        _link(os.path.join(self._own, _RUN), os.path.join(part, _RUN))
        os.rename(part, self.states)

    def remove(self, rank: int) -> None:
        """Removes what this process has left, and the first one everything."""
        self.close()
        shutil.rmtree(self._own if rank else self.work, ignore_errors=True)


def _link(path: str, to: str) -> None:
    try:
        os.link(path, to)
    except OSError:  # a file system without links
        shutil.copyfile(path, to)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """An error of the system inside names the file."""
    try:
        yield
    except OSError as failure:
        if failure.errno is None or failure.filename is not None:
            raise
        raise OSError(failure.errno, failure.strerror, path) from None


def write(path: str, data: Any) -> None:
    """Writes a file. Errors: OSError, with its name."""
    with naming(path), open(path, "wb") as file:
        file.write(data)


def write_json(path: str, value: Any, indent: int = 1) -> None:
    """A file that appears when it is complete. Errors: OSError, with its name."""
    part = f"{path}.part"
    with naming(part), open(part, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=indent)
    os.replace(part, path)


def _read_json(path: str) -> Any:
    """None: there is no such file. Errors: InvalidArgumentError."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as failure:
        raise c.InvalidArgumentError(f"states: {path}: is no JSON any more: {failure}; remove its directory") from None


def _complete(folder: str, fill: Callable[[str], Mapping[str, str]]) -> None:
    """A folder that appears when it is complete, with the sizes and sums of its files."""
    part = f"{folder}.part"
    shutil.rmtree(part, ignore_errors=True)
    os.mkdir(part)
    names = fill(part)
    files = {name: _size_and_sum(os.path.join(part, name)) for name in sorted(os.listdir(part))}
    write_json(os.path.join(part, _INDEX), {"names": names, "files": files})
    os.rename(part, folder)


def _size_and_sum(path: str) -> list[int]:
    total, size = 0, 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            total, size = zlib.crc32(piece, total), size + len(piece)
    return [size, total]


def _checked(folder: str, way_out: str) -> None:
    """Errors: InvalidArgumentError if a file in a complete folder has changed."""
    index = _read_json(os.path.join(folder, _INDEX))
    for name, expected in (index or {"files": {_INDEX: []}})["files"].items():
        path = os.path.join(folder, name)
        found = _size_and_sum(path) if os.path.exists(path) else [0, 0]
        if found != expected:
            other_size = expected and found[0] != expected[0]
            said = f"has {found[0]} bytes and had {expected[0]}" if other_size else "has changed"
            raise c.InvalidArgumentError(f"states: {path}: {said}; {way_out}")


def _check_same(run: Mapping[str, Any], begun: Mapping[str, Any], where: str, way_out: str) -> None:
    for key, value in run.items():
        other = begun.get(key)
        if other != value:
            raise c.InvalidArgumentError(f"{key}: is {_brief(value)}, but {where} {_brief(other)}; {way_out}")


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
