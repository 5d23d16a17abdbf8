"""One run at a time in a folder. The lock is held by the run's process and, since they are forked from it, by the tasks that it has at work
on hosts: it outlives a run that is killed until the last of them has ended. Controller only; Linux's /proc.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO


class Held(ValueError):
    """Another run holds the lock. `pid` is that run's process, `alive` whether it lives: else it was killed and its tasks are at work."""

    def __init__(self, pid: str, alive: bool) -> None:
        super().__init__(pid)
        self.pid, self.alive = pid, alive


def hold(path: Path) -> TextIO:
    """The lock, until the file is closed or this process and all that it forked have ended."""
    file = path.open("a+")
    with contextlib.suppress(OSError):  # who holds it has just seen it free
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
    return file


def wait(path: Path, patience: float, tell: Callable[[str], None]) -> None:
    """Return once nothing holds the lock. What a run that was killed left at work may take `patience` seconds to end; `tell` gets the run's
    process id when the wait for it begins. Raises Held at once while the run itself lives, and when the patience is at its end.
    """
    end, told = time.monotonic() + patience, False
    with path.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                file.seek(0)
                pid = file.read().strip()
            if pid.isdigit() and Path(f"/proc/{pid}").exists():
                raise Held(pid, alive=True)
            if time.monotonic() > end:
                raise Held(pid, alive=False)
            if not told:
                tell(pid)
                told = True
            for process in holders(path):
                drain(process)
            time.sleep(0.5)


def holders(path: Path) -> Iterator[Path]:
    """The processes that hold the lock, each as its folder in /proc; one that only waits for it is none."""
    for folder in Path("/proc").glob("[0-9]*"):
        for number, target in _open_files(folder):
            if target == str(path.resolve()) and "FLOCK" in _read(folder / "fdinfo" / number):
                yield folder
                break


def drain(process: Path) -> None:
    """Read what the process tells a run that is gone. A task's result that outgrows the pipe would block it, and the lock with it, for ever:
    nobody reads, and the write cannot fail while the task itself has the pipe's other end open, as Ansible's workers do.
    """
    modes: dict[str, set[int]] = {}
    numbers: dict[str, str] = {}
    for number, target in _open_files(process):
        if target.startswith("pipe:"):
            flags = [line.split()[1] for line in _read(process / "fdinfo" / number).splitlines() if line.startswith("flags:")]
            modes.setdefault(target, set()).update(int(flag, 8) & os.O_ACCMODE for flag in flags)
            numbers[target] = number
    for target, found in modes.items():
        if found == {os.O_RDONLY, os.O_WRONLY}:  # both ends in one process: a queue to the run, not a pipe to a command
            with contextlib.suppress(OSError):
                handle = os.open(process / "fd" / numbers[target], os.O_RDONLY | os.O_NONBLOCK)
                try:
                    while os.read(handle, 1 << 16):
                        pass
                finally:
                    os.close(handle)


def _open_files(process: Path) -> Iterator[tuple[str, str]]:
    with contextlib.suppress(OSError):  # it ended, or it is another user's
        for number in os.listdir(process / "fd"):
            with contextlib.suppress(OSError):
                yield number, os.readlink(process / "fd" / number)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
