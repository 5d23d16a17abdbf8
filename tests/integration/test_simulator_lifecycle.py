"""The simulated engine from start to end: phases, drain, crashes, a taken port, VRAM."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path

from simhost import RESERVED, Engine, Host, free_port

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "recordings"
GENERATE = {"text": "Tell me about trees.", "sampling_params": {"max_new_tokens": 4}}
LONG = {"text": "A long answer.", "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True}}


def matrix(engine: Engine) -> dict[str, int | str]:
    paths = ("/v1/models", "/model_info", "/server_info", "/v1/loads", "/metrics", "/health", "/health_generate", "/ready", "/ping")
    return {path: engine.status(path) for path in paths}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait(condition: object, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def test_endpoints_by_phase(sim: Host) -> None:
    sim.faults(load_seconds=1.5, models_before_generate_seconds=1.5)
    engine = sim.start()
    engine.wait_log("Load weight begin")
    assert matrix(engine) == dict.fromkeys(matrix(engine), "refused"), "nothing answers while loading"
    engine.wait_log("Uvicorn running on")
    answers = matrix(engine)
    assert {path for path, status in answers.items() if status == 200} == {
        "/v1/models",
        "/model_info",
        "/server_info",
        "/v1/loads",
        "/metrics",
    }
    assert {status for path, status in answers.items() if path.startswith(("/health", "/ready", "/ping"))} == {503}
    began = time.monotonic()
    assert engine.status("/generate", GENERATE) == 200
    assert time.monotonic() - began > 0.5, "accepted early, answered only when generation is served"
    engine.wait_up()
    assert set(matrix(engine).values()) == {200}
    sim.faults(drain_seconds=30)
    engine.process.send_signal(signal.SIGTERM)
    engine.wait_log("SIGTERM received.")
    answers = matrix(engine)
    assert answers["/v1/models"] == answers["/server_info"] == answers["/v1/loads"] == 200
    assert {answers[path] for path in ("/health", "/health_generate", "/ready", "/ping")} == {503}
    assert engine.status("/generate", GENERATE) == 200, "new requests are still let in while draining"
    sim.faults()
    assert engine.wait_end() == 0
    assert "Gracefully exiting... Remaining number of requests 0." in engine.log
    assert engine.status("/v1/models") == "refused"


def test_vram_comes_and_goes_with_the_processes(sim: Host) -> None:
    assert all(one == {"used": 0, "used_v1": RESERVED, "pids": []} for one in sim.gpus())
    engine = sim.start().wait_up()
    gpus = sim.gpus()
    schedulers = engine.children()[:8]
    assert [one["pids"] for one in gpus] == [[pid] for pid in schedulers], "one scheduler per GPU"
    assert all(70_000 < one["used"] < 97_000 for one in gpus)
    titles = [Path(f"/proc/{pid}/cmdline").read_text().strip("\0") for pid in engine.children()]
    assert titles == [f"sglang::scheduler_TP{rank}" for rank in range(8)] + ["sglang::detokenizer"]
    engine.process.send_signal(signal.SIGTERM)
    assert engine.wait_end() == 0
    assert all(one["used"] == 0 and not one["pids"] for one in sim.gpus())


def test_drain_waits_for_running_requests(sim: Host) -> None:
    engine = sim.start().wait_up()
    body = {"text": "One answer.", "sampling_params": {"max_new_tokens": 200, "ignore_eos": True}}
    events = engine.stream("/generate", body)
    next(events)
    engine.process.send_signal(signal.SIGTERM)
    *_, last, done = events
    assert done == "[DONE]" and last["meta_info"]["completion_tokens"] == 200
    assert engine.wait_end() == 0
    assert re.search(r"Remaining number of requests 1. Remaining requests remaining_rids=\['\w+'\]", engine.log)


def test_sigterm_while_loading_ends_everything_at_once(sim: Host) -> None:
    sim.faults(load_seconds=6)
    engine = sim.start()
    engine.wait_log("Load weight begin")
    children = engine.children()
    assert len(children) == 9
    engine.process.send_signal(signal.SIGTERM)
    assert engine.wait_end() == -signal.SIGTERM
    wait(lambda: not any(alive(pid) for pid in children))
    wait(lambda: all(one["used"] == 0 for one in sim.gpus()))


def test_killed_scheduler_ends_the_engine_as_recorded(sim: Host) -> None:
    engine = sim.start().wait_up()
    os.kill(engine.children()[0], signal.SIGKILL)
    assert engine.wait_end() == -signal.SIGKILL
    recorded = (RECORDED / "good.txt").read_text()
    lines = [re.sub(r"\d+", "N", one) for one in recorded[recorded.index("Subprocess scheduler_0") :].splitlines()[:5]]
    for line in lines:
        text = line.partition("] ")[2] or line
        assert text in re.sub(r"\d+", "N", engine.log)
    assert not any(alive(pid) for pid in engine.children())


def test_sigterm_to_the_whole_group_is_no_drain(sim: Host) -> None:
    """As systemd's default KillMode does it: the children die of it, then the engine kills itself."""
    engine = sim.start().wait_up()
    events = engine.stream("/generate", LONG)
    next(events)
    os.killpg(engine.process.pid, signal.SIGTERM)
    assert engine.wait_end() in (-signal.SIGKILL, 0)
    assert "Gracefully exiting... Remaining number of requests 0" not in engine.log


def test_taken_port_is_found_out_only_after_the_load(sim: Host) -> None:
    first = sim.start(tp=4).wait_up()
    before = first.log.count('"POST /generate')
    second = sim.start("--base-gpu-id", "4", port=first.port, tp=4)
    assert second.wait_end() == 3
    recorded = (RECORDED / "portbusy_end.txt").read_text()
    places = []
    for line in recorded.splitlines():
        text = line.partition("] ")[2]
        if text and "fallback" not in text and "Responses" not in text:
            text = text.split("[")[0] if "process" in text else text
            text = text.replace("30000", str(first.port)).split("parent_pid")[0]
            assert text in second.log, text
            places.append(second.log.rindex(text))
    assert "Load weight end" in second.log and "ready to roll!" in second.log, "the ready line is no proof"
    assert first.log.count('"POST /generate') == before + 1, "its warm-up reached the other server"
    assert first.process.poll() is None


def test_refused_arguments_end_as_recorded(sim: Host) -> None:
    sim.faults(build="stock")
    engine = sim.start()
    assert engine.wait_end() == 2
    assert engine.log.splitlines()[-1] == "sglang serve: error: unrecognized arguments: --speculative-ddtree-budget 12"
    assert "usage: sglang serve [-h]" in engine.log
    engine = sim.start("--speculative-algorithm", "DDTREE", algorithm="NONE")
    assert engine.wait_end() == 1
    assert engine.log.splitlines()[-1] == "ValueError: Unknown speculative algorithm name: DDTREE" and "Traceback" in engine.log
    sim.faults()
    for flags, said in ((["--attention-backend", "nope"], "invalid choice: 'nope'"), (["--port", "x"], "invalid int value: 'x'")):
        engine = sim.start(*flags)
        assert engine.wait_end() == 2 and said in engine.log
    engine = sim.start("--attention-backend", "fa3")
    assert engine.wait_end() == 1 and "only the triton attention backend" in engine.log.splitlines()[-1]


def test_foreign_vram_shrinks_the_pool_or_ends_the_load(sim: Host) -> None:
    def pool(engine: Engine) -> int:
        found = re.search(r"max_total_num_tokens=(\d+)", engine.wait_log("max_total_num_tokens="))
        assert found
        return int(found[1])

    free = pool(sim.start().wait_up())
    sim.close()
    wait(lambda: all(one["used"] == 0 for one in sim.gpus()))
    foreign = sim.hold("--gpu", "5", "--mib", "5120")
    assert sim.gpus()[5]["pids"] == [foreign.pid]
    engine = sim.start().wait_up()
    assert 0.5 * free < pool(engine) < 0.8 * free, "it comes up, with a smaller pool"
    assert sim.gpus()[5]["used"] > sim.gpus()[4]["used"] - 1024
    sim.close()
    foreign.terminate()
    foreign.wait(10)
    foreign = sim.hold("--gpu", "5", "--mib", "20480")
    engine = sim.start()
    assert engine.wait_end() == -signal.SIGKILL
    assert "Not enough memory. Please try to increase --mem-fraction-static" in engine.log
    assert "Received sigquit from a child process." in engine.log
    foreign.kill()
    foreign.wait(10)


def test_memory_given_back_late_is_in_nobodys_name(sim: Host) -> None:
    foreign = sim.hold("--gpu", "2,3", "--mib", "9000", "--linger", "1.0")
    foreign.kill()
    foreign.wait(10)
    assert [(one["used"], one["pids"]) for one in sim.gpus()[1:4]] == [(0, []), (9000, []), (9000, [])]
    wait(lambda: sim.gpus()[2]["used"] == 0, 3)


def test_a_process_of_another_pid_namespace_is_listed(sim: Host) -> None:
    sim.hold("--gpu", "0", "--mib", "700", "--ghost", "4190000").wait(10)
    assert sim.gpus()[0] == {"used": 700, "used_v1": RESERVED + 700 * 2**20, "pids": [4190000]}


def test_keys(sim: Host) -> None:
    engine = sim.start("--api-key", "user", "--admin-api-key", "boss").wait_up()
    for path in ("/health", "/ready", "/metrics"):
        assert engine.call(path)[0] == 200, "always open"
    assert engine.call("/v1/models")[0] == engine.call("/server_info", key="wrong")[0] == 401
    assert engine.call("/v1/models", key="user")[0] == engine.call("/generate", GENERATE, key="user")[0] == 200
    assert engine.call("/flush_cache", {}, key="user")[0] == 401
    assert engine.call("/flush_cache", {}, key="boss")[0] == 200
    info = engine.call("/server_info", key="user")[1]
    assert info["api_key"] == "user" and "--api-key user" in info["launch_command"], "the real engine leaks them as well"
    other = sim.start("--admin-api-key", "boss", port=free_port(), env={"CUDA_VISIBLE_DEVICES": ""})
    assert other.wait_end() == 1 and "No CUDA GPUs are available" in other.log


def test_requests_beyond_the_limit_wait(sim: Host) -> None:
    engine = sim.start("--max-running-requests", "2").wait_up()
    body = {"text": "Wait your turn.", "sampling_params": {"max_new_tokens": 60, "ignore_eos": True}}
    threads = [threading.Thread(target=engine.call, args=("/generate", body)) for _ in range(5)]
    for one in threads:
        one.start()
    wait(lambda: engine.call("/v1/loads")[1]["loads"][0]["num_waiting_reqs"] == 3)
    assert engine.call("/v1/loads")[1]["loads"][0]["num_running_reqs"] == 2
    for one in threads:
        one.join(20)
    assert engine.call("/v1/loads")[1]["loads"][0]["num_running_reqs"] == 0


def test_a_client_that_leaves_frees_its_slot(sim: Host) -> None:
    engine = sim.start().wait_up()
    events = engine.stream("/generate", LONG)
    next(events)
    assert engine.call("/v1/loads")[1]["loads"][0]["num_running_reqs"] == 1
    events.close()  # type: ignore[attr-defined]
    wait(lambda: engine.call("/v1/loads")[1]["loads"][0]["num_running_reqs"] == 0)
