"""One start of the unit, watched until it is ready or certainly lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .logs import fatal
from .phases import Phases
from .ports import Clock, RestartError, Service, UnitState

LOG_POLL = 1.0  # seconds between reads of the log while it loads
LOG_SETTLE = 0.3  # seconds for the rest of a traceback


class Invocation:
    """The instance that must become ready: `state` is the unit right after its start, `idle_mib` what a free GPU may hold.

    `vram_at_start` are MiB per GPU at the moment of the start, empty where this run did not start it.
    """

    def __init__(
        self, state: UnitState, service: Service, clock: Clock, phases: Phases, vram_at_start: Sequence[int], idle_mib: int
    ) -> None:
        self.state = state
        self._service, self._clock, self._phases = service, clock, phases
        self._vram_at_start, self._idle_mib = list(vram_at_start), idle_mib
        self._log_read_at, self._log_seen = float("-inf"), 0

    def still_possible(self, loading: Callable[[], str] | None = None) -> None:
        """Raise as soon as it is certain that this instance will not become ready; `loading` adds to what is told of its log."""
        now = self._service.state()
        gone = now.stopped or now.sub == "auto-restart" or now.invocation != self.state.invocation or now.restarts > self.state.restarts
        if gone or self._clock.now() - self._log_read_at >= LOG_POLL:
            self._log_read_at = self._clock.now()
            if gone:
                self._clock.sleep(LOG_SETTLE)  # the last words come after the end
            found = self._fatal_line(loading, settled=gone)
            if found:
                raise self._lost(*found, now)
        if gone:
            looping = now.sub == "auto-restart" or now.invocation != self.state.invocation
            raise self._lost(
                "crash_loop" if looping else "crashed",
                f"the unit is {now.active}/{now.sub}, result {now.result}, exit {now.exit_status or 'unknown'}",
                "read the log tail of this invocation",
                now,
            )

    def _fatal_line(self, loading: Callable[[], str] | None, settled: bool) -> tuple[str, str, str] | None:
        """(cause, line, hint) of the first line that says this start is lost; what follows it may say why."""
        lines = self._service.log(self.state)
        fresh, seen = lines[self._log_seen :], len(lines)
        if fresh and loading:
            self._phases.note(f"{loading()}; {fresh[-1].strip()[:120]}")
        if not settled and any(fatal(line) for line in fresh):
            self._clock.sleep(LOG_SETTLE)  # a traceback comes in several writes
            fresh = self._service.log(self.state)[self._log_seen :]
        self._log_seen = seen
        found = [(cause, line.strip(), hint) for line in fresh for cause, hint in [fatal(line) or ("", "")] if cause]
        specific = [one for one in found if one[0] != "crashed"]
        return next(iter(specific or found), None)

    def _lost(self, cause: str, seen: str, hint: str, now: UnitState) -> RestartError:
        if not now.stopped:
            self._service.stop()  # ours, and its manager would try again all night
        if cause == "out_of_memory" and self._vram_at_start:
            hint = f"{hint}; VRAM in use at the moment of start: {self._vram_at_start} MiB"
            if max(self._vram_at_start) > self._idle_mib:
                hint += ". Free that first: a lower mem-fraction would only hide it"
        return self._phases.failure(
            cause,
            f"{self._service.name}: {seen}",
            hint,
            result=now.result,
            exit_status=now.exit_status,
            vram_at_start_mib=self._vram_at_start,
        )
