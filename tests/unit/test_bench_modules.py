"""The modules sglang_bench and sglang_codecheck and their role, as Ansible calls them."""

from __future__ import annotations

import builtins
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from fakeserver import Fake

from ddtree.coding_tasks import ORIGIN
from ddtree.results import merge
from ddtree.sandbox import candidates

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "benchmark"
CORPUS = str(ROLE / "files" / "corpus" / "code.txt")
KEY = "s3cret-key"
CELL = {"context": 100, "concurrency": 2, "corpus": CORPUS, "requests": 3, "output_tokens": 9}


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
    assert changed and record["cells"][0]["requests"] == 3 and record["cells"][0]["corpus"]["name"] == "code"


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


def test_one_sentence_when_the_cell_cannot_be(run: Any) -> None:
    with Fake(limit=1) as fake:
        too_many = run("sglang_bench", url=fake.url, mode="check", context=100, concurrency=2)
        assert too_many["failed"] and too_many["msg"].startswith("concurrency 2 cannot be measured: the server runs 1 requests at once")
        assert run("sglang_bench", url=fake.url, mode="check", context=100, concurrency=1)["server"]["version"] == "fake"
    gone = run("sglang_bench", url="http://127.0.0.1:9", **CELL)
    assert gone["failed"] and "http://127.0.0.1:9 does not answer" in gone["msg"] and "Traceback" not in gone["msg"]
    for wrong, words in (({**CELL, "context": 0}, "context is 0"), ({**CELL, "corpus": "/none"}, "cannot be read")):
        with Fake() as fake:
            assert words in run("sglang_bench", url=fake.url, **wrong)["msg"]


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
    assert unknown["msg"].startswith("fob is no coding task; there are is_palindrome")


def test_the_role_says_what_it_does_by_itself() -> None:
    spec = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    assert {name: option["default"] for name, option in spec.items() if not option.get("required")} == defaults
    used = {word for path in (ROLE / "tasks").glob("*.yml") for word in re.findall(r"\bbenchmark_\w+", path.read_text())}
    assert set(spec) - used == set() and used - set(spec) <= {"benchmark_cell"}
