"""The whole coding check against the simulated engine: every task, some answered wrongly, cut or with hostile programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible
import pytest
from simhost import Engine, Host

from ddtree.coding_set import ALL
from ddtree.lossless import CHANGED, LOSSLESS, compare, words

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def engine(shared_sim: Host) -> Iterator[Engine]:
    yield shared_sim.start(budget=12, window=2048).wait_up()


def check(engine: Engine, **options: Any) -> dict[str, Any]:
    """The section `coding` that the module gives, run as a program of its own."""
    paths = f"import sys, ansible.module_utils; ansible.module_utils.__path__.append({str(ROOT / 'module_utils')!r})"
    run = f"{paths}; sys.argv = ['m']; import runpy; runpy.run_path({str(ROOT / 'library' / 'sglang_codecheck.py')!r}, run_name='__main__')"
    given = json.dumps({"ANSIBLE_MODULE_ARGS": {"url": engine.url, **options}})
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": str(Path(ansible.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", run], input=given, capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    told: dict[str, Any] = json.loads(done.stdout)
    assert not told.get("failed"), told
    found: dict[str, Any] = told["coding"]
    return found


def test_every_task_and_what_a_change_of_answers_looks_like(engine: Engine, shared_sim: Host) -> None:
    shared_sim.faults(speed=50)
    control = check(engine, tasks=["all"])
    assert (control["passed"], control["total"], control["truncated"], control["asked_again"]) == (len(ALL), len(ALL), 0, 1), [
        (one["name"], one["outcome"], one["detail"]) for one in control["tasks"] if one["outcome"] != "passed"
    ]
    assert [one["name"] for one in control["tasks"]] == [task.name for task in ALL]
    assert control["sandbox"] in ("systemd", "bwrap", "unshare")
    # the longest program takes more than the first limit
    assert [one["name"] for one in control["tasks"] if one.get("asked_again")] == ["parse_json"]
    same = compare(control, check(engine, tasks=["all"]))
    assert same["verdict"] == LOSSLESS and same["same"] == len(ALL) and same["tokens"] > 5000
    shared_sim.faults(speed=50, coding={"life": "wrong", "to_html": "truncated", "median": "empty", "chunks": "hostile", "gcd": "hostile"})
    hurt = check(engine, tasks=["all"], max_tokens=2048, more_tokens=3000)
    shared_sim.faults()
    outcomes = {one["name"]: one["outcome"] for one in hurt["tasks"] if one["outcome"] != "passed"}
    assert outcomes.pop("chunks") in ("timeout", "error", "failed") and outcomes.pop("gcd") in ("timeout", "error", "failed")
    assert outcomes == {"life": "failed", "to_html": "truncated", "median": "empty"}
    assert (hurt["passed"], hurt["truncated"], hurt["asked_again"]) == (len(ALL) - 5, 1, 1)
    found = compare(control, hurt)
    assert sorted(found["worse"]) == ["chunks", "gcd", "life", "median", "to_html"] and found["better"] == []
    assert found["parted"] == 4 and found["verdict"] in (LOSSLESS, CHANGED) and found["first"]["name"] in words(found)


def test_all_answers_changed_is_no_tie(engine: Engine, shared_sim: Host) -> None:
    shared_sim.faults(speed=50)
    control = check(engine, tasks=["short"])
    shared_sim.faults(speed=50, coding="wrong")
    changed = check(engine, tasks=["short"])
    shared_sim.faults()
    found = compare(control, changed)
    assert changed["passed"] == 0 and found["verdict"] == CHANGED and "near ties explain" in found["why"]


def test_a_name_that_is_none_fails_before_anything_is_asked(engine: Engine) -> None:
    with pytest.raises(AssertionError, match="lief is no coding task or set; did you mean life"):
        check(engine, tasks=["lief"])
