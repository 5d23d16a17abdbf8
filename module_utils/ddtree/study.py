"""A tuning's study on the controller: Optuna's journal of what was asked and told, and `tune.json` with what the report needs.

Result files are the truth of what a start measured; a trial is told from them when its host comes for the next one. So a run that
was killed, a host that was lost and a start that was interrupted need nothing of their own: a trial without a result is given back or lost.
Everything here happens under the sweep's lock (`schedule.locked`), which is why the journal has none.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from . import results, schedule
from .schedule import AGAIN
from .tune_goal import Goal
from .tune_space import Candidate, Space, Trial
from .tuning import Settings, Tuner

FILE, JOURNAL = "tune.json", "study.journal"
MOST_FILES = 400  # result files of earlier sweeps that are read, newest first
# Not the configuration's fault: it may be asked again, but not for ever.
OF_THE_MOMENT = ("busy", "host_lost", "foreign_vram", "no_gpu", "disk_full", "port_in_use", "old_instance", "stop_timeout", "interrupted",
                 "vram_not_released")  # fmt: skip
PATIENCE = 2
_KEPT = ("context", "concurrency", "output_tok_s", "user_tok_s", "ci95", "ttft_ms", "tpot_ms", "accept_length", "errors")
_FREE = ("contexts", "concurrencies", "rates", "coding", "coding_tasks")  # of the matrix: cells are compared one by one


class StudyError(RuntimeError):
    """The study cannot be used; the message is one sentence."""


def begin(
    folder: Path, runs: Sequence[Mapping[str, Any]], controls: Iterable[str], asked: Mapping[str, Any], state: Mapping[str, Any]
) -> None:
    """Write what the study is about; time that an earlier run of it took stays spent. `runs` are those of all hosts, `asked` the
    settings: objective, contexts, concurrencies, concurrency, latency, minutes, starts, origin.
    """
    space, now = Space.of(_distinct(runs), controls), time.time()
    _alike(state)
    asked = {**asked, "origin": origin(Path(str(asked.get("origin") or "")), asked, space)}
    old = load(folder)
    spent = float(old.get("spent") or 0) + max(float(old.get("last") or 0) - float(old.get("began") or 0), 0.0)
    document: dict[str, Any] = {
        "schema": 1, "asked": dict(asked), "spent": round(spent, 3), "began": now, "last": now, "ended": "",
        "space": [{"name": one.name, "point": dict(one.point), "axes": dict(one.axes), "aliases": list(one.aliases), "control": one.control}
                  for one in space.candidates],
    }  # fmt: skip
    trials = _trials(_open(folder, document))
    document["trials"] = [asdict(one) for one in trials]
    document["earlier"] = [asdict(one) for one in earlier(folder, space, state, {(one.host, one.run) for one in trials})]
    write(folder, document)


def origin(path: Path, asked: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """The axes of the point that a baseline file calls best for this goal; {} where it tells nothing."""
    goal = settings_of({**asked, "minutes": 0}).goal
    try:
        records = json.loads(path.read_text(encoding="utf-8"))["records"]
    except (OSError, ValueError, KeyError):
        return {}
    scored = []
    for record in records:
        among = [cell for cell in goal.asked if any(results.cell_key(one) == cell for one in record.get("cells") or [])]
        value = goal.value(record.get("cells") or [], among)
        if value is not None:
            scored.append((value, record["point"]))
    if not scored:
        return {}
    point = max(scored, key=lambda one: one[0])[1]
    at = space.find(str(point.get("name")))
    axes = space.candidates[at].axes if at >= 0 else {key: point[key] for key in ("budget", "topk", "window", "tp") if key in point}
    return {axis: value for axis, value in axes.items() if axis in space.axes}


def load(folder: Path) -> dict[str, Any]:
    """The document, {} where there is none. Raises StudyError for a file that is none."""
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise StudyError(f"{path} is no complete JSON ({error}): delete it, the results and the journal stay") from None
    return dict(found)


def write(folder: Path, document: Mapping[str, Any]) -> None:
    results.write_text(folder / FILE, json.dumps(results.plain(document), indent=1, ensure_ascii=False) + "\n")


def settings_of(asked: Mapping[str, Any]) -> Settings:
    goal = Goal.read(asked["objective"], asked["contexts"], asked["concurrencies"], asked.get("concurrency") or 0, asked.get("latency"))
    return Settings(goal, float(asked["minutes"]), int(asked.get("starts") or 0), asked.get("origin") or None)


def space_of(document: Mapping[str, Any]) -> Space:
    return Space([Candidate(one["name"], one["point"], one["axes"], tuple(one["aliases"]), one["control"]) for one in document["space"]])


def tuner_of(document: Mapping[str, Any]) -> Tuner:
    """All decisions and figures of the document."""
    trials = [_trial(one) for one in [*document["earlier"], *document["trials"]]]
    return Tuner(space_of(document), settings_of(document["asked"]), trials)


def spent_minutes(document: Mapping[str, Any]) -> float:
    """Wall clock of all runs of the study so far."""
    return (float(document["spent"]) + max(float(document["last"]) - float(document["began"]), 0.0)) / 60


def minutes_left(document: Mapping[str, Any], now: float) -> float:
    return float(document["asked"]["minutes"]) - (float(document["spent"]) + max(now - float(document["began"]), 0.0)) / 60


def deal(folder: Path, state: Mapping[str, Any], host: str) -> dict[str, Any]:
    """The next start of this host: {run: its result's name, name, stage, why, again, wait, number, told}. An empty name ends its part.

    What has ended since is told to the study first. `again`: the engine is to be started anew although it runs this configuration.
    """
    document = load(folder)
    document["last"] = time.time()
    study = _open(folder, document)
    for trial in _trials(study):
        if trial.state in ("running", "open"):
            _settle(study, folder, state, trial, document)
    document["trials"] = [asdict(one) for one in _trials(study)]
    tuner, mine = tuner_of(document), state["hosts"][host]
    loaded = next((run["name"] for run in mine["runs"] if mine["loaded"] and run["config_id"] == mine["loaded"]), "")
    able = sum(not one["lost"] and not one["stopped"] for one in state["hosts"].values())
    asked = tuner.ask(minutes_left(document, document["last"]), host, loaded, able)
    found: dict[str, Any] = {"name": asked.name, "stage": asked.stage, "why": asked.why, "wait": asked.wait, "run": "", "again": False}
    if asked.name:
        given_back = next((one for one in tuner.mine if one.state == "open" and one.name == asked.name), None)
        mine_before = [one for one in tuner.mine if one.name == asked.name and one.host == host and one.state not in ("lost", "open")]
        found["run"] = given_back.run if given_back and given_back.host == host else _run_name(asked.name, len(mine_before) + 1)
        found["again"] = bool(mine_before)
        number = given_back.number if given_back else None
        trial = Trial(asked.name, asked.stage, "running", host, why=asked.why, run=found["run"])
        found["number"] = _ask(study, tuner.space, trial, number)
    document["ended"] = "" if asked.name or asked.wait else asked.why
    document["trials"] = [asdict(one) for one in _trials(study)]
    write(folder, document)
    found["told"] = told(document)
    return found


def told(document: Mapping[str, Any]) -> dict[str, Any]:
    """For the live line: {starts, best, front, minutes_left}."""
    tuner = tuner_of(document)
    return {"starts": len(tuner.mine), "best": tuner.best(), "front": len(tuner.front()) if len(tuner.goal.screen) > 1 else 1,
            "minutes_left": max(minutes_left(document, float(document["last"])), 0.0)}  # fmt: skip


def weigh(folder: Path, run: str, host: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """How to go on with a start whose record has some cells: {cells: to measure next, not_now: what is left out until later, quick, last,
    cut: the sentence with which it ends here}.
    """
    tuner = tuner_of(load(folder))
    trial = next((one for one in reversed(tuner.mine) if one.run == run and one.host == host), None)
    if trial is None:
        raise StudyError(f"the study knows no start {run} on {host}: its journal was changed while the sweep ran")
    cells = [cell for cell in record.get("cells") or [] if cell.get("output_tok_s")]
    cut = tuner.weigh(trial.name, cells) if cells else ""
    have = {results.cell_key(one) for key in ("cells", "not_run") for one in record.get(key) or []}
    steps = tuner.stages(trial.stage)
    for at, step in enumerate(steps):
        last = trial.stage == "whole" and at == len(steps) - 1
        if not cut and (set(step) - have or last):
            later = {"cells": [_cell(one) for one in tuner.goal.cells if one not in step]}
            return {"cells": [_cell(one) for one in step], "last": last, "quick": trial.stage != "whole", "cut": "",
                    "not_now": later if last else {**later, "coding": True, "rates": True}}  # fmt: skip
    return {"cells": [], "last": False, "quick": False, "cut": cut, "not_now": {}}


def _cell(key: tuple[int, int]) -> dict[str, int]:
    return {"context": key[0], "concurrency": key[1]}


def earlier(folder: Path, space: Space, state: Mapping[str, Any], known: Container[tuple[str, str]] = ()) -> list[Trial]:
    """What results on these hosts tell of these very configurations, engine release and requests: of other sweeps, and of this one what is
    not `known` by (host, run), as when it was tuned for something else.
    """
    matrix = {key: value for key, value in (state.get("matrix") or {}).items() if key not in _FREE}
    found: list[Trial] = []
    for host, mine in state["hosts"].items():
        ids = {run["config_id"]: run["name"] for run in mine["runs"] if space.find(run["name"]) >= 0}
        paths = [path for path in folder.parent.glob(f"*/{host}/*.json") if not path.parent.parent.is_symlink()]
        for path in sorted(paths, key=lambda one: one.stat().st_mtime, reverse=True)[:MOST_FILES]:
            here = path.parent.parent.name == folder.name
            try:
                record = results.read(path)
            except (results.ResultError, OSError):
                continue
            name = ids.get(str(record.get("config_id")))
            other = schedule.reusable(record, str(record.get("config_id")), mine["release"], matrix)
            if not name or other or record.get("status") not in ("ok", "failed") or (here and (host, path.stem) in known):
                continue
            stage = str((record.get("tune") or {}).get("stage") or "screen") if here else "screen"
            trial = _from_record(Trial(name, stage, host=host, run=f"{path.parent.parent.name}/{path.stem}", earlier=True), record)
            if trial.state != "lost" and not any((one.name, one.host) == (name, host) for one in found):
                found.append(trial)
    return found


# -- parts


def _settle(study: Any, folder: Path, state: Mapping[str, Any], trial: Trial, document: Mapping[str, Any]) -> None:
    """Tell how a trial ended, if it did: from its result, else it is lost with its host, or open for whoever comes."""
    mine = state["hosts"].get(trial.host)
    if mine and mine["now"] == trial.run and not mine["lost"]:
        return
    path = folder / trial.host / f"{trial.run}.json"
    record: Mapping[str, Any] = results.read(path) if path.exists() else {}
    if record.get("status") in ("ok", "failed"):
        ended = _from_record(trial, record)
        lost_before = sum(one.name == trial.name and one.state == "lost" for one in _trials(study))
        if ended.state == "lost" and lost_before >= PATIENCE:
            ended.state = "failed"
        _tell(study, ended, settings_of(document["asked"]).goal)
    elif mine is None or mine["lost"]:
        trial.state, trial.why = "lost", f"{trial.host} was lost"
        _tell(study, trial, settings_of(document["asked"]).goal)
    elif trial.state != "open":
        trial.state = "open"
        _keep(study, trial)


def _from_record(trial: Trial, record: Mapping[str, Any]) -> Trial:
    tune, restart = record.get("tune") or {}, record.get("restart") or {}
    trial.cells = [{key: cell.get(key) for key in _KEPT} for cell in record.get("cells") or [] if cell.get("output_tok_s")]
    coding = record.get("coding") or {}
    trial.coding = coding["passed"] / coding["total"] if coding.get("total") else None
    trial.minutes = (results.seconds_between(record.get("started"), record.get("finished")) or 0.0) / 60
    trial.load = float(restart.get("seconds") or 0) / 60 if restart.get("changed") else 0.0
    trial.state = "cut" if tune.get("cut") else "ok"
    if record.get("status") == "failed":
        trial.cause = str((record.get("failure") or {}).get("cause") or "unknown")
        trial.state = "lost" if trial.cause in OF_THE_MOMENT else "failed"
    trial.why = str(tune.get("cut") or trial.why)
    return trial


def _alike(state: Mapping[str, Any]) -> None:
    """Refuse hosts whose engines make different configurations of the points."""
    names = {host: {run["name"] for run in mine["runs"]} for host, mine in state["hosts"].items()}
    first = next(iter(names))
    for host, mine in names.items():
        if mine != names[first]:
            raise StudyError(
                f"{first} and {host} make different configurations of these points ({', '.join(sorted(mine ^ names[first])[:3])}): "
                "tune them apart with --limit"
            )


def _distinct(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return list({run["point"]["name"]: run for run in runs}.values())


def _run_name(name: str, start: int) -> str:
    return name if start == 1 else f"{name}{AGAIN}{start}"


def _trial(given: Mapping[str, Any]) -> Trial:
    known = {one.name for one in fields(Trial)}
    return Trial(**{key: value for key, value in given.items() if key in known})


class _Held:
    """The journal's lock: the sweep's own is held by whoever is here, and goes with its process, which a lock file would not."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _open(folder: Path, document: Mapping[str, Any]) -> Any:
    """The study in the folder's journal, one for each space and number of objectives."""
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise StudyError(f"tune.yml needs Optuna on the controller ({error}): make setup installs it") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = folder / JOURNAL
    _whole_lines(path)
    backend = JournalFileBackend(str(path), lock_obj=_Held())  # type: ignore[arg-type]
    pareto = settings_of(document["asked"]).goal.pareto
    names = json.dumps([[one["name"] for one in document["space"]], document["asked"]["objective"]])
    return optuna.create_study(
        study_name=f"tune-{hashlib.sha256(names.encode()).hexdigest()[:12]}", storage=optuna.storages.JournalStorage(backend),
        load_if_exists=True, directions=["maximize"] * (1 + pareto), sampler=optuna.samplers.RandomSampler(seed=0),
    )  # fmt: skip


def _whole_lines(path: Path) -> None:
    """Take off the line that a killed process left half written, which the next would be glued to."""
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        results.write_text(path, data[: data.rfind(b"\n") + 1])


def _trials(study: Any) -> list[Trial]:
    return [
        _trial({**one.user_attrs["trial"], "number": one.number}) for one in study.get_trials(deepcopy=False) if one.user_attrs.get("trial")
    ]


def _ask(study: Any, space: Space, trial: Trial, number: int | None) -> int:
    """A new trial of this configuration, or the one that is given back; its number."""
    import optuna

    if number is None:
        axes = {} if (candidate := space.candidates[space.find(trial.name)]).control else candidate.axes
        params = {axis: axes.get(axis) for axis in space.axes} if axes else {}
        study.enqueue_trial(params)
        found = study.ask({axis: optuna.distributions.CategoricalDistribution(space.axes[axis]) for axis in params})
        number = found.number
    trial.number = number
    _keep(study, trial)
    return int(number)


def _keep(study: Any, trial: Trial) -> None:
    frozen = study.get_trials(deepcopy=False)[trial.number]
    study._storage.set_trial_user_attr(frozen._trial_id, "trial", asdict(trial))


def _tell(study: Any, trial: Trial, goal: Goal) -> None:
    """A cut one is pruned; a front has two values."""
    import optuna

    _keep(study, trial)
    state = optuna.trial.TrialState
    parts = [{"single-user": 1.0}, {"aggregate": 1.0}] if goal.pareto else [None]
    cells = [[cell for cell in goal.screen if not part or cell in goal.part_cells(next(iter(part)))] for part in parts]
    values = [goal.value(trial.cells, some, part) for some, part in zip(cells, parts)]
    if trial.state == "ok" and None not in values:
        study.tell(trial.number, values)
    else:
        study.tell(trial.number, state=state.PRUNED if trial.state == "cut" and not goal.pareto else state.FAIL)
