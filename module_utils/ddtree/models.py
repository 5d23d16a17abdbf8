"""A model's folder on a host: fetched from a hub so that a cut run goes on, then proved; nothing that lies there is ever deleted.

What was fetched is recorded beside the files: the commit, and size and digest of each. A later look compares sizes with the record
and needs no network; digests of large files are checked once, when they came.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import modelfiles

RECORD = ".ddtree-model.json"
_CHUNK = 16 << 20  # bytes read at a time


class ModelError(Exception):
    """The model cannot be brought or is not whole; the message is one sentence."""


@dataclass(frozen=True)
class Wanted:
    """One file of a repository: its size in bytes, and the digest that its host states (sha256 of a large file, git's of a small)."""

    name: str
    size: int
    sha256: str = ""
    git: str = ""


@dataclass(frozen=True)
class Seen:
    """What a look found. `changed`: whether files had to come; `problems`: sentences about what is not whole."""

    commit: str
    files: int
    bytes: int
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def look(path: Path, repo: str = "", revision: str = "main") -> Seen:
    """Whether the folder is whole, by its record if it has one and is of this repository and commit, and by its safetensors headers.

    Needs no network. A record of another repository or commit is a problem, for its files would be mixed with others.
    """
    record = _record(path)
    problems, missing, total = [], [], 0
    for name, file in record.get("files", {}).items():
        try:
            size = (path / name).stat().st_size
        except OSError:
            missing.append(name)
            continue
        total += size
        if size != file["size"]:
            problems.append(f"{name} has {size} bytes, {file['size']} are recorded")
    if record and repo and record["repo"] != repo:
        problems.append(f"it holds {record['repo']}, {repo} is asked")
    pinned = len(revision) == 40 and set(revision) <= set("0123456789abcdef")
    if record and repo and pinned and record["commit"] != revision:
        problems.append(f"it holds commit {record['commit'][:12]}, {revision[:12]} is asked")
    if not missing:
        problems += _by_headers(path)
    return Seen(record.get("commit", ""), len(record.get("files", {})), total, tuple(missing), tuple(problems))


def recorded(path: Path) -> bool:
    """Whether the folder was fetched whole before."""
    return bool(_record(path))


def chosen(files: Iterable[Wanted], allow: Sequence[str]) -> list[Wanted]:
    """The files that are wanted, by name; all where no pattern is given."""
    return sorted(
        (one for one in files if not allow or any(fnmatch.fnmatch(one.name, pattern) for pattern in allow)), key=lambda one: one.name
    )


def lacking(path: Path, files: Iterable[Wanted], trusted: Mapping[str, Any]) -> list[Wanted]:
    """Files that are not there whole. A file that the record trusts, by size and time, is not read again; others are by digest."""
    return [one for one in files if not _whole(path / one.name, one, trusted.get(one.name))]


def in_the_way(path: Path, files: Iterable[Wanted]) -> list[str]:
    """Names of whole files of another content, which a fetch would replace; a partial file is none."""
    return [one.name for one in files if _foreign(path / one.name, one)]


def write_record(path: Path, repo: str, commit: str, files: Iterable[Wanted]) -> None:
    """Record what came, with the times by which a later look knows the files again."""
    told = {
        one.name: {"size": one.size, "sha256": one.sha256, "git": one.git, "mtime_ns": (path / one.name).stat().st_mtime_ns}
        for one in files
    }
    new = path / f"{RECORD}.new"
    new.write_text(json.dumps({"repo": repo, "commit": commit, "files": told}, indent=1))
    new.replace(path / RECORD)


def trusted(path: Path) -> Mapping[str, Any]:
    """The files of the record."""
    files: Mapping[str, Any] = _record(path).get("files", {})
    return files


def free_space(path: Path, needed: int, statvfs: Callable[[Path], os.statvfs_result] = os.statvfs) -> None:
    """Raises ModelError where the file system has less than the bytes that are still to come."""
    place = next(one for one in (path, *path.parents) if one.exists())
    found = statvfs(place)
    free = found.f_bavail * found.f_frsize
    if free < needed:
        raise ModelError(
            f"{path} needs {needed / 2**30:.1f} GiB more, its file system has {free / 2**30:.1f} GiB free; nothing was fetched, "
            "make room or name another folder"
        )


# -- parts


def _by_headers(path: Path) -> list[str]:
    """What the folder says of itself: its index and the header of each safetensors file."""
    found = modelfiles.inspect(str(path))
    if not found["found"]:
        return ["there is no such folder"]
    problems = [found["error"]] if found["error"] else []
    if found["missing"]:
        problems.append(f"its index names {len(found['missing'])} files that are not there, {found['missing'][0]} first")
    if found["cut"]:
        problems.append(f"{len(found['cut'])} weight files are cut short, {found['cut'][0]} first")
    return problems


def _whole(file: Path, wanted: Wanted, record: Mapping[str, Any] | None) -> bool:
    try:
        info = file.stat()
    except OSError:
        return False
    if info.st_size != wanted.size:
        return False
    same = record and (record["size"], record["sha256"], record["git"]) == (wanted.size, wanted.sha256, wanted.git)
    return bool(same and record and record["mtime_ns"] == info.st_mtime_ns) or _digest_is(file, wanted)


def _foreign(file: Path, wanted: Wanted) -> bool:
    if not file.is_file():
        return file.exists()
    return file.stat().st_size >= wanted.size and not _digest_is(file, wanted)


def _digest_is(file: Path, wanted: Wanted) -> bool:
    """By the digest that the host states; by size alone where it states none."""
    if wanted.sha256:
        return _digest(file, hashlib.sha256()) == wanted.sha256
    if wanted.git:
        return _digest(file, hashlib.sha1(f"blob {file.stat().st_size}\0".encode())) == wanted.git
    return file.stat().st_size == wanted.size


def _digest(file: Path, total: Any) -> str:
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            total.update(chunk)
    return str(total.hexdigest())


def _record(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and {"repo", "commit", "files"} <= set(found) else {}
