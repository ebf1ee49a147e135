# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Parts that the tests of the drop-ins share: runs with and without one, and comparisons of bits."""
import contextlib

import libqobs as qobs


class Served(dict):
    """Calls of the drop-ins within a block, by name of dropin_calls()."""

    def names(self, *kinds):
        return {name for name in self if name.endswith(kinds)}

    def declined(self):
        return self.names(" declined", " failed")


@contextlib.contextmanager
def served(dropin, **options):
    """Installs a drop-in for a block. The value has the calls of the block after it."""
    before, calls = qobs.dropin_calls(), Served()
    dropin.install(strict=True, **options)
    try:
        assert dropin.installed()
        yield calls
    finally:
        dropin.uninstall()
        assert not dropin.installed()
        calls.update({k: n - before.get(k, 0) for k, n in qobs.dropin_calls().items() if n != before.get(k, 0)})


def bits(value):
    """A value of tensors, arrays, lists and dictionaries with the bytes of every tensor: equal if and only if all bits
    are. NaN equals NaN of the same bits."""
    if hasattr(value, "detach"):
        import torch
        plain = value.detach().cpu().contiguous()
        return str(value.dtype), tuple(value.shape), bytes(plain.reshape(-1).view(torch.uint8).numpy())
    if hasattr(value, "tobytes"):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return {k: bits(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(v) for v in value]
    return value


def files(folder):
    """Name -> bytes of every file of a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
