"""Result files of a sweep, schema 1: merged atomically, validated with the path of what is wrong, ranked.

results/<sweep>/<host>/<point>.json is one point on one host; results/latest is a link to the sweep written
last.
"""

from __future__ import annotations

import calendar
import contextlib
import fcntl
import json
import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1
STATUSES = ("ok", "failed", "skipped")
OUTCOMES = ("passed", "failed", "truncated", "empty", "timeout", "error")
# What stays when a file is begun again for another configuration.
IDENTITY = ("schema", "sweep", "host", "point", "aliases", "started", "environment", "release", "matrix")
# What a new start of the same point makes void.
_OUTCOME = ("status", "failure", "finished")
# What is measured by cell, closed loops and open ones, and what could not be.
BY_CELL = ("cells", "open_loop", "not_run")
REDACTED = "***"
_NUMBER = (int, float)
_TYPES: Mapping[str, Any] = {
    "sweep": str,
    "host": str,
    "point": dict,
    "config_id": str,
    "status": str,
    "started": str,
    "finished": str,
    "engine": dict,
    "restart": dict,
    "cells": list,
    "coding": dict,
    "failure": dict,
    "environment": dict,
    "aliases": list,
    "release": str,
    "matrix": dict,
}


class ResultError(ValueError):
    """A result that cannot be used; the message names the file, the place in it and what is wanted there."""


@dataclass
class Sweep:
    """All result files of a sweep. `problems` are files that could not be used: [{file, message}]."""

    name: str
    records: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, str]] = field(default_factory=list)


# -- files


def read(path: str | Path) -> dict[str, Any]:
    """One result file, validated. Raises ResultError for a corrupt, half-written or foreign file, OSError if
    it is not there.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultError(f"{path} is no complete JSON ({error}): delete it and measure the point again") from None
    validate(record, str(path))
    return record


def merge(path: str | Path, section: Mapping[str, Any], secrets: Iterable[str] = (), write: bool = True) -> tuple[dict[str, Any], bool]:
    """Merge `section` into the result file and return (record, changed). Atomic: a reader sees the old or the
    new file.

    A top-level key replaces its old value; what is kept by cell is merged by cell, and one that is measured is no longer
    among those not run. A section with another config_id begins the file again, so that figures of two configurations are
    never mixed; another `started` drops the old outcome; another restart.instance drops what an earlier instance of the
    engine was measured at. Each of `secrets` is replaced by ***.
    Raises ResultError, and then leaves the file as it was.
    """
    target = Path(path)
    if not write:
        return _merged(target, section, secrets)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target):
        record, changed = _merged(target, section, secrets)
        if changed:
            write_text(target, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return record, changed


def write_text(path: str | Path, text: str | bytes, mode: int = 0o644) -> bool:
    """Replace a file in one step, on disk before it is named; False when it has this content already."""
    target = Path(path)
    data = text.encode() if isinstance(text, str) else text
    with contextlib.suppress(OSError):
        if target.read_bytes() == data:
            return False
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def link_latest(directory: str | Path) -> bool:
    """Point `latest` beside the sweep's folder to it, in one step; whether that changed it."""
    folder = Path(directory)
    link = folder.parent / "latest"
    if link.is_symlink() and str(link.readlink()) == folder.name:
        return False
    if link.exists() and not link.is_symlink():
        raise ResultError(f"{link} is no link: move it away, the name is kept for the sweep written last")
    fresh = link.with_name(f"latest.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder.name)
    fresh.replace(link)
    return True


def load_sweep(directory: str | Path) -> Sweep:
    """Every <host>/<point>.json under a sweep's folder, by host and name. Files that cannot be used are
    listed in problems.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise ResultError(f"{folder} is no folder of results: run a sweep first, or name another one")
    sweep = Sweep(folder.resolve().name)
    for path in sorted(folder.glob("*/*.json")):
        if path.name.startswith(".") or path.parent.name.startswith("."):
            continue
        try:
            record = read(path)
        except (ResultError, OSError) as error:
            sweep.problems.append({"file": str(path.relative_to(folder)), "message": str(error)})
            continue
        record.setdefault("sweep", sweep.name)
        record.setdefault("host", path.parent.name)
        record["point"].setdefault("name", path.stem)
        record["status"] = record.get("status") or "unfinished"
        sweep.records.append(record)
    return sweep


def redact(value: Any, secrets: Iterable[str]) -> Any:
    """The value with each secret, wherever it stands in a text or a key, replaced by ***."""
    hidden = sorted({str(one) for one in secrets if one}, key=len, reverse=True)
    if not hidden:
        return value
    if isinstance(value, str):
        for one in hidden:
            value = value.replace(one, REDACTED)
        return value
    if isinstance(value, Mapping):
        return {redact(str(key), hidden): redact(one, hidden) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(one, hidden) for one in value]
    return value


def validate(record: Any, path: str = "the record") -> None:
    """Raise ResultError with the path of the first thing that is not schema 1; unknown keys are let be."""
    if not isinstance(record, dict):
        raise ResultError(f"{path} holds a {type(record).__name__}, a result is a mapping")
    if record.get("schema") != SCHEMA:
        raise ResultError(f"{path}: schema is {record.get('schema')!r}, this version reads {SCHEMA}")
    check = _Check(path)
    for key, kind in _TYPES.items():
        check.kind(record, key, kind)
    status = record.get("status")
    check.need(isinstance(record.get("point"), dict), "point", record.get("point"), "a mapping")
    check.need(status is None or status in STATUSES, "status", status, f"one of {', '.join(STATUSES)}")
    check.need(
        status != "failed" or bool(record.get("failure")),
        "failure",
        None,
        "a mapping, since status is failed",
    )
    check.kind(record["point"], "name", str, "point.")
    for key in BY_CELL:
        seen = set()
        for index, cell in check.mappings(record, key):
            check.cell(cell, f"{key}[{index}].")
            check.need(_loop_key(cell) not in seen, f"{key}[{index}]", cell_key(cell), "each context and concurrency once")
            seen.add(_loop_key(cell))
    coding = record.get("coding") or {}
    for key in ("passed", "total"):
        check.need(not coding or _is_whole(coding.get(key)), f"coding.{key}", coding.get(key), "a whole number")
    for index, task in check.mappings(coding, "tasks", "coding."):
        check.need(
            task.get("outcome") in OUTCOMES,
            f"coding.tasks[{index}].outcome",
            task.get("outcome"),
            f"one of {', '.join(OUTCOMES)}",
        )
    restart = record.get("restart") or {}
    check.number(restart, "seconds", "restart.")
    for index, phase in check.mappings(restart, "phases", "restart."):
        check.number(phase, "seconds", f"restart.phases[{index}].")
    for key in ("derived", "requested", "resolved"):
        check.kind(record.get("engine") or {}, key, dict, "engine.")


@dataclass(frozen=True)
class _Check:
    path: str

    def need(self, good: bool, place: str, value: Any, wanted: str) -> None:
        if not good:
            raise ResultError(f"{self.path}: {place} is {value!r}, {wanted} is wanted")

    def kind(self, holder: Mapping[str, Any], key: str, kind: type, prefix: str = "") -> None:
        value = holder.get(key)
        self.need(value is None or isinstance(value, kind), prefix + key, value, f"a {kind.__name__}")

    def number(self, holder: Mapping[str, Any], key: str, prefix: str) -> None:
        value = holder.get(key)
        good = value is None or (isinstance(value, _NUMBER) and not isinstance(value, bool) and math.isfinite(value) and value >= 0)
        self.need(good, prefix + key, value, "a finite number of at least 0")

    def mappings(self, holder: Mapping[str, Any], key: str, prefix: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
        self.kind(holder, key, list, prefix)
        for index, one in enumerate(holder.get(key) or []):
            self.need(isinstance(one, dict), f"{prefix}{key}[{index}]", one, "a mapping")
            yield index, one

    def cell(self, cell: Mapping[str, Any], prefix: str) -> None:
        for key, least in (("context", 0), ("concurrency", 1)):
            good = _is_whole(cell.get(key)) and cell[key] >= least
            self.need(good, prefix + key, cell.get(key), f"a whole number of at least {least}")
        for key in ("output_tok_s", "user_tok_s", "accept_length", "errors", "rate"):
            self.number(cell, key, prefix)
        interval = cell.get("ci95")
        good = interval is None or (isinstance(interval, list) and len(interval) == 2)
        self.need(good, f"{prefix}ci95", interval, "[low, high]")
        for index, edge in enumerate(interval or []):
            good = edge is None or (isinstance(edge, _NUMBER) and not isinstance(edge, bool))
            self.need(good, f"{prefix}ci95[{index}]", edge, "a number or null")
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            self.kind(cell, name, dict, prefix)
            for key in ("p50", "p95", "p99"):
                self.number(cell.get(name) or {}, key, f"{prefix}{name}.")


def cell_key(cell: Mapping[str, Any]) -> tuple[int, int]:
    """(context, concurrency)"""
    return int(cell["context"]), int(cell["concurrency"])


def _loop_key(cell: Mapping[str, Any]) -> tuple[int, int, float]:
    """An open loop's rate tells it from the closed loop of as many requests in flight."""
    return *cell_key(cell), float(cell.get("rate") or 0)


@contextlib.contextmanager
def _locked(target: Path) -> Iterator[None]:
    """One writer at a time for one folder; the lock goes with its process."""
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _merged(target: Path, section: Mapping[str, Any], secrets: Iterable[str]) -> tuple[dict[str, Any], bool]:
    try:
        before: dict[str, Any] = read(target)
    except FileNotFoundError:
        before = {}
    old = before
    new = redact(plain(section), secrets)
    if old.get("config_id") and new.get("config_id") and new["config_id"] != old["config_id"]:
        old = {key: value for key, value in old.items() if key in IDENTITY}
    if new.get("started") and new["started"] != old.get("started"):
        old = {key: value for key, value in old.items() if key not in _OUTCOME}
    if _instance(new) and _instance(new) != _instance(old):
        old = {key: value for key, value in old.items() if key not in (*BY_CELL, "coding")}
    if new.get("status") in ("ok", "skipped"):
        new.setdefault("failure", None)
    record = {"schema": SCHEMA, "point": {"name": target.stem}, **old, **new}
    validate(record, str(target))
    for key in BY_CELL:
        if old.get(key) and new.get(key):
            record[key] = list({_loop_key(cell): cell for cell in [*old[key], *new[key]]}.values())
    if record.get("not_run"):
        measured = {_loop_key(cell) for key in ("cells", "open_loop") for cell in new.get(key) or []}
        record["not_run"] = [cell for cell in record["not_run"] if _loop_key(cell) not in measured]
    return record, record != before


def put_aside(path: str | Path) -> Path:
    """Move a result file out of the report's sight, into .superseded/ beside it; nothing is ever deleted."""
    source = Path(path)
    folder = source.parent / ".superseded"
    folder.mkdir(exist_ok=True)
    number = sum(1 for _ in folder.glob(f"{source.stem}.*.json")) + 1
    return source.rename(folder / f"{source.stem}.{number}.json")


def seconds_between(began: Any, ended: Any) -> float | None:
    """Between two times of a record, 2026-12-01T10:00:00Z; None where one is missing or unreadable."""
    try:
        first, last = (calendar.timegm(time.strptime(str(one), "%Y-%m-%dT%H:%M:%SZ")) for one in (began, ended))
    except ValueError:
        return None
    return float(last - first)


def _instance(record: Mapping[str, Any]) -> str:
    return str((record.get("restart") or {}).get("instance") or "")


def plain(value: Any) -> Any:
    """Ansible's tagged values, tuples and mappings as what JSON has; a float that is no number becomes
    null.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, int) else str(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def geometric_mean(values: Sequence[float]) -> float | None:
    """None for no values or one that is not above 0."""
    if not values or min(values) <= 0:
        return None
    if min(values) == max(values):
        return float(values[0])  # exactly, so that one host's figure stays what it is
    return math.exp(sum(math.log(one) for one in values) / len(values))
