"""Hosts that are lost on the way: SSH that dies, a rollback that fails too, power that goes; each run ends in its summary."""

from __future__ import annotations

import subprocess

from remotehost import container_engine
from rolling import CONNECTION, HOSTS, Fleet

ASKED = "--extra-vars=budget=10 topk=6"


def test_a_rollback_that_fails_too_leaves_the_host_out_and_the_others_untouched(fleet: Fleet) -> None:
    before = {host: fleet.started(host) for host in HOSTS}
    fleet.faults("gpu01", crash_at="load")
    try:
        said = fleet.run("deploy", ASKED, code=2)
    finally:
        fleet.faults("gpu01")
    assert fleet.outcomes() == {"gpu01": "lost", **dict.fromkeys(HOSTS[1:], "untouched")}, said[-3000:]
    assert "And going back failed" in fleet.details()["gpu01"] and "0 deployed, 0 rolled back, 4 untouched, 1 lost" in said
    assert fleet.serving() == set(HOSTS[1:]), "what is not proven gets no request"
    assert {host: fleet.started(host) for host in HOSTS[1:]} == {host: before[host] for host in HOSTS[1:]}


def test_ssh_that_dies_in_the_restart_loses_the_host_and_a_rerun_goes_on(fleet: Fleet) -> None:
    old = fleet.started("gpu01")
    process = fleet.start("deploy", ASKED)
    fleet.wait_started("gpu01", old)
    engine = container_engine()
    name = fleet.where["gpu01"]["container"]
    subprocess.run([engine, "exec", name, "sh", "-c", "systemctl stop ssh.socket ssh.service; pkill sshd; true"], check=True)
    try:
        code = process.wait(300)
    finally:
        subprocess.run([engine, "exec", name, "systemctl", "start", "ssh"], check=True)
    said = fleet.log.read_text()
    assert code == 4, said[-3000:]
    assert fleet.outcomes() == {"gpu01": "lost", **dict.fromkeys(HOSTS[1:], "untouched")}, said[-3000:]
    assert fleet.serving() == set(HOSTS[1:]) and "unreachable" in fleet.details()["gpu01"]
    fleet.run("deploy", ASKED)
    assert fleet.outcomes() == dict.fromkeys(HOSTS, "deployed") and fleet.serving() == set(HOSTS)


def test_a_host_that_is_powered_off_stops_the_next_batch(fleet: Fleet) -> None:
    old = {host: fleet.started(host) for host in HOSTS}
    process = fleet.start("rollback")
    fleet.wait_out("gpu02")
    fleet.wait_started("gpu02", old["gpu02"])
    engine, name = container_engine(), fleet.where["gpu02"]["container"]
    # paramiko has no probe of a peer that is silent: there the kernel of the host has the time to say goodbye
    off = [engine, "kill", name] if CONNECTION == "ssh" else [engine, "exec", name, "systemctl", "poweroff", "--force", "--force"]
    subprocess.run(off, check=False, capture_output=True)
    code = process.wait(400)
    said = fleet.log.read_text()
    assert code == 2, said[-3000:]
    assert fleet.outcomes() == {"gpu01": "deployed", "gpu02": "lost", "gpu03": "deployed", "gpu04": "untouched", "gpu05": "untouched"}, said
    assert "not begun: gpu02 is lost" in said and "2 deployed, 0 rolled back, 2 untouched, 1 lost" in said
    assert {"gpu04", "gpu05"} <= fleet.serving()
    assert {host: fleet.started(host) for host in HOSTS[3:]} == {host: old[host] for host in HOSTS[3:]}


def test_a_host_that_cannot_be_reached_counts_as_out_of_service(fleet: Fleet) -> None:
    said = fleet.run("rollback", "--extra-vars=deploy_min_available=4", code=4)
    assert "4 hosts serve and deploy_min_available is 4, so gpu04 cannot be taken out" in " ".join(said.split())
    fleet.run("rollback", code=4)
    outcomes = fleet.outcomes()
    assert outcomes["gpu02"] == "lost" and {outcomes[host] for host in ("gpu04", "gpu05")} == {"deployed"}
    fleet.bring_up("gpu02")
    fleet.run("rollback")
    assert fleet.outcomes()["gpu02"] in ("deployed", "untouched") and fleet.serving() == set(HOSTS)
