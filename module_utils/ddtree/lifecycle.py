"""The story of a restart: inspect, drain, stop, release, start, load, generate, verify.

Nothing here touches a machine: the machine is the ports of ports.py, so that a test can drive any interleaving.

Ready means one thing only: the invocation that was started owns the port and gave a real generation that carries the
configuration asked for. A model list, a health path or a log line is never proof.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .gpus import Holder
from .ground import Ground
from .invocation import Invocation
from .phases import Phases
from .ports import Clock, Generation, Gpus, Outcome, Request, RestartError, Router, Server, Service, UnitState, Want
from .router import RouterError

GATE_POLL = 0.05  # seconds between looks while stopping or releasing: two quiet looks end the gate
LOAD_POLL = 0.1  # seconds between looks while loading
ANSWER_POLL = 0.02  # seconds between looks for an answer; the unit is looked at every LOAD_POLL
KILL_AFTER = 1.0  # seconds that children get once the manager has given the unit up
START_TIMEOUT = 30.0  # seconds until the manager must have started a process
OUT_OF_ROUTER = "the router did not send requests here"
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
        router: Router | None = None,
    ) -> None:
        self.service, self.server, self.clock, self.router = service, server, clock, router
        self.want, self.record, self.save = want, record, save
        self.outcome = Outcome()
        self.history: dict[str, Any] = record.setdefault("history", {}).setdefault(want.config_id, {})
        usual = {"load": self.history["load_seconds"]} if "load_seconds" in self.history else {}
        self.phases = Phases(clock, self.outcome.phases, tell, usual)
        self.ground = Ground(gpus, server, self.phases, want.idle_mib, strict=want.state != "stopped")

    # -- the story ---------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Bring the unit to the wanted state, or raise RestartError."""
        try:
            return self._run()
        except RestartError as failure:
            started = self.record.get("started")
            if started and started["proof"] == "pending":
                started["proof"] = "failed"
            self.record["last_failure"] = {"phase": failure.phase, "cause": failure.cause, "message": failure.message}
            self.save(self.record)
            raise

    def _run(self) -> Outcome:
        with self.phases.of("inspect"):
            reason = self._inspect()
            self.phases.detail = reason or "runs as asked"
        if self.want.state == "probed" or self.want.check:
            return self._looked(reason)
        if self.want.state == "stopped":
            if reason:
                self._take_down(reason)
            self.outcome.after = self.service.state()
            return self.outcome
        resumed = self._resumable()
        if resumed:
            self.outcome.changed, self.outcome.reason = True, "an earlier run was cut off after its start; going on from there"
        elif reason:
            self._take_down(reason)
            with self.phases.of("start"):
                self._start()
        if not self.outcome.after.invocation:
            self.outcome.after = self.outcome.before
        baseline = self.record.get("baseline_mib") or [] if self.outcome.changed else []
        self.invocation = Invocation(self.outcome.after, self.service, self.clock, self.phases, baseline, self.want.idle_mib)
        if reason or resumed:
            with self.phases.of("load"):
                self._load()
        with self.phases.of("generate"):
            answer = self._generate()
        with self.phases.of("verify"):
            self._verify(answer)
            self._put_into_service()
        return self.outcome

    def _take_down(self, reason: str) -> None:
        self.outcome.changed, self.outcome.reason = True, reason
        if self.router or not self.outcome.before.stopped:
            with self.phases.of("drain"):
                self._drain()
        with self.phases.of("stop"):
            self._stop()
        with self.phases.of("release"):
            self._release()

    def _looked(self, reason: str) -> Outcome:
        if self.want.check and self.want.state == "started" and not reason and self.router and not self._in_router():
            reason = OUT_OF_ROUTER
        self.outcome.changed = self.want.state != "probed" and bool(reason)
        self.outcome.reason, self.outcome.after = reason, self.outcome.before
        self.outcome.info = dict(self.server.info()) if self.server.listener() else {}
        return self.outcome

    # -- inspect -----------------------------------------------------------------------------------------------------

    def _inspect(self) -> str:
        """Look before anything changes; return why the unit must be taken down ('' = nothing to do)."""
        state = self.outcome.before = self.service.state()
        if not state.exists:
            missing = f"unit {self.service.name} does not exist on this host"
            raise self.phases.failure("invalid_config", missing, "run the role ddtree_server first: it writes the unit")
        if state.masked and self.want.state in ("started", "restarted"):
            raise self.phases.failure(
                "invalid_config",
                f"unit {self.service.name} is masked, so nothing can start it",
                f"systemctl unmask {self.service.name}, once whoever masked it agrees",
            )
        self.outcome.vram_before = self.ground.first_look(self.service.pids())
        if self.want.state == "probed":
            return ""
        self._in_router()
        if self.want.state == "stopped":
            return "" if state.stopped and not self.ground.own else "stop was asked for"
        self.ground.refuse_foreign()
        if self.want.state == "restarted":
            return "restart was asked for"
        return self._drift(state)

    def _drift(self, state: UnitState) -> str:
        """Why what runs is not what is asked, or ''."""
        if state.active != "active":
            return f"the unit is {state.active}"
        started = self.record.get("started") or {}
        if started.get("invocation") != state.invocation:
            if started.get("definition") != self.service.definition() and self.service.changed_since_start():
                return "the unit's definition changed since someone else started the running instance"
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

    # -- down --------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """No new requests, and their time for those in flight; the engine itself would wait for them without a limit."""
        deadline = self.clock.now() + self.want.drain_timeout
        where = self._take_out_of_service()
        running = self.server.running_requests()
        while running and self.clock.now() < deadline:
            self.phases.note(f"{running} requests in flight")
            self.clock.sleep(LOAD_POLL)
            running = self.server.running_requests()
        self.outcome.cut_off_requests = running or 0
        self.phases.detail = where + (f"{self.outcome.cut_off_requests} requests still run" if running else "idle")

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
            if state.stopped and self.clock.now() - began > KILL_AFTER:
                self.service.kill_remaining()  # its own children only: the manager has given the unit up
            self.phases.note(f"{len(pids)} processes left")
            if self.clock.now() - began > self.want.stop_timeout:
                self.service.kill_remaining()  # what was given up must not go on holding the GPUs
                raise self.phases.failure(
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
        ends = {"timeout": "ended by SIGKILL (timeout)", "watchdog": "ended by SIGKILL (watchdog)", "signal": "ended itself by a signal"}
        self.phases.detail = ends.get("" if self.outcome.before.stopped else state.result, "exited by itself")

    def _release(self) -> None:
        """Wait until each GPU is free on two looks in a row and the port is nobody's."""
        began, quiet = self.clock.now(), 0
        while True:
            taken = self.ground.taken()
            quiet = 0 if taken else quiet + 1
            if quiet == 2:
                break
            if taken and self.clock.now() - began > self.want.release_timeout:
                raise taken[1]
            self.phases.note(taken[0] if taken else "free at the first look")
            self.clock.sleep(GATE_POLL)
        used = self.record["baseline_mib"] = self.ground.used_mib()
        self.phases.detail = f"{max(used)} MiB at most on {len(used)} GPUs"

    # -- up ----------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start, and note the invocation: only an answer from this one counts."""
        definition, old = self.service.definition(), self.service.state().invocation
        self.service.start()
        state = self.outcome.after = self._until_new_invocation(old)
        self._remember(state, definition, "pending")
        self.phases.detail = f"invocation {state.invocation}, pid {state.main_pid}"

    def _until_new_invocation(self, old: str) -> UnitState:
        deadline = self.clock.now() + START_TIMEOUT
        while True:
            state = self.service.state()
            if state.invocation and state.invocation != old and (state.main_pid or state.stopped):
                return state
            if state.active == "failed" and state.result == "start-limit-hit":
                limit = "the manager refuses to start the unit: start limit hit"
                raise self.phases.failure(
                    "crash_loop", limit, "read the log of the earlier starts; systemctl reset-failed clears the limit"
                )
            if self.clock.now() > deadline:
                raise self.phases.failure(
                    "crashed",
                    f"{self.service.name} did not come up: {state.active}/{state.sub} ({state.result})",
                    f"systemctl status {self.service.name} tells why no process was started",
                )
            self.clock.sleep(GATE_POLL)

    def _load(self) -> None:
        """Wait until the new invocation's own process owns the port; while it loads, the port is refused."""
        began = self.clock.now()
        deadline = began + max(self.want.ready_timeout, 2 * float(self.history.get("load_seconds", 0)))
        while True:
            self.invocation.still_possible(loading=lambda: f"{max(self.ground.used_mib())} MiB")
            listener = self.server.listener()
            if listener and self._is_own(listener):
                break
            if self.clock.now() > deadline:
                late = f"the port is still refused after {self.clock.now() - began:.0f} s"
                remedy = "raise ready_timeout if the log still advances; else the load hangs (NCCL, disk)"
                raise self.phases.failure("load_timeout", late, remedy)
            self.clock.sleep(LOAD_POLL)
        self.outcome.ready["load_seconds"] = round(self.clock.now() - began, 2)
        self.phases.detail = f"port open after {self.clock.now() - began:.1f} s"

    def _generate(self) -> Generation:
        """A real greedy generation, of enough tokens to run the speculative verify step."""
        deadline = self.clock.now() + self.want.generate_timeout
        while True:
            self.invocation.still_possible()
            answer = self._await(self.server.ask(), max(deadline - self.clock.now(), 0.0), alive=self.invocation.still_possible)
            if answer is None:
                raise self.phases.failure(
                    "generation_failed",
                    f"the engine accepted a request and gave no answer in {self.want.generate_timeout:.0f} s",
                    "the scheduler hangs: read its log, then restart",
                )
            if not answer.error:
                break
            if not answer.retry or self.clock.now() > deadline:
                raise self.phases.failure(
                    "generation_failed",
                    f"the proving request failed: {answer.error}",
                    "a 401 or 403 means a missing or wrong API key; else read the log tail",
                    status=answer.status,
                )
            self.clock.sleep(LOAD_POLL)
        if answer.tokens < self.want.min_tokens:
            few = f"the answer has {answer.tokens} tokens, {self.want.min_tokens} were asked"
            raise self.phases.failure("generation_failed", few, "the engine ends generations early: check the model and its chat template")
        self.outcome.ready.update(
            seconds=round(answer.seconds, 3),
            http_status=answer.status,
            completion_tokens=answer.tokens,
            weight_version=answer.weight_version,
        )
        self.phases.detail = f"{answer.tokens} tokens in {answer.seconds:.2f} s"
        return answer

    def _verify(self, answer: Generation) -> None:
        """The answer came from this invocation, and this invocation runs what was asked."""
        self.invocation.still_possible()
        listener = self.server.listener()
        if listener is None:
            raise self.phases.failure("crashed", "the port closed right after the generation", "read the log tail of this invocation")
        self._is_own(listener)
        info = self.outcome.info = dict(self.server.info())
        self._require_configuration(info, answer)
        self._compare_log()
        self._learn(info)
        self.outcome.vram_after = self.ground.used_mib()
        self._remember(self.outcome.after, self.service.definition(), "ready")
        self.phases.detail = f"configuration {self.want.config_id or 'as asked'} answered from pid {listener.pid}"

    def _is_own(self, listener: Holder) -> bool:
        """Whether the port is this unit's; raises where it is another's. What dies between two looks is looked at again."""
        if listener.pid in self.service.pids():
            return True
        self.clock.sleep(LOAD_POLL)
        self.invocation.still_possible()
        again = self.server.listener()
        if again:
            self.ground.require_own(again, self.service.pids())
        return again is not None

    def _require_configuration(self, info: Mapping[str, Any], answer: Generation) -> None:
        wrong = {key: {"asked": want, "loaded": info.get(key)} for key, want in self.want.expect.items() if info.get(key) != want}
        if self.want.config_id and answer.weight_version != self.want.config_id:
            wrong["weight_version"] = {"asked": self.want.config_id, "loaded": answer.weight_version}
        if self.want.expect.get("speculative_algorithm") and not answer.verify_steps:
            wrong["spec_verify_ct"] = {"asked": "at least 1", "loaded": answer.verify_steps}
        if wrong:
            said = ", ".join(f"{key} is {both['loaded']!r} instead of {both['asked']!r}" for key, both in wrong.items())
            raise self.phases.failure(
                "config_mismatch",
                f"the engine that answered does not run what was asked: {said}",
                "check drop-ins, wrappers and the dialect: something between the unit and the engine changed it",
                mismatch=wrong,
            )

    def _compare_log(self) -> None:
        """The start log should say the same as server_info; a line can be lost, so a missing one is told and no failure."""
        lines = self.service.log(self.outcome.after) if "load_seconds" in self.outcome.ready else []
        for proof in self.want.log_proofs if lines else ():
            if not any(re.search(proof, line) for line in lines):
                self.outcome.notes.append(f"the log of this start has no line like {proof!r}, by which this build shows what it loaded")

    # -- in and out of service ---------------------------------------------------------------------------------------

    def _in_router(self) -> bool:
        """Whether the router sends requests here; a router that cannot be asked ends the run before anything is stopped."""
        return self._of_router(lambda router: router.serves(), "nothing was stopped")

    def _take_out_of_service(self) -> str:
        return "out of the router, " if self._of_router(lambda router: router.withdraw(), "the old instance still serves") else ""

    def _put_into_service(self) -> None:
        if self._of_router(lambda router: router.enrol(), "the engine is ready and gets no requests from it"):
            if not self.outcome.changed:
                self.outcome.changed, self.outcome.reason = True, OUT_OF_ROUTER
            self.phases.detail += ", back in the router"

    def _of_router(self, ask: Callable[[Router], bool], otherwise: str) -> bool:
        try:
            return ask(self.router) if self.router else False
        except RouterError as error:
            raise self.phases.failure("router_unreachable", f"{error}; {otherwise}", "check router_url, its key and its log") from error

    # -- what the phases share ---------------------------------------------------------------------------------------

    def _await(self, request: Request, seconds: float, alive: Callable[[], None] = lambda: None) -> Generation | None:
        """The answer, or None once `seconds` are over; `alive` raises as soon as none can come any more."""
        looked = self.clock.now()
        deadline = looked + seconds
        while True:
            answer = request.result()
            if answer is not None or self.clock.now() >= deadline:
                return answer
            if self.clock.now() - looked >= LOAD_POLL:
                looked = self.clock.now()
                alive()
            self.clock.sleep(ANSWER_POLL)

    def _remember(self, state: UnitState, definition: str, proof: str) -> None:
        """What a later run, or the next after this one was cut off, must know of this start."""
        started = {"invocation": state.invocation, "definition": definition, "config_id": self.want.config_id, "proof": proof}
        self.record["started"] = started
        self.save(self.record)

    def _learn(self, info: Mapping[str, Any]) -> None:
        """Load time and KV pool of a good start, to judge later ones by."""
        tokens, usual = info.get("max_total_num_tokens"), self.history.get("max_total_num_tokens")
        if isinstance(tokens, int) and isinstance(usual, int) and tokens < usual * (1 - CAPACITY_DROP):
            self.outcome.notes.append(
                f"the KV pool holds {tokens} tokens, {usual} at the last good start: another process held VRAM while this one loaded"
            )
        elif isinstance(tokens, int):
            self.history["max_total_num_tokens"] = tokens
        if "load_seconds" in self.outcome.ready:
            self.history["load_seconds"] = self.outcome.ready["load_seconds"]
