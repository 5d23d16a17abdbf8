"""When a cell has measured enough: repeats until the interval is narrow, or a cap is reached. No clock and no network.

A repeat is a number of requests on end; repeats follow each other without a drain, so warm-up is paid once. Repeat k of two
measurements with one seed has the same prompts, which is what lets them be compared in pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

from .stats import LOOKS, ratio_half_width
from .wire import OVERLOAD, Record

LEAST_FOR_INTERVAL = 3


@dataclass(frozen=True)
class Enough:
    """`per_repeat` requests are a repeat. Between `least` and `most` repeats, and `seconds` but for the first one, until the half
    width of the 95% interval of token/s is at most `precision` of it; 0 for as many repeats as are allowed.
    """

    per_repeat: int
    least: int = 3
    most: int = 8
    seconds: float = 60.0
    precision: float = 0.03


class Steering:
    """Takes each ended request, says when the load is over and why: precision, repeats, seconds or failures."""

    def __init__(self, enough: Enough, warmups: int, most_failures: int) -> None:
        self.enough, self.reason = enough, ""
        self.failed = 0  # in a row
        self.marks: list[tuple[float, int]] = []  # time and tokens so far at the begin of the window and at the end of each repeat
        self._warm, self._most_failures = warmups, most_failures
        self._done: set[int] = set()
        self._prefix = 0  # all requests before this one have ended

    @property
    def repeats(self) -> int:
        """Repeats that have ended."""
        return self._prefix // self.enough.per_repeat

    @property
    def measured(self) -> int:
        """Requests of those repeats: the ones with an index below."""
        return self.repeats * self.enough.per_repeat

    def ended(self, record: Record, now: float, tokens: int) -> None:
        """`tokens`: all that have come so far, of every request."""
        self.count(record)
        if record.index < 0:
            self._warm -= 1
            if self._warm == 0:
                self.marks = [(now, tokens)]
            return
        before = self.repeats
        self._done.add(record.index)
        while self._prefix in self._done:
            self._done.remove(self._prefix)
            self._prefix += 1
        if self.repeats > before and self.marks:
            self.marks.append((now, tokens))
            self.reason = self.reason or self._enough(now)

    def count(self, record: Record) -> None:
        """Only whether it failed."""
        if record.error != OVERLOAD:  # the client's own limit: the server is slow, not broken
            self.failed = 0 if record.ok else self.failed + 1
        if self.failed >= self._most_failures:
            self.reason = self.reason or "failures"

    def half_width(self) -> float | None:
        """Of the interval of token/s, as a share of it; None for too few repeats."""
        if len(self.marks) <= LEAST_FOR_INTERVAL:
            return None
        pairs = list(zip(self.marks, self.marks[1:]))
        return ratio_half_width([float(two[1] - one[1]) for one, two in pairs], [two[0] - one[0] for one, two in pairs])

    def _enough(self, now: float) -> str:
        done, enough = len(self.marks) - 1, self.enough
        half = self.half_width()
        if done >= enough.least and half is not None and half * LOOKS <= enough.precision:
            return "precision"
        if done >= enough.most:
            return "repeats"
        spent = now - self.marks[0][0]
        return "seconds" if spent + spent / done > enough.seconds else ""
