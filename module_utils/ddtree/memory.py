"""What one run over a unit leaves to the next, the lock that keeps a second run out, and the progress of the run that goes on."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

LOCK_POLL = 0.5  # seconds


class BusyError(Exception):
    """Another run holds the unit; `holder` says who, since when and for what."""

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__(f"pid {holder.get('pid')} ({holder.get('runner') or 'unknown'}) since {holder.get('since')}")
        self.holder = holder


class Memory:
    """The record of one unit in `folder`: a JSON file, written whole or not at all, and its lock."""

    def __init__(self, folder: str, unit: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, f"{unit}.json")
        self._lock = os.path.join(folder, f"{unit}.lock")

    def load(self) -> dict[str, Any]:
        try:
            with open(self._path) as file:
                return dict(json.load(file))
        except (OSError, ValueError):
            return {}

    def save(self, record: Mapping[str, Any]) -> None:
        handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".record-")
        with os.fdopen(handle, "w") as file:
            json.dump(record, file, indent=1)
        os.replace(temporary, self._path)

    @contextlib.contextmanager
    def locked(self, mine: Mapping[str, Any]) -> Iterator[None]:
        """Hold the unit, or raise BusyError. `mine` is {runner, state, config_id}; the lock goes with its process, however that ends.

        A run of the same runner for the same thing is waited for: the one whose controller died is finished by the next.
        """
        os.makedirs(self._folder, mode=0o755, exist_ok=True)
        with open(self._lock, "a+") as file:
            while not _lock(file):
                holder = _holder(file)
                if not mine["runner"] or dict(mine) != {key: holder.get(key) for key in mine}:
                    raise BusyError(holder)
                time.sleep(LOCK_POLL)
            file.truncate(0)
            json.dump({"pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **mine}, file)
            file.flush()
            yield


class Progress:
    """The events of this run, one JSON a line, for whoever watches while it goes on; at most one a second besides begin and end."""

    def __init__(self, folder: str, unit: str, run_id: str) -> None:
        self._run_id = run_id
        self._file = open(os.path.join(folder, f"{unit}.progress"), "w")  # noqa: SIM115  open as long as the run
        self._written = 0.0

    def __call__(self, event: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if event.get("begin") or event.get("end") or now - self._written > 1:
            self._written = now
            self._file.write(json.dumps({"run": self._run_id, **event}) + "\n")
            self._file.flush()


def _holder(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    try:
        return dict(json.loads(file.read()))
    except ValueError:
        return {}


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
