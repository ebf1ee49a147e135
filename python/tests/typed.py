# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The types of results that callers see. mypy reads this; nothing runs it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libqobs as qobs

if TYPE_CHECKING:
    from typing_extensions import assert_type

    def results(x: Any, observer: qobs.Observer, quantizer: qobs.Quantizer, seen: qobs.Calibration) -> None:
        assert_type(observer.scale, qobs.Array)
        assert_type(observer.results["min_val"], qobs.Array)
        assert_type(observer.qparams().zero_point, "qobs.Array | None")
        assert_type(quantizer(x).codes, qobs.Array)
        assert_type(qobs.minmax(x).min, qobs.Array)
        assert_type(qobs.fake_quantize(x, "llmc.minmax", observer.scale), qobs.Array)
        assert_type(observer.scale.astype("float32"), Any)  # what one framework alone has
        assert_type(seen.quantize("model", "out"), qobs.QuantizeReport)

    def reports() -> None:
        report = qobs.quantize("model", "out", "W4A16")
        assert_type(report["layers"][0]["relative_error"], "float | None")
        assert_type(report["findings"][0]["module"], str)
        assert_type(qobs.audit("out")["layers"][0]["codes_used"], float)
        assert_type(qobs.plan("model", ["W4A16"])["schemes"][0]["kl"], "float | None")
        assert_type(qobs.calibrate_checkpoint("model", "out", "W4A16")["missing"], int)
        report["layrs"]  # type: ignore[typeddict-item]
        qobs.quantize("model", "out", "W4A16", progres=None)  # type: ignore[call-arg]
