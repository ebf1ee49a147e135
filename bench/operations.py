#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Counts the vector operations of kernels: steps through one call, instruction by instruction. Linux, x86-64.

    operations.py BENCH_QOBS [WORK...]

Prints the rows of operations.cc. An operation is an instruction with vectors or masks that is no move, load or store.
"""

import collections
import ctypes
import functools
import json
import os
import re
import signal
import subprocess
import sys

ISAS = ("avx2", "avx512")
LAYOUTS = ("row", "channel-4096", "group-128", "group-32", "block-128x128", "head-128", "columns", "g_idx-128")
WORKS = (
    [f"minmax/{dtype}/{layout}" for dtype in ("f32", "bf16") for layout in LAYOUTS]
    + [f"codes/bf16/{kind}" for kind in ("int4-group-128", "fp8-channel", "nvfp4-group-16")]
    + [
        f"dynamic/bf16/{kind}"
        for kind in ("int8-token", "int8-asymmetric-token", "fp8-token", "fp8-group-128", "mxfp8", "mxfp4", "nvfp4")
    ]
)
MOVES = re.compile(r"vmov(?!s[hl]dup|ddup|msk)|vp?broadcast.*\(|vzero|vpmovm2|kmov|prefetch")
TRACE_ME, PEEK_USER, CONTINUE, KILL, STEP = 0, 3, 7, 8, 9
RIP = 16 * 8


@functools.cache
def library():
    loaded = ctypes.CDLL(None)
    loaded.ptrace.restype = ctypes.c_long
    return loaded


def ptrace(request, pid, address=None):
    return library().ptrace(ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_void_p(address), None)


def wait_for_signal(pid):
    while os.WSTOPSIG(os.waitpid(pid, 0)[1]) != signal.SIGUSR1:
        ptrace(CONTINUE, pid)


def stepped(command):
    """Returns how often each address of the program was executed between two signals, from the start of its file."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        ptrace(TRACE_ME, 0)
        os.execv(command[0], command)
    wait_for_signal(pid)
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        maps = [line.split() for line in file if line.rstrip().endswith(os.path.basename(command[0]))]
    first, last = (int(m.split("-")[i], 16) for m, i in ((maps[0][0], 0), (maps[-1][0], 1)))
    counts = collections.Counter()
    while True:
        ptrace(STEP, pid)
        if os.WSTOPSIG(os.waitpid(pid, 0)[1]) == signal.SIGUSR1:
            break
        at = ptrace(PEEK_USER, pid, RIP)
        if first <= at < last:
            counts[at - first] += 1
    ptrace(KILL, pid)
    os.waitpid(pid, 0)
    return counts


def vector_operations(program):
    """Returns the addresses of vector operations of the program."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", program], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    found = set()
    for line in text.splitlines():
        match = re.match(r" *([0-9a-f]+):\s+(\S.*)", line)
        if match and re.search(r"%[xyz]mm|%k[0-7]", match[2]) and not MOVES.match(match[2]):
            found.add(int(match[1], 16))
    return found


def kilobytes(command, dtype):
    """Returns how many KB a call reads."""
    options = ["--benchmark_format=json", "--benchmark_min_time=0.001"]
    done = subprocess.run(command + options, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    benchmark = json.loads(done.stdout)["benchmarks"][0]
    return benchmark["items_per_second"] * benchmark["cpu_time"] * 1e-9 * (4 if dtype == "f32" else 2) / 1024


def main():
    program = os.path.abspath(sys.argv[1])
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # both take turns on one processor
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # inherited: who does not step runs on
    operations = vector_operations(program)
    for work in sys.argv[2:] or WORKS:
        family, dtype, kind = work.split("/")
        figures = []
        for isa in ISAS:
            name = f"{family}/{isa}/{dtype}/{kind}" + ("" if family == "codes" else "/L2")
            command = [program, f"--benchmark_filter=^{name}$", "--step"]
            total = sum(n for at, n in stepped(command).items() if at in operations)
            figures.append(round(total / kilobytes(command, dtype)))
        print(f'    {{"{work}", {", ".join(map(str, figures))}}},', flush=True)


if __name__ == "__main__":
    main()
