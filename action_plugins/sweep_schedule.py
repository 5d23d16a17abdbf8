"""Deal the points of a sweep out. The state lies on the controller, so it works there, without a process of its own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree import run_lock, schedule, study  # noqa: E402
from ddtree.asked import PointError  # noqa: E402
from ddtree.plan import point_seconds  # noqa: E402
from ddtree.results import ResultError, merge, put_aside, read, redact  # noqa: E402

display = Display()

ORPHANS = 1800.0  # seconds that the tasks of a run that was killed may take to end; a cell or a load is the longest
SPEC: dict[str, dict[str, Any]] = {
    "dir": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["begun", "claimed", "weighed", "ended"], "required": True},
    "run": {"type": "str", "default": ""},
    "share": {"type": "str", "choices": ["replicate", "split", "tune"], "default": "replicate"},
    "anchor": {"type": "str", "default": ""},
    "hosts": {"type": "dict", "default": {}},
    "controls": {"type": "list", "elements": "str", "default": []},
    "matrix": {"type": "dict", "default": {}},
    "tune": {"type": "dict", "default": {}},
    "runs": {"type": "list", "elements": "dict", "default": []},
    "release": {"type": "str", "default": ""},
    "environment": {"type": "dict", "default": {}},
    "status": {"type": "str", "choices": ["ok", "failed"], "default": "ok"},
    "failure": {"type": "dict", "default": {}},
    "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
}


class ActionModule(ActionBase):
    """See library/sweep_schedule.py for the options."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(argument_spec=SPEC)
        if self._task.check_mode:
            return {"changed": False, "skipped": True}
        asked = json.loads(json.dumps(given))  # Ansible's tagged values as plain ones
        host = str((task_vars or {}).get("inventory_hostname", ""))
        try:
            return {"changed": False, **globals()[asked["state"]](asked, host)}
        except (schedule.ScheduleError, study.StudyError, PointError, ResultError, OSError) as error:
            raise AnsibleActionFail(redact(str(error), asked["secrets"])) from None


def begun(asked: Mapping[str, Any], _: str) -> dict[str, Any]:
    """Open the sweep, once nothing of an earlier run is at work on it."""
    folder = Path(asked["dir"])
    folder.mkdir(parents=True, exist_ok=True)
    alone(folder)
    hosts = {name: _host(one) for name, one in asked["hosts"].items()}
    state = schedule.begin(
        folder, asked["share"], hosts, asked["matrix"], anchor=asked["anchor"], controls=asked["controls"], pid=os.getppid()
    )
    if asked["share"] == "tune":
        with schedule.locked(folder) as open_state:
            runs = [run for one in asked["hosts"].values() for run in one.get("runs") or []]
            study.begin(
                folder, runs, asked["controls"], {"origin": str(ROOT / "sweeps" / "baseline-origin.json"), **asked["tune"]}, open_state
            )
    for host in state["hosts"].values():
        for note in host["notes"]:
            display.warning(note)
    return {"run": state["run"]["id"], "anchor": state["anchor"], "dir": str(folder), "hosts": {name: {"left": schedule.left(state, name),
            "of": len(one["runs"]), "seconds": one["seconds"]} for name, one in state["hosts"].items()}}  # fmt: skip


def claimed(asked: Mapping[str, Any], host: str) -> dict[str, Any]:
    """The host's next point, its record begun."""
    tuned = schedule.load(asked["dir"]).get("share") == "tune"
    found = schedule.claim(asked["dir"], host, asked["run"], dealer=study.deal if tuned else None)
    if not found["name"]:
        return {"point": {}, "path": "", "why": found["why"]}
    run = next(one for one in asked["runs"] if one["point"]["name"] == found["name"])
    path = Path(asked["dir"]) / host / f"{found.get('run') or found['name']}.json"
    if path.exists() and schedule.reusable(read(path), run["launch"]["config_id"], asked["release"], asked["matrix"]):
        put_aside(path)
    section = {
        "sweep": Path(asked["dir"]).name, "host": host, "point": run["point"], "aliases": run["aliases"],
        "config_id": run["launch"]["config_id"], "status": None, "started": _now(), "finished": None, "failure": None,
        "environment": asked["environment"], "release": asked["release"], "matrix": asked["matrix"],
    }  # fmt: skip
    if tuned:
        section["tune"] = {"stage": found["stage"], "why": found["why"], "cut": ""}
    merge(path, section, asked["secrets"])
    return {"again": False, "tuned": tuned, **found, "point": run, "path": str(path)}


def weighed(asked: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Which cells of the host's start to measure next, if any; the record says where it was cut off, and why."""
    folder = Path(asked["dir"])
    with schedule.locked(folder) as state:
        run = str(state["hosts"][host]["now"])
        path = folder / host / f"{run}.json"
        found = study.weigh(folder, run, host, read(path))
    if found["cut"]:
        merge(path, {"tune": {**(read(path).get("tune") or {}), "cut": found["cut"]}}, asked["secrets"])
    return found


def ended(asked: Mapping[str, Any], host: str) -> dict[str, Any]:
    """The end of the host's point. One that was cut off by a stop of the sweep stays unfinished, to be gone on with."""
    state, failure = schedule.load(asked["dir"]), asked["failure"]
    name = str(state["hosts"][host]["now"])
    path = Path(asked["dir"]) / host / f"{name}.json"
    status = "interrupted" if failure.get("cause") == "interrupted" else asked["status"]
    said = {
        "phase": str(failure.get("phase") or "measure"), "cause": str(failure.get("cause") or "measurement_failed"),
        "message": str(failure.get("msg") or "the task failed without a message"), "log_tail": list(failure.get("log_tail") or []),
        "remedy": failure.get("remedy"), "evidence": failure.get("evidence"),
    }  # fmt: skip
    said["cause"] = schedule.cause_of(said)
    if status != "interrupted":
        section: dict[str, Any] = {"status": status, "finished": _now(), "failure": said if status == "failed" else None}
        if failure.get("phases"):
            took = round(sum(float(one.get("seconds") or 0) for one in failure["phases"]), 3)
            section["restart"] = {"changed": True, "seconds": took, "phases": failure["phases"]}
        merge(path, section, asked["secrets"])
    why = schedule.ended(asked["dir"], host, asked["run"], status, said["cause"])
    if why and status != "interrupted":
        display.warning(why)
    return {"why": why, "interrupted": status == "interrupted", "name": name, "status": status,
            "failure": redact(said, asked["secrets"]) if status == "failed" else {}}  # fmt: skip


def _host(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the schedule needs of a host's facts."""
    found = given.get("runs") or []
    runs = [{"name": one["point"]["name"], "aliases": one["aliases"], "config_id": one["launch"]["config_id"]} for one in found]
    return {"runs": runs, "release": given.get("release"), "loaded": given.get("loaded"),
            "seconds": point_seconds(given.get("expected") or {})}  # fmt: skip


def alone(folder: Path) -> None:
    """Return once no process of another run holds the sweep. Raises ScheduleError while that run's own process lives."""
    try:
        run_lock.wait(folder / schedule.RUN, ORPHANS, lambda pid: display.display(run_lock.waiting(pid)))
    except run_lock.HeldError as held:
        if held.alive:
            raise schedule.ScheduleError(
                f"sweep {folder.name} is being run by process {held.pid}: wait for it, or stop it with Ctrl-C"
            ) from None
        raise schedule.ScheduleError(f"a task of the run {held.pid} of sweep {folder.name}, which was killed, does not end") from None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
