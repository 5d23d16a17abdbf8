"""A sweep against an earlier one: cell by cell, with an interval of the ratio and a verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .results import ResultError, load_sweep, validate
from .stats import FASTER, MARGIN, OPEN, SLOWER, compare_cells

SAME, UNKNOWN = OPEN, "no interval"


def read_baseline(path: str | Path) -> tuple[str, list[str], list[dict[str, Any]]]:
    """(title, notes, records) of a sweep's folder or of a file {schema, sweep, title, notes, records}. Raises
    ResultError.
    """
    source = Path(path)
    if source.is_dir():
        sweep = load_sweep(source)
        return f"sweep {sweep.name}", [problem["message"] for problem in sweep.problems], sweep.records
    try:
        given = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultError(f"the baseline {path} cannot be read: {error}") from None
    records = given.get("records") if isinstance(given, dict) else None
    if not isinstance(records, list):
        raise ResultError(f"the baseline {path} is no folder of results and has no list of records")
    for index, record in enumerate(records):
        validate(record, f"{path}: records[{index}]")
    return (
        str(given.get("title") or given.get("sweep") or source.name),
        [str(one) for one in given.get("notes") or []],
        records,
    )


def compare(entries: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Cell by cell for the points that both have, by name or alias: {point, context, concurrency, now, then, ratio, low, high, verdict,
    method}. low and high are the ratio's 95% interval, None where neither side has one.
    """
    old = {name: entry for entry in before for name in (entry["name"], *entry["aliases"])}
    rows = []
    for entry in entries:
        then = next((old[name] for name in (entry["name"], *entry["aliases"]) if name in old), None)
        for key, cell in entry["cells"].items():
            past = then["cells"].get(key) if then else None
            if past and past["output_tok_s"] and cell["output_tok_s"]:
                rows.append({"point": entry["name"], "context": key[0], "concurrency": key[1], "now": cell["output_tok_s"],
                             "then": past["output_tok_s"], "ratio": cell["output_tok_s"] / past["output_tok_s"],
                             **_verdict(cell, past)})  # fmt: skip
    return rows


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many cells have each verdict, only those that occur."""
    return {verdict: number for verdict in (FASTER, SLOWER, SAME, UNKNOWN) if (number := sum(one["verdict"] == verdict for one in rows))}


def _verdict(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """By passages or repeats where both sides kept them, else by their intervals; a side without one counts as its figure alone."""
    try:
        found = compare_cells(then, now)
        return {"low": found.low, "high": found.high, "verdict": found.verdict, "method": found.method}
    except ValueError:
        pass  # too little was kept to judge by
    halves = [_half(then), _half(now)]
    if halves == [None, None]:
        return {"low": None, "high": None, "verdict": UNKNOWN, "method": ""}
    step = math.log(now["output_tok_s"] / then["output_tok_s"])
    half = math.hypot(*(one or 0.0 for one in halves))
    shown = abs(step) > half and abs(step) >= math.log1p(MARGIN)
    method = "both intervals" if None not in halves else "the interval of one side"
    verdict = (FASTER if step > 0 else SLOWER) if shown else SAME
    return {"low": math.exp(step - half), "high": math.exp(step + half), "verdict": verdict, "method": method}


def _half(cell: Mapping[str, Any]) -> float | None:
    """Half width of the cell's interval on the scale of logarithms."""
    if cell["low"] is None or not cell["low"] or not cell["high"]:
        return None
    return math.log(cell["high"] / cell["low"]) / 2
