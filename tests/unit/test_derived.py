"""What a build makes of budget, topk and block, and which points it makes the same of."""

from __future__ import annotations

import dataclasses
import re

import pytest

from ddtree.dialects import merged
from ddtree.engine import EngineError, Server, collapse, render
from ddtree.points import Point, expand

SERVER = Server(python="/opt/sglang/bin/python", model="/m/target", drafter="/m/drafter", block_size=8)


@pytest.mark.parametrize(
    ("budget", "topk", "mode", "width"), [(None, 1, "chain", 8), (None, 4, "tree", 29), (12, 4, "tree", 12), (60, 4, "tree", 29)]
)
def test_pr36196_derives_as_its_source_does(budget: int | None, topk: int, mode: str, width: int) -> None:
    launch = render(Point(dialect="pr36196", budget=budget, topk=topk), SERVER)
    assert (launch.derived["mode"], launch.derived["effective_topk"], launch.derived["verify_width"]) == (mode, topk, width)
    assert launch.expect["speculative_num_draft_tokens"] == width
    line = f"DFLASH tree verify: tree_width={topk}, block_size=8, verify_width={width}, full_width={1 + 7 * topk}, force_tree_verify=False"
    assert re.search(launch.log_proofs[0], line)


def test_a_cap_above_the_full_tree_of_pr36196_is_no_other_engine() -> None:
    runs = collapse([Point(dialect="pr36196", topk=4), *(Point(dialect="pr36196", budget=b, topk=4) for b in (28, 29, 60))], SERVER)
    assert [(run["point"].budget, run["aliases"]) for run in runs] == [
        (None, ["b29-k4-w2048-pr36196", "b60-k4-w2048-pr36196"]),
        (28, []),
    ]
    assert any("above the 29 tokens" in one for one in render(Point(dialect="pr36196", budget=60, topk=4), SERVER).warnings)


@pytest.mark.parametrize(
    ("budget", "topk", "mode", "effective"),
    [
        (4, 6, "spine", 1),
        (7, None, "spine", 1),
        (8, 6, "tree", 2),
        (12, 6, "tree", 2),
        (13, None, "tree", 2),
        (14, 6, "tree", 3),
        (20, 4, "tree", 3),
        (21, None, "tree", 4),
        (27, 6, "tree", 4),
        (28, 6, "tree", 5),
        (35, None, "tree", 6),
        (200, None, "tree", 6),
        (200, 16, "tree", 16),
        (35, 4, "tree", 4),
        (12, 1, "tree", 1),
    ],
)
def test_pr29907_derives_as_its_source_does(budget: int, topk: int | None, mode: str, effective: int) -> None:
    derived = render(Point(budget=budget, topk=topk), SERVER).derived
    assert (derived["mode"], derived["effective_topk"], derived["verify_width"]) == (
        mode,
        effective,
        budget + 1,
    )


def test_topk_4_and_6_are_one_engine_at_budgets_8_to_20() -> None:
    runs = collapse(expand({"budget": {"from": 8, "to": 20}, "topk": "4,6"}, {}), SERVER)
    assert [run["point"].topk for run in runs] == [4] * 13
    assert [run["aliases"] for run in runs] == [[f"b{budget}-k6-w2048"] for budget in range(8, 21)]
    assert len(collapse(expand({"budget": 35, "topk": "4,6"}, {}), SERVER)) == 2


def test_a_chain_does_not_care_for_topk_and_says_so() -> None:
    runs = collapse(expand({"budget": 4, "topk": "2,4,6"}, {}), SERVER)
    assert len(runs) == 1 and runs[0]["aliases"] == ["b4-k4-w2048", "b4-k6-w2048"]
    assert "no part" in runs[0]["launch"].warnings[0]


@pytest.mark.parametrize("flag", ["--speculative-num-draft-tokens", "--speculative-dflash-block-size"])
def test_extra_arguments_change_the_block(flag: str) -> None:
    launch = render(Point(budget=8, topk=6, extra_args=(flag, "16")), SERVER)
    assert launch.derived == {"mode": "spine", "effective_topk": 1, "verify_width": 9, "block_size": 16}
    assert any("draft blocks of 16" in one for one in launch.warnings)


def test_an_unknown_block_stops_only_what_needs_it() -> None:
    unknown = dataclasses.replace(SERVER, block_size=0)
    with pytest.raises(EngineError, match=r"needs the drafter's block size.*set ddtree_server_block_size"):
        render(Point(budget=12), unknown)
    assert render(Point(dialect="none", window=None), unknown).derived["mode"] == "none"
    assert render(Point(dialect="pr31069", budget=32, topk=4, window=None), unknown).derived["verify_width"] == 32
    table = merged({"mine": {"args": [["--tree", "{budget}"]], "limits": {"window": {"min_block": True}}}})
    assert render(Point(dialect="mine", budget=12, window=None), unknown, table).derived["mode"] == "tree"
    with pytest.raises(EngineError, match="block size"):
        render(Point(dialect="mine", budget=12, window=64), unknown, table)
