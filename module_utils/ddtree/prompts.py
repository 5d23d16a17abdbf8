"""Prompts of real text, cut to an exact number of tokens by the engine's own count.

A prompt is a number of its own (no two prompts share a prefix), real text, and last a question that asks for a long answer. Repeated
filler or random tokens would make the accept length meaningless.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Count = Callable[[str], Awaitable[int]]  # tokens of a text, as the server counts the prompt

# Digits only and always as many: tokenizers cut them into pieces of fixed length, so any number fits any passage.
HEAD_DIGITS = 12
_HEAD = re.compile(rf"\d{{{HEAD_DIGITS}}}\. ")
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
_SPEAKERS = {"human": "User", "user": "User", "gpt": "Assistant", "assistant": "Assistant", "chatgpt": "Assistant", "bing": "Assistant",
             "bard": "Assistant", "system": "System"}  # fmt: skip


class PromptError(ValueError):
    """Prompts of this length cannot be made; the message is one sentence."""


# -- material --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Material:
    """What prompts are made of: one long text, or records that each end with a question of their own.

    `name` chooses the tasks that a text gets; `digest` marks results that used the same material.
    """

    name: str
    digest: str
    text: str = ""
    records: tuple[str, ...] = ()

    def sample(self, length: int) -> str:
        """Some of it, as a prompt begins and ends."""
        return (self.text or "\n\n".join(self.records))[:length]

    def sources(self, pick: random.Random) -> Iterator[Callable[[int], str]]:
        """Endless: each a function that gives a prompt with about so many characters of material; the question is always whole."""
        order = list(range(len(self.records)))
        pick.shuffle(order)
        tasks = TASKS.get(self.name, TASKS["prose"])
        at = 0
        while True:
            if self.records:
                yield _record(self, order, at % len(order))
            else:
                yield _passage(self, pick.randrange(len(self.text)), tasks[at % len(tasks)])
            at += 1


def _passage(found: Material, start: int, task: str) -> Callable[[int], str]:
    return lambda length: f"{passage(found.text, start, length)}\n\n{task}"


def _record(found: Material, order: Sequence[int], at: int) -> Callable[[int], str]:
    """The end of the other records and then this one: what is too much is cut from the front, so that the question stays."""

    def made(length: int) -> str:
        parts, size, step = [found.records[order[at]]], len(found.records[order[at]]), 1
        while size < length:
            before = found.records[order[(at - step) % len(order)]]
            parts.append(before)
            size, step = size + len(before) + 2, step + 1
        whole = "\n\n".join(reversed(parts))
        return whole[len(whole) - length :] if length else whole[:0]

    return made


def passage(text: str, start: int, length: int) -> str:
    """`length` characters from the word at or after `start` on, from the beginning again after the end."""
    space = _SPACE.search(text, start % len(text))
    start = space.end() % len(text) if space else 0
    turns = (start + length) // len(text)
    whole = text if turns == 0 else (text + "\n\n") * (turns + 1)
    return whole[start : start + length]


def material(path: str | Path) -> Material:
    """Read a text, JSONL or JSON file; its name is the file's without the suffix. Raises PromptError for one that cannot be used."""
    try:
        raw = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise PromptError(f"the text for prompts cannot be read: {error}") from None
    name, digest = Path(path).stem, hashlib.sha256(raw.encode()).hexdigest()[:12]
    if raw[:1] in ("{", "["):
        return Material(name, digest, records=tuple(_records(raw, str(path))))
    if len(raw.split()) < 100:
        raise PromptError(f"{path} has {len(raw.split())} words, prompts need a text of at least 100")
    return Material(name, digest, text=raw)


def _records(raw: str, path: str) -> list[str]:
    """The prompts of a file: one JSON value per line, or one JSON list over the whole file."""
    found: list[tuple[str, Any]] = []
    try:
        whole = json.loads(raw)
        found = [(f"record {at}", one) for at, one in enumerate(whole if isinstance(whole, list) else [whole], 1)]
    except ValueError:
        for at, line in enumerate(raw.splitlines(), 1):
            if line.strip():
                try:
                    found.append((f"line {at}", json.loads(line)))
                except ValueError as error:
                    raise PromptError(f"{path}, line {at} is no JSON ({error}): write one JSON object per line") from None
    texts = []
    for place, one in found:
        text = _record_text(one)
        if text is None:
            raise PromptError(f"{path}, {place} has no prompt: give it prompt or text, messages with role and content, "
                              "or conversations with from and value")  # fmt: skip
        if text:
            texts.append(text)
    if not texts:
        raise PromptError(f"{path} has no prompt that is not empty")
    return texts


def _record_text(one: Any) -> str | None:
    """One record's prompt; "" for a conversation in which no user speaks, None for a shape that is not known."""
    if isinstance(one, str):
        return one.strip()
    if not isinstance(one, Mapping):
        return None
    for key in ("prompt", "text", "question"):
        if isinstance(one.get(key), str):
            return str(one[key]).strip()
    turns = next((one[key] for key in ("messages", "conversations", "conversation") if isinstance(one.get(key), list)), None)
    if turns is None:
        return None
    said = []
    for turn in turns:
        if not isinstance(turn, Mapping):
            return None
        speaker, text = turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))
        if not isinstance(speaker, str) or not isinstance(text, str):
            return None
        said.append((_SPEAKERS.get(speaker.lower(), speaker), text.strip()))
    while said and said[-1][0] != "User":  # the answer is the engine's to give
        said.pop()
    if len(said) == 1:
        return said[0][1]
    return "\n\n".join(f"{speaker}: {text}" for speaker, text in said)


# -- prompts ---------------------------------------------------------------------------------------------------------------


def head(seed: str, index: int) -> str:
    """The beginning that only this prompt has; the same for one seed in every process and every run."""
    number = int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:8], "big") % 10**HEAD_DIGITS
    return f"{number:0{HEAD_DIGITS}d}. "


@dataclass(frozen=True)
class Book:
    """The prompts of a cell. `shared` is what all of them begin with, normally nothing; `target` their number of tokens."""

    name: str
    digest: str
    seed: str
    target: int
    passages: tuple[str, ...]
    shared: str = ""
    sharing: float = 0.0

    def prompt(self, index: int) -> str:
        """Any index has one, negative ones are for the warm-up; passages come round again, heads never."""
        return f"{self.shared}{head(self.seed, index)}{self.passages[index % len(self.passages)]}"

    def told(self) -> dict[str, Any]:
        """For a result: what was used, and a digest of the passages themselves."""
        whole = "\0".join((self.shared, *self.passages))
        return {"name": self.name, "digest": self.digest, "passages": len(self.passages), "sharing": self.sharing,
                "prompts_digest": hashlib.sha256(whole.encode()).hexdigest()[:12]}  # fmt: skip


@dataclass
class Maker:
    """Makes prompts of `target` tokens by the server's count, 0 for records of their own length.

    `sharing` is the share of each prompt that all have in common. `slack` tokens off is near enough where each count is dear.
    """

    material: Material
    target: int
    count: Count
    seed: str
    sharing: float = 0.0
    slack: int = 0

    def __post_init__(self) -> None:
        self._pick = random.Random(f"{self.seed}/{self.material.digest}/{self.target}")
        self._per_token = 4.3  # characters
        self._shared = ""

    async def make(self, distinct: int) -> Book:
        """A book of at most `distinct` passages. Raises PromptError when the length cannot be met."""
        found = self.material
        number = max(1, min(distinct, len(found.records)) if found.records and not self.target else distinct)
        if not self.target:
            if not found.records:
                raise PromptError(f"a context of 0 takes prompts as long as they are, but {found.name} is one text: name a file of prompts")
            order = list(found.records)
            self._pick.shuffle(order)
            return Book(found.name, found.digest, self.seed, 0, tuple(order[:number]))
        sources = found.sources(self._pick)
        if self.sharing:
            self._shared = await self._common(next(sources))
        passages = [await self._fit(next(sources)) for _ in range(number)]
        return Book(found.name, found.digest, self.seed, self.target, tuple(passages), self._shared, self.sharing)

    async def _common(self, source: Callable[[int], str]) -> str:
        """What all prompts begin with: about its share of the tokens, since only the whole prompt must be exact."""
        wanted, size = self.target * self.sharing, round(self.target * self.sharing * self._per_token)
        for _ in range(3):
            size = max(1, round(size * wanted / max(1, await self.count(source(size)[:size]))))
        return source(size)[:size] + "\n\n"

    async def _fit(self, source: Callable[[int], str]) -> str:
        """A passage that has `target` tokens together with any head."""
        before = self._shared + "0" * HEAD_DIGITS + ". "
        bare = await self.count(before + source(0))
        if bare + 4 > self.target:
            raise PromptError(f"a context of {self.target} tokens is too short: the question alone takes {bare}")
        short, long = (0, bare), (0, 0)  # the longest passage that is too short and the shortest that is too long: characters, tokens
        length = max(1, round((self.target - bare) * self._per_token))
        best, nearest = "", self.target
        for _ in range(_TRIES):
            text = source(length)
            tokens = await self.count(before + text)
            off = self.target - tokens
            if abs(off) < nearest:
                best, nearest = text, abs(off)
            if nearest <= self.slack:
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
