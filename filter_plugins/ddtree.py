"""Names of the package's functions for playbooks; an error is its sentence and nothing else."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

# Ansible's setting module_utils is for modules; a plugin finds the package by its own place in the tree.
sys.path.append(str(Path(__file__).resolve().parent.parent / "module_utils"))
_NAMES = ("dialects", "engine", "matrix", "plan", "points", "quoting")
dialects, engine, matrix, plan, points, quoting = (importlib.import_module(f"ddtree.{name}") for name in _NAMES)


def _sentences(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (points.PointError, engine.EngineError, quoting.QuoteError, dialects.DialectError, matrix.MatrixError) as error:
            raise AnsibleFilterError(str(error)) from None

    return wrapped


def ddtree_points(
    spec: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, own: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """[{name, dialect, budget, topk, window, tp, extra_args, extra_env}], distinct, in the order asked."""
    return [point.as_dict() for point in points.expand(spec, defaults or {}, dialects.merged(own))]


def ddtree_launch(point: Mapping[str, Any], server: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """{argv, env, config_id, derived, expect, log_proofs, warnings, secret_flags, key}"""
    table = dialects.merged(own)
    return engine.render(points.Point.from_dict(point, table), engine.Server.from_dict(server), table).as_dict()


def ddtree_collapse(
    asked: list[Mapping[str, Any]], server: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """[{point, aliases, launch}], one entry for each engine configuration."""
    table = dialects.merged(own)
    found = engine.collapse([points.Point.from_dict(one, table) for one in asked], engine.Server.from_dict(server), table)
    return [{"point": one["point"].as_dict(), "aliases": one["aliases"], "launch": one["launch"].as_dict()} for one in found]


def ddtree_block_size(config: Any) -> int:
    """The block size that a drafter's config.json states, 0 where it states none."""
    return engine.block_size(str(config))


def ddtree_plan(hosts: Mapping[str, Any], share: str, controls: list[str], leave: str) -> list[str]:
    """A sweep's plan in lines: points, what collapses, what is done, expected wall time."""
    return plan.lines(hosts, str(share), [str(one) for one in controls], str(leave))


def ddtree_tune_plan(hosts: Mapping[str, Any], asked: Mapping[str, Any], controls: list[str], leave: str) -> list[str]:
    """A tuning's plan in lines; settings that cannot be are refused in one sentence."""
    return plan.tune_lines(hosts, asked, [str(one) for one in controls], str(leave))


def ddtree_tune_refusal(hosts: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """The sentence that says why these settings cannot be tuned with, or ''."""
    try:
        plan.tune_lines(hosts, asked, [], "best")
    except points.PointError as error:
        return str(error)
    return ""


def ddtree_cells(contexts: list[int], concurrencies: list[int], rates: list[float], rate_most: int) -> list[dict[str, Any]]:
    """[{context, concurrency}, ..., {context, concurrency, rate}], in the order to measure them."""
    return matrix.cells([int(one) for one in contexts], [int(one) for one in concurrencies], [float(one) for one in rates], int(rate_most))


def ddtree_env_line(value: Any, name: str) -> str:
    """One line of an EnvironmentFile."""
    return quoting.env_line(str(name), str(value))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "ddtree_points": _sentences(ddtree_points),
            "ddtree_launch": _sentences(ddtree_launch),
            "ddtree_collapse": _sentences(ddtree_collapse),
            "ddtree_block_size": _sentences(ddtree_block_size),
            "ddtree_cells": _sentences(ddtree_cells),
            "ddtree_plan": _sentences(ddtree_plan),
            "ddtree_systemd_exec": _sentences(quoting.systemd_exec),
            "ddtree_tune_plan": _sentences(ddtree_tune_plan),
            "ddtree_tune_refusal": ddtree_tune_refusal,
            "ddtree_env_line": _sentences(ddtree_env_line),
            "ddtree_supervisor_command": _sentences(quoting.supervisor_command),
            "ddtree_supervisor_env": _sentences(quoting.supervisor_env),
        }
