"""Surfaces to tune on, whose truth is known: the simulated engine's formula at three workloads, and trees made from published tables.

A surface is a space of configurations, the cells of its matrix, the true tok/s of each, what fails, and how noisy it is. Times are minutes
of a host whose engine takes six to load.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "module_utils"), str(ROOT / "roles" / "simulated_host" / "files" / "site")]

from ddtree.engine import Server, collapse  # noqa: E402
from ddtree.points import expand  # noqa: E402
from ddtree.tune_goal import Cell, Goal  # noqa: E402
from ddtree.tune_space import Candidate, Space  # noqa: E402
from sglang.sim.speed import Config, output_tok_s  # noqa: E402

CELL_MINUTES = 1.0
SERVER = Server(python="/p", model="/m", drafter="/d", block_size=8)
# Published for DDTree at temperature 0 with a single request (arXiv 2604.12989): speed-up and accept length of the chain, then of the
# tree at its best budget of 16 to 1024.
TABLES = {
    "Qwen3-8B, MATH-500": (5.56, 7.79, 7.52, 10.73),
    "Qwen3-8B, MT-Bench": (2.56, 4.28, 4.10, 6.58),
    "Qwen3-Coder-30B, HumanEval": (6.09, 8.02, 8.22, 10.72),
}


@dataclass
class Surface:
    """`speed(candidate, cell)` is the truth; `cause` what the start fails of or ''; `load` its minutes. Noise is a relative standard
    deviation.
    """

    name: str
    space: Space
    goal: Goal
    speed: Callable[[Candidate, Cell], float]
    cell_noise: float = 0.015
    start_noise: float = 0.01
    cause: Callable[[Candidate], str] = lambda _: ""
    load: Callable[[Candidate], float] = lambda _: 6.0
    truth: dict[str, float] = field(default_factory=dict)  # name to true score, failing ones left out

    def __post_init__(self) -> None:
        for at in self.space.free:
            one = self.space.candidates[at]
            if not self.cause(one):
                cells = [{"context": cell[0], "concurrency": cell[1], "output_tok_s": self.speed(one, cell)} for cell in self.goal.cells]
                value = self.goal.value(cells, self.goal.asked)
                assert value is not None
                self.truth[one.name] = math.exp(value)
        self.best = max(self.truth.values())

    def share(self, name: str) -> float:
        """The true score of a configuration as a share of the best one's; 0 for none."""
        return self.truth.get(name, 0.0) / self.best

    def measure(self, one: Candidate, cells: list[Cell], rng: random.Random, start: float) -> list[dict[str, Any]]:
        """Cells as results have them. `start` is what this start is faster by."""
        found = []
        for cell in cells:
            rate = self.speed(one, cell) * math.exp(start + rng.gauss(0, self.cell_noise))
            half = 1.96 * self.cell_noise
            found.append({"context": cell[0], "concurrency": cell[1], "output_tok_s": rate, "ci95": [rate * (1 - half), rate * (1 + half)]})
        return found


def grid(**axes: Any) -> Space:
    """As tune.yml makes it: points of a grid, those of one engine configuration once, their places what the engine makes of them."""
    runs = collapse(expand(axes, {}), SERVER)
    return Space.of(
        [{"point": run["point"].as_dict(), "aliases": run["aliases"], "launch": {"derived": run["launch"].derived}} for run in runs]
    )


def engine(one: Candidate) -> Config:
    point = one.point
    return Config("DDTREE", point["budget"], point["topk"], point["window"], point["tp"])


def simulated(
    name: str, goal: Goal, space: Space, faster: Callable[[Candidate, Cell], float] = lambda one, cell: 1.0, **more: Any
) -> Surface:
    """The simulated engine's truth, times what a flag or a fault of the surface makes of it."""
    return Surface(name, space, goal, lambda one, cell: output_tok_s(engine(one), *cell) * faster(one, cell), **more)


def published(name: str, row: tuple[float, float, float, float], goal: Goal, space: Space, best_budget: int, topk_peak: float) -> Surface:
    """Accept length rises with the budget from the chain's to the table's; a step costs what makes its speed-up that at `best_budget`.

    Between its points the table says nothing: saturation is exponential, the cost of a verified token grows with the batch, and topk
    has a shallow optimum, since a tree of few branches wastes budget and one of many wastes depth.
    """
    chain_speed, chain, tree_speed, tree = row
    scale = best_budget / 2.2
    step_chain, step_tree = chain / chain_speed, tree / tree_speed
    slope = max(step_tree - step_chain, 0.0) / best_budget + step_chain * 0.35 / best_budget / 4

    def speed(one: Candidate, cell: Cell) -> float:
        budget, topk, window = one.point["budget"], one.point["topk"], one.point["window"]
        accept = chain + (tree - chain) * (1 - math.exp(-budget / scale)) * (1 - 0.05 * math.log(topk / topk_peak) ** 2)
        seen = 1.0 if window is None or cell[0] <= window else 1 - 0.25 * (1 - window / cell[0])
        accept = 1 + (accept - 1) * seen
        attended = cell[0] if window is None else min(cell[0], window)
        load = 1 + (cell[1] - 1) / 24
        step = step_chain + slope * budget * load + 0.02 * attended / 4096 * load + 0.15 * math.log(cell[1])
        return 30.0 * cell[1] ** 0.75 * accept / step

    return Surface(name, space, goal, speed)


def surfaces(quick: bool = False) -> list[Surface]:
    contexts, levels = (60, 1024, 4096), (1, 32)
    usual: dict[str, Any] = {
        "budget": [4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48],
        "topk": [2, 3, 4, 6],
        "window": [512, 1024, 2048, 4096, "none"],
    }
    wide: dict[str, Any] = {"dialect": "pr31069", "budget": [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024], "topk": [4, 8, 16],
                            "window": [512, 1024, 2048, 4096]}  # fmt: skip
    many: dict[str, Any] = {"budget": [4, 8, 12, 16, 24, 32], "topk": [2, 4, 6], "window": [1024, 2048, 4096, "none"], "tp": [4, 8],
                            "flags": {"moe_runner_backend": ["triton", "flashinfer_cutlass"]}}  # fmt: skip

    def goal(objective: Any) -> Goal:
        return Goal.read(objective, contexts, levels)

    def backend(one: Candidate, cell: Cell) -> float:
        """One backend for small trees, another for large ones; tp 4 pays where batches are large."""
        width, few = one.point["budget"] + 1, one.point["tp"] == 4
        wide_tree = 1 / (1 + math.exp(-(width * math.sqrt(cell[1]) - 40) / 12))
        gain = 0.92 + 0.16 * (wide_tree if dict(one.point["flags"]).get("moe_runner_backend") == "flashinfer_cutlass" else 1 - wide_tree)
        return gain * ((1.28 if cell[1] > 1 else 1.02) if few else 1.0)

    def memory(one: Candidate) -> str:
        window = one.point["window"] or 8192
        return "out_of_memory" if one.point["budget"] * one.point["topk"] * (1 + window / 4096) > 110 else ""

    def ridge(one: Candidate, cell: Cell) -> float:
        """The best window follows the budget."""
        window = math.log2(one.point["window"] or 8192)
        return 1 - 0.03 * min((window - 9.5 - 0.06 * one.point["budget"]) ** 2, 6)

    found = [
        simulated("simulated engine, single user", goal("single-user"), grid(**usual)),
        simulated("simulated engine, 32 users", goal("aggregate"), grid(**usual)),
        simulated("simulated engine, balanced", goal("balanced"), grid(**usual)),
        published("published DDTree on MATH-500, single user", TABLES["Qwen3-8B, MATH-500"], goal("single-user"), grid(**wide), 256, 8),
        published("published DDTree on MT-Bench, balanced", TABLES["Qwen3-8B, MT-Bench"], goal("balanced"), grid(**wide), 96, 4),
        published("published DDTree on HumanEval, 70% single", TABLES["Qwen3-Coder-30B, HumanEval"],
                  goal({"single-user": 0.7, "aggregate": 0.3}), grid(**wide), 128, 8),
        simulated("interactions: backend, tp and budget", goal("balanced"), grid(**many), backend,
                  load=lambda one: 9.0 if one.point["tp"] == 4 else 6.0),
        simulated("ridge, out of memory above a budget, 5% noise", goal("balanced"), grid(**usual), ridge, cause=memory, cell_noise=0.05,
                  start_noise=0.02),
    ]  # fmt: skip
    return found[::3] if quick else found
