"""What a tuning is after: a figure for the cells that were measured of a configuration, how sure it is, and which cells to measure first.

Figures are natural logarithms of output tok/s, so that differences are shares; weights and means are those of `ranking`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .asked import PointError, known_keys, nearest
from .results import cell_key
from .stats import ALLOWANCE

PARETO = "pareto"
PARTS = ("balanced", "single-user", "aggregate")
LATENCIES = ("ttft_ms", "tpot_ms")
USUAL_HALF = 0.04  # half width of the 95% interval, as a share, of a cell that was measured too briefly to have its own
BETWEEN_STARTS = 0.01  # relative standard deviation between starts of one configuration, until confirmed ones tell
PENALTY = 2.0  # what exceeding a latency bound by a factor e costs in log speed while searching; a winner may not exceed it at all
Cell = tuple[int, int]


@dataclass(frozen=True)
class Goal:
    """`weights` of PARTS; `pareto` for the front of single-user speed and aggregate throughput. `level`: concurrency of `aggregate`.
    `bounds`: {ttft_ms or tpot_ms: most of its p99}. `cells` are the whole matrix.
    """

    cells: tuple[Cell, ...]
    weights: Mapping[str, float] = field(default_factory=lambda: {"balanced": 1.0})
    pareto: bool = False
    level: int = 0
    bounds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, objective: Any, contexts: Iterable[int], concurrencies: Iterable[int], level: Any = 0,
             latency: Mapping[str, Any] | None = None) -> Goal:  # fmt: skip
        """As a person asks it. Raises PointError, whose message is one sentence."""
        levels = sorted({int(one) for one in concurrencies})
        cells = tuple((int(context), one) for one in levels for context in sorted({int(one) for one in contexts}))
        weights: dict[str, float] = {}
        given = {str(objective): 1.0} if isinstance(objective, str) else objective
        if not isinstance(given, Mapping) or not given:
            raise PointError(
                f"tune_objective is {objective!r}: one of {', '.join((*PARTS, PARETO))}, or weights of the first three, is wanted"
            )
        for name, weight in given.items():
            if str(name) not in (*PARTS, PARETO) or (str(name) == PARETO and len(given) > 1):
                raise PointError(
                    f"tune_objective has {str(name)!r}: known are {', '.join(PARTS)}, or pareto alone{nearest(str(name), PARTS)}"
                )
            try:
                weights[str(name)] = float(weight)
            except (TypeError, ValueError):
                raise PointError(f"the weight of {name} in tune_objective is {weight!r}: a number is wanted") from None
        if min(weights.values()) < 0 or not 0 < sum(weights.values()) < math.inf:
            raise PointError(f"the weights of tune_objective are {dict(given)}: none below 0 and one above it are wanted")
        wanted = int(level) if str(level or 0).isdigit() else -1
        if wanted and wanted not in levels:
            raise PointError(f"tune_concurrency is {level}: one of benchmark_concurrencies ({', '.join(map(str, levels))}) is wanted")
        bounds = {}
        for name, most in (latency or {}).items():
            known_keys({name: most}, LATENCIES, "the keys of tune_latency")
            try:
                bounds[str(name)] = float(most)
            except (TypeError, ValueError):
                bounds[str(name)] = 0.0
            if not 0 < bounds[str(name)] < math.inf:
                raise PointError(f"tune_latency.{name} is {most!r}: milliseconds that the p99 may take are wanted, as in {{{name}: 500}}")
        pareto = PARETO in weights
        return cls(cells, {"single-user": 0.5, "aggregate": 0.5} if pareto else weights, pareto, wanted or levels[-1], bounds)

    @property
    def objective(self) -> Any:
        """For `ranking`: the weights, with the stated concurrency in the name."""
        named = {f"aggregate@{self.level}" if key == "aggregate" else key: weight for key, weight in self.weights.items()}
        return next(iter(named)) if len(named) == 1 else named

    def part_cells(self, part: str) -> list[Cell]:
        lowest = min(level for _, level in self.cells)
        level = {"single-user": lowest, "aggregate": self.level}.get(part)
        return [cell for cell in self.cells if level is None or cell[1] == level]

    @property
    def asked(self) -> list[Cell]:
        """The cells that the objective is made of."""
        wanted = {cell for part, weight in self.weights.items() if weight for cell in self.part_cells(part)}
        return [cell for cell in self.cells if cell in wanted]

    @property
    def screen(self) -> list[Cell]:
        """The cheap fidelity, one or two cells: opposite corners of what is asked, the one that takes less time first, or its two ends."""
        asked = self.asked
        levels, contexts = sorted({cell[1] for cell in asked}), sorted({cell[0] for cell in asked})
        corners = (
            [(contexts[0], levels[0]), (contexts[-1], levels[-1])]
            if len(levels) == 1
            else [(contexts[-1], levels[0]), (contexts[0], levels[-1])]
        )
        return list(dict.fromkeys(corners))

    def weight_of(self, weights: Mapping[str, float] | None = None) -> dict[Cell, float]:
        """Each cell's share in the logarithm of the score."""
        given = weights or self.weights
        total, found = sum(given.values()), dict.fromkeys(self.cells, 0.0)
        for part, weight in given.items():
            mine = self.part_cells(part)
            for cell in mine:
                found[cell] += weight / total / len(mine)
        return found

    def value(self, cells: Sequence[Mapping[str, Any]], among: Sequence[Cell], weights: Mapping[str, float] | None = None) -> float | None:
        """Log of the score over the cells `among`; None where one of them was not measured. A bound exceeded costs PENALTY."""
        speed = {cell_key(one): one for one in cells if one.get("output_tok_s")}
        share = self.weight_of(weights)
        total = math.fsum(share[cell] for cell in among)
        if not among or any(cell not in speed for cell in among) or not total:
            return None
        log = math.fsum(share[cell] * math.log(speed[cell]["output_tok_s"]) for cell in among if share[cell]) / total
        return log - PENALTY * max(0.0, math.log(max(self.excess([speed[cell] for cell in among]), 1e-9)))

    def excess(self, cells: Iterable[Mapping[str, Any]]) -> float:
        """The worst p99 over its bound; 0 where nothing is bound or measured."""
        found = [float((cell.get(name) or {}).get("p99") or 0) / most for cell in cells for name, most in self.bounds.items()]
        return max(found, default=0.0)

    def half(self, cells: Sequence[Mapping[str, Any]], among: Sequence[Cell]) -> float:
        """Half width of the 95% interval of `value`, the scatter between starts left out."""
        share = self.weight_of()
        total = math.fsum(share[cell] for cell in among) or 1.0
        squares = 0.0
        for one in cells:
            if cell_key(one) in among:
                edges = one.get("ci95") or [None, None]
                own = (edges[1] - edges[0]) / 2 / one["output_tok_s"] if None not in edges and one.get("output_tok_s") else USUAL_HALF
                squares += (share[cell_key(one)] / total * own) ** 2
        return math.hypot(math.sqrt(squares), 1.96 * ALLOWANCE)
