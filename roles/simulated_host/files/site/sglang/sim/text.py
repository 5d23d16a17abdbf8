"""Long plausible English for every prompt that asks for no program; the same prompt gives the same text."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

from . import coding
from .tokenizer import pieces

_SUBJECTS = (
    "The scheduler", "A careful engineer", "The draft model", "Each request", "The larger tree", "A shorter window", "The cluster",
    "The second experiment", "An idle board", "The verification pass", "Most of the latency", "The operator", "A warm cache", "The report",
)  # fmt: skip
_VERBS = (
    "keeps",
    "measures",
    "compares",
    "explains",
    "accepts",
    "delays",
    "reveals",
    "limits",
    "doubles",
    "shares",
    "replaces",
    "follows",
    "saves",
)
_OBJECTS = (
    "the number of tokens in every step", "the memory that earlier work left behind", "a steady rhythm of small batches",
    "the cost of moving weights across the bus", "what the first measurement suggested", "the time between two answers",
    "a queue that nobody had looked at", "the balance between speed and certainty", "the order in which branches are tried",
    "a budget chosen long ago", "the noise of a single run", "the promise made to the client",
)  # fmt: skip
_TAILS = (
    "because the previous step has already finished", "while the other seven boards wait", "although the average hides it",
    "so that nothing is lost when the load grows", "even when the context becomes long", "until the next restart",
    "which is easy to miss in a short test", "and the difference shows after a few minutes", "as the table above makes clear",
)  # fmt: skip
_JOINS = ("In practice,", "For this reason,", "On the other hand,", "Over time,", "By contrast,", "Strictly speaking,", "As a rule,", "")


def _sentences(seed: int) -> Iterator[str]:
    pick = random.Random(seed)
    count = 0
    while True:
        join, subject = pick.choice(_JOINS), pick.choice(_SUBJECTS)
        if join:
            subject = subject[0].lower() + subject[1:]
        body = f"{join} {subject} {pick.choice(_VERBS)} {pick.choice(_OBJECTS)}".strip()
        if pick.random() < 0.7:
            body += f" {pick.choice(_TAILS)}"
        count += 1
        yield f"{body}.\n\n" if count % 5 == 0 else f"{body}. "


def answer(prompt: str, limit: int, ignore_eos: bool, mode: object, salt: int = 0) -> tuple[list[str], bool]:
    """Pieces of the answer, at most `limit`, and whether it ended by itself before that.

    A program ends after its block, other text at 200 to 400 tokens, which varies by prompt; with `ignore_eos` text goes on.
    """
    seed = zlib.crc32(prompt.encode("utf-8", "surrogatepass")) ^ salt
    functions = coding.asked(prompt)
    out = pieces(coding.answer(prompt, functions, mode)) if functions else []
    natural = len(out) if functions else 200 + seed % 201
    wanted = limit if ignore_eos else min(limit, natural)
    if len(out) < wanted:
        for sentence in _sentences(seed):
            out.extend(pieces(sentence))
            if len(out) >= wanted:
                break
    return out[:wanted], not ignore_eos and natural < limit
