"""sglang_service under real supervisord against the simulated engine: each fault of tests/faults.yml, and its promises."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from simhost import ROOT
from supervised import Unit

FAULTS = [one for one in yaml.safe_load((ROOT / "tests" / "faults.yml").read_text()) if "supervisor" in one.get("managers", "supervisor")]
KEY = "sk-sentinel-4711"


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"].replace(" ", "-"))
def test_fault(unit: Unit, fault: dict[str, Any]) -> None:
    before = unit.run("started")
    assert before.get("ready", {}).get("completion_tokens") == 32, before
    unit.host.faults(**fault.get("faults", {}))
    held = fault.get("hold")
    holder = unit.host.hold("--gpu", str(held["gpu"]), "--mib", str(held["mib"])) if held else None
    began = time.monotonic()
    after = unit.run(**fault.get("options", {}))
    seconds = time.monotonic() - began
    if holder:
        assert holder.poll() is None, "a foreign process was killed"
        holder.kill()
        holder.wait()
    if "cause" in fault:
        assert after.get("failed"), after
        assert after["cause"] in listed(fault["cause"]), after
        assert after["phase"] in listed(fault["phase"]), after
        assert after["remedy"] and after["msg"]
    else:
        assert not after.get("failed"), after
        assert after["instance"]["after"] != before["instance"]["after"]
        assert after["ready"]["weight_version"] == "cfg1"
        assert max(after["vram_mib"]["after"]) > 60_000
        assert after["killed"] == fault.get("killed", False)
    assert seconds >= fault.get("least", 0)
    if fault.get("running"):
        unit.host.faults()
        assert unit.run("probed")["instance"]["before"] == before["instance"]["after"], "the running server was touched"


def test_started_is_idempotent_and_follows_a_changed_flag(unit: Unit) -> None:
    first = unit.run("started")
    assert first["changed"]
    second = unit.run("started")
    assert not second["changed"] and second["pid"]["after"] == first["pid"]["after"]
    unit.write("cfg1", "--decode-log-interval", "10")
    predicted = unit.run("started", _ansible_check_mode=True)
    assert predicted["changed"] and "definition" in predicted["reason"] and "--decode-log-interval" in predicted["diff"]["after"]
    third = unit.run("started")
    assert third["changed"] and third["pid"]["after"] != first["pid"]["after"]


def test_a_second_run_is_told_who_is_busy(unit: Unit) -> None:
    unit.host.faults(load_seconds=4)
    first = unit.run("started", wait=False, runner="alice@deploy1")
    time.sleep(1.5)
    second = unit.run("started", runner="bob@deploy2")
    assert second["cause"] == "busy" and "alice@deploy1" in second["msg"]
    assert json.loads(first.stdout.read())["ready"]["completion_tokens"] == 32
    first.wait(10)


@pytest.mark.parametrize("after", [0.4, 1.2, 3.0, 4.2, 6.0])
def test_killed_at_any_time_the_next_run_finishes_with_one_engine(unit: Unit, after: float) -> None:
    unit.run("started")
    unit.host.faults(drain_seconds=1, vram_linger_seconds=1, load_seconds=2, models_before_generate_seconds=1)
    first = unit.run("restarted", wait=False)
    time.sleep(after)
    first.kill()
    first.wait(10)
    done = unit.run("started")
    assert done["ready"]["completion_tokens"] == 32, done
    mains = [pid for pid in unit.pids() if b"launch_server" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert mains == [done["pid"]["after"]], "no orphan and no second engine"


def test_no_key_in_any_output(unit: Unit) -> None:
    unit.write("cfg1", "--api-key", KEY)
    assert KEY not in json.dumps(unit.run("started", api_key=KEY))
    wrong = unit.run("restarted", api_key="another")
    assert wrong["cause"] == "generation_failed" and "401" in wrong["msg"]
    unit.host.faults(wrong_config=True)
    unit.write("cfg1", "--api-key", KEY, "--decode-log-interval", "11")
    failed = unit.run("started", api_key=KEY, _ansible_diff=True)
    assert failed["cause"] == "config_mismatch"
    stored = "".join(path.read_text() for path in (unit.folder / "st").iterdir())
    for text in (json.dumps(wrong), json.dumps(failed), stored):
        assert KEY not in text
