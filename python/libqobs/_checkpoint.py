# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Whole checkpoints: quantize, calibrate, plan, finish and audit, by libqobs-checkpoint."""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import byref, c_char_p, c_size_t, c_void_p, sizeof
from typing import Any, NamedTuple

from . import _library as c
from ._arguments import choice, flag, integer, mapping, number, wrong_kind
from ._installed import installed_rows
from ._library import call
from ._reports import AuditReport, CalibrateReport, PlanReport, QuantizeReport
from ._signals import Held
from ._threads import Threads

_COMPAT = {name: c.CONSTANTS["QOBS_COMPAT_" + re.sub(r"\W", "_", name).upper()]
           for name in ("vllm", "llm-compressor", "llm-compressor-0.14", "next")}
_FILL_EXPERTS = {name: c.CONSTANTS["QOBS_FILL_" + name.upper()] for name in ("refuse", "max", "median")}
_DRAFT = {name: c.CONSTANTS["QOBS_DRAFT_" + name.replace("-", "_").upper()]
          for name in ("as-loaded", "keep", "quantize")}
_Report = c.CALLBACKS["progress"]


class Progress(NamedTuple):
    """Progress of a run. stage: "quantize" or "plan", or "fetch" while the file of the name in layer is fetched; bytes of
    the input; layer: the module in work, or done last, None before the first one; share: of the work that is done, 0 to
    1, never less than before; searches: scales or codes are searched, and share counts such layers for more than their
    bytes."""

    stage: str
    bytes_done: int
    bytes_total: int
    layer: str | None
    share: float
    searches: bool


_library = None


def _lib() -> Any:
    """libqobs-checkpoint, loaded when it is first needed."""
    global _library
    if _library is None:
        _library = c.load("libqobs-checkpoint.so", "checkpoint_")
    return _library


# ---- Arguments -------------------------------------------------------------------------------------------------------

def _encoded(value: Any, name: str) -> bytes | None:
    """A path or a text as C reads it; None: NULL."""
    if value is None:
        return None
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise wrong_kind(value, name, "a text or a path")
    raw = os.fsencode(value)
    if b"\0" in raw:
        raise c.InvalidArgumentError(f"{name}: {value!r:.100} has U+0000, texts without it are allowed")
    return raw


def _scheme(value: Any) -> bytes | None:
    if isinstance(value, Mapping):
        raise wrong_kind(value, "scheme", "a text (config takes a dictionary)")
    return _encoded(value, "scheme")


def _needed(value: Any, name: str) -> bytes | None:
    if value is None:
        raise wrong_kind(value, name, "a text or a path")
    return _encoded(value, name)


class _Texts:
    """An array of C strings; None: none."""

    def __init__(self, items: Iterable[Any] | Any | None, name: str):
        if items is None:
            items = []
        elif isinstance(items, (str, bytes, os.PathLike)):
            items = [items]
        elif isinstance(items, Mapping) or not isinstance(items, Iterable):
            raise wrong_kind(items, name, "a list of texts, one text or None")
        texts = [_encoded(item, f"{name}[{i}]") for i, item in enumerate(items)]
        if None in texts:
            raise wrong_kind(None, f"{name}[{texts.index(None)}]", "a text or a path")
        self._array = (c_char_p * max(len(texts), 1))(*texts)
        self.count = len(texts)
        self.address = ctypes.addressof(self._array) if texts else None


def _settings(settings: Any) -> _Texts:
    items = mapping(settings, "settings", "{'group_size': 64}").items()
    return _Texts([_setting(key, value) for key, value in items], "settings")


def _setting(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"{key}={'true' if value else 'false'}"
    if isinstance(value, (list, tuple)):
        return f"{key}=[{','.join(map(str, value))}]"
    if value is not None and not isinstance(value, (str, int, float)) and not hasattr(value, "item"):
        raise wrong_kind(value, f"settings[{key!r}]", "a text, a number, a bool, a list or None")
    return f"{key}={'null' if value is None else value}"


class _Files:
    """The paths of a configuration, which may be a dictionary, and of a recipe, which may be a dictionary or a text of
    several lines. In errors and reports the arguments' names stand in place of files that are made here."""

    def __init__(self, config: Any, recipe: Any):
        self._folder = tempfile.TemporaryDirectory(prefix="qobs-")
        self._made: dict[str, str] = {}
        self.config, self.recipe = self._path_of(config, "config"), self._path_of(recipe, "recipe")

    def _path_of(self, value: Any, name: str) -> bytes | None:
        is_text = name == "recipe" and isinstance(value, str) and "\n" in value
        if not is_text and not isinstance(value, Mapping):
            return _encoded(value, name)
        try:
            text = value if is_text else json.dumps(value)
        except (TypeError, ValueError) as failure:
            raise c.InvalidArgumentError(f"{name}: is no JSON: {failure}") from None
        path = os.path.join(self._folder.name, f"{name}.json")
        self._made[path] = name
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return os.fsencode(path)

    def named(self, text: str) -> str:
        """A text with the names of arguments."""
        for path, name in self._made.items():
            text = text.replace(f"{name}: {path}", name).replace(path, name)
        return text

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: Any, failure: Any, trace: Any) -> None:
        self._folder.cleanup()
        if isinstance(failure, c.InvalidArgumentError) and self._made:
            failure.args = tuple(self.named(text) for text in failure.args)


class _Text:
    """A text that C allocates."""

    def __init__(self) -> None:
        self._pointer = c_void_p()
        self.address = ctypes.addressof(self._pointer)

    def take(self, named: Callable[[str], str] = str) -> Any:
        """The JSON in it, which is freed. named: a function of the text."""
        if not self._pointer.value:
            return {}
        try:
            return json.loads(named(ctypes.string_at(self._pointer.value).decode("utf-8", "surrogateescape")))
        finally:
            _free(self._pointer)


_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [c_void_p], None


class _ProgressCall:
    """Calls the user's function from whatever thread. Its exception, or that of the handler of a signal, stops the run
    and is raised at the end."""

    def __init__(self, function: Callable[[Progress], Any] | None, threads: Threads, signals: Held):
        if function is not None and not callable(function):
            raise wrong_kind(function, "progress", "a function of one argument")
        self._function, self._threads, self._signals = function, threads, signals
        self.address = _Report(self._report)

    def _report(self, context: Any, progress: Any) -> int:
        if self._threads.failure is None:
            try:
                if threading.current_thread() is threading.main_thread():
                    self._signals.deliver()
                if self._function is not None:
                    p = progress.contents
                    self._function(Progress(p.stage.decode(), p.bytes_done, p.bytes_total,
                                            p.layer and p.layer.decode(errors="replace"), p.share, p.searches))
            except BaseException as failure:
                self._threads.failure = failure
        return self._threads.failure is not None


def _rows(model_dir: Any, architectures: Any) -> contextlib.AbstractContextManager[bytes | None]:
    """The file of architectures for a run."""
    given = _encoded(architectures, "architectures")
    if given is not None:
        return contextlib.nullcontext(given)
    return installed_rows(_lib().knows, model_dir)


def _run(name: str, args: Any, report: _Text, signals: Held, pool: Threads | None = None,
         named: Callable[[str], str] = str, counts: Mapping[str, c_size_t] | None = None) -> Any:
    """Calls a function of the library, with everything that Python raised meanwhile. Returns the report, with counts
    that the function has filled. named: as of _Text.take."""
    with signals:
        try:
            call(getattr(_lib(), name), byref(args))
        except c.FindingsError as failure:
            failure.findings = report.take()["findings"]
            raise
        except c.Cancelled:
            if pool is None or pool.failure is None:
                raise
    if pool is not None and pool.failure is not None:
        raise pool.failure from None
    found = report.take(named) | {name: count.value for name, count in (counts or {}).items()}
    _warn(found)
    return found


def _warn(report: dict[str, Any]) -> None:
    """Warns of what the program prints as warnings. If it ends with status 3, they say that something is incomplete."""
    incomplete = report.get("incomplete") or "unknown" in report.get("knowledge", ()) or any(
        scheme["kl"] is None for scheme in report.get("schemes", ()))
    upstream = report.get("compat", "vllm") != "vllm"  # its bytes, of which status 0 is promised
    category = c.IncompleteWarning if incomplete and not upstream else c.Warning
    warn(report.get("warnings", []), category)
    warn(report.get("unused", []), c.Warning if upstream else c.IncompleteWarning)
    if "compat" in report and "part" not in report and not report["layers"] and not report["activation_scales"]:
        warn(["no layer was quantized; report['left_out'] says why"])
    if report.get("missing"):
        warn([f"{report['missing']} scales of activations are missing: nothing was recorded for them"])


def warn(texts: Iterable[str], category: type[c.Warning] = c.IncompleteWarning) -> None:
    """Warns at the line that called the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    for text in texts:
        warnings.warn(text, category, stacklevel=level)


# ---- Functions -------------------------------------------------------------------------------------------------------

def quantize(model_dir: Any, out_dir: Any, scheme: str | None = None, *, config: Any = None, recipe: Any = None,
             targets: Iterable[str] | None = None, ignore: Iterable[str] | None = None, preset: str | None = None,
             settings: Mapping[str, Any] | None = None, activations: Iterable[Any] | None = None,
             states: Iterable[Any] | None = None, importance: Iterable[Any] | None = None, split_experts: bool = False,
             fill_experts: str = "refuse", compat: str = "vllm", part: tuple[int, int] | None = None,
             replace: bool = False, keep_findings: bool = False, allow_mixed_sets: bool = False,
             architectures: Any = None, draft: str = "as-loaded", dialect: str | None = None,
             keep_numbers: bool = False, fetch: str | None = None, threads: int | None = None,
             progress: Callable[[Progress], Any] | None = None) -> QuantizeReport:
    """Quantizes a model directory into one in the format of compressed-tensors, which vLLM and transformers load.

    model_dir: safetensors files with their index and config.json; only read. out_dir: new or empty; it appears when it
    is complete. One of scheme ("W4A16", "NVFP4", ... in any case), config (a quantization_config: a dictionary, or the
    path of its JSON) and recipe (of llm-compressor, YAML or JSON: a path, a text of several lines, or a dictionary) is
    needed. targets, ignore: names of modules or "re:" patterns that match from the start. preset: observer of the
    weights, "llmc.memoryless_mse". settings: members of the scheme's weights or settings of the observer,
    {"group_size": 64}. activations: files with recorded activations; states: directories with saved observers
    (calibration); FP8 and NVFP4 need one of them. importance: files that weigh columns of weights in searches
    (preset="llmc.imatrix_mse"): imatrix files of llama.cpp, GGUF or the older .dat, or recorded activations.
    split_experts: experts of Granite, Aria and Step-3.7 are quantized, for vLLM alone; else they stay as they are.
    fill_experts: "max" or "median" gives experts that no recorded token reached a scale of others of their layer.
    compat: "llm-compressor" (or "llm-compressor-0.14") gives the bytes of model_free_ptq, "next" those of its newest
    pre-release. part: (i, n) writes part i of n, and finish joins them.
    replace: a directory that holds files is replaced at the end. keep_findings: the output is written although the
    audit finds faults in it. allow_mixed_sets: layers that vLLM runs as one matrix (q_proj, k_proj, v_proj) may have
    several schemes; vLLM cannot load them. architectures: a JSON file with what is known of architectures, which
    python -m libqobs.architectures writes; it comes before the library's own table. None: for a model that the table
    lacks the classes of the installed transformers are read, in another process, for some seconds. draft: layers for
    speculative decoding (MTP, nextn) are quantized if vLLM is known to load those of the architecture so
    ("as-loaded"), never ("keep") or always ("quantize"). dialect: "awq", "gptq", "gptq-v2", "fp8" or "modelopt" in
    place of compressed-tensors. keep_numbers: the model is quantized already, and the output has its numbers or there
    is none; without scheme, config and recipe the scheme is that of the model. fetch: a command for /bin/sh that
    fetches the file {} of the model to the folder in which it runs, for the shards that model_dir lacks; at most two
    of them are on the disk, and a call that fails goes on when it is made again. threads: None is one for each
    processor.
    progress: called with Progress, by one thread at a time; an exception in it stops the run, and so does Ctrl-C.

    Returns the report: knowledge (the source of the facts about the architecture, and "unknown" if there are none),
    bytes_before, bytes_after, layers with relative_error, left_out, warnings, unused, findings. Each of its
    warnings is a libqobs.Warning, too. A libqobs.IncompleteWarning stands for the program's status 3: an
    architecture that is not known, input that nothing uses. Errors: InvalidArgumentError, NonfiniteError,
    SystemFailure (a file cannot be read or written), FindingsError (the audit finds faults in the output); after an
    error there is no out_dir. Reproduces model_free_ptq and, for activations, oneshot of llm-compressor 0.14."""
    pool, report, signals = Threads(threads), _Text(), Held()
    lists = {name: _Texts(items, name) for name, items in (
        ("targets", targets), ("ignore", ignore), ("activations", activations), ("states", states),
        ("importance", importance))} | {"settings": _settings(settings)}
    number_of_part, count = _part(part)
    with _Files(config, recipe) as described, _rows(model_dir, architectures) as rows:
        args = c.CheckpointQuantizeArgs(
            struct_size=sizeof(c.CheckpointQuantizeArgs), model=_needed(model_dir, "model_dir"),
            out=_needed(out_dir, "out_dir"), scheme=_scheme(scheme), config=described.config,
            recipe=described.recipe, preset=_encoded(preset, "preset"),
            split_experts=flag(split_experts, "split_experts"),
            fill_experts=choice(fill_experts, "fill_experts", _FILL_EXPERTS), compat=choice(compat, "compat", _COMPAT),
            part=number_of_part, part_count=count, replace=flag(replace, "replace"),
            keep_findings=flag(keep_findings, "keep_findings"),
            allow_mixed_sets=flag(allow_mixed_sets, "allow_mixed_sets"), runtime=pool.address,
            progress=_ProgressCall(progress, pool, signals).address, report=report.address,
            architectures=rows, draft=choice(draft, "draft", _DRAFT), dialect=_encoded(dialect, "dialect"),
            keep_numbers=flag(keep_numbers, "keep_numbers"), fetch=_encoded(fetch, "fetch"),
            **_members(lists))
        return _run("quantize", args, report, signals, pool, described.named)


def _members(lists: dict[str, _Texts]) -> dict[str, Any]:
    """Members of a structure of arguments: a list's address, and its count by the singular of its name."""
    singular = {"importance": "importance", "ignore": "ignore"}
    counts = {f"{singular.get(name, name.removesuffix('s'))}_count": texts.count for name, texts in lists.items()}
    return {name: texts.address for name, texts in lists.items()} | counts


def _part(part: Any) -> tuple[int, int]:
    if part is None:
        return 0, 0
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        raise wrong_kind(part, "part", "two numbers (i, n) or None")
    i, n = (integer(x, "part", 1, 1 << 31) for x in part)
    return i, n


def handle_bus_errors() -> None:
    """Installs a handler of SIGBUS for the process, which no other function does.

    If an input file becomes shorter while it is read, the call that reads raises SystemFailure, names the file and
    writes nothing. Without the handler that holds on Linux, too, where the system copies what is read. Elsewhere the
    process ends if bytes go missing while they are read. The handler saves the copies. Other SIGBUS go to the action
    that was there before. A second call does nothing. Errors: SystemFailure if the system refuses the handler."""
    call(_lib().handle_bus_errors)


def fused_sets(modules: Iterable[str], model_type: str | None = None) -> list[list[str]]:
    """The sets of modules that vLLM runs as one matrix and that need one global scale, by the table of the library.

    modules: names of linear layers. model_type: that of config.json, for sets of one architecture."""
    names = list(modules)
    texts = (c_char_p * max(len(names), 1))(*(f"{name}.weight".encode() for name in names))
    found = (c_size_t * max(len(names), 1))()
    call(_lib().fused_sets, texts, len(names), model_type.encode() if model_type else None, found)
    sets: dict[int, list[str]] = {}
    for name, index in zip(names, found):
        sets.setdefault(index, []).append(name)
    return [members for members in sets.values() if len(members) > 1]


def calibrate_checkpoint(model: Any, out: Any, scheme: str | None = None, *, config: Any = None, recipe: Any = None,
                         targets: Iterable[str] | None = None, ignore: Iterable[str] | None = None,
                         presets: Mapping[str, str] | str | None = None, settings: Mapping[str, Any] | None = None,
                         activations: Iterable[Any] | None = None, states: Iterable[Any] | None = None,
                         importance: Iterable[Any] | None = None, fill_experts: str = "refuse",
                         architectures: Any = None, threads: int | None = None,
                         progress: Callable[[Progress], Any] | None = None) -> CalibrateReport:
    """Computes the scales that quantize would store, and no codes, as `qobs calibrate` does.

    model: directory, index or safetensors file; only read. out: safetensors file with <module>.weight_scale and its
    like; it appears when it is complete. presets: the observer of the weights, or base -> observer for the bases
    weight, input, output, q, k, v and kv ("none": no observer). settings: "KEY" or "BASE.KEY" -> value, on top of the
    scheme: {"group_size": 64, "kv.strategy": "attn_head"}. fill_experts: "refuse" leaves experts out that no token
    reached. Everything else is as in quantize.

    Returns the report: layers with smallest_scale, largest_scale and, if scales were searched, error_before and error;
    activations; missing: how many scales of activations nothing was recorded for. Errors: those of quantize."""
    pool, report, missing, signals = Threads(threads), _Text(), c_size_t(), Held()
    lists = {name: _Texts(items, name) for name, items in (
        ("targets", targets), ("ignore", ignore), ("presets", _bases(presets)), ("activations", activations),
        ("states", states), ("importance", importance))} | {"settings": _settings(settings)}
    with _Files(config, recipe) as described, _rows(model, architectures) as rows:
        args = c.CheckpointCalibrateArgs(
            struct_size=sizeof(c.CheckpointCalibrateArgs), model=_needed(model, "model"), out=_needed(out, "out"),
            scheme=_scheme(scheme), config=described.config,
            recipe=described.recipe, fill_experts=choice(fill_experts, "fill_experts", _FILL_EXPERTS),
            runtime=pool.address, progress=_ProgressCall(progress, pool, signals).address,
            missing=ctypes.addressof(missing), report=report.address, architectures=rows, **_members(lists))
        return _run("calibrate", args, report, signals, pool, described.named, {"missing": missing})


def _bases(presets: Any) -> list[str]:
    """The observers of calibrate_checkpoint: "BASE=NAME" each."""
    if isinstance(presets, str):
        return [f"weight={presets}"]
    found = mapping(presets, "presets", "{'input': 'llmc.static_minmax'}")
    for base, name in found.items():
        if not isinstance(name, str):
            raise wrong_kind(name, f"presets[{base!r}]", "the name of a preset or 'none'")
    return [f"{base}={name}" for base, name in found.items()]


def plan(model_dir: Any, schemes: Iterable[str], *, out: Any = None, states: Iterable[Any] | None = None,
         importance: Iterable[Any] | None = None, preset: str | None = None,
         settings: Mapping[str, Any] | None = None, targets: Iterable[str] | None = None,
         ignore: Iterable[str] | None = None, budget: float = 0, max_kl: float = 0, architectures: Any = None,
         threads: int | None = None, progress: Callable[[Progress], Any] | None = None) -> PlanReport:
    """Predicts what schemes cost a model, and chooses a mixture of them, as `qobs plan` does. Nothing is quantized.

    schemes: ["W4A16", "W8A16"]. states: directories with importance and sensitivity, of calibration(...,
    sensitivity=True).save. settings: "KEY" or "SCHEME.KEY" -> value: {"W4A16.group_size": 64}. budget: most bits an
    element of the quantized weights, scales included. max_kl: largest KL divergence in nats a token. out: recipe of the
    mixture, which quantize(recipe=...) takes with the same states. Everything else is as in quantize.

    Returns the report: schemes with bytes, bits, kl (None without sensitivity; above prediction_limit it does not
    hold), error and layers; with budget or max_kl the mixture: bytes, bits, kl, optimal and the scheme of each layer;
    warnings. KL divergences are those of the weights' errors, to second order. Errors: those of quantize;
    InvalidArgumentError if no mixture keeps to the limit."""
    pool, report, signals = Threads(threads), _Text(), Held()
    lists = {name: _Texts(items, name) for name, items in (
        ("schemes", schemes), ("targets", targets), ("ignore", ignore), ("states", states),
        ("importance", importance))} | {"settings": _settings(settings)}
    with _rows(model_dir, architectures) as rows:
        args = c.CheckpointPlanArgs(
            struct_size=sizeof(c.CheckpointPlanArgs), model=_needed(model_dir, "model_dir"), out=_encoded(out, "out"),
            preset=_encoded(preset, "preset"), budget=number(budget, "budget"), max_kl=number(max_kl, "max_kl"),
            runtime=pool.address, progress=_ProgressCall(progress, pool, signals).address, report=report.address,
            architectures=rows, **_members(lists))
        return _run("plan", args, report, signals, pool)


def finish(out_dir: Any, *, replace: bool = False, keep_findings: bool = False) -> QuantizeReport:
    """Joins the parts of quantize(..., part=(i, n)) to the bytes of one run. keep_findings: as of quantize. Returns the
    report of all parts. Errors: InvalidArgumentError if parts are missing or do not fit together, FindingsError if the
    audit finds faults in the output; the parts stay then."""
    report = _Text()
    args = c.CheckpointFinishArgs(sizeof(c.CheckpointFinishArgs), _needed(out_dir, "out_dir"), flag(replace, "replace"),
                       flag(keep_findings, "keep_findings"), report.address)
    return _run("finish", args, report, Held())


def audit(checkpoint_dir: Any, against: Any = None, *, attest: Any = None, out: Any = None, architectures: Any = None,
          threads: int | None = None) -> AuditReport:
    """Checks a quantized checkpoint of anybody, in the format of compressed-tensors or of Model-Optimizer, or in GGUF.

    against: the model before it was quantized, for the error of each layer and the codes that are not the nearest;
    "reproduced" says whether quantizing it gives the same files; for a GGUF file such a file. attest: path of a
    statement of in-toto to write. out: a new directory for what can be mended without the original: "mended" says what,
    and the findings are those of the new directory; it is not written if that is nothing. architectures: as of
    quantize, not for a GGUF file. Returns {"findings": [{"module", "finding"}], "layers": [...]}; no finding means that
    nothing is wrong. Errors: InvalidArgumentError if the directory or the file is no such checkpoint."""
    pool, report, findings = Threads(threads), _Text(), c_size_t()
    with _rows(checkpoint_dir, architectures) as rows:
        args = c.CheckpointAuditArgs(sizeof(c.CheckpointAuditArgs), _needed(checkpoint_dir, "checkpoint_dir"),
                                     _encoded(against, "against"),
                          pool.address, ctypes.addressof(findings), report.address, rows, _encoded(attest, "attest"),
                                     _encoded(out, "out"))
        return _run("audit", args, report, Held(), pool)
