"""A study on simulated hosts as a person types it: killed and gone on with, shared by three hosts, refused where it cannot be."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from localplay import ROOT, Local
from simhost import FILES, free_port

sys.path.insert(0, str(FILES / "site"))
from sglang.sim.speed import config, output_tok_s

KILLS = int(os.environ.get("TUNE_KILLS", "2"))
SPACE: dict[str, Any] = {"budget": [4, 8, 16, 32], "topk": 2, "window": [512, 2048]}
ASKED: dict[str, Any] = {**SPACE, "tune_objective": "single-user", "tune_minutes": 120, "sweep_controls": False, "sweep_name": "study",
                         "benchmark_contexts": [60, 256]}  # fmt: skip
NOISE = 0.04  # of a cell of a few short answers on a busy machine


def truth(name: str) -> float:
    """The simulated engine's own speed of a point, geometric mean over the contexts."""
    point = {part[0]: part[1:] for part in name.partition("@")[0].split("-")}
    engine = config(int(point["b"]), int(point["k"]), int(point["w"]))
    return float((output_tok_s(engine, 60, 1) * output_tok_s(engine, 256, 1)) ** 0.5)


BEST = max(truth(f"b{budget}-k2-w{window}") for budget in SPACE["budget"] for window in SPACE["window"])


def study(host: Local, name: str = "study") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((host.results / name / "tune.json").read_text())
    return found


def best(host: Local, name: str = "study") -> str:
    return str(json.loads((host.results / name / "report.json").read_text())["best"])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    host = Local(tmp_path_factory.mktemp("tune"), "tune.yml")
    yield host
    host.close()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tune_objective": "singleuser"}, "did you mean single-user"),
        ({"tune_minutes": "soon"}, "tune_minutes is 'soon'"),
        ({"tune_minute": 5}, "tune_minute is not an option of tune.yml"),
        ({"budget": 8, "window": 2048}, "tuning chooses among several"),
        ({"tune_concurrency": 7}, "tune_concurrency is 7"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(local: Local, asked: dict[str, Any], said: str) -> None:
    assert said in local.sweep(2, **{**ASKED, **asked})
    assert not local.root.exists() and not local.results.exists()


def test_killed_at_random_moments_it_goes_on_and_ends_with_the_same_best(local: Local) -> None:
    rng = random.Random(os.environ.get("TUNE_SEED", "9"))
    for _ in range(KILLS):
        process = local.start(**ASKED)
        end = time.monotonic() + rng.uniform(8, 45)
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        if process.poll() is None:
            local.kill(process)
        else:
            process.communicate()
    said = local.sweep(**ASKED)
    found = study(local)
    states = [one["state"] for one in found["trials"]]
    assert set(states) <= {"ok", "cut"}, "each start that was begun was gone on with"
    screens = [one["name"] for one in found["trials"] if one["stage"] == "screen"]
    assert len(screens) == len(set(screens)), "nothing was asked twice"
    assert len(found["trials"]) == len({(one["host"], one["run"]) for one in found["trials"]})
    assert truth(best(local)) >= BEST * (1 - NOISE), best(local)
    whole = [one for one in found["trials"] if one["name"] == best(local) and one["stage"] == "whole"]
    assert len(whole) >= 2 and "within 2% of the best" in said
    vars_file = yaml.safe_load((local.results / "latest" / "best.yml").read_text())
    assert f"b{vars_file['budget']}-k{vars_file['topk']}-w{vars_file['window']}" == best(local)


def test_a_study_that_has_ended_starts_nothing_more(local: Local) -> None:
    before = len(study(local)["trials"])
    local.sweep(**ASKED)
    assert len(study(local)["trials"]) == before and study(local)["ended"]


def test_three_hosts_share_one_study(tmp_path: Path) -> None:
    inventory = tmp_path / "three.yml"
    names = ("h0", "h1", "h2")
    same = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    variables = {name: {**same, "local_root": str(tmp_path / name), "ddtree_server_port": free_port()} for name in names}
    inventory.write_text(yaml.safe_dump({"simulated_hosts": {"hosts": variables}}))
    fleet = Local(
        tmp_path, "tune.yml", ("-i", str(ROOT / "inventory" / "local"), "-i", str(inventory), "--limit", ",".join([*names, "localhost"]))
    )
    for key in ("local_root", "ddtree_server_port"):
        del fleet.given[key]
    try:
        fleet.sweep(**{**ASKED, "ddtree_server_ready_timeout": 60})
        found = study(fleet)
        assert {one["host"] for one in found["trials"]} == set(names), "each host took part"
        screens = [one["name"] for one in found["trials"] if one["stage"] == "screen"]
        assert len(screens) == len(set(screens)), "nothing was asked twice"
        assert truth(best(fleet)) >= BEST * (1 - NOISE)
        working: set[str] = set()
        together = 0
        for event in fleet.events("study"):
            if event["event"] == "point":
                working.add(event["host"])
                together = max(together, len(working))
            elif event["event"] == "point_ended":
                working.discard(event["host"])
        assert together == 3, "all three were at work at once"
    finally:
        for name in names:
            fleet.root = tmp_path / name
            fleet.close()
