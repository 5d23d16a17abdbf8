"""How one answer is spread over verify steps: exact totals, varying steps, no luck.

The tokens and verify steps of a run are known when a request starts, because its length is. Their quotient is held at the
accept length by carrying the rounding from request to request, so that it is exact over a run, however short.
"""

from __future__ import annotations

# Weights of consecutive steps: a run of them has a steady mean, as draws from a distribution would not.
_RHYTHM = (1.0, 0.35, 1.7, 0.8, 1.3, 0.5, 1.1, 1.6, 0.6, 0.9, 1.45, 0.7)


class Carry:
    """Verify steps owed by earlier requests' rounding, in steps (between -0.5 and 0.5 once one request is planned)."""

    def __init__(self) -> None:
        self.owed = 0.0

    def steps(self, tokens: int, accept_length: float, longest: int) -> int:
        """Verify steps for an answer of `tokens`, the first of which the prefill gives."""
        if tokens <= 1:
            return 0
        exact = tokens / accept_length + self.owed
        fewest = -(-(tokens - 1) // longest)
        chosen = max(fewest, min(tokens - 1, max(1, round(exact))))
        self.owed = max(-0.5, min(0.5, exact - chosen))
        return chosen


def spread(tokens: int, steps: int, longest: int, phase: int = 0) -> list[int]:
    """Tokens of each step, at least 1 and at most `longest`, that sum to `tokens` (steps <= tokens <= steps * longest)."""
    if steps == 0:
        return []
    weights = [_RHYTHM[(phase + at) % len(_RHYTHM)] for at in range(steps)]
    scale = (tokens - steps) / sum(weights)
    out, given, due = [], 0, 0.0
    for at, weight in enumerate(weights):
        due += weight * scale
        left = steps - at - 1
        extra = round(due) - given
        extra = max(0, min(longest - 1, extra, tokens - steps - given))
        extra = max(extra, tokens - steps - given - left * (longest - 1))  # the steps that are left must be able to hold the rest
        out.append(1 + extra)
        given += extra
    return out
