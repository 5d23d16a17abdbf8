"""Which configuration to start next, and how far to measure it: adaptive tuning as decisions over what is known, without clock or files.

A trial is one start of one configuration. Order: controls, what earlier results call best (else the origin's point, else the middle), one
pass along the axes, then what the process of `gauss` expects to gain most of per minute, then confirmation: finalists once more with the
whole matrix, the winner until two whole starts agree. docs/tuning.md has the evidence for each choice.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .gauss import Model, fit, gain
from .live import duration
from .schedule import AGAIN
from .tune_goal import BETWEEN_STARTS, Cell, Goal
from .tune_space import MEMORY, OPEN_ENDS, Space, Trial, above, place_of

LEAST_GAIN = 0.001  # expected improvement, in log speed, below which another start is not worth its minutes
FINALISTS = 3
WHOLE_STARTS = 2  # of the winner, each with the whole matrix
LEAD = 0.05  # by how much cells not yet measured may make up for a first cell
LOAD_MINUTES, CELL_MINUTES = 6.0, 1.0  # until starts tell
EARLIER = 0.02  # standard deviation that an earlier sweep's figures have beside their own


@dataclass(frozen=True)
class Ask:
    """The next start: of what, how far, and in words why. An empty name ends the study, or waits for those at work."""

    name: str
    stage: str = "screen"
    why: str = ""
    wait: bool = False


@dataclass
class Settings:
    """`minutes` of wall clock for all; `most` starts, 0 for no limit; `controls` whether they are still to be measured."""

    goal: Goal
    minutes: float = 240.0
    most: int = 0
    origin: Mapping[str, Any] | None = None  # the axes of a point that is known to be good elsewhere: a weak prior
    passed: int = 8  # starts of the pass along the axes
    finalists: int = FINALISTS


class Tuner:
    """All decisions, from the trials so far. `trials` may be of earlier sweeps too (`earlier`)."""

    def __init__(self, space: Space, settings: Settings, trials: Sequence[Trial]) -> None:
        self.space, self.settings, self.goal = space, settings, settings.goal
        self.trials = [one for one in trials if space.find(one.name) >= 0]
        self.mine = [one for one in self.trials if not one.earlier]
        self.screen, self.asked = settings.goal.screen, settings.goal.asked
        self._model: dict[Any, Model | None] = {}
        self._loads: dict[Any, float] = {}
        each = [
            max(one.minutes - one.load, 0.0) / len(one.cells)
            for one in self.mine
            if one.state in ("ok", "cut") and one.cells and one.minutes
        ]
        self._each = statistics.median(each) if each else CELL_MINUTES
        self._started = {stage: {space.find(one.name) for one in self.trials if one.state != "lost" and stage in ("", one.stage)}
                         for stage in ("", "whole")}  # fmt: skip

    # -- what to start

    def ask(self, left: float, host: str = "", loaded: str = "", hosts: int = 1) -> Ask:
        """The next start for a host that has `loaded` (a name) and `left` minutes of wall clock."""
        if left > 0 and not any(one.load > 0 for one in self.trials):
            left = math.inf  # no start tells yet how long one takes
        if self.settings.most and sum(one.state not in ("lost", "open") for one in self.mine) >= self.settings.most:
            return Ask("", why=f"{self.settings.most} starts were made")
        open_trial = next((one for one in sorted(self.mine, key=lambda one: one.host != host) if one.state == "open"), None)
        if open_trial and left > 0:
            return Ask(open_trial.name, open_trial.stage, "what a run that died had begun")
        for index, one in enumerate(self.space.candidates):
            if one.control and not self._tried(index, "whole") and self._fits(left, "whole", one.name == loaded):
                return Ask(one.name, "whole", "control")
        if not self.space.free:
            return Ask("", why="there is nothing to tune")
        finals = self._final()
        reserve = (len(finals) + 1) / max(hosts, 1) * self.minutes_of("whole")
        searching = left - reserve >= self.minutes_of("screen")
        if searching and (found := self._search(loaded)).name:
            return found
        found = self._confirm(left, finals)
        if found.name or found.wait:
            return found
        return Ask("", why=found.why if searching else f"{duration(left * 60)} are left, too little for another start")

    def _search(self, loaded: str) -> Ask:
        tried = {index for index in self.space.free if self._tried(index)} | self.hopeless()
        open_ = [index for index in self.space.free if index not in tried]
        if not open_:
            return Ask("", why="every configuration that can run was started")
        here = self.space.find(loaded)
        if here in open_ and not any(self._points(one) for one in self.mine):
            return Ask(self._name(here), "screen", "what is loaded costs no start")
        asked = [one for one in self.trials if self._points(one)]
        if not asked:
            return Ask(self._name(self._first(open_)), "screen", "where the origin was good" if self.settings.origin else "the middle")
        if sum(not one.earlier for one in asked) < self.settings.passed + 1 and (found := self._along(set(open_))):
            return found
        return self._expected(open_, loaded)

    def _points(self, one: Trial) -> bool:
        index = self.space.find(one.name)
        return index in self.space.row and one.state != "lost"

    def _first(self, open_: Sequence[int]) -> int:
        """The configuration nearest to the origin's, else to the middle of every axis."""
        origin = self.settings.origin or {}

        def far(index: int) -> tuple[float, int]:
            total = 0.0
            for column, (axis, values) in enumerate(self.space.axes.items()):
                place = self.space.grid.places[self.space.row[index], column]
                wish = place_of(origin[axis], values, self.space.grid.ordered[column]) if axis in origin else 0.5
                total += abs(place - wish) if self.space.grid.ordered[column] or axis in origin else 0.0
            return total, index

        return min(open_, key=far)

    def _along(self, open_: set[int]) -> Ask | None:
        """The pass: from the best so far, for each axis its ends and its middle, whichever of them is nearest to untried."""
        centre = self.best()
        index = self.space.find(centre) if centre else self._first(list(open_))
        base = self.space.candidates[index].axes
        tried = [self.space.candidates[at].axes for at in self.space.free if self._tried(at)]
        for wanted in (0.0, 1.0, 0.5):
            for column, (axis, values) in enumerate(self.space.axes.items()):
                ordered = self.space.grid.ordered[column]
                if not ordered and wanted == 0.5:
                    continue
                place = {at: self.space.grid.places[self.space.row[at], column] for at in open_}
                seen = {place_of(one.get(axis), values, ordered) for one in tried}
                aim = wanted if ordered else float(next((n for n in range(len(values)) if n not in seen), -1))
                if any(abs(one - aim) < (0.26 if ordered else 0.5) for one in seen) or aim < 0:
                    continue
                same = [
                    at
                    for at in open_
                    if all(self.space.candidates[at].axes.get(other) == base.get(other) for other in self.space.axes if other != axis)
                ]
                near = [at for at in same if abs(place[at] - aim) < (0.26 if ordered else 0.5)]
                if near:
                    return Ask(self._name(min(near, key=lambda at: (abs(place[at] - aim), at))), "screen", f"the pass along {axis}")
        return None

    def _expected(self, open_: Sequence[int], loaded: str) -> Ask:
        if self.model() is None:
            return Ask(self._name(self._first(open_)), "screen", "nothing could be measured yet")
        rows = [self.space.row[index] for index in open_]
        out = self.hopeless() | {self.space.find(name) for name in self.barred()}
        measured = [self.space.row[index] for index in self.space.free if self._tried(index) and index not in out]
        cost = np.array([self.minutes_of("screen", self._name(index) == loaded, index) for index in open_])
        chance = self._chance(rows)
        for weights in self._weighings():
            model = self.model(weights)
            if model is None:
                continue
            expected = gain(model.mean[rows], model.spread[rows], float(np.max(model.mean[measured or rows])))
            if float(np.max(expected)) >= LEAST_GAIN:
                top = int(np.argmax(expected * chance / cost))
                return Ask(self._name(open_[top]), "screen", f"expected gain {expected[top]:.1%}")
        what = "move the front" if self.goal.pareto else f"be better by more than {LEAST_GAIN:.1%} of its speed"
        return Ask("", why=f"no configuration is expected to {what}")

    def _weighings(self) -> list[Mapping[str, float] | None]:
        """The goal's own; for a front several, another first each time, so that all of it is looked for."""
        if not self.goal.pareto:
            return [None]
        first = len(self.mine) % 3
        shares = [0.1, 0.9, 0.5]
        return [{"single-user": one, "aggregate": 1 - one} for one in [*shares[first:], *shares[:first]]]

    def _final(self) -> list[str]:
        """Finalists that still lack whole starts, most promising first."""
        names = self.front() if self.goal.pareto else self.ranked()
        need = dict.fromkeys(names[: self.settings.finalists], 1)
        if best := self.best():
            need[best] = WHOLE_STARTS
        found = []
        for name, wanted in need.items():
            whole = [
                one
                for one in self.mine
                if one.name.partition(AGAIN)[0] == name and one.stage == "whole" and one.state not in ("lost", "open")
            ]
            found += [name] * max(wanted - len(whole), 0)
        return found

    def _confirm(self, left: float, finals: Sequence[str]) -> Ask:
        if finals and self._fits(left, "whole", False):
            return Ask(finals[0], "whole", "confirmation")
        if any(one.state == "running" for one in self.mine):
            return Ask("", why="waiting for the last starts", wait=True)
        return Ask("", why=f"{duration(left * 60)} are left, too little for another start of {finals[0]}" if finals else "confirmed")

    # -- how far to measure it

    def stages(self, stage: str) -> list[list[Cell]]:
        """The cells in the steps after which a start may be cut off; the last step has the coding check, where the stage is whole."""
        steps = [[cell] for cell in self.screen]
        return steps if stage == "screen" else [*steps, [cell for cell in self.goal.cells if cell not in self.screen]]

    def weigh(self, name: str, cells: Sequence[Mapping[str, Any]]) -> str:
        """'' to go on with this start, else the sentence with which it is cut off: its interval lies below the best one's."""
        index, best = self.space.find(name), self.best()
        if index not in self.space.row or not best or best == name.partition(AGAIN)[0] or self.goal.pareto:
            return ""
        have = [cell for cell in self.asked if any((one["context"], one["concurrency"]) == cell for one in cells)]
        rival = self._cells(best)
        mine, theirs = self.goal.value(cells, have), self.goal.value(rival, have)
        if mine is None or theirs is None:
            return ""
        scatter = 1.96 * math.sqrt(2) * BETWEEN_STARTS
        half = math.sqrt(self.goal.half(cells, have) ** 2 + self.goal.half(rival, have) ** 2 + scatter**2)
        rest = 0.0 if set(self.screen) <= set(have) else self._lead(have, rival)
        if mine + half + rest >= theirs:
            return ""
        return f"{math.expm1(mine - theirs):.1%} against {best} where both were measured, {half:.1%} of it doubtful"

    def _lead(self, have: Sequence[Cell], rival: Sequence[Mapping[str, Any]]) -> float:
        """What cells not measured yet have made up at most so far, LEAD at least, as a share of what was measured."""
        rest = [cell for cell in self.screen if cell not in have]
        base, most = self.goal.value(rival, rest), LEAD
        share = self.goal.weight_of()
        ratio = math.fsum(share[cell] for cell in rest) / max(math.fsum(share[cell] for cell in have), 1e-9)
        for one in self.trials:
            other = self.goal.value(one.cells, rest)
            if base is not None and other is not None:
                most = max(most, other - base + LEAD)
        return most * ratio

    # -- what is known

    def best(self) -> str:
        """The configuration to recommend now: of those with most whole starts if any, the best by the process; '' before any figure."""
        names = self.ranked()
        whole = {name: self._figure(name) for name in names if self._whole(name)}
        confirmed = {name: value for name, value in whole.items() if value is not None}
        return max(confirmed, key=lambda name: confirmed[name]) if confirmed else names[0] if names else ""

    def ranked(self) -> list[str]:
        """Names of what was measured without a fault, best first by what the process makes of the figures."""
        model, barred = self.model(), self.barred()
        able = [one for one in self.trials if one.name not in barred and self._value(one) is not None]
        rows = {one.name: self.space.row[index] for one in able if (index := self.space.find(one.name)) in self.space.row}
        if model is None:
            return []
        return sorted(rows, key=lambda name: -float(model.mean[rows[name]]))

    def barred(self) -> set[str]:
        """Names that cannot win: a whole start of theirs passed a smaller share of the coding tasks than the point without speculation (all
        of them where that was not checked), lost requests, or exceeded a bound. The report bars the same, and tells what chance explains.
        """
        whole = [one for one in self.trials if one.stage == "whole" and one.state == "ok"]
        plain = [one.coding for one in whole if one.coding is not None and self._dialect(one.name) == "none"]
        bar = min(plain, default=1.0)
        return {one.name for one in whole if (one.coding is not None and one.coding < bar - 1e-9) or self.goal.excess(one.cells) > 1
                or any(cell.get("errors") for cell in one.cells)}  # fmt: skip

    def _dialect(self, name: str) -> str:
        return str(self.space.candidates[self.space.find(name)].point.get("dialect"))

    def front(self) -> list[str]:
        """Names of the Pareto front of single-user speed and aggregate throughput over the screened cells, fastest user first."""
        values = {}
        for name in self.ranked():
            cells = self._cells(name)
            pair = [self.goal.value(cells, [cell for cell in self.screen if cell in self.goal.part_cells(part)], {part: 1.0})
                    for part in ("single-user", "aggregate")]  # fmt: skip
            if None not in pair:
                values[name] = pair
        return sorted((name for name, one in values.items() if not any(two != one and two[0] >= one[0] and two[1] >= one[1]  # type: ignore[operator]
                                                                      for two in values.values())), key=lambda name: -values[name][0])  # type: ignore[operator]  # fmt: skip

    def model(self, weights: Mapping[str, float] | None = None) -> Model | None:
        """The process over the screened cells; starts at work count as what is expected of them."""
        key = tuple(sorted((weights or {}).items()))
        if key not in self._model:
            rows, values, noises, hosts = [], [], [], []
            for one in self.trials:
                index, value = self.space.find(one.name), self._value(one, weights)
                if index in self.space.row and value is not None:
                    rows.append(self.space.row[index])
                    values.append(value)
                    own = self.goal.half(one.cells, self.screen) / 1.96
                    noises.append(math.sqrt(own**2 + BETWEEN_STARTS**2 + (EARLIER**2 if one.earlier else 0.0)))
                    hosts.append(one.host)
            model = fit(self.space.grid, rows, values, noises, hosts) if rows else None
            at_work = [
                self.space.row[index]
                for one in self.mine
                if one.state in OPEN_ENDS and (index := self.space.find(one.name)) in self.space.row
            ]
            if model and at_work:
                believed = [float(model.mean[row]) for row in at_work]
                model = fit(self.space.grid, [*rows, *at_work], [*values, *believed], [*noises, *[BETWEEN_STARTS] * len(at_work)],
                            [*hosts, *[""] * len(at_work)])  # fmt: skip
            self._model[key] = model
        return self._model[key]

    def hopeless(self) -> set[int]:
        """Configurations that failed, and those that take no less memory than one that had too little."""
        found: set[int] = set()
        for one in self.trials:
            index = self.space.find(one.name)
            if one.state != "failed":
                continue
            found.add(index)
            if one.cause in MEMORY:
                found |= {other for other in self.space.free if above(self.space.candidates[other].axes, self.space.candidates[index].axes)}
        return found

    def _chance(self, rows: Sequence[int]) -> Any:
        """That they run at all, from their neighbours: one failure beside it halves it, measured ones bring it back."""
        places = self.space.grid.places
        good, bad = np.zeros(len(rows)), np.zeros(len(rows))
        for one in self.trials:
            row = self.space.row.get(self.space.find(one.name))
            if row is None or one.state in ("lost", *OPEN_ENDS):
                continue
            near = np.exp(-8 * np.sum(np.square(places[rows] - places[row]), axis=1))
            good, bad = (good, bad + near) if one.state == "failed" else (good + near, bad)
        return (1 + good) / (1 + good + bad)

    def minutes_of(self, stage: str, loaded: bool = False, index: int = -1) -> float:
        """What a start is expected to take: load times measured so far, those of like tp and flags first, and what its cells took."""
        kind = self._kind(index)
        if kind not in self._loads:
            found = [(one.load, self._kind(self.space.find(one.name))) for one in self.trials if one.load > 0]
            alike = [load for load, other in found if other == kind]
            self._loads[kind] = statistics.median(alike or [load for load, _ in found] or [LOAD_MINUTES])
        cells = len(self.screen) if stage == "screen" else len(self.goal.cells)
        return max((0.0 if loaded else self._loads[kind]) + cells * self._each, 1e-6)

    def _kind(self, index: int) -> Any:
        """What a load takes depends on, as far as one can tell before."""
        if index < 0:
            return None
        axes = self.space.candidates[index].axes
        return tuple(str(axes.get(axis)) for axis in self.space.axes if axis not in ("budget", "topk", "window"))

    def _fits(self, left: float, stage: str, loaded: bool) -> bool:
        return self.minutes_of(stage, loaded) <= left

    def _name(self, index: int) -> str:
        return self.space.candidates[index].name

    def _tried(self, index: int, stage: str = "") -> bool:
        """Started by this study, or measured by an earlier one."""
        return index in self._started[stage]

    def _whole(self, name: str) -> list[Trial]:
        return [one for one in self.mine if one.name.partition(AGAIN)[0] == name and one.stage == "whole" and one.state == "ok"]

    def _figure(self, name: str) -> float | None:
        """Mean over whole starts of the score over all cells asked."""
        found = [value for one in self._whole(name) if (value := self.goal.value(one.cells, self.asked)) is not None]
        return statistics.fmean(found) if found else None

    def _cells(self, name: str) -> list[dict[str, Any]]:
        """Of its last start that went furthest."""
        mine = [one for one in self.trials if one.name.partition(AGAIN)[0] == name and one.cells]
        return max(mine, key=lambda one: (len(one.cells), one.number)).cells if mine else []

    def _value(self, one: Trial, weights: Mapping[str, float] | None = None) -> float | None:
        """Log of the score over the screened cells. A start that was cut off sooner counts as what it lacks were like the best one's."""
        if one.state in ("failed", "lost", *OPEN_ENDS):
            return None
        value = self.goal.value(one.cells, self.screen, weights)
        if value is None and one.state == "cut" and one.cells:
            have = [cell for cell in self.screen if any((cell_["context"], cell_["concurrency"]) == cell for cell_ in one.cells)]
            rivals = [(self.goal.value(two.cells, self.screen, weights), self.goal.value(two.cells, have, weights)) for two in self.mine]
            known = [(whole, part) for whole, part in rivals if whole is not None and part is not None]
            mine = self.goal.value(one.cells, have, weights)
            if known and mine is not None:
                whole, part = max(known)
                return whole + mine - part
        return value
