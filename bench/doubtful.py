#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Prints a filter of the pairs to measure again: those in which AVX-512 is shown to be slower.

    doubtful.py RESULTS.json
"""
import json
import sys

import targets


def filter_of(results):
    names = "|".join(n.replace(".", "[.]") for n in targets.shown_slower(results))
    return names and f"^({names})(/iterations:1)?$"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(filter_of(json.load(file)))
