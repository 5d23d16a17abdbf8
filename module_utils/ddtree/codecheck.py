"""Whether an engine still writes right programs: finds the code in an answer, runs it in a sandbox, and says what became of it.

Outcomes: passed; failed (a wrong value or an exception in a case); truncated (the token limit cut the answer and what there is does
not pass); empty (no answer); timeout (of the program, or of the engine); error (no code found, a program that does not load or ends
before its cases do, or a request that failed).
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from .coding_tasks import ORIGIN, Task
from .sandbox import Sandbox, candidates, interpreter

_OPEN = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*(.*?)[ \t]*$")
_THOUGHT_END = re.compile(
    r"</(?:seed:)?(?:think|thinking|thought|reasoning)>|◁/think▷|\[/THINK\]|<\|channel\|>final<\|message\|>", re.IGNORECASE
)
_THOUGHT_START = re.compile(
    r"<(?:seed:)?(?:think|thinking|thought|reasoning)>|◁think▷|\[THINK\]|<\|channel\|>analysis<\|message\|>", re.IGNORECASE
)
_INVISIBLE = {ord(letter): " " for letter in "\u00a0\u202f\u2007"} | dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060"))
_LANGUAGE = re.compile(r"^(?:python\d*|py\d*)\b[ \t]*", re.IGNORECASE)
_CODE_START = re.compile(r"^(?:def |async def |class |import |from \w+ import |@\w)")
_MOST_FENCES, _MOST_PARSES, _MOST_LINES, _MOST_LETTERS = 20, 200, 2000, 1 << 16
KEPT_LETTERS = 20_000  # of an answer in a result; its digest is of all of it
SIDE_BY_SIDE = 4


class RefusedError(RuntimeError):
    """No sandbox works here, so generated code is not run; the message is one sentence."""


@dataclass(frozen=True)
class Extract:
    """`code` is None when there is none; `method` says where it was found, `detail` why not."""

    code: str | None
    method: str
    detail: str = ""


@dataclass(frozen=True)
class Reply:
    """What the engine said to one prompt. `error` is set where it said nothing: timeout, or words about the failure."""

    text: str = ""
    finish_reason: str = "stop"
    reasoning: str = ""  # as far as the server tells it apart
    tokens: int | None = None
    error: str = ""
    asked_again: bool = False  # with a larger limit, since the first answer was cut


# -- finding the code ------------------------------------------------------------------------------------------------------


def extract(answer: str, entry_point: str, finish_reason: str = "stop") -> Extract:
    """The program in an answer: of the blocks that parse and define `entry_point` the last, else less tidy places."""
    text = answer.replace("\r\n", "\n").replace("\r", "\n")
    ends = list(_THOUGHT_END.finditer(text))
    if ends:
        text = text[ends[-1].end() :]
    elif _THOUGHT_START.search(text):
        return Extract(None, "none", "the answer ends within the reasoning")
    if not text.strip():
        return Extract(None, "none", "there is no answer")
    plain = text.translate(_INVISIBLE)
    for form in (text, plain) if plain != text else (text,):
        found = _find(form, entry_point)
        if found:
            return found
    cut = " (the answer was cut by its token limit)" if finish_reason == "length" else ""
    return Extract(None, "none", f"no code that defines {entry_point}{cut}")


def _find(text: str, entry_point: str) -> Extract | None:
    for method, places in (("block", _blocks(text)), ("block over inner fences", _spans(text)), ("text", _raw(text))):
        fitting = [code for code in places if defines(code, entry_point)]
        if fitting:
            return Extract(fitting[-1], method)
    prefix = _prefix(text, entry_point)
    return Extract(prefix, "longest prefix that parses") if prefix else None


def defines(code: str, name: str) -> bool:
    """Whether the text is Python that binds `name` to a function at its top level."""
    if name not in code or len(code) > _MOST_LETTERS:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in the answer
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return True
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets):
            return True
    return False


def _blocks(text: str) -> Iterator[str]:
    """Fenced blocks by the rules of CommonMark, an unclosed last one included, in the answer's order."""
    opened: tuple[str, str, str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        fence = _OPEN.match(line)
        if opened is None:
            if fence and not (fence.group(2)[0] == "`" and "`" in fence.group(3)):
                opened, lines = (fence.group(1), fence.group(2), fence.group(3)), []
        elif fence and not fence.group(3) and fence.group(2)[0] == opened[1][0] and len(fence.group(2)) >= len(opened[1]):
            yield from _readings(opened[0], opened[2], lines)
            opened = None
        else:
            lines.append(line)
    if opened is not None:
        yield from _readings(opened[0], opened[2], lines)


def _readings(indent: str, info: str, lines: list[str]) -> Iterator[str]:
    """A block as it stands, and with code that begins on the line of the fence."""
    body = [line[len(indent) :] if line.startswith(indent) else line.lstrip(" \t") if not line.strip() else line for line in lines]
    first = _LANGUAGE.sub("", info)
    if first:
        yield "\n".join([first, *body])
    yield textwrap.dedent("\n".join(body))


def _spans(text: str) -> Iterator[str]:
    """Between any two fences, for code that has fences inside a string; the longest of each beginning last."""
    lines = text.split("\n")
    fences = [at for at, line in enumerate(lines) if _OPEN.match(line)][-_MOST_FENCES:]
    for begin in fences:
        for end in [one for one in fences if one > begin + 1]:
            yield textwrap.dedent("\n".join(lines[begin + 1 : end]))


def _raw(text: str) -> Iterator[str]:
    """The whole text; what stands before a lone fence; code within one line's backticks."""
    yield textwrap.dedent(text)
    yield textwrap.dedent(re.split(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*$", text, maxsplit=1, flags=re.MULTILINE)[0])
    for inline in re.findall(r"(?<!`)(`{1,3})(?!`)([^`]{1,4000})\1(?!`)", text)[-_MOST_FENCES:]:
        yield _LANGUAGE.sub("", inline[1].strip())


def _prefix(text: str, name: str) -> str | None:
    """From each line that can begin a program the longest run of lines that parses and defines the name; the last such."""
    lines = [line for line in text.split("\n") if not _OPEN.match(line)][:_MOST_LINES]
    heads = [at for at, line in enumerate(lines) if re.match(rf"\s*(?:async )?def {re.escape(name)}\b", line)]
    left = _MOST_PARSES
    for begin in range(heads[-1] if heads else -1, -1, -1):
        if not _CODE_START.match(lines[begin].strip()):
            continue
        for end in range(min(len(lines), begin + 120), begin, -1):
            code = textwrap.dedent("\n".join(lines[begin:end]))
            if defines(code, name):
                return code
            left -= 1
            if not left:
                return None
    return None


# -- running it ------------------------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """`late`: the clock stopped the program, which a busy machine may have made slow."""

    outcome: str
    detail: str
    late: bool = False


def run_tests(code: str, task: Task, sandbox: Sandbox) -> Verdict:
    """What becomes of a program on a task's hidden cases. The values wanted are compared here, outside the sandbox."""
    answer = sandbox.run(code, task.name, [arguments for arguments, _ in task.cases])
    if answer.state == "timeout":
        return Verdict("timeout", f"no end after {sandbox.wall_seconds:.0f} s", late=True)
    if answer.state == "cpu":
        return Verdict("timeout", f"no end after {sandbox.cpu_seconds} s of CPU")
    if answer.state == "noisy":
        return Verdict("error", "the program wrote where only its results belong")
    if answer.state == "silent":
        return Verdict("error", f"the program ended before its cases did (exit {answer.exit_status})")
    if answer.found is None:
        reads = answer.broken.startswith("EOFError")
        return Verdict("error", "the program reads input" if reads else f"the program does not load: {answer.broken}")
    if len(answer.found) != len(task.cases):
        return Verdict("error", f"{len(answer.found)} of {len(task.cases)} cases were run")
    for (arguments, wanted), (kind, said) in zip(task.cases, answer.found):
        call = f"{task.name}({', '.join(map(repr, arguments))})"
        if kind != "value":
            return Verdict("failed", f"{call[:120]} raised {said}")
        if not same(said, wanted):
            return Verdict("failed", f"{call[:120]} gave {said[:60]} instead of {json.dumps(wanted)[:60]}")
    return Verdict("passed", f"{len(task.cases)} cases")


def same(said: str, wanted: Any) -> bool:
    """Whether a value, as JSON, is the one wanted, its kind included: 1 is not True."""
    try:
        value = json.loads(said)
    except (ValueError, RecursionError):
        return False
    return _same(value, wanted)


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return value is wanted
    if isinstance(wanted, list):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_same, value, wanted))
    if isinstance(wanted, dict):
        return isinstance(value, dict) and value.keys() == wanted.keys() and all(_same(value[key], wanted[key]) for key in wanted)
    return bool(value == wanted)


def judge(reply: Reply, task: Task, sandbox: Sandbox, when_late: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """One entry of coding.tasks: {name, outcome, detail, method, finish_reason, tokens, answer, digest, ...}."""
    found = extract(reply.text, task.name, reply.finish_reason) if not reply.error else Extract(None, "none", reply.error)
    if found.code is not None:
        outcome, detail, late = run_tests(found.code, task, sandbox)
        if late:
            when_late()
    elif reply.error:
        outcome, detail = ("timeout", "the engine gave no answer in time") if reply.error == "timeout" else ("error", reply.error)
    elif not reply.text.strip():
        outcome, detail = "empty", "all of the answer is reasoning" if reply.reasoning.strip() else found.detail
    else:
        outcome, detail = "error", found.detail
    if outcome != "passed" and reply.finish_reason == "length" and not reply.error:
        outcome, detail = "truncated", f"cut by the token limit; {detail}"
    entry = {"name": task.name, "outcome": outcome, "detail": detail, "method": found.method, "finish_reason": reply.finish_reason,
             "tokens": reply.tokens, "answer": reply.text[:KEPT_LETTERS], "digest": digest(reply.text)}  # fmt: skip
    if reply.reasoning:
        entry["reasoning_letters"] = len(reply.reasoning)
    if reply.asked_again:
        entry["asked_again"] = True
    return entry


def digest(text: str) -> str:
    """A short name for a whole answer."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def judge_all(replies: Sequence[tuple[Task, Reply]], sandbox: Sandbox) -> list[dict[str, Any]]:
    """All entries, a few programs at a time. What the clock stopped is tried again alone: its neighbours may have slowed it."""
    late: list[int] = []

    def one(at: int) -> dict[str, Any]:
        task, reply = replies[at]
        return judge(reply, task, sandbox, lambda: late.append(at))

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        entries = list(pool.map(one, range(len(replies))))
    for at in late:
        entries[at] = judge(replies[at][1], replies[at][0], sandbox)
    return entries


def choose(unsandboxed: bool = False, kinds: Iterable[str] | None = None, **limits: Any) -> Sandbox:
    """The first sandbox that passes a trial: a right program passes in it and a wrong one does not. Raises RefusedError."""
    tried = []
    for kind in [*(candidates() if kinds is None else kinds), *(["none"] if unsandboxed else [])]:
        sandbox = Sandbox(kind, interpreter(), **limits)
        try:
            outcome, detail, _ = run_tests(ORIGIN[0].reference, ORIGIN[0], sandbox)
        except (OSError, ValueError) as error:
            outcome, detail = "error", str(error)
        if outcome == "passed":
            return sandbox
        tried.append(f"{kind}: {detail}")
    seen = f" ({'; '.join(tried)})" if tried else ""
    raise RefusedError(f"generated code is not run, since no sandbox works here{seen}: install bubblewrap, run as root on a host with "
                       "systemd, or allow it without one")  # fmt: skip


# Each program of our own in a name space of its own, all in one start of the sandbox.
_OWN_PROGRAMS = """\
programs = {programs!r}
spaces = {{}}
def check(name, arguments):
    if name not in spaces:
        spaces[name] = {{"__name__": "solution"}}
        exec(programs[name], spaces[name])
    try:
        return ["value", spaces[name][name](*arguments)]
    except Exception as error:
        return ["raised", repr(error)]
"""


def self_check(sandbox: Sandbox, tasks: Sequence[Task] = ORIGIN) -> list[str]:
    """What is wrong with the harness itself: through extraction and sandbox each reference must pass and each wrong program must not."""
    wrong = []
    for which, passes in (("reference", True), ("wrong", False)):
        programs = {task.name: extract(f"```python\n{getattr(task, which)}```", task.name).code or "" for task in tasks}
        calls = [[task.name, list(arguments)] for task in tasks for arguments, _ in task.cases]
        answer = sandbox.run(_OWN_PROGRAMS.format(programs=programs), "check", calls)
        if answer.found is None or len(answer.found) != len(calls):
            return [f"its own programs do not run here: {answer.broken or answer.state}"]
        start = 0
        for task in tasks:
            told, start = answer.found[start : start + len(task.cases)], start + len(task.cases)
            passed = all(kind == "value" and same(said, ["value", wanted]) for (kind, said), (_, wanted) in zip(told, task.cases))
            if passed is not passes:
                wrong.append(f"{task.name}: a program that must {'pass' if passes else 'fail'} does not")
    return wrong


def totals(tasks: Sequence[Mapping[str, Any]], sandbox: str) -> dict[str, Any]:
    """The section `coding` of a result file."""
    count = {outcome: sum(one["outcome"] == outcome for one in tasks) for outcome in ("passed", "truncated")}
    return {"passed": count["passed"], "truncated": count["truncated"], "asked_again": sum(bool(one.get("asked_again")) for one in tasks),
            "total": len(tasks), "sandbox": sandbox, "tasks": list(tasks)}  # fmt: skip
