#!/usr/bin/env python3
"""How often a comparison of two cells is right, and how long the cells take, by simulation.

    stats.py [--quick] [--pairs N]

Cells of the reduced matrix at the origin's speeds, with the request noise of recorded ones and the rest of
tests/unit/noise.py. Each pair is measured twice the same and once 5% apart: as roles/benchmark does it, whose cells end after 8
repeats or 60 s at the latest; until the interval is narrow, whatever that takes; and for a fixed time. The last line printed is one
JSON object: same (share of "no difference shown" where nothing differs), apart_5_percent (share told apart) and seconds per cell.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "module_utils"), str(ROOT / "tests" / "unit")]

from noise import cells  # noqa: E402  needs the path above

from ddtree.stats import FASTER, OPEN, SLOWER, compare, compare_cells  # noqa: E402

WAYS: tuple[tuple[str, float | None, float], ...] = (
    ("until_3_percent", 0.03, 0), ("until_2_percent", 0.02, 0), ("fixed_60_s", None, 60), ("fixed_140_s", None, 140),
)  # fmt: skip


ROLE: tuple[tuple[str, int, float], ...] = (("role_defaults", 8, 60), ("role_32_repeats_240_s", 32, 240))


def as_the_role_does(most: int, seconds: float, each: int) -> dict[tuple[int, int], dict[str, float]]:
    """The same as `simulate` through the cells that the role records."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for at, (place, cell) in enumerate(cells(random.Random(2026), each, 32)):
        made = [cell.as_the_role_does(faster, most=most, seconds=seconds) for faster in (1.0, 1.0, 1.05 if at % 2 else 1 / 1.05)]
        row = found.setdefault(place, {"pairs": 0, "same": 0, "apart": 0, "seconds": 0})
        row["pairs"] += 1
        row["same"] += compare_cells(made[0][0], made[1][0]).verdict == OPEN
        row["apart"] += compare_cells(made[0][0], made[2][0]).verdict == (FASTER if at % 2 else SLOWER)
        row["seconds"] += sum(took for _, took in made) / 3
    return found


def simulate(precision: float | None, seconds: float, each: int) -> dict[tuple[int, int], dict[str, float]]:
    """By context and concurrency: pairs, same, apart, seconds per cell."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for at, (place, cell) in enumerate(cells(random.Random(2026), each)):
        first, again, other = (cell.measure(faster, precision, seconds) for faster in (1.0, 1.0, 1.05 if at % 2 else 1 / 1.05))
        row = found.setdefault(place, {"pairs": 0, "same": 0, "apart": 0, "seconds": 0})
        row["pairs"] += 1
        row["same"] += compare(first[0], again[0]).verdict == OPEN
        row["apart"] += compare(first[0], other[0]).verdict == (FASTER if at % 2 else SLOWER)
        row["seconds"] += (first[1] + again[1] + other[1]) / 3
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="60 pairs per cell of the matrix instead of 300")
    parser.add_argument("--pairs", type=int, help="pairs per cell of the matrix")
    given = parser.parse_args()
    each = given.pairs or (60 if given.quick else 300)
    print("| measured | context | streams | pairs | same: no difference shown | 5% apart: told apart | seconds per cell |")
    print("|---|---|---|---|---|---|---|")
    figures: dict[str, Any] = {"same": {}, "apart_5_percent": {}, "seconds": {}}
    measured = [(name, simulate(precision, seconds, each)) for name, precision, seconds in WAYS]
    for name, found in [*((name, as_the_role_does(most, seconds, each)) for name, most, seconds in ROLE), *measured]:
        total = {key: sum(row[key] for row in found.values()) for key in ("pairs", "same", "apart", "seconds")}
        for place, row in [*found.items(), ("all", total)]:
            pairs = row["pairs"]
            shares = f"{row['same'] / pairs:.1%} | {row['apart'] / pairs:.1%} | {row['seconds'] / pairs:.0f}"
            where = "all | all" if isinstance(place, str) else f"{place[0]} | {place[1]}"
            print(f"| {name.replace('_', ' ')} | {where} | {pairs:.0f} | {shares} |")
        figures["same"][name] = round(total["same"] / total["pairs"], 4)
        figures["apart_5_percent"][name] = round(total["apart"] / total["pairs"], 4)
        figures["seconds"][name] = round(total["seconds"] / total["pairs"], 1)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
