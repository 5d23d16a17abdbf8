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


class HeldError(ValueError):
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
    process id when the wait for it begins. Raises HeldError at once while the run itself lives, and when the patience is at its end.
    """
    end, told, before = time.monotonic() + patience, False, dict[tuple[str, str], Path]()
    with path.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                file.seek(0)
                pid = file.read().strip()
            if pid.isdigit() and lives(int(pid)):
                raise HeldError(pid, alive=True)
            if time.monotonic() > end:
                raise HeldError(pid, alive=False)
            if not told:
                tell(pid)
                told = True
            found = {(task.name, pipe): queue for task in holders(path) for pipe, queue in queues(task).items()}
            for key in found.keys() & before.keys():  # a command that is being started has both ends for a moment, a queue has them always
                drain(found[key])
            before = found
            time.sleep(0.5)


def lives(pid: int) -> bool:
    """Whether the process exists; one that ended counts until its parent has noticed."""
    return Path(f"/proc/{pid}").exists()


def waiting(pid: str) -> str:
    """The line that tells a person what is waited for."""
    return f"  a task of the run that was killed (process {pid}) is still at work on its host; waiting for its end"


def holders(path: Path) -> Iterator[Path]:
    """The processes that hold the lock, each as its folder in /proc; one that only waits for it is none."""
    wanted = str(path.resolve())
    for folder in Path("/proc").glob("[0-9]*"):
        for number, target in _open_files(folder):
            if target == wanted and "FLOCK" in _read(folder / "fdinfo" / number):
                yield folder
                break


def queues(process: Path) -> dict[str, Path]:
    """The pipes of which the process has both ends, each with a file of its own in /proc: queues to its run, not pipes to a command."""
    modes: dict[str, set[int]] = {}
    files: dict[str, Path] = {}
    for number, target in _open_files(process):
        if target.startswith("pipe:"):
            flags = [line.split()[1] for line in _read(process / "fdinfo" / number).splitlines() if line.startswith("flags:")]
            modes.setdefault(target, set()).update(int(flag, 8) & os.O_ACCMODE for flag in flags)
            files[target] = process / "fd" / number
    return {target: files[target] for target, found in modes.items() if found == {os.O_RDONLY, os.O_WRONLY}}


def drain(queue: Path) -> None:
    """Read what a task tells a run that is gone. A result that outgrows the pipe would block the task, and the lock with it:
    nobody reads, and the write cannot fail while the task itself has the pipe's other end open, as Ansible's workers do.
    """
    with contextlib.suppress(OSError):  # empty, or the task has ended
        handle = os.open(queue, os.O_RDONLY | os.O_NONBLOCK)
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
