"""What is expected of configurations that were not measured: a Gaussian process over a finite list of them, on numpy alone.

The kernel is a mean of the axes' kernels, so that each axis may act by itself, and their product, so that axes may act together: few
starts tell much of the first, many of the second. Ordered axes have Matern 5/2 over the place of a value among its axis's logarithms;
names are equal or not. The hosts' own speed is a random effect beside it. Scales are the likeliest of a short list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SCALES = (0.15, 0.3, 0.6, 1.2, 2.5)  # of an ordered axis's whole range
SHARES = (0.3, 0.7)  # of the variance that is additive
USUAL_SCALE, FAITH = 0.6, 0.7  # what a scale is before anything is measured, and how firmly (standard deviation of its logarithm)
LEAST_SPREAD = 0.03  # standard deviation of log speed over a space, at least
HOST_SPREAD = 0.02  # hosts of one model differ by so much
JITTER = 1e-8


class Grid:
    """`places` has a row per configuration and a column per axis: 0 to 1 for ordered ones, the number of the name for others."""

    def __init__(self, places: Any, ordered: tuple[bool, ...]) -> None:
        self.places, self.ordered = places, ordered
        found = [np.unique(places[:, axis], return_inverse=True) for axis in range(len(ordered))]
        self._codes = [codes.reshape(-1) for _, codes in found]
        # An axis has few values, so its kernel is a small table for each scale.
        self._tables = [{scale: _table(values, one, scale) for scale in SCALES} for (values, _), one in zip(found, ordered)]

    def kernel(self, rows: Any, columns: Any, scales: Sequence[float], share: float) -> Any:
        """Of variance 1, `share` of it additive."""
        total: Any = 0.0
        product: Any = 1.0
        for codes, tables, scale in zip(self._codes, self._tables, scales):
            one = tables[scale][codes[rows][:, None], codes[columns][None, :]]
            total, product = total + one, product * one
        return share * total / max(len(scales), 1) + (1 - share) * product

    @property
    def size(self) -> int:
        return int(self.places.shape[0])


@dataclass
class Model:
    """A fitted process. `mean` and `spread` (standard deviation) are of every configuration of the grid, in the unit of what was fitted."""

    grid: Grid
    mean: Any
    spread: Any
    scales: tuple[float, ...]
    share: float
    _half: Any  # half of what is known: covariance = prior - half' half
    _variance: float

    def draws(self, which: Sequence[int], number: int, seed: int = 0) -> Any:
        """`number` joint draws (rows) of the true values of these configurations."""
        rows = np.asarray(which)
        prior = self._variance * self.grid.kernel(rows, rows, self.scales, self.share)
        half = self._half[:, rows]
        values, vectors = np.linalg.eigh(prior - half.T @ half)
        root = vectors * np.sqrt(np.clip(values, 0.0, None))
        return self.mean[rows] + np.random.default_rng(seed).standard_normal((number, len(rows))) @ root.T


def fit(grid: Grid, rows: Sequence[int], values: Sequence[float], noises: Sequence[float], hosts: Sequence[str] = ()) -> Model:
    """`values` were measured at configurations `rows` with standard deviations `noises`, on `hosts` where several share the work."""
    at, y = np.asarray(rows, dtype=int), np.asarray(values, dtype=float)
    names = list(hosts) or [""] * len(y)
    same = np.array([[one == other for other in names] for one in names], dtype=float)
    extra = np.diag(np.square(np.asarray(noises, dtype=float))) + HOST_SPREAD**2 * same * (len(set(names)) > 1)
    variance = max(float(np.var(y)) if len(y) > 1 else 0.0, LEAST_SPREAD**2)
    centre = float(np.mean(y))

    def judge(scales: tuple[float, ...], share: float, factor: float) -> float:
        return _likelihood(factor * variance * grid.kernel(at, at, scales, share) + extra, y - centre) + _faith(scales)

    best = (tuple([USUAL_SCALE] * len(grid.ordered)), SHARES[-1], 1.0)
    if len(y) >= 3:
        top = judge(*best)
        for _ in range(2):
            for axis in range(len(grid.ordered)):
                for scale in SCALES:
                    scales = (*best[0][:axis], scale, *best[0][axis + 1 :])
                    if (found := judge(scales, best[1], best[2])) > top:
                        best, top = (scales, best[1], best[2]), found
            for share in SHARES:
                for factor in (0.5, 1.0, 2.0, 4.0):
                    if (found := judge(best[0], share, factor)) > top:
                        best, top = (best[0], share, factor), found
    scales, share, factor = best
    variance *= factor
    every = np.arange(grid.size)
    covariance = variance * grid.kernel(at, at, scales, share) + extra
    root = np.linalg.cholesky(covariance + JITTER * np.eye(len(y)))
    ones = np.linalg.solve(root, np.ones(len(y)))
    whitened = np.linalg.solve(root, y)
    # The level is known no better than the figures tell: generalised least squares, shrunk to their mean by the process's own spread.
    level = (float(ones @ whitened) + centre / variance) / (float(ones @ ones) + 1 / variance)
    half = np.linalg.solve(root, variance * grid.kernel(at, every, scales, share))
    mean = level + half.T @ np.linalg.solve(root, y - level)
    spread = np.sqrt(np.clip(variance - np.sum(np.square(half), axis=0), 1e-12, None))
    return Model(grid, mean, spread, scales, share, half, variance)


def gain(mean: Any, spread: Any, best: float) -> Any:
    """Expected improvement over `best`, in the unit of the values."""
    z = (mean - best) / spread
    density = np.exp(-0.5 * np.square(z)) / math.sqrt(2 * math.pi)
    return (mean - best) * below(z) + spread * density


def below(z: Any) -> Any:
    """The normal distribution's function, within 1.5e-7 (Abramowitz and Stegun 7.1.26), since numpy has none."""
    x = np.abs(np.asarray(z)) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * x)
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * np.exp(-np.square(x))
    return np.where(np.asarray(z) >= 0, 1 - tail / 2, tail / 2)


def _table(values: Any, ordered: bool, scale: float) -> Any:
    distance = np.abs(values[:, None] - values[None, :])
    if not ordered:
        return np.where(distance == 0, 1.0, math.exp(-0.5 / scale))
    r = math.sqrt(5) * distance / scale
    return (1 + r + np.square(r) / 3) * np.exp(-r)


def _likelihood(covariance: Any, y: Any) -> float:
    try:
        root = np.linalg.cholesky(covariance + JITTER * np.eye(len(y)))
    except np.linalg.LinAlgError:
        return -math.inf
    white = np.linalg.solve(root, y)
    return float(-0.5 * white @ white - np.sum(np.log(np.diag(root))))


def _faith(scales: Sequence[float]) -> float:
    return sum(-0.5 * (math.log(one / USUAL_SCALE) / FAITH) ** 2 for one in scales)
