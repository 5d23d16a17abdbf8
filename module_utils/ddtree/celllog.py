"""What the engine logs during one cell: the lines of the invocation that ran at its begin, and of no other."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from .logs import fatal, message
from .services import ServiceError, Systemd

TAIL = 25  # lines that a failure shows
LOOK_BACK = 600.0  # seconds before now in which a cell that never began looks for the engine's end


class CellLog:
    """Of a systemd unit, or of the file that supervisord writes; of neither it has no lines."""

    def __init__(self, unit: str = "", path: str = "") -> None:
        self._unit, self._path = unit, Path(path) if path else None
        self._since, self._offset, self._invocation = 0.0, 0, ""

    def begin(self) -> None:
        """From here on."""
        self._since = time.time()
        if self._unit:
            self._invocation = self._now()
        elif self._path and self._path.is_file():
            self._offset = self._path.stat().st_size

    def lines(self) -> list[str]:
        """Lines since the begin; none when there is no log, which is no failure of a measurement."""
        if self._unit:
            since = self._since or time.time() - LOOK_BACK
            return _journal(self._invocation or self._now(), since)
        if not self._path:
            return []
        try:
            with self._path.open("rb") as log:
                if log.seek(0, 2) >= self._offset:  # else a new instance began a new file: all of it is after the begin
                    log.seek(self._offset)
                else:
                    log.seek(0)
                return log.read().decode(errors="replace").splitlines()
        except OSError:
            return []

    def cause(self) -> tuple[str, str, list[str]]:
        """(cause, the line that tells it, last lines) of an engine that died; empty words where the log tells no cause."""
        lines = self.lines()
        for line in lines:
            found = fatal(line)
            if found:
                return found[0], message(line)[0][:300], lines[-TAIL:]
        return "", "", lines[-TAIL:]

    def _now(self) -> str:
        try:
            return Systemd(self._unit).state().invocation
        except (ServiceError, OSError):
            return ""


def _journal(invocation: str, since: float) -> list[str]:
    if not invocation:
        return []
    command = ["journalctl", "--quiet", "--no-pager", "--all", "--output=short-unix", f"--since=@{since:.3f}",
               f"_SYSTEMD_INVOCATION_ID={invocation}"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()
