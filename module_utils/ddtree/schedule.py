"""Which host measures which point next: one file per sweep, `sweep.json`, changed under a lock and replaced in one step.

A claim says that a host is at work on a point. Claims end with an outcome; those of a run that died, and of a host that was lost,
are taken back. A point is known by its names: its own and those of the points that the engine makes the same of, which may differ
from host to host.

    {schema, sweep, share: replicate|split, anchor: name|"", controls: [names], matrix: {}, stop: ""|sentence,
     run: {id, pid, began}, hosts: {host: {release, loaded, runs: [{name, aliases, config_id}], done: {name: ok|failed|unfit},
     now: name|"", lost: bool, stopped: ""|sentence, in_a_row: [cause], seconds: expected of a point or null,
     notes: [sentence]}}}
A point that is `unfit` failed for a reason of its host alone; in a split sweep another host may have it. In a sweep that is tuned a dealer
(`study.deal`) chooses among the runs, and a name may have @2 behind it for its second start on a host.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import results, run_lock

SHARES = ("replicate", "split", "tune")
FINALLY = ("best", "previous", "stop")
FILE, LOCK, RUN, EVENTS = "sweep.json", ".sweep.lock", ".sweep.run", "events.jsonl"
# Causes that no other point cures; two in a row end this host's sweep.
OF_THE_HOST = ("no_gpu", "foreign_vram", "disk_full")
IN_A_ROW = 2
AGAIN = "@"
POLL = 0.5  # seconds between looks while the last points are at work on other hosts
_DISK_FULL = ("no space left on device", "errno 28", "disk quota exceeded")


class ScheduleError(RuntimeError):
    """The sweep cannot go on; the message is one sentence."""


def begin(folder: str | Path, share: str, hosts: Mapping[str, Mapping[str, Any]], matrix: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Open the sweep for a new run of the controller and return its state.

    `hosts` maps each host that takes part to {runs: [{name, aliases, config_id}], release, loaded, seconds}. What is measured already
    is found in the result files: those of this configuration, release and matrix. An earlier run's claims are void.
    `more` are anchor, controls and pid. Raises ScheduleError where another run is at work.
    """
    if share not in SHARES:
        raise ScheduleError(f"sweep_share is {share!r}, {' or '.join(SHARES[:2])} is wanted")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with locked(target) as state:
        state.clear()
        state.update(
            schema=1, sweep=target.resolve().name, share=share, stop="", matrix=dict(matrix), controls=list(more.get("controls") or []),
            run={"id": os.urandom(4).hex(), "pid": int(more.get("pid") or 0), "began": _now()}, hosts={},
        )  # fmt: skip
        for name, given in hosts.items():
            state["hosts"][name] = {
                "release": str(given.get("release") or ""), "loaded": str(given.get("loaded") or ""), "runs": list(given["runs"]),
                "done": {}, "now": "", "lost": False, "stopped": "", "in_a_row": [], "seconds": given.get("seconds"),
                "notes": [],
            }  # fmt: skip
            if share != "tune":
                _find_done(target, state, name)
        state["anchor"] = _anchor(state, str(more.get("anchor") or ""))
        return json.loads(json.dumps(state))


Dealer = Callable[[Path, Mapping[str, Any], str], Mapping[str, Any]]


def claim(folder: str | Path, host: str, run: str, wait: float = float("inf"), dealer: Dealer | None = None) -> dict[str, Any]:
    """The next point for this host: {name, index, of, anchor}, or {name: "", why: sentence}. A `dealer` chooses in its own order and
    adds what it has to say: {run, why, wait, ...}.

    While nothing is free but other hosts are still at work, it waits: their points come back if they are lost. Raises ScheduleError
    where another run has taken the sweep over, and where the run itself was killed: then no host's point ever ends.
    """
    end = time.monotonic() + wait
    asked_at: Any = None
    while True:
        with locked(Path(folder)) as state:
            mine = _mine(state, host, run)
            if (pid := state["run"]["pid"]) and not run_lock.lives(pid):
                raise ScheduleError(f"the run of this sweep, process {pid}, was killed")
            over = str(state["stop"] or mine["stopped"])
            at_work = [(name, one["now"], one["lost"]) for name, one in state["hosts"].items()]
            if dealer and not over and at_work != asked_at:
                dealt, asked_at = dealer(Path(folder), state, host), at_work
                if dealt["name"]:
                    mine["now"] = str(dealt["run"])
                    return {"index": dealt["told"]["starts"], "of": 0, "anchor": False, **dealt}
                if not dealt["wait"]:
                    return {"name": "", "why": str(dealt["why"])}
            name = "" if over or dealer else _next(state, host)
            if name:
                mine["now"] = name
                return {"name": name, **_place(state, host), "anchor": name == state["anchor"], "why": ""}
            busy = [] if over else _at_work(state, host)
        if not busy or time.monotonic() > end:
            return {"name": "", "why": over or (f"waiting for {', '.join(busy)}" if busy else "every point is measured")}
        time.sleep(POLL)


def ended(folder: str | Path, host: str, run: str, status: str, cause: str = "") -> str:
    """Note how the host's point ended; `interrupted` gives it back. The sentence with which this host's sweep stops, or ''."""
    with locked(Path(folder)) as state:
        mine = _mine(state, host, run)
        name, mine["now"] = mine["now"], ""
        if status == "interrupted":
            return str(state["stop"] or mine["stopped"])
        unfit = status == "failed" and cause in OF_THE_HOST
        mine["done"][name] = "unfit" if unfit else status
        point = name.partition(AGAIN)[0]
        mine["loaded"] = "" if status == "failed" else next(one["config_id"] for one in mine["runs"] if one["name"] == point)
        mine["in_a_row"] = [*mine["in_a_row"], cause] if unfit else []
        if len(mine["in_a_row"]) >= IN_A_ROW:
            causes = " and ".join(dict.fromkeys(mine["in_a_row"]))
            mine["stopped"] = (
                f"{host} measures nothing more: its last {IN_A_ROW} points ended with {causes}, which no other point cures; "
                "see to the host, then run the same command"
            )
        return str(mine["stopped"])


def lose(folder: str | Path, host: str) -> str:
    """Take back what a host that cannot be reached was at; the point's name, or ''."""
    with locked(Path(folder)) as state:
        mine = state.get("hosts", {}).get(host)
        if not mine:
            return ""
        name, mine["now"], mine["lost"] = str(mine["now"]), "", True
        return name


def stop(folder: str | Path, sentence: str) -> None:
    """No host takes another point in this run."""
    with locked(Path(folder)) as state:
        state["stop"] = sentence


def stopping(folder: str | Path) -> str:
    """The sentence with which the sweep stops, or ''."""
    return str(load(folder).get("stop") or "")


def load(folder: str | Path) -> dict[str, Any]:
    """The state, {} where there is none. Raises ScheduleError for a file that is none."""
    path = Path(folder) / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ScheduleError(f"{path} is no complete JSON ({error}): delete it, the results stay") from None
    return dict(found) if isinstance(found, dict) else {}


def cause_of(failure: Mapping[str, Any]) -> str:
    """The cause in one word; a full disk is recognised by what the system calls it, whatever failed of it."""
    text = " ".join([str(failure.get("message") or ""), *(str(one) for one in (failure.get("log_tail") or [])[-20:])]).lower()
    return "disk_full" if any(one in text for one in _DISK_FULL) else str(failure.get("cause") or "")


def reusable(record: Mapping[str, Any], config_id: str, release: str, matrix: Mapping[str, Any]) -> str:
    """'' when a stored result is of this very configuration, release and matrix, else what differs. What a record does not tell is
    taken to agree.
    """
    if record.get("config_id") and record["config_id"] != config_id:
        return f"configuration {record['config_id']}, now {config_id}"
    if record.get("release") and release and record["release"] != release:
        return f"engine release {record['release']}, now {release}"
    stored = record.get("matrix") or {}
    keys = [key for key in stored if key in matrix and stored[key] != matrix[key]]
    return f"benchmark_{keys[0]} {stored[keys[0]]}, now {matrix[keys[0]]}" if keys else ""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[dict[str, Any]]:
    """The state, to be changed inside; written when the block ends without an error. The lock goes with its process."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        state = load(folder)
        before = json.dumps(state, sort_keys=True)
        yield state
        if json.dumps(state, sort_keys=True) != before:
            results.write_text(folder / FILE, json.dumps(state, indent=1, ensure_ascii=False) + "\n")
    finally:
        os.close(handle)


# -- parts


def _find_done(folder: Path, state: dict[str, Any], host: str) -> None:
    """Fill the host's done from its result files; a result of something else is told and counts for nothing."""
    mine = state["hosts"][host]
    for run in mine["runs"]:
        path = folder / host / f"{run['name']}.json"
        if not path.exists():
            continue
        try:
            record = results.read(path)
        except results.ResultError as error:
            raise ScheduleError(str(error)) from None
        other = reusable(record, run["config_id"], mine["release"], state["matrix"])
        if other:
            mine["notes"].append(f"{run['name']} was measured with {other}: it is measured again, the old result is put aside")
        elif record.get("status") == "ok":
            mine["done"][run["name"]] = "ok"


def _anchor(state: Mapping[str, Any], asked: str) -> str:
    """The point that each host measures when a sweep is split: as asked, else what most hosts have loaded, else the first."""
    if state["share"] != "split" or len(state["hosts"]) < 2 or asked == "none":
        return ""
    runs = [run for mine in state["hosts"].values() for run in mine["runs"]]
    if asked:
        for run in runs:
            if asked in (run["name"], *run["aliases"]):
                return str(run["name"])
        raise ScheduleError(
            f"sweep_anchor is {asked}, which is none of the points: {', '.join(dict.fromkeys(run['name'] for run in runs))}"
        )
    loaded: dict[str, int] = {}
    for mine in state["hosts"].values():
        for run in mine["runs"]:
            if mine["loaded"] and run["config_id"] == mine["loaded"]:
                loaded[run["name"]] = loaded.get(run["name"], 0) + 1
    return max(loaded, key=lambda name: loaded[name]) if loaded else str(runs[0]["name"])


def _mine(state: dict[str, Any], host: str, run: str) -> dict[str, Any]:
    if (state.get("run") or {}).get("id") != run:
        raise ScheduleError("another run of this sweep has begun since, and only one can go on")
    if host not in state["hosts"]:
        raise ScheduleError(f"{host} takes no part in this sweep: {', '.join(state['hosts']) or 'no host'} do")
    found: dict[str, Any] = state["hosts"][host]
    return found


def _names(run: Mapping[str, Any]) -> set[str]:
    return {str(run["name"]), *(str(one) for one in run["aliases"])}


def _next(state: Mapping[str, Any], host: str) -> str:
    """What is loaded goes first, then the anchor, then the order asked; what another host has loaded is left to it if there is a choice."""
    mine = state["hosts"][host]
    others = [one for name, one in state["hosts"].items() if name != host] if state["share"] == "split" else []
    taken = _names_of(mine, mine["done"])
    for other in others:
        taken |= _names_of(other, [name for name, status in other["done"].items() if status != "unfit"])
        taken |= _names_of(other, [other["now"]] if other["now"] and not other["lost"] else [])
    free = [run for run in mine["runs"] if not _names(run) & taken]
    anchor = [run for run in mine["runs"] if run["name"] == state["anchor"] and run["name"] not in mine["done"] and run not in free]
    if anchor and (free or "ok" in mine["done"].values()):  # a host that measures nothing else needs no anchor
        free += anchor
    elsewhere: set[str] = set()
    for other in others:
        if other["loaded"] and not other["lost"] and not other["stopped"]:
            elsewhere |= _names_of(other, [run["name"] for run in other["runs"] if run["config_id"] == other["loaded"]])

    def order(run: Mapping[str, Any]) -> tuple[bool, bool, bool]:
        loaded = bool(mine["loaded"]) and run["config_id"] == mine["loaded"]
        return not loaded, run["name"] != state["anchor"], bool(_names(run) & elsewhere)

    return str(min(free, key=order)["name"]) if free else ""


def _names_of(host: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    wanted = set(names)
    return {one for run in host["runs"] if run["name"] in wanted for one in _names(run)}


def _at_work(state: Mapping[str, Any], host: str) -> list[str]:
    """Hosts whose claims may come back to this one."""
    if state["share"] == "replicate":
        return []
    return [name for name, one in state["hosts"].items() if name != host and one["now"] and not one["lost"]]


def _place(state: Mapping[str, Any], host: str) -> dict[str, Any]:
    """{index, of}: the how manieth point this is, over the hosts that share the work."""
    split = state["share"] == "split"
    hosts: Sequence[Mapping[str, Any]] = list(state["hosts"].values()) if split else [state["hosts"][host]]
    names = _distinct(run for one in hosts for run in one["runs"])
    begun = {name for one in hosts for name in [*one["done"], *([one["now"]] if one["now"] else [])]}
    return {"index": len(begun & names), "of": len(names)}


def _distinct(runs: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(run["name"]) for run in runs}


def left(state: Mapping[str, Any], host: str) -> int:
    """How many points this host has still to expect, its own in work included: its share of what nobody has done."""
    hosts = [one for one in state["hosts"].values() if not one["lost"] and not one["stopped"]]
    mine = state["hosts"][host]
    if state["share"] != "split":
        return len(_distinct(mine["runs"]) - set(mine["done"]))
    done = {name for one in state["hosts"].values() for name in one["done"]}
    open_points = len(_distinct(run for one in hosts for run in one["runs"]) - done)
    return -(-open_points // max(len(hosts), 1))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
