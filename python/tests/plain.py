# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""libqobs in a Python that cannot import numpy, torch or ml_dtypes. Prints which of them were imported nevertheless."""
import sys

sys.modules["numpy"] = sys.modules["torch"] = sys.modules["ml_dtypes"] = None
import array  # noqa: E402

import libqobs as qobs  # noqa: E402

a = memoryview(array.array("f", [1, -2, 3, 4])).cast("B").cast("f", [2, 2])
assert qobs.minmax(a).min[()] == -2 and qobs.minmax(a, (0, 1)).min == a and qobs.minmax(a, 0).max.tolist() == [3 - 2, 4]
o = qobs.Observer("llmc.memoryless_minmax strategy=channel base_name=weight").observe(a)
assert o.scale.shape == (2, 1) and o.scale.format == "f", o.scale
h = qobs.histogram(a, 4)
assert h.counts.tolist() == [1, 0, 1, 2] and list(h.bin_edges) == [-2, -.5, 1, 2.5, 4], h
assert qobs.Observer.load(o.save()).scale == o.scale
q = qobs.qparams_from_tensor(a, "llmc.memoryless_minmax strategy=tensor_group group_size=1 num_bits=4 type=float")
r = qobs.fake_quantize(a, "llmc.memoryless_minmax strategy=tensor_group group_size=1 num_bits=4 type=float", q.scale,
                       global_scale=q.global_scale)
assert r == a, r.tolist()
assert q.scale.format == "f" and len(q.scale.tolist()) == 2, q
print(sorted(m for m in sys.modules if m.startswith(("numpy", "torch", "ml_dtypes")) and sys.modules[m]))
