"""Run the module sglang_service detached, show its phases while it works, and ride out a lost connection.

The module does the whole job alone; this only watches it. It goes on when the connection or the controller dies, and the next run
of the same runner waits for it and looks at what it left.
"""

from __future__ import annotations

import getpass
import json
import secrets
import shlex
import socket
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()

POLL = 0.5  # seconds between looks at the progress file
STATUS_POLL = 10.0  # seconds between looks at the job itself, in case it died without a word
NOTE_EVERY = 10.0  # seconds between lines of a phase that goes on
JOB_SECONDS = 24 * 3600
LOST_SECONDS = 300.0  # a host that is away for longer is lost, unless lost_timeout says otherwise


class ActionModule(ActionBase):
    """The options are the module's own."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        runner = f"{getpass.getuser()}@{socket.gethostname()}"
        args = {"runner": runner, "run_id": secrets.token_hex(4), **self._task.args}
        if self._task.check_mode or self._task.async_val or args.get("state") == "probed":
            return self._execute_module(module_args=args, task_vars=task_vars, wrap_async=bool(self._task.async_val))
        self.host = (task_vars or {}).get("inventory_hostname", "")
        self.told: tuple[str, float] = ("", 0.0)
        self.away_since: float | None = None
        self.lost_after = float(args.get("lost_timeout") or LOST_SECONDS)
        job = self._ride_out(lambda: self._begin(args, task_vars))
        if "ansible_job_id" not in job:
            return job
        result = self._watch(job, args, task_vars)
        for key in ("ansible_job_id", "started", "finished", "results_file", "stdout", "stderr", "stdout_lines", "stderr_lines"):
            result.pop(key, None)
        return result

    def _begin(self, args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """Start the module as a job of its own, so that it outlives this connection."""
        self._task.async_val = JOB_SECONDS
        try:
            return self._execute_module(module_args=args, task_vars=task_vars, wrap_async=True)
        finally:
            self._task.async_val = 0

    def _watch(self, job: dict[str, Any], args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        path = f"{args.get('state_dir', '/var/lib/ddtree-ops')}/{args['name']}.progress"
        seen, looked = 0, time.monotonic()
        while True:
            time.sleep(POLL)
            lines = self._ride_out(lambda: self._lines(path, args["run_id"]))
            for line in lines[seen:]:
                self._show(line)
            seen = max(seen, len(lines))
            over = bool(lines) and bool(lines[-1].get("over"))
            if over or time.monotonic() - looked > STATUS_POLL:
                looked = time.monotonic()
                result = self._ride_out(lambda: self._status(job["ansible_job_id"], task_vars))
                if result.get("finished") or result.get("failed"):
                    # by a shell: a module would cost a start of Python there
                    self._ride_out(lambda: self._low_level_execute_command(f"rm -f {shlex.quote(job['results_file'])}", sudoable=True))
                    return result

    def _lines(self, path: str, run_id: str) -> list[dict[str, Any]]:
        done = self._low_level_execute_command(f"cat {shlex.quote(path)} 2>/dev/null || true", sudoable=True)
        events = []
        for line in str(done.get("stdout", "")).splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # half a line: it is whole at the next look
            if event.get("run") == run_id:
                events.append(event)
        return events

    def _status(self, job: str, task_vars: Any) -> dict[str, Any]:
        args = {
            "jid": job,
            "mode": "status",
            "_async_dir": self._remote_expand_user(self.get_shell_option("async_dir", "~/.ansible_async")),
        }
        result = self._execute_module(module_name="ansible.legacy.async_status", module_args=args, task_vars=task_vars)
        return {**result, "finished": bool(result.get("finished"))}

    def _ride_out(self, step: Any) -> Any:
        """Do a step; while the connection is away, try again. The module works on without us."""
        while True:
            try:
                result = step()
            except AnsibleConnectionFailure:
                self.away_since = self.away_since or time.monotonic()
                if time.monotonic() - self.away_since > self.lost_after:
                    raise
                display.display(f"  {self.host}: connection lost, the restart goes on there; trying again")
                time.sleep(2)
                self._connection.reset()
                continue
            self.away_since = None
            return result

    def _show(self, event: dict[str, Any]) -> None:
        """A line for each phase that ended, and now and then one for a phase that takes long."""
        phase, seconds, detail = event.get("phase", ""), event.get("seconds", 0.0), event.get("detail", "")
        if event.get("over"):
            return
        if event.get("end"):
            display.display(f"  {self.host}: {phase:<9} {seconds:8.1f} s  {detail}")
        elif not event.get("begin") and detail and (self.told[0] != phase or seconds - self.told[1] >= NOTE_EVERY):
            expected = event.get("expected")
            of = f" of about {expected:.0f}" if expected else ""
            display.display(f"  {self.host}: {phase:<9} {seconds:8.1f}{of} s  {detail}")
            self.told = (phase, seconds)
