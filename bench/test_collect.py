#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests collect.py, which targets exist, which are reached, and the tables of README."""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import collect
import growth
import operations
import readme
import report
import targets

HERE = os.path.dirname(os.path.abspath(__file__))


def part(isa, pairs):
    """Returns a result in the form of Google Benchmark."""
    return {
        "context": {"isa": isa, "caches": [{"type": "Data", "level": 1, "size": 32768}]},
        "benchmarks": [
            {
                "run_type": "iteration",
                "run_name": "pair/" + name + "/iterations:1",
                "ratio": ratio,
                "speed": 1.0,
                "other_speed": 1.0,
            }
            for name, ratio in pairs
        ],
    }


class Collect(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def write(self, name, content):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content)
        return self.path(name)

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def collect(self, isa, pairs):
        parts = [
            self.write("a.json", json.dumps(part(isa, pairs))),
            self.write("no-such-benchmark.json", ""),
            self.path("missing.json"),
        ]
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(HERE, "collect.py"), self.path("cpu"), "cpu=a", *parts],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        with open(done.stdout.strip(), encoding="utf-8") as file:
            return done.stdout.strip(), json.load(file)

    def test_parts_without_a_benchmark_are_passed_over(self):
        path, results = self.collect("avx2", [("calibrate-cat", 0.9), ("calibrate-cat", 0.7), ("calibrate-cat", 0.8)])
        self.assertEqual(path, self.path("cpu-avx2.json"))
        self.assertEqual(results["pairs"]["pair/calibrate-cat"]["ratio"], [0.9, 0.7, 0.8])

    def test_figures_of_several_processes_count(self):
        results = {"pairs": {}, "values": {"a": [1]}}
        for ratio in ([1.0, 2.0], [3.0]):
            collect.add_figures(
                results,
                {"torch": "1.13", "values": {"b": ratio}, "pairs": {"pair/torch/x": {"ratio": ratio, "speed": ratio}}},
            )
        self.assertEqual(
            results,
            {
                "torch": "1.13",
                "values": {"a": [1], "b": [3.0]},
                "pairs": {"pair/torch/x": {"ratio": [1.0, 2.0, 3.0], "speed": [1.0, 2.0, 3.0]}},
            },
        )

    def test_figures_measured_again_take_the_place_of_the_first(self):
        path, _ = self.collect("avx2", [("calibrate-cat", 0.5), ("a", 1.0)])
        again = self.write(
            "again.json", json.dumps({"pairs": {"pair/a": {"upstream": "torch 2.13.0", "ratio": [2.0, 3.0]}}})
        )
        subprocess.run(
            [
                sys.executable,
                "-B",
                os.path.join(HERE, "collect.py"),
                self.path("cpu"),
                "into=" + path,
                "command=b",
                again,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(results["pairs"]["pair/a"], {"upstream": "torch 2.13.0", "ratio": [2.0, 3.0]})
        self.assertEqual(results["pairs"]["pair/calibrate-cat"]["ratio"], [0.5])
        self.assertEqual((results["cpu"], results["runs"]), ("a", [{"command": "b", "figures": 1}]))

    def test_growth_of_counts_is_that_beyond_the_smallest(self):
        def rows(cost):
            return [[n, cost(n), 0, 100, cost(n)] for n in (1, 10, 100, 1000, 10000)]

        values = {
            "scale/quantize/tensors": rows(lambda n: 1 + 0.1 * n),
            "scale/x/batches": rows(lambda n: 1e-6 * n**1.5),
            "scale/quantize/shards": rows(lambda n: 3),
        }
        found = {row.variable: row.exponent for row in growth.scale_rows({"values": values})}
        self.assertAlmostEqual(found["tensors"], 1.0, delta=0.02)
        self.assertAlmostEqual(found["batches"], 1.5, delta=0.02)
        self.assertEqual(found["shards"], 0)

    def test_two_threads_count_in_turns_with_a_quiet_machine(self):
        name = "search-2-threads/int8-channel"
        for machine, reached, where in (
            ([1.95] * 9, True, "5 turns of 9 with a quiet machine; all turns 1.91, multiply-adds 1.95"),
            ([1.5] * 9, False, "not measured"),
        ):
            p = part("avx2", [(name, ratio) for ratio in [1.91] * 5 + [1.0] * 4])
            for b, before, after in zip(p["benchmarks"], machine, machine[:5] + [1.0] * 4):
                b.update(
                    run_name="pair/" + name + "/iterations:1/repeats:9", machine_before=before, machine_after=after
                )
            results = {"benchmarks": {}, "pairs": {}, "values": {}}
            collect.add_google(results, p)
            row = [r for r in targets.measured(results) if r[0].what == "search, int8-channel, 2 threads: times one"]
            self.assertEqual([(r[4], r[5]) for r in row], [(reached, where)])

    def test_a_kernel_reaches_its_share_of_its_limit_or_not(self):
        name = "dynamic-limit/mxfp4/L2"
        for ratio, reached in ((0.79, False), (0.81, True)):
            p = part("avx512", [(name, ratio)] * 9)
            for b in p["benchmarks"]:
                b.update(operations=700.0, other_speed=9e10)
            results = {"isa": "avx512", "benchmarks": {}, "pairs": {}, "values": {}}
            collect.add_google(results, p)
            row = [r for r in targets.measured(results) if r[0].source == "pair/" + name]
            self.assertEqual([r[4] for r in row], [reached])
            self.assertEqual(report.Report(results).limit_of("pair/" + name), ["limit 90 GB/s, 700 operations a KB"])

    def test_every_counted_work_has_a_target_and_the_other_way_round(self):
        with open(os.path.join(HERE, "operations.cc"), encoding="utf-8") as file:
            counted = set(re.findall(r'{"([^"]+)", [1-9]\d*, [1-9]\d*}', file.read()))
        self.assertEqual(counted, set(operations.WORKS))
        sources = [t.source for t in targets.targets("avx512") if "-limit/" in str(t.source)]
        aimed = {re.sub(r"pair/minmax-limit/(.*)/[^/]*$", r"minmax/\1", s) for s in sources}
        aimed = {re.sub("pair/(dynamic|codes)-limit/([^/]*).*", r"\1/bf16/\2", s) for s in aimed}
        self.assertEqual(aimed, counted)

    def test_targets_are_those_of_the_instruction_set(self):
        search = "llmcompressor/memoryless_mse/f32-int4-group-128-norm-2"
        for isa, reached in (("avx2", True), ("avx512", False)):
            _, results = self.collect(isa, [(search, 100.0)] * 9)
            rows = {t.what: answer for t, _, _, _, answer, _ in targets.measured(results)}
            self.assertEqual(any("AVX-512: of AVX2" in what for what in rows), isa == "avx512")
            self.assertEqual(rows["memoryless_mse, int4, groups of 128, f32, norm 2: times llm-compressor"], reached)

    def test_missed_targets_of_kept_reports_have_reasons(self):
        reports = glob.glob(os.path.join(HERE, "results", "*.md"))
        self.assertTrue(reports)
        for path in reports:
            with open(path) as file:
                rows = [[cell.strip() for cell in line.split("|")] for line in file if "**no**" in line]
            for row in rows:
                self.assertTrue(targets.reason(row[1]), row[1])
                self.assertTrue(row[6].endswith(targets.reason(row[1])), row)

    def test_notes_of_reasons_are_there(self):
        for _, _, note in targets.REASONS:
            self.assertTrue(os.path.exists(os.path.join(HERE, "notes", f"{note}.md")), note)
        self.assertEqual(targets.reason("a target of tomorrow"), "")

    def test_readme_has_rows_of_checkpoints_and_short_lines(self):
        pairs = {
            "pair/checkpoint/cat/W4A16": {"upstream": "cat", "ratio": [0.5, 0.7, 0.6]},
            "pair/checkpoint/model_free_ptq/W4A16": {"upstream": "llmcompressor 0.14.0", "ratio": [20.0, 30.0]},
            "pair/checkpoint/model-free/W4A16": {"upstream": "auto-round 0.16.1", "ratio": [28.0]},
        }
        quiet = "Nothing else ran, and the sentence is long enough to need two lines together with the others here"
        first = {"command": "scripts/bench.sh", "conditions": "Others ran", "date": "2026-01-01", "commit": "a"}
        again = {
            "command": f"scripts/bench.sh --again --conditions '{quiet}' --run-with 'chrt -r 10'",
            "conditions": quiet,
            "date": "2026-01-02",
            "commit": "b",
        }
        results = {"cpu": "A Processor", "isa": "avx2", "pairs": pairs, **first, "runs": [again]}
        lines = readme.source(results)
        self.assertLessEqual(max(map(len, lines)), 120)
        text = " ".join(lines)
        self.assertEqual((text.count(quiet), text.count("Others"), text.count("commit b")), (1, 0, 1))
        self.assertIn("`scripts/bench.sh --again --run-with 'chrt -r 10'`", text)
        found = readme.blocks(results)
        self.assertIn("| `model_free_ptq`, W4A16 | llmcompressor 0.14.0 | 25 | 20 | 30 |", found["measured"])
        self.assertIn("| model-free W4A16 | auto-round 0.16.1 | 28 | 28 | 28 |", found["measured"])
        self.assertIn("| `qobs quantize --scheme W4A16`, two threads | `cat` into a file | 0.6 | 0.5 | 0.7 |", found["measured"])


if __name__ == "__main__":
    unittest.main()
