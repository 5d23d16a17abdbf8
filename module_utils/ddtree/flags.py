"""Whether an installed SGLang knows every flag of a command line and its algorithm: the build itself is asked, before anything stops.

One answer of a build serves every later question about it: it is kept in a folder under the fingerprint of the build's files.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import flags_probe

ALGORITHM_FLAG = "--speculative-algorithm"
# What changes with these changes what a build answers; other variables do not.
_DECIDING = ("PYTHONPATH", "SGLANG_PLUGINS", "SGLANG_PLATFORM")
_KEPT_ANSWERS = 8
_NUMBER = re.compile(r"-\d+|-\d*\.\d+")  # argparse takes these for values, not for flags
# Old name to new one, where words alone would not find it.
RENAMED = {
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
    "--tensor-parallel": "--tp-size",
    "--model-name": "--served-model-name",
    "--max-concurrent-requests": "--max-running-requests",
}


class BuildError(Exception):
    """The build cannot be asked, or cannot answer; the message is one sentence, `tail` the last lines of what it said."""

    def __init__(self, message: str, tail: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.tail = list(tail)


@dataclass(frozen=True)
class Problem:
    """One thing that the build would refuse. `nearest`: the right spelling where there is a likely one, else empty."""

    flag: str
    message: str
    nearest: str = ""


class Build:
    """The SGLang of one interpreter, asked as `user` in the environment that the engine gets.

    `cache`: folder of kept answers; none is kept where it cannot be written. GPUs are hidden from the build, so that a probe never
    touches one that serves.
    """

    def __init__(self, python: str, environment: Mapping[str, str], user: str = "", cache: str = "", timeout: float = 300) -> None:
        self.python, self._cache, self._timeout = python, cache, timeout
        self._environment = {**environment, "CUDA_VISIBLE_DEVICES": ""}
        self._user = _account(user)
        self._place: dict[str, Any] = {}
        self.cached = False

    def describe(self, algorithms: Iterable[str] = ()) -> dict[str, Any]:
        """{version, folder, fingerprint, flags, algorithms, packages}; see flags_probe. Raises BuildError."""
        place = self._place = self._place or self._ask({"question": "where"})
        deciding = [self.python, place["fingerprint"], *(self._environment.get(name, "") for name in _DECIDING)]
        path = Path(self._cache) / f"build-{hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:16]}.json"
        wanted = {name.upper() for name in algorithms}
        known = _read(path) if self._cache else {}
        if known and wanted <= set(known["algorithms"]):
            self.cached = True
            return known
        found = {**place, **self._ask({"question": "describe", "algorithms": sorted(wanted)})}
        if self._cache:
            _keep(path, found)
        return found

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        source = flags_probe.__loader__.get_source(flags_probe.__name__)  # type: ignore[union-attr]
        try:
            done = subprocess.run(
                [self.python, "-c", source],
                input=json.dumps(question),
                env=self._environment,
                cwd="/",
                timeout=self._timeout,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                **self._user,
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"the SGLang of {self.python} gave no answer within {self._timeout:.0f} s") from None
        except OSError as error:
            raise BuildError(f"{self.python} cannot be run: {error.strerror}; install the engine, or name its Python") from None
        tail = done.stderr.rstrip().splitlines()[-8:]
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise BuildError(f"{self.python} ended with {done.returncode} while its SGLang was asked for its flags", tail) from None
        if "error" in answer:
            raise BuildError(_broken(self.python, answer), answer.get("tail") or tail)
        return dict(answer)


class Builds:
    """The builds that command lines are for: variables of a point may make it another one. The arguments are those of Build."""

    def __init__(self, python: str, environment: Mapping[str, str], **more: Any) -> None:
        self._python, self._environment, self._more = python, environment, more
        self._known: dict[tuple[str, ...], Build] = {}

    def of(self, own: Mapping[str, str]) -> Build:
        """The build with `own` variables beside the environment's, asked where it is only once. Raises BuildError."""
        environment = {**self._environment, **own}
        deciding = tuple(environment.get(name, "") for name in _DECIDING)
        if deciding not in self._known:
            self._known[deciding] = Build(self._python, environment, **self._more)
        return self._known[deciding]


def check(arguments: Sequence[str], build: Mapping[str, Any]) -> list[Problem]:
    """What the build would refuse of the engine's arguments: unknown and shortened flags, wrong values, stray words."""
    flags: Mapping[str, Any] = build["flags"]
    problems: list[Problem] = []
    at = 0
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if not _is_flag(word):
            problems.append(Problem(word, f"{word!r} belongs to no flag"))
            continue
        flag, sign, value = word.partition("=")
        following = _values(arguments, at)
        if flag not in flags:
            problems.append(_unknown(flag, flags))
            at += len(following)  # they were meant for it
            continue
        option = flags[flag]
        taken = _taken(option["nargs"], len(following))
        if sign:
            if option["nargs"] == 0:
                problems.append(Problem(flag, f"{flag} takes no value, and {value!r} is given"))
            values = [value]
        elif taken is None:
            problems.append(Problem(flag, f"{flag} needs {_amount(option['nargs'])}"))
            at += len(following)
            continue
        else:
            values = list(following[:taken])
            at += taken
        problems += [problem for one in values for problem in _value(flag, one, option, build)]
    given = {word.partition("=")[0] for word in arguments}
    for names in _required(flags):
        if not given & set(names):
            problems.append(Problem(names[0], f"{names[0]} is missing"))
    return problems


def algorithms_of(arguments: Sequence[str]) -> list[str]:
    """The names after --speculative-algorithm."""
    found = [word.partition("=")[2] for word in arguments if word.startswith(ALGORITHM_FLAG + "=")]
    return found + [value for word, value in zip(arguments, arguments[1:]) if word == ALGORITHM_FLAG]


def sentence(problems: Sequence[Problem], build: Mapping[str, Any], python: str) -> str:
    """All problems in one sentence, with the build they are about."""
    return f"SGLang {build['version']} of {python} would refuse this command line: {'; '.join(one.message for one in problems)}"


# -- parts


def _unknown(flag: str, flags: Mapping[str, Any]) -> Problem:
    nearest, why = nearest_flag(flag, flags), "did you mean"
    if nearest and nearest.startswith(flag):
        why = "flags are given in full here:"
    elif nearest and RENAMED.get(flag) == nearest:
        why = "it is now named"
    return Problem(flag, f"it has no flag {flag}" + (f"; {why} {nearest}{'' if why[-1:] in ':d' else '?'}" if nearest else ""), nearest)


def nearest_flag(flag: str, flags: Iterable[str]) -> str:
    """The flag that was likely meant: another spelling, the only one so begun, the new name of a renamed one, or one with nearly
    all of its words; empty where there is none."""
    known = sorted(one for one in flags if one.startswith("--"))
    for likely in (flag.replace("_", "-"), flag.lower().replace("_", "-"), RENAMED.get(flag, "")):
        if likely in known:
            return likely
    begun = [one for one in known if one.startswith(flag)]
    if len(begun) == 1:
        return begun[0]
    close = difflib.get_close_matches(flag, known, 1, 0.87)
    if close:
        return close[0]
    words = set(flag.strip("-").split("-"))
    shared = {one: len(words & (other := set(one.strip("-").split("-")))) / len(words | other) for one in known}
    best = max(known, key=lambda one: shared[one], default="")
    return best if best and shared[best] >= 0.75 else ""


def _value(flag: str, value: str, option: Mapping[str, Any], build: Mapping[str, Any]) -> list[Problem]:
    kind, choices = option["type"], option["choices"]
    if choices is not None and value not in choices:
        close = difflib.get_close_matches(value, choices, 1, 0.7)
        hint = f", did you mean {close[0]}?" if close else ""
        listed = ", ".join(choices[:12]) + (" and others" if len(choices) > 12 else "")
        return [Problem(flag, f"{flag} {value!r} is none of {listed}{hint}", close[0] if close else "")]
    if kind in ("int", "float"):
        try:
            {"int": int, "float": float}[kind](value)
        except ValueError:
            return [Problem(flag, f"{flag} {value!r} is no {'whole ' if kind == 'int' else ''}number")]
    if flag == ALGORITHM_FLAG and value.upper() not in build["algorithms"]:
        close = difflib.get_close_matches(value.upper(), build["algorithms"], 1, 0.7)
        hint = f", did you mean {close[0]}?" if close else ""
        known = ", ".join(one for one in build["algorithms"] if one != "NONE")
        return [Problem(flag, f"it has no algorithm {value!r}, only {known}{hint}", close[0] if close else "")]
    return []


def _is_flag(word: str) -> bool:
    """As argparse tells them apart."""
    name = word.partition("=")[0]
    return name.startswith("-") and name != "-" and " " not in name and not _NUMBER.fullmatch(word)


def _values(arguments: Sequence[str], at: int) -> Sequence[str]:
    end = at
    while end < len(arguments) and not _is_flag(arguments[end]):
        end += 1
    return arguments[at:end]


def _taken(nargs: Any, offered: int) -> int | None:
    """How many of the offered values an option takes; None where they are too few."""
    if isinstance(nargs, int):
        return nargs if offered >= nargs else None
    least = 1 if nargs == "+" else 0
    return None if offered < least else min(offered, 1) if nargs == "?" else offered


def _amount(nargs: Any) -> str:
    return "a value" if nargs in (1, "+") else f"{nargs} values"


def _required(flags: Mapping[str, Any]) -> list[list[str]]:
    """Names of each required option; its aliases share all but their name, and the first of them is the one to show."""
    groups: dict[str, list[str]] = {}
    for name, option in flags.items():
        if option["required"]:
            groups.setdefault(option.get("dest") or name, []).append(name)
    return list(groups.values())


def _broken(python: str, answer: Mapping[str, Any]) -> str:
    if answer["step"] == "find":
        return f"{python} has no package sglang: install the engine, or name the Python that has it"
    does = {"import": "cannot be imported", "flags": "cannot list its flags", "algorithms": "cannot list its algorithms"}[answer["step"]]
    return f"the SGLang of {python} {does}: {' '.join(str(answer['error']).split())[:400]}"


def _account(user: str) -> dict[str, Any]:
    """Arguments of subprocess that run as `user`; none where that is who we are. Raises BuildError."""
    if not user:
        return {}
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise BuildError(f"there is no user {user} on this host") from None
    if entry.pw_uid == os.geteuid():
        return {}
    if os.geteuid() != 0:
        raise BuildError(f"only root can ask as {user}: set become, or the user that runs the play")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": os.getgrouplist(user, entry.pw_gid)}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and {"flags", "algorithms", "version", "packages"} <= set(found) else {}


def _keep(path: Path, found: Mapping[str, Any]) -> None:
    """Write an answer and forget the oldest ones."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(found))
        new.replace(path)
        for old in sorted(path.parent.glob("build-*.json"), key=lambda one: one.stat().st_mtime)[:-_KEPT_ANSWERS]:
            old.unlink()
