# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Does a quantized model load in the runtime that is installed here? Nothing is written.

    python -m libqobs.check OUT [--against MODEL] [--runtime transformers|vllm] [--json FILE]

Builds the class of the runtime with OUT's configuration, without weights, and lists the parameters that no tensor fills
and the tensors that no parameter takes, after the runtime's own renaming. Compares codes, scales and zero points with
the configuration. With enough memory it loads the model, and compares its weights and the logits of a few tokens with
the numbers that are dequantized here; of vLLM the loaders run alone. --against compares names, shapes and each row with
the model before. Exit status: 0 right, 1 faults, 2 wrong usage or unreadable, 3 the runtime does not know the class.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TQDM_DISABLE", "1")  # it is read when tqdm is imported

try:
    from ._check_transformers import TOKENS, Built, Transformers, Unknown
    from ._quantized import (PART, Checkpoint, Fault, Unreadable, dequantize, distance, module_faults, plain_state)
except ImportError as missing:
    if __name__ != "__main__":
        raise
    print(f"libqobs.check: {missing.name} is not installed: pip install torch safetensors transformers",
          file=sys.stderr)
    raise SystemExit(2) from None

SHOWN = 20  # lines of faults; --json has all
NEAR = 1e-3  # relative distance of numbers that are the same but for the order of rounding


# ---- Faults that a runtime shows -------------------------------------------------------------------------------------

def same_tail(name: str, names: Any) -> str | None:
    """The one of names that ends like name: runtimes change beginnings."""
    parts = name.split(".")
    for start in range(len(parts)):
        tail = ".".join(parts[start:])
        if len(parts) - start < min(2, len(parts)):
            return None
        for other in names:
            if other == tail or other.endswith("." + tail):
                return str(other)
    return None


def missing_faults(checkpoint: Checkpoint, runtime: Any, missing: list[str]) -> Iterator[Fault]:
    for name in missing:
        match = PART.fullmatch(name)
        module = match[1] if match else ""
        stored = same_tail(module, checkpoint.modules)
        if match and match[2] != "weight" and stored is not None and stored not in checkpoint.quantized:
            yield Fault(module, "unquantized", f"{runtime.said} builds it quantized, and the files hold it unquantized;"
                                               " `ignore` must name it")
        elif match and match[2] != "weight" and stored is None:
            yield Fault(module, "missing", f"{runtime.said} builds it quantized, and the files have no tensor of its "
                                           "name; `ignore` must name a tied one")
        else:
            yield Fault(name, "missing", f"no tensor of the files fills it; {runtime.said} leaves it random")


def unexpected_faults(checkpoint: Checkpoint, runtime: Any, unexpected: list[str]) -> Iterator[Fault]:
    for name in unexpected:
        match, tensor = PART.fullmatch(name), same_tail(name, checkpoint.tensors) or name
        if match and match[2] != "weight":
            yield Fault(tensor.rpartition(".")[0], "quantized", "the files hold it quantized, and "
                        f"{runtime.name} has no place for its {match[2]}")
        else:
            yield Fault(tensor, "unexpected", f"no parameter of {runtime.name} takes this tensor; its numbers are lost")


def failed_faults(runtime: Any, failed: Mapping[str, str]) -> Iterator[Fault]:
    for name, text in failed.items():
        yield Fault(name, "conversion", f"{runtime.said} cannot make it of the tensors in the files: "
                                        f"{shorten(text.splitlines()[-2] if text.count(chr(10)) else text)}")


def stopped_faults(checkpoint: Checkpoint, runtime: Any, error: Exception) -> Iterator[Fault]:
    """Loading ends with an exception: the modules that may be the cause, and the exception."""
    try:
        built = runtime.built_quantized() if checkpoint.quantized else []
    except Exception:  # the exception that is given says why
        built = []
    tails = {".".join(m.split(".")[-2:]) for m in checkpoint.quantized}
    names = [m for m in built if ".".join(m.split(".")[-2:]) not in tails]
    yield from missing_faults(checkpoint, runtime, [f"{m}.weight_scale" for m in names])
    yield Fault(runtime.name, "stops", f"{runtime.said} stops while it loads: {shorten(error)}")


def shorten(error: Exception | str, words: int = 12) -> str:
    text = (error if isinstance(error, str) else f"{type(error).__name__}: {error}").split()
    return " ".join(text[:words])[:200] + (" ..." if len(text) > words else "")


def shape_faults(expected: Built, loaded: Built, runtime: Any) -> Iterator[Fault]:
    parameters = dict(loaded.model.named_parameters())
    for name, value in expected.model.named_parameters():
        found = parameters.get(name)
        if name in expected.mismatched or found is not None and found.shape != value.shape:
            yield Fault(name, "shape", f"{runtime.name} needs {list(value.shape)}, and the files give another shape")


def number_faults(expected: Built, loaded: Built, state: Mapping[str, Any], runtime: Any) -> Iterator[Fault]:
    """Numbers of the loaded model that are not those of the files. A plain model may have no place for split experts:
    these are compared by their names in the files."""
    parameters, absent = dict(loaded.model.named_parameters()), set(expected.missing)
    wanted = {n: p for n, p in expected.model.named_parameters() if n not in absent}
    wanted |= {n: state[n] for n in expected.unexpected if n in state}
    for name, value in wanted.items():
        far = distance(parameters[name], value) if name in parameters else 0.0
        if not far <= NEAR:
            yield Fault(name, "numbers", f"{runtime.said} reads numbers that are {far:.2g} from those in the files")


def logit_faults(expected: Built, loaded: Built, runtime: Any, notes: list[str]) -> Iterator[Fault]:
    try:
        wanted = runtime.logits(expected.model)
    except Exception as error:
        notes.append(f"weights are compared, logits are not: {runtime.name} needs other inputs: {shorten(error, 8)}")
        return
    try:
        far = distance(runtime.logits(loaded.model), wanted)
    except Exception as error:
        yield Fault(runtime.name, "stops", f"{runtime.said} loads it, and stops while it runs: {shorten(error)}")
        return
    notes.append(f"logits of {TOKENS} tokens are compared: the distance is {far:.1g}")
    if not far <= NEAR:
        yield Fault("logits", "numbers", f"are {far:.2g} from those of the numbers in the files")


def own_names(before: Checkpoint | None, device: str) -> set[str]:
    """Parameters and tensors that do not fit in the model before either."""
    if before is None:
        return set()
    built = Transformers(before).load(device)
    return {*built.missing, *built.unexpected, *built.mismatched}


def runtime_faults(checkpoint: Checkpoint, runtime: Any, before: Checkpoint | None, device: str,
                   notes: list[str]) -> Iterator[Fault]:
    try:
        loaded = runtime.load(device)
    except Exception as error:
        yield from stopped_faults(checkpoint, runtime, error)
        return
    own = own_names(before, device) if loaded.missing or loaded.unexpected else set()
    found = [*failed_faults(runtime, loaded.failed),
             *missing_faults(checkpoint, runtime, [n for n in loaded.missing if n not in own]),
             *unexpected_faults(checkpoint, runtime, [n for n in loaded.unexpected if n not in own])]
    if own:
        notes.append(f"{len(own)} names do not fit in the model before either, such as {min(own)}")
    yield from found
    try:
        state = plain_state(checkpoint, device)
        expected = runtime.load(device, dict(state))
    except Exception as error:
        notes.append(f"numbers are not compared: {shorten(error)}")
        return
    shapes = list(shape_faults(expected, loaded, runtime))
    own = own or (own_names(before, device) if shapes else own)
    found += (shapes := [fault for fault in shapes if fault.name not in own])
    yield from shapes
    if found or device == "meta":
        return
    found += (numbers := list(number_faults(expected, loaded, state, runtime)))
    yield from numbers
    if not found and not set(expected.missing) - own:
        yield from logit_faults(expected, loaded, runtime, notes)


# ---- The model before ------------------------------------------------------------------------------------------------

def limits(scheme: Mapping[str, Any]) -> tuple[float, float]:
    """The largest error of a row that rounding to the scheme makes, relative to it or to the mean row, and the largest
    distance from 1 of the factor that fits it best."""
    bits = scheme["num_bits"]
    return (0.15 if bits == 8 and scheme.get("type") == "float" else min(1.2, 12 * 2.0 ** -bits),
            max(0.1, 1.6 * 2.0 ** -bits))


def row_fault(name: str, found: Any, before: Any, scheme: Mapping[str, Any]) -> Fault | None:
    """Compares the rows of a matrix with those before. A wrong scale shows in the factor that fits best."""
    found, before = (x.float().reshape(-1, x.shape[-1]) for x in (found, before))
    norm = before.norm(dim=1)
    usual = norm.square().mean().sqrt().clamp_min(1e-30)
    error = (found - before).norm(dim=1) / norm.clamp_min(usual)
    factor = (found * (found - before)).sum(1) / found.norm(dim=1).clamp_min(usual).square()
    most, most_factor = limits(scheme)
    worst, skewed = int(error.argmax()), int(factor.abs().argmax())
    if not bool(error.isfinite().all()):
        return Fault(name, "error", "has numbers that are not finite")
    if error[worst] > most:
        return Fault(name, "error", f"row {worst} is {error[worst]:.2g} from that of the model before; rounding makes "
                                    f"at most {most:.2g}")
    if factor[skewed].abs() > most_factor:
        return Fault(name, "error", f"row {skewed} is {1 / (1 - float(factor[skewed])):.2g} times that of the model "
                                    "before; its scale is wrong")
    return None


EXPERT = re.compile(r"(.*)\.(\d+)\.(\w+)")
HALVES = {"gate_proj": 0, "w1": 0, "up_proj": 1, "w3": 1}  # of a matrix that holds both


def expert_slices(model: Checkpoint, module: str, shape: list[int]) -> Iterator[Any]:
    """The matrices of the model before that an expert, <parent>.<number>.<name>, may be: of its tensors of three
    dimensions, which may be turned."""
    match = EXPERT.fullmatch(module)
    layer = match[1].rpartition(".")[0] + "." if match else ""
    for name, (_, stored) in model.tensors.items():
        if match and name.startswith(layer) and len(stored) == 3 and int(match[2]) < stored[0]:
            whole, half = model.read(name)[int(match[2])], HALVES.get(match[3])
            for matrix in (whole, whole.T):
                halves = [] if half is None else [matrix[half::2], matrix.chunk(2)[half]]
                yield from (m for m in (matrix, *halves) if list(m.shape) == shape)


def against_faults(out: Checkpoint, model: Checkpoint) -> Iterator[Fault]:
    if model.quantized or model.quantization:
        raise Unreadable(f"--against {model.folder}: is quantized; give the model before")
    names = {f"{m}.weight": m for m in out.quantized} | {n: "" for n in out.plain()}
    experts = [m for m in out.quantized if EXPERT.fullmatch(m)]
    for name in sorted(model.tensors.keys() - names.keys()):
        beside = name.removesuffix(".weight").rpartition(".")[0] + "."
        if len(model.tensors[name][1]) != 3 or not any(m.startswith(beside) for m in experts):
            yield Fault(name, "names", "the model before has this tensor, and the files lack it")
    for name, module in sorted(names.items()):
        shape = out.shape_of(module) if module else out.tensors[name][1]
        before = [model.read(name)] if name in model.tensors else list(expert_slices(model, module, shape))
        if not before:
            yield Fault(name, "names", "the files have this tensor, and the model before has not")
        elif list(before[0].shape) != shape:
            yield Fault(name, "shape", f"is {shape}; the model before has {list(before[0].shape)}")
        else:
            yield from tensor_faults(out, name, module, before)


def tensor_faults(out: Checkpoint, name: str, module: str, before: list[Any]) -> Iterator[Fault]:
    """Compares numbers with those of the model before, the nearest of the matrices that they may be."""
    if not module:
        if (far := distance(out.read(name), before[0])) > 0:
            yield Fault(name, "error", f"is not quantized, and {far:.2g} from the tensor of the model before")
    elif not any(True for _ in module_faults(out, module)):  # those are named already
        try:
            found = dequantize(out.of_module(module), out.scheme(module))
        except NotImplementedError:
            return
        nearest = min(before, key=lambda matrix: distance(found, matrix))
        if fault := row_fault(name, found, nearest, out.scheme(module)):
            yield fault


# ---- The command -----------------------------------------------------------------------------------------------------

def free_memory() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def faults_of(runtime: str, checkpoint: Checkpoint, before: Checkpoint | None, device: str,
              notes: list[str]) -> tuple[Any, Iterator[Fault]]:
    """The runtime's class, and what is wrong by it."""
    if runtime == "vllm":
        from ._check_vllm import Vllm
        vllm = Vllm(checkpoint)
        return vllm, vllm.faults(device, notes)
    if runtime != "transformers":
        raise Unreadable(f"runtime: is {runtime!r}, allowed are transformers and vllm")
    transformers = Transformers(checkpoint)
    return transformers, runtime_faults(checkpoint, transformers, before, device, notes)


def check(out: Any, against: Any = None, runtime: str = "transformers",
          memory: int | None = None) -> dict[str, Any]:
    """Checks the directory `out` in an installed runtime, "transformers" or "vllm".

    against: the model before it was quantized. memory: bytes that may be used; with too few, names, shapes and dtypes
    alone are checked. Returns the report: "class", "runtime", "faults" [{"name", "kind", "message"}], "notes". Raises
    Unknown if the runtime does not know the class, Unreadable for what cannot be read."""
    checkpoint = Checkpoint(os.fspath(out))
    before = Checkpoint(os.fspath(against)) if against is not None else None
    notes: list[str] = []
    found = checkpoint.faults + [f for m in sorted(checkpoint.quantized) for f in module_faults(checkpoint, m)]
    needed = 12 * checkpoint.elements
    device = "cpu" if needed < (free_memory() if memory is None else memory) else "meta"
    client, by_runtime = faults_of(runtime, checkpoint, before, device, notes)
    if device == "meta":
        notes.append(f"names and shapes alone are checked: {needed / 1e9:.3g} GB of memory are needed to load")
    found += by_runtime
    if before is not None:
        found += against_faults(checkpoint, before)
    return {"out": checkpoint.folder, "runtime": client.said, "class": client.name, "device": device,
            "quantized": len(checkpoint.quantized), "tensors": len(checkpoint.tensors),
            "faults": [f._asdict() for f in dict.fromkeys(found)], "notes": notes}


def show(report: dict[str, Any]) -> None:
    faults = report["faults"]
    for fault in faults[:SHOWN]:
        print(f"{fault['name']}: {fault['message']}")
    if len(faults) > SHOWN:
        print(f"and {len(faults) - SHOWN} more; --json FILE has all")
    for note in report["notes"]:
        print(f"note: {note}")
    if faults:
        print(f"{len(faults)} faults: {report['runtime']} does not load what was quantized, or not as it was")
    else:
        print(f"right: {report['class']} of {report['runtime']} takes {report['tensors']} tensors, "
              f"{report['quantized']} modules quantized")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m libqobs.check",
                                     description="checks a quantized model in a runtime")
    parser.add_argument("out", metavar="OUT", help="directory of the quantized model")
    parser.add_argument("--against", metavar="MODEL", help="the model before: names, shapes and errors are compared")
    parser.add_argument("--runtime", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--json", metavar="FILE", help="the report in JSON")
    options = parser.parse_args(arguments)
    try:
        report = check(options.out, options.against, options.runtime)
        status = int(bool(report["faults"]))
        show(report)
    except Unreadable as error:
        report, status = {"error": str(error)}, 2
    except Unknown as error:
        report, status = {"error": str(error)}, 3
    except Exception as error:  # a fault of this module, which is not one of OUT
        report, status = {"error": f"{options.out} cannot be checked: {type(error).__name__}: {error}"}, 2
    if "error" in report:
        print(f"libqobs.check: {report['error']}", file=sys.stderr)
    if options.json:
        try:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({"status": status, **report}, file, indent=1)
        except OSError as error:
            print(f"libqobs.check: --json: {error}", file=sys.stderr)
            return 2
    return status


if __name__ == "__main__":
    from libqobs import check as _module  # by its name, as other modules import its classes

    sys.exit(_module.main())
