"""The command line of a released SGLang, parsed by its own argument parser.

As a program: `enginearguments.py FOLDER` reads {"flags": {...}, "argvs": [[...]]} from standard input, imports the ServerArgs of the SGLang
unpacked in FOLDER, adds the flags, parses each argv and prints {"options": [...], "parsed": [{"values": {...}} or {"error": "..."}]}. What
ServerArgs imports beyond the definitions of its arguments (torch and kernels) is replaced by stand-ins, so neither is needed.
"""

from __future__ import annotations

import abc
import argparse
import contextlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "sglang"
# What makes the parser; any other module of the package is a stand-in.
REAL = (
    "sglang.srt.server_args",
    "sglang.srt.arg_groups",
    "sglang.srt.environ",
    "sglang.srt.model_executor.cuda_graph_config",
    "sglang.srt.parser.reasoning_parser_names",
    "sglang.srt.function_call.parser_names",
    "sglang.kernels.ops.kv_canary.consts",
)
MSGSPEC = "msgspec>=0.19,<1"


def unpacked(version: str) -> Path:
    """The sources of that release, downloaded once. Raises RuntimeError with what to do when no package index answers."""
    folder = CACHE / version
    if not (folder / "whole").exists():
        wheels = CACHE / "wheels"
        wheels.mkdir(parents=True, exist_ok=True)
        platforms = ["manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any"]
        _pip(
            "download", "--no-deps", "--only-binary=:all:", "--python-version=3.12", "--implementation=cp", "--abi=cp312", "--abi=abi3",
            "--abi=none", *(f"--platform={one}" for one in platforms), f"--find-links={wheels}",
            "--dest", str(wheels), f"sglang=={version}",
        )  # fmt: skip
        with zipfile.ZipFile(next(wheels.glob(f"sglang-{version}-*.whl"))) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.endswith(".py")])
        (folder / "whole").touch()
    if not (CACHE / "lib" / "msgspec").exists():
        _pip("install", "--only-binary=:all:", "--target", str(CACHE / "lib"), MSGSPEC)
    return folder


def parsed(version: str, argvs: list[list[str]], flags: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the parser of that release makes of each argv, with `flags` (option to type, choices or action) added to it."""
    done = subprocess.run(
        [sys.executable, __file__, str(unpacked(version))],
        input=json.dumps({"flags": flags, "argvs": argvs}),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CACHE / "lib"), "SGLANG_USE_CPU_ENGINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _pip(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, "--quiet", "--disable-pip-version-check"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(
            f"pip {words[0]} {words[-1]} failed, so no real argument parser can be asked; let pip reach a package index, or put the "
            f"wheel into {CACHE / 'wheels'}: {done.stderr.strip().splitlines()[-1:]}"
        )


class Kind(abc.ABCMeta):
    """A class that stands in for anything: any attribute, empty as a list, false."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __iter__(cls) -> Any:
        return iter(())

    def __bool__(cls) -> bool:
        return False

    def __add__(cls, other: Any) -> Any:
        return other

    def __or__(cls, other: Any) -> Any:
        return cls

    def __getitem__(cls, key: Any) -> Any:
        return cls

    __radd__, __ror__ = __add__, __or__


class Anything(metaclass=Kind):
    """Its instance, which as a decorator leaves what it decorates."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init_subclass__(cls, **kwargs: Any) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args and callable(args[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __iter__(self) -> Any:
        return iter(())

    def __bool__(self) -> bool:
        return False


class StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for each module that is neither REAL nor installed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.split(".")[0]
        if top == "sglang":
            if any(name == one or name.startswith(one + ".") for one in REAL):
                return None
        elif top in sys.stdlib_module_names or importlib.machinery.PathFinder.find_spec(top):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = StandIn(spec.name)
        module.__path__ = [os.path.join(self.folder, *spec.name.split("."))]
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    sys.meta_path.insert(0, Finder(sys.argv[1]))
    asked = json.load(sys.stdin)
    server_args = importlib.import_module("sglang.srt.server_args").ServerArgs
    parser = argparse.ArgumentParser(prog="sglang serve")
    server_args.add_cli_args(parser)
    for flag, how in asked["flags"].items():
        parser.add_argument(flag, **{**how, **({"type": {"int": int, "float": float}[how["type"]]} if "type" in how else {})})
    answers: list[dict[str, Any]] = []
    for argv in asked["argvs"]:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                values = vars(parser.parse_args(argv))
            answers.append({"values": {key: one for key, one in values.items() if isinstance(one, (str, int, float, type(None)))}})
        except SystemExit:
            answers.append({"error": said.getvalue().strip().splitlines()[-1]})
    print(json.dumps({"options": sorted(parser._option_string_actions), "parsed": answers}))


if __name__ == "__main__":
    main()
