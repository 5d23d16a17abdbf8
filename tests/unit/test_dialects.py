"""The table of dialects, a user's own laid over it, and one sentence for each mistake in them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.derived import RULES, derive
from ddtree.dialect_table import BUILTIN, KEYS, PLACEHOLDERS, DialectError, fill, fill_pattern, templates
from ddtree.dialects import merged

MISTAKES: list[tuple[Any, str]] = [
    ({"mine": {"arg": []}}, "ddtree_server_dialects.mine has the unknown key 'arg' (did you mean args?)"),
    ({"mine": {"args": "--x"}}, "ddtree_server_dialects.mine.args is '--x', a list is wanted"),
    ({"mine": {"args": [["--b"], {"--c": 1}]}}, "mine.args[1] is {'--c': 1}, a list such as"),
    ({"mine": {"args": [[]]}}, "mine.args[0] is [], a list such as"),
    ({"mine": {"args": [["--budget {budget}"]]}}, "write flag and value as two items"),
    ({"mine": {"args": [["--on", True]]}}, "mine.args[0] holds True: write the text that the engine shall read"),
    ({"mine": {"args": [["--b", "{bugdet}"]]}}, "has the unknown placeholder {bugdet} in '{bugdet}' (did you mean budget?)"),
    ({"mine": {"args": [["--k", "{topk}"]], "axes": ["budget"]}}, "mine.args uses {topk}, which is not among its axes"),
    ({"mine": {"derive": "bush"}}, "mine.derive is 'bush'"),
    ({"mine": {"derive": "spine-tree"}}, "(did you mean spine_tree?)"),
    ({"mine": {"derive": 3}}, "mine.derive is 3, a text is wanted"),
    ({"mine": {"axes": ["depth"]}}, "the axes are budget, topk, window"),
    ({"mine": {"axes": ["budget"], "needs": ["topk"]}}, "mine.needs has topk, which is not among its axes"),
    ({"mine": {"env": {"A B": "1"}}}, "mine.env has the name 'A B'"),
    ({"mine": {"env": {"A": True}}}, "mine.env.A is True: write the text"),
    ({"mine": {"env": ["A=1"]}}, "mine.env is ['A=1'], a mapping is wanted"),
    ({"mine": {"limits": {"widow": {}}}}, "mine.limits.widow limits no axis (did you mean window?)"),
    ({"mine": {"limits": {"window": 8}}}, "mine.limits.window is 8, a mapping of min"),
    ({"mine": {"limits": {"topk": {"choice": [4]}}}}, "mine.limits.topk has the unknown key 'choice' (did you mean choices?)"),
    ({"mine": {"limits": {"topk": {"choices": ["4"]}}}}, "mine.limits.topk.choices is ['4'], a list of whole numbers is wanted"),
    ({"mine": {"limits": {"topk": {"max": "8"}}}}, "mine.limits.topk.max is '8', a whole number is wanted"),
    ({"mine": {"limits": {"window": {"min_block": 1}}}}, "mine.limits.window.min_block is 1, true or false is wanted"),
    ({"mine": {"page_size": "1"}}, "mine.page_size is '1', a whole number is wanted"),
    ({"mine": {"page_size": 0}}, "mine.page_size is 0, at least 1 is wanted"),
    ({"mine": {"page_size": True}}, "mine.page_size is True, a whole number is wanted"),
    ({"mine": {"attention_backends": [1]}}, "mine.attention_backends[0] is 1, a text is wanted"),
    ({"mine": {"log_proofs": ["tree("]}}, "mine.log_proofs has 'tree(', which is no regular expression"),
    ({"mine": {"expect": ["x"]}}, "mine.expect is ['x'], a mapping is wanted"),
    ({"My Dialect": {}}, "'My Dialect' in ddtree_server_dialects cannot name a dialect"),
    ({"default": {}}, "'default' in ddtree_server_dialects cannot name a dialect"),
    ({"../x": {}}, "cannot name a dialect"),
    ({"mine": 3}, "ddtree_server_dialects.mine is 3, no mapping"),
    ([1], "ddtree_server_dialects is no mapping"),
]


@pytest.mark.parametrize(("own", "said"), MISTAKES, ids=[said for _, said in MISTAKES])
def test_each_mistake_is_one_sentence(own: Any, said: str) -> None:
    with pytest.raises(DialectError) as caught:
        merged(own)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_the_built_in_table_passes_its_own_checks() -> None:
    assert merged({name: {} for name in BUILTIN}) == {name: dict(dialect) for name, dialect in BUILTIN.items()}
    for name, dialect in BUILTIN.items():
        assert {"summary", "source"} <= set(dialect), name


def test_a_known_name_changes_single_keys_and_a_new_one_is_added() -> None:
    table = merged({"pr29907": {"page_size": None}, "mine": {"args": [["--my-budget", "{budget}"]]}})
    assert table["pr29907"] == {**BUILTIN["pr29907"], "page_size": None}
    assert table["mine"]["axes"] == ["budget", "topk", "window"] and table["mine"]["derive"] == "tree"
    assert "page_size" in BUILTIN["pr29907"] and "mine" not in BUILTIN
    assert merged(None) == merged({}) == {name: dict(dialect) for name, dialect in BUILTIN.items()}


def test_templates_are_filled_typed() -> None:
    values = {"budget": 12, "topk": None, "block": 8}
    assert fill("{budget}", values) == 12
    assert fill("{topk}", values) is None
    assert fill("b{budget}/{block}", values) == "b12/8"
    assert fill("b{budget}/{topk}", values) is None
    assert fill('{"a": {budget}}', values) == '{"a": 12}'
    assert re.fullmatch(fill_pattern(r"x\.budget={budget}, topk={topk}", values), "x.budget=12, topk=None")
    assert list(templates({"args": [["-a", "{x}"], "-b"], "env": {"E": "{y}"}, "expect": {"f": "{z}", "g": 1}, "log_proofs": ["p"]})) == [
        "-a", "{x}", "-b", "{y}", "{z}", "p",
    ]  # fmt: skip


@given(st.text())
def test_a_value_in_a_pattern_matches_itself_only(value: str) -> None:
    assert re.fullmatch(fill_pattern("{model}", {"model": value}), value, re.DOTALL)


@given(st.sampled_from(sorted(RULES)), st.none() | st.integers(1, 1024), st.none() | st.integers(1, 1024), st.integers(1, 64))
def test_every_rule_gives_a_width_that_can_run(rule: str, budget: int | None, topk: int | None, block: int) -> None:
    found = derive(rule, budget, topk, block)
    assert found["verify_width"] >= 1 and found["mode"] in ("none", "chain", "spine", "tree")
    assert found["effective_topk"] is None or found["effective_topk"] >= 1
    if found["mode"] == "none":
        assert found["verify_width"] == 1


def test_every_key_and_placeholder_says_what_it_is_for() -> None:
    assert all(text for _, text in KEYS.values()) and all(PLACEHOLDERS.values())
