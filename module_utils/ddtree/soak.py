"""A soak: n requests over m seconds on a server that just came up, within bounds of error rate and of speed against its last good one.

It runs while the router sends nothing, one request at a time, so that two soaks of one host were measured under equal conditions.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .ports import Clock, Generation

IDLE_POLL = 0.2  # seconds


class SoakError(Exception):
    """The server is not as good as it must be; `found` has the figures."""

    def __init__(self, message: str, found: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.found = dict(found)


@dataclass(frozen=True)
class Bounds:
    """`requests` over `seconds`; at most `errors` of them may fail (share), and the median speed must be `speed` of the last good one."""

    requests: int = 20
    seconds: float = 30.0
    errors: float = 0.0
    speed: float = 0.8

    def __post_init__(self) -> None:
        if self.requests < 1 or self.seconds < 0 or not 0 <= self.errors < 1 or not 0 <= self.speed <= 1:
            raise ValueError(
                f"a soak of {self.requests} requests over {self.seconds} s with {self.errors} errors and {self.speed} of the speed: "
                "wanted are at least 1 request, 0 s or more, a share of errors from 0 to below 1 and a share of speed from 0 to 1"
            )


def run(ask: Callable[[], Generation], clock: Clock, bounds: Bounds, config_id: str = "") -> dict[str, Any]:
    """{requests, errors, seconds, tok_s, least_tok_s, config_id, messages}; tok_s is the median of output token/s over the requests.

    Requests begin seconds/requests apart, later where one takes longer. An answer of another configuration is an error. It ends early
    once too many have failed.
    """
    began, speeds, failed = clock.now(), [], []
    for number in range(bounds.requests):
        wait = began + number * bounds.seconds / bounds.requests - clock.now()
        if wait > 0:
            clock.sleep(wait)
        answer = ask()
        if answer.error:
            failed.append(answer.error)
        elif config_id and answer.weight_version not in (None, config_id):
            failed.append(f"configuration {answer.weight_version} answered instead of {config_id}")
        else:
            speeds.append(answer.tokens / max(answer.seconds, 1e-6))
        if len(failed) / bounds.requests > bounds.errors:
            break
    return {
        "requests": len(speeds) + len(failed),
        "errors": len(failed),
        "seconds": round(clock.now() - began, 3),
        "tok_s": round(statistics.median(speeds), 2) if speeds else 0.0,
        "least_tok_s": round(min(speeds), 2) if speeds else 0.0,
        "config_id": config_id,
        "messages": list(dict.fromkeys(failed))[:3],
    }


def judge(found: Mapping[str, Any], bounds: Bounds, last_good: Mapping[str, Any] | None) -> None:
    """Raises SoakError, with one sentence, where the soak is not within its bounds."""
    share = found["errors"] / bounds.requests
    if share > bounds.errors:
        said = f": {found['messages'][0]}" if found["messages"] else ""
        raise SoakError(
            f"{found['errors']} of {found['requests']} soak requests failed, at most {bounds.errors:.0%} of {bounds.requests} may{said}",
            found,
        )
    usual = float((last_good or {}).get("tok_s") or 0)
    if usual and found["tok_s"] < usual * bounds.speed:
        raise SoakError(
            f"the soak measured {found['tok_s']:.1f} token/s, {1 - found['tok_s'] / usual:.0%} slower than this host's last good "
            f"{usual:.1f} of configuration {(last_good or {}).get('config_id') or 'unknown'}; "
            f"at most {1 - bounds.speed:.0%} slower is allowed",
            found,
        )


def wait_idle(running: Callable[[], int | None], clock: Clock, seconds: float) -> bool:
    """Whether the server came to have no request within that time; one that does not tell counts as idle."""
    deadline = clock.now() + seconds
    while running():
        if clock.now() >= deadline:
            return False
        clock.sleep(IDLE_POLL)
    return True


def told(found: Mapping[str, Any], last_good: Mapping[str, Any] | None) -> str:
    """A soak in words, beside the last good one."""
    if not found:
        return "no soak"
    usual = float((last_good or {}).get("tok_s") or 0)
    beside = f", {found['tok_s'] / usual - 1:+.0%} against its last good" if usual else ""
    return f"soak of {found['requests']} requests, {found['errors']} failed, {found['tok_s']:.1f} token/s{beside}"
