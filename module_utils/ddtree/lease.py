"""A lease on one unit of a host: who works on it, for what and until when, so that two people do not work on one host.

It is a file on the host, written whole or not at all; what is past its time counts for nothing. Times are the host's own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any


class LeaseError(Exception):
    """Somebody else holds the unit; the message says who, for what and until when, `lease` has it in parts."""

    def __init__(self, unit: str, lease: dict[str, Any], path: str) -> None:
        super().__init__(
            f"{unit} is leased to {lease['who']} for {lease['what']} until {stamp(lease['until'])}: "
            f"wait, or remove {path} there once they agree"
        )
        self.lease = lease


class Leases:
    """The lease of `unit` in `folder`: {who, what, since, until, seconds}, times in seconds since 1970, `seconds` what it runs for."""

    def __init__(self, folder: str, unit: str, now: Callable[[], float] = time.time) -> None:
        self._folder, self._unit, self._now = folder, unit, now
        self.path = os.path.join(folder, f"{unit}.lease")

    def held(self) -> dict[str, Any] | None:
        """The lease in force, None where there is none or its time is over."""
        try:
            with open(self.path) as file:
                found = dict(json.load(file))
            return found if float(found["until"]) > self._now() and found["who"] else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def require(self, who: str) -> dict[str, Any] | None:
        """One's own lease, or None where nobody holds one. Raises LeaseError for somebody else's."""
        found = self.held()
        if found and found["who"] != who:
            raise LeaseError(self._unit, found, self.path)
        return found

    def take(self, who: str, what: str, seconds: float) -> dict[str, Any]:
        """Take it, or take one's own anew, for `seconds` from now. Raises LeaseError, and then nothing changed."""
        if not who or seconds <= 0:
            raise ValueError(f"a lease is for somebody and for some time: who={who!r}, seconds={seconds}")
        with self._alone():
            mine = self.require(who)
            since = mine["since"] if mine else round(self._now(), 3)
            lease = {"who": who, "what": what, "since": since, "until": round(self._now() + seconds, 3), "seconds": seconds}
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".lease-")
            with os.fdopen(handle, "w") as file:
                json.dump(lease, file)
            os.chmod(temporary, 0o644)
            os.replace(temporary, self.path)
            return lease

    def renew(self, who: str) -> dict[str, Any] | None:
        """Let one's own run for its whole time from now. Raises LeaseError for somebody else's; None where there is none."""
        mine = self.require(who)
        return self.take(who, str(mine["what"]), float(mine["seconds"])) if mine else None

    def release(self, who: str) -> bool:
        """Give one's own back; False where there was none. Somebody else's stays."""
        if not os.path.exists(self.path):
            return False
        with self._alone():
            found = self.held()
            if found and found["who"] != who:
                return False
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.path)
            return found is not None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else takes or releases a lease in this folder meanwhile."""
        os.makedirs(self._folder, mode=0o755, exist_ok=True)
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def stamp(seconds: float) -> str:
    """A time as people read it, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
