"""A restart behind the real sglang-router: nothing that the router accepted is lost, and a server that is not ready stays out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway import Clients, Gateway
from simhost import Engine, Host, free_port
from supervised import Unit

from ddtree.router import Router, RouterError


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    one = Gateway(tmp_path)
    yield one
    one.close()


@pytest.fixture
def neighbour(tmp_path: Path, nvml_library: Path) -> Iterator[Engine]:
    """Another worker, on another host, that keeps the service up."""
    folder = tmp_path / "neighbour"
    folder.mkdir()
    host = Host(folder, nvml_library)
    yield host.start().wait_up()
    host.close()


def test_a_restart_loses_no_request(unit: Unit, gateway: Gateway, neighbour: Engine) -> None:
    there: dict[str, Any] = {"router_url": gateway.url, "drain_timeout": 20}
    first = unit.run("started", **there)
    assert first["phases"][-1]["detail"].endswith("back in the router"), first
    assert Router(gateway.url, neighbour.url).enrol()
    mine = Router(gateway.url, f"http://127.0.0.1:{unit.port}")
    unit.host.faults(load_seconds=3)
    with Clients(gateway) as clients:
        time.sleep(1)
        run = unit.run("restarted", wait=False, **there)
        out_at = None
        while run.poll() is None:
            if out_at is None and not mine.serves():
                out_at = time.monotonic()
            time.sleep(0.05)
        done = json.loads(run.stdout.read())
        time.sleep(1)
    assert done.get("ready", {}).get("completion_tokens") == 32, done
    drain = next(phase for phase in done["phases"] if phase["name"] == "drain")
    assert drain["detail"] == "out of the router, idle" and done["cut_off_requests"] == 0
    assert out_at is not None and mine.serves()
    assert len(clients.seen) > 8 and set(clients.seen) == {200}


def test_a_start_that_fails_stays_out_and_the_next_good_one_comes_back(unit: Unit, gateway: Gateway) -> None:
    mine = Router(gateway.url, f"http://127.0.0.1:{unit.port}")
    unit.run("started", router_url=gateway.url)
    unit.host.faults(wrong_config=True)
    failed = unit.run("restarted", router_url=gateway.url)
    assert failed["cause"] == "config_mismatch" and not mine.serves()
    unit.host.faults()
    assert unit.run("started", router_url=gateway.url)["changed"] and mine.serves()


def test_one_that_runs_as_asked_and_is_out_of_the_router_is_only_put_back(unit: Unit, gateway: Gateway) -> None:
    first = unit.run("started", router_url=gateway.url)
    mine = Router(gateway.url, f"http://127.0.0.1:{unit.port}")
    assert mine.withdraw() and not mine.withdraw()
    second = unit.run("started", router_url=gateway.url)
    assert second["changed"] and second["reason"] == "the router did not send requests here"
    assert second["pid"]["after"] == first["pid"]["after"]
    assert not unit.run("started", router_url=gateway.url)["changed"]


def test_a_router_that_does_not_answer_stops_nothing(unit: Unit) -> None:
    first = unit.run("started")
    refused = unit.run("restarted", router_url=f"http://127.0.0.1:{free_port()}")
    assert (refused["phase"], refused["cause"]) == ("inspect", "router_unreachable"), refused
    assert "nothing was stopped" in refused["msg"]
    assert unit.run("probed")["instance"]["before"] == first["instance"]["after"]


def test_something_else_than_a_router_is_told(unit: Unit) -> None:
    unit.run("started")
    with pytest.raises(RouterError, match=r"404|no list of workers"):
        Router(f"http://127.0.0.1:{unit.port}", "http://127.0.0.1:1").serves()
