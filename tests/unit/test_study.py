"""A study's journal beside the schedule: whoever dies, no start is lost or made twice, and results are the truth."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from surfaces import SERVER, collapse, expand

from ddtree import schedule, study
from ddtree.points import Point
from ddtree.results import merge
from ddtree.schedule import begin, claim, ended, lose

RUNS = [
    {"point": one["point"].as_dict(), "aliases": one["aliases"], "launch": {"derived": one["launch"].derived}}
    for one in collapse(expand({"budget": [4, 8, 12, 16], "topk": [2, 4], "window": [1024, 2048]}, {}), SERVER)
]
SPEED = {4: 120.0, 8: 160.0, 12: 145.0, 16: 130.0}
MATRIX = {"contexts": [60, 1024], "concurrencies": [1, 32], "seed": "0"}
ASKED: dict[str, Any] = {"objective": "single-user", "contexts": [60, 1024], "concurrencies": [1, 32], "minutes": 500, "origin": ""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of one sweep; what lies beside it are others."""
    return tmp_path / "now"


def opened(folder: Path, hosts: int = 1, **asked: Any) -> str:
    runs = [{"name": one["point"]["name"], "aliases": one["aliases"], "config_id": f"id-{one['point']['name']}"} for one in RUNS]
    state = begin(folder, "tune", {f"h{at}": {"runs": runs, "release": "r1", "loaded": ""} for at in range(hosts)}, MATRIX)
    with schedule.locked(folder) as open_state:
        study.begin(folder, RUNS, [], {**ASKED, **asked}, open_state)
    return str(state["run"]["id"])


def take(folder: Path, run: str, host: str = "h0") -> dict[str, Any]:
    return claim(folder, host, run, wait=0, dealer=study.deal)


def record(folder: Path, taken: dict[str, Any], host: str = "h0", status: str = "ok", cause: str = "crashed", speed: float = 0.0) -> None:
    """The result of a start as the plays write it."""
    budget = int(taken["name"].partition("-")[0][1:])
    cells = [{"context": context, "concurrency": level, "output_tok_s": (speed or SPEED[budget]) * level**0.5, "ci95": None}
             for context in (60, 1024) for level in ((1, 32) if taken["stage"] == "whole" else (1,))]  # fmt: skip
    merge(folder / host / f"{taken['run']}.json", {
        "point": {**Point(budget=budget).as_dict(), "name": taken["name"]}, "config_id": f"id-{taken['name']}", "status": status,
        "release": "r1", "matrix": MATRIX,
        "started": "2026-12-01T10:00:00Z", "finished": "2026-12-01T10:08:00Z", "cells": cells if status == "ok" else [],
        "failure": {"phase": "load", "cause": cause, "message": "no"} if status == "failed" else None,
        "restart": {"changed": True, "seconds": 360.0}, "tune": {"stage": taken["stage"], "cut": ""},
    })  # fmt: skip


def finish(folder: Path, run: str, taken: dict[str, Any], host: str = "h0", **more: Any) -> None:
    record(folder, taken, host, **more)
    ended(folder, host, run, more.get("status", "ok"), more.get("cause", ""))


def test_a_whole_study_finds_the_best_and_confirms_it(folder: Path) -> None:
    run, taken = opened(folder), list[dict[str, Any]]()
    while (found := take(folder, run))["name"]:
        taken.append(found)
        finish(folder, run, found)
    screens = [one["name"] for one in taken if one["stage"] == "screen"]
    assert len(screens) == len(set(screens)) < len(RUNS)
    document = study.load(folder)
    best = study.tuner_of(document).best()
    assert best.startswith("b8-")
    again = [one for one in taken if one["name"] == best and one["stage"] == "whole"]
    assert [(one["run"], one["again"]) for one in again] == [(f"{best}@2", True), (f"{best}@3", True)]
    assert found["why"] == document["ended"] == "confirmed"
    assert take(folder, opened(folder))["name"] == "", "the same command starts nothing more"


def test_a_killed_run_goes_on_with_the_start_that_was_at_work(folder: Path) -> None:
    run = opened(folder)
    finish(folder, run, take(folder, run))
    at_work = take(folder, run)
    again = take(folder, opened(folder))
    assert (again["name"], again["run"], again["stage"]) == (at_work["name"], at_work["run"], at_work["stage"])
    assert [one["state"] for one in study.load(folder)["trials"]] == ["ok", "running"]


def test_a_result_that_was_written_before_the_kill_counts(folder: Path) -> None:
    run = opened(folder)
    first = take(folder, run)
    record(folder, first)
    second = take(folder, opened(folder))
    assert second["name"] != first["name"]
    assert [one["state"] for one in study.load(folder)["trials"]] == ["ok", "running"]


def test_a_line_of_the_journal_cut_by_a_kill_is_taken_off(folder: Path) -> None:
    run = opened(folder)
    first = take(folder, run)
    journal = folder / study.JOURNAL
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 8, "trial_')
    again = take(folder, opened(folder))
    assert again["name"] == first["name"]
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_a_lost_host_loses_only_its_trial(folder: Path) -> None:
    run = opened(folder, hosts=3)
    taken = {host: take(folder, run, host) for host in ("h0", "h1", "h2")}
    assert len({one["name"] for one in taken.values()}) == 3
    assert lose(folder, "h1") == taken["h1"]["run"]
    finish(folder, run, taken["h0"], "h0")
    after = take(folder, run, "h0")
    states = {one["host"]: one["state"] for one in study.load(folder)["trials"][:3]}
    assert states == {"h0": "ok", "h1": "lost", "h2": "running"}
    names = []
    while after["name"]:
        names.append(after["name"])
        finish(folder, run, after, "h0")
        after = take(folder, run, "h0")
    assert taken["h2"]["name"] not in names, "what another host is at is left to it"
    assert after["why"].startswith("waiting")
    assert study.tuner_of(study.load(folder)).best().startswith("b8-")


def test_a_failure_of_the_moment_is_asked_again_and_one_of_the_point_is_not(folder: Path) -> None:
    run = opened(folder)
    first = take(folder, run)
    finish(folder, run, first, status="failed", cause="port_in_use")
    second = take(folder, run)
    assert second["name"] == first["name"], "the middle is still what is wanted"
    finish(folder, run, second, status="failed", cause="bad_flags")
    later = set()
    while (found := take(folder, run))["name"]:
        later.add(found["name"])
        finish(folder, run, found)
    assert first["name"] not in later


def test_time_that_was_spent_stays_spent(folder: Path) -> None:
    run = opened(folder, minutes=100)
    finish(folder, run, take(folder, run))
    document = study.load(folder)
    document["began"], document["last"] = time.time() - 5400, time.time()
    study.write(folder, document)
    opened(folder, minutes=100)
    assert study.minutes_left(study.load(folder), time.time()) == pytest.approx(10, abs=0.1)


def test_earlier_results_of_the_same_engine_are_taken_up_and_others_are_not(folder: Path) -> None:
    good = {"name": RUNS[0]["point"]["name"], "run": "one", "stage": "whole"}
    record(folder.parent / "before", good)
    record(folder.parent / "before", {**good, "name": RUNS[1]["point"]["name"], "run": "two"})
    other = folder.parent / "before" / "h0" / "two.json"
    other.write_text(other.read_text().replace('"r1"', '"r0"'))
    opened(folder)
    assert [one["name"] for one in study.load(folder)["earlier"]] == [good["name"]]
    assert study.tuner_of(study.load(folder)).best() == good["name"]


def test_tuned_for_something_else_it_keeps_what_was_measured(folder: Path) -> None:
    run = opened(folder)
    first = take(folder, run)
    finish(folder, run, first)
    opened(folder, objective="aggregate")
    document = study.load(folder)
    assert document["trials"] == [] and [one["name"] for one in document["earlier"]] == [first["name"]]


def test_hosts_that_make_other_configurations_are_refused(folder: Path) -> None:
    runs = [{"name": one["point"]["name"], "aliases": [], "config_id": "x"} for one in RUNS]
    state = begin(folder, "tune", {"h0": {"runs": runs}, "h1": {"runs": runs[1:]}}, MATRIX)
    with pytest.raises(study.StudyError, match=r"h0 and h1 make different configurations .*--limit"):
        study.begin(folder, RUNS, [], ASKED, state)


def test_a_record_goes_on_cell_by_cell_until_it_is_cut(folder: Path) -> None:
    run = opened(folder)
    first = take(folder, run)
    step = study.weigh(folder, first["run"], "h0", {})
    assert step["cells"] == [{"context": 60, "concurrency": 1}] and step["quick"] and step["not_now"]["coding"]
    finish(folder, run, first, speed=300.0)
    second = take(folder, run)
    slow = {"cells": [{"context": 60, "concurrency": 1, "output_tok_s": 100.0, "ci95": [99, 101]}]}
    cut = study.weigh(folder, second["run"], "h0", slow)
    assert cut["cells"] == [] and f"against {first['name']}" in cut["cut"]


def test_a_document_that_is_none_is_told_by_name(folder: Path) -> None:
    folder.mkdir()
    (folder / study.FILE).write_text("{")
    with pytest.raises(study.StudyError, match=r"tune\.json is no complete JSON"):
        study.load(folder)
