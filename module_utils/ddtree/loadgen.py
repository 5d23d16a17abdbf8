"""One cell of the matrix against one server: closed loop at fixed concurrency or open loop at a Poisson rate, and its figures."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import accept, figures
from .celllog import CellLog
from .crew import Alone, Crew, processes_for, shares
from .prompts import Book, Maker, Material, PromptError, material
from .slots import Cost, Share
from .steering import Enough, Steering
from .wire import PATHS, Client, Record, ServerError, clock

DISTINCT = 32  # passages a cell takes at most; each prompt is unique by its head
MEASURED_DISTINCT = 4  # the same where each count costs a generation
OPEN_LOOP_MOST = 512  # requests in flight at which an open loop counts arrivals as lost
ITERATIONS = 200  # verify steps per slot: five lines of the engine's log, which is written each 40
WARM_UP_SPANS = 2  # an open loop is warm after so many times the first request's duration


class CellError(RuntimeError):
    """The cell cannot be measured; the message is one sentence without secrets.

    `cause` is a word: measurement_failed, or one that the engine's log tells (out_of_memory, crashed); `engine` whether it still answers.
    """

    def __init__(self, message: str, cause: str = "measurement_failed", engine: bool = True, log_tail: list[str] | None = None) -> None:
        super().__init__(message)
        self.cause, self.engine, self.log_tail = cause, engine, log_tail or []


@dataclass(frozen=True)
class CellSpec:
    """What to measure. `requests` make one repeat, at least one per slot; `corpus` is the path of the text for prompts.

    `rate`: requests per second of an open loop, 0 for the closed one; `concurrency` is then the most that may be in flight.
    """

    url: str
    context: int
    concurrency: int
    corpus: str
    requests: int = 0
    output_tokens: int = 256
    rate: float = 0.0
    api: str = "chat"
    streamed: bool = True
    seed: str = "0"
    model: str = ""
    ignore_eos: bool = False
    flush: bool = True
    thinking: bool = False
    prefix_sharing: float = 0.0
    repeats_least: int = 3
    repeats_most: int = 8
    seconds_most: float = 60.0
    precision: float = 0.03
    processes: int = 0
    unit: str = ""
    log: str = ""
    idle_timeout: float = 120.0
    flush_timeout: float = 30.0
    api_key: str = field(default="", repr=False)
    admin_api_key: str = field(default="", repr=False)

    @property
    def per_repeat(self) -> int:
        """Requests of one repeat: as asked, in a closed loop made up to as many of each slot, or the window's edges would weigh."""
        if self.rate:
            return max(1, self.requests)
        return self.concurrency * max(1, -(-self.requests // self.concurrency))

    @property
    def enough(self) -> Enough:
        """What is given to an open loop decides its throughput, so precision is no aim there."""
        most = max(1, self.repeats_most)
        least = min(self.repeats_least, most)
        if self.rate:
            return Enough(self.per_repeat, least, least, self.seconds_most, 0.0)
        return Enough(self.per_repeat, least, most, self.seconds_most, self.precision)

    def client(self) -> Client:
        return Client(self.url, self.api, self.api_key, self.admin_api_key, self.model, self.idle_timeout, self.thinking)

    def share(self) -> Share:
        return Share(
            self.output_tokens, self.concurrency, range(self.concurrency), self.rate, self.concurrency, streamed=self.streamed,
            ignore_eos=self.ignore_eos, idle_timeout=self.idle_timeout, seed=self.seed,
        )  # fmt: skip


@dataclass
class Before:
    """What was seen and made before the load."""

    allowed: dict[str, Any]
    book: Book
    counted_by: str
    not_flushed: str
    counters: dict[str, float]
    in_flight: int
    model: str


@dataclass
class During:
    """What the load brought, and what the server said at the end of the window while it still ran."""

    records: list[Record] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    processes: int = 1
    reason: str = ""
    measured: int = 0
    failed: int = 0
    until: float = 0.0  # the end of the window, of the epoch
    end: float = 0.0  # of what was asked of the server after it, of the epoch
    counters: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    waiting: int = 0


def run_cell(spec: CellSpec) -> dict[str, Any]:
    """Measure one cell. Raises CellError; the cell of the result otherwise, its doubts in `warnings`."""
    log = CellLog(spec.unit, spec.log)
    try:
        began, wall = clock(), time.time()
        before = asyncio.run(_before(spec))
        log.begin()
        load_began = time.time()
        during = _load(spec, before)
        found = _result(spec, before, during, log.lines(), load_began)
    except (ServerError, PromptError, CellError) as error:
        raise _explained(spec, error, log) from None
    found["began"] = round(wall, 3)
    found["wall_seconds"] = round(clock() - began, 3)
    found["measured_until"] = round(during.until, 3)
    return found


def _explained(spec: CellSpec, error: Exception, log: CellLog) -> CellError:
    """The error with what the engine's log and the engine itself say about it."""

    async def answers() -> bool:
        async with spec.client() as client:
            try:
                await client.info(timeout=10)
                return True
            except ServerError:
                return False

    engine = not isinstance(error, PromptError) and not asyncio.run(answers())
    cause, words, tail = log.cause() if engine else ("", "", [])
    said = f"{error}" + (f"; the engine's log says: {words}" if words else "")
    return CellError(said, cause or ("engine_gone" if engine else "measurement_failed"), not engine, tail)


# -- what the server allows ------------------------------------------------------------------------------------------------


def limits(info: Mapping[str, Any]) -> dict[str, Any]:
    """Requests the server runs at once over all its ranks, and its longest context; None where it does not tell."""
    ranks = [one.get("effective_max_running_requests_per_dp") for one in info.get("internal_states") or [] if isinstance(one, Mapping)]
    whole = [one for one in ranks if isinstance(one, int)]
    running = sum(whole) if whole and len(whole) == len(ranks) else info.get("max_running_requests")
    context = info.get("context_length") or info.get("max_req_input_len")
    served = {"version": info.get("version"), "model": info.get("served_model_name"), "stream_interval": info.get("stream_interval")}
    return {"max_running_requests": running, "context_length": context, **served}


def refusal(spec: CellSpec, allowed: Mapping[str, Any]) -> str:
    """Why the cell cannot be measured on a server with these limits; empty when it can."""
    if not spec.rate and allowed.get("max_running_requests") and spec.concurrency > allowed["max_running_requests"]:
        return (f"concurrency {spec.concurrency} cannot be measured: the server runs {allowed['max_running_requests']} requests at "
                "once (max_running_requests), the others would wait in its queue")  # fmt: skip
    if allowed.get("context_length") and spec.context + spec.output_tokens > allowed["context_length"]:
        return (f"context {spec.context} with {spec.output_tokens} output tokens cannot be measured: the server takes "
                f"{allowed['context_length']} tokens (context_length)")  # fmt: skip
    return ""


# -- before the load -------------------------------------------------------------------------------------------------------


async def _before(spec: CellSpec) -> Before:
    text = material(spec.corpus)
    async with spec.client() as client:
        allowed = limits(await client.info())
        reason = refusal(spec, allowed)
        if reason:
            raise CellError(reason)
        if not client.model and spec.api != "generate":
            client.model = await client.name()
        book, counted_by = await _book(client, spec, text)
        not_flushed = await client.flush(spec.flush_timeout) if spec.flush else "not asked for"
        counters = await client.counters()
        in_flight = await client.in_flight()
        return Before(allowed, book, counted_by, not_flushed, counters, sum(in_flight or (0, 0)), client.model)


async def _book(client: Client, spec: CellSpec, text: Material) -> tuple[Book, str]:
    """The prompts, and how their tokens were counted."""
    probe = f"000000000000. {text.sample(200)}"
    real = await _prompt_tokens(client, probe)
    plain = await client.tokenize(probe)

    async def by_tokenizer(prompt: str) -> int:
        found = await client.tokenize(prompt)
        if found is None:
            raise ServerError(f"{client.url} stopped counting tokens (/tokenize)")
        return found + extra

    async def by_generation(prompt: str) -> int:
        return await _prompt_tokens(client, prompt)

    extra = real - plain if plain is not None else 0  # a start token, a chat template
    counted = by_tokenizer if plain is not None else by_generation
    slack = 0 if plain is not None else spec.context // 1000
    maker = Maker(text, spec.context, counted, f"{spec.seed}/{spec.concurrency}/{spec.rate:g}", spec.prefix_sharing, slack)
    repeats = spec.enough.most * spec.per_repeat + (0 if spec.rate else spec.concurrency)
    made = await maker.make(min(repeats, DISTINCT if plain is not None else MEASURED_DISTINCT))
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


def _load(spec: CellSpec, before: Before) -> During:
    """Run the load, in one process or several."""

    def make_client() -> Client:
        client = spec.client()
        client.model = before.model
        return client

    processes = processes_for(spec.concurrency, spec.processes)
    load: Alone | Crew = (
        Alone(make_client, spec.share(), before.book) if processes == 1 else Crew(make_client, shares(spec.share(), processes), before.book)
    )
    return asyncio.run(_lead(spec, make_client, load))


async def _lead(spec: CellSpec, make_client: Callable[[], Client], load: Alone | Crew) -> During:
    over = asyncio.Event()
    warmups = 1 if spec.rate else spec.concurrency
    steering = Steering(spec.enough, warmups, 2 * min(spec.concurrency, spec.per_repeat) + 4)
    warm_until, warm = float("inf"), not spec.rate

    def ended(record: Record) -> None:
        nonlocal warm_until, warm
        if spec.rate and record.index < 0:  # warm once a few requests have come and gone, not with the first one
            if record.ok:
                warm_until = min(warm_until, record.ended + (WARM_UP_SPANS - 1) * (record.ended - record.sent))
            if warm or not record.ok or record.ended < warm_until:
                steering.count(record)
            else:
                warm = True
                steering.ended(record, clock(), load.tokens())
        else:
            steering.ended(record, clock(), load.tokens())
        if len(steering.marks) == 1 and record.index < 0:  # that was the last warm-up
            load.measure()
        if steering.reason:
            over.set()

    async with make_client() as control, load.running(ended):
        await over.wait()
        end, until = clock(), time.time()
        found = During(processes=load.processes, reason=steering.reason, measured=steering.measured, failed=steering.failed, until=until)
        await load.close_window(end)
        found.end = time.time()
        found.counters = await control.counters()
        waiting = await control.in_flight() if spec.concurrency > 1 else None
        found.waiting = waiting[1] if waiting else 0
        if steering.reason != "failures":
            found.info = await control.info()
    found.records, found.costs = load.records, load.costs
    return found


# -- the figures -----------------------------------------------------------------------------------------------------------


def _result(spec: CellSpec, before: Before, during: During, lines: list[str], load_began: float) -> dict[str, Any]:
    records = during.records
    for one in records:
        if one.phase == "measured" and one.index >= during.measured:
            one.phase = "filler"
    if during.reason == "failures":
        raise CellError(f"the cell was given up after {during.failed} failed requests in a row: {figures.failures(records)}")
    grown = figures.counters_between(before.counters, during.counters)
    flushed = spec.flush and not before.not_flushed
    own = accept.of_requests([one for one in records if one.phase == "measured"])
    everything = accept.of_requests(records, "requests")
    metrics = accept.of_counters(grown, sum(one.ok for one in records))
    served = accept.of_server_info(during.info, flushed)
    logged, no_log = accept.of_log(lines, load_began - 1, during.end + 1, flushed)
    others = [metrics, served, logged]
    # The engine's own averages move once in some dozens of iterations: a short cell leaves too little of them to compare.
    whole = everything is not None and everything.steps / spec.concurrency >= ITERATIONS
    compared = [everything or own, metrics, *([served, logged] if whole else [])]
    try:
        found = figures.cell(
            records, context=spec.context, concurrency=spec.concurrency, per_repeat=spec.per_repeat, passages=len(before.book.passages),
            accepted=accept.choose([own, *others]), grown=grown, client=figures.client(during.costs, during.processes),
        )  # fmt: skip
    except ValueError:
        raise CellError(f"none of the cell's requests ended well: {figures.failures(records)}") from None
    wanted = {
        "ignore_eos": spec.ignore_eos, "flushed": before.not_flushed, "waiting": during.waiting, "began_with": before.in_flight,
        "disagreement": accept.disagreement(compared), "sharing": spec.prefix_sharing,
        "rate": spec.rate,
    }  # fmt: skip
    found.update(
        stopped=during.reason, precision_reached=during.reason == "precision", warnings=figures.warnings(found, records, wanted),
        accept={one.source: one.told() for one in (own, *others) if one}, api=spec.api, streamed=spec.streamed, flushed=flushed,
        ignore_eos=spec.ignore_eos, asked_output_tokens=spec.output_tokens, thinking=spec.thinking if spec.api == "chat" else None,
        seed=spec.seed, corpus=before.book.told() | {"counted_by": before.counted_by}, server=before.allowed,
        weight_version=next((one.weight_version for one in records if one.weight_version), None),
        sent={phase: sum(one.phase == phase for one in records) for phase in ("warmup", "measured", "filler")},
    )  # fmt: skip
    if spec.rate:
        found["rate"] = spec.rate
    if no_log and (spec.unit or spec.log):
        found["accept"]["log"] = {"length": None, "why": no_log}
    return found
