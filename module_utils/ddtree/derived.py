"""What an engine build makes of a point's budget and topk: one function a rule, each with the sentence that the documentation prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# SGLANG_DDTREE_MAX_TOPK where the environment does not set it.
MAX_TOPK = 6


class Derived(NamedTuple):
    """`mode` is none, chain, spine (a cut chain) or tree. `effective_topk` counts a node's branches, None where the build sets no bound;
    `verify_width` is in tokens per request and verify step, the anchor included.
    """

    mode: str
    effective_topk: int | None
    verify_width: int


class Rule(NamedTuple):
    """`says` tells the formula. With `canonical` the derived values are all that the engine takes from budget and topk, so that
    points equal in them are one engine configuration. With `block` the formula has the drafter's block size in it.
    """

    derive: Callable[[int | None, int | None, int], Derived]
    says: str
    canonical: bool = False
    block: bool = True


def _none(budget: int | None, topk: int | None, block: int) -> Derived:
    return Derived("none", 1, 1)


def _chain(budget: int | None, topk: int | None, block: int) -> Derived:
    return Derived("chain", 1, block)


def _spine_tree(budget: int | None, topk: int | None, block: int) -> Derived:
    if budget is None:
        return Derived("spine", 1, block)  # the build takes block - 1
    if budget <= block - 1:
        return Derived("spine", 1, budget + 1)
    return Derived("tree", min(max(budget // max(block - 1, 1) + 1, 2), topk or MAX_TOPK), budget + 1)


def _beam(budget: int | None, topk: int | None, block: int) -> Derived:
    width = topk or 1
    full = 1 + (block - 1) * width
    return Derived("tree" if width > 1 else "chain", width, min(full, budget or full))


def _nodes(budget: int | None, topk: int | None, block: int) -> Derived:
    return Derived("tree", topk, budget or block)


def _tree(budget: int | None, topk: int | None, block: int) -> Derived:
    if budget is None and topk is None:
        return Derived("chain", 1, block)
    return Derived("tree", topk, budget + 1 if budget else block)


RULES: Mapping[str, Rule] = {
    "none": Rule(_none, "nothing is drafted", block=False),
    "chain": Rule(_chain, "a chain of the drafter's block size"),
    "spine_tree": Rule(
        _spine_tree,
        "a budget up to block - 1 is verified as a chain cut to budget + 1 tokens (spine), where topk has no part; above it as a tree of "
        f"budget + 1 tokens with min(max(budget // (block - 1) + 1, 2), topk or {MAX_TOPK}) branches a node",
        canonical=True,
    ),
    "beam": Rule(
        _beam,
        "a tree of topk beams at each of block - 1 depths that verifies min(1 + (block - 1) x topk, budget) tokens; topk 1 is a chain",
        canonical=True,
    ),
    "nodes": Rule(_nodes, "a tree with topk branches a node; the budget counts all its tokens, the anchor included", block=False),
    "tree": Rule(_tree, "a tree of budget + 1 tokens with topk branches a node; a chain where neither is given", block=False),
}


def derive(rule: str, budget: int | None, topk: int | None, block: int) -> dict[str, Any]:
    """{mode, effective_topk, verify_width, block_size} by the rule of that name; `block` is the drafter's block size in tokens."""
    return {**RULES[rule].derive(budget, topk, block)._asdict(), "block_size": block}
