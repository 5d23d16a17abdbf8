"""Prompts of real text, cut to an exact number of tokens by the engine's own count.

A prompt is a number of its own (no two prompts share a prefix), a passage of the corpus, and last a task that asks for a long
answer. Repeated filler or random tokens would make the accept length meaningless.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Count = Callable[[str], Awaitable[int]]  # tokens of a text, as the server counts the prompt

# Digits only and always as many: tokenizers cut them into pieces of fixed length, so any number fits any passage.
HEAD_DIGITS = 12
_HEAD = re.compile(rf"^\d{{{HEAD_DIGITS}}}\. ")
_SPACE = re.compile(r"\s+")
TASKS: dict[str, tuple[str, ...]] = {
    "prose": (
        "Go on with this story in the same style, at length.",
        "Write a long essay about what this passage tells of its people.",
        "Tell this again in your own words, in full detail.",
        "Write the next chapter, with dialogue, at length.",
    ),
    "code": (
        "Write a long review of this code, function by function.",
        "Go on with this module: write the next functions in full.",
        "Write a thorough set of tests for this code.",
        "Explain this code line by line, at length.",
    ),
}
_TRIES = 20


class PromptError(ValueError):
    """Prompts of this length cannot be made; the message is one sentence."""


@dataclass(frozen=True)
class Corpus:
    """A text to take passages from. `name` chooses the tasks; `digest` marks results that used the same text."""

    name: str
    text: str
    digest: str

    @property
    def tasks(self) -> tuple[str, ...]:
        return TASKS.get(self.name, TASKS["prose"])

    def passage(self, start: int, length: int) -> str:
        """`length` characters from the word at or after `start` on, from the beginning again after the end."""
        space = _SPACE.search(self.text, start % len(self.text))
        start = space.end() % len(self.text) if space else 0
        turns = (start + length) // len(self.text)
        whole = self.text if turns == 0 else (self.text + "\n\n") * (turns + 1)
        return whole[start : start + length]


def corpus(path: str | Path) -> Corpus:
    """Read a corpus; its name is the file's without the suffix. Raises PromptError for one that cannot be used."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise PromptError(f"the text for prompts cannot be read: {error}") from None
    if len(text.split()) < 100:
        raise PromptError(f"{path} has {len(text.split())} words, prompts need a text of at least 100")
    return Corpus(Path(path).stem, text, hashlib.sha256(text.encode()).hexdigest()[:12])


@dataclass
class Maker:
    """Makes prompts of `target` tokens, off by at most one in a thousand."""

    corpus: Corpus
    target: int
    count: Count
    seed: str

    def __post_init__(self) -> None:
        self._pick = random.Random(f"{self.seed}/{self.corpus.digest}/{self.target}")
        self._per_token = 4.3  # characters
        self._heads: set[str] = set()

    def head(self) -> str:
        """A number that no other prompt of this maker has."""
        while True:
            digits = "".join(self._pick.choices("0123456789", k=HEAD_DIGITS))
            if digits not in self._heads:
                self._heads.add(digits)
                return f"{digits}. "

    async def make(self, number: int, distinct: int) -> list[str]:
        """`number` prompts over `distinct` passages. Raises PromptError when the length cannot be met."""
        passages = [await self._fit(self.corpus.tasks[at % len(self.corpus.tasks)]) for at in range(max(1, min(number, distinct)))]
        return [self.head() + passages[at % len(passages)] for at in range(number)]

    async def _fit(self, task: str) -> str:
        """A passage and the task that have `target` tokens together with any head."""
        head, start = "0" * HEAD_DIGITS + ". ", self._pick.randrange(len(self.corpus.text))
        bare = await self.count(f"{head}\n\n{task}")
        if bare + 4 > self.target:
            raise PromptError(f"a context of {self.target} tokens is too short: the question alone takes {bare}")
        short, long = (0, bare), (0, 0)  # the longest passage that is too short and the shortest that is too long: characters, tokens
        length = max(1, round((self.target - bare) * self._per_token))
        best, nearest = "", self.target
        for _ in range(_TRIES):
            text = f"{self.corpus.passage(start, length)}\n\n{task}"
            tokens = await self.count(head + text)
            off = self.target - tokens
            if abs(off) < nearest:
                best, nearest = text, abs(off)
            if nearest <= self.target // 1000:
                break
            short, long = ((length, tokens), long) if off > 0 else (short, (length, tokens))
            if length > 100 and tokens > bare:
                self._per_token = length / (tokens - bare)
            length = max(short[0] + 1, length + round(off * self._per_token))
            if long[0] and not short[0] < length < long[0]:
                length = (short[0] + long[0]) // 2
            if long[0] and long[0] - short[0] <= 1:
                break
        if nearest > max(2, self.target // 200):
            raise PromptError(f"no prompt of {self.target} tokens came about: the nearest one is {nearest} off by the server's count")
        return best


def shared_prefix(prompts: Sequence[str]) -> int:
    """Characters of the longest prefix that two of the prompts share."""
    ordered = sorted(prompts)
    longest = 0
    for one, two in zip(ordered, ordered[1:]):
        same = next((at for at, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))
        longest = max(longest, same)
    return longest


def without_head(prompt: str) -> str:
    """The prompt without its own number."""
    return _HEAD.sub("", prompt, count=1)
