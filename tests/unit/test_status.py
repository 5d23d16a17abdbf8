"""What one look tells of an engine: health by a generation only, drift, why it would be worked on, and whether it may be kept as good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import FakeRouter, Plan, World, lifecycle

from ddtree.status import digest, look


def started(world: World) -> dict[str, Any]:
    """The record of a good start in that world."""
    record: dict[str, Any] = {}
    lifecycle(world, record).run()
    return record


def seen(world: World, record: dict[str, Any], **more: Any) -> dict[str, Any]:
    return look(world, world, world, record, timeout=0.1, **{"asked": world.asked, **more})


def test_one_that_runs_as_asked_is_well_and_settled() -> None:
    world = World()
    found = seen(world, started(world))
    assert found["healthy"] and found["serving"] and found["settled"] and found["in_router"] is None
    assert (found["reason"], found["drift"], found["loaded"]) == ("", [], "newcfg")
    assert found["generation_tok_s"] == pytest.approx(106.7) and len(found["vram_mib"]) == 8
    assert found["expected"] > 0


def test_another_configuration_is_drift_and_a_reason_and_may_be_kept() -> None:
    world = World()
    record = started(world)
    found = seen(world, record, asked="other")
    assert found["drift"] == ["configuration newcfg runs, other is asked"] == [found["reason"]]
    assert found["settled"] and found["replaces"] and found["serving"]


def test_a_definition_that_changed_since_the_start_is_drift_and_not_kept() -> None:
    world = World()
    record = started(world)
    world.definition_text = "edited by hand"
    found = seen(world, record)
    assert found["drift"] == ["the unit's definition changed since it was started"]
    assert not found["settled"] and found["serving"]


def test_one_that_was_started_by_another_is_not_kept() -> None:
    found = seen(World(asked="oldcfg"), {})
    assert found["serving"] and not found["settled"] and found["reason"] == ""


def test_one_that_hangs_does_not_serve() -> None:
    found = seen(World(old=Plan(hang=True)), {})
    assert not found["healthy"] and not found["serving"]
    assert found["reason"] == "the engine does not generate: no answer in 0.1 s"


def test_one_that_is_down_says_so_without_asking() -> None:
    found = seen(World(running=False), {})
    assert found["reason"] == "the unit is inactive" and found["health"] == "not running" and found["loaded"] == ""


def test_the_router_decides_whether_it_serves() -> None:
    world = World()
    record = started(world)
    out = seen(world, record, router=FakeRouter(world, member=False))
    assert out["healthy"] and not out["serving"] and not out["replaces"] and out["reason"] == "the router did not send requests here"
    assert seen(world, record, router=FakeRouter(world))["serving"]
    unknown = seen(world, record, router=FakeRouter(world, reachable=False))
    assert unknown["in_router"] is None and unknown["serving"], "a router that is silent says nothing about the host"


def test_files_that_would_be_written_otherwise_are_a_reason(tmp_path: Path) -> None:
    world = World()
    record = started(world)
    unit = tmp_path / "ddtree.service"
    unit.write_text("[Unit]\n")
    files = {str(unit): digest(unit)}
    assert seen(world, record, files=files)["reason"] == ""
    files[str(tmp_path / "ddtree.env")] = "0" * 64
    assert seen(world, record, files=files)["reason"] == "ddtree.env would change"


def test_a_lost_gpu_is_told_and_hides_nothing() -> None:
    world = World()
    record = started(world)
    world.lost_gpu = True
    found = seen(world, record)
    assert found["vram_mib"] == [] and found["gpus"] and found["healthy"]
