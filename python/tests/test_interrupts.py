# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Signals while the library runs: what their handlers raise reaches the caller, whichever Python code they meet."""
import signal
import subprocess
import sys

import pytest

pytest.importorskip("numpy")

# A model of many layers in a directory, and a signal after a while.
BEGIN = """
import json, os, signal, struct, sys, threading, time
import numpy as np
import libqobs as qobs
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background with it ignored
at = sys.argv[1]
header, data = {}, b""
for i in range(24):
    raw = np.random.default_rng(i).standard_normal((512, 512), dtype=np.float32).tobytes()
    header[f"model.layers.{i}.mlp.down_proj.weight"] = {"dtype": "F32", "shape": [512, 512],
                                                         "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
os.makedirs(at + "/m", exist_ok=True)
with open(at + "/m/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(json.dumps(header))) + json.dumps(header).encode() + data)
with open(at + "/m/config.json", "w") as file:
    file.write('{"model_type": "llama"}')
def later(seconds, number=signal.SIGINT):
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()
"""
CALLS = {
    "quantize": "qobs.quantize(at + '/m', at + '/o', 'W4A16', preset='llmc.memoryless_mse', threads={}, replace=True)",
    "progress": "qobs.quantize(at + '/m', at + '/o', 'W4A16', preset='llmc.memoryless_mse', threads={}, replace=True, "
                "progress=lambda p: None)",
    "calibrate": "qobs.calibrate_checkpoint(at + '/m', at + '/s', 'W4A16', presets='llmc.memoryless_mse', threads={})",
    "plan": "qobs.plan(at + '/m', ['W4A16', 'W8A16'], threads={})",
}


def run(code, at):
    done = subprocess.run([sys.executable, "-c", BEGIN + code, str(at)], capture_output=True, text=True, timeout=300)
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_is_keyboard_interrupt(name, threads, tmp_path):
    out, error = run(f"""
for _ in range(6):
    later(.05 + .01 * _)
    try:
        while True:
            {CALLS[name].format(threads)}
    except BaseException as failure:
        print(type(failure).__name__, flush=True)
print(sorted(name for name in os.listdir(at) if "unfinished" in name or ".tmp" in name))
""", tmp_path)
    assert out.split("\n") == ["KeyboardInterrupt"] * 6 + ["[]"] and "ignored" not in error.lower(), (out, error)


def test_handlers_of_all_signals(tmp_path):
    """One that raises stops the run; one that does not is called while it goes on."""
    out, error = run("""
seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
def stop(number, frame):
    raise TimeoutError(number)
signal.signal(signal.SIGALRM, stop)
later(.05, signal.SIGUSR1)
later(.3, signal.SIGALRM)
try:
    while True:
        qobs.quantize(at + "/m", at + "/o", "W4A16", preset="llmc.memoryless_mse", replace=True)
except TimeoutError as failure:
    print(failure, seen)
print(signal.getsignal(signal.SIGALRM) is stop, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
""", tmp_path)
    assert out.split("\n") == [f"{signal.SIGALRM:d} [{signal.SIGUSR1:d}]", "True True"] and not error, (out, error)


def test_threads_of_one_call_lose_no_task(tmp_path):
    """A signal within a call of several threads changes none of its results, which the state keeps."""
    out, error = run("""
x = np.random.default_rng(0).standard_normal((512, 4096), dtype=np.float32)
PRESET = "llmc.minmax strategy=channel base_name=weight"
wanted = qobs.Observer(PRESET).observe(x).scale
def fail(number, frame):
    seen.append(number)
    raise ZeroDivisionError
signal.signal(signal.SIGALRM, fail)
qobs.set_threads(4)
seen, raised = [], 0
for i in range(200):
    observer = qobs.Observer(PRESET)
    try:
        signal.setitimer(signal.ITIMER_REAL, .0001 * (1 + i % 20))  # an exception may break threading.Timer.start
        while len(seen) == i:  # Python loses an exception that meets a finalizer
            observer.reset()
            observer.observe(x)
    except ZeroDivisionError:
        raised += 1
    if observer.counts().batches and not np.array_equal(observer.scale, wanted):
        print("wrong scales")
print(raised > 150)
""", tmp_path)
    assert out == "True" and not error, (out, error)
