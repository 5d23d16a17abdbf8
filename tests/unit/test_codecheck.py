"""Finding programs in answers, and what is said of them."""
# ruff: noqa: E501  a program is easier to read in its table's row

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from hostile import FIB, RIGHT, F, block
from hypothesis import given
from hypothesis import strategies as st

from ddtree import codecheck
from ddtree.codecheck import KEPT_LETTERS, RefusedError, Reply, choose, defines, digest, extract, judge, judge_all, same, self_check, totals
from ddtree.coding_set import ALL
from ddtree.coding_tasks import ORIGIN
from ddtree.results import OUTCOMES
from ddtree.sandbox import Answer, Sandbox, candidates, interpreter

TASK = {task.name: task for task in ORIGIN}


# -- extraction ------------------------------------------------------------------------------------------------------------

ANSWERS = {
    "plain block": f"Here:\n\n{F}python\n{FIB}\n{F}\nDone.",
    "bare fence": f"{F}\n{FIB}\n{F}",
    "other tags": f"{F}Python3 title=x\n{FIB}\n{F}",
    "py tag": f"{F}py\n{FIB}\n{F}",
    "tildes": f"~~~python\n{FIB}\n~~~",
    "long fence": f"{F}``python\n{FIB}\n{F}``",
    "unclosed": f"Sure.\n{F}python\n{FIB}\n",
    "closing fence only": f"{FIB}\n{F}\n",
    "trailing bare fence": f"{F}python\n{FIB}\n{F}\n\n{F}\n",
    "no fence": FIB,
    "CRLF": f"{F}python\n{FIB}\n{F}".replace("\n", "\r\n"),
    "draft, then answer": f"{F}python\ndef fib(n):\n    return n\n{F}\nNo, better:\n{F}python\n{FIB}\n{F}",
    "usage after it": f"{F}python\n{FIB}\n{F}\nUse it:\n{F}python\nprint(fib(3))\n{F}",
    "usage unclosed": f"{F}python\n{FIB}\n{F}\nUse it:\n{F}\n>>> fib(3)\n2",
    "in a list": "1. First\n\n" + "\n".join(f"   {line}" for line in f"{F}python\n{FIB}\n{F}".split("\n")),
    "deep in a list": "\n".join(f"\t{line}" for line in f"{F}python\n{FIB}\n{F}".split("\n")),
    "fence in a docstring": f'{F}python\ndef fib(n):\n    """\n    {F}\n    fib(3)\n    {F}\n    """\n' + FIB.split("\n", 1)[1] + f"\n{F}",
    "code on the fence line": f"{F}def fib(n):\n" + FIB.split("\n", 1)[1] + f"\n{F}",
    "tag and code on the fence line": f"{F}python def fib(n):\n" + FIB.split("\n", 1)[1] + f"\n{F}",
    "one line": f"{F}python fib = lambda n: n if n < 2 else fib(n - 1) + fib(n - 2){F}",
    "tilde around backticks": f"~~~\n{F}python\n{FIB}\n{F}\n~~~",
    "prose around bare code": f"Here is the function:\n\n{FIB}\n\nIt runs in linear time!",
    "reasoning before": f"<think>maybe {F}python\ndef fib(n): return 9\n{F}\n</think>\n{F}python\n{FIB}\n{F}",
    "reasoning, closing tag only": f"maybe def fib...</think>\n{FIB}",
    "Kimi's tags": f"◁think▷ hm ◁/think▷{F}python\n{FIB}\n{F}",
    "tabs": f"{F}python\n{FIB.replace('    ', chr(9))}\n{F}",
    "other block first": f"{F}bash\npip install x\n{F}\n{F}python\n{FIB}\n{F}\n{F}text\n0 1 1 2\n{F}",
    "Mistral's tags": f"[THINK]def fib(n): ...[/THINK]{F}python\n{FIB}\n{F}",
    "Seed's tags": f"<seed:think>def fib(n): return 1</seed:think>{F}python\n{FIB}\n{F}",
    "channels": f"<|channel|>analysis<|message|>def fib(n): return 1<|end|><|channel|>final<|message|>{F}python\n{FIB}\n{F}",
    "no-break spaces": f"{F}python\n{FIB.replace('    ', chr(0xA0) * 4)}\n{F}",
    "a mark of the byte order": f"\ufeff{FIB}",
    "Windows fences": f"{F}python\r\n{FIB}\r\n{F}\r\n",
    "type hints and a decorator": f"{F}python\nfrom functools import lru_cache\n\n\n@lru_cache(maxsize=None)\ndef fib(n: int) -> int:\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n{F}",
    "within other tags": f"<answer>\n{FIB}\n</answer>",
    "quoted": f"Sure:\n\n{F}python\nimport sys\n{FIB}\n{F}\n\n> Note: `fib(0)` is 0.",
    "cut in a second block": f"{F}python\n{FIB}\n{F}\n{F}python\nprint('un",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_program_is_found(name: str) -> None:
    found = extract(ANSWERS[name], "fib")
    assert found.code is not None, found
    space: dict[str, object] = {}
    exec(compile(found.code, name, "exec"), space)
    fib = space["fib"]
    assert callable(fib) and [fib(n) for n in range(6)] == [0, 1, 1, 2, 3, 5]


@pytest.mark.parametrize(
    ("answer", "words"),
    [("", "no answer"), ("  \n ", "no answer"), ("<think>def fib(n): return 1", "within the reasoning"),
     ("[THINK]def fib(n): return 1", "within the reasoning"), ("<think>def fib(n): return 1</think>I cannot.", "no code"),
     ("I cannot.", "no code"),
     (f"{F}python\ndef other(n):\n    return n\n{F}", "no code"), (f"{F}python\ndef fib(n):\n    retu rn\n{F}", "no code"), ("\x00" * 9, "no code"),
     (f"{F}python\ndef fib(n):\n    x = 'cut in the mid", "no code")],
)  # fmt: skip
def test_where_there_is_none(answer: str, words: str) -> None:
    found = extract(answer, "fib")
    assert found.code is None and words in found.detail


@given(st.text(alphabet="`~ \n\tdef fib(n):return'\"\\#>python<think/>", max_size=400))
def test_no_text_breaks_the_extraction(text: str) -> None:
    found = extract(text, "fib")
    assert found.code is None or defines(found.code, "fib")


@given(st.sampled_from(sorted(ANSWERS)), st.text(alphabet="ab .,\n", max_size=30).map(lambda text: f"{text}\n\n"))
def test_prose_before_changes_nothing(name: str, prose: str) -> None:
    if name not in ("no fence", "one line", "closing fence only", "a mark of the byte order"):
        assert extract(prose + ANSWERS[name], "fib").code is not None


def test_long_answers_take_no_time() -> None:
    began = time.monotonic()
    for text in ("def fib(n):\n    (" + "x\n" * 20_000, f"{F}\nx\n" * 3000, "`" * 100_000, "(" * 50_000):
        extract(text, "fib")
    assert time.monotonic() - began < 10


def test_values_are_compared_with_their_kind() -> None:
    assert same("true", True) and same("[1, [2]]", [1, [2]]) and same('{"a": 1}', {"a": 1}) and same("2.0", 2)
    assert not any([same("1", True), same("true", 1), same("[1]", [1, 2]), same("{}", []), same("nan,", 1), same("", None)])


# -- verdicts --------------------------------------------------------------------------------------------------------------


class Scripted(Sandbox):
    """Gives prepared answers, the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__("scripted", "python")
        object.__setattr__(self, "answers", list(answers))
        object.__setattr__(self, "runs", [])

    def run(self, code: str, entry: str, calls: Any) -> Answer:
        runs, answers = self.__dict__["runs"], self.__dict__["answers"]
        runs.append((code, threading.active_count()))
        return answers.pop(0) if len(answers) > 1 else answers[0]


GOOD = Answer("answered", [["value", json.dumps(wanted)] for _, wanted in TASK["fib"].cases])
BAD = Answer("answered", [["value", "0"]] * len(TASK["fib"].cases))


@pytest.mark.parametrize(
    ("answer", "outcome", "detail"),
    [(GOOD, "passed", "9 cases"), (BAD, "failed", "fib(1) gave 0 instead of 1"), (Answer("timeout"), "timeout", "no end after 15 s"),
     (Answer("cpu"), "timeout", "no end after 5 s of CPU"), (Answer("noisy"), "error", "where only its results belong"),
     (Answer("silent", exit_status=3), "error", "before its cases did (exit 3)"), (Answer("answered", broken="EOFError: x"), "error", "reads input"),
     (Answer("answered", broken="KeyError: 'fib'"), "error", "does not load: KeyError"), (Answer("answered", []), "error", "0 of 9 cases"),
     (Answer("answered", [["raised", "ValueError: no"]] * 9), "failed", "fib(0) raised ValueError: no"),
     (Answer("answered", [["value", "[0"]] * 9), "failed", "gave [0 instead")],
)  # fmt: skip
def test_what_becomes_of_a_program(answer: Answer, outcome: str, detail: str) -> None:
    found = judge(Reply(block(RIGHT), tokens=40), TASK["fib"], Scripted(answer))
    assert (found["outcome"], found["tokens"], found["method"], found["digest"]) == (outcome, 40, "block", digest(block(RIGHT)))
    assert detail in found["detail"] and found["answer"] == block(RIGHT)
    cut = judge(Reply(block(RIGHT), "length"), TASK["fib"], Scripted(answer))
    assert cut["outcome"] == ("passed" if outcome == "passed" else "truncated") and cut["finish_reason"] == "length"


def test_answers_without_a_program() -> None:
    unused = Scripted(GOOD)
    cases = [
        (Reply(""), "empty", "no answer"), (Reply("", "length"), "truncated", "cut by the token limit"), (Reply("", reasoning="hm"), "empty", "all of the answer is reasoning"),
        (Reply("", "length", "hm"), "truncated", "all of the answer is reasoning"), (Reply("no code"), "error", "no code that defines fib"),
        (Reply("<think>well", "length"), "truncated", "within the reasoning"), (Reply(error="timeout"), "timeout", "no answer in time"),
        (Reply("half", "length", error="the engine answered 500: x"), "error", "the engine answered 500"),
    ]  # fmt: skip
    for reply, outcome, words in cases:
        found = judge(reply, TASK["fib"], unused)
        assert (found["outcome"], words in found["detail"]) == (outcome, True), found
        assert found["outcome"] in OUTCOMES
    assert not unused.__dict__["runs"]


def test_a_long_answer_is_kept_in_part_and_its_digest_is_of_all() -> None:
    long = "x" * (KEPT_LETTERS + 5)
    found = judge(Reply(long, reasoning="abc", asked_again=True), TASK["fib"], Scripted(GOOD))
    assert len(found["answer"]) == KEPT_LETTERS and found["digest"] == digest(long) != digest(found["answer"])
    assert found["reasoning_letters"] == 3 and found["asked_again"] is True


def test_what_the_clock_stopped_is_tried_again_alone() -> None:
    """Not what used up its CPU time: no neighbour takes that."""
    busy = Scripted(Answer("timeout"), GOOD)
    assert judge_all([(TASK["fib"], Reply(block(RIGHT)))], busy)[0]["outcome"] == "passed" and len(busy.__dict__["runs"]) == 2
    stuck = Scripted(Answer("timeout"))
    assert judge_all([(TASK["fib"], Reply(block(RIGHT)))], stuck)[0]["outcome"] == "timeout" and len(stuck.__dict__["runs"]) == 2
    looping = Scripted(Answer("cpu"))
    assert judge_all([(TASK["fib"], Reply(block(RIGHT)))], looping)[0]["outcome"] == "timeout" and len(looping.__dict__["runs"]) == 1


def test_entries_keep_the_order_of_the_tasks() -> None:
    replies = [(task, Reply(f"```python\n{task.reference}```" if at % 2 else "")) for at, task in enumerate(ORIGIN)]
    sandbox = choose()
    entries = judge_all(replies, sandbox)
    assert [one["name"] for one in entries] == [task.name for task in ORIGIN]
    assert [one["outcome"] for one in entries] == ["empty", "passed"] * 2 + ["empty"]
    section = totals(entries, sandbox.kind)
    assert (section["passed"], section["truncated"], section["total"], section["asked_again"]) == (2, 0, 5, 0)


# -- the harness -----------------------------------------------------------------------------------------------------------


def test_the_harness_judges_its_own_programs_in_two_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox, run = choose(), Sandbox.run
    starts: list[str] = []

    def counted(self: Sandbox, code: str, entry: str, calls: Any) -> Answer:
        starts.append(entry)
        return run(self, code, entry, calls)

    monkeypatch.setattr(Sandbox, "run", counted)
    assert self_check(sandbox, ALL) == [] and starts == ["check", "check"]


def test_a_harness_that_is_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = choose()
    with monkeypatch.context() as patch:
        patch.setattr(codecheck, "same", lambda said, wanted: True)
        assert self_check(sandbox, ORIGIN[:2]) == [f"{task.name}: a program that must fail does not" for task in ORIGIN[:2]]
    with monkeypatch.context() as patch:
        patch.setattr(codecheck, "extract", lambda text, name, finish="stop": codecheck.Extract("def x():\n    pass", "block"))
        assert self_check(sandbox, ORIGIN[:1]) == ["is_palindrome: a program that must pass does not"]
    assert self_check(Scripted(Answer("silent")), ORIGIN) == ["its own programs do not run here: silent"]
    assert self_check(Scripted(Answer("answered", broken="no room")), ORIGIN) == ["its own programs do not run here: no room"]


def test_without_a_sandbox_it_refuses_unless_told() -> None:
    with pytest.raises(RefusedError, match="no sandbox works here: install bubblewrap"):
        choose(kinds=[])
    with pytest.raises(RefusedError, match="gone: gone is no sandbox"):
        choose(kinds=["gone"])
    assert choose(unsandboxed=True, kinds=[]).kind == "none" and choose(unsandboxed=True).kind in candidates()
    assert interpreter().startswith("/")
