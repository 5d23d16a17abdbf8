"""Finding programs in answers, and running hostile ones without harm."""
# ruff: noqa: E501  a program is easier to read in its table's row

from __future__ import annotations

import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.codecheck import TASKS, RefusedError, choose, defines, extract, judge, run_tests, same, self_check, totals
from ddtree.results import OUTCOMES
from ddtree.sandbox import Sandbox, candidates, interpreter

FIB = "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a"
TASK = {task.name: task for task in TASKS}
KINDS = candidates()
F = "```"


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
    [("", "no answer"), ("  \n ", "no answer"), ("<think>def fib(n): return 1", "within the reasoning"), ("I cannot.", "no code"),
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
    if name not in ("no fence", "one line", "closing fence only"):
        assert extract(prose + ANSWERS[name], "fib").code is not None


def test_long_answers_take_no_time() -> None:
    began = time.monotonic()
    for text in ("def fib(n):\n    (" + "x\n" * 20_000, f"{F}\nx\n" * 3000, "`" * 100_000, "(" * 50_000):
        extract(text, "fib")
    assert time.monotonic() - began < 10


def test_values_are_compared_with_their_kind() -> None:
    assert same("true", True) and same("[1, [2]]", [1, [2]]) and same('{"a": 1}', {"a": 1}) and same("2.0", 2)
    assert not any([same("1", True), same("true", 1), same("[1]", [1, 2]), same("{}", []), same("nan,", 1), same("", None)])


# -- the sandboxes ---------------------------------------------------------------------------------------------------------


def test_this_machine_has_a_sandbox() -> None:
    assert {"bwrap", "unshare"} & set(KINDS), "install bubblewrap: programs that hosts must survive are tried out here"


@pytest.fixture(params=KINDS, scope="module")
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return choose(kinds=[request.param], cpu_seconds=2, wall_seconds=5.0)


def test_the_harness_is_right_about_right_and_wrong_programs(sandbox: Sandbox) -> None:
    assert self_check(sandbox) == []


class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.knocked = True  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def door() -> Iterator[http.server.HTTPServer]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Door)
    server.knocked = False  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


RIGHT = FIB + "\n"
HOSTILE: dict[str, tuple[str, tuple[str, ...]]] = {
    "exit 0": ("import os\nos._exit(0)\n" + RIGHT, ("error",)),
    "sys.exit": ("import sys\nsys.exit(0)\n" + RIGHT, ("error",)),
    "exit in a case": ("import os\ndef fib(n):\n    os._exit(0)\n", ("error",)),
    "SystemExit in a case": ("def fib(n):\n    raise SystemExit(0)\n", ("failed",)),
    "kills itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n" + RIGHT, ("error",)),
    "kills everybody": ("import os, signal\ndef fib(n):\n    os.kill(-1, signal.SIGKILL)\n    return 'alive'\n", ("error", "failed")),
    "kills its parent": ("import os, signal\ndef fib(n):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 'alive'\n", ("error", "failed")),
    "fork bomb": ("import os\ndef fib(n):\n    while True:\n        os.fork()\n", ("error", "failed", "timeout")),
    "thread bomb": ("import threading, time\ndef fib(n):\n    while True:\n        threading.Thread(target=time.sleep, args=(60,)).start()\n",
                    ("error", "failed", "timeout")),
    "endless loop": ("def fib(n):\n    while True:\n        pass\n", ("timeout",)),
    "sleeps": ("import time\ndef fib(n):\n    time.sleep(600)\n", ("timeout",)),
    "stops itself": ("import os, signal\ndef fib(n):\n    os.kill(os.getpid(), signal.SIGSTOP)\n", ("timeout", "failed", "error")),
    "ignores signals": ("import signal\nfor one in range(1, 65):\n    try:\n        signal.signal(one, signal.SIG_IGN)\n    except Exception:\n"
                        "        pass\ndef fib(n):\n    while True:\n        pass\n", ("timeout",)),
    "endless output": ("import sys\ndef fib(n):\n    while True:\n        print('x' * 10000)\n", ("timeout",)),
    "floods the answer": ("import os\ndef fib(n):\n    for fd in range(3, 64):\n        try:\n            while True:\n"
                          "                os.write(fd, b'x' * 4096)\n        except OSError:\n            pass\n    return 'flooded'\n",
                          ("error", "failed", "timeout")),
    "forges an answer": ("import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'{\"nonce\": \"\", \"found\": []}')\n"
                         "    except OSError:\n        pass\nos._exit(0)\n" + RIGHT, ("error",)),
    "prints the verdict": ("print('ok fib 12/12 passed')\nimport os\nos._exit(0)\n", ("error",)),
    "reads stdin": ("answer = input()\n" + RIGHT, ("error",)),
    "memory": ("hog = []\ndef fib(n):\n    while True:\n        hog.append(bytearray(1 << 27))\n", ("failed", "error")),
    "deep recursion": ("def fib(n):\n    return fib(n + 1)\n", ("failed", "error")),
    "equal to everything": ("class Same(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n"
                            "def fib(n):\n    return Same(7)\n", ("failed",)),
    "patches the builtins": ("import builtins, json, os, sys\nbuiltins.print = lambda *a, **k: None\njson.dumps = lambda *a: '1'\n"
                             "builtins.len = lambda x: 0\nbuiltins.type = lambda x: None\ndef fib(n):\n    return 1\n", ("failed",)),
    "patches the driver": ("import __main__\n__main__.dumps = lambda *a, **k: '{}'\n__main__.job['calls'].clear()\n__main__.found = []\n"
                           "def fib(n):\n    return 0\n", ("failed", "error")),
    "clears the cases": ("import sys\nframe = sys._getframe(1)\nframe.f_globals['job']['calls'].clear()\ndef fib(n):\n    return 0\n", ("error",)),
    "no function": ("fib = 5\n", ("failed",)),
    "does not return JSON": ("def fib(n):\n    return {1, 2}\n", ("failed",)),
    "returns itself": ("def fib(n):\n    x = []\n    x.append(x)\n    return x\n", ("failed", "error")),
    "raises what cannot be shown": ("class Odd(BaseException):\n    def __str__(self):\n        raise self\ndef fib(n):\n    raise Odd()\n", ("failed",)),
    "returns much": ("def fib(n):\n    return 'x' * 1_000_000\n", ("failed",)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_program_passes(sandbox: Sandbox, name: str) -> None:
    code, outcomes = HOSTILE[name]
    began = time.monotonic()
    outcome, detail = run_tests(code, TASK["fib"], sandbox)
    assert outcome in outcomes and outcome != "passed", detail
    assert detail and time.monotonic() - began < 12


def test_the_host_is_as_it_was(sandbox: Sandbox, door: http.server.HTTPServer, tmp_path: Path) -> None:
    """A program that tries each way out tells what it got: nothing."""
    mark = f"ddtree-escape-{os.getpid()}"
    secret = tmp_path / "secret"
    secret.write_text("the key")
    code = f"""
import os, socket, subprocess, sys
def attempt(what):
    try:
        return str(what())[:80]
    except BaseException as error:
        return "no: " + type(error).__name__
def write(path):
    with open(path, "w") as out:
        out.write("here")
    return "wrote"
def fib(n):
    subprocess.Popen(["sleep", "61234"]) if n == 0 else None
    if n:
        return 0
    return {{
        "passwd": attempt(lambda: open("/etc/passwd").read()), "secret": attempt(lambda: open({str(secret)!r}).read()),
        "root": attempt(lambda: os.listdir("/root")), "home": attempt(lambda: os.listdir("/home")),
        "usr": attempt(lambda: write("/usr/{mark}")), "top": attempt(lambda: write("/{mark}")), "tmp": attempt(lambda: write("/tmp/{mark}")),
        "network": attempt(lambda: socket.create_connection(("127.0.0.1", {door.server_address[1]}), 1)),
        "processes": sum(one.isdigit() for one in os.listdir("/proc")),
        "environment": dict(os.environ), "caps": attempt(lambda: [l for l in open("/proc/self/status") if l.startswith("CapEff")]),
        "mount": attempt(lambda: subprocess.run(["mount", "-t", "tmpfs", "x", "/usr"], check=True)),
        "gpu": attempt(lambda: os.listdir("/dev")),
        "files": sorted(os.listdir(".")),
    }}
"""
    answer = sandbox.run(code, "fib", [[0]])
    assert answer.found is not None and answer.found[0][0] == "value", answer
    got = json.loads(answer.found[0][1])
    for way in ("passwd", "secret", "root", "home", "usr", "top", "network", "mount"):
        assert got[way].startswith("no: "), (way, got[way])
    assert got["environment"] == {} and "0000000000000000" in got["caps"] and "nvidia" not in got["gpu"]
    assert got["processes"] < 8 and set(got["files"]) <= {mark}
    assert not door.knocked  # type: ignore[attr-defined]
    assert not [path for path in (f"/usr/{mark}", f"/{mark}", f"/tmp/{mark}") if os.path.exists(path)]
    assert secret.read_text() == "the key"
    time.sleep(0.3)
    assert not [one for one in processes() if b"61234" in one]


def processes() -> list[bytes]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return found


# -- verdicts --------------------------------------------------------------------------------------------------------------


def test_verdicts(sandbox: Sandbox) -> None:
    right, wrong = f"{F}python\n{RIGHT}{F}", f"{F}python\n{TASK['fib'].wrong}{F}"
    cases = [(right, "stop", "passed"), (right, "length", "passed"), (wrong, "stop", "failed"), (wrong, "length", "truncated"),
             ("", "stop", "empty"), ("", "length", "truncated"), ("no code", "stop", "error"), (f"{F}python\ndef fib(n):\n    a, b = ", "length", "truncated"),
             ("<think>well", "length", "truncated")]  # fmt: skip
    got = [judge(answer, TASK["fib"], sandbox, finish)["outcome"] for answer, finish, _ in cases]
    assert got == [outcome for _, _, outcome in cases] and set(got) <= set(OUTCOMES)
    section = totals([judge(right, TASK["fib"], sandbox), judge(wrong, TASK["fib"], sandbox, "length")], sandbox.kind)
    assert (section["passed"], section["truncated"], section["total"], section["sandbox"]) == (1, 1, 2, sandbox.kind)


def test_without_a_sandbox_it_refuses_unless_told() -> None:
    with pytest.raises(RefusedError, match="no sandbox works here: install bubblewrap"):
        choose(kinds=[])
    with pytest.raises(RefusedError, match="gone: gone is no sandbox"):
        choose(kinds=["gone"])
    assert choose(unsandboxed=True, kinds=[]).kind == "none"


def test_the_tasks_are_whole() -> None:
    assert [task.name for task in TASKS] == ["is_palindrome", "fib", "merge_sorted", "word_count", "gcd"]
    for task in TASKS:
        assert len(task.cases) >= 7 and task.name in task.prompt and defines(task.reference, task.name) and defines(task.wrong, task.name)
    assert os.path.exists(interpreter())
