"""A sweep's plan before anything starts: its points, what collapses, what is done, and how long it will take from earlier starts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import results
from .asked import PointError
from .live import duration

# Result files of earlier sweeps that are read for a guess, newest first.
MOST_FILES = 60


def expected(folder: str | Path, host: str) -> dict[str, float | None]:
    """{load, measure}: seconds of a restart and of measuring one point on this host, medians over the newest results of all sweeps
    under `folder`; None where nothing tells.
    """
    root = Path(folder)
    files = sorted((path for path in root.glob(f"*/{host}/*.json") if not path.parent.parent.is_symlink()), key=_age, reverse=True)
    loads, measures = [], []
    for path in files[:MOST_FILES]:
        try:
            record = results.read(path)
        except (results.ResultError, OSError):
            continue
        restart = record.get("restart") or {}
        if restart.get("changed") and restart.get("seconds"):
            loads.append(float(restart["seconds"]))
        took = results.seconds_between(record.get("started"), record.get("finished"))
        if record.get("status") == "ok" and took is not None:
            measures.append(max(took - float(restart.get("seconds") or 0), 0.0))
    return {"load": statistics.median(loads) if loads else None, "measure": statistics.median(measures) if measures else None}


def point_seconds(guess: Mapping[str, float | None]) -> float | None:
    """Of one point with its restart; None where a part is unknown."""
    load, measure = guess.get("load"), guess.get("measure")
    return None if load is None or measure is None else load + measure


def lines(hosts: Mapping[str, Mapping[str, Any]], share: str, controls: Iterable[str], leave: str) -> list[str]:
    """The plan in lines. `hosts` maps each to {runs: [{point: {name}, aliases, launch: {warnings}, done}], expected: {load, measure}}."""
    names = {host: tuple(run["point"]["name"] for run in one["runs"]) for host, one in hosts.items()}
    told = []
    for group in _groups(names):
        runs = hosts[group[0]]["runs"]
        open_runs = [run for run in runs if not all(_done(hosts[host], run) for host in group)]
        if len(_groups(names)) > 1:
            told.append(f"{', '.join(group)}:")
        told.append(f"{_count(len(runs), 'engine configuration')}, {len(open_runs)} to measure")
        told += [f"  {_run_line(run, hosts, group, set(controls))}" for run in runs]
        notes = dict.fromkeys(note for run in runs for note in run["launch"]["warnings"])
        told += [f"  note: {note}" for note in notes]
    told.append(_share_line(hosts, share))
    told.append(_time_line(hosts, share))
    ends = {"best": "serves the best point", "previous": "serves what it ran before", "stop": "is stopped"}
    told.append(f"at the end each host {ends[leave]}")
    return told


def tune_lines(hosts: Mapping[str, Mapping[str, Any]], asked: Mapping[str, Any], controls: Iterable[str], leave: str) -> list[str]:
    """The plan of a tuning in lines; `asked` as for `study.begin`. Raises PointError for settings that cannot be, in one sentence."""
    from .tune_goal import Goal
    from .tune_space import Space

    goal = Goal.read(asked["objective"], asked["contexts"], asked["concurrencies"], asked.get("concurrency") or 0, asked.get("latency"))
    minutes = _amount("tune_minutes", asked["minutes"], 1)
    most = _amount("tune_starts", asked.get("starts") or 0, 0)
    space = Space.of(list({run["point"]["name"]: run for one in hosts.values() for run in one["runs"]}.values()), controls)
    if len(space.free) < 2:
        raise PointError(
            f"{len(space.free)} engine configuration is asked, and tuning chooses among several: give lists, or -e @sweeps/tune.yml"
        )
    ends = {"best": "serves the best point", "previous": "serves what it ran before", "stop": "is stopped"}
    bounds = [f"p99 {name.partition('_')[0].upper()} at most {most:g} ms" for name, most in goal.bounds.items()]
    axes = [f"{axis} {' '.join('none' if one is None else str(one) for one in values)}" for axis, values in space.axes.items()]
    return [
        f"{_count(len(space.free), 'engine configuration')}: {'; '.join(axes)}",
        *(f"  {one.name} (control)" for one in space.candidates if one.control),
        f"for {words_of(goal)}" + (f", {' and '.join(bounds)}" if bounds else "") + ", coding not below the point without speculation",
        f"screened by {_count(len(goal.screen), 'cell')} of {len(goal.cells)}; finalists have all of them, the winner in two starts",
        f"on {', '.join(hosts)}, for {minutes:g} minutes" + (f" or {most:g} starts" if most else ""),
        f"at the end each host {ends[leave]}",
    ]


def words_of(goal: Any) -> str:
    """The goal in words."""
    if goal.pareto:
        return f"the front of single-user speed and aggregate throughput at concurrency {goal.level}"
    named = [(f"aggregate at concurrency {goal.level}" if name == "aggregate" else name, weight) for name, weight in goal.weights.items()]
    return named[0][0] if len(named) == 1 else " and ".join(f"{name} ({weight:g})" for name, weight in named)


def _amount(name: str, value: Any, least: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not least <= number < float("inf"):
        raise PointError(f"{name} is {value!r}: a number of at least {least} is wanted")
    return number


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _groups(names: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Hosts with the same points together."""
    found: dict[tuple[str, ...], list[str]] = {}
    for host, one in names.items():
        found.setdefault(one, []).append(host)
    return list(found.values())


def _done(host: Mapping[str, Any], run: Mapping[str, Any]) -> bool:
    return any(one["done"] for one in host["runs"] if one["point"]["name"] == run["point"]["name"])


def _run_line(run: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]], group: Sequence[str], controls: set[str]) -> str:
    name = run["point"]["name"]
    done = [host for host in group if _done(hosts[host], run)]
    words = [name + (" (control)" if name in controls else "")]
    words += [f"the same engine as {', '.join(run['aliases'])}"] if run["aliases"] else []
    if done:
        words.append("has its result already" if len(done) == len(group) else f"has its result already on {', '.join(done)}")
    return ", ".join(words)


def _share_line(hosts: Mapping[str, Mapping[str, Any]], share: str) -> str:
    if len(hosts) == 1:
        return f"on {next(iter(hosts))}"
    if share == "split":
        return f"dealt out over {len(hosts)} hosts ({', '.join(hosts)}), each of which also measures the anchor point"
    return f"each on {len(hosts)} hosts ({', '.join(hosts)})"


def _time_line(hosts: Mapping[str, Mapping[str, Any]], share: str) -> str:
    """A split sweep ends with the fleet, a replicated one with its slowest host."""
    totals, counts = [], []
    for one in hosts.values():
        seconds = point_seconds(one.get("expected") or {})
        count = sum(not run["done"] for run in one["runs"])
        counts.append(count)
        if seconds is None:
            return "expected wall time: unknown, for no earlier start on every host tells"
        totals.append((seconds, count))
    if share == "split" and len(hosts) > 1:
        speed = sum(1 / seconds for seconds, _ in totals if seconds)
        wall = max(counts) / speed if speed else 0.0
    else:
        wall = max(seconds * count for seconds, count in totals)
    load = max(float((one.get("expected") or {}).get("load") or 0) for one in hosts.values())
    return f"expected wall time: about {duration(wall)}, from earlier starts here (a restart takes {duration(load)})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
