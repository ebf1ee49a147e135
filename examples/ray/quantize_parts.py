#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Deals the parts of a checkpoint to tasks of Ray; the driver joins them to the bytes of one run.

    quantize_parts.py MODEL_DIR OUT_DIR [--scheme W4A16] [--preset llmc.memoryless_mse] [--parts 2]

All machines see both directories under these names. Ray runs a part that fails again; parts that are complete stay.
Needs ray."""
import argparse

import libqobs as qobs
import ray


@ray.remote(max_retries=2, retry_exceptions=True)
def quantize_part(model_dir, out_dir, part, parts, options):
    """Writes one part, which appears when it is complete."""
    qobs.quantize(model_dir, out_dir, part=(part, parts), replace=True, threads=1, **options)


def quantize(model_dir, out_dir, parts, **options):
    """Returns the report of all parts."""
    ray.get([quantize_part.remote(model_dir, out_dir, i + 1, parts, options) for i in range(parts)])
    return qobs.finish(out_dir)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Deals the parts of a checkpoint to tasks of Ray.")
    parser.add_argument("model_dir")
    parser.add_argument("out_dir")
    parser.add_argument("--scheme", default="W4A16")
    parser.add_argument("--preset", default="llmc.memoryless_mse")
    parser.add_argument("--parts", type=int, default=2)
    options = parser.parse_args(arguments)
    report = quantize(options.model_dir, options.out_dir, options.parts, scheme=options.scheme, preset=options.preset)
    print(f"{len(report['layers'])} layers")


if __name__ == "__main__":
    main()
