"""The matrix of cells: which of them can run at all, and the line that tells of one when it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from .loadgen import CellSpec, refusal


def plan(
    spec: CellSpec, contexts: Iterable[int], concurrencies: Iterable[int], allowed: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(cells to measure, few streams first; cells that cannot be, each with its reason). Each cell once, however often it is named."""
    fit: list[dict[str, Any]] = []
    not_run: list[dict[str, Any]] = []
    for concurrency in dict.fromkeys(concurrencies):
        for context in dict.fromkeys(contexts):
            cell = {"context": context, "concurrency": concurrency}
            reason = refusal(replace(spec, context=context, concurrency=concurrency), allowed)
            (not_run if reason else fit).append({**cell, "reason": reason} if reason else cell)
    return fit, not_run


def line(cell: Mapping[str, Any], number: int = 0, of: int = 0, seconds: float = 0.0) -> str:
    """What a person wants to read of a cell: figures, how sure they are, what they cost, what is doubtful, and the time left.

    `number` of `of` cells are done after `seconds`.
    """
    rate, interval = cell["output_tok_s"], cell.get("ci95")
    load = f"{cell['rate']:g} requests/s" if cell.get("rate") else f"C {cell['concurrency']}"
    sure = f" +-{(interval[1] - interval[0]) / 2 / rate:.1%}" if interval and rate else ""
    accept = f"{cell['accept_length']:.2f} ({cell['accept_source']})" if cell.get("accept_length") else "not known"
    figures = [f"{rate:.1f} tok/s{sure}"]
    figures += [f"{cell['user_tok_s']:.1f} per user"] if cell.get("user_tok_s") else []
    figures += [f"TTFT {cell['ttft_ms']['p50']:.0f} ms"] if cell["ttft_ms"]["p50"] is not None else []
    figures += [f"accept length {accept}", f"{cell['requests']} requests in {cell['seconds']:.0f} s"]
    left = f"; {duration(seconds / number * (of - number))} left" if 0 < number < of else ""
    place = f"cell {number} of {of}, " if of else ""
    return f"{place}ctx {cell['context']}, {load}: {', '.join(figures)}{left}" + "".join(f"; {one}" for one in cell.get("warnings", ()))


def duration(seconds: float) -> str:
    """About how long, as a person says it."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
