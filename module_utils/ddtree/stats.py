"""Percentiles, intervals and comparisons of measured figures, with the standard library only. docs/statistics.md says why so."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

LEVELS = (50, 95, 99)
ALLOWANCE = 0.005  # relative standard deviation of an engine in minutes although nothing changed; repeats may miss it
LOOKS = 1.3  # an interval looked at after each repeat must fit with so much to spare, or luck would end the measuring
MARGIN = 0.01  # differences below it matter to nobody
LEAST_REPEATS, MOST_REPEATS = 3, 30
LEAST_PASSAGES = 4  # that two cells must share to be compared passage by passage


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


@lru_cache(maxsize=4096)
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


# -- repeats of a cell -----------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """One request: its prompt, new tokens, seconds from sending to its end, and the repeat it belongs to.

    Where only the rates of repeats are known, each is a sample of one prompt and one second: Sample("", rate, 1.0, number).
    """

    prompt: Hashable
    tokens: float
    seconds: float
    repeat: int = 0


@dataclass(frozen=True)
class Width:
    """Half width of a rate's interval as a share of it, and what it holds: `same prompts` measured again, or `new prompts`."""

    half: float
    of: str


def rate(samples: Iterable[Sample]) -> float:
    """Tokens per second of one stream. Raises ValueError without tokens or time."""
    found = list(samples)
    tokens, seconds = math.fsum(one.tokens for one in found), math.fsum(one.seconds for one in found)
    if tokens <= 0 or seconds <= 0:
        raise ValueError("no tokens to make a rate of")
    return tokens / seconds


def width(samples: Sequence[Sample], confidence: float = 0.95) -> Width | None:
    """How well a rate is known. None when fewer than two repeats and fewer than three prompts are there to judge by.

    With repeats of the same prompts: the scatter of a prompt about its own mean, and of whole repeats where it is larger than the
    requests explain. Else the scatter between prompts, whatever text is.
    """
    deviations = _deviations(samples)
    if _repeated(samples):
        half = _half(_without(deviations, [one.prompt for one in samples]), samples, len({one.prompt for one in samples}), confidence)
        return Width(math.hypot(half, _allowed(confidence)), "same prompts")
    if len(samples) < 3:
        return None
    return Width(math.hypot(_half(deviations, samples, 1, confidence), _allowed(confidence)), "new prompts")


def enough(samples: Sequence[Sample], precision: float) -> bool:
    """Whether to end the repeats of a cell: the 95% interval is within `precision` of its rate, looks after each repeat counted."""
    repeats = len({one.repeat for one in samples})
    if repeats < LEAST_REPEATS:
        return False
    found = width(samples)
    return repeats >= MOST_REPEATS or (found is not None and found.half * LOOKS <= precision)


def _repeated(samples: Sequence[Sample]) -> bool:
    return len(samples) >= 2 * len({one.prompt for one in samples})


def _deviations(samples: Sequence[Sample]) -> list[float]:
    """What each request adds to the rate's relative error: linearised (delta method); their mean is 0."""
    level = rate(samples)
    share = level * math.fsum(one.seconds for one in samples) / len(samples)
    return [(one.tokens - level * one.seconds) / share for one in samples]


def _without(values: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    means = _means(values, groups)
    return [value - means[group] for value, group in zip(values, groups)]


def _means(values: Sequence[float], groups: Sequence[Hashable]) -> dict[Hashable, float]:
    of: dict[Hashable, list[float]] = defaultdict(list)
    for value, group in zip(values, groups):
        of[group].append(value)
    return {group: math.fsum(one) / len(one) for group, one in of.items()}


def _half(values: Sequence[float], samples: Sequence[Sample], fitted: int, confidence: float) -> float:
    """Half width of the interval of the values' mean, from which `fitted` means were taken: requests, then whole repeats."""
    count, at = len(values), (1 + confidence) / 2
    centre = 0.0 if fitted > 1 else math.fsum(values) / count
    within = math.fsum((value - centre) ** 2 for value in values) / (count - fitted) / count
    repeats = list(_means(values, [one.repeat for one in samples]).values())
    if len(repeats) < 2:
        return t_quantile(at, count - fitted) * math.sqrt(within)
    mean = math.fsum(repeats) / len(repeats)
    between = math.fsum((one - mean) ** 2 for one in repeats) / (len(repeats) - 1) / len(repeats)
    more = max(0.0, between - within)
    return math.hypot(t_quantile(at, count - fitted) * math.sqrt(within), t_quantile(at, len(repeats) - 1) * math.sqrt(more))


def _allowed(confidence: float) -> float:
    return t_quantile((1 + confidence) / 2, 1e6) * ALLOWANCE


# -- two measurements ------------------------------------------------------------------------------------------------------

FASTER, SLOWER, OPEN = "faster", "slower", "no difference shown"


@dataclass(frozen=True)
class Comparison:
    """`ratio` of the second rate to the first with its interval. `visible`: the difference that nine of ten such pairs would show."""

    verdict: str
    ratio: float
    low: float
    high: float
    visible: float
    method: str

    def words(self) -> str:
        """One clause for a report."""
        span = f"95% interval {_percent(self.low - 1)} to {_percent(self.high - 1)}"
        if self.verdict == OPEN:
            return f"{OPEN}: {_percent(self.ratio - 1)}, {span}; {self.visible:.1%} would have shown in nine of ten"
        return f"{abs(self.ratio - 1):.1%} {self.verdict}, {span}"


def _percent(share: float) -> str:
    return f"{share:+.1%}"


def compare(one: Sequence[Sample], other: Sequence[Sample], margin: float = MARGIN, starts: tuple[float, int] | None = None,
            confidence: float = 0.95) -> Comparison:  # fmt: skip
    """Whether the second is faster, slower, or no difference is shown: the interval must exclude 1 and the ratio pass `margin`.

    Prompts that both have are paired. `starts`: relative standard deviation between starts of one configuration and its degrees of
    freedom, as an anchor gives it (`start_spread`); without it the answer is about these two starts. Raises ValueError when
    there is too little to judge by.
    """
    shared = {sample.prompt for sample in one} & {sample.prompt for sample in other}
    both = [[sample for sample in side if sample.prompt in shared] for side in (one, other)]
    matched = all(len(kept) >= 0.8 * len(side) for kept, side in zip(both, (one, other)))
    first, second = both if matched else (one, other)
    if matched and _repeated(first) and _repeated(second):
        method, halves = "repeats of the same prompts", [_known(first, confidence), _known(second, confidence)]
    elif matched and len(shared) >= 3:
        method, halves = "pairs of the same prompt", [_paired(first, second, confidence), math.sqrt(2) * _allowed(confidence)]
    else:
        method = "different prompts"
        halves = [_known(_by_prompt(first), confidence), _known(_by_prompt(second), confidence)]
    if starts is not None:
        method += " and the spread between starts"
        halves.append(t_quantile((1 + confidence) / 2, starts[1]) * starts[0] * math.sqrt(2))
    return _comparison(math.log(rate(second) / rate(first)), math.hypot(*halves), margin, method, confidence)


def _comparison(step: float, half: float, margin: float, method: str, confidence: float) -> Comparison:
    """From a difference of logarithms and the half width of its interval."""
    shown = abs(step) > half and abs(step) >= math.log1p(margin)
    verdict = (FASTER if step > 0 else SLOWER) if shown else OPEN
    usual, nine = t_quantile((1 + confidence) / 2, 1e6), t_quantile(0.9, 1e6)
    visible = math.expm1(half * (usual + nine) / usual)
    return Comparison(verdict, math.exp(step), math.exp(step - half), math.exp(step + half), max(margin, visible), method)


def compare_cells(one: Mapping[str, Any], other: Mapping[str, Any], margin: float = MARGIN,
                  starts: tuple[float, int] | None = None, confidence: float = 0.95) -> Comparison:  # fmt: skip
    """`compare` for two cells of result files: passage by passage where both have the same ones, else by the rates of their repeats.

    The ratio is that of output_tok_s. Raises ValueError when there is too little to judge by.
    """
    found, more = None, 0.0
    if one.get("seed") == other.get("seed") and one.get("corpus") == other.get("corpus"):
        passages = [[Sample(row["prompt"], row["tokens"], row["seconds"]) for row in cell.get("per_prompt") or []
                     if row["tokens"] > 0 and row["seconds"] > 0] for cell in (one, other)]  # fmt: skip
        shared = {sample.prompt for sample in passages[0]} & {sample.prompt for sample in passages[1]}
        if len(shared) >= LEAST_PASSAGES:
            both = [[sample for sample in side if sample.prompt in shared] for side in passages]
            found = compare(both[0], both[1], margin, starts, confidence)
            more = math.sqrt(2) * _allowed(confidence)  # once more, since sums of passages do not tell repeats apart
    if found is None:
        rates = [[Sample("", row["output_tok_s"], 1.0, number) for number, row in enumerate(cell.get("repeats") or [])
                  if row["output_tok_s"]] for cell in (one, other)]  # fmt: skip
        if min(map(len, rates)) < 2:
            raise ValueError("too little was measured to compare: two repeats of each are the least")
        found = compare(rates[0], rates[1], margin, starts, confidence)
    half, step = math.hypot(math.log(found.high / found.low) / 2, more), math.log(other["output_tok_s"] / one["output_tok_s"])
    return _comparison(step, half, margin, found.method, confidence)


def start_spread(rates: Sequence[float]) -> tuple[float, int]:
    """(relative standard deviation, degrees of freedom) of one configuration's rates over its starts. Raises ValueError below two."""
    if len(rates) < 2 or min(rates) <= 0:
        raise ValueError("the spread between starts takes rates of two starts or more")
    logs = [math.log(one) for one in rates]
    mean = math.fsum(logs) / len(logs)
    return math.sqrt(math.fsum((one - mean) ** 2 for one in logs) / (len(logs) - 1)), len(logs) - 1


def _known(samples: Sequence[Sample], confidence: float) -> float:
    found = width(samples, confidence)
    if found is None:
        raise ValueError("too little was measured to compare: two repeats or three prompts of each are the least")
    return found.half


def _by_prompt(samples: Sequence[Sample]) -> list[Sample]:
    """One sample per prompt: what is compared is texts, not how often each was asked."""
    of: dict[Hashable, list[Sample]] = defaultdict(list)
    for sample in samples:
        of[sample.prompt].append(sample)
    return [Sample(prompt, sum(one.tokens for one in all_), sum(one.seconds for one in all_)) for prompt, all_ in of.items()]


def _paired(first: Sequence[Sample], second: Sequence[Sample], confidence: float) -> float:
    """Half width of the ratio from each prompt's difference between the two."""
    sides = [_means(_deviations(side), [sample.prompt for sample in side]) for side in (first, second)]
    repeat = {sample.prompt: sample.repeat for sample in second}
    differences = [sides[1][prompt] - sides[0][prompt] for prompt in repeat]
    return _half(differences, [Sample(prompt, 1, 1, at) for prompt, at in repeat.items()], 1, confidence)
