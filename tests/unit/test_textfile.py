"""The toolkit's figures for Prometheus: what they say in each state, and that rules and dashboard ask for nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "roles" / "observability" / "files"
METRICS = ROOT / "roles" / "simulated_host" / "files" / "site" / "sglang" / "sim" / "metrics_table.json"
_spec = importlib.util.spec_from_file_location("textfile", FILES / "textfile.py")
assert _spec and _spec.loader
textfile = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(textfile)

EXEC = "{ path=/opt/x/bin/python ; argv[]=/opt/x/bin/python -m sglang.launch_server --weight-version 5f1c0a9be234 --port 30000 ; }"
ACTIVE = {"ActiveState": "active", "NRestarts": "0", "ExecStart": EXEC}
READY = {"started": {"proof": "ready", "config_id": "5f1c0a9be234"}}


def figures(state: dict[str, str], record: dict[str, Any], info: dict[str, Any], **more: Any) -> dict[str, tuple[dict[str, str], float]]:
    given = {"soak": {}, "lease": {}, "now": 1000.0, **more}
    return {name: (labels, value) for name, labels, value in textfile.samples("ddtree", state, record, info=info, **given)}


def test_one_that_runs_as_declared() -> None:
    found = figures(
        ACTIVE, READY, {"weight_version": "5f1c0a9be234", "version": "0.5.23"}, soak={"tok_s": 139.0, "config_id": "5f1c0a9be234"}
    )
    assert found["ddtree_up"][1] == 1 and found["ddtree_drift"][1] == 0
    assert found["ddtree_info"][0] == {"unit": "ddtree", "loaded": "5f1c0a9be234", "declared": "5f1c0a9be234", "version": "0.5.23"}
    assert found["ddtree_last_outcome"][0] == {"unit": "ddtree", "outcome": "ready", "cause": ""}
    assert found["ddtree_soak_tokens_per_second"][1] == 139.0 and "ddtree_lease_until_seconds" not in found


def test_another_configuration_than_declared_is_drift() -> None:
    assert figures(ACTIVE, READY, {"weight_version": "aaaaaaaaaaaa"})["ddtree_drift"][1] == 1


def test_one_that_crashes_is_down_and_no_drift() -> None:
    record = {"started": {"proof": "failed"}, "last_failure": {"cause": "crash_loop"}}
    found = figures({**ACTIVE, "ActiveState": "activating", "NRestarts": "3"}, record, {})
    assert (found["ddtree_up"][1], found["ddtree_drift"][1], found["ddtree_restarts_total"][1]) == (0, 0, 3)
    assert found["ddtree_last_outcome"][0]["cause"] == "crash_loop"


def test_a_lease_counts_until_its_time_is_over() -> None:
    lease = {"who": 'ada "x"', "what": "a deploy", "until": 1001.0}
    found = textfile.samples("ddtree", ACTIVE, READY, {}, lease, {}, 1000.0)
    assert 'ddtree_lease_until_seconds{unit="ddtree",who="ada \\"x\\"",what="a deploy"} 1001.0' in textfile.text(found)
    assert "ddtree_lease_until_seconds" not in figures(ACTIVE, READY, {}, lease={**lease, "until": 999.0})


def test_rules_and_dashboard_ask_only_for_what_is_there() -> None:
    engine = {name for name, *_ in json.loads(METRICS.read_text())}
    known = set(textfile.HELP) | engine | {f"{name}_bucket" for name in engine}
    rules = [rule["expr"] for group in yaml.safe_load((FILES / "rules.yml").read_text())["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in json.loads((FILES / "dashboard.json").read_text())["panels"] for target in panel["targets"]]
    asked = {name for one in [*rules, *panels] for name in re.findall(r"\b(?:ddtree_|sglang:)\w+", one)}
    assert len(asked) > 12 and asked <= known, asked - known
