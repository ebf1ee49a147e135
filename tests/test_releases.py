#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""scripts/compare-releases.sh on a copy of the tree: two builds of one commit have the same interface. A member that
changes its type and a member between others are found. Needs git, meson and abidiff; without abidiff the exit status is
77."""
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = "scripts/compare-releases.sh"
# A part of libqobs has all of its functions and structures, and is built in seconds.
OPTIONS = ["-Dcheckpoint_library=disabled", "-Dfamilies=llmc", "-Dfeatures="]
HEADER = "include/qobs/qobs.h"
CHANGES = {
    "a member of another type": ("    uint64_t nan; ", "    uint32_t nan; ", r"type of '.*nan' changed|'uint64_t nan'"),
    "a member between others": ("    uint64_t inf; ", "    uint64_t between;\n    uint64_t inf; ",
                                r"'uint64_t between'"),
}


class Releases(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.tree = Path(self.directory.name) / "qobs"
        tracked = self.run_in(ROOT, "git", "ls-files", "-z").stdout.split("\0")
        for name in filter(None, tracked):
            if not name.startswith(("tests/golden/", "tests/fixtures/", "bench/results/")) and (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.tree / name)
        self.run_in(self.tree, "git", "init", "-q")
        self.commit()

    def run_in(self, where, *command, status=0):
        done = subprocess.run(command, cwd=where, text=True, capture_output=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def commit(self):
        self.run_in(self.tree, "git", "add", "-A")
        self.run_in(self.tree, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "change")

    def test_one_commit(self):
        report = self.run_in(self.tree, SCRIPT, *OPTIONS, "HEAD", "HEAD").stdout
        self.assertEqual(report, "libqobs: the same interface\n")

    def test_changes(self):
        header = self.tree / HEADER
        before = header.read_text(encoding="utf-8")
        text = before
        for old, new, _ in CHANGES.values():
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        header.write_text(text, encoding="utf-8")
        report = self.run_in(self.tree, SCRIPT, *OPTIONS, "HEAD", status=1).stdout
        self.assertIn("libqobs: the interface differs", report)
        for name, (_, _, found) in CHANGES.items():
            self.assertTrue(re.search(found, report), f"{name} is not in\n{report}")

    def test_no_commit(self):
        self.assertIn("no-such-tag: no commit", self.run_in(self.tree, SCRIPT, "no-such-tag", status=2).stderr)


if __name__ == "__main__":
    if not shutil.which("abidiff"):
        print("skipped: there is no abidiff (apt-get install abigail-tools)")
        sys.exit(77)
    unittest.main(verbosity=2)
