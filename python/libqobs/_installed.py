# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Rows of architectures by the installed transformers, for models that the library does not know."""
from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

# Members of config.json that hold the language model's configuration.
LANGUAGE = ("text_config", "llm_config", "language_config", "thinker_config")


def is_known(knows: Callable[[bytes | None, bytes | None], bool], config: Any) -> bool:
    """Whether the library has rows for the model of a configuration and for its language model."""
    if not isinstance(config, dict):
        return True  # an error of the run itself
    classes = config.get("architectures")
    named = [config.get("model_type"), classes[0] if isinstance(classes, list) and classes else None]
    texts = [t.encode() if isinstance(t, str) else None for t in named]
    if any(texts) and not knows(texts[0], texts[1]):
        return False
    return all(is_known(knows, config[key]) for key in LANGUAGE if isinstance(config.get(key), dict))


def is_known_model(knows: Callable[[bytes | None, bytes | None], bool], model_dir: Any) -> bool:
    try:
        with open(os.path.join(os.fsdecode(model_dir), "config.json"), encoding="utf-8") as file:
            return is_known(knows, json.load(file))
    except (OSError, ValueError, TypeError):
        return True  # an error of the run itself


@contextlib.contextmanager
def installed_rows(knows: Callable[[bytes | None, bytes | None], bool], model_dir: Any) -> Iterator[bytes | None]:
    """A temporary file of rows for a model that the library does not know, which another process makes: it imports
    transformers. None if the library knows it, or transformers does not."""
    if is_known_model(knows, model_dir) or importlib.util.find_spec("transformers") is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="qobs-architectures-") as folder:
        path = os.path.join(folder, "rows.json")
        command = [sys.executable, "-m", "libqobs.architectures", os.fsdecode(model_dir), "-o", path, "--installed"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield os.fsencode(path) if done.returncode == 0 else None
