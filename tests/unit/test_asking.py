"""Asking an engine for programs, and what its answers of every shape say."""
# ruff: noqa: E501  a row is easier to read whole

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ddtree.asking import ask_all, reply
from ddtree.codecheck import Reply
from ddtree.coding_set import ALL
from ddtree.wire import ServerError


def chat(message: dict[str, Any], finish: Any = "stop") -> str:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], "usage": {"completion_tokens": 7}})


@pytest.mark.parametrize(
    ("text", "api", "wanted"),
    [(chat({"content": "hi"}), "chat", Reply("hi", "stop", tokens=7)), (chat({"content": None, "reasoning_content": "hm"}, "length"), "chat", Reply("", "length", "hm", 7)),
     (chat({"content": "hi", "reasoning": "hm"}), "chat", Reply("hi", "stop", "hm", 7)), (chat({"content": "hi"}, None), "chat", Reply("hi", "", tokens=7)),
     (json.dumps({"choices": [{"text": "hi", "finish_reason": "length"}], "usage": {"completion_tokens": 2}}), "completions", Reply("hi", "length", tokens=2)),
     (json.dumps({"text": "hi", "meta_info": {"finish_reason": {"type": "length", "length": 3}, "completion_tokens": 3}}), "generate", Reply("hi", "length", tokens=3)),
     (json.dumps({"text": "hi", "meta_info": {"finish_reason": None, "completion_tokens": 3}}), "generate", Reply("hi", "", tokens=3))],
)  # fmt: skip
def test_answers_of_each_route(text: str, api: str, wanted: Reply) -> None:
    assert reply(200, text, api) == wanted


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [(500, '{"error": {"message": "boom\\n  twice"}}', "the engine answered 500: boom twice"), (400, '{"object": "error", "message": "too long"}', "answered 400: too long"),
     (200, "<html>", "nothing of SGLang's shape"), (200, "[]", "nothing of SGLang's shape"), (200, '{"choices": []}', "nothing of SGLang's shape"),
     (502, "", "answered 502 and nothing"), (200, chat({"content": "x"}).replace("7", "null"), "nothing of SGLang's shape")],
)  # fmt: skip
def test_answers_that_are_none(status: int, text: str, words: str) -> None:
    found = reply(status, text, "chat")
    assert words in found.error and not found.text


class Engine:
    """A client whose engine is a function of prompt and token limit."""

    url, api = "http://engine", "chat"

    def __init__(self, answer: Any) -> None:
        self.answer, self.now, self.most = answer, 0, 0
        self.asked: list[tuple[str, int]] = []

    def body(self, prompt: str, tokens: int, ignore_eos: bool, stream: bool) -> dict[str, Any]:
        assert not ignore_eos and not stream
        return {"prompt": prompt, "tokens": tokens}

    async def call(self, method: str, path: str, body: dict[str, Any], timeout: float) -> tuple[int, str]:
        assert (method, path) == ("POST", "/v1/chat/completions")
        self.asked.append((body["prompt"], body["tokens"]))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.001)
            found = self.answer(**body)
            if found is None:
                await asyncio.sleep(60)
            if isinstance(found, Exception):
                raise found
            return 200, found
        finally:
            self.now -= 1


def run(engine: Any, more: int = 0, side_by_side: int = 4, timeout: float = 5) -> list[Reply]:
    return asyncio.run(ask_all(engine, ALL[:12], 100, more, side_by_side, timeout))


def test_so_many_at_a_time_and_in_order() -> None:
    engine = Engine(lambda prompt, tokens: chat({"content": prompt[-60:] + prompt[:60]}))
    found = run(engine, side_by_side=3)
    assert [one.text for one in found] == [task.prompt[-60:] + task.prompt[:60] for task in ALL[:12]] and engine.most == 3


def test_an_answer_that_was_cut_is_asked_once_more_with_room() -> None:
    cut = ALL[3].prompt
    engine = Engine(lambda prompt, tokens: chat({"content": f"{tokens}"}, "length" if prompt == cut and tokens < 400 else "stop"))
    found = run(engine, more=400)
    assert found[3] == Reply("400", "stop", tokens=7, asked_again=True) and found[2] == Reply("100", tokens=7) and len(engine.asked) == 13
    still = run(Engine(lambda prompt, tokens: chat({"content": "x"}, "length")), more=300)
    assert still[0] == Reply("x", "length", tokens=7, asked_again=True)
    once = Engine(lambda prompt, tokens: chat({"content": "x"}, "length"))
    assert run(once, more=0)[0] == Reply("x", "length", tokens=7) and len(once.asked) == 12
    # a second try that fails leaves the first answer
    torn = Engine(lambda prompt, tokens: ServerError("gone") if tokens > 100 else chat({"content": "x"}, "length"))
    assert run(torn, more=300)[0] == Reply("x", "length", tokens=7)


def test_single_failures_are_the_tasks_and_all_are_the_engines() -> None:
    lost, slow = ALL[1].prompt, ALL[2].prompt
    engine = Engine(
        lambda prompt, tokens: (
            ServerError("http://engine does not answer") if prompt == lost else None if prompt == slow else chat({"content": "x"})
        )
    )
    found = run(engine, timeout=0.2)
    assert [one.error for one in found[:4]] == ["", "http://engine does not answer", "timeout", ""]
    with pytest.raises(ServerError, match="http://engine answered none of 12 coding prompts: no answer in time"):
        run(Engine(lambda prompt, tokens: None), timeout=0.05)
    with pytest.raises(ServerError, match="answered none of 12 coding prompts: the engine answered 200 and nothing"):
        run(Engine(lambda prompt, tokens: "{}"))
