"""How many starts, and how many minutes, until the best configuration is found? Five ways of searching on eight surfaces.

    tune.py [--quick] [--seeds N] [--ways NAME,...]

Each way recommends a configuration after every start; it has reached the goal once what it recommends is truly within 2% of the best,
and stays so until 10 starts later or its end. The plain ways measure the whole matrix in each start; grid takes the grid's points in
random order, halving starts a third of the space with one cell, the better third of those with two, and so on. `whole` are all starts that
the adaptive way makes until it ends by itself, controls left out, confirmation in. Three hosts differ by 2% and share one study. The last
line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "module_utils"), str(ROOT / "tests" / "unit")]

from surfaces import CELL_MINUTES, Surface, surfaces  # noqa: E402  needs the path above

from ddtree.tune_space import Trial  # noqa: E402
from ddtree.tuning import Settings, Tuner  # noqa: E402

CLOSE = 0.98
STAYS = 10
Step = tuple[str, float]  # what is recommended now, and the minutes so far


def whole(surface: Surface, index: int, rng: random.Random) -> tuple[float | None, float]:
    """(log of the score, minutes) of one start with the whole matrix; None where it fails."""
    one = surface.space.candidates[index]
    if surface.cause(one):
        return None, surface.load(one)
    cells = surface.measure(one, list(surface.goal.cells), rng, rng.gauss(0, surface.start_noise))
    return surface.goal.value(cells, surface.goal.asked), surface.load(one) + CELL_MINUTES * len(cells)


def in_order(surface: Surface, order: list[int], rng: random.Random) -> Iterator[Step]:
    """Configurations one after the other; what measured best is recommended."""
    best, top, minutes = "", -math.inf, 0.0
    for index in order:
        value, took = whole(surface, index, rng)
        minutes += took
        if value is not None and value > top:
            best, top = surface.space.candidates[index].name, value
        yield best, minutes


def randomly(surface: Surface, rng: random.Random) -> Iterator[Step]:
    """Random search, each configuration at most once, which is kinder to it than drawing again."""
    yield from in_order(surface, rng.sample(surface.space.free, len(surface.space.free)), rng)


def plain_grid(surface: Surface, rng: random.Random) -> Iterator[Step]:
    """The grid in the order asked, begun at a random place."""
    free, at = surface.space.free, rng.randrange(len(surface.space.free))
    yield from in_order(surface, [*free[at:], *free[:at]], rng)


def tpe(surface: Surface, rng: random.Random) -> Iterator[Step]:
    """Optuna's TPE as it comes, over the axes; a combination that is no configuration of its own stands for the nearest."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=rng.randrange(2**31)))
    space = surface.space
    best, top, minutes = "", -math.inf, 0.0
    for _ in range(len(space.free)):
        trial = study.ask()
        place = [trial.suggest_categorical(axis, [str(one) for one in values]) if not ordered
                 else trial.suggest_int(axis, 0, len(values) - 1)
                 for (axis, values), ordered in zip(space.axes.items(), space.grid.ordered)]  # fmt: skip
        row = min(range(len(space.free)), key=lambda row: _apart(surface, row, place))
        index = space.free[row]
        value, took = whole(surface, index, rng)
        minutes += took
        if value is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, value)
            if value > top:
                best, top = space.candidates[index].name, value
        yield best, minutes


def _apart(surface: Surface, row: int, place: list[Any]) -> float:
    axes = surface.space.candidates[surface.space.free[row]].axes
    total = 0.0
    for (axis, values), wish in zip(surface.space.axes.items(), place):
        at = values.index(axes.get(axis))
        total += abs(at - wish) if isinstance(wish, int) else 10.0 * (str(axes.get(axis)) != wish)
    return total


def halving(surface: Surface, rng: random.Random) -> Iterator[Step]:
    """Successive halving by thirds over starts; each rung starts the engine again, with one cell, two, then the whole matrix."""
    alive = rng.sample(surface.space.free, max(len(surface.space.free) // 3, 3))
    rungs = [surface.goal.screen[:1], surface.goal.screen, list(surface.goal.cells)]
    best, minutes = "", 0.0
    for number, cells in enumerate(rungs):
        scored: list[tuple[float, int]] = []
        among = [cell for cell in cells if cell in surface.goal.asked]
        for index in alive:
            one = surface.space.candidates[index]
            minutes += surface.load(one)
            if not surface.cause(one):
                found = surface.measure(one, cells, rng, rng.gauss(0, surface.start_noise))
                minutes += CELL_MINUTES * len(cells)
                scored.append((surface.goal.value(found, among) or 0.0, index))
            if scored and (number or len(scored) == len(alive)):
                best = surface.space.candidates[max(scored)[1]].name
            yield best, minutes
        scored.sort(reverse=True)
        best = surface.space.candidates[scored[0][1]].name if scored else best
        alive = [index for _, index in scored[: max(len(scored) // 3, 3)]]


def adaptive(surface: Surface, rng: random.Random) -> Iterator[Step]:
    """tune.yml's own decisions on a simulated clock, one host."""
    trials: list[Trial] = []
    settings = Settings(surface.goal, minutes=math.inf)
    minutes, tuner = 0.0, Tuner(surface.space, settings, trials)
    while (asked := tuner.ask(1e9)).name:
        minutes += start(surface, tuner, asked.name, asked.stage, trials, rng)
        tuner = Tuner(surface.space, settings, trials)
        yield tuner.best(), minutes


def start(
    surface: Surface, tuner: Tuner, name: str, stage: str, trials: list[Trial], rng: random.Random, host: str = "", factor: float = 0.0
) -> float:
    """One start as the plays make it, cut off where the policy says; its minutes."""
    index = surface.space.find(name)
    one = surface.space.candidates[index]
    trial = Trial(
        name, stage, "failed", host, load=surface.load(one), minutes=surface.load(one), cause=surface.cause(one), number=len(trials)
    )
    if not trial.cause:
        shift = rng.gauss(0, surface.start_noise) + factor
        trial.state = "ok"
        for cells in tuner.stages(stage):
            trial.cells += surface.measure(one, cells, rng, shift)
            trial.minutes += CELL_MINUTES * len(cells)
            trial.why = tuner.weigh(name, trial.cells)
            if trial.why:
                trial.state = "cut"
                break
    trials.append(trial)
    return trial.minutes


def fleet(surface: Surface, rng: random.Random, number: int) -> tuple[float, int, str, int]:
    """(wall minutes, starts, what is recommended, screens asked twice) of `number` hosts that share one study, on a simulated clock."""
    settings, trials = Settings(surface.goal, minutes=math.inf), list[Trial]()
    factors = {f"h{at}": rng.gauss(0, 0.02) for at in range(number)}
    ready = dict.fromkeys(factors, 0.0)
    at_work: dict[str, tuple[float, Trial, list[Trial]]] = {}
    now = 0.0
    while ready or at_work:
        for host in sorted(at_work, key=lambda one: at_work[one][0]):
            end, running, found = at_work[host]
            if end <= now:
                trials[trials.index(running)] = found[0]
                del at_work[host]
                ready[host] = end
        for host in list(ready):
            tuner = Tuner(surface.space, settings, trials)
            asked = tuner.ask(1e9, host, hosts=number)
            if asked.name:
                made: list[Trial] = []
                took = start(surface, tuner, asked.name, asked.stage, made, rng, host, factors[host])
                made[0].number = len(trials)
                running = Trial(asked.name, asked.stage, "running", host, number=len(trials))
                trials.append(running)
                at_work[host] = (now + took, running, made)
                del ready[host]
            elif not asked.wait or not at_work:
                del ready[host]
        if at_work:
            now = min(end for end, _, _ in at_work.values())
    screens = [one.name for one in trials if one.stage == "screen"]
    return now, len(trials), Tuner(surface.space, settings, trials).best(), len(screens) - len(set(screens))


class Run(NamedTuple):
    """Starts and minutes to the goal, the whole grid's if it is never reached; both of all that was made; what is recommended at last."""

    starts: int
    minutes: float
    all_starts: int
    all_minutes: float
    last: str


def reached(surface: Surface, way: str, rng: random.Random) -> Run:
    history: list[Step] = []
    since: int | None = None
    for step in WAYS[way](surface, rng):
        history.append(step)
        if surface.share(step[0]) < CLOSE:
            since = None
        elif since is None:
            since = len(history) - 1
        if since is not None and len(history) - since > STAYS and way != "adaptive":
            break
    name, minutes = history[-1]
    size = len(surface.space.free)
    if since is None:
        return Run(size, max(minutes, minutes / len(history) * size), len(history), minutes, name)
    return Run(since + 1, history[since][1], len(history), minutes, name)


def median(runs: list[Run], what: str) -> float:
    return statistics.median(getattr(one, what) for one in runs)


def spread(runs: list[Run]) -> str:
    return f"{median(runs, 'starts'):.0f} ({statistics.quantiles([one.starts for one in runs], n=10)[-1]:.0f})"


WAYS = {"adaptive": adaptive, "random": randomly, "TPE": tpe, "grid": plain_grid, "halving": halving}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three surfaces, 4 seeds, under a minute")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--ways", default=",".join(WAYS))
    given = parser.parse_args()
    seeds = given.seeds or (4 if given.quick else 30)
    ways = given.ways.split(",")
    print("Starts to reach 98% of the best, median (90th percentile), and median minutes. `grid` is how many starts the whole grid is.\n")
    ends = ["adaptive, whole: starts", "minutes", "within 2% at its end"]
    print("| " + " | ".join(["surface", "grid", *(head for way in ways for head in (f"{way}: starts", "minutes")), *ends]) + " |")
    print("|---|---|" + "---|---|" * len(ways) + "---|---|---|")
    every: list[tuple[Surface, Run]] = []
    against, wall, twice = [], [], 0
    for surface in surfaces(given.quick):
        found = {way: [reached(surface, way, random.Random(f"{surface.name}/{seed}")) for seed in range(seeds)] for way in ways}
        mine = found["adaptive"]
        every += [(surface, one) for one in mine]
        against += [median(mine, "starts") / median(found["random"], "starts")] if "random" in found else []
        row = [f"{cell}" for way in ways for cell in (spread(found[way]), f"{median(found[way], 'minutes'):.0f}")]
        close = sum(surface.share(one.last) >= CLOSE for one in mine) / seeds
        row += [f"{median(mine, 'all_starts'):.0f}", f"{median(mine, 'all_minutes'):.0f}", f"{close:.0%}"]
        print("| " + " | ".join([surface.name, str(len(surface.space.free)), *row]) + " |", flush=True)
        for seed in range(max(seeds // 5, 2)):
            one, three = (fleet(surface, random.Random(f"{surface.name}/{seed}"), number) for number in (1, 3))
            wall.append(three[0] / one[0])
            twice += three[3]
    tail = statistics.quantiles(wall, n=10)[-1]
    print(f"\nThree hosts take {statistics.median(wall):.1%} of the wall time of one (90th percentile {tail:.1%}); asked twice: {twice}.")
    ratios = [one.starts / len(surface.space.free) for surface, one in every]
    figures = {
        "starts_ratio_median": statistics.median(ratios), "starts_ratio_p90": statistics.quantiles(ratios, n=10)[-1],
        "whole_ratio_median": statistics.median(one.all_starts / len(surface.space.free) for surface, one in every),
        "within_2_percent": statistics.fmean(surface.share(one.last) >= CLOSE for surface, one in every),
        "vs_random": max(against, default=math.nan), "three_hosts_wall": statistics.median(wall),
    }  # fmt: skip
    print(json.dumps({**{name: round(value, 4) for name, value in figures.items()}, "asked_twice": twice, "seeds": seeds}))


if __name__ == "__main__":
    main()
