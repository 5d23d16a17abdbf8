"""The plan of a fleet-wide change: who is taken down, why, in which batches, so that enough hosts always serve.

Nothing here touches a host; what is seen of one comes in as a mapping, and the plan is plain types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .live import duration

DEPLOYED, ROLLED_BACK, UNTOUCHED, LOST = "deployed", "rolled back", "untouched", "lost"
OUTCOMES = (DEPLOYED, ROLLED_BACK, UNTOUCHED, LOST)
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


class RolloutError(ValueError):
    """The change cannot be made as asked; the message says why and what to do. Nothing was changed."""


def amount(given: Any, of: int, name: str) -> int:
    """A count such as 2 or "2", or a share such as "25%" of `of` hosts, rounded down. Raises RolloutError."""
    text = str(given).strip()
    share = _SHARE.fullmatch(text)
    if share and float(share[1]) <= 100:
        return int(float(share[1]) * of / 100)
    if not re.fullmatch(r"\d+", text):
        raise RolloutError(f"{name}: {given!r} is neither a number of hosts, as 2, nor a share of them, as 25%")
    return int(text)


def sizes(wanted: Any, hosts: int) -> list[int]:
    """The sizes that deploy_batches names for `hosts` hosts, each at least 1; the last one goes on. Raises RolloutError."""
    asked = wanted.split(",") if isinstance(wanted, str) else list(wanted) if isinstance(wanted, Sequence) else [wanted]
    if not asked or any(str(one).strip() in ("0", "0%") for one in asked):
        raise RolloutError(f"deploy_batches is {wanted!r}: sizes of at least 1 are wanted, as [1, 25%]")
    return [max(amount(one, hosts, "deploy_batches"), 1) for one in asked]


def batches(turns: Mapping[str, bool], serving: int, least: int, wanted: Any) -> list[list[str]]:
    """Hosts in batches. `turns` maps each host to change, in order, to whether it serves now; `serving` counts all hosts that serve,
    also those that are left alone; `least` must serve at any time, taking a whole batch as down while it is worked on.

    A batch is made smaller where the floor asks for it; a host that does not serve costs nothing, and is taken first where nobody else
    can be. Raises RolloutError where a host can never be taken out.
    """
    steps, waiting = sizes(wanted, len(turns)), list(turns)
    found: list[list[str]] = []
    while waiting:
        size, spare = steps[min(len(found), len(steps) - 1)], serving - least
        batch: list[str] = []
        for host in waiting:
            if len(batch) < size and (not turns[host] or spare > 0):
                spare -= turns[host]
                batch.append(host)
        if not batch:
            raise RolloutError(
                f"{serving} hosts serve and deploy_min_available is {least}, so {waiting[0]} cannot be taken out: "
                "lower deploy_min_available, or bring more hosts into service first"
            )
        found.append(batch)
        waiting = [host for host in waiting if host not in batch]
        serving += sum(not turns[host] for host in batch)
    return found


def plan(hosts: Mapping[str, Mapping[str, Any]], wanted: Any, min_available: Any) -> dict[str, Any]:
    """The plan for `hosts`, each {serving, reason, expected, router, worker, refused} or empty where it could not be reached.

    {order, sizes, batches, min_available, hosts: {name: {outcome, reason, serving, expected, batch}}}: a host with a reason is changed in
    its batch; without one it is left alone; one that could not be reached counts as lost and as out of service. Raises RolloutError.
    """
    refused = [f"{name}: {one['refused'].rstrip('.')}" for name, one in hosts.items() if one.get("refused")]
    if refused:
        raise RolloutError(f"{'; '.join(refused)}. Nothing that serves was touched")
    seen = {name: one for name, one in hosts.items() if one}
    turns = {name: bool(one["serving"]) for name, one in seen.items() if one["reason"]}
    least = amount(min_available, len(hosts), "deploy_min_available")
    serving = sum(bool(one["serving"]) for one in seen.values())
    dealt = batches(turns, serving, least, wanted)
    place = {name: number for number, batch in enumerate(dealt) for name in batch}
    return {
        "order": [name for batch in dealt for name in batch],
        "sizes": [len(batch) for batch in dealt],
        "batches": dealt,
        "min_available": least,
        "hosts": {
            name: {
                "outcome": UNTOUCHED if one else LOST,
                "reason": one.get("reason", ""),
                "detail": "could not be reached" if not one else "" if one["reason"] else "runs as asked",
                "serving": bool(one.get("serving")),
                "router": one.get("router", ""),
                "worker": one.get("worker", ""),
                "expected": one.get("expected"),
                "batch": place.get(name),
            }
            for name, one in hosts.items()
        },
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """The plan as a person reads it, before the first change."""
    hosts = found["hosts"]
    told = [f"{len(found['order'])} of {len(hosts)} hosts are changed, never fewer than {found['min_available']} in service"]
    for number, batch in enumerate(found["batches"]):
        guess = [hosts[name]["expected"] for name in batch]
        took = f"about {duration(max(guess))}" if None not in guess else "no earlier start tells how long"
        told.append(f"batch {number + 1}{' (canary)' if number == 0 else ''}: {took}")
        told += [f"  {name}: {hosts[name]['reason']}" for name in batch]
    told += [f"{name}: {one['detail']}, left alone" for name, one in hosts.items() if one["outcome"] == UNTOUCHED and one["batch"] is None]
    told += [f"{name}: {one['detail']}, counts as out of service" for name, one in hosts.items() if one["outcome"] == LOST]
    guesses = [[hosts[name]["expected"] for name in batch] for batch in found["batches"]]
    if guesses and all(None not in one for one in guesses):
        told.append(f"expected: {duration(sum(max(one) for one in guesses))} and the soaks")
    return told


def gate(found: Mapping[str, Any], batch: Iterable[str], router: Mapping[str, Any] | None = None) -> str:
    """Why the next batch may not begin, or ''. `found` is the plan with outcomes so far; `router` is {url, workers: those that it sends
    requests to now}, None where there is none to ask: then a host serves as the plan saw it.
    """
    hosts, now = found["hosts"], set(batch)
    first = min(hosts[name]["batch"] for name in now)
    for name, one in hosts.items():
        if one["batch"] is not None and one["batch"] < first and one["outcome"] != DEPLOYED:
            return f"{name} is {LOST if one['outcome'] == UNTOUCHED else one['outcome']}"
    up = {name for name, one in hosts.items() if _serves(one, router)}
    left = len(up - now)
    if up & now and left < found["min_available"]:
        return (
            f"{len(up)} hosts serve now and {len(up & now)} of them would be taken out: {left} would be left, and "
            f"deploy_min_available is {found['min_available']}"
        )
    return ""


def _serves(one: Mapping[str, Any], router: Mapping[str, Any] | None) -> bool:
    if router and one.get("router") == router["url"]:
        return one["worker"] in router["workers"]
    return bool(one["outcome"] == DEPLOYED or (one["serving"] and one["outcome"] == UNTOUCHED))


def summary(found: Mapping[str, Any]) -> list[str]:
    """What became of each host, as a table."""
    rows = [["host", "outcome", "seconds", "what happened"]]
    rows += [
        [name, one["outcome"], "" if one.get("seconds") is None else f"{one['seconds']:.1f}", one["detail"]]
        for name, one in found["hosts"].items()
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    counts = ", ".join(f"{sum(one['outcome'] == word for one in found['hosts'].values())} {word}" for word in OUTCOMES)
    return [*("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip() for row in rows), counts]
