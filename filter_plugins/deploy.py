"""Names of the package's functions for a rollout."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Ansible's setting module_utils is for modules; a plugin finds the package by its own place in the tree.
sys.path.append(str(Path(__file__).resolve().parent.parent / "module_utils"))
fleet, soak = (importlib.import_module(f"ddtree.{name}") for name in ("fleet", "soak"))


def ddtree_seen(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A host's status, of what its look registered."""
    return dict(fleet.status_of(answer))


def ddtree_soak(found: Mapping[str, Any], last_good: Mapping[str, Any]) -> str:
    """A soak in words."""
    return str(soak.told(found, last_good))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"ddtree_seen": ddtree_seen, "ddtree_soak": ddtree_soak}
