#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The tally of scripts/run_stages.py: logs of `meson test`, and which steps an option takes, which stages are left out.

    test_run_stages.py      ends with `N passed, N failed`; exit status 1 if any failed
"""
import json, os, sys, tempfile, threading, time

SCRIPTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "scripts")
sys.path.insert(0, SCRIPTS)
import run_stages

passed = failed = 0


def equal(got, expected, what):
    global passed, failed
    if got == expected:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {what}: got {got}, expected {expected}")


def counts(name, result, stdout):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
        test = {"name": name, "result": result, "stdout": stdout, "returncode": int(result != "OK")}
        log.write(json.dumps(test) + "\n")
        log.flush()
        return run_stages.tally(log.name)[:2]


def of_names(names, what):
    """Tests of suites `kernels`: the checker must count, others count for one."""
    checker, other = names
    equal(counts(checker, "OK", "12 passed, 0 failed\n"), (12, 0), f"{what}: the checker's count")
    equal(counts(checker, "OK", "nothing\n"), (0, 1), f"{what}: a checker without a count")
    equal(counts(checker, "FAIL", "11 passed, 1 failed\n"), (11, 1), f"{what}: a failure")
    equal(counts(other, "OK", "[  PASSED  ] 13 test(s).\n"), (1, 0), f"{what}: a test without a count")
    equal(counts(other, "FAIL", ""), (0, 1), f"{what}: one that fails")
    equal(counts(other, "SKIP", ""), (0, 0), f"{what}: one that is skipped")


def steps(*options):
    """The commands that a run with these options takes of a stage."""
    taken = []
    run = run_stages.Run({"build": {}, "environment": {}}, ["s"], [], set(options))
    run.execute = lambda stage, command, wide=False: taken.append(command) or (0, "1 passed, 0 failed")
    for command in ("a", "all b", "full c", "all wide d", "short e"):
        run.step("s", command)
    return taken


def told(*commands):
    """What a run says of these steps."""
    said = []
    run = run_stages.Run({"build": {}, "environment": {}}, ["s"], [], set())
    run.execute, run.say = lambda stage, command, wide=False: (0, "a table\n1 passed, 0 failed"), said.append
    for command in commands:
        run.step("s", command)
    return said


def beside(*commands):
    """How many of these commands, which use all processors, run at a time."""
    run = run_stages.Run({"build": {"x": {}, "y": {}}, "environment": {}}, ["s"], [], set())
    lock, now, most = threading.Lock(), 0, 0

    def execute(stage, command, wide=False):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.2)
        with lock:
            now -= 1
        return 0, "1 passed, 0 failed"

    run.execute, run.say = execute, lambda text: None
    threads = [threading.Thread(target=run.step, args=("s", f"wide {command}")) for command in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return most


def left_out(named):
    """What a run says and counts of stages whose packages cannot be installed, one directly and one by a command."""
    table = {"build": {}, "environment": {"e": {"packages": "p"}}, "command": {"c": {"needs": "e", "command": "true"}},
             "stage": {"s": {"needs": "e", "steps": "a"}, "t": {"needs": "c", "steps": "b"}, "u": {"steps": "d"}}}
    run = run_stages.Run(table, ["s", "t", "u"], named, set())
    run.execute = lambda stage, command, wide=False: (int("environment.sh" in command), "1 passed, 0 failed")
    run.say = lambda text: None
    for stage in table["stage"]:
        run.run(stage)
    return run.omitted, sum(run.passed.values()), sum(run.failed.values())


def main():
    absent = "cannot be installed here: p"
    equal(left_out([]), ({"s": absent, "t": absent}, 1, 0), "stages that are left out")
    equal(left_out(["t"]), ({"s": absent, "t": absent}, 1, 1), "one of them is named")
    of_names(("kernels+checker - qobs:kernels avx2", "kernels - qobs:code_kernels"), "Meson 1.12")
    of_names(("qobs:kernels+checker / kernels avx2", "qobs:kernels / code_kernels"), "Meson 1.0")
    equal(steps(), ["a", "e"], "steps without options")
    equal(steps("all"), ["a", "b", "d"], "steps with --all")
    equal(steps("full"), ["a", "c", "e"], "steps with --full")
    equal(told("a", "one b"), [], "steps that say nothing")
    equal(told("one tell a"), ["s:\n    a table\n    1 passed, 0 failed"], "a step that tells")
    equal(beside("a {x}", "b {x}", "c {x}/tests"), 1, "steps in one build")
    equal(beside("a {x}", "b {y}"), 2, "steps in two builds")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
