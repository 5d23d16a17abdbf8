"""Engine flags as axes, and the controls that come by default."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.asked import PointError, flags
from ddtree.dialects import BUILTIN
from ddtree.engine import Server, render
from ddtree.points import Point, controls, expand

SERVER = Server(python="/p", model="/m", drafter="/d", block_size=8)


def names(spec: dict[str, Any]) -> list[str]:
    return [point.name for point in expand(spec, {})]


def test_any_flag_is_an_axis_and_has_its_name_in_the_point() -> None:
    asked: dict[str, Any] = {"budget": [8, 12], "flags": {"mem_fraction_static": [0.8, 0.85], "enable-mixed-chunk": [True, False]}}
    assert names(asked) == [
        f"b{budget}-w2048{mixed}-mem_fraction_static.{fraction}"
        for budget in (8, 12)
        for fraction in ("0.8", "0.85")
        for mixed in ("-enable_mixed_chunk.true", "")
    ]
    point = expand({"budget": 12, "flags": {"mem_fraction_static": 0.8, "enable_mixed_chunk": True}, "extra_args": "--x 1"}, {})[0]
    assert point.extra_args == ("--x", "1", "--enable-mixed-chunk", "--mem-fraction-static", "0.8") and point.own_args == ("--x", "1")
    assert render(point, SERVER).argv[-5:] == list(point.extra_args)
    assert Point.from_dict(point.as_dict()) == point and point.as_dict()["extra_args"] == ["--x", "1"]


def test_ranges_and_lists_as_text() -> None:
    assert flags({"a": {"from": 0.8, "to": 0.9, "step": 0.05}}) == [(("a", "0.8"),), (("a", "0.85"),), (("a", "0.9"),)]
    assert flags({"a": ["x", "y"], "b": None}) == [(("a", "x"),), (("a", "y"),)] and flags({}) == [()] and flags("") == [()]
    assert flags({"a": '{"x": 1, "y": 2}'}) == [(("a", '{"x": 1, "y": 2}'),)], "a comma belongs to the value"
    assert flags({"ep_size": {"from": 2, "to": 8, "step": 2}})[-1] == (("ep_size", "8"),)


@pytest.mark.parametrize(
    ("given_flags", "said"),
    [
        ("x", "flags is 'x': a mapping such as"),
        ({"No Good": 1}, "has the name 'No Good'"),
        ({"a": []}, "flags.a is an empty list"),
        ({"a": {"from": 1, "to": "b"}}, "numbers are wanted"),
        ({"a": {"from": 2, "to": 1}}, "a range from 2 to 1"),
        ({"a": {"from": 1, "to": 9, "by": 1}}, "the keys of flags.a have no key 'by'"),
        ({"a": [[1]]}, "flags.a is [1]"),
    ],
)
def test_a_slip_is_one_sentence(given_flags: object, said: str) -> None:
    with pytest.raises(PointError) as caught:
        flags(given_flags)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_flag_that_a_variable_sets_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="--tp-size, which comes from tp"):
        render(expand({"budget": 12, "flags": {"tp_size": 4}}, {})[0], SERVER)


def test_partial_flags_are_excluded() -> None:
    asked = {"budget": 12, "flags": {"a": [1, 2], "b": [1, 2]}, "exclude": [{"flags": {"a": 2}}]}
    assert names(asked) == ["b12-w2048-a.1-b.1", "b12-w2048-a.1-b.2"]


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.text(min_size=1, max_size=60), max_size=4))
def test_whatever_the_values_the_name_is_a_file_name_and_tells_points_apart(values: dict[str, str]) -> None:
    points = [point for one in ({}, values) for point in _expanded(one)]
    for point in points:
        assert len(point.name) < 200 and "/" not in point.name and "\0" not in point.name
        assert Point.from_dict(point.as_dict()) == point
    assert len({point.name for point in points}) == len(set(points))


def _expanded(values: dict[str, str]) -> list[Point]:
    try:
        return expand({"budget": 12, "flags": {key: [value] for key, value in values.items()}}, {})
    except PointError:
        return []


def test_controls_are_added_where_something_speculates_and_they_are_not_there() -> None:
    asked = expand({"budget": [8, 12], "tp": 4, "window": 512}, {})
    added = controls(asked)
    assert [one.name for one in added] == ["none-tp4", "dflash-w512-tp4"]
    assert [one.name for one in controls([*asked, added[0]])] == ["dflash-w512-tp4"] and controls([added[0]]) == []
    assert [one.name for one in controls(expand({"budget": 8, "window": "none"}, {}))] == ["none", "dflash-w2048"]
    assert controls(asked, {"none": BUILTIN["none"]})[0].dialect == "none"
