"""The state of a fleet: one word a host, one table, one verdict."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree import fleet


def seen(**other: Any) -> dict[str, Any]:
    return {
        "serving": True, "drift": [], "reason": "", "unclear": "", "loaded": "aaa", "declared": "aaa", "since": 1000.0, "at": 4600.0,
        "health": "32 tokens in 0.25 s", "vram_mib": [600, 71000], "accept_length": 3.81, "tok_s": 139.0, "version": "0.5.23",
        "release": "x", "lease": {}, "restarts": 0, **other,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (seen(), "ok"),
        (seen(drift=["configuration aaa runs, bbb is asked"], declared="bbb"), "drift"),
        (seen(serving=False, reason="the unit is failed"), "down"),
        (seen(serving=False, drift=["x"]), "down"),
        ({}, "silent"),
        ({"failed": "no route"}, "silent"),
    ],
)
def test_each_host_has_one_word(one: dict[str, Any], state: str) -> None:
    assert fleet.state_of(one) == state
    assert fleet.row("gpu01", one)[1] == state


def test_the_table_tells_drift_lease_and_silence() -> None:
    lease = {"who": "ada@ops1", "what": "a deploy", "until": 0.0}
    hosts = {
        "gpu01": seen(lease=lease),
        "gpu02": seen(declared="bbb", drift=["configuration aaa runs, bbb is asked"], restarts=2),
        "gpu03": {"failed": "Failed to connect\nto the host"},
    }
    lines = fleet.table(hosts)
    assert len(lines) == 4 and lines[0].startswith("host")
    assert "ada@ops1 for a deploy until 1970-01-01 00:00:00 UTC" in lines[1] and "1 h" in lines[1] and "600-71000" in lines[1]
    assert "aaa (not bbb)" in lines[2] and "2 automatic restarts" in lines[2]
    assert lines[3].split() == ["gpu03", "silent", "Failed", "to", "connect", "to", "the", "host"]


def test_an_empty_column_is_left_out() -> None:
    assert "lease" not in fleet.table({"gpu01": seen()})[0].split()


def test_the_worst_host_makes_the_verdict() -> None:
    assert fleet.verdict({"a": seen(), "b": seen()}) == {
        "states": {"ok": ["a", "b"], "drift": [], "down": [], "silent": []}, "worst": "ok", "said": "",
    }  # fmt: skip
    worst = fleet.verdict({"a": seen(), "b": seen(drift=["x"]), "c": seen(serving=False), "d": {}})
    assert worst["worst"] == "silent" and worst["said"] == "silent: d; down: c; drift: b"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"changed": False, "status": {"active": "active", "serving": True}}, {"active": "active", "serving": True}),
        (
            {"failed": True, "msg": "MODULE FAILURE", "module_stderr": "no such python\n"},
            {"failed": "no such python", "unclear": "no such python"},
        ),
        ({"unreachable": True, "msg": "no route to host"}, {"failed": "no route to host", "unclear": "no route to host"}),
        ({"failed": True}, {"failed": "no answer", "unclear": "no answer"}),
        ({}, {}),
    ],
)
def test_a_look_that_failed_is_told_and_one_that_was_never_taken_is_not(answer: dict[str, Any], status: dict[str, Any]) -> None:
    assert fleet.status_of(answer) == status
