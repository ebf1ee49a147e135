# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Importing the package changes nothing else; a drop-in that waits for its framework can be taken back."""
import subprocess
import sys

import pytest

#: what other packages share, before and after
SHARED = """
import signal, sys, threading, warnings
def shared():
    return (list(sys.meta_path), list(sys.path_hooks), list(sys.path), list(warnings.filters), sys.excepthook,
            threading.active_count(), [signal.getsignal(n) for n in (2, 7, 11, 15)])
"""
OTHERS = "numpy torch ml_dtypes onnxruntime transformers llmcompressor modelopt quark torchao pytest qobs".split()
MODULES = ["libqobs", "libqobs.architectures", "libqobs.distributed", "libqobs.dropin", "libqobs.llmcompressor",
           "libqobs.modelopt", "libqobs.onnxruntime", "libqobs.pytest", "libqobs.quark", "libqobs.record",
           "libqobs.torch_ao"]


def run(code):
    done = subprocess.run([sys.executable, "-c", SHARED + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", MODULES)
def test_import_changes_nothing(name):
    assert run(f"before = shared()\nimport {name}\nassert shared() == before\n"
               f"print([m for m in {OTHERS} if m in sys.modules])") == "[]\n"


def test_drop_in_waits_until_it_is_taken_back():
    run("""
import libqobs.dropin
before = shared()
libqobs.dropin.install()
libqobs.dropin.install(["quark"])
assert len(sys.meta_path) == len(before[0]) + 1
libqobs.dropin.uninstall()
assert shared() == before
libqobs.dropin.uninstall()
assert shared() == before
""")


def test_drop_in_that_does_not_exist():
    run("""
import libqobs.dropin
before = shared()
try:
    libqobs.dropin.install(["quark", "nothing"])
    raise SystemExit("no error")
except ValueError as e:
    assert "nothing is no drop-in" in str(e)
assert shared() == before
""")


def test_taken_back_after_the_import():
    pytest.importorskip("torch")
    run("""
import libqobs.dropin
libqobs.dropin.install(["torch_ao"])
import torch
from torch.ao.quantization import MinMaxObserver
assert hasattr(MinMaxObserver.forward, "__qobs_original__")
libqobs.dropin.uninstall()
assert not hasattr(MinMaxObserver.forward, "__qobs_original__")
assert not any(type(f).__module__.startswith("libqobs") for f in sys.meta_path)
""")


def test_pytest_loads_nothing_of_the_package(tmp_path):
    seen = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--trace-config", "--co",
                           str(tmp_path)],
                          capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "PLUGIN registered" in seen.stdout and "libqobs" not in seen.stdout
    helped = subprocess.run([sys.executable, "-m", "pytest", "-p", "libqobs.pytest", "--help"], capture_output=True,
                            text=True,
                            check=True, cwd=tmp_path)
    assert "--qobs-strict" in helped.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_handle_bus_errors_installs_a_handler_once_it_is_called():
    run("""
import signal
import libqobs
def caught():
    with open("/proc/self/status") as f:
        return bool(int(dict(line.split(":", 1) for line in f)["SigCgt"], 16) >> (signal.SIGBUS - 1) & 1)
before = caught()
libqobs.handle_bus_errors()
libqobs.handle_bus_errors()
assert (before, caught()) == (False, True)
""")
