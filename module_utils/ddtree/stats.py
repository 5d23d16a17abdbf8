"""Percentiles and intervals for measured figures, with the standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

LEVELS = (50, 95, 99)


def percentile(values: Sequence[float], level: float) -> float:
    """The `level`-th percentile (0 to 100), linear between neighbours. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = (len(ordered) - 1) * min(100.0, max(0.0, level)) / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def weighted_percentile(values: Sequence[float], weights: Sequence[float], level: float) -> float:
    """The smallest value that at least `level` percent of the weight does not exceed. Raises ValueError without weight."""
    pairs = sorted((value, weight) for value, weight in zip(values, weights) if weight > 0)
    if not pairs:
        raise ValueError("no values")
    sums = list(accumulate(weight for _, weight in pairs))
    wanted = sums[-1] * min(100.0, max(0.0, level)) / 100
    for (value, _), so_far in zip(pairs, sums):
        if so_far >= wanted * (1 - 1e-12):
            return value
    return pairs[-1][0]


def summary(values: Sequence[float], weights: Sequence[float] | None = None, digits: int = 3) -> dict[str, float | None]:
    """{p50, p95, p99}, each None when there is nothing to measure: a zero would be a figure."""

    def at(level: int) -> float | None:
        if not values:
            return None
        found = percentile(values, level) if weights is None else weighted_percentile(values, weights, level)
        return round(found, digits)

    return {f"p{level}": at(level) for level in LEVELS}


def t_quantile(probability: float, freedom: float) -> float:
    """Student's t: the value that a variable with `freedom` degrees of freedom stays below with this probability (0 < p < 1)."""
    if not 0 < probability < 1 or freedom <= 0:
        raise ValueError(f"no quantile for probability {probability} and {freedom} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while _t_below(high, freedom) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_below(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _t_below(value: float, freedom: float) -> float:
    """P(T < value) for value >= 0."""
    return 1 - _beta(freedom / (freedom + value * value), freedom / 2, 0.5) / 2


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    tiny = 1e-300
    c, d = 1.0, 1 / max(tiny, abs(1 - (a + b) * x / (a + 1))) * math.copysign(1, 1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 500):
        for term in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * fraction / a


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Student's interval of the mean; None for fewer than two values."""
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    half = t_quantile((1 + confidence) / 2, count - 1) * spread
    return mean - half, mean + half


def ratio_half_width(parts: Sequence[float], wholes: Sequence[float], confidence: float = 0.95) -> float | None:
    """Half width of the interval of sum(parts) / sum(wholes) as a share of that ratio, the pairs being independent.

    Linearised (delta method) with Student's t, so that it also holds for a handful of pairs; None for fewer than three.
    """
    count = len(parts)
    if count != len(wholes):
        raise ValueError("parts and wholes differ in number")
    total, whole = math.fsum(parts), math.fsum(wholes)
    if count < 3 or total <= 0 or whole <= 0:
        return None
    ratio = total / whole
    squares = math.fsum((part - ratio * one) ** 2 for part, one in zip(parts, wholes))
    deviation = math.sqrt(squares / (count - 1) * count) / whole
    return t_quantile((1 + confidence) / 2, count - 1) * deviation / ratio
