"""Greedy answers of a point against the control's."""
# ruff: noqa: E501  a row is easier to read whole

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.codecheck import digest
from ddtree.lossless import CHANGED, LOSSLESS, UNKNOWN, compare, parting, words

TOKENS = 150


def check(answers: dict[str, str], outcome: Callable[[str], str] = lambda name: "passed", finish: str = "stop") -> dict[str, Any]:
    """A section `coding`; a token is four letters."""
    tasks = [{"name": name, "outcome": outcome(name), "answer": text, "digest": digest(text), "tokens": len(text) // 4, "finish_reason": finish}
             for name, text in answers.items()]  # fmt: skip
    return {"tasks": tasks}


def answers(pick: random.Random, count: int = 60) -> dict[str, str]:
    return {f"task{at}": "".join(pick.choices("abcdefgh", k=TOKENS * 4)) for at in range(count)}


def parted(texts: dict[str, str], pick: random.Random, per_1000: float) -> dict[str, str]:
    """Each answer goes another way from the first token on that a near tie strikes."""
    found = {}
    for name, text in texts.items():
        token = int(pick.expovariate(per_1000 / 1000)) if per_1000 else TOKENS
        found[name] = text if token >= TOKENS else text[: token * 4] + "x" * (TOKENS - token) * 4
    return found


def test_the_same_answers_are_lossless() -> None:
    texts = answers(random.Random(1))
    found = compare(check(texts), check(texts))
    assert (found["verdict"], found["compared"], found["same"], found["parted"], found["first"]) == (LOSSLESS, 60, 60, 0, None)
    assert found["tokens"] == 60 * TOKENS and words(found).startswith("greedy answers lossless: 60 of 60 answers are the control's")


def test_error_rates() -> None:
    """Near ties at the stated rate are forgiven; a verification that accepts one wrong token in fifty is found, with few tasks too."""
    pick = random.Random(2)
    verdicts: dict[float, list[str]] = {2.0: [], 20.0: []}
    for per_1000, found in verdicts.items():
        texts = answers(pick, 60)
        for _ in range(200):
            found.append(compare(check(texts), check(parted(texts, pick, per_1000)))["verdict"])
    assert verdicts[2.0].count(CHANGED) <= 6 and verdicts[20.0].count(CHANGED) == 200
    five = answers(pick, 5)
    assert [compare(check(five), check(parted(five, pick, 50)))["verdict"] for _ in range(50)].count(CHANGED) >= 48


def test_a_control_with_more_ties_allows_more() -> None:
    pick = random.Random(3)
    texts = answers(pick)
    again, point = parted(texts, pick, 12), parted(texts, pick, 12)
    assert compare(check(texts), check(point))["verdict"] == CHANGED
    found = compare(check(texts), check(point), again=check(again))
    assert found["verdict"] == LOSSLESS and found["allowed"] == found["control_per_1000"] > 8


def test_the_first_difference_is_shown() -> None:
    control = {"a": "x" * 400, "b": "the answer is right, and so on", "c": "same"}
    point = {"a": "x" * 200 + "y" * 200, "b": "the answer was right, and so on", "c": "same"}
    found = compare(check(control), check(point))
    assert found["first"]["name"] == "b" and found["first"]["before"] == "the answer " and found["first"]["control"].startswith("is right")
    assert found["first"]["answer"].startswith("was right") and found["parted"] == 2 and found["same"] == 1
    assert "first in b after" in words(found) and "'is right, and so on' became 'was right" in words(found)


def test_programs_that_got_worse_are_a_change_too() -> None:
    texts = answers(random.Random(4), 10)
    found = compare(check(texts), check(texts, lambda name: "failed" if name < "task8" else "passed"))
    assert found["verdict"] == CHANGED and len(found["worse"]) == 8 and "8 programs that passed no longer do" in found["why"]
    few = compare(
        check(texts, lambda name: "failed" if name == "task9" else "passed"),
        check(texts, lambda name: "failed" if name == "task1" else "passed"),
    )
    assert few["verdict"] == LOSSLESS and (few["better"], few["worse"], few["p_worse"]) == (["task9"], ["task1"], 0.75)


def test_what_cannot_be_compared_is_said() -> None:
    texts = {"a": "text"}
    for control, point, why in (({}, check(texts), "no answer in common"), (check(texts), check({"b": "text"}), "no answer in common"),
                                (check(texts), {"tasks": [{"name": "a", "outcome": "passed"}]}, "hold no answers")):  # fmt: skip
        found = compare(control, point)
        assert found["verdict"] == UNKNOWN and why in found["why"] and found["per_1000"] is None and why in words(found)
    old = {"passed": 1, "total": 1, "tasks": [{"name": "a", "outcome": "passed", "detail": ""}]}
    assert compare(old, old)["verdict"] == UNKNOWN


def test_answers_that_are_cut_are_compared_as_far_as_they_go() -> None:
    whole, start = check({"a": "abcdef" * 50}), check({"a": "abcdef" * 20}, finish="length")
    assert compare(whole, start)["same"] == compare(start, whole)["same"] == 1
    assert compare(whole, check({"a": "abcdef" * 20}))["parted"] == 1
    kept = check({"a": "abcdef"})
    kept["tasks"][0]["digest"] = "of a longer text"
    assert compare(check({"a": "abcdef"}), kept)["parted"] == 1  # beyond what a result keeps


@pytest.mark.parametrize(
    ("one", "other", "cut", "at"),
    [("abc", "abc", (False, False), None), ("abc", "abd", (False, False), 2), ("abc", "abcd", (False, False), 3), ("abc", "abcd", (True, False), None),
     ("abc", "abcd", (False, True), 3), ("", "", (False, False), None), ("b", "a", (True, True), 0)],
)  # fmt: skip
def test_where_two_answers_part(one: str, other: str, cut: tuple[bool, bool], at: int | None) -> None:
    assert parting(one, other, *cut) == at


@given(st.text(max_size=30), st.text(max_size=30), st.booleans(), st.booleans())
def test_parting_is_symmetric_and_within(one: str, other: str, cut: bool, cut_too: bool) -> None:
    at = parting(one, other, cut, cut_too)
    assert at == parting(other, one, cut_too, cut)
    if at is None:
        assert one.startswith(other) or other.startswith(one)
    else:
        assert one[:at] == other[:at] and one[at : at + 1] != other[at : at + 1]
