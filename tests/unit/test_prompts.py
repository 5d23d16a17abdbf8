"""Prompts have exactly the tokens asked for, by tokenizers of several kinds, from every kind of material."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.prompts import HEAD_DIGITS, Book, Maker, PromptError, head, material, passage, shared_prefix, without_head

FILES = Path(__file__).resolve().parents[2] / "roles" / "benchmark" / "files" / "corpus"
SETS = {"prose": "prose.txt", "code": "code.txt", "chat": "chat.jsonl"}
TOKENIZERS: dict[str, Callable[[str], int]] = {
    "four letters": lambda text: len(re.findall(r" ?\w{1,4}|[^\w\s]|\s", text)),
    "words, digits by three": lambda text: len(re.findall(r"\d{1,3}| ?[A-Za-z]{1,7}|[^\w\s]+|\s+(?=\S)|_", text)) + 1,
    "bytes by two": lambda text: (len(text.encode()) + 1) // 2,
    "half words": lambda text: 3 + sum(1 + (len(word) > 6) + (len(word) > 12) for word in text.split()),
}


def make(name: str, target: int, tokenizer: str = "four letters", distinct: int = 4, seed: str = "0", sharing: float = 0.0) -> Book:
    async def count(text: str) -> int:
        return TOKENIZERS[tokenizer](text)

    return asyncio.run(Maker(material(FILES / SETS[name]), target, count, seed, sharing).make(distinct))


def some(book: Book, number: int) -> list[str]:
    return [book.prompt(at) for at in range(-2, number)]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("target", [60, 1024, 4096, 8192])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_the_number_of_tokens_is_met_exactly(name: str, target: int, tokenizer: str) -> None:
    found = [TOKENIZERS[tokenizer](one) for one in some(make(name, target, tokenizer, distinct=3), 6)]
    assert all(abs(one - target) <= 1 for one in found)  # half a token of a pair of bytes cannot be


@pytest.mark.parametrize("name", SETS)
def test_no_two_prompts_share_a_beginning_and_the_question_is_last(name: str) -> None:
    book = make(name, 200, distinct=16)
    found = some(book, 96)
    assert shared_prefix(found) < HEAD_DIGITS and len(set(found)) == 98
    assert len({without_head(one) for one in found}) == 16
    assert all(one.rstrip().endswith((".", "!", "?")) and "\n\n" in one for one in found)


def test_the_seed_decides() -> None:
    assert some(make("code", 300, seed="a"), 9) == some(make("code", 300, seed="a"), 9)
    assert not set(some(make("code", 300, seed="a"), 9)) & set(some(make("code", 300, seed="b"), 9))
    assert make("code", 300).told() == make("code", 300).told() != make("code", 300, seed="b").told()


@given(st.text(max_size=8), st.lists(st.integers(-1000, 10**6), unique=True, min_size=2, max_size=200))
def test_heads_are_digits_of_one_length_and_their_own(seed: str, indexes: list[int]) -> None:
    found = {head(seed, at) for at in indexes}
    assert len(found) == len(indexes) and all(re.fullmatch(r"\d{12}\. ", one) for one in found)


def test_a_passage_longer_than_the_text_goes_round() -> None:
    text = material(FILES / "prose.txt").text
    size = len(text)
    assert len(passage(text, size - 50, 2 * size + 12)) >= 2 * size and passage(text, 0, 300) in passage(text, size - 9, 3 * size)
    assert passage(text, 0, 50) == text.split(" ", 1)[1][:50]


def test_a_shared_beginning_of_the_wanted_share() -> None:
    found = some(make("prose", 1000, sharing=0.5), 8)
    same = shared_prefix(found)
    assert 0.4 < same / len(found[0]) < 0.6
    assert all(abs(TOKENIZERS["four letters"](one) - 1000) <= 1 for one in found)
    assert shared_prefix([one[same:] for one in found]) < HEAD_DIGITS


def test_few_questions_to_the_server() -> None:
    asked = 0

    async def count(text: str) -> int:
        nonlocal asked
        asked += 1
        return TOKENIZERS["words, digits by three"](text)

    asyncio.run(Maker(material(FILES / "prose.txt"), 4096, count, "0").make(16))
    assert asked <= 16 * 9


RECORDS: list[tuple[Any, str]] = [
    ({"prompt": " Why? "}, "Why?"),
    ({"text": "Tell me."}, "Tell me."),
    ("only a string", "only a string"),
    ({"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]}, "Hello"),
    ({"conversations": [{"from": "human", "value": "A"}, {"from": "gpt", "value": "B"}, {"from": "human", "value": "C"}]},
     "User: A\n\nAssistant: B\n\nUser: C"),
    ({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]}, "System: Be brief.\n\nUser: Why?"),
]  # fmt: skip


@pytest.mark.parametrize("whole", [False, True])
def test_records_of_every_shape(tmp_path: Path, whole: bool) -> None:
    values = [one for one, _ in RECORDS if whole or not isinstance(one, str)]
    text = json.dumps(values) if whole else "\n\n".join(map(json.dumps, values))
    (tmp_path / "own.jsonl").write_text(text)
    found = material(tmp_path / "own.jsonl")
    assert list(found.records) == [said for one, said in RECORDS if whole or not isinstance(one, str)] and found.name == "own"


def test_records_as_long_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text("\n".join(json.dumps({"prompt": f"Question {at}?"}) for at in range(5)))

    async def never(_: str) -> int:
        raise AssertionError

    book = asyncio.run(Maker(material(tmp_path / "own.jsonl"), 0, never, "0").make(32))
    assert sorted(without_head(book.prompt(at)) for at in range(5)) == [f"Question {at}?" for at in range(5)]
    with pytest.raises(PromptError, match="a context of 0 takes prompts as long as they are, but prose is one text"):
        asyncio.run(Maker(material(FILES / "prose.txt"), 0, never, "0").make(32))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("short.txt", "only a few words", "has 4 words"), ("a.jsonl", '{"prompt": "x"}\n{"prompt": ', "a.jsonl, line 2 is no JSON"),
     ("b.jsonl", '{"prompt": "x"}\n{"answer": "y"}', "line 2 has no prompt: give it prompt or text"),
     ("c.json", '[{"prompt": " "}]', "no prompt that is not empty"),
     ("d.json", '{"conversations": [{"from": "human"}]}', "record 1 has no prompt"), ("e.json", "[1]", "record 1 has no prompt")],
)  # fmt: skip
def test_what_cannot_be_used_is_said(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PromptError, match=words):
        material(tmp_path / name)


def test_what_cannot_be_made_is_said(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="a context of 12 tokens is too short"):
        make("prose", 12)
    with pytest.raises(PromptError, match="cannot be read"):
        material(tmp_path / "none.txt")

    async def constant(text: str) -> int:
        return 20 if len(text) < 100 else 70

    with pytest.raises(PromptError, match="no prompt of 60 tokens"):
        asyncio.run(Maker(material(FILES / "prose.txt"), 60, constant, "0").make(1))


KEYS = st.sampled_from(["prompt", "messages", "role", "content", "from", "value", "conversations"])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda one: st.lists(one, max_size=4) | st.dictionaries(KEYS, one, max_size=4),
    )
)
def test_any_json_is_prompts_or_one_sentence(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "any.json"
    path.write_text(json.dumps([value]))
    try:
        assert all(material(path).records)
    except PromptError as error:
        assert "\n" not in str(error)
