"""A soak judges errors and speed against the host's own last good one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddtree.ports import Generation
from ddtree.soak import Bounds, SoakError, judge, run, wait_idle


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def answers(clock: Clock, seconds: float, bad: tuple[int, ...] = (), version: str = "c1") -> Callable[[], Generation]:
    asked = [0]

    def ask() -> Generation:
        asked[0] += 1
        clock.time += seconds
        if asked[0] in bad:
            return Generation(error="HTTP 500", status=500, seconds=seconds)
        return Generation(tokens=128, weight_version=version, status=200, seconds=seconds)

    return ask


def soak(seconds: float, bounds: Bounds, **more: Any) -> dict[str, Any]:
    clock = Clock()
    return run(answers(clock, seconds, **more), clock, bounds, "c1")


def test_requests_are_spread_over_the_time() -> None:
    found = soak(0.5, Bounds(10, 30))
    assert found["requests"] == 10 and found["errors"] == 0
    assert found["seconds"] == 27.5 and found["tok_s"] == 256.0


def test_slow_answers_take_longer_than_asked() -> None:
    assert soak(4.0, Bounds(10, 30))["seconds"] == 40.0


def test_30_percent_slower_is_told_and_10_is_not() -> None:
    bounds = Bounds(10, 30, speed=0.8)
    good = soak(0.7, bounds)
    judge(soak(0.7 / 0.9, bounds), bounds, good)
    with pytest.raises(SoakError, match=r"30% slower than this host's last good 182.9 of configuration c1; at most 20% slower"):
        judge(soak(1.0, bounds), bounds, good)


def test_without_a_last_good_only_errors_are_judged() -> None:
    judge(soak(100.0, Bounds(3, 1)), Bounds(3, 1), None)


def test_it_ends_once_too_many_have_failed() -> None:
    bounds = Bounds(20, 30, errors=0.1)
    judge(soak(0.5, bounds, bad=(3, 9)), bounds, None)
    found = soak(0.5, bounds, bad=(1, 2, 3))
    assert found["requests"] == 3
    with pytest.raises(SoakError, match=r"3 of 3 soak requests failed, at most 10% of 20 may: HTTP 500"):
        judge(found, bounds, None)


def test_an_answer_of_another_configuration_is_an_error() -> None:
    with pytest.raises(SoakError, match="configuration c0 answered instead of c1"):
        judge(soak(0.5, Bounds(5, 1), version="c0"), Bounds(5, 1), None)


@pytest.mark.parametrize("wrong", [{"requests": 0}, {"seconds": -1}, {"errors": 1.0}, {"speed": 1.1}])
def test_bounds_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wanted are"):
        Bounds(**wrong)


def test_idle_is_waited_for() -> None:
    clock, left = Clock(), iter([3, 2, 1, 0])
    assert wait_idle(lambda: next(left), clock, 10) and clock.time == pytest.approx(0.6)
    assert not wait_idle(lambda: 2, clock, 1)
    assert wait_idle(lambda: None, clock, 1)
