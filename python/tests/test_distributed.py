# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Observers of several processes against one process that saw everything."""
import subprocess
import sys

import numpy as np
import pytest
import libqobs as qobs
from libqobs import distributed

PRESETS = ["llmc.static_minmax base_name=input num_bits=8 type=float strategy=tensor", "torch.MinMaxObserver",
           "torch.HistogramObserver"]
WORKER = """
import sys, torch, torch.distributed as dist, libqobs as qobs, numpy as np
from libqobs import distributed
rank, address, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
observers = [qobs.Observer(p) for p in sys.argv[4:]]
data = np.random.default_rng(rank).standard_normal((4, 64, 32)).astype(np.float32)
for o in observers[:-1] if rank else observers:  # the last observer of rank 1 sees nothing
    for batch in data:
        o.observe(torch.from_numpy(batch))
distributed.merge(observers)
open(out, "wb").write(distributed.pack(observers))
dist.destroy_process_group()
"""


def observed(seeds, preset):
    observer = qobs.Observer(preset)
    for seed in seeds:
        for batch in np.random.default_rng(seed).standard_normal((4, 64, 32)).astype(np.float32):
            observer.observe(batch)
    return observer


def test_packed_states():
    ranks = [[observed([seed], p) for p in PRESETS] for seed in (0, 1)]
    merged = [qobs.Observer(p) for p in PRESETS]
    distributed.merge_packed(merged, [distributed.pack(r) for r in ranks])
    for preset, mine, first, second in zip(PRESETS, merged, *ranks):
        first.merge(second)
        assert mine.save() == first.save(), preset
    assert merged[0].scale == observed([0, 1], PRESETS[0]).scale


def test_importance_merges():
    """Observers that have seen the inputs of a weight, but not the weight."""
    def seen(seeds):
        observer = qobs.Observer("llmc.imatrix_mse base_name=weight")
        for seed in seeds:
            observer.observe_importance(np.random.default_rng(seed).standard_normal((7, 32)).astype(np.float32))
        return observer
    merged = [qobs.Observer("llmc.imatrix_mse base_name=weight")]
    distributed.merge_packed(merged, [distributed.pack([seen([0])]),
                             distributed.pack([seen([])]), distributed.pack([seen([1, 2])])])
    assert merged[0].read("imatrix_count").item() == 21
    np.testing.assert_allclose(merged[0].read("imatrix_sum"), seen([0, 1, 2]).read("imatrix_sum"), rtol=1e-6)


def test_other_numbers_of_observers():
    with pytest.raises(ValueError, match="2 observers"):
        distributed.merge_packed([qobs.Observer(PRESETS[0])], [distributed.pack([observed([0], PRESETS[0])] * 2)])


def test_two_processes(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "worker.py").write_text(WORKER)
    runs = [subprocess.Popen([sys.executable, str(tmp_path / "worker.py"), str(rank), f"file://{tmp_path}/rendezvous",
                              str(tmp_path / f"rank-{rank}"), *PRESETS]) for rank in (0, 1)]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    first, second = [(tmp_path / f"rank-{rank}").read_bytes() for rank in (0, 1)]
    assert first == second
    merged = distributed.unpack(first)
    expected = [observed([0], p) for p in PRESETS]
    for mine, other in zip(expected[:-1], (observed([1], p) for p in PRESETS)):
        mine.merge(other)
    assert [o.save() for o in merged] == [o.save() for o in expected]
