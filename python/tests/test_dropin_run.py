# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""python -m libqobs.dropin and pytest -p libqobs.pytest, with a framework that the test makes."""
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
SCRIPT = """
import sys
import torch
from torch.ao.quantization import MinMaxObserver
import torch.ao.quantization.observer as module

print(sys.argv, __name__, hasattr(MinMaxObserver.forward, "__qobs_original__"), module.__loader__.__class__.__name__)
MinMaxObserver()(torch.zeros(1 << 17))
MinMaxObserver()(torch.zeros(7))
"""


def run(*arguments, folder):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder, check=False,
                          env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")})


def test_script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    plain = run("script.py", "a", "--calls", folder=tmp_path)
    assert plain.stdout.split() == ["['script.py',", "'a',", "'--calls']", "__main__", "False", "SourceFileLoader"]
    done = run("-m", "libqobs.dropin", "--calls", "--strict", "script.py", "a", "--calls", folder=tmp_path)
    assert done.stdout == plain.stdout.replace("False", "True"), done.stderr
    assert "1 torch.ao.MinMaxObserver\n" in done.stderr and "1 torch.ao.MinMaxObserver declined\n" in done.stderr
    module = run("-m", "libqobs.dropin", "--only", "torch_ao", "-m", "script", folder=tmp_path)
    assert "True" in module.stdout and not module.stderr, module.stderr
    other = run("-m", "libqobs.dropin", "--only", "quark", "script.py", folder=tmp_path)
    assert "False" in other.stdout
    wrong = run("-m", "libqobs.dropin", "--only", "nothing", "script.py", folder=tmp_path)
    assert wrong.returncode == 2 and "nothing is no drop-in" in wrong.stderr


def test_script_that_fails(tmp_path):
    (tmp_path / "script.py").write_text("raise SystemExit(3)")
    assert run("-m", "libqobs.dropin", "script.py", folder=tmp_path).returncode == 3


@pytest.mark.parametrize("option", ["", "--qobs", "--qobs-strict"])
def test_plugin(tmp_path, option):
    (tmp_path / "test_script.py").write_text(f"def test():\n{SCRIPT.replace(chr(10), chr(10) + '    ')}")
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "libqobs.pytest", *([option] if option else []),
               folder=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert ("2 torch.ao.MinMaxObserver\n" in done.stdout) == bool(option)
