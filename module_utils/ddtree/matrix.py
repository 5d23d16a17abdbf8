"""The matrix of cells: which there are, in the order to measure them, and the line that tells of one when it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class MatrixError(ValueError):
    """A matrix that cannot be; the message is one sentence."""


def cells(contexts: Iterable[int], concurrencies: Iterable[int], rates: Iterable[float] = (), rate_most: int = 512) -> list[dict[str, Any]]:
    """{context, concurrency}, few streams first, then {context, concurrency: rate_most, rate} of the open loops. Each once, however often
    it is named. Raises MatrixError.
    """
    rows, columns, given = (list(dict.fromkeys(one)) for one in (contexts, concurrencies, rates))
    for name, least, values in (("contexts", 0, rows), ("concurrencies", 1, columns)):
        low = [one for one in values if one < least]
        if low:
            raise MatrixError(f"benchmark_{name} has {low[0]}, at least {least} is wanted")
    if any(rate <= 0 for rate in given):
        raise MatrixError(f"benchmark_rates has {min(given)}, requests per second above 0 are wanted")
    closed = [{"context": context, "concurrency": level} for level in columns for context in rows]
    return closed + [{"context": context, "concurrency": rate_most, "rate": rate} for rate in given for context in rows]


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
