"""What the checks of the preflight share: a verdict, what is asked of a host, and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

LEVELS = ("ok", "note", "warn", "stop")


class Check(NamedTuple):
    """One verdict; `seen` is the fact, `remedy` says what to do where the level is not ok.

    `stop` is kept for what would break the engine, `warn` for what makes it slow or breaks it later, `note` for what is good to know.
    """

    check: str
    level: str
    seen: str
    remedy: str = ""


@dataclass(frozen=True)
class Want:
    """What is asked of the host. `gpus` boards, of which the engine takes `used` (indices or UUIDs; empty: the first `tp`)."""

    gpus: int = 8
    vram_mib: int = 0
    tp: int = 8
    used: tuple[str, ...] = ()
    idle_mib: int = 1024
    disk_gib: float = 0
    manager: str = "systemd"
    port: int = 30000
    flags: tuple[str, ...] = ()  # the engine's extra arguments
    weights: bool = True  # the model's weights must be there
    later: tuple[str, ...] = ()  # model folders that a later step brings
    running: bool = False  # the unit runs: what is in its way now is not in the way of a start

    def boards(self, facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The boards that the engine takes."""
        gpus = facts["boards"]["gpus"]
        if self.used:
            return [gpu for gpu in gpus if str(gpu["index"]) in self.used or gpu["uuid"] in self.used]
        return list(gpus[: self.tp])


def listing(items: Sequence[Any], sign: str = ", ") -> str:
    return sign.join(str(one) for one in items)


def given(flags: Sequence[str], *names: str) -> bool:
    """Whether one of the flags is among the arguments."""
    return any(one.split("=", 1)[0] in names for one in flags)
