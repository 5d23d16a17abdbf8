"""Five hosts that serve, in a router of their own, for each file of the scenario's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "module_utils")]

from rolling import Fleet  # noqa: E402  needs the path above


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    one = Fleet()
    yield one
    one.close()
