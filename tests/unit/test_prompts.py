"""Prompts have exactly the tokens asked for, by tokenizers of several kinds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ddtree.prompts import HEAD_DIGITS, Maker, PromptError, corpus, shared_prefix, without_head

FILES = Path(__file__).resolve().parents[2] / "roles" / "benchmark" / "files" / "corpus"
TOKENIZERS: dict[str, Callable[[str], int]] = {
    "four letters": lambda text: len(re.findall(r" ?\w{1,4}|[^\w\s]|\s", text)),
    "words, digits by three": lambda text: len(re.findall(r"\d{1,3}| ?[A-Za-z]{1,7}|[^\w\s]+|\s+(?=\S)|_", text)) + 1,
    "bytes by two": lambda text: (len(text.encode()) + 1) // 2,
    "half words": lambda text: 3 + sum(1 + (len(word) > 6) + (len(word) > 12) for word in text.split()),
}


def make(name: str, target: int, tokenizer: str = "four letters", number: int = 12, distinct: int = 4, seed: str = "0") -> list[str]:
    async def count(text: str) -> int:
        return TOKENIZERS[tokenizer](text)

    return asyncio.run(Maker(corpus(FILES / f"{name}.txt"), target, count, seed).make(number, distinct))


@pytest.mark.parametrize("name", ["prose", "code"])
@pytest.mark.parametrize("target", [60, 1024, 4096, 8192])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_the_number_of_tokens_is_met(name: str, target: int, tokenizer: str) -> None:
    found = [TOKENIZERS[tokenizer](one) for one in make(name, target, tokenizer, number=6, distinct=3)]
    assert all(abs(one - target) <= target // 1000 for one in found)


def test_no_two_prompts_share_a_beginning_and_the_task_is_last() -> None:
    found = make("prose", 200, number=96, distinct=16)
    assert shared_prefix(found) < HEAD_DIGITS and len(set(found)) == 96
    assert len({without_head(one) for one in found}) == 16
    assert all(one.rstrip().endswith((".", "!")) and "\n\n" in one for one in found)


def test_the_seed_decides() -> None:
    assert make("code", 300, seed="a") == make("code", 300, seed="a") != make("code", 300, seed="b")


def test_a_passage_longer_than_the_text_goes_round() -> None:
    text = corpus(FILES / "prose.txt")
    size = len(text.text)
    assert len(text.passage(size - 50, 2 * size + 12)) >= 2 * size and text.passage(0, 300) in text.passage(size - 9, 3 * size)
    assert text.passage(0, 50) == text.text.split(" ", 1)[1][:50]


def test_few_questions_to_the_server() -> None:
    asked = 0

    async def count(text: str) -> int:
        nonlocal asked
        asked += 1
        return TOKENIZERS["words, digits by three"](text)

    asyncio.run(Maker(corpus(FILES / "prose.txt"), 4096, count, "0").make(64, 16))
    assert asked <= 16 * 7


def test_what_cannot_be_made_is_said(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="a context of 12 tokens is too short"):
        make("prose", 12)
    (tmp_path / "short.txt").write_text("only a few words")
    with pytest.raises(PromptError, match="has 4 words"):
        corpus(tmp_path / "short.txt")
    with pytest.raises(PromptError, match="cannot be read"):
        corpus(tmp_path / "none.txt")

    async def constant(text: str) -> int:
        return 20 if len(text) < 100 else 70

    with pytest.raises(PromptError, match="no prompt of 60 tokens"):
        asyncio.run(Maker(corpus(FILES / "prose.txt"), 60, constant, "0").make(1, 1))
