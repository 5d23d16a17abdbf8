"""When a GPU counts as free, case by case as the field reports them."""

from __future__ import annotations

import pytest

from ddtree.gpus import Gpu, Holder
from ddtree.vram import Vram

OWN = 100


def gpu(used: int, *holders: Holder) -> Gpu:
    return Gpu(0, "GPU-0", "fake", 97_887, used, holders)


def judged(before: Gpu, after: Gpu, strict: bool = True) -> bool:
    """Whether `after` counts as free when `before` was the first look."""
    vram = Vram(1024, strict)
    vram.first_look([before], {OWN})
    return not vram.held([after])


@pytest.mark.parametrize("used", [0, 103, 256, 900])
def test_br07_idle_is_not_zero(used: int) -> None:
    assert judged(gpu(90_000, Holder(OWN, mib=90_000)), gpu(used))


def test_br07_the_same_memory_held_by_a_compute_process_that_came_is_not_free() -> None:
    assert not judged(gpu(90_000, Holder(OWN, mib=90_000)), gpu(900, Holder(7, mib=900)))


def test_a_leftover_of_our_own_is_not_free_however_small() -> None:
    assert not judged(gpu(90_000, Holder(OWN, mib=90_000)), gpu(200, Holder(OWN, mib=200)))


def test_br08_a_monitor_that_was_there_may_stay_and_a_desktop_may_come() -> None:
    monitor = Holder(7, name="nvidia-cuda-mps-server", mib=1500)
    assert judged(gpu(91_500, Holder(OWN, mib=90_000), monitor), gpu(1500, monitor))
    assert judged(gpu(90_000, Holder(OWN, mib=90_000)), gpu(300, Holder(8, mib=300, graphics=True)))


def test_br06_memory_without_a_visible_process_is_not_free() -> None:
    assert not judged(gpu(90_000, Holder(OWN, mib=90_000)), gpu(60_000))


def test_br12_unknown_sizes_are_judged_by_the_board() -> None:
    unknown = Holder(7, name="train.py", mib=None)
    vram = Vram(1024)
    vram.first_look([gpu(60_000, unknown)], {OWN})
    assert [holder.pid for _, holder in vram.strangers([gpu(60_000, unknown)])] == [7]
    ours = Holder(OWN, mib=None)
    assert vram.strangers([gpu(90_000, ours, unknown)]) == [], "beside our own it cannot be told whose it is"
    assert vram.strangers([gpu(60_000, Holder(9, mib=None, visible=False))]) == [], "a pid of another namespace may be our own"


def test_a_stop_does_not_mind_a_tenant_that_was_there() -> None:
    tenant = Holder(7, mib=60_000)
    before, after = gpu(90_000, Holder(OWN, mib=30_000), tenant), gpu(60_000, tenant)
    assert judged(before, after, strict=False) and not judged(before, after, strict=True)
