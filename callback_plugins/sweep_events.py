"""Watch a sweep from Ansible's own process: one line per host and step, events.jsonl, lost hosts, Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ansible.plugins.callback import CallbackBase

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree import live, run_lock, schedule  # noqa: E402

DOCUMENTATION = """
name: sweep_events
type: aggregate
short_description: The live view and the event log of a sweep
description:
  - Says for each host at which point of how many it is, its phase, the output token/s so far and the time left; every step at a
    terminal, only beginning and end of a point elsewhere.
  - Writes events.jsonl beside the results, takes back the point of a host that is lost, and ends the sweep in good order at the first
    Ctrl-C or SIGTERM.
requirements: [enabled in ansible.cfg]
"""
# Actions whose begin and end are steps of a point.
STEPS = {"sglang_service": "restart", "sglang_bench": "cell", "sglang_codecheck": "coding"}


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "sweep_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.folder: Path | None = None
        self.log: TextIO | None = None
        self.lock: TextIO | None = None
        self.view = live.View()
        self.every_step = sys.stdout.isatty()
        self.handlers: dict[int, Any] = {}

    # -- what Ansible tells

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        step = STEPS.get(task.action)
        if self.folder and step and self.view.begin(str(host), step, time.monotonic()):
            self._event(str(host), "step", step=step)
            self._say(str(host), every=True)

    def v2_runner_on_ok(self, result: Any) -> None:
        host, action, found = str(result.host), result.task.action, result.result
        if action == "sweep_schedule":
            self._scheduled(host, found)
        elif self.folder and action in STEPS and not found.get("skipped"):
            self._measured(host, action, found)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        host, action = str(result.host), result.task.action
        if self.folder and action == "sweep_schedule":
            self._take_back(host, str(result.result.get("msg", "")))  # whatever it was at, it will not end it

    def v2_runner_on_unreachable(self, result: Any) -> None:
        if self.folder:
            self._take_back(str(result.host), str(result.result.get("msg", "")))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if self.folder:
            self._event("", "ended", stop=schedule.stopping(self.folder))
        self._close()

    # -- steps of a sweep

    def _scheduled(self, host: str, found: Mapping[str, Any]) -> None:
        if "hosts" in found:
            self._open(Path(found["dir"]))
            self.view.open(found["hosts"], time.monotonic())
            self._event("", "begun", run=found["run"], anchor=found["anchor"], hosts=sorted(found["hosts"]))
        elif self.folder and found.get("point"):
            point = found.get("run") or found["point"]["point"]["name"]
            self.view.claim(host, point, found["index"], found["of"], time.monotonic(), found.get("told"))
            more = {key: found[key] for key in ("stage", "why", "told") if key in found and found["tuned"]}
            self._event(host, "point", point=point, index=found["index"], of=found["of"], anchor=found["anchor"], **more)
            self._say(host)
        elif self.folder and "not_now" in found:
            if found["cut"]:
                self._event(host, "cut", why=found["cut"])
        elif self.folder and "path" in found:
            self._event(host, "idle", why=found["why"])
        elif self.folder:
            self.view.end(host, found["status"], time.monotonic())
            failure = {key: found["failure"].get(key) for key in ("phase", "cause", "message")} if found["failure"] else None
            self._event(host, "point_ended", point=found["name"], status=found["status"], interrupted=found["interrupted"],
                        failure=failure, stopped="" if found["interrupted"] else found["why"])  # fmt: skip
            self._say(host, failure)

    def _measured(self, host: str, action: str, found: Mapping[str, Any]) -> None:
        cell, coding = found.get("cell"), found.get("coding")
        if action == "sglang_service":
            self._event(host, "loaded", changed=found.get("changed"), phases=found.get("phases"))
        elif cell:
            self.view.cell(host, cell)
            keys = ("context", "concurrency", "output_tok_s", "user_tok_s", "accept_length", "errors", "seconds")
            self._event(host, "cell", **{key: cell.get(key) for key in keys})
            self._say(host, every=True)
        elif coding:
            self._event(host, "coding", passed=coding.get("passed"), total=coding.get("total"))

    def _take_back(self, host: str, why: str) -> None:
        assert self.folder
        point = schedule.lose(self.folder, host)
        self.view.end(host, "lost", time.monotonic())
        self._event(host, "lost", point=point, why=why)
        taken = f"; {point} goes back to the others" if point else ""
        self._display.display(f"  {host}: lost{taken}", color="red")

    # -- the run

    def _open(self, folder: Path) -> None:
        """Hold the sweep as long as this process or a task of it lives, and take Ctrl-C for a wish to end in good order."""
        self._close()
        self.folder = folder
        self.log = (folder / schedule.EVENTS).open("a", encoding="utf-8")
        self.lock = run_lock.hold(folder / schedule.RUN)
        for number in (signal.SIGINT, signal.SIGTERM):
            self.handlers[number] = signal.signal(number, self._stop)

    def _stop(self, number: int, frame: Any) -> None:
        """The first signal ends the sweep in good order; the next one does what it does without a sweep."""
        signal.signal(number, self.handlers.get(number) or signal.SIG_DFL)
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if self.folder:
            schedule.stop(self.folder, f"stopped by {name}")
            self._event("", "stop", why=name)
        sys.stderr.write(
            f"\n{name}: each host ends the step it is at, then is left as sweep_finally says, and the report is written; what is open "
            "stays for the next run of the same command. Once more ends at once and leaves the hosts as they are.\n"
        )

    def _close(self) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.handlers = {}
        for file in (self.log, self.lock):
            if file:
                file.close()
        self.folder = self.log = self.lock = None

    def _event(self, host: str, event: str, **more: Any) -> None:
        if self.log:
            now = time.time()
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
            self.log.write(json.dumps({"time": stamp, "host": host, "event": event, **more}, ensure_ascii=False) + "\n")
            self.log.flush()

    def _say(self, host: str, failure: Mapping[str, Any] | None = None, every: bool = False) -> None:
        """The host's line; the steps of a point only at a terminal."""
        if every and not self.every_step:
            return
        self._display.display("  " + self.view.line(host, time.monotonic()), color="red" if failure else None)
        if failure:
            self._display.display(f"    {failure['cause']} in phase {failure['phase']}: {failure['message']}", color="red")
