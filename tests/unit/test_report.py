"""The report: nothing from outside, nothing unescaped, every point and figure in it, the same bytes twice."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from ddtree import report as reports
from ddtree.points import Point, expand
from ddtree.report import best_vars, build, headline, summary_csv, summary_rows, why, write
from ddtree.report_text import markdown, table, terminal_table
from ddtree.results import ResultError, merge
from sweeps import SPEED, failed, record, store

ROOT = Path(__file__).resolve().parents[2]
ORIGIN = ROOT / "sweeps" / "baseline-origin.json"
TWELVE, SIXTEEN, EIGHT, NONE = (
    Point(budget=12, topk=6),
    Point(budget=16, topk=4),
    Point(budget=8, topk=4),
    Point(dialect="none", window=None),
)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=a> $\\frac{1}{0}$ --> |`*[x](http://evil.example)\x1b[31m\n=1+1"


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return store(
        tmp_path / "first",
        record(TWELVE, aliases=["b12-k4-w2048"]),
        record(SIXTEEN, 0.95),
        record(EIGHT, 1.1, passed=4),
        record(NONE, 0.5),
        failed(Point(budget=32)),
    )


class Page(HTMLParser):
    """What a page loads and runs, and its text."""

    VOID = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.events: list[str] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID and tag not in ("path", "rect", "use"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data", "poster"):
                self.loads.append(value or "")
            if name == "id":
                self.ids.append(value or "")
            if name.startswith("on"):
                self.events.append(name)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.append(data)


def html_of(sweep: Path, **options: object) -> str:
    write(build(sweep, **options), sweep, latest=False)  # type: ignore[arg-type]
    return (sweep / "report.html").read_text(encoding="utf-8")


def test_the_page_loads_nothing_and_runs_nothing(sweep: Path) -> None:
    text = html_of(sweep, baseline=ORIGIN)
    page = Page(text)
    assert all(one.startswith("#") for one in page.loads)
    assert not page.events and not {
        "script",
        "link",
        "iframe",
        "img",
        "object",
        "embed",
        "base",
        "form",
    } & set(page.tags)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids)) and {one[1:] for one in page.loads} <= set(page.ids)
    assert page.tags.count("svg") == 4


def test_the_page_has_every_point_figure_and_reason(sweep: Path) -> None:
    text = " ".join(Page(html_of(sweep, baseline=ORIGIN)).text)
    for name in ("b12-k6-w2048", "b16-k4-w2048", "b8-k4-w2048", "none", "b32-w2048", "b12-k4-w2048"):
        assert name in text
    for factor in (1.0, 0.95, 1.1, 0.5):
        for speed in SPEED.values():
            assert f"{round(speed * factor, 2):.1f}" in text
    for said in (
        "b12-k6-w2048 is the best of 4 measured points",
        "cut by the token limit",
        "no memory is left",
        "CUDA out of memory",
        "Origin story",
        "no difference shown",
        "same engine as b12-k4-w2048",
        "2.00 times no speculation",
        "0.5.23",
    ):
        assert said in text, said


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    bad = {
        **failed(SIXTEEN, cause=HOSTILE, message=HOSTILE, tail=(HOSTILE,)),
        "environment": {HOSTILE: HOSTILE},
    }
    named = record(TWELVE)
    named["point"] = {**named["point"], "name": HOSTILE, "extra_args": [HOSTILE], "extra_env": {"A": HOSTILE}}
    named["aliases"], named["engine"]["version"] = [HOSTILE], HOSTILE
    named["coding"]["tasks"][0]["name"] = named["restart"]["phases"][0]["name"] = HOSTILE
    for cell in named["cells"]:
        cell["accept_source"] = HOSTILE
    other = record(EIGHT, 0.9)
    other["point"]["name"] = HOSTILE + "2"
    folder = tmp_path / "s"
    for index, one in enumerate((bad, named, other)):
        merge(folder / "host" / f"{index}.json", {"host": HOSTILE, **one})
    (folder / "host" / "broken.json").write_text(HOSTILE)
    page = Page(html_of(folder))
    assert not page.events and not {"script", "img"} & set(page.tags) and all(one.startswith("#") for one in page.loads)
    assert page.tags.count("svg") == 4
    report = build(folder)
    shown = terminal_table(report)
    assert "\x1b" not in shown and all(len(line) <= 100 for line in shown.splitlines())
    assert "\x1b" not in markdown(report) and not re.search(r"<(?!!)\w", markdown(report))
    rows = list(csv.DictReader(io.StringIO(summary_csv(report))))
    assert rows and not any((value or "")[:1] in ("=", "+", "@") for row in rows for value in row.values())
    assert yaml.safe_load(best_vars(report) or "")["extra_args"] == [HOSTILE]


def test_the_same_files_give_the_same_bytes_and_no_change(sweep: Path, tmp_path: Path) -> None:
    assert write(build(sweep), sweep) == ["summary.csv", "report.md", "report.html", "report.json", "best.yml", "latest"]
    first = {name: (sweep / name).read_bytes() for name in ("summary.csv", "report.md", "report.html", "best.yml")}
    assert write(build(sweep), sweep) == []
    for name in first:
        (sweep / name).unlink()
    write(build(sweep), sweep)
    assert {name: (sweep / name).read_bytes() for name in first} == first
    assert (tmp_path / "latest" / "report.html").read_bytes() == first["report.html"]


def test_the_csv_has_a_row_for_each_cell_and_each_failure(sweep: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(summary_csv(build(sweep)))))
    assert len(rows) == 4 * 6 + 1 and tuple(rows[0]) == reports.COLUMNS
    first = rows[0]
    assert (
        first["point"],
        first["rank"],
        first["budget"],
        first["window"],
        first["mode"],
        first["effective_topk"],
    ) == ("b12-k6-w2048", "1", "12", "2048", "tree", "2")
    assert (first["context"], first["concurrency"], first["output_tok_s"], first["ttft_ms_p95"]) == (
        "60",
        "1",
        "147.5",
        "300.0",
    )
    assert (first["output_tok_s_low"], first["output_tok_s_high"], first["accept_source"]) == (
        "146.03",
        "148.97",
        "requests",
    )
    last = rows[-1]
    assert (last["point"], last["status"], last["failure_cause"], last["context"], last["rank"]) == (
        "b32-w2048",
        "failed",
        "out_of_memory",
        "",
        "",
    )
    files = [json.loads(path.read_text()) for path in sweep.glob("gpu-a/*.json")]
    stored = {
        (one["point"]["name"], str(cell["context"]), str(cell["concurrency"])): str(cell["output_tok_s"])
        for one in files
        for cell in one["cells"]
    }
    assert {(row["point"], row["context"], row["concurrency"]): row["output_tok_s"] for row in rows if row["context"]} == stored


def test_the_best_point_can_be_asked_again(sweep: Path) -> None:
    again = expand(yaml.safe_load(best_vars(build(sweep)) or ""), {})
    assert again == [TWELVE]
    other = Point(budget=12, window=None, tp=4, extra_args=("--a", "b c"), extra_env=(("X", "%n"),))
    store(sweep, record(other, 2.0))
    assert expand(yaml.safe_load(best_vars(build(sweep)) or ""), {}) == [other]


def test_without_a_winner_no_old_one_is_left_to_deploy(tmp_path: Path) -> None:
    folder = store(tmp_path / "s", record(TWELVE))
    write(build(folder), folder)
    assert (folder / "best.yml").exists()
    (folder / "gpu-a" / "b12-k6-w2048.json").unlink()
    store(folder, failed(TWELVE))
    report = build(folder)
    assert "best.yml" in write(report, folder) and not (folder / "best.yml").exists()
    assert report.best is None and headline(report) == "No point was measured completely"
    assert "out_of_memory in phase load" in terminal_table(report) and "site.yml" not in (folder / "report.html").read_text()


def test_what_was_found_loaded_is_reported_without_a_point(tmp_path: Path) -> None:
    merge(
        tmp_path / "s" / "h" / "loaded.json",
        {"status": "ok", "cells": record(TWELVE)["cells"], "point": {"name": "loaded"}},
    )
    report = build(tmp_path / "s")
    assert best_vars(report) is None and "best.yml" not in write(report, tmp_path / "s")
    assert summary_rows(report)[0]["window"] is None and "147.5" in terminal_table(report)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_table_fits_the_terminal_and_keeps_the_ends(tmp_path: Path, width: int) -> None:
    wide = record(TWELVE)
    wide["cells"] = [
        {**wide["cells"][0], "context": context, "concurrency": level} for context in (60, 1024, 4096, 8192) for level in (1, 16, 32, 64)
    ]
    shown = terminal_table(build(store(tmp_path / "s", wide, record(Point(budget=8, extra_args=("--x",) * 9), 0.9))), width)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert "C=1" in shown and ("C=64" in shown or width == 60)
    assert ("more columns are in summary.csv" in shown) is (width < 200)


def test_reasons_name_the_rival_the_overlap_and_what_was_barred(tmp_path: Path) -> None:
    close = store(tmp_path / "close", record(TWELVE), record(SIXTEEN, 0.999), record(EIGHT, 1.2, passed=4))
    told = " | ".join(why(build(close)))
    assert "no difference to b16-k4-w2048 is shown: their intervals overlap in every cell" in told
    assert "b8-k4-w2048 is 20.0% faster and ranks lower: coding 4 of 5 (1 cut by the token limit)" in told
    clear = store(tmp_path / "clear", record(TWELVE, 1.1), record(SIXTEEN))
    told = " | ".join(why(build(clear)))
    assert "10.0% above the next, b16-k4-w2048" in told and "overlap" not in told
    assert why(build(clear, {"aggregate": 1}))[0].startswith("score ")


def test_a_baseline_file_is_compared_cell_by_cell(tmp_path: Path) -> None:
    same = build(store(tmp_path / "same", record(TWELVE)), baseline=ORIGIN).comparison
    assert [row["verdict"] for row in same] == ["no difference shown"] * 6
    assert {(row["context"], row["concurrency"]): row["then"] for row in same} == SPEED
    up = build(store(tmp_path / "up", record(TWELVE, 1.05)), baseline=ORIGIN).comparison
    assert {row["verdict"] for row in up} == {"faster"} and up[0]["ratio"] == pytest.approx(1.05, abs=1e-3)
    down = build(store(tmp_path / "down", record(TWELVE, 0.95)), baseline=tmp_path / "up").comparison
    assert {row["verdict"] for row in down} == {"slower"}
    blind = record(TWELVE)
    for cell in blind["cells"]:
        del cell["ci95"]
    assert {row["verdict"] for row in build(store(tmp_path / "blind", blind), baseline=ORIGIN).comparison} == {"no interval"}
    none = build(store(tmp_path / "none", record(SIXTEEN)), baseline=ORIGIN)
    assert none.comparison == [] and "No cell of this sweep is in the baseline." in markdown(none)


def test_a_baseline_knows_a_point_by_its_alias(tmp_path: Path) -> None:
    rows = build(store(tmp_path / "s", record(Point(budget=12, topk=4), aliases=["b12-k6-w2048"])), baseline=ORIGIN).comparison
    assert len(rows) == 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "no list of records"),
        ('{"records": [{}]}', r"records\[0\]: schema is None"),
    ],
)
def test_an_unusable_baseline_is_named(sweep: Path, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(ResultError, match=said):
        build(sweep, baseline=path)


def test_unusable_files_are_on_every_page(sweep: Path) -> None:
    (sweep / "gpu-a" / "half.json").write_text('{"schema"')
    report = build(sweep)
    for text in (terminal_table(report), markdown(report), html_of(sweep)):
        assert "half.json" in text and "no complete JSON" in " ".join(text.split())


def test_an_empty_folder_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="holds no result file"):
        build(tmp_path)


def test_rows_of_the_table_are_as_wide_as_its_header(sweep: Path) -> None:
    header, rows = table(build(sweep))
    assert {len(row) for row in rows} == {len(header)}


def test_two_hundred_points_are_reported_in_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    for budget in range(1, 201):
        store(folder, record(Point(budget=budget), 1 - budget / 1000))
    report = build(folder)
    write(report, folder)
    assert report.entries[0]["name"] == "b1-w2048" and len(summary_rows(report)) == 1200
