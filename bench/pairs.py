# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Two functions in turns, theirs and ours, and a file of their ratios for collect.py."""

import importlib.metadata
import json
import os
import re
import time


def installed(package):
    """Returns "PACKAGE VERSION", or None if it is not installed. Build tags such as +cpu are left out."""
    try:
        return f"{package} {importlib.metadata.version(package).partition('+')[0]}"
    except importlib.metadata.PackageNotFoundError:
        return None


def seconds(function):
    """The processor time of a call on this thread, which other programs hardly change."""
    begin = time.thread_time()
    function()
    return time.thread_time() - begin


class Pairs:
    """Pairs of one run. repetitions: turns of each pair; only: a regular expression of names."""

    def __init__(self, arguments):
        self.repetitions, self.only, self.out = arguments.repetitions, arguments.only, arguments.out
        self.pairs, self.values = {}, {}

    @staticmethod
    def add_arguments(parser, repetitions):
        parser.add_argument("out", help="the file of results (JSON)")
        parser.add_argument("--repetitions", type=int, default=repetitions, help="turns of each pair (%(default)s)")
        parser.add_argument("--only", default=".", help="regular expression of the names to run")

    def wanted(self, name):
        return re.search(self.only, name)

    def turns(self, name, upstream, theirs, ours, work=1, their_work=None, repetitions=None, timer=seconds):
        """Measures in turns. work: what one call does, in elements or in elements times candidates; their_work: the
        same of a call of theirs, if it differs. upstream: what theirs is, with its version."""
        if not self.wanted(name):
            return
        share = (their_work or work) / work
        timer(ours)
        times = [(timer(theirs) / share, timer(ours)) for _ in range(repetitions or self.repetitions)]
        self.add(name, upstream, times, work)

    def add(self, name, upstream, times, work=1):
        """times: seconds of theirs and of ours for the same work, a pair for each turn."""
        self.pairs[f"pair/{name}"] = {
            "upstream": upstream,
            "ratio": [t / o for t, o in times],
            "speed": [work / o for _, o in times],
            "other_speed": [work / t for t, _ in times],
        }
        t, o = (sorted(side)[len(times) // 2] for side in zip(*times))
        ratios = sorted(t / o for t, o in times)
        print(
            f"{name:52} {t * 1e3:10.2f} ms {o * 1e3:9.3f} ms {ratios[len(ratios) // 2]:8.1f} "
            f"({ratios[0]:.1f} to {ratios[-1]:.1f}) {upstream}",
            flush=True,
        )

    def write(self, **more):
        with open(self.out + ".part", "w", encoding="utf-8") as out:
            json.dump(more | {"pairs": self.pairs, "values": self.values}, out)
        os.replace(self.out + ".part", self.out)
