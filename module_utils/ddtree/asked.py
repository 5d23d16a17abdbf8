"""Engine flags and environment as a person writes them: strings, lists, mappings, ranges."""

from __future__ import annotations

import difflib
import itertools
import re
import shlex
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from .quoting import one_line

RANGE_LIMIT = 1000
_BARE = "true"
_FLAG_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class PointError(ValueError):
    """What was asked is no point; the message is one sentence: what, where, what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def flags(value: Any, where: str = "flags") -> list[tuple[tuple[str, str], ...]]:
    """Every combination of the flags' values. A flag's value is one or a list of them, or a range {from, to, step}; true is the bare flag,
    false or null leaves it out. Pairs of name, with underscores, and value as text; a bare flag has the value "true".
    """
    if value is None or value == "":
        return [()]
    if not isinstance(value, Mapping):
        raise PointError(f"{where} is {value!r}: a mapping such as {{attention_backend: [triton, flashinfer]}} is wanted")
    axes: list[list[tuple[str, str] | None]] = []
    for raw, one in value.items():
        name = str(raw).lstrip("-").replace("-", "_")
        if not _FLAG_NAME.fullmatch(name):
            raise PointError(f"{where} has the name {str(raw)!r}: the engine's own is wanted, as in attention_backend")
        axes.append([_flag_value(name, each, f"{where}.{name}") for each in _flag_values(one, f"{where}.{name}")])
    return [tuple(sorted(pair for pair in chosen if pair is not None)) for chosen in itertools.product(*axes)]


def arguments(value: Any, where: str = "extra_args") -> tuple[str, ...]:
    """Engine flags from a string (split as a shell does), a list (one argument each) or a mapping of flag to
    value.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    if isinstance(value, str):
        try:
            return tuple(str(one) for one in shlex.split(str(value)))
        except ValueError as error:
            raise PointError(f"{where} is {value!r}: its quotes are not closed ({error})") from None
    if isinstance(value, Mapping):
        return tuple(itertools.chain.from_iterable(_flag(str(key), one, where) for key, one in value.items()))
    if not isinstance(value, (list, tuple)):
        raise PointError(f"{where} is {value!r}: a string, a list of arguments or a mapping of flags is wanted")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, (str, int, float)):
            raise PointError(f"{where} holds {one!r}: each argument is a string or a number")
        if re.match(r"--[a-z0-9-]+\s", str(one)):
            raise PointError(f"{where} holds {str(one)!r} as one argument: write flag and value as two items, or all as one string")
    return tuple(str(one) for one in value)


def environment(value: Any, where: str = "extra_env") -> tuple[tuple[str, str], ...]:
    """Environment of the engine as sorted pairs of strings. Raises PointError on a name or value that cannot
    be set.
    """
    if value is None or value == "":
        return ()
    if not isinstance(value, Mapping):
        raise PointError(f"{where} is {value!r}: a mapping of names to values is wanted")
    pairs = []
    for key, one in value.items():
        if not _ENV_NAME.fullmatch(str(key)):
            raise PointError(f"{where} has the name {str(key)!r}: letters, digits and _ are usable, a digit not first")
        if isinstance(one, bool) or not isinstance(one, (str, int, float)):
            raise PointError(f"{where}.{key} is {one!r}: write the text that the engine shall read, in quotes")
        pairs.append((str(key), str(one)))
    return tuple(sorted(pairs))


def known_keys(given: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    names = list(keys)
    for key in given:
        if str(key) not in names:
            raise PointError(f"{where} have no key {str(key)!r}: known are {', '.join(names)}{nearest(str(key), names)}")


def nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.55)
    return f"; did you mean {close[0]}?" if close else ""


# -- parts


def _flag_values(value: Any, where: str) -> list[Any]:
    if isinstance(value, Mapping):
        known_keys(value, ("from", "to", "step"), f"the keys of {where}")
        try:
            start, stop, step = (Decimal(str(value.get(key, 1 if key == "step" else None))) for key in ("from", "to", "step"))
        except InvalidOperation:
            raise PointError(
                f"{where} is the range {dict(value)!r}: numbers are wanted, as in {{from: 0.8, to: 0.9, step: 0.05}}"
            ) from None
        if not (step > 0 and stop >= start and (stop - start) / step < RANGE_LIMIT):
            raise PointError(
                f"{where} is a range from {start} to {stop} by {step}: up to {RANGE_LIMIT} values, from not above to, are wanted"
            )
        return [str((start + step * at).normalize().to_eng_string()) for at in range(int((stop - start) / step) + 1)]
    if isinstance(value, (list, tuple)):
        if not value:
            raise PointError(f"{where} is an empty list: give at least one value or leave it out")
        return list(value)
    return [value]


def _flag_value(name: str, value: Any, where: str) -> tuple[str, str] | None:
    if value is None or value is False:
        return None
    if value is True:
        return name, _BARE
    if not isinstance(value, (str, int, float)) or not str(value).strip():
        raise PointError(f"{where} is {value!r}: a string, a number, true, false or a list of them is wanted")
    return name, str(value)


def words(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The arguments of flags: --attention-backend triton."""
    return tuple(word for name, value in pairs for word in _flag(name, True if value == _BARE else value, "flags"))


def _flag(key: str, value: Any, where: str) -> list[str]:
    flag = key if key.startswith("-") else "--" + key.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    items = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(one, bool) or not isinstance(one, (str, int, float)) for one in items):
        raise PointError(f"{where}.{key} is {value!r}: a string, a number, true, false or a list of them is wanted")
    return [flag, *(str(one) for one in items)]
