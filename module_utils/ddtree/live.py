"""What a person sees of a sweep while it runs: one line per host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class View:
    """Where each host is. All times are seconds of one clock."""

    def __init__(self) -> None:
        self._hosts: dict[str, dict[str, Any]] = {}
        self._began = 0.0

    def open(self, hosts: Mapping[str, Mapping[str, Any]], now: float) -> None:
        """`hosts` maps each to {left: points it has to expect, of, seconds: expected of one or null}."""
        self._began = now
        self._hosts = {
            name: {"left": one["left"], "seconds": one["seconds"], "done": 0, "spent": 0.0, "point": "", "step": "", "cells": []}
            for name, one in hosts.items()
        }

    def claim(self, host: str, point: str, index: int, of: int, now: float, told: Mapping[str, Any] | None = None) -> None:
        """`told` is what a tuning knows so far: {starts, best, front, minutes_left}."""
        mine = self._hosts.setdefault(host, {"left": of, "seconds": None, "done": 0, "spent": 0.0})
        mine.update(point=point, index=index, of=of, at=now, step="begin", cells=[], told=dict(told or {}))

    def begin(self, host: str, step: str, now: float) -> bool:
        """A step of the host's point begins; False where it is at none."""
        mine = self._hosts.get(host)
        if not mine or not mine.get("point"):
            return False
        mine.update(step=step, step_at=now)
        return True

    def cell(self, host: str, cell: Mapping[str, Any]) -> None:
        self._hosts.get(host, {}).setdefault("cells", []).append(cell)

    def end(self, host: str, status: str, now: float) -> None:
        mine = self._hosts.get(host)
        if mine and mine.get("point"):
            mine.update(step=status, done=mine["done"] + 1, spent=mine["spent"] + now - mine["at"], left=max(mine["left"] - 1, 0))

    def left(self, host: str, now: float) -> float | None:
        """Seconds that the host still needs: from its own points so far, else from earlier sweeps; None where nothing tells."""
        mine = self._hosts[host]
        each = mine["spent"] / mine["done"] if mine["done"] else mine["seconds"]
        if not each:
            return None
        at_work = mine.get("point") and mine["step"] not in ("ok", "failed", "lost", "interrupted")
        return max(float(each) * mine["left"] - (now - mine["at"] if at_work else 0.0), 0.0)

    def line(self, host: str, now: float) -> str:
        """`gpu01: point 2 of 6, b16-k4-w2048: cell 3, 139.0 tok/s at C=1, 41 min left`"""
        mine = self._hosts[host]
        told = mine.get("told")
        place = f"start {mine['index']}" if told else f"point {mine['index']} of {mine['of']}"
        words = [f"{host}: {place}, {mine['point']}: {_step(mine)}"]
        speeds: dict[int, list[float]] = {}
        for cell in mine["cells"]:
            if cell.get("output_tok_s"):
                speeds.setdefault(int(cell["concurrency"]), []).append(float(cell["output_tok_s"]))
        words += [f"{sum(found) / len(found):.1f} tok/s at C={level}" for level, found in sorted(speeds.items())]
        if told:
            left = max(told["minutes_left"] * 60 - (now - mine["at"]), 0.0)
            front = f"{told['front']} on the front, " if told["front"] > 1 else ""
            return ", ".join([*words, f"best so far {told['best'] or 'none'}", f"{front}{duration(left)} of the budget left"])
        rest = self.left(host, now)
        words += [f"about {duration(rest)} left"] if rest is not None and mine["left"] else []
        return ", ".join(words)


def _step(mine: Mapping[str, Any]) -> str:
    if mine["step"] == "cell":
        return f"cell {len(mine['cells']) + 1}"
    return {"begin": "begins", "ok": "measured"}.get(mine["step"], str(mine["step"]))


def duration(seconds: float) -> str:
    """In the unit that a person would use: 40 s, 12 min, 2 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
