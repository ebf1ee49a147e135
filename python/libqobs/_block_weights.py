# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Matrices of a block: where they are in the parameters of the model, and what their inputs are. Experts of
transformers 5 are parts of one parameter."""
from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ._hooks import Expert


class Place(NamedTuple):
    """The matrix of a layer in a parameter. expert: -1 for a layer whose parameter it is."""

    module: Any
    parameter: str
    expert: int
    part: str

    @property
    def key(self) -> tuple[int, str]:
        """The parameter."""
        return id(self.module), self.parameter

    def of(self, parameter: Any) -> Any:
        """A view of the matrix, rows x columns, in a tensor of the parameter's shape."""
        if self.expert < 0:
            return parameter
        stack = parameter[self.expert].T if self.module.is_transposed else parameter[self.expert]
        if self.parameter != "gate_up_proj":
            return stack
        second = self.part == "up_proj"
        if not self.module.is_concatenated:
            return stack[int(second)::2]
        half = stack.shape[0] // 2
        return stack[half:] if second else stack[:half]

    @property
    def weight(self) -> Any:
        """The matrix of the weights in use."""
        return self.of(getattr(self.module, self.parameter).data)


def place_of(layer: Any) -> Place:
    """The place of a linear layer, or of a matrix of an expert."""
    if not isinstance(layer, Expert):
        return Place(layer, "weight", -1, "")
    stacked = "gate_up_proj" if layer.module.has_gate else "up_proj"
    return Place(layer.module, "down_proj" if layer.part == "down_proj" else stacked, layer.expert, layer.part)


class Group(NamedTuple):
    """Layers with the same input, by name in the files."""

    places: dict[str, Place]

    @property
    def first(self) -> Place:
        return next(iter(self.places.values()))

    @property
    def columns(self) -> int:
        return int(self.first.weight.shape[1])


class Stage(NamedTuple):
    """Groups whose inputs are known before the call of a module: one group, or those of its experts."""

    groups: list[Group]

    @property
    def module(self) -> Any:
        return self.groups[0].first.module

    @property
    def names(self) -> Iterator[str]:
        return (name for group in self.groups for name in group.places)

    def inputs(self, args: tuple, kwargs: Mapping[str, Any], chosen: Any) -> tuple[list[Any], Any]:
        """The inputs of each group in a call of the module, a row a token, and the experts of each token. chosen: those
        that take the place of the call's own; None: its own."""
        values = [*args, *kwargs.values()]
        states = values[0].detach().flatten(0, -2)
        if self.groups[0].first.expert < 0:
            return [states.float()], None
        chosen = values[1].flatten(0, -2) if chosen is None else chosen
        return [_of_expert(group.first, states, chosen) for group in self.groups], chosen


def _of_expert(place: Place, states: Any, chosen: Any) -> Any:
    """The input of a matrix of an expert under the weights in use."""
    module, e = place.module, place.expert
    x = states[(chosen == e).any(-1)]
    if place.parameter != "down_proj":
        return x.float()
    stacked = "gate_up_proj" if module.has_gate else "up_proj"
    weight = getattr(module, stacked)[e]
    bias = getattr(module, f"{stacked}_bias")[e] if module.has_bias else None
    x = sys.modules["torch"].nn.functional.linear(x, weight.T if module.is_transposed else weight, bias)
    return (module._apply_gate(x) if module.has_gate else module.act_fn(x)).float()


def stages_of_experts(places: Mapping[str, Place], most: float) -> list[Stage]:
    """The stages of a layer of experts: what the tokens enter, then what comes after the gate. most: bytes of sums."""
    groups: dict[tuple[bool, int], dict[str, Place]] = {}
    for name, place in places.items():
        groups.setdefault((place.parameter == "down_proj", place.expert), {})[name] = place
    stages: list[Stage] = []
    for last in (False, True):
        part = [Group(found) for (down, _), found in sorted(groups.items()) if down == last]
        size = max(1, int(min(len(part), most / (16 * part[0].columns ** 2)))) if part else 1
        stages += [Stage(part[i:i + size]) for i in range(0, len(part), size)]
    return stages


class Weights:
    """Matrices of a block in two kinds: the model's own and those that were put in their places."""

    def __init__(self, places: Mapping[str, Place]):
        self.places = dict(places)
        self._parameters = {place.key: (place.module, place.parameter) for place in self.places.values()}
        self._own = {key: getattr(*pair).data for key, pair in self._parameters.items()}
        self._other: dict[Any, Any] = {}

    def use(self, other: bool) -> None:
        """Matrices for which nothing was put are the model's own in both kinds."""
        for key, pair in self._parameters.items():
            getattr(*pair).data = self._other.get(key, self._own[key]) if other else self._own[key]

    def put(self, matrices: Iterable[tuple[str, Any]]) -> None:
        """Takes matrices in place of others."""
        for name, matrix in matrices:
            place, own = self.places[name], self._own[self.places[name].key]
            if place.expert < 0:
                self._other[place.key] = matrix.to(own.dtype)
            else:
                place.of(self._other.setdefault(place.key, own.clone())).copy_(matrix)

    def release(self) -> None:
        self.use(False)
        self._other.clear()
        self._own.clear()
