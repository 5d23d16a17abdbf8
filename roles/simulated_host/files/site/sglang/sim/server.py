"""The HTTP server of the engine: routes, keys, access log, warm-up, and the end of the process."""

from __future__ import annotations

import asyncio
import hmac
import signal
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, cast

import aiohttp
from aiohttp import web

from . import info, native, openai
from .clock import now
from .engine import Engine
from .lifecycle import Launch
from .metrics import Metrics
from .web_common import ARRIVED, WARM_UP_HEADER, Context, answer

Handler = Callable[[Context, web.Request], Awaitable[web.StreamResponse]]
OPEN = ("/health", "/ready", "/metrics")  # and what begins with them: never asks for a key
ADMIN = ("/flush_cache", "/pause_generation", "/continue_generation", "/abort_request")
INSTALLS_SIGTERM = ("/generate", "/v1/completions", "/v1/chat/completions", "/server_info", "/get_server_info", "/v1/loads", "/flush_cache",
                    "/health", "/health_generate", "/pause_generation", "/continue_generation")  # fmt: skip
DEPRECATED = {"/get_model_info": "/model_info", "/get_server_info": "/server_info"}
ROUTES: dict[str, tuple[str, Handler]] = {
    "/v1/models": ("GET", info.models), "/model_info": ("GET", info.model_info), "/get_model_info": ("GET", info.model_info),
    "/server_info": ("GET", info.server_info), "/get_server_info": ("GET", info.server_info), "/v1/loads": ("GET", info.loads),
    "/health": ("GET", info.health), "/health_generate": ("GET", info.health), "/ready": ("GET", info.ready), "/ping": ("GET", info.ping),
    "/metrics": ("GET", info.metrics), "/generate": ("POST", native.generate), "/v1/completions": ("POST", openai.completions),
    "/v1/chat/completions": ("POST", openai.chat), "/tokenize": ("POST", info.tokenize), "/v1/tokenize": ("POST", info.tokenize),
    "/detokenize": ("POST", info.detokenize), "/flush_cache": ("*", info.flush_cache), "/abort_request": ("POST", info.abort_request),
    "/pause_generation": ("POST", info.pause), "/continue_generation": ("POST", info.pause),
}  # fmt: skip


def allowed(path: str, header: str, api_key: str | None, admin_key: str | None) -> bool:
    """Whether a request with this Authorization header may call `path`."""
    if path.startswith(OPEN):
        return True
    wanted = admin_key if path in ADMIN and admin_key else api_key
    if not wanted:
        return True
    return hmac.compare_digest(header.encode(), f"Bearer {wanted}".encode())


def application(context: Context) -> web.Application:
    launch, args, metrics = context.launch, context.args, context.engine.metrics

    @web.middleware
    async def around(http: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        http[ARRIVED] = now()
        if http.path in INSTALLS_SIGTERM:
            launch.install_sigterm()
        key = (http.path, http.method)
        metrics.add("http_requests_total", 1, endpoint=http.path, method=http.method)
        metrics.http_active[key] += 1
        try:
            if not allowed(http.path, http.headers.get("Authorization", ""), args["api_key"], args["admin_api_key"]):
                return answer({"error": "Unauthorized"}, 401)
            if http.path in DEPRECATED:
                launch.say(f"Endpoint '{http.path}' is deprecated and will be removed in a future version. "
                           f"Please use '{DEPRECATED[http.path]}' instead.")  # fmt: skip
            response: web.StreamResponse = await handler(http)
            return response
        except web.HTTPNotFound:
            return answer({"detail": "Not Found"}, 404)
        except web.HTTPMethodNotAllowed:
            return answer({"detail": "Method Not Allowed"}, 405)
        finally:
            metrics.http_active[key] -= 1

    async def prepared(http: web.Request, response: web.StreamResponse) -> None:
        peer = http.transport.get_extra_info("peername") if http.transport else None
        where = f"{peer[0]}:{peer[1]}" if peer else "-"
        reason = aiohttp.http.RESPONSES.get(response.status, ("",))[0]
        metrics.add("http_responses_total", 1, endpoint=http.path, method=http.method, status_code=str(response.status))
        launch.say(f'INFO:     {where} - "{http.method} {http.path_qs} HTTP/1.1" {response.status} {reason}')

    app = web.Application(middlewares=[cast(Any, around)], client_max_size=1 << 28)  # aiohttp's type of it differs by version
    app.on_response_prepare.append(prepared)
    for path, (method, handler) in ROUTES.items():

        async def call(http: web.Request, handler: Handler = handler) -> web.StreamResponse:
            return await handler(context, http)

        app.router.add_route(method, path, call)
    return app


def build(launch: Launch) -> Context:
    """The engine and its counters for a loaded launch."""
    gauges = {
        "context_len": launch.args["context_length"], "available_gb": launch.memory["startup_available"],
        "weight_gb": launch.memory["weight"], "kv_gb": launch.memory["kvcache"], "startup_time": launch.startup_time,
        "graph_gb": launch.memory["graph"],
    }  # fmt: skip
    metrics = Metrics(launch.args["served_model_name"], launch.scheduler_pid, gauges)
    engine = Engine(
        launch.config, launch.faults, metrics, launch.scheduler_log, max_running=launch.args["max_running_requests"],
        max_tokens=launch.shared.pool_tokens, log_interval=launch.args["decode_log_interval"], radix=not launch.args["disable_radix_cache"],
    )  # fmt: skip
    return Context(launch, engine)


async def serve(launch: Launch) -> int:
    """Answer until drained (exit 0, or SIGKILL as 0.5.17) or the port turns out to be taken (exit 3)."""
    context, loop = build(launch), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGQUIT, lambda: launch.die(settle=True))
    runner = web.AppRunner(application(context), access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    launch.say(f"INFO:     Started server process [{launch.pid}]")
    launch.say("INFO:     Waiting for application startup.")
    await runner.setup()
    launch.say("INFO:     Application startup complete.")
    host, port = launch.args["host"], launch.args["port"]
    context.engine.serve_from = now() + launch.faults.seconds("models_before_generate_seconds")
    warm = asyncio.ensure_future(_warm_up(launch))
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        launch.say(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('{host}', {port}): address already in use")
        launch.say("INFO:     Waiting for application shutdown.")
        await asyncio.wait([warm], timeout=2.0)  # its warm-up reaches whoever owns the port
        launch.say("INFO:     Application shutdown complete.")
        launch.stop_children()
        return 3
    launch.say(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
    watchdog = asyncio.ensure_future(launch.watchdog())
    await launch.drained(context.engine.remaining)
    watchdog.cancel()
    warm.cancel()
    launch.stop_children()
    await runner.cleanup()
    if launch.ends_like_0517:
        launch.kill_tree()
    return 0


async def _warm_up(launch: Launch) -> None:
    """The engine's own first request, over HTTP to whoever answers on its port."""
    if launch.args["skip_server_warmup"]:
        _up(launch)
        return
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(launch.args["host"], launch.args["host"])
    url = f"http://{host}:{launch.args['port']}"
    headers = {WARM_UP_HEADER: launch.launch_id}
    if launch.args["api_key"]:
        headers["Authorization"] = f"Bearer {launch.args['api_key']}"
    body = {"text": "The capital city of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
    try:
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=600), trust_env=False) as session:
            end = time.monotonic() + 120
            while True:
                await asyncio.sleep(max(0.01, launch.scale.scaled(1.0)))
                try:
                    async with session.get(f"{url}/model_info") as found:
                        found.raise_for_status()
                        break
                except (aiohttp.ClientError, OSError):
                    if time.monotonic() > end:
                        raise
            if launch.strike and launch.faults.get("crash_at") == "warmup":
                raise RuntimeError("Simulated crash at the warm-up (fault crash_at=warmup)")
            async with session.post(f"{url}/generate", json=body) as found:
                found.raise_for_status()
                await found.read()
    except asyncio.CancelledError:
        raise
    except Exception:
        launch.say(f"Initialization failed. warmup error: {traceback.format_exc()}")
        launch.kill_tree()
    _up(launch)


def _up(launch: Launch) -> None:
    launch.status = launch.UP
    launch.shared.up = True
    launch.say("The server is fired up and ready to roll!")
