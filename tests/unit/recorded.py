"""A host in memory whose one start follows the journal of a real one, line by line and at its times."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree.gpus import Gpu, Holder
from ddtree.ports import Generation, UnitState

JOURNALS = Path(__file__).resolve().parents[1] / "fixtures" / "recordings" / "journal"
PID = 364


@dataclass
class Line:
    at: float  # seconds after the start
    by: str  # systemd or python3
    text: str


class Recorded:
    """The four ports over a journal. Time begins at its first line, when the start is asked for."""

    name = "recorded.service"

    def __init__(self, journal: str, foreign_listener_from: float = float("inf")) -> None:
        self.lines = read(JOURNALS / f"{journal}.txt")
        self.time, self.asked_to_stop = -1.0, False
        self.foreign_listener_from = foreign_listener_from

    def at(self, words: str) -> float:
        """When words were first logged; infinite if never."""
        return next((line.at for line in self.lines if words in line.text), float("inf"))

    @property
    def ended(self) -> float:
        return self.at("Main process exited")

    # -- clock
    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    # -- service
    def state(self) -> UnitState:
        if self.time < 0:
            return UnitState()
        if self.time < self.ended:
            return UnitState(active="active", sub="running", invocation="new", main_pid=PID)
        said = next(line.text for line in self.lines if "Failed with result" in line.text)
        return UnitState(active="failed", sub="failed", result=said.split("'")[1], invocation="new", exit_status="recorded")

    def start(self) -> None:
        self.time = 0.0

    def stop(self) -> None:
        self.asked_to_stop = True

    def pids(self) -> set[int]:
        return {PID, PID + 1} if 0 <= self.time < self.ended else set()

    def kill_remaining(self) -> None:
        raise AssertionError("nothing of a recording needs to be killed")

    def definition(self) -> str:
        return "unit"

    def changed_since_start(self) -> bool:
        return False

    def log(self, state: UnitState) -> list[str]:
        return [line.text for line in self.lines if line.at <= self.time]

    # -- gpus
    def read(self) -> list[Gpu]:
        return [Gpu(0, "GPU-0", "NVIDIA H200", 143_771, 0, ())]

    # -- server
    def listener(self) -> Holder | None:
        if self.time >= self.foreign_listener_from:
            return Holder(99, "nginx", "www")
        return Holder(PID, "sglang") if self.at("Uvicorn running") <= self.time < self.ended else None

    def ask(self) -> Recorded:
        return self

    def result(self) -> Generation | None:
        if not self.listener():
            return Generation(error="no answer: ConnectionError", retry=True)
        if self.time < self.at('"POST /generate HTTP/1.1" 200'):
            return None
        return Generation(tokens=32, weight_version="cfg-abc123", verify_steps=32, status=200, seconds=0.1)

    def info(self) -> dict[str, Any]:
        tokens = re.search(r"max_total_num_tokens=(\d+)", " ".join(line.text for line in self.lines))
        return {"max_total_num_tokens": int(tokens.group(1)) if tokens else None}

    def running_requests(self) -> int | None:
        return 0


def read(path: Path) -> list[Line]:
    found: list[Line] = []
    for row in path.read_text().splitlines():
        stamp, _, by, text = row.split(" ", 3)
        at = datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
        found.append(Line(at, by.partition("[")[0], text))
    first = found[0].at
    return [Line(line.at - first, line.by, line.text) for line in found]
