"""What an installed SGLang says of itself, asked by its own interpreter: flags, algorithms, packages. No GPU, no model.

A program of its own: flags.py hands its text to that interpreter, with the question as JSON on standard input. The answer is
JSON on standard output, whatever else the imports print there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from typing import Any


def where() -> dict[str, Any]:
    """Which build this interpreter would start: its folder, and a fingerprint of its files and of the packages beside it."""
    from importlib.util import find_spec

    spec = find_spec("sglang")
    folders = [str(one) for one in (spec.submodule_search_locations or [])] if spec else []
    if not folders:
        return {"error": "ModuleNotFoundError: No module named 'sglang'", "step": "find"}
    seen = []
    for folder in sorted(folders):
        for parent, _, names in os.walk(folder):
            for name in names:
                if name.endswith(".py"):
                    info = os.stat(os.path.join(parent, name))
                    seen.append([os.path.join(parent, name), info.st_size, info.st_mtime_ns])
        beside = os.path.dirname(folder)
        seen += [[beside, name, 0] for name in os.listdir(beside) if name.endswith((".dist-info", ".egg-info", ".pth"))]
    digest = hashlib.sha256(json.dumps([sys.version, sorted(seen)]).encode()).hexdigest()
    return {"folder": folders[0], "python": sys.version.split()[0], "fingerprint": digest}


def describe(algorithms: list[str]) -> dict[str, Any]:
    """Flags, the names of the algorithms and which of those asked resolve, and the version of every package."""
    found: dict[str, Any] = {}
    step = "import"
    try:
        import argparse
        from importlib import import_module

        with contextlib.suppress(ModuleNotFoundError):  # plug-ins may add algorithms; older builds have none
            import_module("sglang.srt.plugins").load_plugins()
        server_args = import_module("sglang.srt.server_args").ServerArgs
        step = "flags"
        parser = argparse.ArgumentParser()
        server_args.add_cli_args(parser)
        found["flags"] = {name: option(action) for action in parser._actions for name in action.option_strings}
        step = "algorithms"
        algorithm = import_module("sglang.srt.speculative.spec_info").SpeculativeAlgorithm
        known = set(getattr(algorithm, "__members__", {}))
        for name in algorithms:
            with contextlib.suppress(ValueError, KeyError):
                algorithm.from_string(name)
                known.add(name.upper())
        found["algorithms"] = sorted(known)
    except BaseException as error:  # a build that is broken may end in any way, SystemExit included
        import traceback

        tail = traceback.format_exc().rstrip().splitlines()[-8:]
        return {"error": f"{type(error).__name__}: {error}", "step": step, "tail": tail}
    found["packages"] = packages()
    found["version"] = found["packages"].get("sglang", "").partition(" @ ")[0] or str(
        getattr(sys.modules["sglang"], "__version__", "unknown")
    )
    return found


def option(action: Any) -> dict[str, Any]:
    """One option as argparse holds it, in plain types."""
    kind = getattr(action.type, "__name__", "")
    choices = None if action.choices is None else [str(one) for one in action.choices]
    return {
        "nargs": 1 if action.nargs is None else action.nargs,
        "type": kind if kind in ("int", "float") else "str",
        "choices": choices,
        "required": bool(action.required),
        "dest": str(action.dest),
    }


def packages() -> dict[str, str]:
    """Name to version of every distribution of this interpreter; a direct source, such as a commit, after an `@`."""
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    for one in distributions():
        name = one.metadata["Name"]
        if not name or name.lower() in found:
            continue
        source = json.loads(one.read_text("direct_url.json") or "{}")
        commit = (source.get("vcs_info") or {}).get("commit_id")
        url = re.sub(r"//[^/@]*@", "//", str(source.get("url", "")))  # a source may carry a password
        found[name.lower()] = f"{one.version} @ {url}@{commit}" if commit else one.version
    return dict(sorted(found.items()))


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # what imports print is no answer
    asked = json.load(sys.stdin)
    found = where() if asked["question"] == "where" else describe(asked["algorithms"])
    with os.fdopen(answers, "w") as stream:
        json.dump(found, stream)


if __name__ == "__main__":
    main()
