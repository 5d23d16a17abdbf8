"""The modules sglang_bench and sglang_codecheck and their role, as Ansible calls them."""

from __future__ import annotations

import builtins
import importlib.util
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from fakeserver import Fake

from ddtree.coding_tasks import ORIGIN
from ddtree.matrix import MatrixError, cells
from ddtree.results import merge
from ddtree.sandbox import candidates

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "benchmark"
CORPUS = str(ROLE / "files" / "corpus" / "code.txt")
KEY = "s3cret-key"
CELL = {"context": 100, "concurrency": 2, "corpus": CORPUS, "requests": 4, "output_tokens": 9, "repeats_most": 1}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(name: str, check_mode: bool = False, **args: Any) -> dict[str, Any]:
        spec = importlib.util.spec_from_file_location(f"{name}_under_test", ROOT / "library" / f"{name}.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with patch_module_args({**args, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
            module.main()
        found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert KEY not in json.dumps(found)
        return found

    return call


def test_a_cell_that_a_result_file_takes(run: Any, tmp_path: Path) -> None:
    with Fake(key=KEY) as fake:
        found = run("sglang_bench", url=fake.url, api_key=KEY, **CELL)
    assert found["changed"] is False and found["server"]["max_running_requests"] == 64
    record, changed = merge(tmp_path / "p.json", {"config_id": "a", "cells": [found["cell"]]})
    assert changed and record["cells"][0]["requests"] == 4 and record["cells"][0]["corpus"]["name"] == "code"


def test_what_returns_is_documented(run: Any) -> None:
    with Fake() as fake:
        cell = run("sglang_bench", url=fake.url, **CELL)["cell"]
    texts: dict[str, str] = {}
    exec(compile((ROOT / "library/sglang_bench.py").read_text().split("from ansible")[0].replace("from __future__ import annotations", ""),
                 "documentation", "exec"), texts)  # fmt: skip
    told = yaml.safe_load(texts["RETURN"])["cell"]["contains"]
    assert set(told) <= set(cell)


def test_check_mode_sends_nothing_and_says_so(run: Any) -> None:
    with Fake() as fake:
        for name, args in (("sglang_bench", CELL), ("sglang_codecheck", {})):
            found = run(name, check_mode=True, url=fake.url, **args)
            assert found["skipped"] and found["msg"].startswith("Check mode: ") and not found.get("failed")
    assert not fake.bodies and not fake.keys


def test_cells_in_the_order_to_measure_them_each_once() -> None:
    found = cells([100, 60, 100], [1, 32, 1], [0.5, 2.0], 64)
    assert found[:4] == [{"context": context, "concurrency": level} for level in (1, 32) for context in (100, 60)]
    assert found[4:] == [{"context": context, "concurrency": 64, "rate": rate} for rate in (0.5, 2.0) for context in (100, 60)]
    for contexts, levels, rates, words in (
        ([60, -1], [1], [], "benchmark_contexts has -1, at least 0"),
        ([60], [0], [], "benchmark_concurrencies has 0, at least 1"),
        ([60], [1], [0.0], "benchmark_rates has 0.0, requests per second above 0"),
    ):
        with pytest.raises(MatrixError, match=words):
            cells(contexts, levels, rates)


def test_one_sentence_when_the_cell_cannot_be(run: Any) -> None:
    with Fake(limit=1) as fake:
        too_many = run("sglang_bench", url=fake.url, **CELL)
    assert too_many["failed"] and too_many["engine"] is True and too_many["cause"] == "measurement_failed"
    assert too_many["msg"].startswith("concurrency 2 cannot be measured: the server runs 1 requests at once")
    gone = run("sglang_bench", url="http://127.0.0.1:9", **CELL)
    assert gone["failed"] and gone["engine"] is False and (gone["phase"], gone["cause"]) == ("measure", "engine_gone")
    assert "http://127.0.0.1:9 does not answer" in gone["msg"] and "Traceback" not in gone["msg"]
    for wrong, words in (
        ({"context": -1}, "context is -1, at least 0"),
        ({"corpus": "/none"}, "cannot be read"),
        ({"prefix_sharing": 1.5}, "prefix_sharing is 1.5, 0 to 0.9 is wanted"),
        ({"repeats_most": 0}, "repeats_most is 0"),
    ):
        with Fake() as fake:
            assert words in run("sglang_bench", url=fake.url, **{**CELL, **wrong})["msg"]


def test_an_engine_that_dies_is_told_with_the_cause_from_its_log(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("torch.OutOfMemoryError: of an earlier start\n")
    with Fake(dies_after=3, log=log) as fake:
        found = run("sglang_bench", url=fake.url, log=str(log), **{**CELL, "idle_timeout": 2})
    assert found["failed"] and found["engine"] is False and found["cause"] == "out_of_memory"
    assert "torch.OutOfMemoryError: CUDA out of memory" in found["msg"] and found["log_tail"] and "earlier" not in str(found["log_tail"])


def test_the_line_tells_figures_doubts_and_the_time_left(run: Any) -> None:
    with Fake(cached=50) as fake:
        found = run("sglang_bench", url=fake.url, number=2, of=6, began=time.time() - 10, **CELL)
    assert re.fullmatch(
        r"cell 2 of 6, ctx 100, C 2: [\d.]+ tok/s( \+-[\d.]+%)?, [\d.]+ per user, TTFT \d+ ms, accept length 4.50 \(requests\), "
        r"4 requests in \d+ s; about 2\d s left; cached: 200 of 400 prompt tokens came from the prefix cache(; .*)?", found["line"]
    )  # fmt: skip


@pytest.mark.parametrize("name", ["sglang_bench", "sglang_codecheck"])
def test_a_missing_library_is_named(run: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_aiohttp(module: str, *args: Any, **kwargs: Any) -> Any:
        if module == "aiohttp":
            raise ImportError("No module named 'aiohttp'")
        return real(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_aiohttp)
    found = run(name, url="http://127.0.0.1:9", **(CELL if name == "sglang_bench" else {}))
    assert found["failed"] and "aiohttp" in found["msg"] and "install" in found["msg"].lower()


@pytest.mark.parametrize("api", ["chat", "completions", "generate"])
def test_programs_are_judged(run: Any, api: str) -> None:
    right = f"```python\n{ORIGIN[1].reference}```"
    with Fake(answer=right, key=KEY) as fake:
        found = run("sglang_codecheck", url=fake.url, api=api, tasks=["fib", "gcd"], api_key=KEY)["coding"]
    assert [(one["name"], one["outcome"]) for one in found["tasks"]] == [("fib", "passed"), ("gcd", "error")]
    assert (found["passed"], found["total"]) == (1, 2) and found["sandbox"] in candidates()
    with Fake(answer="", finish="length") as fake:
        found = run("sglang_codecheck", url=fake.url, api=api)["coding"]
    assert {one["outcome"] for one in found["tasks"]} == {"truncated"} and found["truncated"] == len(ORIGIN)


def test_without_a_sandbox_it_refuses_before_it_asks(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    monkeypatch.setattr("ansible.module_utils.ddtree.codecheck.candidates", list)
    with Fake() as fake:
        found = run("sglang_codecheck", url=fake.url)
    assert found["failed"] and found["refused"] and "no sandbox works here" in found["msg"] and not fake.bodies
    assert run("sglang_codecheck", url="http://127.0.0.1:9")["refused"] is True
    unknown = run("sglang_codecheck", url="http://127.0.0.1:9", tasks=["fob"])
    assert unknown["msg"].startswith("fob is no coding task or set; did you mean fib?")


def test_the_role_says_what_it_does_by_itself() -> None:
    spec = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    assert {name: option["default"] for name, option in spec.items() if not option.get("required")} == defaults
    used = {word for path in (ROLE / "tasks").glob("*.yml") for word in re.findall(r"\bbenchmark_\w+", path.read_text())}
    used |= set(re.findall(r"\bbenchmark_\w+", (ROLE / "vars" / "main.yml").read_text() + (ROLE / "defaults" / "main.yml").read_text()))
    assert set(spec) - used == set() and used - set(spec) <= {"benchmark_cell", "benchmark_settings"}
