"""Points: what a command line and a YAML file can hold, read once."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ddtree.points import (
    MOST,
    Point,
    PointError,
    arguments,
    check_names,
    environment,
    expand,
    whole_number,
)

ROOT = Path(__file__).resolve().parents[2]
numbers = st.integers(min_value=1, max_value=64)
windows = st.one_of(st.none(), st.integers(min_value=1, max_value=MOST["window"]))


def names(spec: dict, defaults: dict | None = None) -> list[str]:
    return [point.name for point in expand(spec, defaults or {})]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"budget": "12", "topk": "6"}, ["b12-k6-w2048"]),
        ({"budget": 12, "topk": 6}, ["b12-k6-w2048"]),
        ({"budget": "8,12", "topk": "4,6"}, ["b8-k4-w2048", "b8-k6-w2048", "b12-k4-w2048", "b12-k6-w2048"]),
        ({"budget": [8, "12"], "topk": 4}, ["b8-k4-w2048", "b12-k4-w2048"]),
        ({"budget": "[8, 12]"}, ["b8-w2048", "b12-w2048"]),
        ({"budget": {"from": 4, "to": 12, "step": 4}}, ["b4-w2048", "b8-w2048", "b12-w2048"]),
        ({"budget": {"from": "4", "to": 5}}, ["b4-w2048", "b5-w2048"]),
        ({"budget": 8, "window": None}, ["b8-wnone"]),
        ({"budget": 8, "window": "none"}, ["b8-wnone"]),
        ({"budget": 8, "window": ""}, ["b8-wnone"]),
        ({"budget": 8, "window": "None,1024"}, ["b8-wnone", "b8-w1024"]),
        ({"budget": 8, "window": "default"}, ["b8-w2048"]),
        ({"budget": 8, "topk": None, "tp": ""}, ["b8-w2048"]),
        ({"dialect": "none"}, ["none"]),
        ({"dialect": "dflash", "window": 4096}, ["dflash-w4096"]),
        ({"dialect": "none,pr29907", "budget": "8,12"}, ["none", "b8-w2048", "b12-w2048"]),
        ({"budget": 8, "tp": "4"}, ["b8-w2048-tp4"]),
        ({"budget": 8, "topk": 4, "dialect": "pr31069"}, ["b8-k4-w2048-pr31069"]),
        ({"budget": "8, 8 ,8"}, ["b8-w2048"]),
    ],
)
def test_reads_what_people_write(spec: dict, wanted: list[str]) -> None:
    assert names(spec) == wanted


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"budget": "twelve"}, "budget=twelve: a whole number is wanted"),
        ({"budget": 0}, "budget=0: at least 1 is wanted; for no speculation ask dialect=none"),
        ({"budget": "0"}, "at least 1"),
        ({"budget": -3}, "budget=-3: at least 1"),
        ({"budget": "-3"}, "budget=-3: at least 1"),
        ({"budget": True}, "budget=True: a whole number"),
        ({"budget": 12.0}, "budget=12.0: a whole number"),
        ({"budget": "1e1"}, "a whole number"),
        ({"budget": "010"}, "octal"),
        ({"budget": "2_048"}, "a whole number"),
        ({"budget": "none"}, "dialect=none"),
        ({"budget": "8;12"}, "budget=8;12"),
        ({"budget": "8,,12"}, "budget=''"),
        ({"budget": []}, "budget is an empty list"),
        ({"budget": [[8]]}, "a whole number"),
        ({"budget": 99999}, "at most 1024"),
        ({"budget": 8, "window": 0}, "window=0: at least 1 is wanted; for no window write none"),
        ({"budget": 8, "window": False}, "window=False"),
        ({"bugdet": 12}, "did you mean budget?"),
        ({"points": [{"budget": 8, "topkk": 2}]}, "points[0] have no key 'topkk'"),
        ({"points": [{"budget": 8}, {"budget": "x"}]}, "points[1].budget=x"),
        ({"points": "8/4"}, "a list of mappings"),
        ({"points": []}, "no point is left"),
        ({"points": [{"budget": 8}], "budget": 12}, "budget is given beside points"),
        ({"budget": {"from": 4}}, "a range without to"),
        ({"budget": {"from": 9, "to": 4}}, "which is empty"),
        ({"budget": {"from": 4, "to": 9, "by": 2}}, "no key 'by'"),
        ({"budget": {"from": 1, "to": 1024, "step": 0}}, "budget.step=0"),
        ({"dialect": "pr2990", "budget": 8}, "did you mean pr29907?"),
        ({"dialect": "dflash", "budget": 8}, "dialect dflash has none"),
        ({"dialect": "none", "topk": 4}, "dialect none has none"),
        ({"budget": 8, "extra_args": ["--mem-fraction-static 0.8"]}, "two items"),
        ({"budget": 8, "extra_args": "--x 'y"}, "quotes are not closed"),
        ({"budget": 8, "extra_env": {"A B": "1"}}, "extra_env has the name 'A B'"),
        ({"budget": 8, "extra_env": {"A": True}}, "in quotes"),
        ({"budget": [4, 8], "exclude": [{"budget": 12}]}, "takes out no point"),
        ({"budget": 4, "exclude": [{}]}, "take out every point"),
        ({"budget": 4, "exclude": [{"budget": 4}]}, "no point is left"),
    ],
)
def test_refuses_in_one_sentence(spec: dict, said: str) -> None:
    with pytest.raises(PointError) as caught:
        expand(spec, {})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml_surprises_are_read_or_refused() -> None:
    assert names(yaml.safe_load("{budget: 2_0}")) == ["b20-w2048"]
    assert names(yaml.safe_load("{budget: 8, window: ~}")) == ["b8-wnone"]
    for text in ("{budget: no}", "{budget: 0.80}", "{budget: 1e-3}", "{budget: '0x10'}"):
        with pytest.raises(PointError):
            expand(yaml.safe_load(text), {})


def test_outer_keys_go_under_listed_points_and_defaults_under_both() -> None:
    spec = {"points": [{"budget": 8}, {"budget": 12, "topk": 6, "window": "none"}], "topk": "2,4"}
    assert names(spec, {"window": 1024}) == ["b8-k2-w1024", "b8-k4-w1024", "b12-k6-wnone"]
    assert expand({"budget": 8}, {"tp": "4"})[0].tp == 4
    with pytest.raises(PointError, match="the default of window=x"):
        expand({"budget": 8}, {"window": "x"})


def test_the_same_point_asked_twice_is_one() -> None:
    assert names({"points": [{"budget": 8}, {"budget": "8", "window": 2048}, {"budget": [8, 8]}]}) == ["b8-w2048"]


def test_exclude_takes_out_what_matches_all_its_keys() -> None:
    spec = {"budget": "4,8", "topk": "2,4", "exclude": [{"budget": 8, "topk": [4]}]}
    assert names(spec) == ["b4-k2-w2048", "b4-k4-w2048", "b8-k2-w2048"]


def test_extra_args_and_environment_are_axes_too() -> None:
    points = expand(
        {
            "budget": 8,
            "extra_args": [["--a", 1], {"mem_fraction_static": 0.8, "enable-x": True, "no": False}],
        },
        {},
    )
    assert [point.extra_args for point in points] == [
        ("--a", "1"),
        ("--mem-fraction-static", "0.8", "--enable-x"),
    ]
    assert len({point.name for point in points}) == 2
    assert arguments("--a 'b c'") == ("--a", "b c")
    assert environment({"B": 2, "A": "x"}) == (("A", "x"), ("B", "2"))


def test_dialects_of_ones_own_have_their_axes() -> None:
    table = {"mine": {"axes": ["topk"]}}
    assert [point.name for point in expand({"dialect": "mine", "topk": 4}, {}, table)] == ["k4-wnone-mine"]
    with pytest.raises(PointError, match="budget is asked, and dialect mine has none"):
        expand({"dialect": "mine", "budget": 4}, {}, table)


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("seed.yml", ["b8-k4-wnone", "b16-k4-w2048", "b4-k4-w2048", "b12-k6-w2048"]),
        ("controls.yml", ["none", "dflash-w2048"]),
    ],
)
def test_shipped_sweeps(file: str, wanted: list[str]) -> None:
    assert names(yaml.safe_load((ROOT / "sweeps" / file).read_text())) == wanted


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(PointError, match=r"^bugdet is not an option of sweep\.yml; did you mean budget\? .*allowed_vars"):
        check_names(["topk", "bugdet"], ["budget", "topk"])
    with pytest.raises(PointError, match=r"^zzz is not an option of x\.yml \("):
        check_names(["zzz"], ["budget"], what="x.yml")
    check_names(["budget"], ["budget", "topk"])


class Tagged(str):
    """As Ansible hands its strings to plugins."""


class TaggedInt(int):
    pass


def test_tagged_values_become_plain() -> None:
    point = expand({Tagged("budget"): TaggedInt(12), Tagged("topk"): Tagged("6"), "extra_args": [Tagged("--x")]}, {})[0]
    plain = point.as_dict()
    assert [type(plain[key]) for key in ("dialect", "budget", "topk", "window")] == [str, int, int, int]
    assert yaml.safe_load(yaml.safe_dump(plain))["extra_args"] == ["--x"]


@given(
    st.lists(numbers, min_size=1, max_size=4),
    st.lists(numbers, min_size=1, max_size=4),
    st.lists(windows, min_size=1, max_size=3),
)
def test_every_spelling_of_a_grid_is_the_same_grid(budgets: list, topks: list, sizes: list) -> None:
    def text(values: list) -> str:
        return ",".join("none" if value is None else str(value) for value in values)

    wanted = list(dict.fromkeys(itertools.product(budgets, topks, sizes)))
    as_lists = expand({"budget": budgets, "topk": topks, "window": sizes}, {})
    as_texts = expand({"budget": text(budgets), "topk": text(topks), "window": text(sizes)}, {})
    assert [(point.budget, point.topk, point.window) for point in as_lists] == wanted
    assert as_texts == as_lists


points = st.builds(
    Point,
    dialect=st.sampled_from(["pr29907", "pr31069", "jetspec"]),
    budget=st.none() | numbers,
    topk=st.none() | numbers,
    window=windows,
    tp=st.integers(1, 16),
    extra_args=st.lists(st.text("ab-= ", max_size=4).filter(lambda one: not one.startswith("--"))).map(tuple),
    extra_env=st.dictionaries(st.text("AB_", min_size=1, max_size=3), st.text(max_size=3)).map(lambda one: tuple(sorted(one.items()))),
)


@given(points, points)
def test_names_tell_points_apart_and_are_file_names(one: Point, two: Point) -> None:
    assert (one.name == two.name) == (one == two)
    assert "/" not in one.name and one.name == one.name.strip()


@given(points)
def test_a_point_survives_its_dict(point: Point) -> None:
    assert Point.from_dict(point.as_dict()) == point


@given(st.text())
def test_any_text_is_a_number_or_a_refusal(text: str) -> None:
    try:
        number = whole_number("budget", text)
    except PointError as error:
        assert str(error)
    else:
        assert 1 <= number <= MOST["budget"] and str(number) == text.strip()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    )
)
def test_anything_at_any_place_is_points_or_a_point_error(value: object) -> None:
    for spec in (
        value,
        *({key: value} for key in ("budget", "window", "points", "dialect", "extra_args", "extra_env", "exclude")),
    ):
        try:
            found = expand(spec, {})  # type: ignore[arg-type]
        except PointError:
            continue
        assert found and all(isinstance(point, Point) for point in found)
