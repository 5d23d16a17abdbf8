"""Who holds VRAM: one small file per process in state/holders, read by the NVML library and by a starting engine alike."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True)
class Board:
    """One GPU of gpus.conf."""

    index: int
    name: str
    total_mib: int
    reserved_bytes: int

    @property
    def usable_mib(self) -> float:
        return self.total_mib - self.reserved_bytes / MIB


def boards(state: Path) -> list[Board]:
    """The GPUs of gpus.conf; an empty list where there is none."""
    found: list[dict[str, str]] = []
    with contextlib.suppress(OSError):
        for line in (state / "gpus.conf").read_text().splitlines():
            key, _, value = line.strip().partition(" ")
            if key == "gpu":
                found.append({})
            elif found and value and not key.startswith("#"):
                found[-1][key] = value.strip()
    return [Board(at, one.get("name", ""), int(one.get("total_mib", 0)), int(one.get("reserved_bytes", 0))) for at, one in enumerate(found)]


def started(pid: int) -> int:
    """Start time of a process in clock ticks, 0 when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


class Holder:
    """The file of one process that holds `mib` MiB on each of `gpus`; keep() it every 0.1 s."""

    def __init__(self, state: Path, gpus: list[int], pid: int | None = None, kind: str = "compute", ghost: bool = False) -> None:
        self.pid = os.getpid() if pid is None else pid
        self._path = state / "holders" / str(self.pid)
        self._gpus, self._kind, self._ghost = gpus, kind, ghost
        self.mib = 0
        self.linger = 0.0

    def hold(self, mib: int, linger: float) -> None:
        self.mib, self.linger = mib, linger
        lines = {"gpus": ",".join(map(str, self._gpus)), "mib": mib, "linger": linger, "start": started(self.pid), "kind": self._kind}
        if self._ghost:
            lines.update(ghost=1, start=0)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(f".{self.pid}.new")
        new.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        os.replace(new, self._path)

    def keep(self) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._path)

    def release(self) -> None:
        """Give the VRAM back, at once or, with a linger, that long after now."""
        with contextlib.suppress(OSError):
            if self.linger > 0:
                os.utime(self._path)
            else:
                self._path.unlink()


def used_mib(state: Path, gpu: int) -> int:
    """MiB that processes hold on a GPU now, the driver's reserve left out; drops files whose memory is long given back."""
    total = 0
    for path in (state / "holders").glob("[0-9]*"):
        try:
            age = time.time() - path.stat().st_mtime
            values = dict(line.partition(" ")[::2] for line in path.read_text().splitlines())
            pid, start, linger = int(path.name.partition(".")[0]), int(values.get("start", 0)), float(values.get("linger", 0))
            now = started(pid)
            alive = values.get("ghost") == "1" or (now and start in (0, now))
            if not alive and age >= linger:
                if age > linger + 60:
                    path.unlink()
                continue
            if str(gpu) in values.get("gpus", "").split(","):
                total += int(values.get("mib", 0))
        except (OSError, ValueError):
            continue
    return total
