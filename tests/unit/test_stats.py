"""Percentiles and intervals against known values and by simulation."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.stats import mean_interval, percentile, ratio_half_width, summary, t_quantile, weighted_percentile

numbers = st.lists(st.integers(-(10**9), 10**9).map(float), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("probability", "freedom", "value"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 5, 2.5706), (0.975, 9, 2.2622), (0.95, 30, 1.6973), (0.995, 4, 4.6041),
     (0.975, 1e6, 1.95997)],
)  # fmt: skip
def test_quantiles_of_the_printed_table(probability: float, freedom: float, value: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(value, abs=2e-4)
    assert t_quantile(1 - probability, freedom) == pytest.approx(-value, abs=2e-4)


def test_percentiles_of_known_values() -> None:
    assert [percentile([4, 1, 3, 2], level) for level in (0, 50, 100)] == [1, 2.5, 4]
    assert percentile(list(range(101)), 95) == 95
    assert weighted_percentile([1, 10], [99, 1], 50) == 1 and weighted_percentile([1, 10], [99, 1], 99.5) == 10
    assert summary([]) == {"p50": None, "p95": None, "p99": None}
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(numbers, st.floats(0, 100), st.floats(0, 100))
def test_percentiles_are_ordered_and_within(values: list[float], one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert min(values) <= percentile(values, low) <= percentile(values, high) + 1e-6
    assert percentile(values, high) <= max(values) + 1e-6
    assert weighted_percentile(values, [1.0] * len(values), low) in values


@given(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=20), st.integers(1, 5), st.floats(0, 100))
def test_a_weight_is_a_repetition(values: list[float], weight: int, level: float) -> None:
    repeated = values * weight
    assert weighted_percentile(values, [float(weight)] * len(values), level) == weighted_percentile(repeated, [1.0] * len(repeated), level)


def test_the_interval_of_a_mean_covers_as_often_as_it_says() -> None:
    pick = random.Random(7)
    inside = 0
    for _ in range(2000):
        found = mean_interval([pick.gauss(10, 2) for _ in range(4)])
        assert found is not None
        inside += found[0] <= 10 <= found[1]
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)
    assert mean_interval([1.0]) is None


@pytest.mark.parametrize("count", [6, 32])
def test_the_interval_of_a_rate_covers_as_often_as_it_says(count: int) -> None:
    """Requests of varying length and duration: the closed loop's rate is the quotient of the sums."""
    pick = random.Random(count)
    inside = 0
    for _ in range(2000):
        tokens = [pick.uniform(200, 400) for _ in range(count)]
        seconds = [one / 100 * pick.lognormvariate(0, 0.1) + 0.2 for one in tokens]
        truth = 300 / (3.0 * 1.0050125 + 0.2)
        half = ratio_half_width(tokens, seconds)
        assert half is not None
        rate = sum(tokens) / sum(seconds)
        inside += rate * (1 - half) <= truth <= rate * (1 + half)
    assert inside / 2000 == pytest.approx(0.95, abs=0.025)


def test_no_interval_where_there_is_nothing_to_judge_by() -> None:
    assert ratio_half_width([1, 2], [1, 2]) is None and ratio_half_width([0, 0, 0], [1, 1, 1]) is None
    assert ratio_half_width([2.0] * 5, [1.0] * 5) == pytest.approx(0)
    with pytest.raises(ValueError, match="differ"):
        ratio_half_width([1], [1, 2])
    wide = ratio_half_width([1, 2, 3, 4], [1, 1, 1, 1])
    spread = statistics.stdev([1, 2, 3, 4]) / 2 / 2.5
    assert wide == pytest.approx(t_quantile(0.975, 3) * spread)
