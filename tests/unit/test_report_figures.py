"""Every figure that a person reads is in report.json; the page is whole in a real browser; a thousand points are quick."""

from __future__ import annotations

import json
import re
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_report import Page

from ddtree.points import Point
from ddtree.report import build, summary_rows, write
from sweeps import failed, grid24, record, store

ROOT = Path(__file__).resolve().parents[2]
ORIGIN = ROOT / "sweeps" / "baseline-origin.json"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?:%|×)?(?![\w.]*\d)")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 points dealt out over two hosts, with a report against the origin's figures."""
    folder = grid24(tmp_path_factory.mktemp("results") / "grid")
    state = {"share": "split", "anchor": "none", "controls": ["none", "dflash-w2048"], "hosts": {"gpu01": {}, "gpu02": {"stopped": "out"}}}
    (folder / "sweep.json").write_text(json.dumps(state))
    write(build(folder, {"single-user speed": 0.6, "aggregate throughput": 0.4}, ORIGIN), folder, latest=False)
    return folder


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)
    else:
        yield value


def shown(document: Any) -> set[str]:
    """Every way in which the document's figures may be written."""
    found: set[str] = set()
    for one in leaves(document):
        if isinstance(one, str):
            found.update(NUMBER.findall(one))
        elif isinstance(one, (int, float)) and not isinstance(one, bool):
            found.update(
                [f"{one:.0f}", f"{one:.1f}", f"{one:.2f}", f"{one:.2f}×", f"{one - 1:+.1%}", f"{one:+.1%}", f"{one:.1%}", f"{one:g}"]
            )
    return found


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_every_figure_is_in_the_json(sweep: Path, name: str) -> None:
    document = json.loads((sweep / "report.json").read_text())
    known = shown(document)
    text = (sweep / name).read_text()
    # What is drawn has ticks of its own; the figures behind a plot are in the tables too.
    words = " \n ".join(Page(re.sub(r"<svg.*?</svg>", "", text, flags=re.S)).text) if name.endswith("html") else text
    fixed = {"95%", "0", "1%", *document["began"].replace("T", "-").split("-")}  # words of the page itself, and the day
    asked = NUMBER.findall(words)
    strange = sorted({one for one in asked if one not in known | fixed})
    assert not strange, strange
    assert len(asked) > 400


def test_the_json_tells_what_the_records_tell(sweep: Path) -> None:
    document = json.loads((sweep / "report.json").read_text())
    by_name = {one["name"]: one for one in document["points"]}
    assert len(by_name) == 24 and document["counts"] == {"points": 24, "without_figures": 2}
    none, best = by_name["none"], by_name[document["best"]]
    assert best["speed_up"]["none"]["single_user"] == pytest.approx(best["single_user"] / none["single_user"])
    assert none["speed_up"]["none"] is None and none["hosts"] == ["gpu01", "gpu02"]
    assert document["hosts"][0]["against_fleet"]["1"] / document["hosts"][1]["against_fleet"]["1"] == pytest.approx(1 / 0.97, rel=1e-4)
    heat = document["heat_maps"][0]
    assert heat["budgets"] == [4, 8, 12, 16, 24, 32] and heat["topks"] == [2, 4, 6] and "8/6" not in heat["maps"]["single_user"]
    assert {one["cause"] for point in document["points"] for one in point["failures"]} == {"out_of_memory", "load_timeout"}


def test_hosts_that_differ_are_compared_through_the_anchor(tmp_path: Path) -> None:
    fast, slow, anchor = Point(budget=12, topk=6), Point(budget=16, topk=4), Point(dialect="none", window=None)
    store(tmp_path / "s", record(anchor, 0.5), record(fast, 1.0), host="quick")
    store(tmp_path / "s", record(anchor, 0.4), record(slow, 0.9), host="slow")
    assert build(tmp_path / "s").entries[0]["name"] == fast.name, "as measured, the point on the quick host leads"
    (tmp_path / "s" / "sweep.json").write_text(json.dumps({"anchor": "none"}))
    report = build(tmp_path / "s")
    assert report.entries[0]["name"] == slow.name, "its host is a fifth slower, and the point only a tenth"
    cells = {entry["name"]: entry["cells"][(60, 1)]["output_tok_s"] for entry in report.entries}
    assert cells[slow.name] / cells[fast.name] == pytest.approx(0.9 / 0.4 * 0.5, rel=1e-3)
    raw = {row["point"]: row["output_tok_s"] for row in summary_rows(report) if (row["context"], row["concurrency"]) == (60, 1)}
    assert raw[slow.name] == pytest.approx(0.9 * 147.5, rel=1e-3), "the CSV has what was measured"


def png_size(path: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return int(width), int(height)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (500, False)], ids=["desktop", "dark", "phone"])
def test_the_page_in_a_real_browser(sweep: Path, tmp_path: Path, width: int, dark: bool) -> None:
    # The page itself measures: nothing may stick out of it, in no width; the paper must follow the reader's mode.
    probe = (
        "<script>addEventListener('load', () => { const wide = [...document.querySelectorAll('body > *')].filter("
        "one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.tagName + '.' + one.className);"
        "document.title = JSON.stringify({wide, scroll: document.documentElement.scrollWidth - innerWidth,"
        "paper: getComputedStyle(document.body).backgroundColor, plots: document.querySelectorAll('figure svg').length,"
        "tables: document.querySelectorAll('table').length}) })</script>"
    )
    page = tmp_path / "page.html"
    page.write_text((sweep / "report.html").read_text().replace("</head>", probe + "</head>"))
    assert BROWSER
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}",
               f"--window-size={width},1600", *(["--blink-settings=preferredColorScheme=0"] if dark else [])]  # fmt: skip
    dom = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True).stdout
    title = re.search(r"<title>(\{.*?\})</title>", dom)
    assert title, dom[:500]
    found = json.loads(title[1].replace("&quot;", '"'))
    assert found["wide"] == [] and found["scroll"] <= 0, found
    assert found["plots"] == 4 and found["tables"] >= 8
    assert found["paper"] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


def test_a_thousand_points_are_reported_in_twenty_seconds_and_a_gibibyte(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    for at in range(1000):
        point = Point(budget=4 + at % 250, topk=1 + at // 250)
        one = failed(point) if at % 97 == 5 else record(point, 0.5 + (at * 37 % 1000) / 1000)
        path = folder / f"gpu{at % 4}" / f"{point.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"sweep": "large", "host": path.parent.name, **one}))
    code = (
        "import sys, time, resource; sys.path[:0] = [sys.argv[1]]\n"
        "from ddtree.report import build, write\n"
        "began = time.process_time(); write(build(sys.argv[2], 'balanced', sys.argv[3]), sys.argv[2], latest=False)\n"
        "print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, str(ROOT / "module_utils"), str(folder), str(ORIGIN)]
    began = time.monotonic()
    out = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.split()
    cpu, peak = float(out[0]), int(out[1]) / 1024
    print(f"1,000 points: {cpu:.1f} s of CPU, {time.monotonic() - began:.1f} s of wall time, {peak:.0f} MiB")
    assert cpu < 20 and peak < 1024, (cpu, peak)
    assert resource.RUSAGE_SELF == 0 and (folder / "report.html").stat().st_size < 4 << 20
