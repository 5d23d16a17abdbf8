"""Texts, programs, tokens, flags and faults of the simulated engine."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.codecheck import defines, extract, same
from ddtree.coding_set import ALL, programs
from ddtree.coding_tasks import Task

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "roles" / "simulated_host" / "files" / "site"))

from sglang.sim import coding, faults, flags, text, tokenizer  # noqa: E402

CASES: dict[str, list[tuple[tuple[Any, ...], Any]]] = {
    "is_palindrome": [(("level",), True), (("ab",), False), (("",), True)],
    "fib": [((0,), 0), ((1,), 1), ((10,), 55)],
    "merge_sorted": [(([1, 3], [2, 4]), [1, 2, 3, 4]), (([], [1]), [1]), (([2], [1, 1]), [1, 1, 2])],
    "word_count": [(("a b a",), {"a": 2, "b": 1}), (("",), {})],
    "gcd": [((12, 18), 6), ((7, 0), 7), ((0, 5), 5), ((-4, 6), 2)],
}
DRAFTER = str(ROOT / "roles" / "simulated_host" / "files" / "models" / "drafter")


def program(name: str, mode: str, prompt: str = "") -> str:
    answer = coding.answer(prompt, [name], mode)
    found = re.search(r"```python\n(.*?)```", answer, re.S)
    assert found
    return found[1]


@pytest.mark.parametrize("name", CASES)
def test_right_programs_are_right_and_wrong_ones_wrong(name: str) -> None:
    for mode in ("right", "wrong"):
        space: dict[str, Any] = {}
        exec(program(name, mode), space)
        results = []
        for arguments, expected in CASES[name]:
            try:
                results.append(space[name](*arguments) == expected)
            except Exception:
                results.append(False)
        assert all(results) == (mode == "right"), mode


def test_prompts_decide_between_variants() -> None:
    plain, ignoring = (program("is_palindrome", "right", one) for one in ("a palindrome", "ignoring case and punctuation"))
    assert "lower" not in plain and "lower" in ignoring


def test_hostile_programs_compile() -> None:
    for name in CASES:
        compile(program(name, "hostile"), name, "exec")


@pytest.mark.parametrize(
    ("prompt", "names"),
    [("Write a Python function gcd(a, b).", ["gcd"]), ("Implement fib(n) and word_count(text).", ["fib", "word_count"]),
     ("Tell me about gcd.", []), ("A function of its life: tokens.", []),
     ("Write `life(board)` in Python, and a gcd.", ["life", "gcd"]),
     ("Write a function that sorts.", []), ("Describe the sea.", [])],
)  # fmt: skip
def test_which_prompts_are_coding_prompts(prompt: str, names: list[str]) -> None:
    assert coding.asked(prompt) == names


def test_the_programs_that_the_engine_knows_are_those_of_the_tasks() -> None:
    kept = (ROOT / "roles/simulated_host/files/site/sglang/sim/programs.json").read_text()
    assert kept == programs(), "run: PYTHONPATH=module_utils python -m ddtree.coding_set > .../sim/programs.json"


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_each_coding_task_is_answered_as_asked(task: Task) -> None:
    assert coding.asked(task.prompt) == [task.name]
    answers = [coding.answer(task.prompt, [task.name], mode) for mode in ("right", "wrong", "hostile")]
    codes = [extract(answer, task.name).code or "" for answer in answers]
    assert len(set(codes)) == 3 and all(defines(code, task.name) for code in codes[:2])
    cut, ended = text.answer(task.prompt, 4096, False, "truncated")
    assert len(cut) == 4096 and not ended
    space: dict[str, Any] = {}
    exec(codes[0], space)
    for arguments, wanted in task.cases:
        given, said = json.loads(json.dumps([list(arguments), wanted]))
        assert same(json.dumps(space[task.name](*given)), said), arguments


def test_text_is_the_same_for_the_same_prompt_and_ends_by_itself() -> None:
    first, ended = text.answer("Describe the sea.", 1000, False, "right")
    assert ended and 200 <= len(first) <= 400
    assert text.answer("Describe the sea.", 1000, False, "right")[0] == first
    assert text.answer("Describe the land.", 1000, False, "right")[0] != first
    assert text.answer("Describe the sea.", 100, False, "right") == (first[:100], False)
    longer, ended = text.answer("Describe the sea.", 900, True, "right")
    assert len(longer) == 900 and not ended and longer[: len(first)] == first


def test_truncated_answers_meet_any_usual_limit() -> None:
    pieces, ended = text.answer("Write a Python function gcd(a, b).", 4096, False, "truncated")
    assert len(pieces) == 4096 and not ended and "```" not in "".join(pieces)


@given(st.text(st.characters(codec="utf-8")))
def test_tokens_join_to_the_text_again(value: str) -> None:
    assert "".join(tokenizer.pieces(value)) == value
    assert tokenizer.decode(tokenizer.encode(value)) == value


def args(*more: str, stock: bool = False) -> flags.ServerArgs:
    return flags.prepare_server_args(["--model-path", "org/model", *more], stock)


TREE = ("--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", DRAFTER)


def test_defaults_without_speculation() -> None:
    found = args()
    assert found["speculative_algorithm"] is None and found["max_running_requests"] == 4096
    assert found["served_model_name"] == "org/model" and flags.speed_config(found).algorithm == "NONE"


def test_ddtree_resolves_as_pull_request_29907_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_DDTREE_MAX_TOPK", raising=False)
    found = args(*TREE)
    assert found["speculative_num_draft_tokens"] == 8 and found["speculative_ddtree_budget"] == 7
    assert found["disable_overlap_schedule"] and found["max_running_requests"] == 48
    found = args(*TREE, "--speculative-ddtree-budget", "35", "--speculative-draft-window-size", "2048", "--tp-size", "8")
    monkeypatch.setenv("SGLANG_DDTREE_MAX_TOPK", "4")
    config = flags.speed_config(found)
    assert (config.budget, config.effective_topk, config.window, config.tp) == (35, 4, 2048, 8)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((*TREE, "--speculative-ddtree-budget", "0"), "--speculative-ddtree-budget must be >= 1, got 0"),
        ((*TREE, "--page-size", "64"), "--page-size 1"),
        ((*TREE, "--speculative-ddtree-budget", "12", "--attention-backend", "fa3"), "only the triton attention backend"),
        ((*TREE, "--speculative-draft-window-size", "4"), "must be >= speculative_num_draft_tokens"),
        (("--speculative-algorithm", "DDTREE"), "requires setting --speculative-draft-model-path"),
        (("--speculative-algorithm", "DDTREEE"), "Unknown speculative algorithm name: DDTREEE"),
        (("--speculative-ddtree-budget", "8", "--speculative-algorithm", "DFLASH", *TREE[2:]), "requires --speculative-algorithm DDTREE"),
    ],
)
def test_arguments_that_do_not_go_together(more: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        args(*more)


def test_a_spine_may_use_another_backend() -> None:
    assert args(*TREE, "--speculative-ddtree-budget", "7", "--attention-backend", "fa3")["attention_backend"] == "fa3"


def test_a_stock_build_knows_no_ddtree(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        args(*TREE, "--speculative-ddtree-budget", "12", stock=True)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("sglang serve: error: unrecognized arguments: --speculative-ddtree-budget 12\n")
    with pytest.raises(ValueError, match="Unknown speculative algorithm name: DDTREE"):
        args(*TREE, stock=True)


def test_unknown_faults_are_refused_and_known_ones_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="drain_secconds is not a fault"):
        faults.write(tmp_path, {"drain_secconds": 1})
    watched = faults.Faults(tmp_path)
    assert watched.get("speed", 1) == 1
    faults.write(tmp_path, {"speed": 3, "nvml": ["gpu 1 all GPU_IS_LOST"]})
    assert watched.get("speed", 1) == 3 and (tmp_path / "nvml_faults.conf").read_text() == "gpu 1 all GPU_IS_LOST\n"
    (tmp_path / "faults.json").write_text("{")
    assert watched.get("speed", 1) == 1, "an unreadable file counts as no faults"


def test_faults_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.main(["--state", str(tmp_path), "drain_seconds=8", "coding=wrong", "ignore_sigterm"]) == 0
    assert faults.Faults(tmp_path).get("coding") == "wrong" and faults.Faults(tmp_path).get("ignore_sigterm") is True
    assert faults.main(["--state", str(tmp_path), "coding=null"]) == 0
    assert faults.Faults(tmp_path).get("coding", "right") == "right"
    assert faults.main(["--state", str(tmp_path), "nonsense=1"]) == 2
    assert "nonsense is not a fault" in capsys.readouterr().err


def test_the_table_in_the_documentation_is_the_table_in_the_code() -> None:
    assert faults.table() in (ROOT / "docs" / "simulator.md").read_text()
