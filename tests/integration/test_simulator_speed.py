"""Measured against the formula: output tokens per second, accept length, first token, at one stream and at 32."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator

import aiohttp
import pytest
from simhost import FILES, Engine, Host

sys.path.append(str(FILES / "site"))

from sglang.sim import speed

pytestmark = pytest.mark.alone
SEEDED = speed.config(12, 6, 2048)


@pytest.fixture(scope="module")
def engine(shared_sim: Host) -> Iterator[Engine]:
    yield shared_sim.start("--max-running-requests", "64").wait_up()


def prompt(tokens: int, salt: int) -> str:
    """That many tokens, with a beginning of its own."""
    return "".join(f"{chr(97 + (salt * 7 + at) % 26)}{(salt * 31 + at) % 997:03d}"[:4] + " " for at in range(tokens))[:-1]


async def one(session: aiohttp.ClientSession, url: str, context: int, tokens: int, text: str) -> tuple[float, float, int, int]:
    """Of one stream: seconds to the first token, to the end, tokens, verify steps."""
    body = {"text": text, "stream": True, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}}
    began, first, last = time.perf_counter(), 0.0, b""
    async with session.post(f"{url}/generate", json=body) as found:
        async for line in found.content:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - began
                last = line
    meta = json.loads(last[6:])["meta_info"]
    assert meta["prompt_tokens"] == context
    return first, time.perf_counter() - began, meta["completion_tokens"], meta["spec_verify_ct"]


async def closed_loop(url: str, context: int, streams: int, tokens: int, rounds: int) -> tuple[float, float, float]:
    """Output tok/s per user times streams, accept length, median first token: from each stream's own cycle."""
    prompts = iter([prompt(context, salt + context * 100) for salt in range(streams * rounds)])
    got: list[tuple[float, float, int, int]] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=1 << 22) as session:

        async def slot() -> None:
            for _ in range(rounds):
                got.append(await one(session, url, context, tokens, next(prompts)))

        await asyncio.gather(*(slot() for _ in range(streams)))
    cycles = sorted(end for _, end, _, _ in got)
    cycle = sum(cycles) / len(cycles)
    firsts = sorted(first for first, *_ in got)
    return streams * tokens / cycle, sum(o[2] for o in got) / sum(o[3] for o in got), firsts[len(firsts) // 2]


@pytest.mark.parametrize(("context", "streams", "tokens", "rounds"), [(60, 1, 48, 6), (1024, 1, 64, 3), (60, 32, 64, 1), (4096, 32, 32, 1)])
def test_measured_speed_is_the_formula(engine: Engine, context: int, streams: int, tokens: int, rounds: int) -> None:
    rate, accept, first = asyncio.run(closed_loop(engine.url, context, streams, tokens, rounds))
    truth = speed.output_tok_s(SEEDED, context, streams, tokens)
    assert rate == pytest.approx(truth, rel=0.05)
    assert accept == pytest.approx(speed.accept_length(SEEDED, context), rel=0.02)
    assert first == pytest.approx(speed.ttft_seconds(context), abs=0.06 if streams == 1 else 0.2)


def test_topk_that_changes_nothing_gives_the_same_speed() -> None:
    for budget in (8, 12):
        assert speed.output_tok_s(speed.config(budget, 4), 1024, 8) == speed.output_tok_s(speed.config(budget, 6), 1024, 8)
