#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the C example in the README is examples/weight_scales.c, which another test runs."""
import re
import sys

root = sys.argv[1]
readme = open(root + "/README.md", encoding="utf-8").read()
example = open(root + "/examples/weight_scales.c", encoding="utf-8").read()
blocks = re.findall(r"```c\n(.*?)```", readme, re.S)
if example not in blocks:
    sys.exit("README.md does not show examples/weight_scales.c as it is")
if len(example.splitlines()) > 30:
    sys.exit("the example is longer than 30 lines")
print("the README's example is the compiled one")
