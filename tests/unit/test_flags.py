"""A build is asked for its flags by its own interpreter; what argparse would refuse is refused, and with the right spelling."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree import flags, flags_probe
from ddtree.flags import Build, BuildError, check

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "roles" / "simulated_host" / "files" / "site"
DDTREE = ["--model-path", "/m", "--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "12"]


def environment(site: Path, state: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "DDTREE_SIM_STATE": str(state), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def asked(tmp_path: Path) -> Build:
    return Build(sys.executable, environment(SITE, tmp_path), cache=str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return Build(sys.executable, environment(SITE, tmp_path_factory.mktemp("state"))).describe()


def refused(arguments: list[str], build: dict[str, Any]) -> str:
    found = check(arguments, build)
    return flags.sentence(found, build, "/p") if found else ""


# -- the module


def module(capsys: pytest.CaptureFixture[str], tmp_path: Path, **more: Any) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("sglang_flags_under_test", ROOT / "library" / "sglang_flags.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    given = {"python": sys.executable, "env": environment(SITE, tmp_path), "cache": str(tmp_path / "cache"), **more}
    with patch_module_args(given), pytest.raises(SystemExit):
        found.main()
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


def test_many_command_lines_are_told_apart_and_their_builds_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, broken = tmp_path / "old", tmp_path / "broken"
    package(old, "--old-flag")
    broken.mkdir()
    asked: list[str] = []
    one = importlib.import_module("ansible.module_utils.ddtree.flags").Build  # as the module has it
    ask = one._ask

    def noted(build: Build, question: dict[str, Any]) -> Any:
        asked.append(question["question"])
        return ask(build, question)

    monkeypatch.setattr(one, "_ask", noted)
    launches = {
        "good": {"asked": DDTREE, "env": {"A": 1}},
        "wrong": {"asked": [*DDTREE, "--no-such-flag", "1"], "env": {"A": 2}},
        "old": {"asked": ["--old-flag", "1"], "env": {"PYTHONPATH": str(old)}},
        "broken": {"asked": DDTREE, "env": {"PYTHONPATH": str(broken)}},
    }
    found = module(capsys, tmp_path, launches=launches)
    assert not found.get("failed") and found["version"] == "0.5.23+ddtree.sim" and found["cached"] is False
    assert {name: one["cause"] for name, one in found["refused"].items()} == {"wrong": "bad_flags", "broken": "broken_build"}
    assert "--no-such-flag" in found["refused"]["wrong"]["msg"] and found["refused"]["wrong"]["problems"][0]["flag"] == "--no-such-flag"
    assert asked == ["where", "describe"] * 2 + ["where"], "a build is asked once for all its points"
    alone = module(capsys, tmp_path, launches={"wrong": launches["wrong"]})
    assert alone["failed"] and {key: alone[key] for key in found["refused"]["wrong"]} == found["refused"]["wrong"]
    assert module(capsys, tmp_path, argv=launches["wrong"]["asked"])["msg"] == alone["msg"]


# -- the build is asked


def test_a_build_tells_its_flags_algorithms_and_packages(simulated: dict[str, Any]) -> None:
    recorded = (SITE / "sglang" / "sim" / "flags.txt").read_text().splitlines()
    assert {line.split()[0].rstrip(",") for line in recorded} < set(simulated["flags"])
    assert {"DFLASH", "DDTREE", "EAGLE3"} <= set(simulated["algorithms"])
    assert simulated["version"] == "0.5.23+ddtree.sim" and simulated["packages"]["pyyaml"]
    assert refused(DDTREE, simulated) == ""


def test_an_answer_is_kept_until_the_build_changes(tmp_path: Path) -> None:
    site = tmp_path / "site"
    package(site, "--old-flag")
    for changed, flag, cached in ((False, "--old-flag", False), (False, "--old-flag", True), (True, "--new-flag", False)):
        if changed:
            package(site, flag)
        build = Build(sys.executable, environment(site, tmp_path), cache=str(tmp_path / "cache"))
        assert flag in build.describe(["ONE"])["flags"]
        assert build.cached == cached


def test_an_algorithm_that_no_list_names_is_asked_for(tmp_path: Path) -> None:
    """Plug-ins register names that no enumeration has."""
    site = tmp_path / "site"
    package(site, "--speculative-algorithm", resolves="['PLUGGED']")
    argv = ["--speculative-algorithm", "plugged"]
    for _ in range(2):
        found = Build(sys.executable, environment(site, tmp_path), cache=str(tmp_path / "cache")).describe(flags.algorithms_of(argv))
        assert not check(argv, found)
    assert "it has no algorithm 'PLUGED', only ONE, PLUGGED, did you mean PLUGGED?" in refused(["--speculative-algorithm", "PLUGED"], found)


def test_at_most_a_few_answers_are_kept(tmp_path: Path) -> None:
    for number in range(12):
        flags._keep(tmp_path / f"build-{number}.json", {})
        os.utime(tmp_path / f"build-{number}.json", (number, number))
    assert sorted(int(path.stem[6:]) for path in tmp_path.iterdir()) == list(range(4, 12))


def test_a_torn_answer_is_asked_for_again(asked: Build, tmp_path: Path) -> None:
    asked.describe()
    kept = next((tmp_path / "cache").iterdir())
    kept.write_text(kept.read_text()[:100])
    assert asked.describe()["flags"] and not asked.cached


def package(site: Path, flag: str, server_args: str = "", resolves: str = "[]") -> None:
    """A package sglang with one flag and the algorithm ONE."""
    for name, text in {
        "__init__.py": "",
        "srt/__init__.py": "print('noise that is no answer')",
        "srt/server_args.py": server_args or f"class ServerArgs:\n    add_cli_args = staticmethod(lambda p: p.add_argument('{flag}'))\n",
        "srt/speculative/__init__.py": "",
        "srt/speculative/spec_info.py": f"""
import enum
class SpeculativeAlgorithm(enum.Enum):
    ONE = 1
    @classmethod
    def from_string(cls, name):
        if name not in {resolves}: raise ValueError(name)
""",
    }.items():
        path = site / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("server_args", "said"),
    [
        ("from sgl_kernel import nothing", "cannot be imported: ModuleNotFoundError: No module named 'sgl_kernel'"),
        ("raise SystemExit('no kernel for\\nthis GPU')", "cannot be imported: SystemExit: no kernel for this GPU"),
        ("class ServerArgs: pass", "cannot list its flags: AttributeError"),
        ("import os; os._exit(3)", "ended with 3 while its SGLang was asked"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with -11 while its SGLang was asked"),
    ],
)
def test_a_broken_build_is_one_sentence(server_args: str, said: str, tmp_path: Path) -> None:
    package(tmp_path / "site", "", server_args)
    with pytest.raises(BuildError) as caught:
        Build(sys.executable, environment(tmp_path / "site", tmp_path), cache=str(tmp_path / "cache")).describe()
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists(), "a failure is no answer to keep"


def test_a_build_that_hangs_is_given_up(tmp_path: Path) -> None:
    package(tmp_path / "site", "", "import time; time.sleep(60)")
    with pytest.raises(BuildError, match=r"gave no answer within 1 s"):
        Build(sys.executable, environment(tmp_path / "site", tmp_path), timeout=1).describe()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    for python, said in (("/no/python", "/no/python cannot be run: No such file"), (sys.executable, "has no package sglang")):
        with pytest.raises(BuildError, match=said):
            Build(python, environment(tmp_path, tmp_path)).describe()
    with pytest.raises(BuildError, match="there is no user no-such-user"):
        Build(sys.executable, {}, user="no-such-user")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_it_asks_as_the_engines_user(tmp_path: Path) -> None:
    package(tmp_path / "site", "", "import os; raise SystemExit(f'I am {os.getuid()} {os.getgid()} {os.getgroups()}')")
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    with pytest.raises(BuildError, match=r"I am 65534 65534 \[65534\]"):
        Build("/usr/bin/python3", environment(tmp_path / "site", tmp_path), user="nobody").describe()


def test_a_password_in_a_source_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    source = json.dumps({"url": "https://me:hunter2@git.example/sglang.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}})
    found = SimpleNamespace(metadata={"Name": "SGLang"}, version="0.5.23", read_text=lambda _: source)
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [found])
    assert flags_probe.packages() == {"sglang": "0.5.23 @ https://git.example/sglang.git@ab12"}


# -- a command line is checked


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        ("--speculative-dflash-draft-window-size 2048", "--speculative-draft-window-size"),
        ("--reasoning_parser kimi_k2", "--reasoning-parser"),
        ("--enable_metrics", "--enable-metrics"),
        ("--mem-fraction 0.8", "--mem-fraction-static"),
        ("--speculative-draft-window 2048", "--speculative-draft-window-size"),
        ("--max-runing-requests 64", "--max-running-requests"),
        ("--attention-backnd triton", "--attention-backend"),
        ("--attention-backend tritn", "triton"),
        ("--speculative-algorithm DDTRE", "DDTREE"),
        ("--flux-capacitor on", ""),
    ],
)
def test_the_likely_spelling_is_told(words: str, nearest: str, simulated: dict[str, Any]) -> None:
    found = check(["--model-path", "/m", *words.split()], simulated)
    assert [one.nearest for one in found] == [nearest]
    assert nearest in found[0].message


def test_a_stock_build_refuses_ddtree_by_flag_and_by_name(simulated: dict[str, Any]) -> None:
    known = {name: one for name, one in simulated["flags"].items() if "ddtree" not in name}
    stock = {**simulated, "flags": known, "algorithms": [one for one in simulated["algorithms"] if one != "DDTREE"]}
    said = refused(DDTREE, stock)
    assert "it has no algorithm 'DDTREE', only DFLASH," in said and "it has no flag --speculative-ddtree-budget" in said
    assert "did you mean --" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "3x"], "--port '3x' is no whole number"),
        (["--mem-fraction-static", "much"], "--mem-fraction-static 'much' is no number"),
        (["--port"], "--port needs a value"),
        (["--port", "--enable-metrics"], "--port needs a value"),
        (["--enable-metrics=yes"], "--enable-metrics takes no value, and 'yes' is given"),
        (["--enable-metrics", "yes"], "'yes' belongs to no flag"),
        (["stray"], "'stray' belongs to no flag"),
        (["--port", "-1"], ""),
        (["--json-model-override-args", '{"a": "b c"}'], ""),
        (['--json-model-override-args={"a": "b c"}'], ""),
        (["--cuda-graph-bs", "1", "2", "4"], ""),
    ],
)
def test_values_are_checked(words: list[str], said: str, simulated: dict[str, Any]) -> None:
    found = refused(["--model-path", "/m", *words], simulated)
    assert said in found and bool(said) == bool(found)


def test_a_missing_model_is_told(simulated: dict[str, Any]) -> None:
    assert "--model-path is missing" in refused(["--port", "1"], simulated)
    assert not refused(["--model", "/m"], simulated), "an alias will do"


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    result.add_argument("--text")
    result.add_argument("--number", type=int)
    result.add_argument("--share", type=float)
    result.add_argument("--choice", choices=["a", "b"])
    result.add_argument("--many", nargs="+")
    result.add_argument("--any", nargs="*")
    result.add_argument("--maybe", nargs="?")
    result.add_argument("--two", nargs=2)
    result.add_argument("--on", action="store_true")
    result.add_argument("--either", action=argparse.BooleanOptionalAction)
    return result


WORDS = ["--text", "--number", "--share", "--choice", "--many", "--any", "--maybe", "--two", "--on", "--either", "--no-either", "--texts",
         "--text=x y", "--number=7", "--on=1", "--choice=c", "a", "b", "7", "-7", "-.5", "1.5", "x y", "-x y", '{"a": 1}', ""]  # fmt: skip


@settings(max_examples=600)
@given(st.lists(st.sampled_from(WORDS), max_size=7))
def test_what_argparse_takes_is_taken_and_what_it_refuses_is_refused(words: list[str]) -> None:
    real = parser()
    build = {"flags": {name: flags_probe.option(one) for one in real._actions for name in one.option_strings}, "algorithms": []}
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            real.parse_args(words)
        except SystemExit:
            taken = False
        else:
            taken = True
    assert (not check(words, build)) == taken
