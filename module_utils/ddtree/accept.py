"""Accept length of one cell: tokens per verify step, the bonus token included, from four sources in order of trust.

1. `requests`: the cell's own measured requests, sum of tokens over sum of verify steps.
2. `metrics`: what two counters of /metrics grew by during the cell.
3. `server_info`: the average since the flush at the cell's begin.
4. `log`: decode lines of this invocation during the cell.

Nothing is taken from before the cell, and no gauge is ever read: a gauge keeps its last value. The first two count the token that the
prefill gave, the last two do not, so sources are compared without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .logs import accepted
from .wire import Record

SOURCES = ("requests", "metrics", "server_info", "log")
DISAGREEMENT = 0.05
LEAST = 0.99  # a verify step gives at least the bonus token; less means that this build does not fill the figure in


@dataclass(frozen=True)
class Reading:
    """What one source says. `requests` is how many tokens of prefills are in `tokens`; `scope` says in words what was counted."""

    source: str
    length: float
    scope: str
    tokens: float = 0.0
    steps: float = 0.0
    requests: float = 0.0

    @property
    def decode_length(self) -> float:
        """Without the prefills' tokens, as every source can tell it."""
        return (self.tokens - self.requests) / self.steps if self.steps and self.requests else self.length

    def told(self) -> dict[str, Any]:
        """For a result."""
        return {"length": round(self.length, 4), "decode_length": round(self.decode_length, 4), "scope": self.scope}


def of_requests(records: Sequence[Record], scope: str = "measured requests") -> Reading | None:
    """None when no request tells its verify steps: no speculation, or the route does not tell."""
    telling = [one for one in records if one.ok and one.verify_steps]
    steps = sum(one.verify_steps or 0 for one in telling)
    tokens = sum(one.tokens or 0 for one in telling)
    if not steps or tokens / steps < LEAST:
        return None
    return Reading("requests", tokens / steps, f"{len(telling)} {scope}", tokens, steps, len(telling))


def of_counters(grown: Mapping[str, float], own: int) -> Reading | None:
    """`grown`: what the counters grew by; `own`: requests that this cell ended. None when others' requests are in it."""
    steps, tokens = grown.get("spec_verify_calls_total", 0.0), grown.get("generation_tokens_total", 0.0)
    requests = grown.get("num_requests_total", float(own))
    if steps <= 0 or tokens / steps < LEAST or requests > own:
        return None
    return Reading("metrics", tokens / steps, f"{requests:.0f} requests, warm-up included", tokens, steps, requests)


def of_server_info(info: Mapping[str, Any], flushed: bool) -> Reading | None:
    """The average since the last flush, over the ranks that have one; None unless this cell began with a flush."""
    states = [one for one in info.get("internal_states") or [] if isinstance(one, Mapping)]
    told = [one.get("avg_spec_accept_length") for one in states]
    seen = [float(one) for one in told if isinstance(one, (int, float)) and math.isfinite(one) and one >= LEAST]
    if not flushed or not seen:
        return None
    return Reading("server_info", math.fsum(seen) / len(seen), f"since the flush, {len(seen)} of {len(states)} ranks, unweighted")


def of_log(lines: Iterable[str], begin: float, end: float, flushed: bool) -> tuple[Reading | None, str]:
    """Decode lines between two times of the epoch, and why there is nothing where there is nothing."""
    found = accepted(lines, begin, end, fresh=flushed)
    if found.accept_length is None:
        return None, found.why
    scope = f"{found.lines} decode lines of {found.ranks} ranks" + (f", {found.lost} lost" if found.lost else "")
    return Reading("log", found.accept_length, scope), ""


def choose(readings: Iterable[Reading | None]) -> Reading | None:
    """The most trusted source that says anything."""
    found = {one.source: one for one in readings if one is not None}
    return next((found[source] for source in SOURCES if source in found), None)


def disagreement(readings: Iterable[Reading | None]) -> str:
    """Words for sources that differ by more than 5%, all over the same requests as far as they can be; empty when they agree."""
    found = [one for one in readings if one is not None]
    lengths = [one.decode_length for one in found]
    if len(found) < 2 or max(lengths) <= min(lengths) * (1 + DISAGREEMENT):
        return ""
    return ", ".join(f"{one.decode_length:.2f} by {one.source}" for one in found)
