"""Engine releases: what a source is pinned to, the name that follows from it, and which releases nobody needs any more.

A release's name depends on its source alone (no time, no host), so the same source has the same name on every host.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = ("git", "pypi", "path", "existing")
RECORD = "release.json"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT_COMMIT = re.compile(r"[0-9a-f]{7,39}")
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
_PULL = re.compile(r"(?:pull/|#)?(\d+)(?:/head)?")
_VERSION = re.compile(r"\d[A-Za-z0-9.!]*(\+[A-Za-z0-9.]+)?")
_WHEEL = re.compile(r"sglang-([^-]+)(-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl", re.IGNORECASE)
_PROJECT = re.compile(rb"^name\s*=\s*[\"']sglang[\"']", re.MULTILINE)
_URL = re.compile(r"(https?|ssh|file|git)://[^\s#]+")
# What a build leaves in a checkout is no part of its source.
_NO_SOURCE = {".git", "__pycache__", "build", "dist", ".venv", ".pytest_cache", ".mypy_cache"}


class ReleaseError(ValueError):
    """A source that cannot be pinned; the message is one sentence."""


@dataclass(frozen=True)
class Release:
    """`id`: its folder's name. `requirement`: what pip or uv is told; empty for a path, whose wheel is copied to the host.
    `record`: what the lock record says of the source."""

    id: str
    requirement: str
    record: dict[str, str]


def from_pypi(version: str, extra: Mapping[str, Any]) -> Release:
    """A pinned version of the package index. Raises ReleaseError."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"sglang_version={version!r} is no pinned version: one is wanted, as in 0.5.23")
    record = {"source": "pypi", "requested": version, "version": version}
    return Release(_name(version, record, extra), f"sglang=={version}", record)


def from_git(url: str, ref: str, commit: str, subdirectory: str, extra: Mapping[str, Any]) -> Release:
    """A commit of a repository; `ref` is what was asked, `commit` what it resolved to."""
    public = re.sub(r"//[^/@]*@", "//", url)  # a password is no part of a name, nor of a record
    record = {"source": "git", "url": public, "requested": ref, "commit": commit, "subdirectory": subdirectory}
    identity = {key: value for key, value in record.items() if key != "requested"}
    below = f"#subdirectory={subdirectory}" if subdirectory else ""
    return Release(_name(commit[:12], identity, extra), f"git+{url}@{commit}{below}", record)


def from_path(path: str, extra: Mapping[str, Any]) -> Release:
    """A wheel, or a checkout of which a wheel is built. Raises ReleaseError."""
    place = Path(path)
    wheel = _WHEEL.fullmatch(place.name)
    if path and place.is_file() and wheel:
        label, digest = wheel[1], _digest([place], place.parent)
    elif path and project_of(place):
        label, digest = "checkout", _digest(_sources(place), place)
    else:
        raise ReleaseError(f"sglang_path={path!r} is neither a wheel of sglang nor a checkout of it, on the controller")
    record = {"source": "path", "requested": path, "sha256": digest}
    return Release(_name(label, {"source": "path", "sha256": digest}, extra), "", record)


def project_of(checkout: Path) -> Path | None:
    """The folder of a checkout that pip builds: itself, or `python` as in SGLang's own repository."""
    places = (checkout, checkout / "python")
    return next((one for one in places if _PROJECT.search(_bytes(one / "pyproject.toml"))), None)


def check_git(url: str, ref: str) -> None:
    """Raises ReleaseError for what git could not be asked, or could take for an option."""
    if not _URL.fullmatch(url):
        raise ReleaseError(f"sglang_git_url={url!r} is no URL that pip and uv take: https://, ssh:// or file:// is wanted")
    if not _REF.fullmatch(ref.lstrip("#")) or ".." in ref:
        raise ReleaseError(f"sglang_git_ref={ref!r} names no commit, branch, tag or pull request")
    if _SHORT_COMMIT.fullmatch(ref) and not ref.isdigit():
        raise ReleaseError(f"sglang_git_ref={ref!r} looks like a shortened commit, which a server cannot look up: give all 40 digits")


def resolve(url: str, ref: str, timeout: float = 60) -> str:
    """The commit that a branch, a tag or a pull request's head is now; a commit is itself. Raises ReleaseError."""
    check_git(url, ref)
    if _COMMIT.fullmatch(ref):
        return ref
    pull = _PULL.fullmatch(ref)
    names = [f"refs/pull/{pull[1]}/head"] if pull else [f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}"]
    command = ["git", "ls-remote", "--", url, *names]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReleaseError(f"git cannot be asked for {ref} on the controller: {error}; give the 40 digits of a commit instead") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ReleaseError(f"git found no repository for {ref}: {_public(said)}")
    return chosen(done.stdout, names, ref)


def chosen(listed: str, names: Sequence[str], ref: str) -> str:
    """The commit of a `git ls-remote` listing: a peeled tag before the tag object. Raises ReleaseError for none, or two kinds."""
    found = {name: commit for commit, _, name in (line.partition("\t") for line in listed.splitlines())}
    kinds = {name.split("/")[1] for name in found if name in names}
    if len(kinds) > 1:
        raise ReleaseError(f"sglang_git_ref={ref!r} is both a branch and a tag: give the 40 digits of the commit that is meant")
    for name in names:
        if name in found:
            return found[name]
    raise ReleaseError(f"sglang_git_ref={ref!r} is neither a branch, a tag nor a pull request of the repository")


def failure(said: str) -> str:
    """The line that tells why pip or uv failed, of all that it wrote."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for sign in (r"ERROR: (?!Exception)(.*)", r"error: (.*)", r"[×x] (.*)", r"(.*Error: .*)", r"(.*No such file.*)"):
        for line in lines:
            match = re.match(sign, line)
            if match:
                at = lines.index(line)
                more = [one.lstrip("│├╰─▶ ") for one in lines[at + 1 : at + 3] if one[:1] in "│├╰"]
                return " ".join([match[1].strip(), *more])[:500]
    return (lines or ["it said nothing"])[-1][:500]


# -- which may go


def prunable(found: Mapping[str, float | None], keep: int, needed: Collection[str]) -> list[str]:
    """Names of the releases that may be removed: neither needed nor of the `keep` newest.

    found: name to the time of its record in seconds; None for an install that never ended, which is never one of the newest.
    """
    whole = sorted((name for name, time in found.items() if time is not None), key=lambda name: (found[name], name))
    newest = set(whole[max(len(whole) - keep, 0) :])
    return sorted(name for name in found if name not in newest and name not in needed)


def in_use(root: Path, names: Iterable[str], definitions: Sequence[Path], proc: Path = Path("/proc")) -> set[str]:
    """Which releases a process was started from, or a unit or program would start: both name the release's folder."""
    found: set[str] = set()
    wanted = {name: os.fsencode(root / "releases" / name) + b"/" for name in names}
    looked = [path for folder in definitions for path in folder.rglob("*") if path.suffix in (".service", ".conf")]
    for process in proc.iterdir() if proc.is_dir() else []:
        if process.name.isdigit():
            looked += [process / "cmdline", process / "maps"]
    for path in looked:
        text = _bytes(path)
        found |= {name for name, sign in wanted.items() if sign in text}
    return found


# -- parts


def _name(label: str, identity: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps([identity, extra], sort_keys=True).encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9.+]', '_', label)}-{digest}"


def _sources(checkout: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(checkout):
        folders[:] = [one for one in folders if one not in _NO_SOURCE and not one.endswith(".egg-info")]
        found += [Path(folder) / name for name in names]
    return sorted(found)


def _digest(files: Iterable[Path], base: Path) -> str:
    """Of names and contents; a link is what it points to by name."""
    total = hashlib.sha256()
    for path in files:
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
        total.update(json.dumps([str(path.relative_to(base)), hashlib.sha256(content).hexdigest()]).encode())
    return total.hexdigest()


def _public(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
