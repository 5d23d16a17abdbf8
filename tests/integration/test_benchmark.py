"""What the benchmark says of the simulated engine against what its formula makes it do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from simhost import FILES, Engine, Host

from ddtree.codecheck import Reply, choose, judge
from ddtree.coding_tasks import ORIGIN
from ddtree.loadgen import CellError, CellSpec, run_cell

sys.path.append(str(FILES / "site"))
from sglang.sim import speed

pytestmark = pytest.mark.alone
CORPUS = str(Path(__file__).resolve().parents[2] / "roles" / "benchmark" / "files" / "corpus" / "prose.txt")
OUTPUT = 48


@pytest.fixture(scope="module")
def engine(shared_sim: Host) -> Iterator[Engine]:
    yield shared_sim.start(budget=12, window=2048).wait_up()


@pytest.mark.parametrize("concurrency", [1, 32])
@pytest.mark.parametrize(("context", "api"), [(60, "chat"), (1024, "generate"), (4096, "completions")])
def test_figures_meet_the_truth(engine: Engine, context: int, concurrency: int, api: str) -> None:
    found = run_cell(CellSpec(engine.url, context, concurrency, CORPUS, requests=6, output_tokens=OUTPUT, api=api, repeats_most=1))
    config = speed.config(budget=12, topk=6, window=2048)
    assert found["output_tok_s"] == pytest.approx(speed.output_tok_s(config, context, concurrency, OUTPUT), rel=0.05)
    assert found["accept_length"] == pytest.approx(speed.accept_length(config, context), rel=0.01)
    assert found["accept_source"] == "requests" and found["errors"] == 0 and found["flushed"] is True
    assert found["ttft_ms"]["p50"] == pytest.approx(speed.ttft_seconds(context) * 1000, rel=0.05, abs=5)
    assert not [one for one in found["warnings"] if not one.startswith("client_bound")]


def test_four_sources_tell_the_accept_length_and_agree(engine: Engine) -> None:
    spec = CellSpec(engine.url, 1024, 4, CORPUS, requests=16, output_tokens=200, ignore_eos=True, log=str(engine.log_path), repeats_most=2)
    found = run_cell(spec)
    true = speed.accept_length(speed.config(budget=12, topk=6, window=2048), 1024)
    assert set(found["accept"]) == {"requests", "metrics", "server_info", "log"} and found["accept_source"] == "requests"
    lengths = {name: one["length"] for name, one in found["accept"].items()}
    assert lengths == {name: pytest.approx(true, rel=0.1) for name in lengths}
    assert not [one for one in found["warnings"] if one.startswith("accept_sources")]


def test_an_engine_that_dies_in_a_cell_is_told_from_its_log(sim: Host) -> None:
    doomed = sim.start(budget=12, window=2048).wait_up()
    timer = threading.Timer(1.5, doomed.process.kill)
    timer.start()
    with pytest.raises(CellError) as told:
        run_cell(CellSpec(doomed.url, 60, 4, CORPUS, requests=64, output_tokens=OUTPUT, log=str(doomed.log_path)))
    timer.join()
    assert told.value.engine is False and told.value.cause in ("engine_gone", "crashed") and told.value.log_tail


@pytest.mark.parametrize(
    ("mode", "outcomes"),
    # the wrong fib is too slow for its larger cases
    [("right", {"passed"}), ("wrong", {"failed", "timeout"}),
     ("hostile", {"failed", "error", "timeout"}), ("truncated", {"truncated"}), ("empty", {"empty"})],
)  # fmt: skip
def test_programs_of_every_kind_get_their_outcome(engine: Engine, shared_sim: Host, mode: str, outcomes: set[str]) -> None:
    shared_sim.faults(coding=mode, speed=50)
    sandbox = choose(cpu_seconds=2, wall_seconds=5.0)
    try:
        got = {}
        for task in ORIGIN:
            answer = engine.call("/v1/chat/completions", {
                "messages": [{"role": "user", "content": task.prompt}], "max_tokens": 512, "temperature": 0,
            })[1]["choices"][0]  # fmt: skip
            reply = Reply(answer["message"]["content"] or "", answer["finish_reason"])
            got[task.name] = judge(reply, task, sandbox)["outcome"]
    finally:
        shared_sim.faults()
    assert set(got.values()) <= outcomes, got
