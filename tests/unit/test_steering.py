"""When a cell has measured enough."""

from __future__ import annotations

import random

import pytest

from ddtree.steering import Enough, Steering
from ddtree.wire import Record


def one(index: int, ok: bool = True) -> Record:
    return Record("warmup" if index < 0 else "measured", 9, index, finish="stop" if ok else None, error=None if ok else "timeout")


def drive(enough: Enough, paces: list[float], warmups: int = 2, shuffle: int = 0) -> tuple[Steering, float]:
    """Ends one request after the other, `paces[k]` seconds each in repeat k, 10 tokens each; stops when told to."""
    steering, now, tokens = Steering(enough, warmups, 8), 0.0, 0
    for at in range(warmups):
        now, tokens = now + 1, tokens + 10
        steering.ended(one(-1 - at), now, tokens)
    for repeat, pace in enumerate(paces):
        indexes = [repeat * enough.per_repeat + at for at in range(enough.per_repeat)]
        random.Random(shuffle).shuffle(indexes)
        for index in indexes:
            now, tokens = now + pace, tokens + 10
            steering.ended(one(index), now, tokens)
            if steering.reason:
                return steering, now
    return steering, now


def test_a_steady_engine_is_measured_for_the_least_repeats() -> None:
    steering, _ = drive(Enough(4, seconds=1000), [1.0] * 20)
    assert (steering.reason, steering.repeats, steering.measured) == ("precision", 3, 12) and steering.half_width() == pytest.approx(0)


def test_a_restless_one_until_its_interval_is_narrow_or_a_cap_is_reached() -> None:
    noise = [1.0, 1.2, 0.9, 1.1, 1.0, 0.95, 1.05, 1.0, 1.0, 1.0]
    wide, _ = drive(Enough(4, most=8, seconds=1000), noise)
    assert (wide.reason, wide.repeats) == ("repeats", 8) and (wide.half_width() or 0) > 0.03
    enough, _ = drive(Enough(4, most=8, seconds=1000, precision=0.2), noise)
    assert enough.reason == "precision" and enough.repeats < 8


def test_the_seconds_are_kept_but_for_the_first_repeat() -> None:
    noise = [1.0, 1.4] * 20
    for seconds in (5.0, 20.0, 50.0):
        steering, now = drive(Enough(4, most=99, seconds=seconds), noise)
        assert steering.reason == "seconds" and (steering.repeats == 1 or now - 2 <= seconds)
    assert drive(Enough(4, most=1, seconds=1000), noise)[0].reason == "repeats"


@pytest.mark.parametrize("seed", range(5))
def test_requests_end_in_any_order(seed: int) -> None:
    steering, _ = drive(Enough(8, most=5, seconds=1000, precision=0.0), [1.0, 1.1, 1.2, 1.1, 1.0], shuffle=seed)
    assert (steering.repeats, len(steering.marks)) == (5, 6)


def test_a_repeat_ends_with_its_last_request() -> None:
    steering = Steering(Enough(2, least=1, most=1), 1, 8)
    steering.ended(one(-1), 1.0, 10)
    for index in (1, 2, 3):  # 0 is slow
        steering.ended(one(index), 2.0, 20)
    assert (steering.repeats, steering.reason) == (0, "")
    steering.ended(one(0), 3.0, 30)
    assert (steering.repeats, steering.reason) == (2, "repeats")


def test_failures_in_a_row_end_it_and_single_ones_do_not() -> None:
    steering = Steering(Enough(100), 1, 3)
    for index in range(40):
        steering.ended(one(index, ok=index % 2 == 0), 1.0 + index, 0)
    assert str(steering.reason) == ""
    for index in range(40, 43):
        steering.ended(one(index, ok=False), 50.0, 0)
    assert str(steering.reason) == "failures"
