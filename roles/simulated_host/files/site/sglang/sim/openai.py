"""The OpenAI endpoints /v1/completions and /v1/chat/completions."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from .engine import Request
from .native import spec_details
from .tokenizer import chat_prompt, decode
from .web_common import BadRequestError, Context, answer, body, cut, event, event_stream, openai_error


async def completions(context: Context, http: web.Request) -> web.StreamResponse:
    """POST /v1/completions"""
    try:
        given = await body(http)
        prompt: Any = given.get("prompt")
        ids: list[int] | None = None
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
            prompt = prompt[0]
        if isinstance(prompt, list) and prompt and all(isinstance(one, int) for one in prompt):
            prompt, ids = decode(prompt), prompt
        if not isinstance(prompt, str) or not prompt:
            raise BadRequestError("Prompt cannot be empty")
        request = _request(context, http, given, prompt, ids, given.get("max_tokens", 16))
    except BadRequestError as error:
        return openai_error(str(error))
    return await _answer(context, http, given, request, chat=False)


async def chat(context: Context, http: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions"""
    try:
        given = await body(http)
        messages = given.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
            raise BadRequestError("Messages cannot be empty.")
        wanted = given.get("max_completion_tokens", given.get("max_tokens"))
        request = _request(context, http, given, chat_prompt(messages), None, wanted)
    except BadRequestError as error:
        return openai_error(str(error))
    return await _answer(context, http, given, request, chat=True)


def _request(context: Context, http: web.Request, given: dict[str, Any], prompt: str, ids: list[int] | None, wanted: Any) -> Request:
    if given.get("n", 1) != 1:
        raise BadRequestError("The simulated engine gives one choice per request.")
    if given.get("logprobs") and context.engine.config.algorithm == "DDTREE":
        raise BadRequestError("DDTREE speculative decoding does not support return_logprob yet.")
    if given.get("response_format") and context.engine.config.algorithm == "DDTREE" and given["response_format"].get("type") != "text":
        raise BadRequestError("DDTREE speculative decoding does not support grammar-constrained decoding yet.")
    return context.request(prompt, ids, wanted, given, http, bool(given.get("stream")))


def _usage(context: Context, request: Request) -> dict[str, Any]:
    details = {"cached_tokens": request.cached} if context.args["enable_cache_report"] else None
    return {
        "prompt_tokens": request.context, "total_tokens": request.context + request.done, "completion_tokens": request.done,
        "prompt_tokens_details": details, "reasoning_tokens": 0,
    }  # fmt: skip


def _matched(request: Request) -> Any:
    return request.finish.get("matched") if request.finish["type"] == "stop" else None


def _extra(context: Context, given: dict[str, Any], request: Request) -> dict[str, Any]:
    if not given.get("return_spec_tokens_details"):
        return {}
    return {"sglext": {"spec_tokens_details": spec_details(context, request)}}


async def _answer(context: Context, http: web.Request, given: dict[str, Any], request: Request, chat: bool) -> web.StreamResponse:
    if context.engine.fails():
        return openai_error("Internal Server Error", 500, "InternalServerError")
    model = given.get("model") or context.args["served_model_name"]
    if request.stream:
        return await _stream(context, http, given, request, str(model), chat)
    async for _ in context.engine.run(request):
        pass
    finish = {"finish_reason": request.finish["type"], "matched_stop": _matched(request)}
    if chat:
        message = {"role": "assistant", "content": request.text, "reasoning_content": None, "tool_calls": None}
        choice = {"index": 0, "message": message, "logprobs": None, **finish}
    else:
        choice = {"index": 0, "text": request.text, "logprobs": None, **finish}
    return answer({
        "id": request.rid, "object": "chat.completion" if chat else "text_completion", "created": int(request.received), "model": model,
        "choices": [choice], "usage": _usage(context, request), "metadata": {"weight_version": context.args["weight_version"]},
        **_extra(context, given, request),
    })  # fmt: skip


async def _stream(
    context: Context, http: web.Request, given: dict[str, Any], request: Request, model: str, chat: bool
) -> web.StreamResponse:
    options = given.get("stream_options") or {}
    continuous = bool(options.get("continuous_usage_stats"))
    head = {
        "id": request.rid, "object": "chat.completion.chunk" if chat else "text_completion", "created": int(time.time()), "model": model,
    }  # fmt: skip
    response = await event_stream(http)

    async def send(choice: dict[str, Any]) -> None:
        await event(response, {**head, "choices": [choice], **({"usage": _usage(context, request)} if continuous else {})})

    def choice(delta: str, finish: str | None, matched: Any, **more: Any) -> dict[str, Any]:
        what = {"delta": {"reasoning_content": None, **more, "content": delta}} if chat else {"text": delta}
        return {"index": 0, **what, "logprobs": None, "finish_reason": finish, "matched_stop": matched}

    sent, first = 0, True
    async for _ in context.engine.run(request):
        if first and chat:
            await send(choice("", None, None, role="assistant"))
        first = False
        delta = request.text[sent:]
        sent += len(delta)
        last = request.over and not chat
        if delta or last:
            await send(choice(delta, request.finish["type"] if last else None, _matched(request) if last else None))
        if context.broken(request):
            cut(http)
            return response
    if chat:
        end = choice("", request.finish["type"], _matched(request))
        del end["delta"]["content"]
        await send(end)
    if options.get("include_usage") or context.args["stream_response_default_include_usage"]:
        await event(response, {**head, "choices": [], "usage": _usage(context, request), **_extra(context, given, request)})
    await event(response, "[DONE]")
    return response
