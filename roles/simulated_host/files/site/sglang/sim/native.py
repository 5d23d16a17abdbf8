"""SGLang's own endpoint /generate and the meta_info of its answers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiohttp import web

from .engine import Request
from .tokenizer import decode
from .web_common import BadRequestError, Context, answer, body, cut, event, event_stream


def meta_info(context: Context, request: Request, stream: bool) -> dict[str, Any]:
    """As recorded: some keys only come with the last piece of an answer."""
    over, cached = request.over, request.cached
    meta: dict[str, Any] = {
        "id": request.rid, "finish_reason": request.finish if over else None, "prompt_tokens": request.context,
        "weight_version": context.args["weight_version"], "num_retractions": 0, "forward_entry_time": request.began,
        "prefill_finished_time": request.first, "queue_time": max(0.0, request.began - request.received), "reasoning_tokens": 0,
        "completion_tokens": request.done, "cached_tokens": cached,
        "cached_tokens_details": {"device": cached, "host": 0} if cached else None, "dp_rank": None,
    }  # fmt: skip
    if not over:
        if stream and request.done == 1:
            meta["response_sent_to_client_ts"] = time.time()
        return meta
    meta["e2e_latency"] = request.ended - request.received
    meta.update(spec_details(context, request))
    decode_time = max(1e-6, request.ended - request.first)
    meta.update(
        request_received_ts=request.received, api_server_dispatch_finish_ts=request.received + 0.0005, request_finished_ts=request.ended,
        decode_throughput=(request.done - 1) / decode_time, response_sent_to_client_ts=time.time(),
    )  # fmt: skip
    return meta


def spec_details(context: Context, request: Request) -> dict[str, Any]:
    """The spec_* keys; none at all when no verify step ran."""
    steps = request.verify_steps
    if not steps:
        return {}
    correct = sum(drafts * count for drafts, count in enumerate(request.histogram))
    proposed = steps * (context.engine.config.block - 1)
    histogram = list(request.histogram)
    return {
        "spec_accept_rate": correct / max(1, proposed), "spec_accept_length": request.done / steps, "spec_num_correct_drafts": correct,
        "spec_num_proposed_drafts": proposed, "spec_verify_ct": steps, "spec_accepted_drafts": correct, "spec_proposed_drafts": proposed,
        "spec_correct_drafts_histogram": histogram, "spec_accept_histogram": histogram,
    }  # fmt: skip


def _piece(context: Context, request: Request, stream: bool) -> dict[str, Any]:
    return {"text": request.text, "output_ids": request.ids[: request.done], "meta_info": meta_info(context, request, stream)}


def _prompts(given: dict[str, Any]) -> tuple[list[tuple[str, list[int] | None]], bool]:
    """The prompts of a request, and whether they came as a list."""
    text, ids = given.get("text"), given.get("input_ids")
    if isinstance(text, str):
        return [(text, None)], False
    if isinstance(text, list) and text and all(isinstance(one, str) for one in text):
        return [(one, None) for one in text], True
    if isinstance(ids, list) and ids and all(isinstance(one, int) for one in ids):
        return [(decode(ids), ids)], False
    if isinstance(ids, list) and ids and all(isinstance(one, list) for one in ids):
        return [(decode(one), one) for one in ids], True
    raise BadRequestError("Either text, input_ids or input_embeds should be provided.")


async def generate(context: Context, http: web.Request) -> web.StreamResponse:
    """POST /generate"""
    try:
        given = await body(http)
    except BadRequestError as error:
        return answer({"object": "error", "message": str(error), "type": "Bad Request", "param": None, "code": 400}, 400)
    try:
        prompts, batch = _prompts(given)
        sampling = given.get("sampling_params") or {}
        if not isinstance(sampling, dict):
            raise BadRequestError("sampling_params must be a dictionary.")
        if given.get("return_logprob") and context.engine.config.algorithm == "DDTREE":
            raise BadRequestError("DDTREE speculative decoding does not support return_logprob yet.")
        stream = bool(given.get("stream"))
        if stream and batch:
            raise BadRequestError("The simulated engine streams one prompt per request.")
        wanted = sampling.get("max_new_tokens", 128)
        requests = [context.request(prompt, ids, wanted, sampling, http, stream) for prompt, ids in prompts]
    except BadRequestError as error:
        context.launch.say(f"[http_server] Error: {error}")
        return answer({"error": {"message": str(error)}}, 400)
    if isinstance(given.get("rid"), str):
        requests[0].rid = given["rid"]
    if context.engine.fails():
        return answer({"error": {"message": "Internal Server Error"}}, 500)
    if stream:
        return await _stream(context, http, requests[0])
    await asyncio.gather(*(_complete(context, one) for one in requests))
    pieces = [_piece(context, one, stream=False) for one in requests]
    return answer(pieces if batch else pieces[0])


async def _complete(context: Context, request: Request) -> None:
    async for _ in context.engine.run(request):
        pass


async def _stream(context: Context, http: web.Request, request: Request) -> web.StreamResponse:
    response = await event_stream(http)
    incremental, sent_text, sent_ids = bool(context.args["incremental_streaming_output"]), 0, 0
    async for _ in context.engine.run(request):
        piece = _piece(context, request, stream=True)
        if incremental:
            piece["text"], piece["output_ids"] = piece["text"][sent_text:], piece["output_ids"][sent_ids:]
            sent_text, sent_ids = sent_text + len(piece["text"]), request.done
        await event(response, piece)
        if context.broken(request):
            cut(http)
            return response
    await event(response, "[DONE]")
    return response
