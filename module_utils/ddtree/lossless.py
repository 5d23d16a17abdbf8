"""Whether a draft tree left the greedy answers as they were, and the programs as good: two coding checks of the same prompts.

Verification is lossless, so with temperature 0 the answers of a point are those of the `none` control, but for near ties: where two
tokens are all but equally likely, the order of sums in another batch shape decides, and the answers part there. So some difference
is no fault, a known number of partings per thousand tokens is; a fault in the verification parts every answer within a few tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

TIES_PER_1000 = 2.0  # partings per thousand tokens that near ties are allowed; measure yours with two runs of the control
ALPHA = 0.01  # a lossless point is called changed this rarely
SHOWN = 60  # letters on each side of the first difference
LOSSLESS, CHANGED, UNKNOWN = "lossless", "changed", "unknown"


def compare(control: Mapping[str, Any], point: Mapping[str, Any], ties_per_1000: float = TIES_PER_1000,
            again: Mapping[str, Any] | None = None) -> dict[str, Any]:  # fmt: skip
    """Two sections `coding` of results: {verdict, compared, same, parted, tokens, per_1000, allowed, first, better, worse, p_worse}.

    `verdict`: changed when more answers part than near ties explain, or more programs got worse than chance explains; unknown when no
    answer can be compared, `why` says so. `first` is the earliest difference. `again`: the control measured once more; if its own
    answers part more often than `ties_per_1000`, that rate is allowed.
    """
    allowed, floor = ties_per_1000, None
    if again is not None:
        floor = _partings(_pairs(control, again))
        allowed = max(allowed, floor["per_1000"] or 0.0)
    pairs = _pairs(control, point)
    found = _partings(pairs)
    better = [name for name, (one, other) in pairs.items() if one["outcome"] != "passed" and other["outcome"] == "passed"]
    worse = [name for name, (one, other) in pairs.items() if one["outcome"] == "passed" and other["outcome"] != "passed"]
    result = {**found, "allowed": allowed, "control_per_1000": floor["per_1000"] if floor else None, "better": better, "worse": worse,
              "p_worse": round(_sign_test(len(worse), len(better)), 4)}  # fmt: skip
    expected = allowed * found["tokens"] / 1000
    if not found["compared"]:
        why = "the two checks have no answer in common" if not pairs else "the results hold no answers to compare"
        return {"verdict": UNKNOWN, "why": why, **result}
    if _at_least(found["parted"], expected) < ALPHA:
        why = f"{found['parted']} of {found['compared']} answers part from the control's, near ties explain {expected:.1f}"
        return {"verdict": CHANGED, "why": why, **result}
    if result["p_worse"] < ALPHA:
        return {"verdict": CHANGED, "why": f"{len(worse)} programs that passed no longer do, {len(better)} the other way", **result}
    return {"verdict": LOSSLESS, "why": f"{found['same']} of {found['compared']} answers are the control's, the rest parts no more often "
                                        "than near ties do", **result}  # fmt: skip


def words(found: Mapping[str, Any]) -> str:
    """One sentence for a report, with the first difference."""
    first = found.get("first")
    where = (f"; first in {first['name']} after {first['tokens']} tokens, {first['control']!r} became {first['answer']!r}"
             if first else "")  # fmt: skip
    return f"greedy answers {found['verdict']}: {found['why']}{where}"


def _pairs(control: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Entries of the same task in both, by name; those that the engine did not answer are left out."""
    sides = [{str(task.get("name")): task for task in one.get("tasks") or []} for one in (control, point)]
    return {name: (task, sides[1][name]) for name, task in sides[0].items() if name in sides[1]}


def _partings(pairs: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    compared = same = parted = 0
    tokens = 0.0
    first: dict[str, Any] | None = None
    for name, (one, other) in pairs.items():
        texts = [str(task.get("answer") or "") for task in (one, other)]
        if not all(texts):
            continue
        compared += 1
        at = parting(texts[0], texts[1], _cut(one), _cut(other))
        if at is None and one.get("digest") != other.get("digest") and not _cut(one) and not _cut(other):
            at = min(map(len, texts))  # they part beyond what a result keeps
        length = len(texts[0]) if at is None else at
        alike = length * (one.get("tokens") or 0) / max(1, len(texts[0])) or length / 4  # letters of a token, where none is told
        tokens += alike
        if at is None:
            same += 1
            continue
        parted += 1
        if first is None or alike < first["tokens"]:
            first = {"name": name, "letter": at, "tokens": round(alike), "before": texts[0][max(0, at - SHOWN) : at],
                     "control": texts[0][at : at + SHOWN], "answer": texts[1][at : at + SHOWN]}  # fmt: skip
    return {"compared": compared, "same": same, "parted": parted, "tokens": round(tokens), "first": first,
            "per_1000": round(parted / tokens * 1000, 3) if tokens else None}  # fmt: skip


def parting(one: str, other: str, one_cut: bool = False, other_cut: bool = False) -> int | None:
    """The first letter at which two answers differ; None when they are the same as far as both go. A cut one may end early."""
    for at, (x, y) in enumerate(zip(one, other)):
        if x != y:
            return at
    if len(one) == len(other) or (one_cut and len(one) < len(other)) or (other_cut and len(other) < len(one)):
        return None
    return min(len(one), len(other))


def _cut(task: Mapping[str, Any]) -> bool:
    return task.get("finish_reason") == "length"


def _at_least(count: int, expected: float) -> float:
    """The probability of `count` or more where `expected` are expected (Poisson)."""
    if count == 0:
        return 1.0
    if expected <= 0:
        return 0.0
    below = math.fsum(math.exp(at * math.log(expected) - expected - math.lgamma(at + 1)) for at in range(count))
    return max(0.0, 1 - below)


def _sign_test(worse: int, better: int) -> float:
    """The probability of so many or more to the worse of all that changed, were both ways as likely (McNemar, exact, one side)."""
    changed = worse + better
    return sum(math.comb(changed, at) for at in range(worse, changed + 1)) / 2**changed
