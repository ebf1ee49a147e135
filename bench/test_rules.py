#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests the verdicts of reports and comparisons."""
import math
import random
import re
import statistics
import unittest

import doubtful
import growth
import rules


class MedianInterval(unittest.TestCase):
    def test_too_few_values_say_nothing(self):
        self.assertEqual(rules.median_interval([1.0] * 7, 0.99), (-math.inf, math.inf))
        self.assertEqual(rules.median_interval([], 0.99), (-math.inf, math.inf))

    def test_ranks_are_those_of_the_sign_test(self):
        # Tables of the sign test. 99 %: extremes of 8 values, 3rd and 13th of 15. 95 %: 2nd and 8th of 9.
        self.assertEqual(rules.median_interval(list(range(1, 9)), 0.99), (1, 8))
        self.assertEqual(rules.median_interval(list(range(1, 16)), 0.99), (3, 13))
        self.assertEqual(rules.median_interval(list(range(9, 0, -1)), 0.95), (2, 8))

    def test_covers_the_median_as_often_as_it_says(self):
        generator = random.Random(1)
        draws = [[generator.lognormvariate(0, 1) for _ in range(15)] for _ in range(4000)]
        covered = sum(low <= 1 <= high for low, high in (rules.median_interval(d, 0.95) for d in draws))
        self.assertGreater(covered / len(draws), 0.945)
        self.assertLess(covered / len(draws), 0.98)


class Change(unittest.TestCase):
    def test_clear_differences(self):
        self.assertEqual(rules.change([1.05 + 0.001 * i for i in range(9)]), "faster")
        self.assertEqual(rules.change([0.9 + 0.001 * i for i in range(9)]), "slower")

    def test_the_same(self):
        self.assertEqual(rules.change([0.97, 1.02, 1.0, 1.01, 0.99, 1.03, 0.98, 1.0, 1.0]), "within noise")

    def test_small_differences_are_not_told_however_certain(self):
        self.assertEqual(rules.change([1.01] * 30), "within noise")
        self.assertEqual(rules.change([0.99] * 30), "within noise")

    def test_a_few_disturbed_runs_do_not_decide(self):
        self.assertEqual(rules.change([1.1] * 14 + [0.2]), "faster")
        self.assertEqual(rules.change([1.0] * 12 + [3.0] * 3), "within noise")

    def test_too_few_runs_do_not_decide(self):
        self.assertEqual(rules.change([2.0] * 7), "within noise")


class Reached(unittest.TestCase):
    def test_the_median_decides(self):
        self.assertEqual(rules.reached([0.8, 0.96, 1.3], 0.95, "at least"), (0.96, 0.8, 1.3, True))
        self.assertFalse(rules.reached([0.94, 0.94, 3.0], 0.95, "at least")[3])
        self.assertTrue(rules.reached([9.0, 9.9, 30.0], 10, "at most")[3])
        self.assertFalse(rules.reached([1.0, 10.1, 10.2], 10, "at most")[3])

    def test_not_below_needs_evidence(self):
        self.assertTrue(rules.reached([0.97, 0.98, 1.01], 1, "not below")[3])
        self.assertFalse(rules.reached([0.97] * 9, 1, "not below")[3])
        # One lucky run of many lies outside the interval, so the verdict stands.
        self.assertFalse(rules.reached([0.9] * 14 + [1.2], 1, "not below")[3])

    def test_not_above_needs_evidence(self):
        self.assertTrue(rules.reached([1.04, 1.06, 1.07], 1.05, "not above")[3])
        self.assertFalse(rules.reached([1.06, 1.07, 1.08], 1.05, "not above")[3])
        self.assertFalse(rules.reached([1.1] * 20 + [0.7], 1.05, "not above")[3])

    def test_the_interval_is_the_median_s(self):
        self.assertEqual(rules.reached(list(range(1, 10)), 5, "at least")[:3], (5, 2, 8))

    def test_an_unknown_kind_is_no_answer(self):
        self.assertRaises(KeyError, rules.reached, [1.0], 1, "about")


class Quiet(unittest.TestCase):
    def test_turns_count_where_the_machine_is_quiet_before_and_after(self):
        pair = {"ratio": [1.1, 1.2, 1.3, 1.4, 1.5], "machine_before": [1.9, 1.8, 1.95, 2.1, 2.0],
                "machine_after": [2.0, 1.95, 1.0, 1.95, 1.9]}
        self.assertEqual(rules.quiet(pair), [1.1, 1.5])

    def test_none(self):
        self.assertEqual(rules.quiet({"ratio": [1.95], "machine_before": [1.5], "machine_after": [1.95]}), [])


class Exponent(unittest.TestCase):
    def test_powers(self):
        for power in (0, 0.5, 1, 1.2):
            self.assertAlmostEqual(rules.exponent([(2.0**i, 3 * 2.0**(power * i)) for i in range(5)]), power)

    def test_one_disturbed_point_does_not_decide(self):
        points = [(2.0**i, 2.0**i) for i in range(7)]
        points[3] = (8.0, 80.0)
        self.assertAlmostEqual(rules.exponent(points), 1, delta=0.2)


class Growth(unittest.TestCase):
    CACHES = [1 << 15, 1 << 20, 1 << 25]

    def fits(self, power, read=1.0, noise=0.0, repetitions=21):
        """Returns exponents of synthetic times n^power * (1 + noise). The read loop grows by n^read in L3."""
        generator = random.Random(2)
        benchmarks = {}
        for n in (1 << i for i in range(10, 28)):
            for work, exponent in (("work/isa", power), ("limit-read", read if 1 << 19 <= n <= 1 << 22 else 1)):
                times = [n**exponent * (1 + noise * generator.random()) for _ in range(repetitions)]
                benchmarks[f"growth/elements/{work}/{n}"] = {"time": times, "bytes": 4 * n}
        return growth.fits({"benchmarks": benchmarks, "caches": self.CACHES})

    def test_each_level(self):
        fits = self.fits(1)
        self.assertEqual(set(fits), {f"elements, {work}, {level}" for work in ("work/isa", "limit-read")
                                     for level in ("L1", "L2", "L3", "memory")})
        for exponents in fits.values():
            self.assertEqual(len(exponents), 21)
            self.assertAlmostEqual(statistics.median(exponents), 1)

    def test_a_steep_one_is_shown_in_noise_and_an_even_one_is_not(self):
        for power, answer in ((1, True), (1.1, False)):
            for exponents in (e for name, e in self.fits(power, noise=0.1).items() if "work" in name):
                self.assertEqual(rules.reached(exponents, 1.05, "not above")[3], answer)

    def test_what_the_level_itself_grows_is_taken_off(self):
        fits = self.fits(1.2, read=1.1)
        self.assertAlmostEqual(statistics.median(fits["elements, work/isa, L3"]), 1.1)
        self.assertAlmostEqual(statistics.median(fits["elements, work/isa, L2"]), 1.2)
        self.assertAlmostEqual(statistics.median(self.fits(1.2, read=0.8)["elements, work/isa, L3"]), 1.2)

    def test_counts_whose_time_is_below_a_tick_do_not_count(self):
        points = [(1, 0.0), (10, 0.0), (100, 0.1), (1000, 1.0), (10000, 10.0)]
        self.assertAlmostEqual(growth.scale_exponent("tensors", points), 1)
        self.assertIsNone(growth.scale_exponent("tensors", points[:2]))
        self.assertAlmostEqual(growth.scale_exponent("bytes", points), 1)
        self.assertIsNone(growth.scale_exponent("bytes", points[:3]))


class Doubtful(unittest.TestCase):
    PAIRS = {"pair/avx512-avx2/absmax/f32/row/L1": [0.9, 0.95, 0.96],
             "pair/avx512-avx2/search/f32/int4-norm-2.4/L1": [0.8, 0.9, 0.93],
             "pair/avx512-avx2/minmax/f32/row/L1": [0.5, 0.6, 0.98], "pair/minmax-limit/f32/row/L1": [0.1, 0.2, 0.3]}

    def filter_of(self, names):
        return doubtful.filter_of({"pairs": {n: {"ratio": self.PAIRS[n]} for n in names}})

    def test_what_is_shown_to_be_slower_and_nothing_else(self):
        found = re.compile(self.filter_of(self.PAIRS))
        self.assertEqual([n for n in self.PAIRS if found.search(n + "/iterations:1")], list(self.PAIRS)[:2])
        self.assertIsNone(found.search("pair/avx512-avx2/search/f32/int4-norm-2-4/L1"))

    def test_nothing(self):
        self.assertEqual(self.filter_of(list(self.PAIRS)[2:]), "")


if __name__ == "__main__":
    unittest.main()
