"""Result files: merged without loss, never half-written, refused with a path, ranked by what they say."""

from __future__ import annotations

import json
import multiprocessing
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree import results
from ddtree.points import Point
from ddtree.ranking import RankingError, axes_of, meaning, pareto, rank
from ddtree.results import (
    ResultError,
    link_latest,
    load_sweep,
    merge,
    plain,
    read,
    redact,
    validate,
    write_text,
)
from sweeps import SPEED, failed, record, store

TWELVE, SIXTEEN, EIGHT, NONE = (
    Point(budget=12, topk=6),
    Point(budget=16, topk=4),
    Point(budget=8, topk=4),
    Point(dialect="none", window=None),
)


def cell(context: int, level: int, speed: float = 1.0) -> dict:
    return {"context": context, "concurrency": level, "output_tok_s": speed}


# -- files


def test_sections_are_merged_and_cells_by_context_and_concurrency(tmp_path: Path) -> None:
    path = tmp_path / "host" / "b12-k6-w2048.json"
    assert merge(path, {"config_id": "a", "cells": [cell(60, 1, 10), cell(60, 32, 20)]})[1]
    got, changed = merge(
        path,
        {
            "config_id": "a",
            "cells": [cell(60, 32, 30), cell(1024, 1, 5)],
            "coding": {"passed": 1, "total": 1},
        },
    )
    assert changed and [one["output_tok_s"] for one in got["cells"]] == [10, 30, 5]
    assert read(path) == got and got["point"] == {"name": "b12-k6-w2048"} and got["schema"] == 1
    assert merge(path, {"coding": {"passed": 1, "total": 1}}) == (got, False)


def test_what_could_not_be_measured_stays_told_until_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    refused, open_loop = {**cell(60, 1), "reason": "once"}, {**cell(60, 512), "rate": 2.0}
    merge(path, {"config_id": "a", "restart": {"instance": "1"}, "not_run": [refused, {**open_loop, "reason": "late"}]})
    got = merge(path, {"not_run": [{**cell(8192, 1), "reason": "too long"}]})[0]
    assert [one["reason"] for one in got["not_run"]] == ["once", "late", "too long"]
    assert [one["reason"] for one in merge(path, {"cells": [cell(60, 1), cell(60, 512)]})[0]["not_run"]] == ["late", "too long"]
    got = merge(path, {"open_loop": [open_loop]})[0]
    assert [one["reason"] for one in got["not_run"]] == ["too long"] and got["open_loop"] == [open_loop]
    again = merge(path, {"restart": {"instance": "2"}})[0]
    assert not {"cells", "open_loop", "not_run"} & set(again), "another instance of the engine is measured anew"


def test_another_configuration_begins_again_and_another_start_drops_the_outcome(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    merge(
        path,
        {
            "sweep": "s",
            "host": "h",
            "config_id": "a",
            "started": "1",
            "status": "failed",
            "failure": {"cause": "crashed"},
            "cells": [cell(60, 1)],
        },
    )
    again = merge(path, {"config_id": "a", "started": "2"})[0]
    assert "status" not in again and "failure" not in again and again["cells"] == [cell(60, 1)]
    other = merge(path, {"config_id": "b", "cells": [cell(60, 32)]})[0]
    assert other["cells"] == [cell(60, 32)] and other["sweep"] == "s" and other["started"] == "2"
    assert merge(path, {"status": "ok"})[0]["failure"] is None


def test_a_refused_section_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    merge(path, {"status": "skipped"})
    before = path.read_bytes()
    for bad, place in (
        ({"status": "fine"}, "status is 'fine'"),
        ({"cells": [{"context": 60}]}, r"cells\[0\]\.concurrency is None"),
        ({"cells": [cell(60, 1), cell(60, 1)]}, r"cells\[1\]"),
        ({"cells": [{**cell(60, 1), "output_tok_s": -1}]}, r"cells\[0\].output_tok_s"),
        ({"coding": {"total": 5}}, "coding.passed is None"),
        ({"cells": [{**cell(60, 1), "ci95": [1]}]}, r"cells\[0\]\.ci95 is \[1\]"),
        ({"restart": {"phases": [{"seconds": "x"}]}}, r"restart\.phases\[0\]\.seconds"),
        ({"cells": 3}, "cells is 3"),
        ({"coding": {"passed": 0, "total": 1, "tasks": [{"outcome": "meh"}]}}, r"coding.tasks\[0\].outcome"),
        ({"status": "failed"}, "failure is None"),
        ({"schema": 2}, "schema is 2"),
        ({"point": "x"}, "point is 'x'"),
        ({"host": 3}, "host is 3"),
    ):
        with pytest.raises(ResultError, match=place) as caught:
            merge(path, bad)
        assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_a_corrupt_file_is_never_overwritten_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"schema": 1, "point": {"na')
    with pytest.raises(ResultError, match="no complete JSON"):
        merge(path, {"status": "ok"})
    assert path.read_text() == '{"schema": 1, "point": {"na'


def test_nothing_is_written_when_only_asked(tmp_path: Path) -> None:
    got, changed = merge(tmp_path / "new" / "x.json", {"status": "ok"}, write=False)
    assert changed and got["status"] == "ok" and not (tmp_path / "new").exists()


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    merge(path, {"status": "ok"})
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        merge(path, {"status": "skipped"})
    assert path.read_bytes() == before and [one.name for one in tmp_path.iterdir()] == ["x.json"]


def test_written_files_are_readable_and_only_touched_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x"
    assert write_text(path, "a") and not write_text(path, "a") and write_text(path, b"b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def _add_cell(path: Path, level: int) -> None:
    merge(path, {"cells": [cell(60, level)]})


def test_writers_at_the_same_time_lose_nothing_and_readers_see_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "h" / "x.json"
    merge(path, {"status": "ok"})
    stop, torn = threading.Event(), []

    def watch() -> None:
        while not stop.is_set():
            try:
                read(path)
            except ResultError as error:
                torn.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    writers = [multiprocessing.get_context("fork").Process(target=_add_cell, args=(path, level)) for level in range(1, 13)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    stop.set()
    watcher.join()
    assert not torn
    assert {one["concurrency"] for one in read(path)["cells"]} == set(range(1, 13))


def test_a_sweep_is_loaded_whole_and_what_is_unusable_is_told(tmp_path: Path) -> None:
    store(tmp_path / "s", record(TWELVE), failed(SIXTEEN))
    store(tmp_path / "s", record(TWELVE), host="gpu-b")
    (tmp_path / "s" / "gpu-a" / "half.json").write_text("{")
    (tmp_path / "s" / "gpu-a" / "other.json").write_text('{"schema": 7}')
    (tmp_path / "s" / "gpu-a" / ".x.json.tmp").write_text("{")
    (tmp_path / "s" / "gpu-b" / "open.json").write_text('{"schema": 1, "point": {}}')
    sweep = load_sweep(tmp_path / "s")
    assert [(one["host"], one["point"]["name"], one["status"]) for one in sweep.records] == [
        ("gpu-a", "b12-k6-w2048", "ok"),
        ("gpu-a", "b16-k4-w2048", "failed"),
        ("gpu-b", "b12-k6-w2048", "ok"),
        ("gpu-b", "open", "unfinished"),
    ]
    assert [one["file"] for one in sweep.problems] == ["gpu-a/half.json", "gpu-a/other.json"]
    assert "schema is 7" in sweep.problems[1]["message"]
    with pytest.raises(ResultError, match="no folder of results"):
        load_sweep(tmp_path / "none")


def test_latest_is_a_relative_link_that_moves_in_one_step(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert link_latest(tmp_path / name)
        assert (tmp_path / "latest").readlink() == Path(name)
    assert not link_latest(tmp_path / "two")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["latest", "one", "two"]
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    with pytest.raises(ResultError, match="is no link"):
        link_latest(tmp_path / "one")


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(
    trees,
    st.lists(st.text(min_size=1, max_size=4).filter(lambda one: one not in "***" and "*" not in one), max_size=3),
)
def test_no_secret_is_left_anywhere(value: object, secrets: list[str]) -> None:
    def texts(part: object) -> list[str]:
        if isinstance(part, dict):
            return [*part, *(text for one in part.values() for text in texts(one))]
        if isinstance(part, list):
            return [text for one in part for text in texts(one)]
        return [part] if isinstance(part, str) else []

    assert not [text for text in texts(redact(value, secrets)) for secret in secrets if secret in text]


def test_secrets_are_redacted_before_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    merge(
        path,
        {"engine": {"resolved": {"api_key": "hunter2", "launch_command": "x --api-key hunter2", "hunter2": 1}}},
        ["hunter2", ""],
    )
    assert "hunter2" not in path.read_text() and read(path)["engine"]["resolved"]["launch_command"] == "x --api-key ***"


def test_what_json_cannot_hold_becomes_plain() -> None:
    class Tagged(str):
        pass

    got = plain({Tagged("a"): (Tagged("b"), 1, True, float("nan"), 2.5)})
    assert json.dumps(got, allow_nan=False) == '{"a": ["b", 1, true, null, 2.5]}'
    assert type(got["a"][0]) is str


@given(trees)
def test_any_json_is_a_result_or_a_result_error(value: object) -> None:
    for one in (
        value,
        {"schema": 1, "point": {}, "cells": value, "coding": value, "status": value, "failure": value},
        {
            "schema": 1,
            "point": {},
            "coding": {"passed": 1, "total": 1, "tasks": value},
            "restart": {"phases": value, "seconds": value},
        },
        {
            "schema": 1,
            "point": {"name": value},
            "cells": [{"context": 1, "concurrency": 1, "ci95": value, "ttft_ms": value}],
        },
    ):
        try:
            validate(one)
        except ResultError as error:
            assert "\n" not in str(error).replace("\\n", "")


# -- ranking --


def ranked(*records: dict, objective: object = "balanced") -> list[dict]:
    return rank([{"host": "h", **one} for one in records], objective)


def test_the_score_is_the_geometric_mean_over_the_cells() -> None:
    one = ranked(record(TWELVE))[0]
    product = 1.0
    for speed in SPEED.values():
        product *= speed
    assert one["score"] == pytest.approx(product ** (1 / 6))
    assert one["single_user"] == pytest.approx((147.5 * 139.0 * 87.9) ** (1 / 3))
    assert one["aggregate"] == pytest.approx((696.8 * 672.6 * 417.7) ** (1 / 3))
    assert axes_of([one]) == ([60, 1024, 4096], [1, 32])


def test_order_and_ranks() -> None:
    slow_cells = record(EIGHT, 2.0)["cells"][:3]
    entries = ranked(
        failed(Point(budget=4)),
        record(SIXTEEN, 0.9),
        record(TWELVE, 1.0),
        record(EIGHT, 2.0, cells=slow_cells),
        record(Point(budget=20), 1.5, passed=4),
    )
    assert [(one["name"], one["tier"], one["rank"]) for one in entries] == [
        ("b12-k6-w2048", 0, 1),
        ("b16-k4-w2048", 0, 2),
        ("b20-w2048", 1, 3),
        ("b8-k4-w2048", 2, 4),
        ("b4-w2048", 3, None),
    ]
    assert entries[2]["reasons"] == ["coding 4 of 5 (1 cut by the token limit)"]
    assert entries[3]["reasons"][0].startswith("not measured: context 60 at concurrency 32")
    assert entries[4]["reasons"] == ["failed: out_of_memory in phase load"]


def test_the_coding_bar_is_the_point_without_speculation() -> None:
    entries = ranked(record(NONE, 0.5, passed=4), record(TWELVE, passed=4), record(SIXTEEN, 1.1, passed=3))
    assert [(one["name"], one["tier"]) for one in entries] == [
        ("b12-k6-w2048", 0),
        ("none", 0),
        ("b16-k4-w2048", 1),
    ]


def test_failed_requests_rank_below_and_no_coding_check_is_no_fault() -> None:
    broken = record(SIXTEEN, 2.0)
    broken["cells"][0]["errors"] = 3
    entries = ranked(broken, record(TWELVE, coding={}))
    assert [one["name"] for one in entries] == ["b12-k6-w2048", "b16-k4-w2048"]
    assert entries[1]["reasons"] == ["3 requests failed"]


def test_objectives() -> None:
    alone, crowd = record(TWELVE), record(SIXTEEN)
    for one in alone["cells"]:
        one["output_tok_s"] *= 1.5 if one["concurrency"] == 1 else 1.0
    for one in crowd["cells"]:
        one["output_tok_s"] *= 1.0 if one["concurrency"] == 1 else 1.4
    first = {name: ranked(alone, crowd, objective=name)[0]["name"] for name in ("balanced", "single-user", "aggregate")}
    assert first == {"balanced": "b12-k6-w2048", "single-user": "b12-k6-w2048", "aggregate": "b16-k4-w2048"}
    assert ranked(alone, crowd, objective={"single-user": "1", "aggregate": 3})[0]["name"] == "b16-k4-w2048"
    assert "0.25" in meaning({"single-user": 0.25, "aggregate": 0.75})
    assert set(pareto(ranked(alone, crowd, record(EIGHT, 0.99)))) == {"b12-k6-w2048", "b16-k4-w2048"}


@pytest.mark.parametrize(
    "objective",
    ["fastest", {}, {"balanced": -1}, {"balanced": "x"}, {"balanced": 0}, {"balanced": float("inf")}, 3],
)
def test_an_objective_that_means_nothing_is_refused(objective: object) -> None:
    with pytest.raises(RankingError):
        ranked(record(TWELVE), objective=objective)


def test_hosts_are_averaged_and_a_lost_host_is_told() -> None:
    records = [{**record(TWELVE, factor), "host": host} for factor, host in ((1.0, "a"), (1.21, "b"))] + [{**failed(TWELVE), "host": "c"}]
    one = rank(records)[0]
    assert one["hosts"] == ["a", "b"] and one["lost_hosts"] == ["c"] and one["status"] == "ok"
    spread = one["cells"][(60, 1)]
    assert spread["output_tok_s"] == pytest.approx(147.5 * 1.1, rel=1e-3)
    assert (spread["low"], spread["high"]) == (147.5, pytest.approx(178.47, abs=0.1))


def test_only_cells_that_all_complete_points_have_count() -> None:
    wide = record(TWELVE)
    wide["cells"].append({"context": 8192, "concurrency": 1, "output_tok_s": 1.0})
    entries = ranked(wide, record(SIXTEEN, 1.1))
    assert [(one["name"], one["tier"]) for one in entries] == [("b12-k6-w2048", 0), ("b16-k4-w2048", 2)]


speeds = st.floats(1, 1000)


@given(st.lists(st.tuples(speeds, speeds), min_size=1, max_size=8))
def test_the_front_is_what_nobody_beats(pairs: list[tuple[float, float]]) -> None:
    entries = [{"name": str(index), "tier": 0, "single_user": one[0], "aggregate": one[1]} for index, one in enumerate(pairs)]
    front = set(pareto(entries))
    assert front
    for index, (x, y) in enumerate(pairs):
        beaten = any(a >= x and b >= y and (a, b) != (x, y) for a, b in pairs)
        assert (str(index) in front) is not beaten
