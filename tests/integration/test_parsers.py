"""Each dialect's command line through the argument parser of the SGLang that it is for: released ones by their own parser, builds of pull
requests by the parser of the release they sit on and their recorded flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from enginearguments import ROOT, parsed, unpacked

from ddtree.dialect_table import BUILTIN
from ddtree.engine import Launch, Server, render
from ddtree.points import Point

RELEASES = ("0.5.17", "0.5.23")
RECORDED = {path.stem: json.loads(path.read_text()) for path in (ROOT / "tests" / "data" / "flags").glob("*.json")}
SERVER = Server("/p", "/m", "/d", block_size=8, extra_args=("--trust-remote-code", "--mem-fraction-static", "0.85"))
POINTS = {
    "none": [Point("none", window=None), Point("none", window=None, tp=1)],
    "dflash": [Point("dflash"), Point("dflash", window=None)],
    "pr29907": [Point(budget=12, topk=6), Point(budget=4, window=None, tp=4)],
    "pr27509": [Point("pr27509", budget=12)],
    "pr31069": [Point("pr31069", budget=32, topk=8)],
    "pr36196": [Point("pr36196", budget=32, topk=4), Point("pr36196", topk=1, window=None)],
    "jetspec": [Point("jetspec", budget=16, topk=8)],
}
STOCK = ("none", "dflash")


def arguments(launch: Launch) -> list[str]:
    """The engine's own arguments: what follows `python -m sglang.launch_server`."""
    return launch.argv[3:]


def check(launch: Launch, point: Point, answer: dict[str, Any]) -> None:
    assert "error" not in answer, answer
    values = answer["values"]
    assert (values["model_path"], values["tp_size"], values["weight_version"]) == ("/m", point.tp, launch.config_id)
    assert (values["max_running_requests"], values["mem_fraction_static"]) == (64, 0.85)
    assert values["speculative_draft_window_size"] == point.window
    missing = set(launch.expect) - set(values)
    assert not missing, f"server_info of this build has no {missing}: the proof of {point.name} would never be found"
    # What the engine resolves itself is none in the arguments; what was asked must have arrived.
    for field, wanted in launch.expect.items():
        assert values[field] in (wanted, None), field


def test_every_dialect_is_parsed_here() -> None:
    assert set(POINTS) == set(BUILTIN) - {"custom"}
    assert set(RECORDED) == set(POINTS) - set(STOCK)
    for name, record in RECORDED.items():
        assert {"source", "read", "date", "recorded", "base", "complete", "algorithms", "flags", "env"} == set(record), name


@pytest.mark.parametrize("version", RELEASES)
def test_stock_dialects_are_parsed_by_the_release(version: str) -> None:
    cases = [(point, render(point, SERVER)) for name in STOCK for point in POINTS[name]]
    answers = parsed(version, [arguments(launch) for _, launch in cases], {})["parsed"]
    for (point, launch), answer in zip(cases, answers, strict=True):
        check(launch, point, answer)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_dialects_of_pull_requests_are_parsed_with_their_recorded_flags(name: str) -> None:
    record = RECORDED[name]
    launches = [render(point, SERVER) for point in POINTS[name]]
    answers = parsed(record["base"], [arguments(launch) for launch in launches], record["flags"])["parsed"]
    for point, launch, answer in zip(POINTS[name], launches, answers, strict=True):
        check(launch, point, answer)
        assert set(launch.env) <= set(record["env"])


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_refuses_what_it_does_not_know(version: str) -> None:
    tree = arguments(render(Point(budget=12), SERVER))
    typed = [*arguments(render(Point("none", window=None), SERVER)), "--page-size", "one"]
    renamed = ["--model-path", "/m", "--speculative-dflash-draft-window-size", "2048"]
    errors = [one.get("error", "") for one in parsed(version, [tree, typed, renamed], {})["parsed"]]
    assert "unrecognized arguments: --speculative-ddtree-budget" in errors[0]
    assert "argument --page-size: invalid int value: 'one'" in errors[1]
    # The old name of the window's flag was taken out between the two.
    assert ("unrecognized arguments: --speculative-dflash-draft-window-size" in errors[2]) == (version == "0.5.23")


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_has_the_algorithm_of_stock_dialects_only(version: str) -> None:
    source = (unpacked(version) / "sglang" / "srt" / "speculative" / "spec_info.py").read_text()
    assert "DFLASH" in source and "DDTREE" not in source


def test_the_recorded_flags_of_the_real_engine_are_those_of_its_parser() -> None:
    listed = Path(ROOT / "roles/simulated_host/files/site/sglang/sim/flags.txt").read_text().splitlines()
    recorded = {line.split()[0].rstrip(",") for line in listed if line.startswith("--")} - {"--speculative-ddtree-budget"}
    of_the_command = {"--metrics-host", "--metrics-port", "--servicer-impl"}  # `sglang serve` adds these to its parser
    assert recorded - set(parsed("0.5.17", [], {})["options"]) == of_the_command
