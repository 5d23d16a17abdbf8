"""What a unit is made of, put aside on its host under a name and put back: files, what ran, and the link to the engine's release."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

STATE = "state.json"


class KeepError(Exception):
    """There is nothing to put back, or it cannot be read; the message says what and where."""


def keep(folder: str, sources: Iterable[str], note: Mapping[str, Any], link: str = "", anew: bool = False) -> bool:
    """Copy the files of `sources` that exist into `folder`, whole or not at all. False where it was there and is not wanted anew.

    `note` is {active, config_id}; `link` a symbolic link whose target is remembered.
    """
    place = Path(folder)
    if (place / STATE).exists() and not anew:
        return False
    new, old = place.with_name(place.name + ".new"), place.with_name(place.name + ".old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir(mode=0o700, parents=True)
    files = [path for path in sources if os.path.isfile(path)]
    for path in files:
        shutil.copy2(path, new / os.path.basename(path))
    state = {**note, "files": files, "link": {"path": link, "target": os.readlink(link)} if link and os.path.islink(link) else {}}
    (new / STATE).write_text(json.dumps(state))
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
    return True


def kept(folder: str) -> dict[str, Any]:
    """{active, config_id, files, link}. Raises KeepError."""
    place = Path(folder)
    if not (place / STATE).exists() and (place.with_name(place.name + ".old") / STATE).exists():
        place.with_name(place.name + ".old").rename(place)  # a keep was cut off between its two renames
    try:
        return dict(json.loads((place / STATE).read_text()))
    except FileNotFoundError:
        raise KeepError(f"nothing was kept in {folder}, so there is nothing to go back to") from None
    except (OSError, ValueError) as error:
        raise KeepError(f"what was kept in {folder} cannot be read: {error}") from None


def copies(folder: str) -> dict[str, Path]:
    """The paths that were kept with their copies. Raises KeepError where one is missing."""
    found = {path: Path(folder) / os.path.basename(path) for path in kept(folder)["files"]}
    for copy in found.values():
        if not copy.is_file():
            raise KeepError(f"{copy} is missing: what was kept in {folder} is not whole")
    return found


def put_back(folder: str, check: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Bring files and link back: the note, and the paths that differed. With `check` nothing is written. Raises KeepError."""
    note, changed = kept(folder), []
    for path, copy in copies(folder).items():
        if not os.path.isfile(path) or Path(path).read_bytes() != copy.read_bytes():
            changed.append(path)
            if not check:
                new = f"{path}.new"
                shutil.copy2(copy, new)
                os.replace(new, path)
    link = note.get("link") or {}
    if link and (not os.path.islink(link["path"]) or os.readlink(link["path"]) != link["target"]):
        changed.append(link["path"])
        if not check:
            new = f"{link['path']}.new"
            if os.path.islink(new):
                os.remove(new)
            os.symlink(link["target"], new)
            os.replace(new, link["path"])
    return note, changed


def promote(folder: str, target: str, check: bool = False) -> bool:
    """Let what was kept in `folder` be what is kept in `target`; False where there is none."""
    new, place = Path(folder), Path(target)
    if not (new / STATE).exists():
        return False
    if not check:
        old = place.with_name(place.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        if place.exists():
            place.rename(old)
        new.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    return True
