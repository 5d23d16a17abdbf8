"""Whether a variable's value is what its specification asks: its kind, its choices, its range, and nothing that could break a line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .quoting import one_line

YES = ("yes", "true", "on", "1", "no", "false", "off", "0")
# Whole numbers by the end of a variable's name: least and most.
RANGES = (
    (re.compile(r"_port$"), 1, 65535),
    (re.compile(r"_(gpus|tp)$"), 1, 64),
    (re.compile(r"_stop_timeout$"), 31, 86400),  # systemd's own limit is 30 s below
    (re.compile(r"_timeout$"), 1, 86400),
    (re.compile(r"_(requests|tokens|slot|least|most|width|concurrencies|contexts)$"), 1, 10**9),
)
PATTERNS = {
    "ddtree_server_unit": (re.compile(r"[A-Za-z0-9][A-Za-z0-9:_-]*"), "letters, digits, ':', '_' and '-'"),
    "ddtree_server_user": (re.compile(r"[a-z_][a-z0-9_-]{0,31}"), "a user's name"),
    "ddtree_server_host": (re.compile(r"[0-9A-Za-z_.:-]+"), "an address"),
    "ddtree_server_url": (re.compile(r"https?://[^\s/]+/?"), "a URL such as http://127.0.0.1:30000"),
    "benchmark_url": (re.compile(r"https?://[^\s/]+/?"), "a URL such as http://127.0.0.1:30000"),
}
SECRET = re.compile(r"_(key|token|password|secret)s?$")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\u0085\u2028\u2029]")


class Undefined:
    """A value that cannot be told, with Ansible's reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def complaint(name: str, value: Any, option: Mapping[str, Any]) -> str:
    """One sentence on what is wrong with the value, '' when nothing is."""
    if isinstance(value, Undefined):
        return f"{name} cannot be told: {value.reason}"
    said = one_line(next(_complaints(name, value, option), ""))
    return said.replace(short(value), "not shown here") if SECRET.search(name) else said


def _complaints(name: str, value: Any, option: Mapping[str, Any]) -> Iterator[str]:
    kind = str(option.get("type", "str"))
    if option.get("choices") and kind != "list":
        yield from _choice(name, value, [str(one) for one in option["choices"]])
    elif kind == "int":
        yield from _whole(name, value)
    elif kind == "float":
        if isinstance(value, bool) or not re.fullmatch(r"\d+(\.\d+)?", str(value)):
            yield f"{name} is {short(value)}: a number of at least 0 is wanted"
    elif kind == "bool":
        if not isinstance(value, bool) and str(value).lower() not in YES:
            yield f"{name} is {short(value)}: true or false is wanted"
    elif kind in ("str", "path"):
        yield from _text(name, value, kind, option)
    elif kind == "list":
        yield from _list(name, value, option)
    elif kind == "dict":
        yield from _mapping(name, value, option.get("options") or {})
    elif kind == "raw" and not isinstance(value, str):  # a text is split into words, and lines are fine between them
        yield from _lines(name, value)


def _choice(name: str, value: Any, choices: list[str]) -> Iterator[str]:
    if isinstance(value, bool) and (word := "no" if value is False else "yes") in choices:
        yield f"{name} is {value}: write {word!r} in quotes, since YAML takes the bare word for {str(value).lower()}"
    elif not isinstance(value, (str, int)) or isinstance(value, bool) or str(value) not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.5)
        yield f"{name} is {short(value)}: one of {', '.join(choices)} is wanted" + (f"; did you mean {near[0]}?" if near else "")


def _whole(name: str, value: Any) -> Iterator[str]:
    text = str(value).strip()
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not re.fullmatch(r"-?[0-9]+", text):
        yield f"{name} is {short(value)}: a whole number is wanted"
        return
    least, most = next(((low, high) for ending, low, high in RANGES if ending.search(name)), (0, 10**12))
    if not least <= int(text) <= most:
        yield f"{name} is {text}: {least} to {most} is wanted" if most < 10**9 else f"{name} is {text}: at least {least} is wanted"


def _text(name: str, value: Any, kind: str, option: Mapping[str, Any]) -> Iterator[str]:
    if value is None:
        yield f'{name} is empty: write a value, or "" for none'
    elif isinstance(value, bool) or not isinstance(value, (str, int, float)):
        yield f"{name} is {short(value)}: a text is wanted" + (", in quotes" if isinstance(value, bool) else "")
    elif _CONTROL.search(str(value)):
        yield f"{name} is {short(value)}: one line without control characters is wanted"
    elif kind == "path" and str(value) and not option.get("controller") and not str(value).startswith(("/", "~/")):
        yield f"{name} is {short(value)}: a path from the root is wanted, as in /srv/models"
    elif kind == "path" and ".." in str(value).split("/"):
        yield f"{name} is {short(value)}: a path without '..' is wanted"
    elif name in PATTERNS and not PATTERNS[name][0].fullmatch(str(value)):
        yield f"{name} is {short(value)}: {PATTERNS[name][1]} is wanted"


def _list(name: str, value: Any, option: Mapping[str, Any]) -> Iterator[str]:
    items = value.split(",") if isinstance(value, str) and value.strip() else value
    if not isinstance(items, (list, tuple)):
        yield f"{name} is {short(value)}: a list is wanted"
        return
    inner = {"type": option.get("elements", "raw"), **{key: option.get(key) for key in ("controller", "options", "choices")}}
    for index, one in enumerate(items):
        yield from (said.replace(name, f"{name}[{index}]", 1) for said in _complaints(name, one, inner))


def _mapping(name: str, value: Any, options: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A mapping; with `options` it has these keys and no others."""
    if not isinstance(value, Mapping):
        yield f"{name} is {short(value)}: a mapping of names to values is wanted"
        return
    yield from _lines(name, value)
    for key, one in value.items() if options else ():
        near = difflib.get_close_matches(str(key), list(options), n=1, cutoff=0.6)
        if str(key) not in options:
            hint = f"; did you mean {near[0]}?" if near else ""
            yield f"{name} has the unknown key {str(key)!r}, known are {', '.join(options)}{hint}"
        else:
            yield from _complaints(f"{name}.{key}", one, options[str(key)])
    for key, inner in options.items():
        if inner.get("required") and not value.get(key):
            yield f"{name} has no {key}: it is needed"


def _lines(name: str, value: Any) -> Iterator[str]:
    """Control characters anywhere in what goes to an environment file or a command line."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _lines(f"{name}.{key}", one)
    elif isinstance(value, (list, tuple)):
        for index, one in enumerate(value):
            yield from _lines(f"{name}[{index}]", one)
    elif isinstance(value, str) and _CONTROL.search(value):
        yield f"{name} is {short(value)}: one line without control characters is wanted"


def short(value: Any) -> str:
    """A value as people read it, cut where it is long; tags of Ansible left out."""
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
