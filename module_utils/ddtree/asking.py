"""Asking an engine for programs: greedy, a few prompts at a time, each answer once, and once more with room where it was cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .codecheck import Reply
from .coding_tasks import Task
from .wire import PATHS, Client, ServerError


def reply(status: int, text: str, api: str) -> Reply:
    """What an answer of the engine says; one that says nothing usable has an error."""
    try:
        answer = json.loads(text)
        if status != 200:
            said = answer.get("error", answer)
            said = said.get("message", said) if isinstance(said, Mapping) else said
            return Reply(error=f"the engine answered {status}: {' '.join(str(said).split())[:160]}")
        if api == "generate":
            meta = answer["meta_info"]
            return Reply(str(answer["text"]), _finish(meta["finish_reason"]), tokens=int(meta["completion_tokens"]))
        choice = answer["choices"][0]
        message = choice if api == "completions" else choice["message"]
        said = message.get("text" if api == "completions" else "content")
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        return Reply(str(said or ""), _finish(choice["finish_reason"]), str(reasoning), int(answer["usage"]["completion_tokens"]))
    except (ValueError, LookupError, TypeError, AttributeError):
        return Reply(error=f"the engine answered {status} and nothing of SGLang's shape")


def _finish(reason: Any) -> str:
    found = reason.get("type") if isinstance(reason, Mapping) else reason
    return str(found or "")


async def ask(client: Client, prompt: str, max_tokens: int, timeout: float) -> Reply:
    """One greedy answer, within `timeout` seconds."""
    call = client.call("POST", PATHS[client.api], client.body(prompt, max_tokens, False, stream=False), timeout=timeout + 60)
    try:
        status, text = await asyncio.wait_for(call, timeout)
    except asyncio.TimeoutError:
        return Reply(error="timeout")
    except ServerError as error:
        return Reply(error=str(error))
    return reply(status, text, client.api)


async def ask_all(
    client: Client, tasks: Sequence[Task], max_tokens: int, more_tokens: int, side_by_side: int, timeout: float
) -> list[Reply]:
    """An answer for each task, in their order. `more_tokens`: the limit for asking again where `max_tokens` cut an answer, 0 for never.

    Raises ServerError when the engine answers none of them.
    """
    turn = asyncio.Semaphore(side_by_side)

    async def one(task: Task) -> Reply:
        async with turn:
            found = await ask(client, task.prompt, max_tokens, timeout)
            if found.finish_reason == "length" and not found.error and more_tokens > max_tokens:
                again = await ask(client, task.prompt, more_tokens, timeout)
                found = found if again.error else replace(again, asked_again=True)
            return found

    found = list(await asyncio.gather(*map(one, tasks)))
    if found and all(one.error for one in found):
        said = "no answer in time" if found[0].error == "timeout" else found[0].error
        raise ServerError(f"{client.url} answered none of {len(found)} coding prompts: {said}")
    return found
