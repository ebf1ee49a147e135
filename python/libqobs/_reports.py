# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The reports of functions on whole checkpoints, as the library writes them in JSON."""
from __future__ import annotations

from typing import Any, TypedDict


class Finding(TypedDict):
    """A fault that the audit has found; module "": of the whole checkpoint."""

    module: str
    finding: str


class LeftOut(TypedDict):
    """A tensor that stays as it is."""

    name: str
    reason: str


class Runtime(TypedDict, total=False):
    """The runtimes of a group of layers. vllm: on which devices; None or "": it is not known to load it. packages:
    those that transformers needs for the dialect."""

    group: str
    vllm: str | None
    vllm_cpu: bool
    transformers: bool
    compressed_tensors: str | None
    packages: str | None


class QuantizedLayer(TypedDict, total=False):
    """A quantized layer; search and rounding are there if they took place. cast: it was in codes that the scheme holds;
    the format that it had, its blocks, and those whose numbers are all the same."""

    name: str
    group: str
    format: str
    bytes_before: int
    bytes_after: int
    relative_error: float | None
    global_scale: float
    search: dict[str, Any]
    rounding: dict[str, Any]
    cast: dict[str, Any]


class QuantizeReport(TypedDict, total=False):
    """The report of quantize and finish. knowledge: the source of the facts about the architecture, and "unknown" if
    there are none. unused: what was given and nothing uses. incomplete: the result lacks something, as warnings say."""

    report_version: int
    model: str
    out: str
    compat: str
    knowledge: dict[str, Any]
    part: int
    parts: int
    bytes_before: int
    bytes_after: int
    activation_scales: int
    dequantized: dict[str, int]
    layers: list[QuantizedLayer]
    left_out: list[LeftOut]
    warnings: list[str]
    unused: list[str]
    incomplete: bool
    runtimes: list[Runtime]
    findings: list[Finding]


class AuditedLayer(TypedDict, total=False):
    """A layer of a quantized checkpoint. Members that compare are there if the audit knows the model, codes_used if the
    checkpoint is no GGUF file."""

    name: str
    format: str
    codes_used: float
    relative_error: float | None
    codes_not_nearest: int


class Mend(TypedDict):
    """The mends in a copy of a checkpoint."""

    module: str
    mend: str


class AuditReport(TypedDict, total=False):
    """The report of audit."""

    report_version: int
    checkpoint: str
    layers: list[AuditedLayer]
    codes_compared: int
    codes_not_nearest: int
    reproduced: bool | None
    reproduced_options: str
    reproduced_why: str
    mended: list[Mend]
    findings: list[Finding]


class CalibratedLayer(TypedDict, total=False):
    """The scales of a weight."""

    module: str
    dtype: str
    shape: list[int]
    scale_shape: list[int]
    smallest_scale: float
    largest_scale: float
    nan: int
    inf: int
    search: dict[str, Any]


class CalibrateReport(TypedDict, total=False):
    """The report of calibrate_checkpoint."""

    report_version: int
    qobs_version: str
    isa: str
    model: str
    output: str
    scheme: str
    preset: str
    inputs: str
    zero_points: bool
    seconds: float
    skipped: int
    layers: list[CalibratedLayer]
    activations: dict[str, Any]
    error_before: float
    error: float
    bytes: int
    missing: int
    warnings: list[str]
    unused: list[str]
    incomplete: bool


class PlannedLayer(TypedDict, total=False):
    """What a scheme costs a layer; scheme: of a mixture."""

    name: str
    scheme: str
    bytes: int
    bits: float
    kl: float | None
    error: float


class PlannedScheme(TypedDict, total=False):
    """What a scheme costs the model."""

    scheme: str
    bytes: int
    bits: float
    kl: float | None
    error: float
    layers: list[PlannedLayer]


class Mixture(TypedDict, total=False):
    """The best choice of a scheme for each layer."""

    bytes: int
    bits: float
    kl: float | None
    error: float
    optimal: bool
    layers: list[PlannedLayer]


class PlanReport(TypedDict, total=False):
    """The report of plan."""

    report_version: int
    model: str
    elements: int
    modules: int
    prediction_limit: float
    seconds: float
    schemes: list[PlannedScheme]
    mixture: Mixture
    warnings: list[str]
    unused: list[str]


class QuantizeBlocksReport(QuantizeReport, total=False):
    """The report of quantize_blocks: that of quantize, and blocks, run, batches, seconds and peak_bytes of
    BlocksReport."""

    blocks: int
    run: int
    batches: int
    seconds: float
    peak_bytes: int


class BlocksReport(TypedDict):
    """The report of calibrate_blocks. run: the blocks that this call ran, what comes after them counted as one.
    peak_bytes: resident memory of the process at most, mapped files included."""

    blocks: int
    run: int
    batches: int
    seconds: float
    peak_bytes: int
    states: str
