"""One cell of the matrix: a closed loop at fixed concurrency against one server, and its figures.

Each slot first takes a warm-up request, of a length that differs by slot, so that the slots do not run in step; then measured
ones as long as there are any; then fillers, which are cut once the last measured one has ended. Nothing drains in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import figures
from .prompts import Corpus, Maker, PromptError, corpus
from .stats import percentile
from .wire import PATHS, Client, Record, ServerError, clock

LAG_EVERY = 0.05  # seconds
EDGE_WAIT = 2.0  # seconds at most
DISTINCT = 32  # passages a cell takes at most; each prompt is unique by its head
MEASURED_DISTINCT = 4  # the same where each count costs a generation


class CellError(RuntimeError):
    """The cell cannot be measured; the message is one sentence without secrets."""


@dataclass(frozen=True)
class CellSpec:
    """What to measure. `requests` are the measured ones, at least one per slot; `corpus` is the path of the text for prompts."""

    url: str
    context: int
    concurrency: int
    corpus: str
    requests: int = 0
    output_tokens: int = 256
    api: str = "generate"
    seed: str = "0"
    model: str = ""
    ignore_eos: bool = False
    flush: bool = True
    thinking: bool = False
    idle_timeout: float = 120.0
    flush_timeout: float = 30.0
    api_key: str = field(default="", repr=False)
    admin_api_key: str = field(default="", repr=False)

    @property
    def number(self) -> int:
        """Measured requests: as asked, but never fewer than the slots."""
        return max(self.requests, self.concurrency)


def run_cell(spec: CellSpec) -> dict[str, Any]:
    """Measure one cell. Raises CellError; the cell of the result otherwise, its doubts in `warnings`."""
    return asyncio.run(_guarded(_measure(spec)))


def check(spec: CellSpec) -> dict[str, Any]:
    """What the server allows: {model, version, max_running_requests, context_length}. Raises CellError when the cell does not fit."""

    async def look() -> dict[str, Any]:
        async with _client(spec) as client:
            return _fits(spec, await client.info())

    return asyncio.run(_guarded(look()))


async def _guarded(work: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = await work
        return found
    except (ServerError, PromptError) as error:
        raise CellError(str(error)) from None


def _client(spec: CellSpec) -> Client:
    return Client(spec.url, spec.api, spec.api_key, spec.admin_api_key, spec.model, spec.idle_timeout, spec.thinking)


def limits(info: Mapping[str, Any]) -> dict[str, Any]:
    """Requests the server runs at once over all its ranks, and its longest context; None where it does not tell."""
    ranks = [one.get("effective_max_running_requests_per_dp") for one in info.get("internal_states") or [] if isinstance(one, Mapping)]
    whole = [one for one in ranks if isinstance(one, int)]
    running = sum(whole) if whole and len(whole) == len(ranks) else info.get("max_running_requests")
    context = info.get("context_length") or info.get("max_req_input_len")
    served = {"version": info.get("version"), "model": info.get("served_model_name")}
    return {"max_running_requests": running, "context_length": context, **served}


def _fits(spec: CellSpec, info: Mapping[str, Any]) -> dict[str, Any]:
    found = limits(info)
    if found["max_running_requests"] and spec.concurrency > found["max_running_requests"]:
        raise CellError(f"concurrency {spec.concurrency} cannot be measured: the server runs {found['max_running_requests']} requests at "
                        "once (max_running_requests), the others would wait in its queue")  # fmt: skip
    if found["context_length"] and spec.context + spec.output_tokens > found["context_length"]:
        raise CellError(f"context {spec.context} with {spec.output_tokens} output tokens cannot be measured: the server takes "
                        f"{found['context_length']} tokens (context_length)")  # fmt: skip
    return found


async def _measure(spec: CellSpec) -> dict[str, Any]:
    began = clock()
    text = corpus(spec.corpus)
    async with _client(spec) as client:
        allowed = _fits(spec, await client.info())
        if not client.model and spec.api != "generate":
            client.model = await client.name()
        prompts, counted_by = await _prompts(client, spec, text)
        not_flushed = await client.flush(spec.flush_timeout) if spec.flush else "not asked for"
        before = await client.counters()
        in_flight = await client.in_flight()
        loop = _Loop(client, spec, prompts)
        load = await loop.run()
        after = await client.counters()
    grown = figures.counters_between(before, after)
    try:
        found = figures.cell(loop.records, context=spec.context, concurrency=spec.concurrency, grown=grown, client=load)
    except ValueError:
        raise CellError(f"none of the cell's requests ended well: {loop.failures()}") from None
    wanted = {"ignore_eos": spec.ignore_eos, "flushed": not_flushed, "waiting": loop.waiting, "began_with": sum(in_flight or (0, 0))}
    found.update(
        warnings=figures.warnings(found, loop.records, wanted), api=spec.api, flushed=not not_flushed, ignore_eos=spec.ignore_eos,
        asked_output_tokens=spec.output_tokens, thinking=spec.thinking if spec.api == "chat" else None, seed=spec.seed,
        corpus={"name": text.name, "digest": text.digest, "counted_by": counted_by}, server=allowed,
        weight_version=next((one.weight_version for one in loop.records if one.weight_version), None),
        sent={phase: sum(one.phase == phase for one in loop.records) for phase in ("warmup", "measured", "filler")},
        wall_seconds=round(clock() - began, 3),
    )  # fmt: skip
    return found


# -- prompts ---------------------------------------------------------------------------------------------------------------


async def _prompts(client: Client, spec: CellSpec, text: Corpus) -> tuple[list[str], str]:
    """Warm-up prompts, then measured ones, then fillers; and how their tokens were counted."""
    probe = f"000000000000. {text.passage(0, 200)}\n\n{text.tasks[0]}"
    real = await _prompt_tokens(client, probe)
    plain = await client.tokenize(probe)
    number = spec.concurrency + spec.number + (spec.concurrency if spec.concurrency > 1 else 0)

    async def by_tokenizer(prompt: str) -> int:
        found = await client.tokenize(prompt)
        if found is None:
            raise ServerError(f"{client.url} stopped counting tokens (/tokenize)")
        return found + extra

    async def by_generation(prompt: str) -> int:
        return await _prompt_tokens(client, prompt)

    extra = real - plain if plain is not None else 0  # a start token, a chat template
    counted = by_tokenizer if plain is not None else by_generation
    maker = Maker(text, spec.context, counted, f"{spec.seed}/{spec.concurrency}")
    made = await maker.make(number, DISTINCT if plain is not None else MEASURED_DISTINCT)
    return made, "tokenize" if plain is not None else "generation"


async def _prompt_tokens(client: Client, prompt: str) -> int:
    """Tokens of a prompt as the server reports them, at the price of one generated token. Raises ServerError."""
    body = client.body(prompt, 1, ignore_eos=True, stream=False)
    status, text = await client.call("POST", PATHS[client.api], body, timeout=300)
    try:
        answer = json.loads(text)
        if status != 200:
            raise ServerError(f"{client.url}{PATHS[client.api]} gave {status}: {' '.join(text.split())[:160]}")
        return int(answer["meta_info"]["prompt_tokens"] if client.api == "generate" else answer["usage"]["prompt_tokens"])
    except (ValueError, LookupError, TypeError):
        raise ServerError(f"{client.url}{PATHS[client.api]} gave {status} and no token counts: it is no SGLang server, "
                          "or something answers in its place") from None  # fmt: skip


# -- the load --------------------------------------------------------------------------------------------------------------


class _Loop:
    def __init__(self, client: Client, spec: CellSpec, prompts: list[str]) -> None:
        self.client, self.spec = client, spec
        self.records: list[Record] = []
        self.waiting = 0  # requests in the server's queue near the end of the window
        level, number = spec.concurrency, spec.number
        self._warm, self._measured, self._fillers = prompts[:level], prompts[level : level + number], prompts[level + number :]
        self._next = self._ended = self._filled = 0
        self._failed = 0  # in a row
        self._over = asyncio.Event()

    async def run(self) -> dict[str, float]:
        """Run the whole cell; what it cost the client: {cpu, lag_ms_p99}."""
        lags: list[float] = []
        with _quiet_memory():
            sampler = asyncio.ensure_future(_lag(lags))
            cpu, began = time.process_time(), clock()
            slots = [asyncio.ensure_future(self._slot(at)) for at in range(self.spec.concurrency)]
            watch, everyone = asyncio.ensure_future(self._over.wait()), asyncio.gather(*slots)
            both: list[asyncio.Future[Any]] = [watch, everyone]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if any(one.spread for one in self.records):  # a request that is cut would not tell its tokens
                    await asyncio.wait([everyone], timeout=self.spec.idle_timeout)
                await self._pieces_after(clock())
                used = (time.process_time() - cpu) / max(1e-9, clock() - began)
                waiting = await self.client.in_flight() if self.spec.concurrency > 1 else None
                self.waiting = waiting[1] if waiting else 0
            finally:
                for task in (sampler, watch, *slots):
                    task.cancel()
                await asyncio.gather(sampler, watch, everyone, *slots, return_exceptions=True)
        for slot in slots:
            if not slot.cancelled() and slot.exception() is not None:
                raise CellError(f"the load generator failed: {slot.exception()!r}")
        if self._ended < len(self._measured):
            raise CellError(f"the cell was given up after {self._failed} failed requests in a row: {self.failures()}")
        return {"cpu": round(used, 4), "lag_ms_p99": round(percentile(lags, 99) * 1000, 3) if lags else 0.0}

    async def _pieces_after(self, end: float) -> None:
        """Let each stream show the piece it was at when the window ended: the part of it before the end belongs to the window."""
        limit = end + EDGE_WAIT
        while clock() < limit and any(not one.ended and one.events and one.events[-1][0] <= end for one in self.records):
            await asyncio.sleep(0.005)

    async def _slot(self, at: int) -> None:
        # Different lengths put the slots out of step; up to half an answer is enough, since a window then has the same gaps of each slot.
        share = (at + 1) / self.spec.concurrency / 2
        await self._one("warmup", self._warm[at], max(1, round(self.spec.output_tokens * share)))
        while not self._over.is_set():
            if self._next < len(self._measured):
                prompt, self._next = self._measured[self._next], self._next + 1
                await self._one("measured", prompt, self.spec.output_tokens)
                self._ended += 1
                if self._ended == len(self._measured):
                    self._over.set()
            elif self._fillers:
                prompt, self._filled = self._fillers[self._filled % len(self._fillers)], self._filled + 1
                if self._filled > len(self._fillers):
                    prompt = f"{self._filled}. {prompt}"  # never the same beginning twice
                await self._one("filler", prompt, self.spec.output_tokens)
            else:
                return

    async def _one(self, phase: str, prompt: str, tokens: int) -> None:
        record = Record(phase, tokens)
        self.records.append(record)
        await self.client.stream(record, prompt, self.spec.ignore_eos)
        if record.ok:
            self._failed = 0
            return
        self._failed += 1
        if self._failed >= 2 * self.spec.concurrency + 4:
            self._over.set()  # the server is gone, or refuses everything
        elif phase == "filler":
            await asyncio.sleep(0.1)

    def failures(self) -> str:
        """The kinds of failure, most frequent first, with the words of one."""
        failed = [one for one in self.records if one.error]
        kinds = sorted({one.error or "" for one in failed}, key=lambda kind: -sum(one.error == kind for one in failed))
        told = next((one.detail for one in failed if one.error == kinds[0] and one.detail), "") if kinds else ""
        return ", ".join(f"{kind} {sum(one.error == kind for one in failed)} times" for kind in kinds) + (f" ({told})" if told else "")


async def _lag(found: list[float]) -> None:
    """How late the event loop wakes up, in seconds."""
    while True:
        due = clock() + LAG_EVERY
        await asyncio.sleep(LAG_EVERY)
        found.append(max(0.0, clock() - due))


@contextlib.contextmanager
def _quiet_memory() -> Iterator[None]:
    """No garbage collection inside: its pauses would be measured."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
