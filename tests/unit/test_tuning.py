"""Which configuration is started next: nothing twice, nothing hopeless, within the budget, and near the best of surfaces that are known."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from surfaces import CELL_MINUTES, Surface, grid, surfaces

from ddtree.asked import PointError
from ddtree.tune_goal import Goal
from ddtree.tune_report import confidence, importance, promising
from ddtree.tune_space import Candidate, Space, Trial
from ddtree.tuning import WHOLE_STARTS, Settings, Tuner

CONTEXTS, LEVELS = (60, 1024, 4096), (1, 32)
SPACE = grid(budget=[4, 8, 12, 16, 24], topk=[2, 4], window=[1024, 2048, "none"])
GOAL = Goal.read("balanced", CONTEXTS, LEVELS)


def cells(among: Any, speed: float = 100.0, half: float = 0.01, **more: Any) -> list[dict[str, Any]]:
    return [
        {"context": one[0], "concurrency": one[1], "output_tok_s": speed, "ci95": [speed * (1 - half), speed * (1 + half)], **more}
        for one in among
    ]


def play(surface: Surface, seed: int, minutes: float = 1e9, most: int = 0) -> tuple[list[Trial], Tuner]:
    """A whole study on the surface, one host."""
    rng, trials, left = random.Random(seed), list[Trial](), minutes
    wanted = Settings(surface.goal, minutes, most)
    while (asked := (tuner := Tuner(surface.space, wanted, trials)).ask(left)).name:
        one = surface.space.candidates[surface.space.find(asked.name)]
        trial = Trial(
            one.name, asked.stage, "ok", minutes=surface.load(one), load=surface.load(one), cause=surface.cause(one), number=len(trials)
        )
        for step in tuner.stages(asked.stage) if not trial.cause else []:
            trial.cells += surface.measure(one, step, rng, rng.gauss(0, surface.start_noise))
            trial.minutes += len(step) * CELL_MINUTES
            if tuner.weigh(one.name, trial.cells):
                trial.state = "cut"
                break
        trial.state = "failed" if trial.cause else trial.state
        trials.append(trial)
        left -= trial.minutes
    return trials, tuner


@pytest.mark.parametrize("number", range(8))
def test_near_the_best_with_a_third_of_the_grid(number: int) -> None:
    surface = surfaces()[number]
    trials, tuner = play(surface, 1)
    screens = [one.name for one in trials if one.stage == "screen"]
    assert len(screens) == len(set(screens)), "nothing is asked twice"
    assert len(trials) <= 0.35 * len(surface.space.free)
    assert surface.share(tuner.best()) >= (0.95 if surface.cell_noise < 0.05 else 0.9)
    whole = [one for one in trials if one.name == tuner.best() and one.stage == "whole" and one.state == "ok"]
    assert len(whole) >= WHOLE_STARTS, "a winner is confirmed by whole starts"


def test_what_takes_more_memory_than_what_had_too_little_is_never_started() -> None:
    surface = next(one for one in surfaces() if "memory" in one.name)
    trials, _ = play(surface, 3)
    failed = [surface.space.candidates[surface.space.find(one.name)].axes for one in trials if one.cause]
    assert failed, "the surface has a failing region"
    for at, first in enumerate(failed):
        for later in failed[at + 1 :]:
            above = all((later[axis] or math.inf) >= (first[axis] or math.inf) for axis in ("budget", "topk", "window"))
            assert not above, f"{later} after {first}"


@settings(max_examples=15, deadline=None)
@given(minutes=st.floats(20, 200), seed=st.integers(0, 99))
def test_the_budget_is_kept(minutes: float, seed: int) -> None:
    surface = surfaces(quick=True)[0]
    trials, _ = play(surface, seed, minutes)
    assert trials and sum(one.minutes for one in trials) <= minutes + 1e-6


def test_most_starts_and_a_space_that_is_used_up_end_the_study() -> None:
    surface = surfaces(quick=True)[0]
    trials, tuner = play(surface, 1, most=5)
    assert len(trials) == 5 and "5 starts were made" in tuner.ask(1e9).why


def test_controls_first_then_what_is_loaded_then_the_origin() -> None:
    names = [one.name for one in SPACE.candidates]
    space = Space([Candidate("none", {"dialect": "none"}, {}, control=True), *SPACE.candidates])
    wanted = Settings(GOAL, origin={"budget": 12, "topk": 2, "window": 2048})
    asked = Tuner(space, wanted, []).ask(100)
    assert (asked.name, asked.stage, asked.why) == ("none", "whole", "control")
    done = [Trial("none", "whole", cells=cells(GOAL.cells), load=6)]
    assert Tuner(space, wanted, done).ask(100, loaded=names[3]).name == names[3]
    assert Tuner(space, wanted, done).ask(100).name == "b12-k2-w2048"


def test_a_start_whose_run_died_is_given_back_first_and_a_lost_one_is_free_again() -> None:
    first = SPACE.candidates[0].name
    given_back = Tuner(SPACE, Settings(GOAL), [Trial(first, state="open", host="h0")]).ask(100, "h1")
    assert given_back.name == first
    lost = Tuner(SPACE, Settings(GOAL, origin=SPACE.candidates[0].axes), [Trial(first, state="lost", host="h0")])
    assert lost.ask(100, "h1").name == first


def test_two_hosts_at_once_get_different_points() -> None:
    trials: list[Trial] = []
    for at in range(6):
        asked = Tuner(SPACE, Settings(GOAL), trials).ask(1e9, f"h{at}", hosts=6)
        assert asked.name not in {one.name for one in trials}
        trials.append(Trial(asked.name, asked.stage, "running", f"h{at}", number=at))


def test_a_start_is_cut_off_once_its_interval_lies_below_and_not_before() -> None:
    names = [one.name for one in SPACE.candidates]
    tuner = Tuner(SPACE, Settings(GOAL), [Trial(names[0], "screen", cells=cells(GOAL.screen, 100.0), load=6)])
    assert tuner.weigh(names[1], cells(GOAL.screen, 99.0)) == ""
    assert "-10.0% against" in tuner.weigh(names[1], cells(GOAL.screen, 90.0))
    assert tuner.weigh(names[1], cells(GOAL.screen, 90.0, half=0.4)) == "", "a wide interval proves nothing"
    assert tuner.weigh(names[1], cells(GOAL.screen[:1], 97.0)) == "", "the cell to come may make up for it"
    assert tuner.weigh(names[1], cells(GOAL.screen[:1], 60.0)) != ""
    assert tuner.weigh(names[0], cells(GOAL.screen, 50.0)) == "", "the best is not cut off against itself"


def test_a_bound_on_latency_outweighs_speed() -> None:
    goal = Goal.read("aggregate", CONTEXTS, LEVELS, 32, {"ttft_ms": 500})
    slow = cells(goal.screen, 200.0, ttft_ms={"p99": 1500})
    quick = cells(goal.screen, 150.0, ttft_ms={"p99": 400})
    assert (goal.value(slow, goal.screen) or 0) < (goal.value(quick, goal.screen) or 0)
    assert goal.objective == "aggregate@32"


def test_a_point_that_codes_worse_than_without_speculation_cannot_win() -> None:
    space = Space([Candidate("none", {"dialect": "none"}, {}, control=True), *SPACE.candidates])
    fast, other = (one.name for one in SPACE.candidates[:2])
    plain = Trial("none", "whole", cells=cells(GOAL.cells, 50.0), coding=0.8, load=6)
    trials = [plain, Trial(fast, cells=cells(GOAL.screen, 120.0)), Trial(other, cells=cells(GOAL.screen, 100.0))]
    assert Tuner(space, Settings(GOAL), trials).best() == fast
    equal = Trial(fast, "whole", cells=cells(GOAL.cells, 120.0), coding=0.8)
    assert Tuner(space, Settings(GOAL), [*trials, equal]).best() == fast
    worse = Trial(fast, "whole", cells=cells(GOAL.cells, 120.0), coding=0.6)
    assert Tuner(space, Settings(GOAL), [*trials, worse]).best() == other
    failing = Trial(fast, "whole", cells=cells(GOAL.cells, 120.0, errors=1), coding=0.8)
    assert Tuner(space, Settings(GOAL), [*trials, failing]).best() == other


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"objective": "singleuser"}, "did you mean single-user"),
        ({"objective": {"single-user": "much"}}, "a number is wanted"),
        ({"objective": {"single-user": -1, "aggregate": 2}}, "none below 0"),
        ({"objective": {"pareto": 1, "aggregate": 2}}, "pareto alone"),
        ({"objective": "aggregate", "level": 16}, "one of benchmark_concurrencies"),
        ({"objective": "balanced", "latency": {"ttft": 5}}, "did you mean ttft_ms"),
        ({"objective": "balanced", "latency": {"ttft_ms": "fast"}}, "milliseconds"),
        ({"objective": []}, "is wanted"),
    ],
)
def test_a_goal_that_cannot_be_is_one_sentence(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(PointError, match=said) as error:
        Goal.read(asked.pop("objective"), CONTEXTS, LEVELS, **asked)
    assert "\n" not in str(error.value)


def test_a_front_has_both_ends() -> None:
    base = surfaces(quick=True)[0]
    surface = Surface("front", base.space, Goal.read("pareto", CONTEXTS, LEVELS), base.speed)
    trials, tuner = play(surface, 2)
    front = tuner.front()
    assert len(front) >= 2 and len(trials) <= 0.35 * len(surface.space.free)
    for part in ("single-user", "aggregate"):
        mine = [math.log(base.speed(base.space.candidates[base.space.find(name)], cell)) for name in front for cell in surface.goal.screen
                if cell in surface.goal.part_cells(part)]  # fmt: skip
        every = [
            math.log(base.speed(one, cell))
            for one in base.space.candidates
            for cell in surface.goal.screen
            if cell in surface.goal.part_cells(part)
        ]
        assert max(mine) >= max(every) - 0.05, f"the best of {part} is near the front"


def test_what_the_report_tells_of_a_study() -> None:
    surface = surfaces(quick=True)[0]
    _, tuner = play(surface, 1)
    shares = importance(tuner)
    assert next(iter(shares)) == "budget" and sum(shares.values()) == pytest.approx(1, abs=1e-6)
    sure = confidence(tuner, tuner.best())
    assert sure and sure["close"] >= 0.8 and sure["close"] >= sure["best"] and sure["starts"] >= 2
    tried = {one.name for one in tuner.trials}
    coming = promising(tuner)
    assert len(coming) == 3 and not tried & {one["name"] for one in coming}
    assert [one["gain"] for one in coming] == sorted((one["gain"] for one in coming), reverse=True)
