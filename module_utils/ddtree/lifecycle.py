"""The story of a restart: inspect, drain, stop, release, start, load, generate, verify.

Nothing here touches a machine: the machine is the four ports of ports.py, so that a test can drive any interleaving.

Ready means one thing only: the invocation that was started owns the port and gave a real generation that carries the
configuration asked for. A model list, a health path or a log line is never proof.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .gpus import Gpu, GpuError, Holder
from .logs import fatal
from .ports import Clock, Generation, Gpus, Outcome, Request, RestartError, Server, Service, UnitState, Want
from .vram import Vram

GATE_POLL = 0.1  # seconds between looks while stopping or releasing: two quiet looks end the gate
LOAD_POLL = 0.1  # seconds between looks while loading
ANSWER_POLL = 0.02  # seconds between looks for an answer; the unit is looked at every LOAD_POLL
LOG_POLL = 1.0  # seconds between reads of the log while loading
LOG_SETTLE = 0.3  # seconds for the rest of a traceback
CAPACITY_DROP = 0.02  # a smaller KV pool than at the last good start means somebody else's VRAM was in the way


class Lifecycle:
    """One run over one unit. `record` is what earlier runs left (a plain dict); `save` keeps it; `tell` shows progress."""

    def __init__(
        self,
        service: Service,
        gpus: Gpus,
        server: Server,
        clock: Clock,
        want: Want,
        record: dict[str, Any],
        save: Callable[[dict[str, Any]], None] = lambda record: None,
        tell: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> None:
        self.service, self.gpus, self.server, self.clock = service, gpus, server, clock
        self.want, self.record, self.save, self.tell = want, record, save, tell
        self.outcome = Outcome()
        self.phase, self.phase_began, self.detail = "inspect", clock.now(), ""
        self.vram = Vram(want.idle_mib, strict=want.state != "stopped")
        self.log_read_at = float("-inf")
        self.log_seen = 0

    # -- the story ---------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Bring the unit to the wanted state, or raise RestartError."""
        try:
            return self._run()
        except RestartError as failure:
            started = self.record.get("started")
            if started and self.outcome.changed:
                started["proof"] = "failed"
            self.record["last_failure"] = {"phase": failure.phase, "cause": failure.cause, "message": failure.message}
            self.save(self.record)
            raise

    def _run(self) -> Outcome:
        with self._phase("inspect"):
            reason = self._inspect()
            self.detail = reason or "runs as asked"
        if self.want.state == "probed" or self.want.check:
            self.outcome.changed = self.want.state != "probed" and bool(reason)
            self.outcome.reason, self.outcome.after = reason, self.outcome.before
            self.outcome.info = dict(self.server.info()) if self.server.listener() else {}
            return self.outcome
        if self.want.state == "stopped":
            if reason:
                self._take_down(reason)
            self.outcome.after = self.service.state()
            return self.outcome
        resumed = self._resumable()
        if reason and not resumed:
            self._take_down(reason)
            with self._phase("start"):
                self._start()
        elif resumed:
            self.outcome.changed, self.outcome.reason = True, "an earlier run was cut off after its start; going on from there"
        if reason or resumed:
            with self._phase("load"):
                self._load()
        with self._phase("generate"):
            self._generate()
        with self._phase("verify"):
            self._verify()
        return self.outcome

    def _take_down(self, reason: str) -> None:
        self.outcome.changed, self.outcome.reason = True, reason
        if not self.outcome.before.stopped:
            with self._phase("drain"):
                self._drain()
        with self._phase("stop"):
            self._stop()
        with self._phase("release"):
            self._release()

    # -- the phases --------------------------------------------------------------------------------------------------

    def _inspect(self) -> str:
        """Look before anything changes; return why the unit must be taken down ('' = nothing to do)."""
        state = self.outcome.before = self.service.state()
        if not state.exists:
            raise self._failure(
                "invalid_config",
                f"unit {self.service.name} does not exist on this host",
                "run the role ddtree_server first: it writes the unit",
            )
        if state.masked and self.want.state in ("started", "restarted"):
            raise self._failure(
                "invalid_config",
                f"unit {self.service.name} is masked, so nothing can start it",
                f"systemctl unmask {self.service.name}, once whoever masked it agrees",
            )
        gpus = self._read_gpus()
        self.outcome.vram_before = [gpu.used_mib for gpu in gpus]
        self.vram.first_look(gpus, self.service.pids())
        if self.want.state == "probed":
            return ""
        if self.want.state == "stopped":
            return "" if state.stopped and not self.vram.own else "stop was asked for"
        self._refuse_foreign(gpus)
        self._refuse_foreign_listener()
        if self.want.state == "restarted":
            return "restart was asked for"
        return self._drift(state)

    def _drift(self, state: UnitState) -> str:
        """Why what runs is not what is asked, or ''."""
        if state.active != "active":
            return f"the unit is {state.active}"
        started = self.record.get("started") or {}
        if started.get("invocation") != state.invocation:
            return "" if self._answers_as_asked() else "the running instance was not started by this toolkit and is not what is asked"
        if started.get("definition") != self.service.definition():
            return "the unit's definition changed since it was started"
        if started.get("config_id") != self.want.config_id:
            return f"configuration {started.get('config_id')} runs, {self.want.config_id} is asked"
        if started.get("proof") != "ready":
            return f"the running instance was never proven ready (its start is {started.get('proof')})"
        return "" if self._answers_as_asked() else "the running instance does not answer a generation"

    def _answers_as_asked(self) -> bool:
        answer = self._await(self.server.ask(), self.want.generate_timeout)
        if answer is None or answer.error or answer.tokens < self.want.min_tokens:
            return False
        return not self.want.config_id or answer.weight_version == self.want.config_id

    def _resumable(self) -> bool:
        """An earlier run started exactly this and was cut off before it saw the proof."""
        started, state = self.record.get("started") or {}, self.outcome.before
        return (
            started.get("proof") == "pending"
            and state.active in ("active", "activating")
            and started.get("invocation") == state.invocation
            and started.get("config_id") == self.want.config_id
            and started.get("definition") == self.service.definition()
        )

    def _drain(self) -> None:
        """Give the requests in flight their time; the engine would wait for them without a limit."""
        deadline = self.clock.now() + self.want.drain_timeout
        running = self.server.running_requests()
        while running and self.clock.now() < deadline:
            self._note(f"{running} requests in flight")
            self.clock.sleep(LOAD_POLL)
            running = self.server.running_requests()
        self.outcome.cut_off_requests = running or 0
        self.detail = f"{self.outcome.cut_off_requests} requests still run" if running else "idle"

    def _stop(self) -> None:
        """Stop, and wait until the unit has no process left."""
        began = self.clock.now()
        self.record["started"] = None
        self.save(self.record)
        self.service.stop()
        while True:
            state, pids = self.service.state(), self.service.pids()
            if state.stopped and not pids:
                break
            if state.stopped and self.clock.now() - began > 1.0:
                self.service.kill_remaining()  # its own children only: the manager has given the unit up
            self._note(f"{len(pids)} processes left")
            if self.clock.now() - began > self.want.stop_timeout:
                self.service.kill_remaining()  # what was given up must not go on holding the GPUs
                raise self._failure(
                    "stop_timeout",
                    f"{self.service.name} still had processes {sorted(pids)} after {self.want.stop_timeout:.0f} s "
                    f"and was {state.active}; they were sent SIGKILL",
                    "look at these processes (state D or R means a driver call: reboot the host)",
                    pids=sorted(pids),
                    result=state.result,
                )
            self.clock.sleep(GATE_POLL)
        self.outcome.killed = state.result in ("timeout", "watchdog") and not self.outcome.before.stopped
        # SGLang up to 0.5.17 ends itself with SIGKILL once it has drained: the manager calls that a signal, and nobody was cut off by it.
        own = {"timeout": "ended by SIGKILL (timeout)", "watchdog": "ended by SIGKILL (watchdog)", "signal": "ended itself by a signal"}
        self.detail = "exited by itself" if self.outcome.before.stopped else own.get(state.result, "exited by itself")

    def _release(self) -> None:
        """Wait until each GPU is free on two looks in a row and the port is nobody's."""
        began, quiet = self.clock.now(), 0
        while True:
            gpus = self._read_gpus()
            held, listener = self.vram.held(gpus), self.server.listener()
            quiet = 0 if held or listener else quiet + 1
            if quiet == 2:
                break
            if self.vram.strict:
                self._refuse_foreign(gpus)
            if self.clock.now() - began > self.want.release_timeout:
                raise self._not_released(gpus, held, listener)
            self._note(f"GPUs {sorted(held)} hold up to {max(held.values())} MiB" if held else "the port is still held")
            self.clock.sleep(GATE_POLL)
        self.record["baseline_mib"] = [gpu.used_mib for gpu in gpus]
        self.detail = f"{max(gpu.used_mib for gpu in gpus)} MiB at most on {len(gpus)} GPUs"

    def _start(self) -> None:
        """Start, and note the invocation: only an answer from this one counts."""
        definition, old = self.service.definition(), self.service.state().invocation
        self.service.start()
        state = self._until_new_invocation(old)
        self.record["started"] = {
            "invocation": state.invocation,
            "definition": definition,
            "config_id": self.want.config_id,
            "proof": "pending",
        }
        self.save(self.record)
        self.outcome.after = state
        self.detail = f"invocation {state.invocation}, pid {state.main_pid}"

    def _until_new_invocation(self, old: str) -> UnitState:
        deadline = self.clock.now() + 30.0
        while True:
            state = self.service.state()
            if state.invocation and state.invocation != old and (state.main_pid or state.stopped):
                return state
            if state.active == "failed" and state.result == "start-limit-hit":
                raise self._failure(
                    "crash_loop",
                    "the manager refuses to start the unit: start limit hit",
                    "read the log of the earlier starts; systemctl reset-failed clears the limit",
                )
            if self.clock.now() > deadline:
                raise self._failure(
                    "crashed",
                    f"{self.service.name} did not come up: {state.active}/{state.sub} ({state.result})",
                    f"systemctl status {self.service.name} tells why no process was started",
                )
            self.clock.sleep(GATE_POLL)

    def _load(self) -> None:
        """Wait until the new invocation's own process owns the port; while it loads, the port is refused."""
        if not self.outcome.after.invocation:
            self.outcome.after = self.outcome.before
        began = self.clock.now()
        learned = float(self._history().get("load_seconds", 0))
        deadline = began + max(self.want.ready_timeout, 2 * learned)
        while True:
            self._still_this_invocation()
            listener = self.server.listener()
            if listener:
                self._require_own(listener)
                break
            if self.clock.now() > deadline:
                raise self._failure(
                    "load_timeout",
                    f"the port is still refused after {self.clock.now() - began:.0f} s",
                    "raise ready_timeout if the log still advances; else the load hangs (NCCL, disk)",
                )
            self.clock.sleep(LOAD_POLL)
        self.outcome.ready["load_seconds"] = round(self.clock.now() - began, 2)
        self.detail = f"port open after {self.clock.now() - began:.1f} s"

    def _generate(self) -> None:
        """A real greedy generation, of enough tokens to run the speculative verify step."""
        if not self.outcome.after.invocation:
            self.outcome.after = self.outcome.before
        deadline = self.clock.now() + self.want.generate_timeout
        while True:
            self._still_this_invocation()
            answer = self._await(self.server.ask(), max(deadline - self.clock.now(), 0.0))
            if answer is None:
                raise self._failure(
                    "generation_failed",
                    f"the engine accepted a request and gave no answer in {self.want.generate_timeout:.0f} s",
                    "the scheduler hangs: read its log, then restart",
                )
            if not answer.error:
                break
            if not answer.retry or self.clock.now() > deadline:
                raise self._failure(
                    "generation_failed",
                    f"the proving request failed: {answer.error}",
                    "a 401 or 403 means a missing or wrong API key; else read the log tail",
                    status=answer.status,
                )
            self.clock.sleep(LOAD_POLL)
        if answer.tokens < self.want.min_tokens:
            raise self._failure(
                "generation_failed",
                f"the answer has {answer.tokens} tokens, {self.want.min_tokens} were asked",
                "the engine ends generations early: check the model and its chat template",
            )
        self.answer = answer
        self.outcome.ready.update(
            seconds=round(answer.seconds, 3),
            http_status=answer.status,
            completion_tokens=answer.tokens,
            weight_version=answer.weight_version,
        )
        self.detail = f"{answer.tokens} tokens in {answer.seconds:.2f} s"

    def _verify(self) -> None:
        """The answer came from this invocation, and this invocation runs what was asked."""
        self._still_this_invocation()
        listener = self.server.listener()
        if listener is None:
            raise self._failure("crashed", "the port closed right after the generation", "read the log tail of this invocation")
        self._require_own(listener)
        info = self.outcome.info = dict(self.server.info())
        self._require_configuration(info)
        history = self._history()
        tokens, usual = info.get("max_total_num_tokens"), history.get("max_total_num_tokens")
        if isinstance(tokens, int) and isinstance(usual, int) and tokens < usual * (1 - CAPACITY_DROP):
            self.outcome.notes.append(
                f"the KV pool holds {tokens} tokens, {usual} at the last good start: another process held VRAM while this one loaded"
            )
        elif isinstance(tokens, int):
            history["max_total_num_tokens"] = tokens
        if "load_seconds" in self.outcome.ready:
            history["load_seconds"] = self.outcome.ready["load_seconds"]
        gpus = self._read_gpus()
        self.outcome.vram_after = [gpu.used_mib for gpu in gpus]
        self.record["started"] = {
            "invocation": self.outcome.after.invocation,
            "definition": self.service.definition(),
            "config_id": self.want.config_id,
            "proof": "ready",
        }
        self.save(self.record)
        self.detail = f"configuration {self.want.config_id or 'as asked'} answered from pid {listener.pid}"

    # -- what the phases ask -----------------------------------------------------------------------------------------

    def _require_configuration(self, info: Mapping[str, Any]) -> None:
        wrong = {key: {"asked": want, "loaded": info.get(key)} for key, want in self.want.expect.items() if info.get(key) != want}
        if self.want.config_id and self.answer.weight_version != self.want.config_id:
            wrong["weight_version"] = {"asked": self.want.config_id, "loaded": self.answer.weight_version}
        if self.want.expect.get("speculative_algorithm") and not self.answer.verify_steps:
            wrong["spec_verify_ct"] = {"asked": "at least 1", "loaded": self.answer.verify_steps}
        if wrong:
            said = ", ".join(f"{key} is {both['loaded']!r} instead of {both['asked']!r}" for key, both in wrong.items())
            raise self._failure(
                "config_mismatch",
                f"the engine that answered does not run what was asked: {said}",
                "check drop-ins, wrappers and the dialect: something between the unit and the engine changed it",
                mismatch=wrong,
            )

    def _still_this_invocation(self) -> None:
        """Fail as soon as it is certain that this invocation will not become ready."""
        state = self.service.state()
        mine = self.outcome.after
        gone = state.stopped or state.sub == "auto-restart" or state.invocation != mine.invocation or state.restarts > mine.restarts
        if gone or self.clock.now() - self.log_read_at >= LOG_POLL:
            self.log_read_at = self.clock.now()
            if gone:
                self.clock.sleep(LOG_SETTLE)  # the last words come after the end
            found = self._fatal_line(mine)
            if found:
                raise self._dead(*found, state)
        if gone:
            looping = state.sub == "auto-restart" or state.invocation != mine.invocation
            raise self._dead(
                "crash_loop" if looping else "crashed",
                f"the unit is {state.active}/{state.sub}, result {state.result}, exit {state.exit_status or 'unknown'}",
                "read the log tail of this invocation",
                state,
            )

    def _fatal_line(self, mine: UnitState) -> tuple[str, str, str] | None:
        """(cause, line, hint) of the first line that says this start is lost; what follows it may say why."""
        lines = self.service.log(mine)
        fresh, seen = lines[self.log_seen :], len(lines)
        if fresh and self.phase == "load":
            self._note(f"{self._most_used()} MiB; {fresh[-1].strip()[:120]}")
        if any(fatal(line) for line in fresh):
            self.clock.sleep(LOG_SETTLE)  # a traceback comes in several writes
            fresh = self.service.log(mine)[self.log_seen :]
        self.log_seen = seen
        found = [(cause, line.strip(), hint) for line in fresh for cause, hint in [fatal(line) or ("", "")] if cause]
        specific = [one for one in found if one[0] != "crashed"]
        return next(iter(specific or found), None)

    def _dead(self, cause: str, seen: str, hint: str, state: UnitState) -> RestartError:
        if not state.stopped:
            self.service.stop()  # ours, and its manager would try again all night
        baseline = self.record.get("baseline_mib") or []
        if cause == "out_of_memory" and baseline:
            idle = max(baseline) <= self.want.idle_mib
            hint = f"{hint}; VRAM in use at the moment of start: {baseline} MiB" + (
                "" if idle else ". Free that first: a lower mem-fraction would only hide it"
            )
        return self._failure(
            cause, f"{self.service.name}: {seen}", hint, result=state.result, exit_status=state.exit_status, vram_at_start_mib=baseline
        )

    def _require_own(self, listener: Holder) -> None:
        if listener.pid in self.service.pids():
            return
        cause = "old_instance" if listener.pid in self.vram.own else "port_in_use"
        raise self._failure(
            cause,
            f"the port belongs to {listener}, not to the invocation that was started",
            "end that process or give the unit another port",
            listener=str(listener),
        )

    def _refuse_foreign_listener(self) -> None:
        listener = self.server.listener()
        if listener and listener.pid not in self.vram.own:
            raise self._failure(
                "port_in_use",
                f"the port belongs to {listener}, which is not {self.service.name}'s process",
                "end that process or give the unit another port; nothing was stopped",
                listener=str(listener),
            )

    def _refuse_foreign(self, gpus: Sequence[Gpu]) -> None:
        strangers = self.vram.strangers(gpus)
        if strangers:
            said = "; ".join(f"GPU {gpu.index}: {holder} holds {holder.mib or gpu.used_mib} MiB" for gpu, holder in strangers)
            raise self._failure(
                "foreign_vram",
                f"another process holds this unit's GPUs: {said}",
                "end it, or give the unit other GPUs; nothing foreign was touched",
                holders=[{"gpu": gpu.index, "pid": h.pid, "name": h.name, "mib": h.mib} for gpu, h in strangers],
            )

    def _not_released(self, gpus: Sequence[Gpu], held: Mapping[int, int], listener: Holder | None) -> RestartError:
        if listener:
            cause = "old_instance" if listener.pid in self.vram.own else "port_in_use"
            return self._failure(cause, f"the port is still held by {listener}", "end that process", listener=str(listener))
        names = sorted({f"{holder}" for gpu in gpus if gpu.index in held for holder in gpu.holders})
        who = ", ".join(names) if names else "no process that can be seen from here (another pid namespace or user, or a driver leak)"
        said = ", ".join(f"GPU {index}: {mib} MiB" for index, mib in held.items())
        return self._failure(
            "vram_not_released",
            f"VRAM is still held {self.want.release_timeout:.0f} s after the stop: {said}; by {who}",
            "nothing was started; find the holder (fuser -v /dev/nvidia*), or reset or reboot if there is none",
            held_mib=dict(held),
            holders=names,
        )

    def _read_gpus(self) -> list[Gpu]:
        try:
            return self.gpus.read()
        except GpuError as error:
            raise self._failure("no_gpu", str(error), error.remedy) from error

    def _most_used(self) -> int:
        return max(gpu.used_mib for gpu in self._read_gpus())

    def _await(self, request: Request, seconds: float) -> Generation | None:
        """The answer, or None once `seconds` are over; fails at once if the instance that was asked dies meanwhile."""
        deadline = looked = self.clock.now()
        deadline += seconds
        while True:
            answer = request.result()
            if answer is not None or self.clock.now() >= deadline:
                return answer
            if self.phase == "generate" and self.clock.now() - looked >= LOAD_POLL:
                looked = self.clock.now()
                self._still_this_invocation()
            self.clock.sleep(ANSWER_POLL)

    def _history(self) -> dict[str, Any]:
        return self.record.setdefault("history", {}).setdefault(self.want.config_id, {})

    def _failure(self, cause: str, message: str, remedy: str, **evidence: Any) -> RestartError:
        return RestartError(self.phase, cause, message, remedy, **evidence)

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self.phase, self.detail, began = name, "", self.clock.now()
        self.phase_began = began
        self._note("", begin=True)
        try:
            yield
        except RestartError as failure:
            self.detail = failure.message
            raise
        finally:
            seconds = round(self.clock.now() - began, 3)
            self.outcome.phases.append({"name": name, "seconds": seconds, "detail": self.detail})
            self.tell({"phase": name, "seconds": seconds, "detail": self.detail, "end": True})

    def _note(self, detail: str, begin: bool = False) -> None:
        """What is going on now, for whoever watches."""
        self.detail = detail
        expected = self._history().get("load_seconds") if self.phase == "load" else None
        seconds = round(self.clock.now() - self.phase_began, 1)
        self.tell({"phase": self.phase, "seconds": seconds, "detail": detail, "expected": expected, "begin": begin})
