"""From the records of a cell's requests to its figures. No clock and no network: what goes in decides what comes out.

Window: from the end of the last warm-up request to the end of the last measured one. The load is full on both sides of it, since
each slot went on with the next request at once and fillers keep the slots busy that ran out of measured ones; so neither ramp-up
nor drain is averaged in, while the waits for first tokens inside the closed loop are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from .stats import percentile, ratio_half_width, summary
from .wire import Record

LENGTH_TOLERANCE = 0.02  # of the prompt's tokens by the server's count, and never less than two tokens
CACHED_SHARE, CACHED_EACH = 0.01, 4  # a start token or a template may be cached; more of the prompt may not
CONCURRENCY_SHARE = 0.95
DISAGREEMENT = 0.05  # between accept lengths of two sources
BUSY_CPU, BUSY_LAG_MS = 0.70, 10.0
MS = 1000.0
CI95_METHOD = "tokens over time of the cell's own requests, Student t, and the window's resolution; nothing of restarts and days"


def window(records: Sequence[Record]) -> tuple[float, float]:
    """(begin, end) of the window, both of the records' clock. Raises ValueError when no measured request ended well."""
    measured = [one for one in records if one.phase == "measured" and one.ok]
    if not measured:
        raise ValueError("no measured request ended well")
    warm = [one.ended for one in records if one.phase == "warmup"]
    end = max(one.ended for one in measured)
    begin = max(warm) if warm else min(one.sent for one in measured)
    return (begin, end) if begin < end else (min(one.sent for one in measured), end)


def tokens_within(record: Record, begin: float, end: float) -> float:
    """Tokens of one request that fall into the window; those of a piece are spread evenly over the time since the piece before."""
    total, before, counted = 0.0, None, 0
    for at, so_far in record.events:
        new = so_far - counted
        if before is None or at <= before:
            total += new if begin < at <= end else 0.0
        else:
            total += new * max(0.0, min(at, end) - max(before, begin)) / (at - before)
        before, counted = at, so_far
    return total


def per_token(record: Record) -> float | None:
    """Seconds per token after the first piece; None when all tokens came in one piece."""
    if not record.ok or len(record.events) < 2:
        return None
    (first, early), (last, total) = record.events[0], record.events[-1]
    return (last - first) / (total - early) if last > first else None


def accept_length(records: Sequence[Record]) -> float | None:
    """Tokens over verify steps of the requests that tell both; None when none does (no speculation, or the route does not tell)."""
    telling = [one for one in records if one.ok and one.verify_steps]
    steps = sum(one.verify_steps or 0 for one in telling)
    return sum(one.tokens or 0 for one in telling) / steps if steps else None


def counters_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What the server's own counters grew by; empty when it tells none, or was started anew in between."""
    grown = {key: after[key] - before.get(key, 0.0) for key in after if before}
    return {} if any(value < 0 for value in grown.values()) else grown


def cell(
    records: Sequence[Record], *, context: int, concurrency: int, grown: Mapping[str, float], client: Mapping[str, float]
) -> dict[str, Any]:
    """The cell of a result file. `grown`: see counters_between. `client`: cpu (share of one core), lag_ms_p99 of the event loop.

    Raises ValueError when no measured request ended well.
    """
    begin, end = window(records)
    length = end - begin
    measured = [one for one in records if one.phase == "measured"]
    good = [one for one in measured if one.ok]
    full_from = _full_from(records)
    steady = [one for one in good if one.sent >= full_from] or good
    counted = [one for one in records if one.error is None]
    tokens = math.fsum(tokens_within(one, begin, end) for one in counted)
    rate = tokens / length
    times = [one for one in map(per_token, steady) if one is not None]
    gaps, sizes = _gaps(steady)
    half = ratio_half_width([float(one.tokens or 0) for one in steady], [one.ended - one.sent for one in steady])
    if half is not None and sizes:  # the window's edges are only known to half a piece of each slot
        half = math.hypot(half, math.sqrt(concurrency) * sum(sizes) / len(sizes) / 2 / max(1.0, tokens))
    held = math.fsum(max(0.0, min(one.ended, end) - max(one.sent, begin)) for one in records) / length
    accept, source = _accept(good, records, grown)
    found: dict[str, Any] = {
        "context": context, "concurrency": concurrency, "requests": len(measured), "errors": len(measured) - len(good),
        "output_tokens": round(tokens), "seconds": round(length, 4), "output_tok_s": round(rate, 3),
        "user_tok_s": round(median(1 / one for one in times), 3) if times else None,
        "user_tok_s_p10": round(percentile([1 / one for one in times], 10), 3) if times else None,
        "ci95": [round(rate * (1 - half), 3), round(rate * (1 + half), 3)] if half is not None else None,
        "ci95_method": CI95_METHOD,
        "ttft_ms": summary([(one.events[0][0] - one.sent) * MS for one in steady]),
        "tpot_ms": summary([one * MS for one in times]),
        "itl_ms": summary([gap / size * MS for gap, size in zip(gaps, sizes)], [float(size) for size in sizes]),
        "chunk_ms": summary([gap * MS for gap in gaps]),
        "e2e_ms": summary([(one.ended - one.sent) * MS for one in steady]),
        "accept_length": None if accept is None else round(accept, 4), "accept_source": source,
        "tokens_per_chunk": round(sum(sizes) / len(sizes), 3) if sizes else None,
        "achieved_concurrency": round(held, 3),
        "prompt_tokens": {"min": min(one.prompt_tokens or 0 for one in good), "max": max(one.prompt_tokens or 0 for one in good)},
        "cached_tokens": sum(one.cached_tokens for one in good),
        "request_tokens": sum(one.tokens or 0 for one in good), "verify_steps": sum(one.verify_steps or 0 for one in good),
        "finish_reasons": dict(Counter(one.finish for one in good)),
        "error_kinds": dict(Counter(one.error or "cut" for one in measured if not one.ok)),
        "short": sum((one.tokens or 0) < one.wanted for one in good),
        "counters": _counters(grown), "client": dict(client),
    }  # fmt: skip
    answers = [(one.first_answer - one.sent) * MS for one in steady if one.first_answer is not None]
    if answers:
        found["first_answer_ms"] = summary(answers)
    return found


def _full_from(records: Sequence[Record]) -> float:
    """The time from which each slot had its first token: before it the requests of the start stood in each other's way."""
    return max((one.events[0][0] for one in records if one.phase == "warmup" and one.events), default=0.0)


def _gaps(records: Sequence[Record]) -> tuple[list[float], list[int]]:
    """Seconds between pieces and how many tokens each piece brought."""
    gaps, sizes = [], []
    for one in records:
        for (before, early), (now, late) in zip(one.events, one.events[1:]):
            gaps.append(now - before)
            sizes.append(late - early)
    return gaps, sizes


def _accept(good: Sequence[Record], records: Sequence[Record], grown: Mapping[str, float]) -> tuple[float | None, str | None]:
    own = accept_length(good)
    if own is not None:
        return own, "requests"
    served = _counters(grown).get("accept_length")
    strangers = grown.get("num_requests_total", 0.0) > len([one for one in records if one.ok or one.cut])
    return (served, "metrics") if served is not None and not strangers else (None, None)


def _counters(grown: Mapping[str, float]) -> dict[str, float]:
    names = {"requests": "num_requests_total", "generation_tokens": "generation_tokens_total", "verify_steps": "spec_verify_calls_total"}
    found = {key: grown[name] for key, name in names.items() if name in grown}
    if found.get("verify_steps"):
        found["accept_length"] = round(found.get("generation_tokens", 0.0) / found["verify_steps"], 4)
    return found


def warnings(found: Mapping[str, Any], records: Sequence[Record], wanted: Mapping[str, Any]) -> list[str]:
    """Codes of what makes a cell doubtful, each with a few words. `wanted`: ignore_eos, flushed ("" or why not), waiting, began_with."""
    out = []
    good = [one for one in records if one.phase == "measured" and one.ok]
    context, concurrency = found["context"], found["concurrency"]

    def warn(code: str, words: str) -> None:
        out.append(f"{code}: {words}")

    if found["errors"]:
        kinds = ", ".join(f"{kind} {count}" for kind, count in found["error_kinds"].items())
        warn("errors", f"{found['errors']} of {found['requests']} requests failed ({kinds})")
    if wanted.get("flushed"):
        warn("not_flushed", wanted["flushed"])
    prompt = sum(one.prompt_tokens or 0 for one in good)
    if found["cached_tokens"] > CACHED_SHARE * prompt + CACHED_EACH * len(good):
        warn("cached", f"{found['cached_tokens']} of {prompt} prompt tokens came from the prefix cache")
    off = max(abs((one.prompt_tokens or 0) - context) for one in good)
    if off > max(2, LENGTH_TOLERANCE * context):
        warn("prompt_length", f"the server counts {found['prompt_tokens']['min']} to {found['prompt_tokens']['max']} prompt tokens")
    if wanted.get("began_with"):
        warn("other_traffic", f"{wanted['began_with']} requests were in the server before the cell")
    elif found["counters"].get("requests", 0.0) > sum(one.ok or one.cut for one in records):
        warn("other_traffic", f"the server finished {found['counters']['requests']:.0f} requests, more than were sent")
    if wanted.get("waiting"):
        warn("queued", f"{wanted['waiting']} requests waited in the server's queue")
    if found["achieved_concurrency"] < CONCURRENCY_SHARE * concurrency:
        warn("below_concurrency", f"{found['achieved_concurrency']} requests were in flight on average")
    client = found["client"]
    if client.get("cpu", 0.0) > BUSY_CPU or client.get("lag_ms_p99", 0.0) > BUSY_LAG_MS:
        late = client.get("lag_ms_p99", 0.0)
        warn("client_bound", f"the client used {client.get('cpu', 0.0):.0%} of a core and was {late:.1f} ms late (p99)")
    if found["seconds"] * MS < (found["e2e_ms"]["p50"] or 0.0) * 0.9:
        warn("short_window", "the window is shorter than one request: ask for more requests")
    if found["short"] and wanted.get("ignore_eos"):
        warn("short", f"{found['short']} answers ended before their length although they were told not to")
    if any(one.spread for one in good):
        warn("usage_at_end", "the server counts tokens only at the end: times of tokens are spread by the length of the text")
    served, own = found["counters"].get("accept_length"), accept_length(records)  # both over all requests, warm-up included
    if served and own and abs(served / own - 1) > DISAGREEMENT:
        warn("accept_sources", f"{own:.2f} by the requests, {served:.2f} by the server's counters")
    steps = Counter[int]()
    for one in good:
        steps.update({at: count for at, count in enumerate(one.histogram) if count})
    if len(steps) == 1 and sum(steps.values()) >= 20:
        kept = next(iter(steps))
        if kept == 0:
            warn("no_acceptance", "no draft token was ever accepted: the drafter has no effect")
        else:
            warn("constant_acceptance", f"each of {steps[kept]} steps accepted {kept}: is a simulated accept length set?")
    versions = {one.weight_version for one in records if one.weight_version}
    if len(versions) > 1:
        warn("two_configurations", f"answers came from {', '.join(sorted(map(str, versions)))}")
    return out
