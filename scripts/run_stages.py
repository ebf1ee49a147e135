#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Runs stages of scripts/test.sh, as stages.ini says.

    run_stages.py --help
    run_stages.py [--all] [--full] [STAGE]...

Stages run beside each other. Two steps at a time may use all processors: builds and `meson test`. One fills what the
end of the other leaves. Steps of one thread, such as the installation of packages, run beside them. Ends with "N
passed, N failed".
"""
import configparser
import contextlib
import glob
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter, defaultdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOP = "build-test"
# They emulate or build from there.
X86_64 = {"avx2", "emulate", "aarch64", "aarch64-wheel", "cpus", "portable", "release", "windows"}
SUMMARY = re.compile(r"(\d+) passed, (\d+) failed")
AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


def last_line(output):
    """What the last line says has passed and failed; None without such a line."""
    # A library may write something at the exit of the process, as gRPC does; the exit status counts beside the tally.
    found = (SUMMARY.fullmatch(line) for line in output.rstrip().splitlines()[:-4:-1])
    match = next(filter(None, found), None)
    return (int(match[1]), int(match[2])) if match else None


def tally(path):
    """What the tests of a log of `meson test` say, and the output of those that failed. A test without a summary counts
    for one; a run of the kernel checker must have one. Whatever contradicts itself has failed."""
    passed, failed, told = 0, 0, []
    with open(path, encoding="utf-8") as log:
        tests = [json.loads(line) for line in log]
    for test in tests:
        if test["result"] == "SKIP":
            told.append(f"skipped: {test['name']}")
            continue
        said = last_line(test.get("stdout", ""))
        name = re.split(r":| / ", test["name"])[-1]  # "SUITES - qobs:NAME"; of older Meson "qobs:SUITES / NAME"
        good = test["result"] in ("OK", "EXPECTEDFAIL") and (said or not name.startswith("kernels "))
        p, f = said or (int(bool(good)), 0)
        passed, failed = passed + p, failed + (f if good else max(f, 1))
        if f or not good:
            lines = (test.get("stdout", "") + test.get("stderr", "")).rstrip().splitlines()[-60:]
            told += [f"{test['result']} (status {test['returncode']}): {test['name']}", *lines]
    return passed, failed, "\n".join(told)


def read_table():
    """Sections by their kind and name."""
    table = {"build": {}, "environment": {}, "command": {}, "stage": {}}
    parser = configparser.ConfigParser(interpolation=None)
    with open(f"{ROOT}/scripts/stages.ini", encoding="utf-8") as file:
        parser.read_file(file)
    for section in parser.sections():
        kind, name = section.split()
        table[kind][name] = parser[section]
    return table


class Run:
    def __init__(self, table, stages, named, options):
        self.table, self.stages, self.named, self.options, self.begin = table, stages, named, options, time.time()
        self.left, self.absent, self.omitted = list(stages), {}, {}
        self.passed, self.failed, self.used, self.seconds = Counter(), Counter(), Counter(), {}
        self.lock, self.locks, self.there = threading.Lock(), defaultdict(threading.Lock), {}
        self.processors, self.processor = threading.Semaphore(2), threading.Semaphore(os.cpu_count() or 1)

    def say(self, text):
        with self.lock:
            print(f"[{time.time() - self.begin:4.0f} s] {text}", flush=True)

    def execute(self, stage, command, wide=False):
        """Status and output of a command of bash."""
        with self.processors if wide else self.processor:
            self.say(f"{stage}: {textwrap.shorten(command, 100)}")
            with subprocess.Popen(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace") as process:
                output = process.stdout.read()
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
        with self.lock, open(f"{TOP}/{stage}.log", "a", encoding="utf-8") as log:
            log.write(f"$ {command}\n{output}\n")
            self.used[stage] += used.ru_utime + used.ru_stime
        return process.returncode, output

    def count(self, stage, passed, failed, command, output):
        with self.lock:
            self.passed[stage] += passed
            self.failed[stage] += failed
        if failed:
            lines = [line for line in output.rstrip().splitlines() if not re.match(r"\[\d+/\d+\]", line)]  # of ninja
            self.say("\n    ".join([f"{stage}: FAILED: {command}", *lines[-100:]]))
        for line in re.findall(r"^(?:skipped|left out): .*", output, re.M):
            self.say(f"{stage}: {line}")

    def need(self, stage, name):
        """True if it is there. The first stage that needs it makes it, others wait meanwhile."""
        with self.locks[name]:
            if name not in self.there:
                self.there[name] = self.make(stage, name)
        return self.there[name]

    def make(self, stage, name):
        build, table = name.rstrip("/"), self.table
        if name in table["environment"]:
            packages = table["environment"][name]["packages"]
            good = self.execute(stage, f"scripts/environment.sh {TOP}/{name} {packages}")[0] == 0
            if not good:
                self.absent[name] = f"cannot be installed here: {packages}"
            return good
        if name == "packages":
            options = {word for s in self.stages for word in table["stage"][s].get("install", "").split()}
            command = f"scripts/setup.sh {' '.join(sorted(options))}"
        elif name in table["command"]:
            command = self.expand(table["command"][name]["command"])
            needs = table["command"][name]["needs"].split()
            if not all(self.need(stage, n) for n in needs):
                self.absent.update({name: self.absent[n] for n in needs if n in self.absent})
                return False
        elif name == build:
            command = f"ninja -C {TOP}/{build}"
            if not self.need(stage, build + "/"):
                return False
        else:
            words = shlex.split(self.expand(table["build"][build]["options"]))
            variables = [word for word in words if re.match("[A-Z]+=", word)]
            again = ["--reconfigure"] if os.path.exists(f"{TOP}/{build}/build.ninja") else []
            meson = [*variables, "meson", "setup", *again, f"{TOP}/{build}", *words[len(variables):]]
            command = shlex.join(["env", *meson])
        # The wheel does not wait for its turn: the longest stage of one thread begins with it.
        status, output = self.execute(stage, command, name != "packages" and name not in table["command"])
        if status:
            self.count(stage, 0, 1, command, output)
        return status == 0 or name == "packages"  # what lacks a package says so itself

    def expand(self, text):
        names = {"top": TOP, "root": ROOT, "python": "/usr/bin/python3"}
        names.update({name: f"{TOP}/{name}" for kind in ["build", "environment"] for name in self.table[kind]})
        return re.sub(r"\{([\w-]+)\}", lambda match: names[match[1]], text)

    def step(self, stage, command):
        words, command = set(), self.expand(command)
        while match := re.match(r"(short|all|full|wide|one|tell) ", command):
            words.add(match[1])
            command = command[match.end():]
        if words & {"all", "full"} - self.options or ("short" in words and "all" in self.options):
            return
        tests = re.match(r"((?:\w+=\S+ )*)tests (\w+)(.*)", command)
        if tests:
            log = f"{TOP}/{tests[2]}/meson-logs/{stage}"
            for path in glob.glob(log + "*"):
                os.remove(path)
            command = f"{tests[1]}meson test -C {TOP}/{tests[2]} --logbase {stage}{tests[3]}"
        wide = bool(tests or "wide" in words)
        builds = set(re.findall(rf"{TOP}/([\w-]+)", command)) & set(self.table["build"]) if wide else set()
        with contextlib.ExitStack() as held:  # no two of them in one build: each may build
            for build in sorted(builds):
                held.enter_context(self.locks[f"{TOP}/{build}"])
            status, output = self.execute(stage, command, wide)
        said = last_line(output) or (0, 1)
        if "tell" in words:
            self.say("\n    ".join([f"{stage}:", *output.rstrip().splitlines()]))
        if "one" in words:
            said = (1, 0) if status == 0 else (0, 1)
        if tests and glob.glob(log + "*.json"):
            *said, output = tally(*glob.glob(log + "*.json"))
        self.count(stage, said[0], max(said[1], int(status != 0)), command, output)

    def why_not(self, stage):
        if platform.machine() != "x86_64" and stage in X86_64:
            return "it emulates from x86-64"
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            needless = AVX512 <= set(info.read().split()) and "full" not in self.options and stage not in self.named
            if stage == "emulate" and needless:
                return "this CPU has AVX-512"
        return None

    def run(self, stage):
        begin, row = time.time(), self.table["stage"][stage]
        if os.path.exists(f"{TOP}/{stage}.log"):
            os.remove(f"{TOP}/{stage}.log")
        reason, needs = self.why_not(stage), ["packages"] * ("install" in row) + row.get("needs", "").split()
        if not reason and all(self.need(stage, name) for name in needs):
            for step in row["steps"].replace("\\\n", "").strip().splitlines():
                self.step(stage, step)
        reason = reason or next((self.absent[name] for name in needs if name in self.absent), None)
        if reason:
            self.omitted[stage] = reason
            self.say(f"{stage}: left out: {reason}")
            self.count(stage, 0, int(stage in self.named), stage, reason)  # who names a stage wants its tests
        self.seconds[stage] = time.time() - begin
        self.left.remove(stage)
        self.say(f"{self.line(stage)}; left: {' '.join(self.left) or 'nothing'}")

    def line(self, name):
        return (f"{name}: {self.passed[name]} passed, {self.failed[name]} failed, {self.seconds[name]:.0f} s, "
                f"{self.used[name]:.0f} s of processors")


def main():
    options, named = {a for a in sys.argv[1:] if a.startswith("-")}, [a for a in sys.argv[1:] if not a.startswith("-")]
    table = read_table()
    rows = table["stage"]
    if options - {"--all", "--full"} or set(named) - set(rows):
        for kind, text in {"default": "without a STAGE", "all": "also with --all", "named": "by name only"}.items():
            lines = [f"  {name:15} {row['help']}" for name, row in rows.items() if row["when"] == kind]
            print("\n".join([f"{text}:", *lines]))
        return 0 if "--help" in options else 2
    kinds = {"default", "all"} if "--all" in options else set() if named else {"default"}
    stages = [name for name, row in rows.items() if row["when"] in kinds or name in named]
    os.chdir(ROOT)
    os.makedirs(TOP, exist_ok=True)
    run = Run(table, stages, named, {option.strip("-") for option in options})
    threads = [threading.Thread(target=run.run, args=[stage]) for stage in stages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n" + "\n".join(run.line(stage) for stage in stages))
    print(f"in all {time.time() - run.begin:.0f} s, {sum(run.used.values()):.0f} s of processors; logs are {TOP}/*.log")
    for stage, reason in run.omitted.items():
        print(f"left out: {stage}: {reason}")
    passed, failed = sum(run.passed.values()), sum(run.failed.values())
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
