"""Percentiles and intervals against known values and by simulation."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise import cells, request_noise, spread

from ddtree.stats import (
    ALLOWANCE,
    FASTER,
    LEAST_REPEATS,
    MOST_REPEATS,
    OPEN,
    SLOWER,
    Sample,
    compare,
    compare_cells,
    enough,
    mean_interval,
    percentile,
    rate,
    ratio_half_width,
    start_spread,
    summary,
    t_quantile,
    weighted_percentile,
    width,
)

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


# -- repeats and comparisons -----------------------------------------------------------------------------------------------


def test_the_recorded_noise_is_read() -> None:
    """Two of the recorded cells by hand: 302.17 in 279.438 to 324.902 of 12 requests, 5881.364 in 5817.304 to 5945.423 of 160."""
    found = request_noise()
    assert {slots: len(one) for slots, one in found.items()} == {1: 7, 32: 7}
    assert found[1][0] == pytest.approx(22.732 / 302.17 / 2.201 * 12**0.5, rel=1e-3)
    assert found[32][0] == pytest.approx(64.06 / 5881.364 / 1.975 * 160**0.5, rel=1e-3)


def test_error_rates_of_comparisons() -> None:
    """Cells measured until they are precise: the same point twice, and points 5% apart either way."""
    same = apart = pairs = 0
    for _, cell in cells(random.Random(1), 40):
        first, again = cell.measure()[0], cell.measure()[0]
        better, worse = cell.measure(1.05)[0], cell.measure(1 / 1.05)[0]
        same += compare(first, again).verdict == OPEN
        apart += (compare(first, better).verdict == FASTER) + (compare(again, worse).verdict == SLOWER)
        pairs += 1
    assert pairs == 240 and same / pairs >= 0.95 and apart / pairs / 2 >= 0.90, (same / pairs, apart / pairs / 2)


def test_error_rates_of_cells_as_the_role_records_them() -> None:
    """The defaults, which end after 60 s, and the time that 5% take."""
    told = {}
    for seconds, most in ((60.0, 8), (240.0, 32)):
        same = apart = pairs = 0
        for _, cell in cells(random.Random(1), 60, 32):
            first, again, better = (cell.as_the_role_does(by, most=most, seconds=seconds)[0] for by in (1.0, 1.0, 1.05))
            same += compare_cells(first, again).verdict == OPEN
            apart += compare_cells(first, better).verdict == FASTER
            pairs += 1
        told[seconds] = (same / pairs, apart / pairs)
    assert told[60.0][0] >= 0.95 and told[60.0][1] >= 0.65 and told[240.0][0] >= 0.95 and told[240.0][1] >= 0.90, told


def test_cells_are_compared_by_what_they_share() -> None:
    def cell(rate: float, passages: int = 8, seed: str = "0", repeats: int = 3) -> dict[str, Any]:
        rows = [{"prompt": at, "tokens": 200, "seconds": 200 / rate / (1 + at / 10)} for at in range(passages)]
        return {
            "seed": seed,
            "per_prompt": rows,
            "output_tok_s": rate,
            "repeats": [{"output_tok_s": rate * (1 + at / 1000)} for at in range(repeats)],
        }

    found = compare_cells(cell(100), cell(108))
    assert (found.verdict, found.method, round(found.ratio, 6)) == (FASTER, "pairs of the same prompt", 1.08)
    for other in (cell(108, seed="1"), cell(108, passages=2)):  # other texts, or too few
        found = compare_cells(cell(100), other)
        assert (found.verdict, found.method, round(found.ratio, 6)) == (FASTER, "repeats of the same prompts", 1.08)
    assert compare_cells(cell(100), cell(108), starts=(0.05, 3)).verdict == OPEN
    with pytest.raises(ValueError, match="two repeats of each"):
        compare_cells(cell(100, seed="1"), cell(108, repeats=1))


def test_error_rates_where_starts_differ() -> None:
    """Three starts of an anchor tell how far starts differ; without it the answer is about two starts, and wrong about points."""
    pick = random.Random(3)
    told = {"known": 0, "unknown": 0}
    pairs = 0
    for _, cell in cells(pick, 30):
        first, again = (cell.measure(spread(pick, 0.03))[0] for _ in range(2))
        anchor = start_spread([rate(cell.measure(spread(pick, 0.03))[0]) for _ in range(3)])
        told["unknown"] += compare(first, again).verdict != OPEN
        told["known"] += compare(first, again, starts=anchor).verdict != OPEN
        pairs += 1
    assert told["known"] / pairs <= 0.05 and told["unknown"] / pairs > 0.2, told


def test_error_rates_of_prompts_asked_once() -> None:
    """New prompts in each repeat, the same in both: pairs take the difference between texts out."""
    pick = random.Random(4)
    verdicts: dict[tuple[float, bool], list[str]] = {}
    for faster in (1.0, 1.05):
        for _ in range(200):
            prompts = [spread(pick, 0.25) for _ in range(120)]
            first, second = ([Sample(at, 200, 200 / (100 * by * one * spread(pick, 0.08)), at // 10) for at, one in enumerate(prompts)]
                             for by in (1.0, faster))  # fmt: skip
            strangers = [one._replace(prompt=f"other {one.prompt}") for one in second]
            verdicts.setdefault((faster, True), []).append(compare(first, second).verdict)
            verdicts.setdefault((faster, False), []).append(compare(first, strangers).verdict)
    assert verdicts[1.0, True].count(OPEN) >= 190 and verdicts[1.05, True].count(FASTER) >= 180
    assert verdicts[1.0, False].count(OPEN) >= 190 and verdicts[1.05, False].count(FASTER) < 100  # other texts hide it


def test_what_a_comparison_says() -> None:
    one = [Sample("", 100.0 + at % 3, 1.0, at) for at in range(9)]
    other = [item._replace(tokens=item.tokens * 1.08) for item in one]
    found = compare(one, other)
    assert found.verdict == FASTER and found.ratio == pytest.approx(1.08) and found.method == "repeats of the same prompts"
    assert found.low < 1.08 < found.high and found.words().startswith("8.0% faster, 95% interval +6")
    assert compare(other, one).verdict == SLOWER and compare(other, one).words().startswith("7.4% slower, 95% interval -8")
    near = compare(one, [item._replace(tokens=item.tokens * 1.004) for item in one])
    assert near.verdict == OPEN and near.words().startswith("no difference shown: +0.4%, 95% interval -")
    assert near.visible >= 0.01 and "would have shown in nine of ten" in near.words()
    wide = compare(one, other, starts=(0.05, 2))
    assert wide.verdict == OPEN and wide.method.endswith("the spread between starts") and wide.visible > 0.3
    # an exact repetition still has the engine's own drift, and what matters to nobody is no difference
    flat = [Sample("", 100.0, 1.0, at) for at in range(4)]
    sliver = compare(flat, [item._replace(tokens=100.9) for item in flat], margin=0.02)
    assert sliver.verdict == OPEN and compare(flat, flat).visible == pytest.approx(0.023, abs=0.002)


def test_too_little_to_compare_is_said() -> None:
    two = [Sample("a", 10, 1, 0), Sample("b", 12, 1, 0)]
    with pytest.raises(ValueError, match="too little was measured"):
        compare(two, two)
    with pytest.raises(ValueError, match="no tokens"):
        compare([], two)
    with pytest.raises(ValueError, match="two starts or more"):
        start_spread([1.0])
    assert width(two) is None and start_spread([100.0, 100.0, 100.0]) == (0.0, 2)


def test_repeats_go_on_until_they_are_precise() -> None:
    steady = [Sample(prompt, 200, 2.0 + prompt, number) for number in range(MOST_REPEATS) for prompt in range(6)]
    assert not enough(steady[: 6 * (LEAST_REPEATS - 1)], 0.03) and enough(steady[: 6 * LEAST_REPEATS], 0.03)
    assert not enough(steady[: 6 * LEAST_REPEATS], ALLOWANCE)  # no engine is that steady
    pick = random.Random(1)
    wild = [one._replace(seconds=one.seconds * spread(pick, 1.0)) for one in steady]
    assert not enough(wild[:-6], 0.03) and enough(wild, 0.03)  # the cap


def test_a_slow_drift_of_whole_repeats_widens_the_interval() -> None:
    """What all requests of a repeat share is not seen between them: 3% between repeats, nothing else."""
    pick, inside, widths = random.Random(9), 0, []
    for _ in range(300):
        samples = []
        for number in range(6):
            slow = spread(pick, 0.03)
            samples += [Sample(prompt, 200, (2.0 + prompt / 10) * slow * spread(pick, 0.001), number) for prompt in range(32)]
        found = width(samples)
        assert found is not None and found.of == "same prompts"
        truth = 200 * 32 / sum(2.0 + prompt / 10 for prompt in range(32))
        inside += abs(rate(samples) / truth - 1) <= found.half
        widths.append(found.half)
    assert inside / 300 >= 0.93 and statistics.median(widths) > 0.02


samples = st.lists(
    st.builds(Sample, st.integers(0, 5), st.floats(1, 500), st.floats(0.01, 60), st.integers(0, 4)), min_size=1, max_size=40
)  # fmt: skip


@given(samples, samples, st.floats(0.1, 10))
def test_comparisons_are_symmetric_and_know_no_units(one: list[Sample], other: list[Sample], scale: float) -> None:
    try:
        found, back = compare(one, other), compare(other, one)
    except ValueError as error:
        assert "too little" in str(error)
        return
    assert found.ratio == pytest.approx(1 / back.ratio) and {found.verdict, back.verdict} in ({OPEN}, {FASTER, SLOWER})
    assert 0 <= found.low <= found.ratio <= found.high and not math.isnan(found.visible)
    larger = [[item._replace(tokens=item.tokens * scale) for item in side] for side in (one, other)]
    scaled = compare(larger[0], larger[1])
    assert scaled.ratio == pytest.approx(found.ratio) and scaled.method == found.method
