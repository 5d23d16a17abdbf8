"""sglang_service under real systemd: each fault of tests/faults.yml, what it reports and when, and what the host is like afterwards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from remotehost import Remote

CERTAIN = 2.0  # seconds from the sign that makes a failure certain to its report
TABLE = yaml.safe_load((Path(__file__).resolve().parents[2] / "tests" / "faults.yml").read_text())
FAULTS = [one for one in TABLE if "systemd" in one.get("managers", "systemd")]
TIMEOUTS = {"stop": "stop_timeout", "release": "release_timeout", "load": "ready_timeout", "generate": "generate_timeout"}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.fixture(params=FAULTS, ids=lambda fault: fault["name"].replace(" ", "-"))
def fault(request: pytest.FixtureRequest, host: Remote) -> Any:
    """The row; before and after it nothing is wrong with the host."""
    host.faults()
    yield request.param
    host.faults()
    host.sh(request.param.get("undo", "true"), check=False)


def test_fault(host: Remote, asked: dict[str, Any], fault: dict[str, Any]) -> None:
    before = host.module(state="started", **asked)
    assert before.get("ready", {}).get("completion_tokens") == 32, before
    host.sh(fault.get("prepare", "true"))
    host.faults(**fault.get("faults", {}))
    held = fault.get("hold")
    holder = host.hold(held["gpu"], held["mib"]) if held else 0

    after = host.module(**{"state": "restarted", **asked, **fault.get("options", {})})

    if holder:
        host.sh(f"kill {holder}")  # fails where a foreign process was killed before
    if "cause" in fault:
        failed_as_it_should(host, asked, fault, before, after)
    else:
        ready_as_it_should(host, fault, before, after)


def ready_as_it_should(host: Remote, fault: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    assert not after.get("failed"), after
    assert after["changed"] == fault.get("changed", True), after
    assert (after["instance"]["after"] != before["instance"]["after"]) == after["changed"]
    assert after["ready"]["completion_tokens"] == 32 and after["ready"]["http_status"] == 200
    assert sum(one["seconds"] for one in after["phases"]) >= fault.get("least", 0)
    seen = host.look()
    assert seen["unit"]["InvocationID"] == after["instance"]["after"]
    assert seen["port_pid"] == after["pid"]["after"] == int(seen["unit"]["MainPID"])
    assert set(map(int, seen["engines"])) == set(seen["pids"]), "an engine's process outside the unit"
    if after["changed"]:
        assert after["killed"] == fault.get("killed", False)


def failed_as_it_should(host: Remote, asked: dict[str, Any], fault: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    assert after.get("failed"), after
    said = (after["phase"], after["cause"], after["msg"])
    assert after["cause"] in listed(fault["cause"]) and after["phase"] in listed(fault["phase"]), said
    assert after["remedy"] and after["msg"]
    last, record = after["phases"][-1], host.record()
    seen = host.look((record["started"] or {}).get("invocation", ""))
    assert last["name"] == after["phase"]
    assert record["last_failure"]["cause"] == after["cause"]
    if "sign" in fault:
        certain = [one["seconds"] for one in seen["journal"] if re.search(fault["sign"], one["line"])]
        assert certain, seen["journal"]
        assert after["_ended"] - certain[0] <= CERTAIN, (after["_ended"] - certain[0], after)
        assert after["log_tail"]
    else:
        allowed = {**asked, **fault.get("options", {})}.get(TIMEOUTS.get(after["phase"], ""), 0)
        if after["phase"] == "load":  # a load gets twice what it last took, if that is more
            allowed = max(allowed, *(2 * one.get("load_seconds", 0) for one in record["history"].values()))
        assert last["seconds"] <= allowed + CERTAIN, last
    if fault.get("running"):
        assert seen["port_pid"] == before["pid"]["after"], "the running server was touched"
        assert seen["unit"]["InvocationID"] == before["instance"]["after"]
    assert set(map(int, seen["engines"])) <= set(seen["pids"]), "an engine's process outside the unit"
    if after["phase"] == "release":
        assert not seen["engines"], "something was started although the VRAM is held"
    if after["cause"] in ("crashed", "crash_loop", "out_of_memory", "bad_flags"):
        assert seen["unit"]["ActiveState"] in ("failed", "inactive", "deactivating"), f"it would start again: {seen['unit']}"
