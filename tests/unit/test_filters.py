"""The filters and modules as Ansible runs them: plain values out, one sentence when refused, check mode that
writes nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ddtree.points import Point
from sweeps import record, store

ROOT = Path(__file__).resolve().parents[2]
ENGINE = {
    "python": "/p",
    "model": "/m",
    "drafter": "/d",
    "block_size": "8",
    "port": "31000",
    "api_key": True,
    "extra_args": [],
    "extra_env": {"A": "1"},
}


def loaded(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_under_test", ROOT / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILTERS = loaded("filter_plugins/ddtree.py").FilterModule().filters()


def run_record(check: bool = False, **args: Any) -> dict[str, Any]:
    """The action sweep_record, without a play around it."""
    action = loaded("action_plugins/sweep_record.py")
    asked = {name: args.get(name, option.get("default")) for name, option in action.SPEC.items()}
    return dict(action.apply(asked, check))


def test_points_to_launch_to_unit() -> None:
    points = FILTERS["ddtree_points"]({"budget": "12", "topk": "4,6"}, {"tp": "4"})
    assert [one["name"] for one in points] == ["b12-k4-w2048-tp4", "b12-k6-w2048-tp4"]
    runs = FILTERS["ddtree_collapse"](points, ENGINE)
    assert [(run["point"]["name"], run["aliases"]) for run in runs] == [("b12-k4-w2048-tp4", ["b12-k6-w2048-tp4"])]
    launch = FILTERS["ddtree_launch"](points[0], ENGINE)
    assert launch == runs[0]["launch"] and json.loads(json.dumps(launch)) == launch
    assert set(launch) == {
        "argv",
        "env",
        "config_id",
        "derived",
        "expect",
        "log_proofs",
        "warnings",
        "secret_flags",
        "asked",
        "key",
    }
    assert launch["asked"] == [*launch["argv"][3:], "--api-key", "hidden"]
    text = FILTERS["ddtree_systemd_exec"](launch["argv"])
    assert text.startswith("/p \\\n") and "api-key" not in text
    assert FILTERS["ddtree_supervisor_command"](launch["argv"]).startswith("/p -m sglang.launch_server ")
    assert FILTERS["ddtree_env_line"]("a$b", "X") == 'X="a\\$b"'
    assert FILTERS["ddtree_supervisor_env"]({"B": "1", "A": "50%"}) == 'A="50%%",B="1"'


def test_dialects_of_ones_own_reach_every_filter() -> None:
    own = {"mine": {"axes": ["budget"], "needs": ["budget"], "args": [["--b", "{budget}"]]}}
    point = FILTERS["ddtree_points"]({"dialect": "mine", "budget": 3}, {}, own)[0]
    assert "--b" in FILTERS["ddtree_launch"](point, ENGINE, own)["argv"]
    assert FILTERS["ddtree_collapse"]([point], ENGINE, own)[0]["aliases"] == []


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        (
            "ddtree_points",
            ({"budget": "twelve"},),
            "budget=twelve: a whole number is wanted, as in budget=12",
        ),
        (
            "ddtree_launch",
            ({"budget": 12}, {"python": "/p"}),
            "the server has no model: set ddtree_server_model",
        ),
        (
            "ddtree_collapse",
            ([{"dialect": "dflash", "window": 2}], ENGINE),
            "dflash-w2: window=2 is below the drafter's block size of 8: the engine would refuse to start",
        ),
        (
            "ddtree_env_line",
            ("a\nb", "X"),
            "the value of X has the character U+000A, which a unit file cannot hold",
        ),
        ("ddtree_points", ({"budget": 1}, {}, {"x": {"y": 1}}), "ddtree_server_dialects.x has the unknown key 'y'"),
    ],
)
def test_a_refusal_is_its_sentence(name: str, args: tuple, said: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        FILTERS[name](*args)
    assert str(caught.value).startswith(said)


def test_filters_in_a_real_play(tmp_path: Path) -> None:
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {
                "ansible_python_interpreter": sys.executable,
                "engine": {**ENGINE, "port": "{{ 31000 }}", "api_key": "{{ 'x' | length > 0 }}"},
            },
            "tasks": [
                {
                    "name": "Read",
                    "ansible.builtin.set_fact": {
                        "found": "{{ {'budget': budget, 'window': window | default('default')} | ddtree_points }}"
                    },
                },
                {
                    "name": "Write",
                    "ansible.builtin.copy": {
                        "dest": str(tmp_path / "out"),
                        "content": "{{ found | ddtree_collapse(engine) | to_json }}",
                    },
                },
            ],
        }
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))

    def run(extra: str) -> subprocess.CompletedProcess[str]:
        command = [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            "localhost,",
            str(tmp_path / "play.yml"),
            "-e",
            extra,
        ]
        env = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(tmp_path / "home"),
        }
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)

    done = run("budget=8,12")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads((tmp_path / "out").read_text())
    assert [one["point"]["name"] for one in runs] == ["b8-w2048", "b12-w2048"]
    assert runs[0]["launch"]["secret_flags"] and "31000" in runs[0]["launch"]["argv"]
    (tmp_path / "out").unlink()
    refused = run("budget=twelve")
    assert refused.returncode != 0 and "budget=twelve: a whole number is wanted" in refused.stdout + refused.stderr
    assert not (tmp_path / "out").exists()


# -- modules


def test_sweep_record_merges_and_is_honest(tmp_path: Path) -> None:
    path = tmp_path / "s" / "h" / "b8.json"
    first = {"config_id": "a", "cells": [{"context": 60, "concurrency": 1, "output_tok_s": 1.5}]}
    plan = run_record(check=True, path=str(path), record=first)
    assert plan["changed"] and not path.exists() and '"output_tok_s": 1.5' in plan["diff"]["after"]
    assert run_record(path=str(path), record=first)["changed"]
    again = run_record(path=str(path), record=first)
    assert (again["changed"], again["cells"], again["status"]) == (False, 1, "")
    with pytest.raises(ValueError, match="status is 'fine', one of ok, failed, skipped is wanted"):
        run_record(path=str(path), record={"status": "fine"})
    gone = run_record(check=True, path=str(path), state="absent")
    assert gone["changed"] and path.exists()
    assert run_record(path=str(path), state="absent")["changed"] and not path.exists()
    assert not run_record(path=str(path), state="absent")["changed"]


def test_sweep_record_leaks_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "h" / "x.json"
    told = {"engine": {"resolved": {"api_key": "hunter2secret", "launch_command": "--api-key hunter2secret"}}}
    result = run_record(path=str(path), record=told, secrets=["hunter2secret"])
    assert "hunter2secret" not in json.dumps(result) and "hunter2secret" not in path.read_text()
    assert "--api-key ***" in path.read_text()


def test_sweep_report_writes_once(tmp_path: Path) -> None:
    action = loaded("action_plugins/sweep_report.py")

    def run(check: bool = False, **given: Any) -> dict[str, Any]:
        asked = {name: given.get(name, option.get("default")) for name, option in action.SPEC.items()}
        return dict(action.write(asked, check))

    folder, origin = str(store(tmp_path / "s", record(Point(budget=12, topk=6)), record(Point(budget=8), 0.9))), ROOT / "sweeps"
    plan = run(check=True, dir=folder)
    assert not plan["changed"] and not (tmp_path / "s" / "report.html").exists() and plan["best"]["name"] == "b12-k6-w2048"
    first = run(dir=folder, baseline=str(origin / "baseline-origin.json"))
    assert first["changed"] and Path(first["html"]).is_file() and any("b12-k6-w2048 is the best" in line for line in first["table"])
    assert not run(dir=folder, baseline=str(origin / "baseline-origin.json"))["changed"]
    for option, value, said in (
        ("objective", "fastest", "'fastest' is no objective"),
        ("baseline", "/nowhere", "cannot be read"),
        ("dir", "/nowhere", "no folder of results"),
    ):
        given: dict[str, Any] = {"dir": folder, option: value}
        with pytest.raises((action.ResultError, action.RankingError, OSError), match=said):
            run(**given)
