"""What a host's facts mean for the engine: one verdict a check, a table for people, and a sentence for each that must stop the play.

Nothing here touches a machine: the facts are those of survey.py and modelfiles.py, as the module gpu_info gathers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import board_checks, host_checks
from .checks import LEVELS, Check, Want

__all__ = ["Check", "Want", "judge", "stops", "table"]


def judge(facts: Mapping[str, Any], want: Want) -> list[Check]:
    """Every check in the order of the table."""
    return [*board_checks.checks(facts, want), *host_checks.checks(facts, want)]


def stops(checks: Sequence[Check]) -> list[str]:
    """A sentence for each check that would break the engine: what is there, and what to do."""
    return [f"{one.check}: {one.seen} ({one.remedy})" for one in checks if one.level == "stop"]


def table(checks: Sequence[Check]) -> list[str]:
    """The lines of one host's table, how many of each kind first; a remedy stands under its check."""
    words = {"stop": "to stop for", "warn": "to look at", "note": "to know"}
    count = {level: sum(one.level == level for one in checks) for level in LEVELS}
    told = [f"{count[level]} {word}" for level, word in words.items() if count[level]]
    wide = max((len(one.check) for one in checks), default=0)
    lines = [", ".join(told) or "all well"]
    for one in checks:
        lines.append(f"{one.level:<4}  {one.check:<{wide}}  {one.seen}")
        if one.remedy and one.level != "ok":
            lines.append(f"{'':<4}  {'':<{wide}}  -> {one.remedy}")
    return lines
