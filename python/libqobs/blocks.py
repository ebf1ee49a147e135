# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibrates a model that need not fit into memory, block by block, for qobs quantize --states STATES_DIR:

    python -m libqobs.blocks MODEL_DIR --text FILE --scheme FP8 --states STATES_DIR [-o OUT_DIR]

-o quantizes the model then, too. --corrected quantizes its weights block by block, each under the inputs that it gets
in the quantized model:

    python -m libqobs.blocks MODEL_DIR --text FILE --scheme W4A16 --corrected [--set group_size=64] -o OUT_DIR

The same command goes on where one has ended, at whatever moment. Needs torch and transformers. calibrate_blocks and
quantize_blocks are the same in Python, for batches of any kind."""
from __future__ import annotations

import argparse
import re
import sys
import warnings
from typing import Any

from . import _library as c
from ._block_model import BlockModel
from ._blocks import calibrate_blocks
from ._calibration import quantize_options
from ._checkpoint import quantize
from ._corrected import quantize_blocks
from ._samples import Wrong, add_sample_options, samples_of
from ._texts import READ

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def main(arguments: list[str] | None = None) -> None:
    """Runs the command. arguments: those of the command line; None: of this process."""
    parser = argparse.ArgumentParser(prog="python -m libqobs.blocks",
                                     description="Calibrates a model block by block. The same command goes on where "
                                     "one has ended.")
    parser.add_argument("model", help="directory of a model with its tokenizer, which transformers loads")
    parser.add_argument("--text", required=True, help=f"file of text; the samples are parts of it ({READ})")
    parser.add_argument("--scheme", default="FP8", help="a scheme, or the path of a recipe or configuration "
                        "(default FP8)")
    parser.add_argument("--states", help="new or empty directory for the states")
    add_sample_options(parser)
    parser.add_argument("--memory", type=_size, default=1, help="of what samples run together; without it they run one "
                        "by one: 500M, 2G")
    parser.add_argument("--importance", nargs="?", const=True, default=False, metavar="PRESET",
                        help="importance of columns, or with 'qobs.local_hessian SETTING=VALUE ...' a Hessian")
    parser.add_argument("--kv-cache", action="store_true", help="also keys and values of attention")
    parser.add_argument("--targets", action="append", metavar="NAME", help="layers to observe; again for each")
    parser.add_argument("--ignore", action="append", metavar="NAME", help="layers to leave; again for each")
    parser.add_argument("-o", "--out", help="quantize the model to this new or empty directory")
    parser.add_argument("--corrected", action="store_true", help="quantize weights block by block, with the error of "
                        "earlier layers in the rounding; it needs -o and takes no --states")
    parser.add_argument("--set", action="append", default=[], type=_setting, metavar="KEY=VALUE",
                        help="with --corrected: of the scheme's weights or qobs.local_hessian; again for each")
    parser.add_argument("--fill-experts", choices=("refuse", "max", "median"), default="refuse",
                        help="scales of inputs of experts without tokens: from others of their layer (default refuse)")
    options = parser.parse_args(arguments)
    _check(parser, options)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda text, *more, **named: print(f"{parser.prog}: warning: {text}",
                                                                      file=sys.stderr)
            _run(options)
    except Wrong as failure:
        parser.error(str(failure))
    except (c.Error, OSError) as failure:
        parser.error(str(failure).removeprefix("qobs: "))
    except KeyboardInterrupt:
        sys.stderr.write(f"{parser.prog}: interrupted; the same command goes on after the last complete block\n")
        sys.exit(130)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the command if an option does not belong to what is asked for."""
    if not options.corrected:
        if not options.states:
            parser.error("--states is needed; --corrected does without")
        if options.set:
            parser.error("--set belongs to --corrected")
        return
    given = [name for name in ("states", "importance") if getattr(options, name)]
    if given:
        parser.error(f"--{given[0].replace('_', '-')}: is not for --corrected")
    if not options.out:
        parser.error("--corrected needs -o OUT_DIR")


def _setting(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"is {word!r}, KEY=VALUE is expected")
    return key, value


def _size(word: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)(i?B)?", word.upper().replace("IB", "B"))
    if not match or int(match[1]) < 1:
        raise argparse.ArgumentTypeError(f"is {word!r}, allowed are numbers of bytes such as 500M and 2G")
    return int(match[1]) * _UNITS[match[2]]


def _shown(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _run(options: argparse.Namespace) -> None:
    read = samples_of(options)
    batches = _batches(options, read.samples)
    chosen = {name: value for name, value in (("targets", options.targets), ("ignore", options.ignore)) if value}
    if options.corrected:
        made = quantize_blocks(options.model, options.out, batches, options.scheme, settings=dict(options.set),
                               fill_experts=options.fill_experts, kv_cache=options.kv_cache, **chosen)
        print(f"{len(made['layers'])} layers of {made['blocks']} blocks quantized, of which {made['run']} ran now, "
              f"{_shown(made['bytes_before'])} to {_shown(made['bytes_after'])}; {len(read.samples)} samples of "
              f"{options.length} tokens from {read.form} in {len(batches)} batches; {made['seconds']:.0f} s, at most "
              f"{_shown(made['peak_bytes'])} of memory, mapped files included; in {options.out}")
        return
    observed = {"importance": options.importance, "kv_cache": options.kv_cache, **chosen}
    report = calibrate_blocks(options.model, batches, options.scheme, states=options.states, **observed)
    print(f"{report['blocks']} blocks, of which {report['run']} ran now; {len(read.samples)} samples of "
          f"{options.length} tokens from {read.form} in {len(batches)} batches; {report['seconds']:.0f} s, at most "
          f"{_shown(report['peak_bytes'])} of memory, mapped files included; states in {options.states}")
    if options.out:
        found = quantize(options.model, options.out, states=[options.states], fill_experts=options.fill_experts,
                         **quantize_options(options.scheme, options.importance, targets=options.targets,
                                            ignore=options.ignore))
        print(f"{len(found['layers'])} layers quantized, {_shown(found['bytes_before'])} to "
              f"{_shown(found['bytes_after'])}, in {options.out}")


def _batches(options: argparse.Namespace, samples: list[Any]) -> list[Any]:
    """Samples that run together: as many as --memory holds inputs and outputs of the linear layers of a block for."""
    import torch
    together = 1
    if options.memory > 1:
        sample = BlockModel(options.model, {}).bytes_a_token() * options.length
        together = max(1, options.memory // sample)
    return [torch.stack(samples[i:i + together]) for i in range(0, len(samples), together)]


if __name__ == "__main__":
    main()
