"""Two people cannot work on one host: the lease says who, what and until when."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.lease import LeaseError, Leases


class Time:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_somebody_else_is_refused_with_a_sentence_until_the_time_is_over(tmp_path: Path) -> None:
    now = Time()
    mine = Leases(str(tmp_path), "ddtree", now)
    mine.take("ada@ops1", "a deploy", 600)
    with pytest.raises(LeaseError) as refused:
        mine.take("bob@ops2", "a sweep", 60)
    assert str(refused.value) == (
        "ddtree is leased to ada@ops1 for a deploy until 1970-01-12 13:56:40 UTC: "
        f"wait, or remove {tmp_path}/ddtree.lease there once they agree"
    )
    held = mine.held()
    assert held and held["who"] == "ada@ops1"
    now.now += 601
    assert mine.held() is None
    assert mine.take("bob@ops2", "a sweep", 60)["who"] == "bob@ops2"


def test_ones_own_is_taken_anew(tmp_path: Path) -> None:
    now = Time()
    mine = Leases(str(tmp_path), "ddtree", now)
    first = mine.take("ada", "a deploy", 600)
    now.now += 300
    again = mine.take("ada", "a deploy", 600)
    assert again["since"] == first["since"] and again["until"] == first["until"] + 300
    now.now += 500
    renewed = mine.renew("ada")
    assert renewed and renewed["until"] == now.now + 600
    assert mine.release("ada") and not mine.release("ada") and mine.renew("ada") is None


def test_only_the_holder_gives_it_back(tmp_path: Path) -> None:
    mine = Leases(str(tmp_path), "ddtree")
    mine.take("ada", "a deploy", 600)
    assert not mine.release("bob")
    with pytest.raises(LeaseError):
        mine.require("bob")
    assert mine.require("ada")


def test_units_of_one_host_are_leased_apart(tmp_path: Path) -> None:
    Leases(str(tmp_path), "ddtree-a").take("ada", "a deploy", 600)
    assert Leases(str(tmp_path), "ddtree-b").take("bob", "a sweep", 600)


def test_of_many_at_once_one_has_it(tmp_path: Path) -> None:
    got: list[str] = []
    start = threading.Barrier(16)

    def want(who: str) -> None:
        start.wait()
        try:
            Leases(str(tmp_path), "ddtree").take(who, "a deploy", 600)
            got.append(who)
        except LeaseError:
            pass

    threads = [threading.Thread(target=want, args=(f"p{number}",)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = Leases(str(tmp_path), "ddtree").held()
    assert held and got == [held["who"]]
    assert [path for path in os.listdir(tmp_path) if path.startswith(".lease-")] == []


@given(st.text(max_size=40))
def test_a_file_that_is_no_lease_holds_nobody_up(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("lease")
    (folder / "ddtree.lease").write_text(text, encoding="utf-8")
    assert Leases(str(folder), "ddtree").held() is None


def test_half_a_lease_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "ddtree.lease").write_text(json.dumps({"who": "ada"}))
    assert Leases(str(tmp_path), "ddtree").take("bob", "a sweep", 60)


@pytest.mark.parametrize(("who", "seconds"), [("", 60), ("ada", 0)])
def test_a_lease_is_for_somebody_and_for_some_time(tmp_path: Path, who: str, seconds: float) -> None:
    with pytest.raises(ValueError, match="for somebody and for some time"):
        Leases(str(tmp_path), "ddtree").take(who, "a deploy", seconds)
