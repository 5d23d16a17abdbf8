"""The plan that is shown before anything starts, what earlier sweeps tell of time, and the live line of a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtree import live, plan
from ddtree.points import Point
from sweeps import failed, record, store

GUESS = {"load": 300.0, "measure": 300.0}


def runs(*names: str, done: tuple[str, ...] = (), aliases: dict[str, list[str]] | None = None) -> list[dict[str, Any]]:
    return [
        {"point": {"name": name}, "aliases": (aliases or {}).get(name, []), "launch": {"warnings": ["mind"]}, "done": name in done}
        for name in names
    ]


def test_one_host_with_what_collapses_what_is_done_and_how_long() -> None:
    host = {"runs": runs("a", "b", "none", done=("b",), aliases={"a": ["c"]}), "expected": GUESS}
    assert plan.lines({"gpu01": host}, "replicate", ["none"], "best") == [
        "3 engine configurations, 2 to measure",
        "  a, the same engine as c",
        "  b, has its result already",
        "  none (control)",
        "  note: mind",
        "on gpu01",
        "expected wall time: about 20 min, from earlier starts here (a restart takes 5 min)",
        "at the end each host serves the best point",
    ]


def test_split_ends_with_the_fleet_and_replicate_with_its_slowest_host() -> None:
    slow = {"load": 600.0, "measure": 600.0}
    hosts = {"h0": {"runs": runs(*"abcd"), "expected": GUESS}, "h1": {"runs": runs(*"abcd"), "expected": slow}}
    split, each = plan.lines(hosts, "split", [], "stop"), plan.lines(hosts, "replicate", [], "previous")
    assert "dealt out over 2 hosts (h0, h1), each of which also measures the anchor point" in split
    assert any("about 27 min" in line for line in split) and any("about 1 h 20 min" in line for line in each)
    assert split[-1].endswith("is stopped") and each[-1].endswith("serves what it ran before")


def test_hosts_with_other_points_are_told_apart_and_nothing_is_guessed() -> None:
    hosts: dict[str, Any] = {"h0": {"runs": runs("a", done=("a",)), "expected": {}}, "h1": {"runs": runs("a"), "expected": GUESS}}
    told = plan.lines(hosts, "replicate", [], "best")
    assert "  a, has its result already on h0" in told
    assert "expected wall time: unknown, for no earlier start on every host tells" in told
    apart = plan.lines({**hosts, "h2": {"runs": runs("b"), "expected": GUESS}}, "replicate", [], "best")
    assert apart[0] == "h0, h1:" and "h2:" in apart


def test_what_earlier_sweeps_on_the_host_tell(tmp_path: Path) -> None:
    store(tmp_path / "one", record(Point(budget=8, topk=4)), record(Point(budget=12, topk=6)), host="gpu01")
    store(tmp_path / "one", failed(Point(budget=16, topk=4)), host="gpu01")
    store(tmp_path / "two", record(Point(budget=8, topk=4), started="2026-12-01T10:00:00Z", finished="nonsense"), host="gpu02")
    (tmp_path / "one" / "gpu01" / "half.json").write_text("{")
    (tmp_path / "latest").symlink_to("one")
    assert plan.expected(tmp_path, "gpu01") == {"load": 380.5, "measure": pytest.approx(9 * 60 - 380.5)}
    assert plan.expected(tmp_path, "gpu02") == {"load": 380.5, "measure": None}
    assert plan.expected(tmp_path, "gpu09") == {"load": None, "measure": None}
    assert plan.point_seconds({"load": 1.0, "measure": None}) is None and plan.point_seconds({"load": 1.0, "measure": 2.0}) == 3.0


def test_the_live_line_says_point_phase_speed_and_time_left() -> None:
    view = live.View()
    view.open({"gpu01": {"left": 3, "of": 3, "seconds": None}}, 0)
    assert not view.begin("gpu01", "restart", 1), "it is at no point yet"
    view.claim("gpu01", "a", 1, 3, 10)
    assert view.line("gpu01", 10) == "gpu01: point 1 of 3, a: begins"
    assert view.begin("gpu01", "cell", 20)
    view.cell("gpu01", {"concurrency": 1, "output_tok_s": 100.0})
    view.cell("gpu01", {"concurrency": 1, "output_tok_s": 140.0})
    view.cell("gpu01", {"concurrency": 32, "output_tok_s": None})
    assert view.line("gpu01", 30) == "gpu01: point 1 of 3, a: cell 4, 120.0 tok/s at C=1"
    view.end("gpu01", "ok", 110)
    assert view.line("gpu01", 110) == "gpu01: point 1 of 3, a: measured, 120.0 tok/s at C=1, about 3 min left"
    view.claim("gpu01", "b", 2, 3, 110)
    assert view.left("gpu01", 150) == pytest.approx(160)
    view.end("gpu01", "failed", 160)
    view.claim("gpu01", "c", 3, 3, 160)
    view.end("gpu01", "lost", 170)
    assert view.line("gpu01", 170).endswith("c: lost") and not view.begin("other", "cell", 1)
    assert [live.duration(one) for one in (5.4, 89, 91, 3599, 7500)] == ["5 s", "89 s", "2 min", "1 h 00 min", "2 h 05 min"]


def test_what_earlier_sweeps_took_gives_the_first_guess() -> None:
    view = live.View()
    view.open({"gpu01": {"left": 4, "of": 4, "seconds": 600.0}}, 0)
    view.claim("gpu01", "a", 1, 4, 0)
    assert view.line("gpu01", 60).endswith("about 39 min left")
