#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibrates a model with actors of Ray, merges their observers in the driver and quantizes the model.

    calibrate_actors.py MODEL_DIR TOKENS.json OUT_DIR [--scheme FP8] [--actors 2]

TOKENS.json: a list of samples, each a list of token numbers. Every actor holds the model and sees a share of the
samples; it returns some 300 bytes for each layer. The driver holds no weights. The result is that of one process that
sees all samples, for observers whose merge is exact: minima and maxima. Needs ray, torch and transformers."""
import argparse
import json

import libqobs as qobs
import ray
import torch
from libqobs import distributed
from transformers import AutoConfig, AutoModelForCausalLM


@ray.remote
class Calibrator:
    """One copy of the model."""

    def __init__(self, model_dir, scheme):
        torch.set_num_threads(1)  # as many as the actor has processors
        self.model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
        self.calibration = qobs.calibration(self.model, scheme)

    def run(self, samples):
        """Observes samples and returns the states of all observers."""
        with self.calibration, torch.no_grad():
            for sample in samples:
                self.model(torch.tensor([sample]), use_cache=False)
        return distributed.pack(self.calibration.observers.values())


def calibrate(model_dir, samples, scheme, actors):
    """Returns the merged calibration. The states of the actors merge in their order, whichever ends first."""
    workers = [Calibrator.remote(model_dir, scheme) for _ in range(actors)]
    states = ray.get([worker.run.remote(samples[i::actors]) for i, worker in enumerate(workers)])
    with torch.device("meta"):  # names and shapes, no memory
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_dir))
    merged = qobs.calibration(model, scheme)
    distributed.merge_packed(merged.observers.values(), states)
    return merged


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Calibrates with actors of Ray.")
    parser.add_argument("model_dir")
    parser.add_argument("tokens")
    parser.add_argument("out_dir")
    parser.add_argument("--scheme", default="FP8")
    parser.add_argument("--actors", type=int, default=2)
    options = parser.parse_args(arguments)
    with open(options.tokens, encoding="utf-8") as file:
        samples = json.load(file)
    calibrate(options.model_dir, samples, options.scheme, options.actors).quantize(options.model_dir, options.out_dir)


if __name__ == "__main__":
    main()
