"""How each engine build spells a point: one table, extended from inventory without code by dialects.py.

A dialect is a mapping of the keys of KEYS, each of which says there what it is for. Placeholders of its templates: PLACEHOLDERS.
docs/dialects.md is written from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .quoting import one_line

AXES = ("budget", "topk", "window")
DEFAULT_DIALECT = "pr29907"
# Key to its kind and what it is for.
KEYS: Mapping[str, tuple[type, str]] = {
    "summary": (str, "what the build is, in one line"),
    "source": (str, "where its flags are recorded from, with the date"),
    "axes": (list, "which of budget, topk, window it uses; another one that is asked is refused (all, where not given)"),
    "needs": (list, "which of them must be given"),
    "args": (list, "groups of arguments, each a list; a group with a placeholder whose value is none is left out"),
    "env": (dict, "environment likewise: name to template"),
    "expect": (dict, "fields of the engine's server_info that prove the point; a template that is one placeholder keeps its type"),
    "log_proofs": (list, "regular expressions of lines in the start log that prove it too"),
    "derive": (str, "the rule by which mode, effective topk and verify width follow (tree, where not given)"),
    "limits": (dict, "{axis: {min, max, choices, min_block}}; min_block: at least the drafter's block size"),
    "page_size": (int, "the page size without which the build refuses to start"),
    "attention_backends": (list, "attention backends that it runs with; the first one is rendered"),
    "tree_attention_backends": (list, "those that run its full tree, where a chain runs with more"),
    "notes": (list, "what a person must know before a run"),
}
PLACEHOLDERS: Mapping[str, str] = {
    "model": "ddtree_server_model",
    "drafter": "ddtree_server_drafter",
    "block": "the drafter's block size",
    "tp": "tensor parallel size",
    "budget": "draft tree budget in tokens",
    "topk": "topk as asked",
    "window": "draft window in tokens",
    "verify_width": "tokens verified per request and step, from the rule",
    "effective_topk": "branches a node, from the rule",
}

_DRAFTER = ["--speculative-draft-model-path", "{drafter}"]
_WINDOW = ["--speculative-draft-window-size", "{window}"]
_RUNNER = r"Initialized DFLASH draft runner\..*block_size={block}, draft_window_size={window}, compact_cache="
_WORKER = r"Initialized DDTree worker\. block_size={block}, tree_budget={budget}, max_tree_nodes={verify_width}"
_WINDOW_LIMIT = {"window": {"min_block": True}}

BUILTIN: Mapping[str, Mapping[str, Any]] = {
    "none": {
        "summary": "no speculation: the control that every gain is measured against",
        "source": "any build",
        "axes": [],
        "needs": [],
        "args": [],
        "derive": "none",
        "expect": {"speculative_algorithm": None},
    },
    "dflash": {
        "summary": "stock DFLASH: a chain of one block, with a window",
        "source": "SGLang 0.5.17 and 0.5.23 as on PyPI, 2026-12-01",
        "axes": ["window"],
        "needs": [],
        "derive": "chain",
        "limits": _WINDOW_LIMIT,
        "args": [["--speculative-algorithm", "DFLASH"], _DRAFTER, _WINDOW],
        "expect": {
            "speculative_algorithm": "DFLASH",
            "speculative_num_draft_tokens": "{block}",
            "speculative_draft_window_size": "{window}",
        },
        "log_proofs": [_RUNNER],
    },
    "pr29907": {
        "summary": "pull request 29907: DDTREE with a budget; topk is only a ceiling, by environment",
        "source": "sgl-project/sglang pull request 29907 at 93e9850e4300, 2026-07-02",
        "axes": ["budget", "topk", "window"],
        "needs": ["budget"],
        "derive": "spine_tree",
        "limits": _WINDOW_LIMIT,
        "args": [["--speculative-algorithm", "DDTREE"], _DRAFTER, ["--speculative-ddtree-budget", "{budget}"], _WINDOW],
        "env": {"SGLANG_DDTREE_MAX_TOPK": "{topk}"},
        "expect": {
            "speculative_algorithm": "DDTREE",
            "speculative_ddtree_budget": "{budget}",
            "speculative_num_draft_tokens": "{block}",
            "speculative_draft_window_size": "{window}",
        },
        "log_proofs": [_RUNNER, _WORKER],
        "page_size": 1,
        "attention_backends": ["triton"],
        "tree_attention_backends": ["triton"],
    },
    "pr27509": {
        "summary": "pull request 27509 and its fork Rancy-Wang/sglang: DDTREE with a budget and no bound on branches",
        "source": "sgl-project/sglang pull request 27509, 2026-06-07",
        "axes": ["budget", "window"],
        "needs": ["budget"],
        "derive": "tree",
        "limits": _WINDOW_LIMIT,
        "args": [["--speculative-algorithm", "DDTREE"], _DRAFTER, ["--speculative-ddtree-budget", "{budget}"], _WINDOW],
        "expect": {
            "speculative_algorithm": "DDTREE",
            "speculative_ddtree_budget": "{budget}",
            "speculative_draft_window_size": "{window}",
        },
        "log_proofs": [r"Initialized DDTree (v2 )?worker\. block_size={block}, tree_budget={budget}, max_tree_nodes={verify_width}"],
    },
    "pr31069": {
        "summary": "pull request 31069: DFLASH with tree verification; the budget is the number of draft tokens",
        "source": "sgl-project/sglang pull request 31069, 2026-07-13",
        "axes": ["budget", "topk", "window"],
        "needs": ["budget", "topk"],
        "derive": "nodes",
        "limits": {"topk": {"choices": [4, 8, 16]}, **_WINDOW_LIMIT},
        "args": [
            ["--speculative-algorithm", "DFLASH"],
            _DRAFTER,
            ["--speculative-dflash-tree-verify"],
            ["--speculative-num-draft-tokens", "{budget}"],
            ["--speculative-eagle-topk", "{topk}"],
            _WINDOW,
        ],
        "expect": {
            "speculative_algorithm": "DFLASH",
            "speculative_num_draft_tokens": "{budget}",
            "speculative_eagle_topk": "{topk}",
            "speculative_draft_window_size": "{window}",
        },
    },
    "pr36196": {
        "summary": "pull request 36196: DFLASH beam trees for DFlash2 drafters; topk is the tree's width, the budget caps its nodes",
        "source": "sgl-project/sglang pull request 36196, 2026-08-24",
        "axes": ["budget", "topk", "window"],
        "needs": ["topk"],
        "derive": "beam",
        "limits": {"budget": {"min_block": True}, **_WINDOW_LIMIT},
        "args": [["--speculative-algorithm", "DFLASH"], _DRAFTER, ["--speculative-dflash-tree-width", "{topk}"], _WINDOW],
        "env": {"SGLANG_DFLASH_MAX_NUM_NODES": "{budget}"},
        "expect": {
            "speculative_algorithm": "DFLASH",
            "speculative_dflash_block_size": "{block}",
            "speculative_num_draft_tokens": "{verify_width}",
            "speculative_eagle_topk": "{topk}",
            "speculative_draft_window_size": "{window}",
        },
        "log_proofs": [r"DFLASH tree verify: tree_width={topk}, block_size={block}, verify_width={verify_width},"],
        "page_size": 1,
        "attention_backends": ["triton", "flashinfer", "fa3"],
        "notes": [
            "pr36196 needs a DFlash2 drafter whose selector_top_k is at least topk; the public Kimi K2.5 and K2.6 drafters are of the "
            "first kind",
            "pr36196 verifies greedy requests only",
        ],
    },
    "jetspec": {
        "summary": "the JetSpec fork: DFLASH with a tree budget and a tree width",
        "source": "commands of the JetSpec fork of SGLang, 2026-06-28",
        "axes": ["budget", "topk", "window"],
        "needs": ["budget", "topk"],
        "derive": "tree",
        "limits": _WINDOW_LIMIT,
        "args": [
            ["--speculative-algorithm", "DFLASH"],
            _DRAFTER,
            ["--speculative-dflash-tree-budget", "{budget}"],
            ["--speculative-dflash-tree-width", "{topk}"],
            _WINDOW,
        ],
        "expect": {
            "speculative_algorithm": "DFLASH",
            "speculative_dflash_tree_budget": "{budget}",
            "speculative_dflash_tree_width": "{topk}",
            "speculative_draft_window_size": "{window}",
        },
        "notes": ["jetspec needs a JetSpec drafter"],
    },
    "custom": {
        "summary": "a build of your own: its templates are given in ddtree_server_dialects",
        "source": "yourself",
        "axes": ["budget", "topk", "window"],
        "needs": [],
        "derive": "tree",
        "args": [],
        "expect": {},
    },
}

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


class DialectError(ValueError):
    """A dialect table that cannot be used; the message is one sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def fill(template: str, values: Mapping[str, Any]) -> Any:
    """A template with its placeholders put in; one that is a single placeholder gives the value itself, typed, and None where a
    placeholder inside text has the value None. Raises KeyError on a placeholder without a value.
    """
    names = placeholders(template)
    if names and template == f"{{{names[0]}}}":
        return values[names[0]]
    if any(values[name] is None for name in names):
        return None
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), template)


def fill_pattern(template: str, values: Mapping[str, Any]) -> str:
    """A regular expression with the values as literal text; the engine's log writes None for a value that is not set."""
    return _PLACEHOLDER.sub(lambda match: re.escape(str(values[match[1]])), template)


def placeholders(template: str) -> list[str]:
    """The names of a template's placeholders, in order."""
    return _PLACEHOLDER.findall(template)


def groups(dialect: Mapping[str, Any]) -> Iterator[list[str]]:
    """The dialect's argument groups; a bare string is a group of one."""
    for group in dialect.get("args") or []:
        yield [str(one) for one in group] if isinstance(group, list) else [str(group)]


def templates(dialect: Mapping[str, Any]) -> Iterator[str]:
    """Every template of the dialect."""
    for group in groups(dialect):
        yield from group
    for key in ("env", "expect"):
        yield from (one for one in (dialect.get(key) or {}).values() if isinstance(one, str))
    yield from dialect.get("log_proofs") or []
