"""The state of a fleet as one table and one verdict, from what each host said of itself (status.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .lease import stamp
from .live import duration

OK, DRIFT, DOWN, SILENT = "ok", "drift", "down", "silent"
# Exit codes for monitoring, the worst host's: as in Nagios, 1 warns and 2 is critical; Ansible itself ends with 4 where a host is lost.
WORST = (OK, DRIFT, DOWN, SILENT)
HEAD = ("host", "state", "configuration", "since", "generation", "VRAM MiB", "accept", "tok/s", "release", "lease", "notes")


def status_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What a host's look (sglang_status, as registered) tells: its status, or {failed, unclear: why there is none}; {} of no answer."""
    if not answer or isinstance(answer.get("status"), Mapping):
        return dict(answer.get("status") or {})
    said = str(answer.get("module_stderr") or answer.get("msg") or "no answer").strip()
    return {"failed": said, "unclear": said}


def state_of(seen: Mapping[str, Any]) -> str:
    """`ok`; `drift`: it serves, and not what was declared, or not as it was started; `down`: it does not serve; `silent`: no answer."""
    if not seen or seen.get("failed"):
        return SILENT
    if not seen["serving"]:
        return DOWN
    return DRIFT if seen["drift"] else OK


def verdict(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """{states: {word: [hosts]}, worst, said}; `said` is one sentence for whoever is woken up by it, '' where all is well."""
    states: dict[str, list[str]] = {word: [] for word in WORST}
    for name, seen in hosts.items():
        states[state_of(seen)].append(name)
    bad = [f"{word}: {', '.join(states[word])}" for word in reversed(WORST[1:]) if states[word]]
    worst = next((word for word in reversed(WORST) if states[word]), OK)
    return {"states": states, "worst": worst, "said": "; ".join(bad)}


def row(name: str, seen: Mapping[str, Any]) -> list[str]:
    """A host's line of the table, by HEAD."""
    state = state_of(seen)
    if state == SILENT:
        return [name, state, *[""] * 8, " ".join(str(seen.get("failed") or "no answer").split())[:100]]
    loaded, declared = str(seen["loaded"]), str(seen["declared"])
    lease = seen.get("lease") or {}
    notes = [*seen["drift"], *([seen["reason"]] if state == DOWN else []), *([seen["unclear"]] if seen.get("unclear") else [])]
    if seen.get("restarts"):
        notes.append(f"{seen['restarts']} automatic restarts")
    used = seen["vram_mib"]
    return [
        name,
        state,
        loaded + (f" (not {declared})" if declared and loaded and loaded != declared else "") or "-",
        duration(seen["at"] - seen["since"]) if seen.get("since") else "-",
        str(seen["health"]),
        f"{min(used)}-{max(used)}" if used else "-",
        _number(seen["accept_length"]),
        _number(seen["tok_s"]),
        str(seen["version"] or seen["release"] or "-"),
        f"{lease['who']} for {lease['what']} until {stamp(lease['until'])}" if lease else "",
        "; ".join(dict.fromkeys(str(one) for one in notes)),
    ]


def table(hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """All hosts, in the order given; a column that is empty everywhere is left out."""
    rows = [list(HEAD), *(row(name, seen) for name, seen in hosts.items())]
    shown = [at for at in range(len(HEAD)) if any(one[at] for one in rows[1:])]
    widths = {at: max(len(one[at]) for one in rows) for at in shown}
    return ["  ".join(one[at].ljust(widths[at]) for at in shown).rstrip() for one in rows]


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:g}"
