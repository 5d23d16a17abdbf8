"""A rollout of one local simulated host by each ansible-core, through each of its ends: deployed, rolled back, lost, refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from localfleet import BIN, ROOT, LocalFleet

NEWER = "2.21.5"  # needs Python 3.12, while the project's own environment may be of 3.11
BAD = {"budget": 15, "topk": 6, "tp": 1, "extra_args": "--mem-fraction-static 0.01"}


def newer() -> Path:
    """The folder of the newer ansible-core's programs, in an environment of its own, made once."""
    made = ROOT / ".cache" / f"ansible-core-{NEWER}"
    if not (made / "whole").exists():
        pythons = ["python3.14", "python3.13", "python3.12", *map(str, sorted(Path.home().glob(".pyenv/versions/3.1[2-4].*/bin/python")))]
        python = next((one for one in pythons if shutil.which(one) and run(one, "--version").returncode == 0), "")
        if not python:
            pytest.skip(f"ansible-core {NEWER} needs Python 3.12 or newer, which is not here")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        asked = made / "requirements.txt"
        asked.write_text(re.sub(r"(?m)^ansible-core==.*$", f"ansible-core=={NEWER}", (ROOT / "requirements.txt").read_text()))
        for words in ([python, "-m", "venv", str(made)], [str(made / "bin" / "pip"), "install", "--quiet", "-r", str(asked)]):
            done = run(*words)
            assert done.returncode == 0, f"ansible-core {NEWER}: {done.stderr[-500:]}"
        (made / "whole").touch()
    return made / "bin"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=["own", NEWER])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    programs = BIN if request.param == "own" else newer()
    assert NEWER in run(str(programs / "ansible-playbook"), "--version").stdout or programs == BIN
    one = LocalFleet(tmp_path_factory.mktemp("fleet"), 1)
    one.programs = programs
    try:
        one.play("site", "-e", "budget=12 topk=6 tp=1")
        yield one
    finally:
        one.close()


def test_what_fails_goes_back_to_what_served_before(fleet: LocalFleet) -> None:
    before = fleet.record("h01")
    said = fleet.play("deploy", "-e", json.dumps(BAD), code=2)
    after = fleet.record("h01")
    assert fleet.outcomes() == {"h01": "rolled back"} and "0 deployed, 1 rolled back, 0 untouched, 0 lost" in said
    assert "Not enough memory" in fleet.state()["hosts"]["h01"]["detail"]
    assert after["config_id"] == before["config_id"] and after["proof"] == "ready" and after["invocation"] != before["invocation"]
    assert not list(fleet.folder.glob("*/state/*.lease")), "the lease is given back"


def test_where_going_back_fails_too_the_host_is_lost_and_a_rerun_goes_on(fleet: LocalFleet) -> None:
    fleet.faults("h01", crash_at="load")
    try:
        fleet.play("deploy", "-e", "budget=10 topk=6 tp=1", code=2)
    finally:
        fleet.faults("h01")
    assert fleet.outcomes() == {"h01": "lost"} and "And going back failed" in fleet.state()["hosts"]["h01"]["detail"]
    fleet.play("deploy", "-e", "budget=10 topk=6 tp=1")
    assert fleet.outcomes() == {"h01": "deployed"} and fleet.record("h01")["proof"] == "ready"


def test_one_that_is_slower_than_its_last_good_soak_goes_back(fleet: LocalFleet) -> None:
    before = fleet.record("h01")["config_id"]
    fleet.faults("h01", speed=0.7)
    try:
        fleet.play("deploy", "-e", "budget=11 topk=6 tp=1 deploy_soak_speed=0.8", code=2)
    finally:
        fleet.faults("h01")
    assert fleet.outcomes() == {"h01": "rolled back"} and fleet.record("h01")["config_id"] == before
    detail = fleet.state()["hosts"]["h01"]["detail"]
    assert "slower than this host's last good" in detail and "at most 20% slower is allowed" in detail


def test_rollback_returns_to_the_last_good(fleet: LocalFleet) -> None:
    before = fleet.record("h01")["config_id"]
    fleet.play("rollback")
    assert fleet.outcomes() == {"h01": "deployed"} and fleet.record("h01")["config_id"] != before
    fleet.play("rollback")
    assert fleet.outcomes() == {"h01": "untouched"}


def test_somebody_elses_lease_is_refused_before_the_first_change(fleet: LocalFleet) -> None:
    before = fleet.record("h01")
    lease = fleet.folder / "h01" / "state" / "ddtree.lease"
    lease.write_text(json.dumps({"who": "ada@ops1", "what": "a sweep", "since": 0, "until": 32503680000, "seconds": 60}))
    try:
        said = fleet.play("deploy", "-e", "budget=10 topk=6 tp=1", code=2)
    finally:
        lease.unlink()
    assert "h01: ddtree is leased to ada@ops1 for a sweep until 3000-01-01 00:00:00 UTC" in said and fleet.record("h01") == before


def test_status_tells_drift_by_its_exit_code(fleet: LocalFleet) -> None:
    path = fleet.folder / "status.json"
    fleet.play("status", "-e", f"budget=12 topk=6 tp=1 status_json={path}")
    assert json.loads(path.read_text())["states"]["ok"] == ["h01"]
    fleet.play("status", "-e", f"budget=10 topk=6 tp=1 status_json={path}", code=2)
    assert json.loads(path.read_text())["states"]["drift"] == ["h01"]


def test_commands_take_it_out_and_put_it_back(fleet: LocalFleet) -> None:
    seen = fleet.folder / "balancer"
    asked: dict[str, object] = {"budget": 13, "topk": 6, "tp": 1, "router_kind": "command", "router_on": "controller"}
    words = {way: ["sh", "-c", f"echo {way} {{{{ inventory_hostname }}}} >> {seen}"] for way in ("out", "in")}
    before = fleet.record("h01")
    fleet.play("deploy", "-e", json.dumps({**asked, "router_out": ["false"], "router_in": words["in"]}), code=2)
    assert fleet.record("h01")["invocation"] == before["invocation"], "what could not be taken out was restarted"
    assert fleet.outcomes() == {"h01": "rolled back"} and seen.read_text() == "in h01\n"
    fleet.play("deploy", "-e", json.dumps({**asked, "router_out": words["out"], "router_in": words["in"]}))
    assert fleet.outcomes() == {"h01": "deployed"} and seen.read_text() == "in h01\nout h01\nin h01\n"
