"""From the records of a cell's requests to its figures. No clock and no network: what goes in decides what comes out.

Window: from the end of the last warm-up request to the end of the last measured one. The load is full on both sides of it, since
each slot goes on with the next request at once until the window is over; so neither ramp-up nor drain is averaged in, while the
waits for first tokens inside the closed loop are.

Several tokens in one piece: they share the time since the piece before evenly. That is the rule for the time between tokens
(itl_ms, weighted by tokens) and for which of them fall into a window; chunk_ms is the time between pieces, as a reader sees it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from .accept import Reading
from .slots import Cost
from .stats import percentile, ratio_half_width, summary
from .wire import OVERLOAD, Record

LENGTH_TOLERANCE = 0.02  # of the prompt's tokens by the server's count, and never less than two tokens
CACHED_SHARE, CACHED_EACH = 0.01, 4  # a start token or a template may be cached; more of the prompt may not
CONCURRENCY_SHARE = 0.95
BUSY_CPU, BUSY_LAG_MS = 0.70, 10.0
BURSTS = 2.0  # tokens per piece over tokens per verify step: beyond it the server sends several steps in one piece
MS = 1000.0
LEAST_REPEATS = 3
BY_REPEATS = "tokens over seconds of {} repeats, Student t; nothing of restarts and days"
BY_REQUESTS = "tokens over seconds of the requests of one window, Student t, and the window's resolution; nothing of restarts and days"


def window(records: Sequence[Record]) -> tuple[float, float]:
    """(begin, end) of the window, both of the records' clock. Raises ValueError when no measured request ended well."""
    measured = [one for one in records if one.phase == "measured" and one.ok]
    if not measured:
        raise ValueError("no measured request ended well")
    warm = [one.ended for one in records if one.phase == "warmup"]
    end = max(one.ended for one in records if one.phase == "measured")
    begin = max(warm) if warm else min(one.sent for one in measured)
    return (begin, end) if begin < end else (min(one.sent for one in measured), end)


def repeats(records: Sequence[Record], per_repeat: int) -> list[tuple[float, float, list[Record]]]:
    """(begin, end, its requests) of each repeat. One ends when all of its requests and of those before have ended.

    A repeat that ended before the window began is left out.
    """
    begin, _ = window(records)
    groups: dict[int, list[Record]] = {}
    for one in records:
        if one.phase == "measured":
            groups.setdefault(one.index // per_repeat, []).append(one)
    found, last = [], begin
    for at in sorted(groups):
        end = max(one.ended for one in groups[at])
        if end > last:
            found.append((last, end, groups[at]))
            last = end
    return found


def tokens_within(record: Record, begin: float, end: float) -> float:
    """Tokens of one request that fall into the window; those of a piece are spread evenly over the time since the piece before."""
    total, counted = 0.0, 0
    before = None if record.streamed else record.sent
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
    if not record.ok or not record.streamed or len(record.events) < 2:
        return None
    (first, early), (last, total) = record.events[0], record.events[-1]
    return (last - first) / (total - early) if last > first else None


def counters_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What the server's own counters grew by; empty when it tells none, or was started anew in between."""
    grown = {key: after[key] - before.get(key, 0.0) for key in after if before}
    return {} if any(value < 0 for value in grown.values()) else grown


def client(costs: Sequence[Cost], processes: int) -> dict[str, Any]:
    """What the load cost: `cpu` as a share of one core, of the busiest process, as is the lateness of event loops."""
    told = [one.told() for one in costs]
    most = {name: max((one[name] for one in told), default=0.0) for name in ("cpu", "lag_ms_p99")}
    return {**most, "cpu_s": round(sum(one["cpu_s"] for one in told), 3), "processes": processes}


def cell(
    records: Sequence[Record], *, context: int, concurrency: int, per_repeat: int, passages: int, accepted: Reading | None,
    grown: Mapping[str, float], client: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """The cell of a result file. `grown`: see counters_between; `client`: see client; `passages`: prompts before they repeat.

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
    rounds = _rounds(counted, repeats(records, per_repeat))
    half, method = _half_width(rounds, steady, sizes, concurrency, tokens)
    held = math.fsum(max(0.0, min(one.ended or end, end) - max(one.sent, begin)) for one in records) / length
    cached = _cached(good, grown)
    found: dict[str, Any] = {
        "context": context, "concurrency": concurrency, "requests": len(measured), "errors": len(measured) - len(good),
        "output_tokens": round(tokens), "seconds": round(length, 4), "output_tok_s": round(rate, 3),
        "user_tok_s": round(median(1 / one for one in times), 3) if times else None,
        "user_tok_s_p10": round(percentile([1 / one for one in times], 10), 3) if times else None,
        "ci95": [round(rate * (1 - half), 3), round(rate * (1 + half), 3)] if half is not None else None,
        "ci95_method": method,
        "ttft_ms": summary([(one.events[0][0] - one.sent) * MS for one in steady if one.streamed]),
        "tpot_ms": summary([one * MS for one in times]),
        "itl_ms": summary([gap / size * MS for gap, size in zip(gaps, sizes)], [float(size) for size in sizes]),
        "chunk_ms": summary([gap * MS for gap in gaps]),
        "e2e_ms": summary([(one.ended - one.sent) * MS for one in steady]),
        "accept_length": round(accepted.length, 4) if accepted else None, "accept_source": accepted.source if accepted else None,
        "accept_scope": accepted.scope if accepted else None,
        "tokens_per_chunk": round(sum(sizes) / len(sizes), 3) if sizes else None,
        "achieved_concurrency": round(held, 3),
        "prompt_tokens": {"min": min(one.prompt_tokens or 0 for one in good), "max": max(one.prompt_tokens or 0 for one in good)},
        "cached_tokens": cached,
        "request_tokens": sum(one.tokens or 0 for one in good), "verify_steps": sum(one.verify_steps or 0 for one in good),
        "finish_reasons": dict(Counter(one.finish for one in good)),
        "error_kinds": dict(Counter(one.error or "cut" for one in measured if not one.ok)),
        "short": sum((one.tokens or 0) < one.wanted for one in good),
        "counters": _counters(grown), "client": dict(client), "repeats": rounds, "per_prompt": _per_prompt(good, passages),
    }  # fmt: skip
    answers = [(one.first_answer - one.sent) * MS for one in steady if one.first_answer is not None and one.streamed]
    if answers:
        found["first_answer_ms"] = summary(answers)
    return found


def _rounds(counted: Sequence[Record], found: Sequence[tuple[float, float, list[Record]]]) -> list[dict[str, Any]]:
    """The figures of each repeat. Only requests that overlap it are looked at, since there may be many of both."""
    out = []
    for begin, end, own in found:
        tokens = math.fsum(tokens_within(one, begin, end) for one in counted if one.sent < end and (not one.ended or one.ended > begin))
        good = [one for one in own if one.ok]
        steps = sum(one.verify_steps or 0 for one in good)
        out.append({
            "requests": len(own), "errors": len(own) - len(good), "seconds": round(end - begin, 4), "output_tokens": round(tokens, 1),
            "output_tok_s": round(tokens / (end - begin), 3),
            "accept_length": round(sum(one.tokens or 0 for one in good) / steps, 4) if steps else None,
        })  # fmt: skip
    return out


def _half_width(
    rounds: Sequence[Mapping[str, Any]], steady: Sequence[Record], sizes: Sequence[int], concurrency: int, tokens: float
) -> tuple[float | None, str]:
    """Half width of the 95% interval of token/s as a share of it, and how it came about."""
    if len(rounds) >= LEAST_REPEATS:
        half = ratio_half_width([one["output_tokens"] for one in rounds], [one["seconds"] for one in rounds])
        return half, BY_REPEATS.format(len(rounds))
    half = ratio_half_width([float(one.tokens or 0) for one in steady], [one.ended - one.sent for one in steady])
    if half is not None and sizes:  # the window's edges are only known to half a piece of each slot
        half = math.hypot(half, math.sqrt(concurrency) * sum(sizes) / len(sizes) / 2 / max(1.0, tokens))
    return half, BY_REQUESTS


def _per_prompt(good: Sequence[Record], passages: int) -> list[dict[str, Any]]:
    """Tokens, seconds of decoding and verify steps by passage: two results of one seed can be compared passage by passage."""
    found: dict[int, dict[str, Any]] = {}
    for one in good:
        at = one.index % max(1, passages)
        row = found.setdefault(at, {"prompt": at, "requests": 0, "tokens": 0, "seconds": 0.0, "verify_steps": 0})
        begin = one.events[0][0] if one.streamed else one.sent
        first = one.events[0][1] if one.streamed else 0
        row["requests"] += 1
        row["tokens"] += (one.tokens or 0) - first
        row["seconds"] = round(row["seconds"] + one.events[-1][0] - begin, 6)
        row["verify_steps"] += one.verify_steps or 0
    return [found[at] for at in sorted(found)]


def _cached(good: Sequence[Record], grown: Mapping[str, float]) -> int | None:
    """Prompt tokens from the prefix cache, as the answers tell, else their share of what the counter grew by; None when nobody tells."""
    known = [one.cached_tokens for one in good if one.cached_tokens is not None]
    if known:
        return sum(known)
    counted, requests = grown.get("cached_tokens_total"), grown.get("num_requests_total", 0.0)
    return None if counted is None else round(counted * min(1.0, len(good) / requests) if requests else counted)


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


def _counters(grown: Mapping[str, float]) -> dict[str, float]:
    names = {"requests": "num_requests_total", "generation_tokens": "generation_tokens_total", "verify_steps": "spec_verify_calls_total"}
    found = {key: grown[name] for key, name in names.items() if name in grown}
    if found.get("verify_steps"):
        found["accept_length"] = round(found.get("generation_tokens", 0.0) / found["verify_steps"], 4)
    return found


def failures(records: Sequence[Record]) -> str:
    """The kinds of failure, most frequent first, with the words of one."""
    failed = [one for one in records if one.error]
    kinds = [kind for kind, _ in Counter(one.error or "" for one in failed).most_common()]
    told = next((one.detail for one in failed if one.error == kinds[0] and one.detail), "") if kinds else ""
    return ", ".join(f"{kind} {sum(one.error == kind for one in failed)} times" for kind in kinds) + (f" ({told})" if told else "")


def warnings(found: Mapping[str, Any], records: Sequence[Record], wanted: Mapping[str, Any]) -> list[str]:
    """Codes of what makes a cell doubtful, each with a few words.

    `wanted`: ignore_eos, flushed ("" or why not), waiting, began_with, disagreement (of accept lengths), sharing (of prefixes), rate.
    """
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
    cached = found["cached_tokens"] or 0
    if not wanted.get("sharing") and cached > CACHED_SHARE * prompt + CACHED_EACH * len(good):
        warn("cached", f"{found['cached_tokens']} of {prompt} prompt tokens came from the prefix cache")
    off = max(abs((one.prompt_tokens or 0) - context) for one in good) if context else 0
    if off > max(2, LENGTH_TOLERANCE * context):
        warn("prompt_length", f"the server counts {found['prompt_tokens']['min']} to {found['prompt_tokens']['max']} prompt tokens")
    if wanted.get("began_with"):
        warn("other_traffic", f"{wanted['began_with']} requests were in the server before the cell")
    elif found["counters"].get("requests", 0.0) > sum(one.ended > 0 for one in records):
        warn("other_traffic", f"the server finished {found['counters']['requests']:.0f} requests, more than were sent")
    if wanted.get("waiting"):
        warn("queued", f"{wanted['waiting']} requests waited in the server's queue")
    if not wanted.get("rate") and found["achieved_concurrency"] < CONCURRENCY_SHARE * concurrency:
        warn("below_concurrency", f"{found['achieved_concurrency']} requests were in flight on average")
    if found["error_kinds"].get(OVERLOAD):
        warn("overloaded", "the server cannot take this rate: requests pile up")
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
    if wanted.get("disagreement"):
        warn("accept_sources", wanted["disagreement"])
    if found["verify_steps"] and found["tokens_per_chunk"] and found["tokens_per_chunk"] > BURSTS * (found["accept_length"] or 1.0):
        warn("bursts", f"pieces of {found['tokens_per_chunk']:.1f} tokens are several verify steps: times between tokens are smoothed")
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
