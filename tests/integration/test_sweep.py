"""A sweep on a simulated host as a person types it: failures are results, Ctrl-C ends in good order, the same command goes on."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from localplay import ROOT, Local


@pytest.fixture(scope="module")
def serving(local: Local) -> Local:
    """The host, serving budget 8, topk 4 from an earlier sweep."""
    local.sweep(budget=8, topk=4, sweep_name="first")
    return local


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    host = Local(tmp_path_factory.mktemp("sweep"))
    yield host
    host.close()


def test_check_mode_shows_the_plan_and_touches_nothing(local: Local) -> None:
    done = subprocess.run([*local.command(budget="8,12", topk=6, sweep_name="plan"), "--check"], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "NO_COLOR": "1"}, check=True)  # fmt: skip
    for told in ("4 engine configurations, 4 to measure", "b8-k6-w2048", "none (control)", "dflash-w2048 (control)",
                 "expected wall time: unknown", "at the end each host serves the best point"):  # fmt: skip
        assert told in done.stdout
    assert not local.root.exists() and not local.results.exists()


def test_failures_are_results_and_the_others_are_ranked(serving: Local) -> None:
    local = serving

    def state(name: str, **faults: Any) -> dict[str, str]:
        """A copy of the simulated host's state in which something is wrong, for one point alone."""
        copy = local.folder / name
        shutil.copytree(local.root / "sim" / "state", copy, dirs_exist_ok=True)
        (copy / "faults.json").write_text(json.dumps(faults))
        return {"DDTREE_SIM_STATE": str(copy)}

    points = [
        {"budget": 8, "topk": 4},
        {"budget": 9, "topk": 4, "extra_env": state("oom", out_of_memory=True)},
        {"budget": 10, "topk": 4, "extra_args": "--no-such-flag 1"},
        {"budget": 11, "topk": 4, "extra_env": state("hang", load_hangs=True)},
        {"budget": 12, "topk": 4},
    ]
    said = local.sweep(points=points, sweep_name="faults", sweep_controls=False)
    causes = {}
    for path in sorted((local.results / "faults" / "local").glob("*.json")):
        record = json.loads(path.read_text())
        if record["status"] == "failed":
            causes[record["point"]["budget"]] = record["failure"]
    assert {budget: one["cause"] for budget, one in causes.items()} == {9: "out_of_memory", 10: "bad_flags", 11: "load_timeout"}
    told = re.search(r"b10-k4-w2048-x\w{6} will not be started: .* it has no flag --no-such-flag\.", said)
    assert told and told.start() < said.index("PLAY [Open the sweep]"), "told before the first start"
    assert "OutOfMemoryError" in "".join(causes[9]["log_tail"]), "the evidence is kept"
    assert all(one["message"] for one in causes.values())
    assert "[WARNING]: 3 of 5 points could not be measured" in said
    document = json.loads((local.results / "faults" / "report.json").read_text())
    assert [(one["point"]["budget"], one["rank"]) for one in document["points"] if one["rank"]] in ([(8, 1), (12, 2)], [(12, 1), (8, 2)])
    restarts = [one for one in local.events("faults") if one["event"] == "loaded"]
    assert restarts[0]["changed"] is False, "what the first sweep left is measured first, without a restart"


def test_cells_that_do_not_fit_are_told_and_the_others_measured(serving: Local) -> None:
    loaded = copy.copy(serving)
    loaded.play = "benchmark.yml"
    said = loaded.sweep(sweep_name="loaded", benchmark_contexts=[60, 1000000], benchmark_rates=[4])
    record = loaded.record("loaded", "loaded")
    assert [(one["context"], one["concurrency"]) for one in record["cells"]] == [(60, 1)]
    assert [(one["context"], one["rate"]) for one in record["open_loop"]] == [(60, 4)]
    assert [(one["context"], one.get("rate")) for one in record["not_run"]] == [(1000000, None), (1000000, 4)]
    assert all("context 1000000 with 32 output tokens cannot be measured" in one["reason"] for one in record["not_run"])
    assert "cell 3 of 4, ctx 60, 4 requests/s" in said and said.count("ctx 1000000, C 1 could not be measured: context") == 1


def test_ctrl_c_ends_in_good_order_and_the_same_command_goes_on(serving: Local) -> None:
    local = serving
    asked: dict[str, Any] = {"budget": "13,14", "topk": 4, "sweep_name": "stopped", "sweep_controls": False, "sweep_finally": "previous"}
    served = json.loads((local.root / "state" / "ddtree.json").read_text())["started"]["config_id"]
    process = local.start(**asked)
    end = time.monotonic() + 200
    while not any(one["event"] == "cell" for one in local.events("stopped")):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out = " ".join(process.communicate(timeout=200)[0].split())
    assert process.returncode == 2 and "Once more ends at once" in out
    assert "The sweep was stopped by Ctrl-C" in out and "the same command goes on from there" in out
    assert json.loads((local.root / "state" / "ddtree.json").read_text())["started"]["config_id"] == served, "left as it was"
    first = local.record("stopped", "b13-k4-w2048")
    assert first["cells"] and not (local.results / "stopped" / "local" / "b14-k4-w2048.json").exists()
    local.sweep(**asked)
    assert [local.record("stopped", f"b{budget}-k4-w2048")["status"] for budget in (13, 14)] == ["ok"] * 2


def test_another_matrix_is_noticed_and_never_mixed_in(local: Local) -> None:
    asked: dict[str, Any] = {"budget": 13, "topk": 4, "sweep_name": "stopped", "sweep_controls": False, "sweep_finally": "stop"}
    said = local.sweep(**{**asked, "benchmark_output_tokens": 24})
    assert "b13-k4-w2048 was measured with benchmark_output_tokens 32, now 24: it is measured again, the old result is put aside" in said
    assert local.record("stopped", "b13-k4-w2048")["matrix"]["output_tokens"] == 24
    assert (local.results / "stopped" / "local" / ".superseded" / "b13-k4-w2048.1.json").exists()
    assert len(json.loads((local.results / "stopped" / "report.json").read_text())["points"]) == 2
