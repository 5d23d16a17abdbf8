"""The file of one fleet-wide change on the controller, deploy.json: its plan, what became of each host, and when.

Tasks of several hosts write it at once, so each change is made under a lock, and the file is replaced whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import rollout
from .results import write_text

FILE = "deploy.json"
LOCK = "run.lock"


def begin(folder: str | Path, plan: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the plan; `about` says what, who and which configuration. `began` and `ended` are in UTC, `seconds` from the plan on."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    state = {"schema": 1, **about, "began": _now(), "began_at": time.time(), "ended": None, "stopped": "", "times": [], **plan}
    with _alone(place):
        _write(place, state)
    return state


def load(folder: str | Path) -> dict[str, Any]:
    return dict(json.loads((Path(folder) / FILE).read_text()))


def next_batch(folder: str | Path, hosts: Sequence[str], router: Mapping[str, Any] | None = None) -> str:
    """Begin the batch of these hosts, or return why it may not begin, and then the change is stopped."""
    with _changed(folder) as state:
        why = str(state["stopped"] or rollout.gate(state, hosts, router))
        if why:
            state["stopped"] = state["stopped"] or why
            return why
        for name in hosts:
            state["hosts"][name]["began_at"] = time.time()
        state["times"].append({"hosts": list(hosts), "began_at": time.time(), "ended_at": None})
        return ""


def note(folder: str | Path, hosts: Iterable[str], outcome: str, detail: str) -> None:
    """What became of hosts of the batch that is worked on; a host that failed stops the change."""
    if outcome not in rollout.OUTCOMES:
        raise ValueError(f"{outcome!r} is none of {', '.join(rollout.OUTCOMES)}")
    with _changed(folder) as state:
        for name in hosts:
            one = state["hosts"][name]
            one.update(outcome=outcome, detail=detail, seconds=round(time.time() - one.get("began_at", state["began_at"]), 3))
            if outcome != rollout.DEPLOYED:
                why = "could not be taken" if outcome == rollout.UNTOUCHED else f"is {outcome}"
                state["stopped"] = state["stopped"] or f"{name} {why}"
        if state["times"] and outcome != rollout.UNTOUCHED:
            state["times"][-1]["ended_at"] = time.time()


def end(folder: str | Path, unreachable: Mapping[str, str]) -> dict[str, Any]:
    """Close the file: hosts that Ansible lost, and those whose turn began and never ended, are lost. Returns the whole."""
    with _changed(folder) as state:
        for name, one in state["hosts"].items():
            if one["outcome"] != rollout.UNTOUCHED:
                continue
            if name in unreachable and one["reason"]:
                one.update(outcome=rollout.LOST, detail=unreachable[name])
            elif "began_at" in one:
                one.update(outcome=rollout.LOST, detail="its turn was cut off; nobody knows what it runs")
            elif one["reason"]:
                one["detail"] = one["detail"] or f"not reached, since {state['stopped'] or 'the run was cut off'}"
        state["ended"], state["ended_at"] = _now(), time.time()
        return state


@contextlib.contextmanager
def _changed(folder: str | Path) -> Iterator[dict[str, Any]]:
    place = Path(folder)
    with _alone(place):
        state = load(place)
        yield state
        _write(place, state)


def _write(place: Path, state: Mapping[str, Any]) -> None:
    write_text(place / FILE, json.dumps(state, indent=1, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    with (place / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
