"""Each fault of the simulated host does what its table says."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from simhost import Engine, Host
from test_simulator_lifecycle import GENERATE, alive, wait


def stop(engine: Engine) -> float:
    """Seconds from SIGTERM to the end."""
    began = time.monotonic()
    engine.process.send_signal(signal.SIGTERM)
    engine.wait_end()
    return time.monotonic() - began


def test_drain_seconds(sim: Host) -> None:
    engine = sim.start().wait_up()
    sim.faults(drain_seconds=1.0)
    assert 1.0 <= stop(engine) < 3
    assert engine.process.returncode == 0


def test_vram_linger_seconds(sim: Host) -> None:
    engine = sim.start().wait_up()
    sim.faults(vram_linger_seconds=2.0)
    time.sleep(0.3)
    engine.process.kill()
    engine.wait_end()
    gone = time.monotonic()
    wait(lambda: not any(one["pids"] for one in sim.gpus()), 1)
    assert all(one["used"] > 70_000 for one in sim.gpus())
    wait(lambda: all(one["used"] == 0 for one in sim.gpus()), 5)
    assert 1.4 < time.monotonic() - gone < 4


def test_ignore_sigterm(sim: Host) -> None:
    engine = sim.start().wait_up()
    sim.faults(ignore_sigterm=True)
    engine.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert engine.process.poll() is None and engine.status("/generate", GENERATE) == 200
    sim.faults()
    stop(engine)
    sim.faults(ignore_sigterm=True, load_seconds=5)
    engine = sim.start()
    engine.wait_log("Load weight begin")
    engine.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert engine.process.poll() is None, "also while loading"


def test_child_survives(sim: Host) -> None:
    engine = sim.start().wait_up()
    survivor = engine.children()[7]
    sim.faults(child_survives=True)
    time.sleep(0.4)
    stop(engine)
    time.sleep(0.3)
    assert alive(survivor)
    assert [one["pids"] for one in sim.gpus()] == [[]] * 7 + [[survivor]]
    sim.faults()
    wait(lambda: not alive(survivor))


def test_child_survives_a_kill_of_its_parent(sim: Host) -> None:
    engine = sim.start().wait_up()
    children = engine.children()
    sim.faults(child_survives=True)
    time.sleep(0.4)
    engine.process.kill()
    engine.wait_end()
    wait(lambda: not any(alive(pid) for pid in children[:7]))
    assert alive(children[7]) and sim.gpus()[7]["used"] > 70_000


@pytest.mark.parametrize("when", ["load", "warmup", "serve"])
def test_crash_at(sim: Host, when: str) -> None:
    sim.faults(crash_at=when, crash_after_seconds=0.2)
    engine = sim.start()
    assert engine.wait_end() == -signal.SIGKILL
    up, bound = "ready to roll!" in engine.log, "Uvicorn running" in engine.log
    assert (bound, up) == {"load": (False, False), "warmup": (True, False), "serve": (True, True)}[when]
    said = {"load": "Received sigquit from a child process", "warmup": "Initialization failed. warmup error:", "serve": "SIGQUIT received."}
    assert said[when] in engine.log
    wait(lambda: all(one["used"] == 0 for one in sim.gpus()))


def test_ends_like_0517(sim: Host) -> None:
    sim.faults(ends_like="0.5.17")
    engine = sim.start().wait_up()
    assert engine.status("/generate", GENERATE) == 200
    stop(engine)
    assert engine.process.returncode == -signal.SIGKILL and "Gracefully exiting" in engine.log
    sim.faults(ends_like="0.5.17", load_seconds=5)
    engine = sim.start()
    engine.wait_log("Load weight begin")
    os.kill(engine.children()[0], signal.SIGKILL)
    assert engine.wait_end() == 1
    assert "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9)" in engine.log
    wait(lambda: all(one["used"] == 0 for one in sim.gpus()))


def test_crash_times(sim: Host) -> None:
    sim.faults(crash_at="load", crash_times=1)
    assert sim.start().wait_end() == -signal.SIGKILL
    sim.start().wait_up()


def test_crash_loop(sim: Host) -> None:
    sim.faults(crash_loop=True)
    for _ in range(2):
        engine = sim.start()
        assert engine.wait_end() == 1 and "ImportError" in engine.log


def test_out_of_memory(sim: Host) -> None:
    sim.faults(out_of_memory=True)
    engine = sim.start()
    assert engine.wait_end() == -signal.SIGKILL
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in engine.log


def test_load_seconds_and_load_hangs(sim: Host) -> None:
    sim.faults(load_seconds=1.0)
    began = time.monotonic()
    sim.start(tp=4).wait_up()
    assert 1.0 < time.monotonic() - began < 4
    sim.faults(load_seconds=0.3, load_hangs=True)
    engine = sim.start("--base-gpu-id", "4", tp=4)
    engine.wait_log("Load weight begin")
    time.sleep(1.0)
    assert engine.status("/v1/models") == "refused" and engine.process.poll() is None
    sim.faults(load_seconds=0.3)
    engine.wait_up()


def test_models_before_generate(sim: Host) -> None:
    sim.faults(models_before_generate_seconds=1.0)
    engine = sim.start()
    engine.wait_log("Uvicorn running on")
    assert engine.status("/v1/models") == 200
    began = time.monotonic()
    engine.generate(tokens=2)
    assert time.monotonic() - began > 0.5


def test_generation_hangs(sim: Host) -> None:
    engine = sim.start().wait_up()
    sim.faults(generation_hangs=True)
    with pytest.raises(OSError):
        engine.call("/generate", GENERATE, timeout=0.7)
    assert engine.status("/v1/models") == 200
    assert engine.status("/health") == 503 and engine.status("/ready") == 503, "UnHealthy"
    sim.faults()
    assert engine.status("/generate", GENERATE) == 200 and engine.status("/health") == 200 and engine.status("/ready") == 200
    stop(engine)
    sim.faults(generation_hangs=True)
    engine = sim.start()
    engine.wait_log("Uvicorn running on")
    time.sleep(0.5)
    assert "ready to roll" not in engine.log and engine.status("/v1/models") == 200, "its own warm-up hangs too"
    sim.faults(generation_hangs="serve")
    engine.wait_up()
    with pytest.raises(OSError):
        engine.call("/generate", GENERATE, timeout=0.5)


def test_wrong_config(sim: Host) -> None:
    sim.faults(wrong_config=True)
    engine = sim.start("--weight-version", "asked").wait_up()
    info = engine.call("/server_info")[1]
    assert info["speculative_draft_window_size"] == 512 and info["weight_version"] == "asked"
    assert "draft_window_size=512" in engine.log and "--speculative-draft-window-size 2048" in info["launch_command"]
    stop(engine)
    sim.faults(wrong_config={"weight_version": "other"})
    assert sim.start("--weight-version", "asked").wait_up().generate()["meta_info"]["weight_version"] == "other"


def test_coding_answers(sim: Host) -> None:
    engine = sim.start().wait_up()
    sim.faults(speed=50)
    prompt = "Write a Python function gcd(a, b)."
    right = engine.generate(prompt, 400)
    assert "```python" in right["text"] and right["meta_info"]["finish_reason"]["type"] == "stop"
    sim.faults(speed=50, coding={"gcd": "truncated"})
    assert engine.generate(prompt, 400)["meta_info"]["finish_reason"]["type"] == "length"
    for mode, sign in (("wrong", "best = d"), ("hostile", "bytearray(1 << 24)")):
        sim.faults(speed=50, coding=mode)
        assert sign in engine.generate(prompt, 400)["text"]
    sim.faults(coding="empty")
    assert engine.generate(prompt, 400)["text"] == ""


def test_streams_break_and_errors_come_at_their_rate(sim: Host) -> None:
    engine = sim.start().wait_up()
    sim.faults(stream_breaks_after_tokens=10, speed=10)
    events = list(engine.stream("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 100, "ignore_eos": True}}))
    assert events[-1] != "[DONE]" and 10 <= events[-1]["meta_info"]["completion_tokens"] < 40
    sim.faults(error_rate=0.25)
    assert [engine.status("/generate", GENERATE) for _ in range(8)].count(500) == 2


def test_build_stock_is_named_by_the_flags(sim: Host) -> None:
    sim.faults(build="stock")
    engine = sim.start(algorithm="DFLASH").wait_up()
    assert "speculative_ddtree_budget" not in engine.call("/server_info")[1]


def test_nvml_faults_reach_the_library(sim: Host) -> None:
    sim.faults(nvml=["gpu 3 processes NO_PERMISSION"])
    sim.start(tp=2).wait_up()
    with pytest.raises(Exception, match="returned non-zero"):
        sim.gpus()


def test_unhealthy_ends_at_once_on_sigterm(sim: Host) -> None:
    engine = sim.start().wait_up()
    sim.faults(generation_hangs=True)
    stuck = threading.Thread(target=engine.status, args=("/generate", GENERATE), daemon=True)
    stuck.start()
    assert engine.status("/health") == 503
    assert stop(engine) < 3, "an UnHealthy server does not wait for its requests"
