"""Dialects that a user gives in inventory, laid over the built-in ones; each mistake is one sentence: what, where, what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .derived import RULES
from .dialect_table import AXES, BUILTIN, DEFAULT_DIALECT, KEYS, PLACEHOLDERS, DialectError, fill_pattern, groups, placeholders, templates

__all__ = ["AXES", "BUILTIN", "DEFAULT_DIALECT", "DialectError", "merged"]

VARIABLE = "ddtree_server_dialects"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIMITS = ("min", "max", "choices", "min_block")
_KIND_NAMES = {str: "a text", list: "a list", dict: "a mapping", int: "a whole number"}


def merged(own: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The built-in dialects with a user's own laid over them: a known name changes single keys, a new one adds a dialect.

    Raises DialectError with the dialect, the key and what is wanted there.
    """
    table = {name: dict(dialect) for name, dialect in BUILTIN.items()}
    if not isinstance(own or {}, Mapping):
        raise DialectError(f"{VARIABLE} is no mapping of dialect names to their tables")
    for raw, dialect in (own or {}).items():
        name = str(raw)
        if not _NAME.fullmatch(name) or name == "default":
            raise DialectError(f"{name!r} in {VARIABLE} cannot name a dialect: lower-case letters, digits, '_' and '.' are usable")
        where = f"{VARIABLE}.{name}"
        if not isinstance(dialect, Mapping):
            raise DialectError(f"{where} is {_short(dialect)}, no mapping of keys such as args, env and expect")
        entry = table.setdefault(name, {"axes": list(AXES), "needs": [], "derive": "tree", "args": [], "expect": {}})
        for key, value in dialect.items():
            entry[str(key)] = _plain(value)
        _check(where, entry)
    return table


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


def _check(where: str, dialect: Mapping[str, Any]) -> None:
    for key, value in dialect.items():
        if key not in KEYS:
            raise DialectError(f"{where} has the unknown key {key!r}{_nearest(key, KEYS)}; known are {', '.join(KEYS)}")
        kind = KEYS[key][0]
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise DialectError(f"{where}.{key} is {_short(value)}, {_KIND_NAMES[kind]} is wanted")
    rule = dialect.get("derive")
    if rule not in RULES:
        raise DialectError(f"{where}.derive is {rule!r}{_nearest(str(rule), RULES)}; one of {', '.join(RULES)} is wanted")
    if dialect.get("page_size") is not None and dialect["page_size"] < 1:
        raise DialectError(f"{where}.page_size is {dialect['page_size']}, at least 1 is wanted")
    _check_axes(where, dialect)
    _check_limits(where, dialect.get("limits") or {})
    _check_texts(where, dialect)
    _check_templates(where, dialect)


def _check_axes(where: str, dialect: Mapping[str, Any]) -> None:
    for key in ("axes", "needs"):
        for axis in dialect.get(key) or []:
            if axis not in AXES:
                raise DialectError(f"{where}.{key} names {axis!r}{_nearest(str(axis), AXES)}; the axes are {', '.join(AXES)}")
    for axis in dialect.get("needs") or []:
        if axis not in (dialect.get("axes") or []):
            raise DialectError(f"{where}.needs has {axis}, which is not among its axes: add it there")


def _check_limits(where: str, limits: Mapping[str, Any]) -> None:
    for axis, limit in limits.items():
        place = f"{where}.limits.{axis}"
        if axis not in AXES:
            raise DialectError(f"{place} limits no axis{_nearest(axis, AXES)}; the axes are {', '.join(AXES)}")
        if not isinstance(limit, Mapping):
            raise DialectError(f"{place} is {_short(limit)}, a mapping of {', '.join(_LIMITS)} is wanted")
        for key, value in limit.items():
            if key not in _LIMITS:
                raise DialectError(f"{place} has the unknown key {key!r}{_nearest(key, _LIMITS)}; known are {', '.join(_LIMITS)}")
            if key == "min_block":
                good, wanted = isinstance(value, bool), "true or false"
            elif key == "choices":
                good, wanted = isinstance(value, list) and bool(value) and all(map(_whole, value)), "a list of whole numbers"
            else:
                good, wanted = _whole(value), "a whole number"
            if not good:
                raise DialectError(f"{place}.{key} is {_short(value)}, {wanted} is wanted")


def _check_texts(where: str, dialect: Mapping[str, Any]) -> None:
    for key in ("attention_backends", "tree_attention_backends", "notes", "log_proofs"):
        for index, one in enumerate(dialect.get(key) or []):
            if not isinstance(one, str):
                raise DialectError(f"{where}.{key}[{index}] is {_short(one)}, a text is wanted")
    for name, value in (dialect.get("env") or {}).items():
        if not _ENV_NAME.fullmatch(name):
            raise DialectError(f"{where}.env has the name {name!r}: letters, digits and _ are usable, a digit not first")
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise DialectError(f"{where}.env.{name} is {_short(value)}: write the text that the engine shall read, in quotes")
    for index, group in enumerate(dialect.get("args") or []):
        place = f"{where}.args[{index}]"
        if not isinstance(group, (str, list)) or not group:
            raise DialectError(f"{place} is {_short(group)}, a list such as [--my-budget, '{{budget}}'] is wanted")
        for one in group if isinstance(group, list) else [group]:
            if isinstance(one, bool) or not isinstance(one, (str, int, float)):
                raise DialectError(f"{place} holds {_short(one)}: write the text that the engine shall read, in quotes")
            if re.match(r"--[a-z0-9-]+\s", str(one)):
                raise DialectError(f"{place} holds {str(one)!r} as one argument: write flag and value as two items")


def _check_templates(where: str, dialect: Mapping[str, Any]) -> None:
    for template in templates(dialect):
        for name in placeholders(template):
            if name not in PLACEHOLDERS:
                raise DialectError(
                    f"{where} has the unknown placeholder {{{name}}} in {template!r}{_nearest(name, PLACEHOLDERS)}; "
                    f"known are {', '.join(PLACEHOLDERS)}"
                )
    for group in groups(dialect):
        for name in (name for one in group for name in placeholders(one)):
            if name in AXES and name not in (dialect.get("axes") or []):
                raise DialectError(f"{where}.args uses {{{name}}}, which is not among its axes and so never has a value: add it there")
    for pattern in dialect.get("log_proofs") or []:
        try:
            re.compile(fill_pattern(pattern, dict.fromkeys(PLACEHOLDERS, 1)))
        except re.error as error:
            raise DialectError(f"{where}.log_proofs has {pattern!r}, which is no regular expression: {error}") from None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(names), n=1, cutoff=0.55)
    return f" (did you mean {close[0]}?)" if close else ""
