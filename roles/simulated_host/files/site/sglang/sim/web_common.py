"""What both HTTP dialects share: bodies, errors, limits, server-sent events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .engine import Engine, Request
from .tokenizer import encode

if TYPE_CHECKING:
    from .lifecycle import Launch

ARRIVED = web.RequestKey("arrived", float) if hasattr(web, "RequestKey") else "arrived"
WARM_UP_HEADER = "X-Simulated-Warm-Up"


class BadRequestError(Exception):
    """A request the engine refuses with 400; the message is the client's."""


class Context:
    """What the handlers work on."""

    def __init__(self, launch: Launch, engine: Engine) -> None:
        self.launch, self.engine, self.args, self.faults = launch, engine, launch.args, launch.faults
        self.salt = 0

    def request(
        self, prompt: str, ids: list[int] | None, wanted: int | None, sampling: dict[str, Any], http: web.Request, stream: bool
    ) -> Request:
        """A Request within the limits. Raises BadRequestError with the real engine's words."""
        limit = int(self.args["context_length"])
        ids = encode(prompt) if ids is None else ids
        if not ids:
            raise BadRequestError("The input is empty.")
        if len(ids) >= limit:
            raise BadRequestError(f"The input ({len(ids)} tokens) is longer than the model's context length ({limit} tokens).")
        if wanted is None:
            wanted = limit - len(ids)
        if not isinstance(wanted, int) or wanted < 0:
            raise BadRequestError(f"max_new_tokens must be at least 0, got {wanted}.")
        if len(ids) + wanted > limit:
            raise BadRequestError(
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a total of "
                f"{len(ids) + wanted} tokens: {len(ids)} tokens from the input messages and {wanted} tokens for the completion. "
                "Please reduce the number of tokens in the input messages or the completion to fit within the limit."
            )
        stop = sampling.get("stop") or []
        if float(sampling.get("temperature", 1.0) or 0.0) > 0:
            self.salt = (self.salt * 1103515245 + 12345) % (1 << 31)
        return Request(
            prompt=prompt, prompt_ids=ids, wanted=max(1, wanted), ignore_eos=bool(sampling.get("ignore_eos")),
            stop=[stop] if isinstance(stop, str) else [str(one) for one in stop], stream=stream,
            salt=self.salt if float(sampling.get("temperature", 1.0) or 0.0) > 0 else 0,
            arrived=http[ARRIVED], warm_up=http.headers.get(WARM_UP_HEADER) == self.launch.launch_id,
        )  # fmt: skip

    def broken(self, request: Request) -> bool:
        """Whether the fault stream_breaks_after_tokens cuts this stream now."""
        after = self.faults.get("stream_breaks_after_tokens")
        return after is not None and request.done >= int(after)


async def body(http: web.Request) -> dict[str, Any]:
    """The JSON object of a request. Raises BadRequestError with the message FastAPI would give."""
    raw = await http.text()
    try:
        found = json.loads(raw)
    except ValueError as error:
        raise BadRequestError(
            f"1 validation error:\n  {{'type': 'json_invalid', 'loc': ('body', {getattr(error, 'pos', 0)}), 'msg': 'JSON decode error', "
            f"'input': {{}}, 'ctx': {{'error': '{error.args[0] if error.args else error}'}}}}"
        ) from None
    if not isinstance(found, dict):
        raise BadRequestError(
            "1 validation error:\n  {'type': 'model_attributes_type', 'loc': ('body',), 'msg': 'Input should be a valid dictionary'}"
        )
    return found


def answer(value: Any, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(value, separators=(",", ":"), ensure_ascii=False), status=status, content_type="application/json")


def openai_error(message: str, status: int = 400, kind: str = "BadRequestError") -> web.Response:
    return answer({"object": "error", "message": message, "type": kind, "param": None, "code": status}, status)


async def event_stream(http: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"})
    await response.prepare(http)
    return response


async def event(response: web.StreamResponse, value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    await response.write(f"data: {text}\n\n".encode())


def cut(http: web.Request) -> None:
    """Drop the client's connection without a word."""
    if http.transport is not None:
        http.transport.abort()
