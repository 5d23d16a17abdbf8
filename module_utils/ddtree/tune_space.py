"""The configurations that a tuning chooses among, their places, and its starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .gauss import Grid
from .schedule import AGAIN

AXES = ("budget", "tp", "window", "topk")  # in the order of the pass along them; flags and the rest follow
MEMORY = ("out_of_memory",)
GROWS = ("budget", "topk", "window", "mem_fraction_static", "max_running_requests")  # more of these never takes less memory
OPEN_ENDS = ("running", "open")


@dataclass(frozen=True)
class Candidate:
    """One engine configuration. `axes` are its place: what the engine makes of budget and topk where the build tells."""

    name: str
    point: Mapping[str, Any]
    axes: Mapping[str, Any]
    aliases: tuple[str, ...] = ()
    control: bool = False


@dataclass
class Trial:
    """One start. `state`: running, open (its run died), ok, cut, failed, lost. `stage`: screen or whole. Minutes are its own."""

    name: str
    stage: str = "screen"
    state: str = "ok"
    host: str = ""
    cells: list[dict[str, Any]] = field(default_factory=list)
    coding: float | None = None  # share of the coding tasks that passed; None where it was not checked
    minutes: float = 0.0
    load: float = 0.0
    cause: str = ""
    why: str = ""
    run: str = ""
    earlier: bool = False
    number: int = -1


class Space:
    """The configurations, each once, and their places."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = list(candidates)
        self.at = {one.name: index for index, one in enumerate(self.candidates)}
        self.at.update({alias: self.at[one.name] for one in self.candidates for alias in one.aliases})
        self.free = [index for index, one in enumerate(self.candidates) if not one.control]
        self.axes = axes_of([one.axes for one in self.candidates if not one.control])
        columns, ordered = [], []
        for axis, values in self.axes.items():
            numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
            ordered.append(len(numbers) >= len(values) - (None in values) and len(numbers) > 1)
            columns.append([place_of(self.candidates[index].axes.get(axis), values, ordered[-1]) for index in self.free])
        self.grid = Grid(np.array(columns, dtype=float).T.reshape(len(self.free), len(columns)), tuple(ordered))
        self.row = {index: row for row, index in enumerate(self.free)}

    @classmethod
    def of(cls, runs: Sequence[Mapping[str, Any]], controls: Iterable[str] = ()) -> Space:
        """From runs as `sweep_points` gives them: {point, aliases, launch: {derived}}."""
        names = set(controls)
        return cls(
            [
                Candidate(run["point"]["name"], run["point"], _axes(run), tuple(run["aliases"]), run["point"]["name"] in names)
                for run in runs
            ]
        )

    def find(self, name: str) -> int:
        """The configuration of a name, an alias or a further start; -1 for none."""
        return self.at.get(name.partition(AGAIN)[0], -1)


def axes_of(places: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """{axis: its values, numbers ascending and None last}, of those that differ; the order of the pass."""
    names = list(dict.fromkeys(axis for one in places for axis in one))
    found = {}
    for axis in sorted(names, key=lambda one: (AXES.index(one) if one in AXES else len(AXES), one)):
        values = list(dict.fromkeys(one.get(axis) for one in places))
        if len(values) > 1:
            found[axis] = sorted(values, key=lambda one: (one is None, isinstance(one, str), one if one is not None else 0))
    return found


def _axes(run: Mapping[str, Any]) -> dict[str, Any]:
    point, derived = run["point"], (run.get("launch") or {}).get("derived") or {}
    found = {axis: point.get(axis) for axis in ("dialect", *AXES)}
    if derived.get("effective_topk"):
        found["topk"] = derived["effective_topk"]
    for name, value in (point.get("flags") or {}).items():
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = value
    for key in ("extra_args", "extra_env"):
        if point.get(key):
            found[key] = str(point[key])
    return found


def place_of(value: Any, values: Sequence[Any], ordered: bool) -> float:
    """0 to 1 among the logarithms of an ordered axis, None (no bound) twice beyond the largest; else the number of the name."""
    if not ordered:
        return float(values.index(value)) if value in values else -1.0
    logs = [math.log(max(float(one), 1e-9)) for one in values if one is not None]
    top = max(logs) + (math.log(2) if None in values else 0.0)
    mine = top if value is None else math.log(max(float(value), 1e-9))
    return (mine - min(logs)) / (top - min(logs) or 1.0)


def above(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether `one` takes no less memory than `other`: as much or more on what grows, equal on the rest."""
    for axis in {*one, *other}:
        mine, theirs = one.get(axis), other.get(axis)
        if axis not in GROWS:
            if mine != theirs:
                return False
        elif mine is not None and (theirs is None or mine < theirs):
            return False
    return True
