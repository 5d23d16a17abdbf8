"""The phases of one run: which one runs, what is seen in it, how long it took, and the failure that ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .ports import Clock, RestartError

Tell = Callable[[dict[str, Any]], None]


class Phases:
    """Times each phase into `done` and tells who watches; `usual` gives the seconds that a phase is known to take."""

    def __init__(self, clock: Clock, done: list[dict[str, Any]], tell: Tell, usual: Mapping[str, float]) -> None:
        self._clock, self._done, self._tell, self._usual = clock, done, tell, usual
        self.name, self.detail = "inspect", ""
        self._began = clock.now()

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        self.name, self._began = name, self._clock.now()
        self.note("", begin=True)
        try:
            yield
        except RestartError as failure:
            self.detail = failure.message
            raise
        finally:
            one = {"name": name, "seconds": round(self._clock.now() - self._began, 3), "detail": self.detail}
            self._done.append(one)
            self._tell({"phase": name, "seconds": one["seconds"], "detail": self.detail, "end": True})

    def note(self, detail: str, begin: bool = False) -> None:
        """What is going on now."""
        self.detail = detail
        seconds = round(self._clock.now() - self._began, 1)
        self._tell({"phase": self.name, "seconds": seconds, "detail": detail, "expected": self._usual.get(self.name), "begin": begin})

    def failure(self, cause: str, message: str, remedy: str, **evidence: Any) -> RestartError:
        """The end of this run, in the phase that runs now."""
        return RestartError(self.name, cause, message, remedy, **evidence)
