# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Observers of several processes, merged over torch.distributed."""
from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from ._arguments import several, wrong_kind
from ._observer import Observer, checked


def merge(observers: Iterable[Observer], group: Any = None) -> None:
    """Merges observers over the processes of a group of torch.distributed: after it all ranks hold the same state, that
    of one process that merges them in the order of the ranks.

    observers: the same ones in the same order on every rank. One gather of lengths and one of the states of all
    observers. Ranks without data are skipped; moving averages become the mean of the averages, as in upstream's
    sync_activation_stats. Errors: those of Observer.merge, on every rank."""
    import torch
    import torch.distributed as dist
    observers = checked(observers, "observers")
    mine = pack(observers)
    ranks = dist.get_world_size(group)
    length = torch.tensor([len(mine)], dtype=torch.int64)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(ranks)]
    dist.all_gather(lengths, length, group=group)
    size = max(int(n) for n in lengths)
    padded = torch.zeros(max(size, 1), dtype=torch.uint8)
    padded[:len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8) if mine else padded[:0]
    gathered = [torch.empty_like(padded) for _ in range(ranks)]
    dist.all_gather(gathered, padded, group=group)
    blobs = [ctypes.string_at(g.data_ptr(), int(n)) for g, n in zip(gathered, lengths)]
    merge_packed(observers, blobs)


def pack(observers: Iterable[Observer]) -> bytes:
    """The states of several observers as one text of bytes, for any transport: Ray, MPI, files."""
    states = (o.save() for o in checked(observers, "observers"))
    return b"".join(len(s).to_bytes(8, "little") + s for s in states)


def unpack(packed: bytes) -> list[Observer]:
    """The observers of pack."""
    if not isinstance(packed, (bytes, bytearray, memoryview)):
        raise wrong_kind(packed, "packed", "the bytes of pack")
    observers, at = [], 0
    while at < len(packed):
        size = int.from_bytes(packed[at:at + 8], "little")
        observers.append(Observer.load(packed[at + 8:at + 8 + size]))
        at += 8 + size
    return observers


def merge_packed(observers: Iterable[Observer], packed: Iterable[bytes]) -> None:
    """Gives observers the states that several processes have packed, merged in this order. They replace
    the states of the observers."""
    observers, ranks = checked(observers, "observers"), [unpack(blob) for blob in several(packed, "packed", "bytes")]
    for rank in ranks:
        if len(rank) != len(observers):
            raise ValueError(f"merge: {len(rank)} observers in one process and {len(observers)} in another")
    for observer, states in zip(observers, zip(*ranks)):
        merged = states[0]
        merged.merge(states[1:])
        observer.reset()
        observer.merge(merged)
