"""Deploys that go well, and those that their canary stops: no accepted request is lost, and never do too few hosts serve."""

from __future__ import annotations

import json
from collections import Counter

from rolling import HOSTS, RESULTS, Clients, Fleet

UNTOUCHED = dict.fromkeys(HOSTS[1:], "untouched")


def test_a_good_deploy_loses_no_request_and_never_goes_below_the_floor(fleet: Fleet) -> None:
    before = {host: fleet.loaded(host) for host in HOSTS}
    with Clients(fleet) as clients:
        said = fleet.run("deploy", "--extra-vars=budget=14 topk=6")
    assert fleet.outcomes() == dict.fromkeys(HOSTS, "deployed"), said[-3000:]
    assert set(clients.seen) == {200} and clients.seen.count(200) > 50, Counter(clients.seen)
    assert clients.least >= 3 and clients.looks > 100
    assert [len(batch) for batch in fleet.state()["batches"]] == [1, 2, 2]
    after = {fleet.loaded(host) for host in HOSTS}
    assert len(after) == 1 and not after & set(before.values())
    assert fleet.serving() == set(HOSTS)
    assert "5 of 5 hosts are changed, never fewer than 3 in service" in said and "5 deployed, 0 rolled back, 0 untouched, 0 lost" in said
    print(f"\n{len(clients.seen)} requests, all answered; at least {clients.least} hosts served at each of {clients.looks} looks")


def test_the_same_again_leaves_all_alone(fleet: Fleet) -> None:
    before = {host: fleet.started(host) for host in HOSTS}
    fleet.run("deploy", "--extra-vars=budget=14 topk=6")
    assert fleet.outcomes() == dict.fromkeys(HOSTS, "untouched") and set(fleet.details().values()) == {"runs as asked"}
    assert {host: fleet.started(host) for host in HOSTS} == before


def test_status_tells_that_all_is_well_and_what_drifts(fleet: Fleet) -> None:
    path = RESULTS / "status.json"
    said = fleet.run("status", "--extra-vars=budget=14 topk=6", f"--extra-vars=status_json={path}")
    assert all(host in said for host in HOSTS)
    found = json.loads(path.read_text())
    assert found["worst"] == "ok" and all(one["healthy"] and one["in_router"] for one in found["hosts"].values())
    fleet.run("status", "--extra-vars=budget=12 topk=6", f"--extra-vars=status_json={path}", code=2)
    assert json.loads(path.read_text())["states"]["drift"] == list(HOSTS)


def test_a_bad_configuration_stops_at_the_canary(fleet: Fleet) -> None:
    before = {host: (fleet.loaded(host), fleet.started(host)) for host in HOSTS}
    bad = '{"budget": 15, "topk": 6, "extra_args": "--mem-fraction-static 0.01"}'
    with Clients(fleet) as clients:
        said = fleet.run("deploy", f"--extra-vars={bad}", code=2)
    assert fleet.outcomes() == {"gpu01": "rolled back", **UNTOUCHED}, said[-3000:]
    assert fleet.loaded("gpu01") == before["gpu01"][0]
    assert {host: (fleet.loaded(host), fleet.started(host)) for host in HOSTS[1:]} == {host: before[host] for host in HOSTS[1:]}
    assert fleet.serving() == set(HOSTS) and set(clients.seen) == {200} and clients.least >= 4
    assert "0 deployed, 1 rolled back, 4 untouched, 0 lost" in said
    assert not any(fleet.on(host, "ls /var/lib/ddtree-ops/*.lease 2>/dev/null || true") for host in HOSTS), "leases are given back"


def test_a_canary_that_is_slower_than_the_bound_fails_the_deploy(fleet: Fleet) -> None:
    before = fleet.loaded("gpu01")
    fleet.faults("gpu01", speed=0.7)
    try:
        said = fleet.run("deploy", "--extra-vars=budget=16 topk=6", code=2)
    finally:
        fleet.faults("gpu01")
    assert fleet.outcomes() == {"gpu01": "rolled back", **UNTOUCHED}
    assert "slower than this host's last good" in said and "at most 20% slower is allowed" in said
    assert fleet.loaded("gpu01") == before and fleet.serving() == set(HOSTS)


def test_rollback_returns_the_group_with_the_same_care(fleet: Fleet) -> None:
    first = {fleet.loaded(host) for host in HOSTS}
    with Clients(fleet) as clients:
        said = fleet.run("rollback")
    assert fleet.outcomes() == dict.fromkeys(HOSTS, "deployed"), said[-3000:]
    assert set(clients.seen) == {200} and clients.least >= 3
    after = {fleet.loaded(host) for host in HOSTS}
    assert len(after) == 1 and after != first and fleet.serving() == set(HOSTS)
    fleet.run("rollback")
    assert fleet.outcomes() == dict.fromkeys(HOSTS, "untouched")


def test_a_host_that_somebody_else_holds_stops_all_before_the_first_change(fleet: Fleet) -> None:
    before = {host: fleet.started(host) for host in HOSTS}
    lease = {"who": "ada@ops1", "what": "a sweep", "since": 0, "until": 32503680000, "seconds": 60}
    fleet.on("gpu03", f"echo '{json.dumps(lease)}' > /var/lib/ddtree-ops/ddtree.lease")
    try:
        said = fleet.run("deploy", "--extra-vars=budget=14 topk=6", code=2)
        shown = fleet.run("status", f"--extra-vars=status_json={RESULTS / 'status.json'}", "--extra-vars=budget=12 topk=6")
    finally:
        fleet.on("gpu03", "rm /var/lib/ddtree-ops/ddtree.lease")
    assert "gpu03: ddtree is leased to ada@ops1 for a sweep until 3000-01-01 00:00:00 UTC" in " ".join(said.split())
    assert "ada@ops1 for a sweep until" in " ".join(shown.split())
    assert {host: fleet.started(host) for host in HOSTS} == before
