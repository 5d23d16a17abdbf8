"""Sweep points: what a person asked, read into typed, named, distinct points.

The command line gives strings, YAML gives numbers, null and now and then an octal; each is read here once and
nowhere else.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .asked import RANGE_LIMIT, PointError, arguments, environment, flags, known_keys, nearest, words
from .dialects import AXES, BUILTIN, DEFAULT_DIALECT

DEFAULT_WINDOW = 2048
DEFAULT_TP = 8
# Highest value that is no slip of the keyboard; window goes up to the longest contexts that are served.
MOST = {"budget": 1024, "topk": 1024, "window": 1 << 20, "tp": 64}
KEYS = ("dialect", "budget", "topk", "window", "tp", "flags", "extra_args", "extra_env")
SPEC_KEYS = (*KEYS, "points", "exclude")
# Written for a value that is not given, so that a playbook can pass each key without a condition.
DEFAULT_WORD = "default"
_NO_WINDOW = {"", "none", "null", "~"}
# Longest name that a file may have, with room for what is put behind it.
_NAME_LIMIT = 180


@dataclass(frozen=True)
class Point:
    """One configuration to run. `budget`, `topk` and `window` are tokens; None where the dialect does not use
    them or none is set. `flags` are those that were asked by name; `extra_args` has their words at its end.
    """

    dialect: str = DEFAULT_DIALECT
    budget: int | None = None
    topk: int | None = None
    window: int | None = DEFAULT_WINDOW
    tp: int = DEFAULT_TP
    extra_args: tuple[str, ...] = ()
    extra_env: tuple[tuple[str, str], ...] = ()
    flags: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """A file name that differs between any two different points: b12-k6-w2048, none, dflash-w2048."""
        window = f"w{'none' if self.window is None else self.window}"
        parts = []
        if self.dialect in ("none", "dflash"):
            parts.append(self.dialect)
        parts += [f"{key}{value}" for key, value in (("b", self.budget), ("k", self.topk)) if value is not None]
        if self.dialect != "none":
            parts.append(window)
        if self.dialect not in ("none", "dflash", DEFAULT_DIALECT):
            parts.append(self.dialect)
        if self.tp != DEFAULT_TP:
            parts.append(f"tp{self.tp}")
        if self.own_args or self.extra_env:
            parts.append("x" + _digest([self.own_args, self.extra_env]))
        parts += [f"{key}.{_file_word(value)}" for key, value in self.flags]
        name = "-".join(parts)
        return name if len(name) <= _NAME_LIMIT else f"{name[:_NAME_LIMIT]}-{_digest(name)}"

    @property
    def own_args(self) -> tuple[str, ...]:
        """The extra arguments without those of `flags`."""
        return self.extra_args[: len(self.extra_args) - len(words(self.flags))]

    def as_dict(self) -> dict[str, Any]:
        """Plain types, with the name; from_dict reads it back."""
        return {
            "name": self.name,
            "dialect": self.dialect,
            "budget": self.budget,
            "topk": self.topk,
            "window": self.window,
            "tp": self.tp,
            "flags": dict(self.flags),
            "extra_args": list(self.own_args),
            "extra_env": dict(self.extra_env),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], dialects: Mapping[str, Any] = BUILTIN) -> Point:
        """One point from a dict, which may come from a person; `name` is ignored. Raises PointError."""
        if not isinstance(given, Mapping):
            raise PointError(f"a point is {given!r}: a mapping such as {{budget: 12, topk: 6}} is wanted")
        found = expand({key: value for key, value in given.items() if str(key) != "name"}, {}, dialects)
        if len(found) != 1:
            raise PointError(f"one point is wanted, this makes {len(found)}: {', '.join(one.name for one in found[:4])}")
        return found[0]


def expand(spec: Mapping[str, Any], defaults: Mapping[str, Any], dialects: Mapping[str, Any] = BUILTIN) -> list[Point]:
    """The distinct points that `spec` asks, in the order asked.

    Keys of both: dialect budget topk window tp flags extra_args extra_env; of spec also points (a list of such
    mappings, to which the other keys of spec apply where a point has none of its own) and exclude (a list of
    partial points to leave out).
    Raises PointError before anything is run.
    """
    where = "the points"
    if not isinstance(spec, Mapping):
        raise PointError(f"{where} are {spec!r}: a mapping of keys such as budget and topk is wanted")
    known_keys(spec, SPEC_KEYS, where)
    known_keys(defaults, KEYS, "the defaults")
    base = {str(key): value for key, value in spec.items() if str(key) in KEYS and not _absent(str(key), value)}
    listed = _mappings(spec.get("points"), "points")
    asked = [base] if listed is None else _under(base, listed)
    points: dict[Point, None] = {}
    for index, one in enumerate(asked):
        place = "" if listed is None else f"points[{index}]."
        for point in _grid(one, defaults, dialects, place):
            points.setdefault(point)
    kept = _without(list(points), _mappings(spec.get("exclude"), "exclude") or [])
    if not kept:
        raise PointError("no point is left to run: points is empty, or exclude takes all of them out")
    return kept


def controls(asked: Sequence[Point], dialects: Mapping[str, Any] = BUILTIN) -> list[Point]:
    """What the gains of these points are measured against and that is not among them: no speculation, and the plain chain. None where
    no point speculates. They take the tensor parallel size and the window of the first that does.
    """
    first = next((one for one in asked if one.dialect != "none"), None)
    if first is None:
        return []
    chain = Point(dialect="dflash", window=first.window if first.window is not None else DEFAULT_WINDOW, tp=first.tp)
    wanted = [Point(dialect="none", window=None, tp=first.tp), chain]
    have = {one.dialect for one in asked}
    return [one for one in wanted if one.dialect in dialects and one.dialect not in have]


def check_names(given: Iterable[str], known: Iterable[str], what: str = "sweep.yml", allowed: str = "allowed_vars") -> None:
    """Raise PointError on the first given name that is not known, with the nearest known one."""
    names = sorted({str(name) for name in known})
    for name in given:
        if str(name) not in names:
            raise PointError(
                f"{name} is not an option of {what}{nearest(str(name), names)} "
                f'(a variable of your own is allowed by naming it: -e \'{{"{allowed}": ["{name}"]}}\')'
            )


def whole_number(key: str, value: Any, where: str = "") -> int:
    """A positive whole number from an int or a string of digits. Raises PointError naming key, value and what
    is wanted.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise _refused(key, value, where, "a whole number is wanted")
    text = str(value).strip()
    if not re.fullmatch(r"[0-9]+", text):
        if isinstance(value, int) or re.fullmatch(r"-[0-9]+", text):
            raise _refused(key, value, where, "at least 1 is wanted")
        hint = "; for no speculation ask dialect=none" if key == "budget" and text.lower() in _NO_WINDOW else ""
        raise _refused(key, value, where, f"a whole number is wanted, as in {key}=12{hint}")
    if len(text) > 1 and text.startswith("0"):
        raise _refused(key, value, where, f"a leading zero reads as octal elsewhere; write {text.lstrip('0') or 0}")
    number = int(text[:12])  # longer ones are above every limit
    if number < 1:
        hint = "at least 1 is wanted" + ("; for no window write none" if key == "window" else "")
        hint += "; for no speculation ask dialect=none" if key == "budget" else ""
        raise _refused(key, value, where, hint)
    most = MOST.get(key, 10**9)
    if number > most:
        raise _refused(key, value, where, f"at most {most} is wanted")
    return number


# -- reading


def _grid(one: Mapping[str, Any], defaults: Mapping[str, Any], dialects: Mapping[str, Any], place: str) -> Iterable[Point]:
    values: dict[str, list[Any]] = {}
    for key in KEYS:
        given = not _absent(key, one.get(key, DEFAULT_WORD))
        source, where = (one, place) if given else (defaults, "the default of ")
        raw = source.get(key, DEFAULT_WORD)
        values[key] = _fallback(key) if _absent(key, raw) else _values(key, raw, where, dialects)
    used = {axis for dialect in values["dialect"] for axis in dialects[dialect].get("axes") or []}
    for axis in AXES:
        # In a grid of several dialects each takes what it has; an axis that none of them has is a mistake.
        asked = not _absent(axis, one.get(axis, DEFAULT_WORD)) and values[axis] != [None]
        if asked and axis not in used:
            raise PointError(
                f"{place}{axis} is asked, and dialect {', '.join(values['dialect'])} has none: leave it out or ask another dialect"
            )
    for chosen in itertools.product(*(values[key] for key in KEYS)):
        point: dict[str, Any] = dict(zip(KEYS, chosen))
        axes = dialects[point["dialect"]].get("axes") or []
        point.update((axis, None) for axis in AXES if axis not in axes)
        point["extra_args"] = (*point["extra_args"], *words(point["flags"]))
        yield Point(**point)


def _fallback(key: str) -> list[Any]:
    return [
        {
            "dialect": DEFAULT_DIALECT,
            "window": DEFAULT_WINDOW,
            "tp": DEFAULT_TP,
            "flags": (),
            "extra_args": (),
            "extra_env": (),
        }.get(key)
    ]


def _values(key: str, raw: Any, where: str, dialects: Mapping[str, Any]) -> list[Any]:
    if key == "flags":
        return flags(raw, where + key)
    if key == "extra_args":
        many = isinstance(raw, (list, tuple)) and raw and all(isinstance(one, (list, tuple, Mapping)) for one in raw)
        return [arguments(one, where + key) for one in (raw if many else [raw])]
    if key == "extra_env":
        many = isinstance(raw, (list, tuple)) and raw
        return [environment(one, where + key) for one in (raw if many else [raw])]
    if isinstance(raw, Mapping):
        return _range(key, raw, where)
    if isinstance(raw, str):
        text = str(raw).strip()
        inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        raw = [one.strip().strip("'\"") for one in inner.split(",")] if "," in inner or inner is not text else [text]
    items = list(raw) if isinstance(raw, (list, tuple)) else [raw]
    if not items:
        raise PointError(f"{where}{key} is an empty list: give at least one value or leave {key} out")
    return [_value(key, one, where, dialects) for one in items]


def _value(key: str, value: Any, where: str, dialects: Mapping[str, Any]) -> Any:
    if key == "dialect":
        if str(value) not in dialects:
            raise PointError(f"{where}dialect={value}: known are {', '.join(dialects)}{nearest(str(value), list(dialects))}")
        return str(value)
    if key == "window" and (value is None or (isinstance(value, str) and value.strip().lower() in _NO_WINDOW)):
        return None
    return whole_number(key, value, where)


def _range(key: str, raw: Mapping[str, Any], where: str) -> list[Any]:
    if key == "dialect":
        raise _refused(key, dict(raw), where, "a name or a list of names is wanted")
    known_keys(raw, ("from", "to", "step"), f"the keys of {where}{key}")
    missing = [one for one in ("from", "to") if one not in raw]
    if missing:
        raise PointError(f"{where}{key} is a range without {missing[0]}: write {{from: 4, to: 32, step: 4}}")
    start, stop = (whole_number(key, raw[one], where) for one in ("from", "to"))
    step = whole_number("step", raw.get("step", 1), f"{where}{key}.")
    if stop < start:
        raise PointError(f"{where}{key} is a range from {start} to {stop}, which is empty: from must not be above to")
    numbers = list(range(start, stop + 1, step))
    if len(numbers) > RANGE_LIMIT:
        raise PointError(f"{where}{key} is a range of {len(numbers)} values, at most {RANGE_LIMIT} are taken: widen step")
    return numbers


def _file_word(text: str) -> str:
    """The text as part of a file name, told apart from others that look the same."""
    word = re.sub(r"[^A-Za-z0-9_.=]+", "_", text)[:40]
    return word if word == text else f"{word}.{_digest(text)}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:6]


def _under(base: Mapping[str, Any], listed: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each listed point with the outer keys below it; an outer key that no point takes would be lost, so it
    is refused.
    """
    for index, one in enumerate(listed):
        known_keys(one, (*KEYS, "name"), f"the keys of points[{index}]")
    for key in base:
        if all(key in one for one in listed):
            raise PointError(f"{key} is given beside points, each of which has its own {key}: leave one of the two out")
    return [{**base, **{str(key): value for key, value in one.items() if str(key) != "name"}} for one in listed]


def _without(points: list[Point], excludes: list[Mapping[str, Any]]) -> list[Point]:
    for index, partial in enumerate(excludes):
        place = f"exclude[{index}]"
        known_keys(partial, KEYS, f"the keys of {place}")
        if not partial:
            raise PointError(f"{place} is empty and would take out every point: name what to leave out")
        every: dict[str, Any] = {name: {} for name in {*BUILTIN, *(point.dialect for point in points)}}
        wanted = {str(key): _values(str(key), value, f"{place}.", every) for key, value in partial.items()}
        kept = [point for point in points if not all(_matches(point, key, values) for key, values in wanted.items())]
        if len(kept) == len(points):
            raise PointError(f"{place} takes out no point: correct it or leave it out")
        points = kept
    return points


def _matches(point: Point, key: str, values: Sequence[Any]) -> bool:
    if key == "flags":
        return any(set(one) <= set(point.flags) for one in values)
    return (point.own_args if key == "extra_args" else getattr(point, key)) in values


def _mappings(value: Any, where: str) -> list[Mapping[str, Any]] | None:
    if value is None or (isinstance(value, str) and value in ("", DEFAULT_WORD)):
        return None
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, Mapping) for one in value):
        raise PointError(f"{where} is {value!r}: a list of mappings such as [{{budget: 12, topk: 6}}] is wanted")
    if where == "exclude" and not value:
        return None
    return list(value)


def _absent(key: str, value: Any) -> bool:
    """Whether a value means "not given": the word default, and a null or empty one where null has no meaning
    of its own.
    """
    if isinstance(value, str) and value == DEFAULT_WORD:
        return True
    return key != "window" and (value is None or (isinstance(value, str) and value == ""))


def _refused(key: str, value: Any, where: str, wanted: str) -> PointError:
    shown = str(value) if isinstance(value, str) and value.strip() else repr(value)
    return PointError(f"{where}{key}={shown}: {wanted}")
