"""How each engine build spells a point: one table, extended from inventory without code.

A dialect is a mapping of
  axes        which of budget, topk, window it uses; another one that is asked is refused
  needs       which of them must be given
  args        argument groups; a group with a placeholder whose value is none is left out
  env         environment likewise
  expect      fields of the engine's server_info that prove the point, placeholders typed
  log_proofs  regular expressions of lines in the start log
  derive      none | chain | tree | nodes | spine_tree: how mode, effective topk and verify width follow
  limits      {axis: {min, max, choices, min_block}}; min_block: at least the drafter's block size
  page_size, attention_backends, tree_attention_backends   constraints; the first backend is the one rendered
  notes       what a person must know before a run: warnings
Placeholders: {model} {drafter} {block} {tp} {budget} {topk} {window} {verify_width} {effective_topk}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

AXES = ("budget", "topk", "window")
DERIVE = ("none", "chain", "tree", "nodes", "spine_tree")
KEYS = (
    "summary",
    "axes",
    "needs",
    "args",
    "env",
    "expect",
    "log_proofs",
    "derive",
    "limits",
    "page_size",
    "attention_backends",
    "tree_attention_backends",
    "notes",
)
DEFAULT_DIALECT = "pr29907"
# SGLANG_DDTREE_MAX_TOPK where the environment does not set it.
MAX_TOPK = 6

_DRAFTER = ["--speculative-draft-model-path", "{drafter}"]
_WINDOW = ["--speculative-draft-window-size", "{window}"]
_RUNNER = r"Initialized DFLASH draft runner\..*block_size={block}, draft_window_size={window}, compact_cache="
_WINDOW_LIMIT = {"window": {"min_block": True}}

BUILTIN: Mapping[str, Mapping[str, Any]] = {
    "none": {
        "summary": "no speculation: the control that every gain is measured against",
        "axes": [],
        "needs": [],
        "args": [],
        "derive": "none",
        "expect": {"speculative_algorithm": None},
    },
    "dflash": {
        "summary": "stock DFLASH of SGLang 0.5.17 to 0.5.23: one chain of a block, window only",
        "axes": ["window"],
        "needs": [],
        "derive": "chain",
        "limits": _WINDOW_LIMIT,
        "args": [["--speculative-algorithm", "DFLASH"], _DRAFTER, _WINDOW],
        "expect": {"speculative_algorithm": "DFLASH", "speculative_draft_window_size": "{window}"},
        "log_proofs": [_RUNNER],
    },
    "pr29907": {
        "summary": "pull request 29907: DDTREE with a budget; topk is only a ceiling, by environment",
        "axes": ["budget", "topk", "window"],
        "needs": ["budget"],
        "derive": "spine_tree",
        "limits": _WINDOW_LIMIT,
        "args": [
            ["--speculative-algorithm", "DDTREE"],
            _DRAFTER,
            ["--speculative-ddtree-budget", "{budget}"],
            _WINDOW,
        ],
        "env": {"SGLANG_DDTREE_MAX_TOPK": "{topk}"},
        "expect": {
            "speculative_algorithm": "DDTREE",
            "speculative_ddtree_budget": "{budget}",
            "speculative_draft_window_size": "{window}",
        },
        "log_proofs": [_RUNNER, r"Initialized DDTree worker\. block_size={block}, tree_budget={budget},"],
        "page_size": 1,
        "attention_backends": ["triton"],
        "tree_attention_backends": ["triton"],
    },
    "pr31069": {
        "summary": "pull request 31069: DFLASH with tree verification; budget is the number of draft tokens",
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
        "summary": "pull request 36196: DFLASH tree verification for DFlash2 drafters; topk is the tree's width",
        "axes": ["budget", "topk", "window"],
        "needs": ["topk"],
        "derive": "nodes",
        "limits": {"budget": {"min_block": True}, **_WINDOW_LIMIT},
        "args": [
            ["--speculative-algorithm", "DFLASH"],
            _DRAFTER,
            ["--speculative-dflash-tree-width", "{topk}"],
            _WINDOW,
        ],
        "env": {"SGLANG_DFLASH_MAX_NUM_NODES": "{budget}"},
        "expect": {"speculative_algorithm": "DFLASH", "speculative_draft_window_size": "{window}"},
        "log_proofs": [r"DFLASH tree verify: tree_width={topk}, block_size={block},"],
        "page_size": 1,
        "attention_backends": ["triton", "flashinfer", "fa3"],
        "notes": ["pr36196 needs a DFlash2 drafter; the public Kimi K2.5 and K2.6 drafters are of the first kind"],
    },
    "jetspec": {
        "summary": "the JetSpec fork: DFLASH with a tree budget and a tree width",
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
        "expect": {"speculative_algorithm": "DFLASH", "speculative_draft_window_size": "{window}"},
        "notes": ["jetspec needs a JetSpec drafter"],
    },
    "custom": {
        "summary": "a build of your own: its templates are given in ddtree_server_dialects",
        "axes": ["budget", "topk", "window"],
        "needs": [],
        "derive": "tree",
        "args": [],
        "expect": {},
    },
}

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.]*")


class DialectError(ValueError):
    """A dialect table that cannot be used; the message is one sentence."""


def merged(own: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The built-in dialects with a user's own laid over them: a known name changes single keys, a new one
    adds a dialect.

    Raises DialectError with the dialect, the key and what is wanted there.
    """
    table = {name: dict(dialect) for name, dialect in BUILTIN.items()}
    if not isinstance(own or {}, Mapping):
        raise DialectError("ddtree_server_dialects is no mapping of dialect names to their tables")
    for raw, dialect in (own or {}).items():
        name = str(raw)
        if not _NAME.fullmatch(name):
            raise DialectError(f"{name!r} cannot name a dialect: lower-case letters, digits, '_' and '.' are usable")
        if not isinstance(dialect, Mapping):
            raise DialectError(f"dialect {name} is no mapping of keys such as args, env and expect")
        entry = table.setdefault(name, {"axes": list(AXES), "needs": [], "derive": "tree", "args": [], "expect": {}})
        for key, value in dialect.items():
            entry[str(key)] = _plain(value)
        _check(name, entry)
    return table


def fill(template: str, values: Mapping[str, Any], where: str) -> Any:
    """A template with its placeholders put in; a template that is one placeholder gives the value itself,
    typed.

    None when a placeholder inside text has the value None. Raises DialectError on an unknown placeholder.
    """
    names = placeholders(template)
    for name in names:
        if name not in values:
            raise DialectError(f"{where} has the unknown placeholder {{{name}}}; known are {', '.join(sorted(values))}")
    if names and template == f"{{{names[0]}}}":
        return values[names[0]]
    if any(values[name] is None for name in names):
        return None
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), template)


def placeholders(template: str) -> list[str]:
    """The names of a template's placeholders, in order."""
    return _PLACEHOLDER.findall(template)


def groups(dialect: Mapping[str, Any]) -> Iterator[list[str]]:
    """The dialect's argument groups; a bare string is a group of one."""
    for group in dialect.get("args") or []:
        yield [str(one) for one in group] if isinstance(group, list) else [str(group)]


def _plain(value: Any) -> Any:
    """Ansible's tagged values as plain ones."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _check(name: str, dialect: Mapping[str, Any]) -> None:
    for key, value in dialect.items():
        if key not in KEYS:
            raise DialectError(f"dialect {name} has the unknown key {key!r}; known are {', '.join(KEYS)}")
        kind: Any = dict if key in ("env", "expect", "limits") else list
        if key in ("summary", "derive"):
            kind = str
        if key == "page_size":
            kind = int
        if value is not None and not isinstance(value, kind):
            raise DialectError(f"dialect {name}: {key} is {value!r}, a {kind.__name__} is wanted")
    if dialect.get("derive") not in DERIVE:
        raise DialectError(f"dialect {name}: derive is {dialect.get('derive')!r}, one of {', '.join(DERIVE)} is wanted")
    for key in ("axes", "needs"):
        for axis in dialect.get(key) or []:
            if axis not in AXES:
                raise DialectError(f"dialect {name}: {key} names {axis!r}; the axes are {', '.join(AXES)}")
