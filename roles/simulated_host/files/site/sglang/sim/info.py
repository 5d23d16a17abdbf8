"""Endpoints that tell about the server: models, server_info, loads, health, tokenize, caches."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime, timezone
from typing import Any

from aiohttp import web

from .. import __version__
from .clock import now
from .engine import Request
from .flags import model_config
from .tokenizer import decode, encode
from .web_common import BadRequestError, Context, answer, body, openai_error

HEALTH_TIMEOUT_SECONDS = 20.0
FLUSHED = ("Cache flushed.\nPlease check backend logs for more details. "
           "(When there are running or waiting requests, the operation will not be performed.)\n")  # fmt: skip


async def models(context: Context, http: web.Request) -> web.Response:
    args = context.args
    return answer({"object": "list", "data": [{
        "id": args["served_model_name"], "object": "model", "created": int(time.time()), "owned_by": "sglang",
        "root": args["served_model_name"], "parent": None, "max_model_len": args["context_length"],
    }]})  # fmt: skip


async def model_info(context: Context, http: web.Request) -> web.Response:
    args, model = context.args, model_config(context.args["model_path"])
    return answer({
        "model_path": args["model_path"], "tokenizer_path": args["tokenizer_path"], "is_generation": True,
        "preferred_sampling_params": args["preferred_sampling_params"], "weight_version": args["weight_version"],
        "has_image_understanding": False, "has_audio_understanding": False, "model_type": model.get("model_type", "kimi_k2"),
        "architectures": model.get("architectures", []),
    })  # fmt: skip


def server_info_of(context: Context) -> dict[str, Any]:
    """Every resolved argument at the top, keys in clear included, and again in the state of the one data-parallel rank."""
    launch, engine, args = context.launch, context.engine, context.args
    state: dict[str, Any] = {
        **args, "_resolved_overrides": [], "grpc_worker_threads": 4,
        "max_speculative_num_draft_tokens": args["speculative_num_draft_tokens"],
        "last_gen_throughput": engine.gen_throughput, "memory_usage": launch.memory, "startup_time": launch.startup_time,
        "effective_max_running_requests_per_dp": args["max_running_requests"], "world_size": args["tp_size"],
    }  # fmt: skip
    if engine.cumulative_accept_length is not None:
        state["avg_spec_accept_length"] = engine.cumulative_accept_length
    if os.environ.get("SGLANG_EXPOSE_OWN_ENV_VARS") == "1":
        state["env_vars"] = {key: value for key, value in os.environ.items() if key.startswith("SGLANG_")}
    return {
        **args, "status": "ready", "max_total_num_tokens": engine.max_tokens, "max_req_input_len": args["context_length"] - 6,
        "startup_time": launch.startup_time, "launch_command": launch.launch_command, "internal_states": [state],
        "version": __version__, "kv_events": None,
    }  # fmt: skip


async def server_info(context: Context, http: web.Request) -> web.Response:
    return answer(server_info_of(context))


async def loads(context: Context, http: web.Request) -> web.Response:
    engine, launch = context.engine, context.launch
    used = engine.used_tokens()
    load: dict[str, Any] = {
        "timestamp": time.time(), "dp_rank": 0, "num_running_reqs": len(engine.running), "num_waiting_reqs": len(engine.waiting),
        "num_waiting_uncached_tokens": sum(one.context for one, _ in engine.waiting), "num_used_tokens": used, "num_total_tokens": used,
        "num_active_tokens": used, "max_total_num_tokens": engine.max_tokens, "max_running_requests": engine.max_running,
        "token_usage": engine.usage(), "gen_throughput": engine.gen_throughput if engine.running else 0.0, "cache_hit_rate": 0.0,
        "utilization": min(1.0, len(engine.running) / max(1, engine.max_running)),
    }  # fmt: skip
    include = http.query.get("include", "all").split(",")
    if engine.config.algorithm != "NONE" and ("spec" in include or "all" in include):
        load["speculative"] = {"accept_length": engine.accept_length or 0.0, "accept_rate": engine.accept_rate()}
    if "memory" in include or "all" in include:
        load["memory"] = {
            "weight_gb": launch.memory["weight"],
            "kv_cache_gb": launch.memory["kvcache"],
            "token_capacity": engine.max_tokens,
        }
    return answer({
        "timestamp": datetime.now(timezone.utc).isoformat(), "version": __version__, "accelerator": launch.accelerator,
        "num_accelerators": context.args["tp_size"], "loads": [load],
    })  # fmt: skip


async def health(context: Context, http: web.Request) -> web.Response:
    """200 after any token since the question, or after one token of the engine's own; else 503, and the status turns UnHealthy."""
    launch, engine = context.launch, context.engine
    if launch.draining or launch.status == launch.STARTING:
        return web.Response(status=503)
    if http.path == "/health" and os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION") == "0":
        return web.Response(status=200)
    asked = now()
    timeout = max(1.0, launch.scale.scaled(float(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT") or HEALTH_TIMEOUT_SECONDS)))
    probe = Request(prompt="", prompt_ids=[0], wanted=1, ignore_eos=True, probe=True)
    probe.rid = f"HEALTH_CHECK_{probe.rid}"

    async def run() -> None:
        async for _ in engine.run(probe):
            pass

    task = asyncio.ensure_future(run())
    try:
        while now() < asked + timeout:
            await asyncio.sleep(max(0.01, launch.scale.scaled(1.0)))
            if task.done() or engine.last_output > asked:
                launch.status = launch.UP
                return web.Response(status=200)
    finally:
        task.cancel()
    launch.say(f"Health check failed. Server couldn't get a response from detokenizer for last {timeout:g} seconds.")
    launch.status = launch.UNHEALTHY
    return web.Response(status=503)


async def ready(context: Context, http: web.Request) -> web.Response:
    launch = context.launch
    fine = launch.status == launch.UP and not launch.draining and not context.engine.paused
    return web.Response(status=200 if fine else 503)


async def ping(context: Context, http: web.Request) -> web.Response:
    launch = context.launch
    return web.Response(status=200 if launch.status == launch.UP and not launch.draining else 503)


async def metrics(context: Context, http: web.Request) -> web.Response:
    if not context.args["enable_metrics"]:
        return answer({"detail": "Not Found"}, 404)
    text = context.engine.metrics.render(context.engine)
    found = web.Response(body=text.encode(), headers={"Content-Type": "text/plain; version=1.0.0; charset=utf-8"})
    if "gzip" in http.headers.get("Accept-Encoding", ""):
        found.enable_compression(web.ContentCoding.gzip)
    return found


async def flush_cache(context: Context, http: web.Request) -> web.Response:
    end = now() + float(http.query.get("timeout") or 0)
    while context.engine.remaining() and now() < end:
        await asyncio.sleep(0.02)
    done = not context.engine.remaining() and context.engine.flush()
    return web.Response(text=FLUSHED if done else FLUSHED.replace("Cache flushed.", "Flush cache failed."), status=200 if done else 400)


async def pause(context: Context, http: web.Request) -> web.Response:
    context.engine.paused = http.path == "/pause_generation"
    return answer(
        {"message": "Generation paused successfully." if context.engine.paused else "Generation continued successfully.", "status": "ok"}
    )


async def abort_request(context: Context, http: web.Request) -> web.Response:
    try:
        given = await body(http)
    except BadRequestError as error:
        return openai_error(str(error))
    context.engine.abort(str(given.get("rid", "")), bool(given.get("abort_all")))
    return web.Response(status=200)


async def tokenize(context: Context, http: web.Request) -> web.Response:
    try:
        given = await body(http)
        prompt = given.get("prompt")
        if not isinstance(prompt, str):
            raise BadRequestError("prompt must be a string")
    except BadRequestError as error:
        return openai_error(str(error))
    ids = encode(prompt)
    return answer({"tokens": ids, "count": len(ids), "max_model_len": context.args["context_length"]})


async def detokenize(context: Context, http: web.Request) -> web.Response:
    try:
        given = await body(http)
        ids = given.get("tokens")
        if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
            raise BadRequestError("tokens must be a list of integers")
    except BadRequestError as error:
        return openai_error(str(error))
    return answer({"text": decode(ids)})
