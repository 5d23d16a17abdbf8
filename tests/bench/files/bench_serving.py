"""sglang.bench_serving without what only serving needs: sglang.srt and torch are replaced by stand-ins, the bench's own code is real.

bench_serving.py OPTIONS...
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any, ClassVar


class _Any(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class StandIn(metaclass=_Any):
    """Anything: every attribute is itself, a call gives its first argument back if that can be called (a decorator), and it is false."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *args: Any, **_: Any) -> Any:
        return args[0] if args and callable(args[0]) else self

    def __bool__(self) -> bool:
        return False


class _Module(types.ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name == "sglang.srt" or name.startswith(("sglang.srt.", "sglang.lang")) or name.split(".")[0] in ("torch", "datasets"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "sglang.srt.utils.network":
            module.resolve_base_url = lambda url, *_: url  # type: ignore[attr-defined]


def main() -> None:
    found = importlib.util.find_spec("sglang")
    assert found is not None and found.submodule_search_locations
    package = types.ModuleType("sglang")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["sglang"] = package
    sys.meta_path.insert(0, _Finder())
    importlib.import_module("sglang.benchmark.serving").cli_main()


if __name__ == "__main__":
    main()
