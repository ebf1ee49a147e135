# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""What to observe while a model runs: a scheme by name, a quantization_config, or a recipe of llm-compressor."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _library as c
from ._arguments import entries, shown, wrong_kind
from ._schemes import INPUTS, WEIGHTS
from ._suggest import nearest

_MEMBERS = ("num_bits", "type", "symmetric", "strategy", "group_size", "block_structure", "scale_dtype", "zp_dtype")


class Group(NamedTuple):
    """Layers of one scheme. weights and inputs: settings of observers; None: they are not quantized, or need no stored
    scales."""

    targets: list[str]
    weights: str | None
    inputs: str | None


class Described(NamedTuple):
    """options: the argument of quantize that says the same; label: its name in errors; by_name: a scheme by name."""

    label: str
    options: dict[str, Any]
    groups: list[Group]
    ignore: list[str]
    kv_cache: bool
    by_name: bool


def describe(scheme: Any, config: Any, recipe: Any, targets: Any) -> Described:
    """One of three arguments. scheme and config take what the other takes, too; without any it is "FP8". targets: of a
    scheme by name. Errors: InvalidArgumentError, TypeError; they name the argument."""
    given = [(name, value) for name, value in (("scheme", scheme), ("config", config), ("recipe", recipe))
             if value is not None]
    if len(given) > 1:
        raise c.InvalidArgumentError(f"{given[0][0]}, {given[1][0]}: only one of them may be given")
    name, value = given[0] if given else ("scheme", "FP8")
    if not isinstance(value, (str, os.PathLike, Mapping)):
        raise wrong_kind(value, name, "the name of a scheme, a dictionary, or the path of a configuration or recipe")
    if name != "recipe" and isinstance(value, str) and not _is_text(value):
        return _scheme(value, name, targets)
    if targets is not None:
        raise c.InvalidArgumentError(f"targets: are those of the {name}; only the name of a scheme takes others")
    tree = value if isinstance(value, Mapping) else _tree(value, name)
    own = tree.get("quantization_config", tree)  # of a whole config.json
    is_config = isinstance(own, Mapping) and ("config_groups" in own or "quant_method" in own) and name != "recipe"
    if not is_config:
        return _recipe(tree, value, name)
    config = value if own is tree else own
    return _described(name, {"config": config}, [own])


def _is_text(value: str) -> bool:
    """A text of several lines, or a path, but no name of a scheme."""
    return "\n" in value or os.sep in value or value.lower().endswith((".json", ".yaml", ".yml"))


def _scheme(value: str, name: str, targets: Any) -> Described:
    scheme = value.upper()
    if scheme not in WEIGHTS:
        near = nearest(value, WEIGHTS)
        hint = f"; did you mean {near!r}?" if near else ""
        raise c.InvalidArgumentError(f"{name}: {shown(value)} is unknown; known are {', '.join(WEIGHTS)}{hint}")
    group = Group(entries(targets, "targets") if targets is not None else ["Linear"], WEIGHTS[scheme],
                  INPUTS.get(scheme))
    return Described(f"{name}: {value!r}", {"scheme": scheme}, [group], ["lm_head"], False, True)


def _tree(value: Any, name: str) -> Mapping[str, Any]:
    """The tree in a text of several lines or a file: JSON, or YAML if PyYAML is there."""
    text = value
    if not isinstance(value, str) or "\n" not in value:
        try:
            with open(value, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as failure:
            reason = getattr(failure, "strerror", None) or "is no text in UTF-8"
            raise c.InvalidArgumentError(f"{name}: {os.fspath(value)}: {reason}") from None
    try:
        tree = json.loads(text)
    except ValueError:
        tree = _yaml(text, name)
    if not isinstance(tree, Mapping):
        raise c.InvalidArgumentError(f"{name}: is neither a configuration nor a recipe, but {type(tree).__name__}")
    return tree


def _yaml(text: str, name: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise c.InvalidArgumentError(f"{name}: is no JSON; YAML needs PyYAML: pip install pyyaml") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as failure:
        raise c.InvalidArgumentError(f"{name}: cannot be read as YAML: {' '.join(str(failure).split())}") from None


def _recipe(tree: Mapping[str, Any], value: Any, name: str) -> Described:
    modifiers = list(_modifiers(tree))
    if not modifiers:
        raise c.InvalidArgumentError(f"{name}: has neither config_groups nor a QuantizationModifier")
    return _described(name, {"recipe": value}, modifiers)


def _modifiers(tree: Any) -> Any:
    """The members of each QuantizationModifier, at any level; quantize refuses other modifiers."""
    if isinstance(tree, list):
        for item in tree:
            yield from _modifiers(item)
    if isinstance(tree, Mapping):
        for key, item in tree.items():
            if key == "QuantizationModifier" and isinstance(item, Mapping):
                yield item
            else:
                yield from _modifiers(item)


def _described(name: str, options: dict[str, Any], parts: list[Mapping[str, Any]]) -> Described:
    groups = [group for part in parts for group in _groups(part, name)]
    ignore = [entry for part in parts for entry in entries(part.get("ignore"), f"{name}: ignore")]
    kv_cache = any(part.get("kv_cache_scheme") is not None for part in parts)
    if not groups and not kv_cache:
        raise c.InvalidArgumentError(f"{name}: has no group, scheme or kv_cache_scheme")
    return Described(name, options, groups, ignore, kv_cache, False)


def _groups(part: Mapping[str, Any], name: str) -> list[Group]:
    found = []
    for key, group in _members(part.get("config_groups"), f"{name}: config_groups").items():
        if isinstance(group, Mapping):
            where = f"{name}: {key}"
            found.append(Group(entries(group.get("targets"), f"{where}: targets"),
                               _settings(group.get("weights"), f"{where}: weights"),
                               _inputs(group.get("input_activations"), f"{where}: input_activations")))
        else:
            found.append(_preset(key, group, name))
    scheme = part.get("scheme")
    if isinstance(scheme, str):
        found.append(_preset(scheme, part.get("targets") or ["Linear"], name))
    else:
        found += [_preset(key, targets, name) for key, targets in _members(scheme, f"{name}: scheme").items()]
    return found


def _members(value: Any, where: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise wrong_kind(value, where, "a dictionary")
    return value or {}


def _preset(scheme: str, targets: Any, name: str) -> Group:
    return _scheme(scheme, f"{name}: scheme", targets).groups[0]


def _inputs(args: Any, where: str) -> str | None:
    """Settings of the observer of inputs, if their scales are stored."""
    dynamic = _members(args, where).get("dynamic")
    if not args or dynamic is True:
        return None
    return f"{_settings(args, where)}{' dynamic=local' if dynamic == 'local' else ''}"


def _settings(args: Any, where: str) -> str | None:
    """QuantizationArgs as settings of an observer. Without a strategy group_size decides."""
    if not _members(args, where):
        return None
    known = {key: args[key] for key in _MEMBERS if args.get(key) is not None}
    size = known.get("group_size")
    known.setdefault("strategy", "tensor" if size is None else "channel" if size == -1 else "group")
    if size == -1:
        known.pop("group_size")
    return " ".join(f"{key}={_text(value)}" for key, value in known.items())


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(str, value))}]"
    word = str(getattr(value, "value", value))  # enumerations of compressed-tensors
    return word.lower() if isinstance(value, bool) else word.removeprefix("torch.")
