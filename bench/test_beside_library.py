#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests that beside_library.py loads two distinct libraries and runs every case. Argument: a libqobs.so."""
import math
import os
import subprocess
import sys
import unittest

try:
    import numpy  # pylint: disable=unused-import
except ImportError:
    print("skipped: needs python3-numpy")
    sys.exit(77)

import beside_library
import rules

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.abspath(sys.argv.pop())


class BesideLibrary(unittest.TestCase):
    def run_it(self, *options):
        """Returns names and ratios of the cases that ran."""
        command = [sys.executable, "-B", os.path.join(HERE, "beside_library.py"), LIBRARY, LIBRARY, "--turns", "3",
                   *options]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, int(" slower\n" in done.stdout.rpartition("\n\n")[0]),
                         "1: something is slower")
        lines = [line.split() for line in done.stdout.splitlines() if f"x{beside_library.COLUMNS} " in line]
        return [(line[0], float(line[3])) for line in lines]

    def test_the_libraries_are_two(self):
        first, second = beside_library.load(LIBRARY, LIBRARY)
        for name in ("qobs_search", "qobs_minmax", "qobs_config_create"):
            self.assertNotEqual(first.address(name), second.address(name))
        best = second.active()
        first("qobs_isa_select", b"scalar")
        self.assertEqual((first.active(), second.active()), ("scalar", best))

    def test_a_difference_is_found(self):
        """Scalar kernels beside the best ones, on both sides."""
        first, second = beside_library.load(LIBRARY, LIBRARY)
        if second.active() == "scalar":
            self.skipTest("this CPU runs the scalar kernels alone")
        first("qobs_isa_select", b"scalar")
        make, _ = beside_library.named_cases("f32", 64)["minmax/f32/group-32/64x4096"]
        data = beside_library.Data("f32", 64)
        for sides, verdict in ((first, second), "faster"), ((second, first), "slower"):
            calls = [library.checked(make(library, data)) for library in sides]
            pairs = beside_library.take_turns(*calls, 31)
            self.assertEqual(rules.change([old / new for old, new in pairs]), verdict)

    def test_every_case_runs(self):
        ran = self.run_it("--rows", "4")
        expected = [name for dtype in beside_library.DTYPES for name in beside_library.named_cases(dtype, 4)]
        self.assertEqual([name for name, _ in ran], expected)
        for name, ratio in ran:
            self.assertTrue(math.isfinite(ratio) and ratio > 0, name)

    def test_options_say_what_runs(self):
        ran = self.run_it("--rows", "8", "4", "--isa", "scalar", "--only", "^minmax/bf16/group-32/")
        self.assertEqual([name for name, _ in ran], ["minmax/bf16/group-32/8x4096", "minmax/bf16/group-32/4x4096"])


if __name__ == "__main__":
    unittest.main()
