"""A made-up cell with the noise of a real one: what is known of it is from recorded cells, the rest is stated here."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree.stats import Sample, enough, ratio_half_width, t_quantile

# One NVIDIA H200, 2026-12-01, one repeat each; ci95 is over the cell's requests.
RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "recordings" / "cells.json"
# Assumed, since the recorded engine accepted no draft and its cells were measured once each.
PROMPTS = 0.25  # relative deviation between prompts, by what the drafter gets right in them
ACCEPTANCE = 0.04  # the same prompt again: near ties flip accepts
DRIFT = 0.007  # whole repeats against each other; half of it stays from one to the next
LENGTHS = 0.05  # of the same prompt's answer
# Context, requests in flight, token/s: the origin's 12/6/2048.
CELLS = ((60, 1, 147.5), (1024, 1, 139.0), (4096, 1, 87.9), (60, 32, 696.8), (1024, 32, 672.6), (4096, 32, 417.7))
LEAST_PROMPTS, LIMIT, FIRST_TOKEN = 6, 256, 0.05


def request_noise() -> dict[int, list[float]]:
    """By requests in flight: the relative deviation of one request in each recorded cell, from the interval of its rate."""
    found: dict[int, list[float]] = {}
    for cell in json.loads(RECORDED.read_text()):
        count = cell["requests"]
        half = (cell["ci95"][1] - cell["ci95"][0]) / 2 / cell["output_tok_s"]
        found.setdefault(cell["concurrency"], []).append(half / t_quantile(0.975, count - 1) * math.sqrt(count))
    return found


def spread(pick: random.Random, deviation: float) -> float:
    """A factor around 1 with this relative deviation."""
    scale = math.sqrt(math.log1p(deviation * deviation))
    return pick.lognormvariate(-scale * scale / 2, scale)


@dataclass
class Cell:
    """One cell of one set of prompts; `measure` is a pass over them after another, without a pause between."""

    pick: random.Random
    tok_s: float
    slots: int
    noise: float
    prompts: list[float]
    lengths: list[float]

    def measure(self, faster: float = 1.0, precision: float | None = 0.03, seconds: float = 60.0) -> tuple[list[Sample], float]:
        """Samples and the seconds they took: until `enough`, or with a precision of None for so many seconds."""
        samples: list[Sample] = []
        took, number, drift = 0.0, 0, self.pick.gauss(0, DRIFT)
        while True:
            drift = drift / 2 + math.sqrt(0.75) * self.pick.gauss(0, DRIFT)
            for at, (prompt, length) in enumerate(zip(self.prompts, self.lengths)):
                tokens = max(20, min(LIMIT, round(length * spread(self.pick, LENGTHS))))
                speed = faster * self.tok_s / self.slots * prompt * spread(self.pick, self.noise) * spread(self.pick, ACCEPTANCE)
                lasted = tokens / (speed * (1 + drift)) + FIRST_TOKEN
                samples.append(Sample(at, tokens, lasted, number))
                took += lasted / self.slots
            number += 1
            if enough(samples, precision) if precision is not None else took >= seconds and number > 1:
                return samples, took

    def as_the_role_does(self, faster: float = 1.0, least: int = 3, most: int = 8, seconds: float = 60.0) -> tuple[dict[str, Any], float]:
        """A cell as roles/benchmark measures and records it: small repeats on end, one passage after another, until 3%, or a cap."""
        per_repeat, took = max(self.slots, 4), 0.0
        repeats: list[dict[str, float]] = []
        rows: dict[int, dict[str, Any]] = {}
        drift, at = self.pick.gauss(0, DRIFT), 0
        while True:
            drift = drift / 2 + math.sqrt(0.75) * self.pick.gauss(0, DRIFT)
            sums = [0.0, 0.0]
            for _ in range(per_repeat):
                passage = at % len(self.prompts)
                tokens = max(20, min(LIMIT, round(self.lengths[passage] * spread(self.pick, LENGTHS))))
                speed = (
                    faster * self.tok_s / self.slots * self.prompts[passage] * spread(self.pick, self.noise) * spread(self.pick, ACCEPTANCE)
                )
                lasted = tokens / (speed * (1 + drift))
                row = rows.setdefault(passage, {"prompt": passage, "tokens": 0, "seconds": 0.0})
                row["tokens"], row["seconds"] = row["tokens"] + tokens, row["seconds"] + lasted
                sums = [sums[0] + tokens, sums[1] + (lasted + FIRST_TOKEN) / self.slots]
                at += 1
            repeats.append({"output_tokens": sums[0], "seconds": sums[1], "output_tok_s": sums[0] / sums[1]})
            took += sums[1]
            half = ratio_half_width([one["output_tokens"] for one in repeats], [one["seconds"] for one in repeats])
            number = len(repeats)
            if (number >= least and half is not None and half <= 0.03) or number >= most or took + took / number > seconds:
                total = sum(one["output_tokens"] for one in repeats) / took
                return {"seed": "0", "per_prompt": list(rows.values()), "repeats": repeats, "output_tok_s": total}, took


def cells(pick: random.Random, each: int, passages: int = LEAST_PROMPTS) -> Iterable[tuple[tuple[int, int], Cell]]:
    """`each` cells for every place of the matrix, with prompts and a recorded noise of their own."""
    noise = request_noise()
    for context, slots, tok_s in CELLS:
        for _ in range(each):
            count = max(slots, passages)
            prompts = [spread(pick, PROMPTS) for _ in range(count)]
            lengths = [pick.uniform(120, 400) for _ in range(count)]
            yield (context, slots), Cell(pick, tok_s, slots, pick.choice(noise[slots]), prompts, lengths)
