"""One host of the scenario, as site.yml left it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "module_utils")]

from remotehost import Remote  # noqa: E402  needs the path above


@pytest.fixture(scope="session")
def host() -> Iterator[Remote]:
    one = Remote("install", os.environ.get("INSTALL_HOST", "gpu01"))
    one.push()
    yield one
    one.close()
