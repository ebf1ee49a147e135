#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The workflows of .github run the scripts of the tree and nothing else: stages that exist, in time, each in its job.

    test_workflows.py       needs ruamel.yaml; ends with `N passed, N failed`; exit status 1 if any failed
"""
import os
import re
import sys

from ruamel.yaml import YAML

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT + "/scripts")
import run_stages

MINUTES = 20  # of a job that a pull request waits for
OF_A_CHANGE = {"gcc", "clang", "sanitize", "races", "aarch64", "avx2", "package", "frameworks", "install", "scripts",
               "windows"}
OTHERS = re.compile(r"apt-get update && apt-get install -y [\w. -]+|git config --global --add safe.directory \S+")

passed = failed = 0


def check(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAIL {what}")


def variants(job):
    """What `${{ matrix.NAME }}` can be in a job."""
    return job.get("strategy", {}).get("matrix", {}).get("include", [{}])


def expand(text, variant):
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match: str(variant[match[1]]), text)


def commands(job):
    return [expand(step["run"], variant) for variant in variants(job) for step in job["steps"] if "run" in step]


def stages(command):
    return command.split()[1:] if command.startswith("scripts/test.sh ") else []


def of_a_change(job):
    return "pull_request" in job.get("if", "pull_request")


def check_job(name, job, known):
    check("timeout-minutes" in job, f"{name}: a job has a limit of time")
    for command in commands(job):
        script = command.split()[0]
        check(OTHERS.fullmatch(command) or os.access(f"{ROOT}/{script}", os.X_OK), f"{name}: {command}: no such script")
        check(not set(stages(command)) - known, f"{name}: {command}: no such stage")


def main():
    known, run = set(run_stages.read_table()["stage"]), []
    folder = ROOT + "/.github/workflows/"
    for file in sorted(os.listdir(folder)):
        with open(folder + file, encoding="utf-8") as text:
            workflow = YAML(typ="safe").load(text)
        for name, job in workflow["jobs"].items():
            check_job(f"{file}: {name}", job, known)
            if "pull_request" in workflow["on"] and of_a_change(job):
                check(job["timeout-minutes"] <= MINUTES, f"{file}: {name}: at most {MINUTES} minutes")
                run += [stage for command in commands(job) for stage in stages(command)]
    check(OF_A_CHANGE <= set(run), f"a change runs {' '.join(sorted(OF_A_CHANGE - set(run)))}, too")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
