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
dialects, engine, points, quoting = (
    importlib.import_module(f"ddtree.{name}") for name in ("dialects", "engine", "points", "quoting")
)


def _sentences(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (points.PointError, engine.EngineError, quoting.QuoteError, dialects.DialectError) as error:
            raise AnsibleFilterError(str(error)) from None

    return wrapped


def ddtree_points(
    spec: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, own: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """[{name, dialect, budget, topk, window, tp, extra_args, extra_env}], distinct, in the order asked."""
    return [point.as_dict() for point in points.expand(spec, defaults or {}, dialects.merged(own))]


def ddtree_launch(
    point: Mapping[str, Any], server: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """{argv, env, config_id, derived, expect, log_proofs, warnings, secret_flags, key}"""
    table = dialects.merged(own)
    return engine.render(
        points.Point.from_dict(point, table), engine.Server.from_dict(server), table
    ).as_dict()


def ddtree_collapse(
    asked: list[Mapping[str, Any]], server: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """[{point, aliases, launch}], one entry for each engine configuration."""
    table = dialects.merged(own)
    found = engine.collapse(
        [points.Point.from_dict(one, table) for one in asked], engine.Server.from_dict(server), table
    )
    return [
        {"point": one["point"].as_dict(), "aliases": one["aliases"], "launch": one["launch"].as_dict()}
        for one in found
    ]


def ddtree_plan(
    spec: Mapping[str, Any],
    server: Mapping[str, Any],
    own: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    given: list[str] | None = None,
    known: list[str] | None = None,
    stray: list[str] | None = None,
    what: str = "sweep.yml",
) -> dict[str, Any]:
    """{refusal, runs, warnings}: the whole of what was asked, or in `refusal` the one sentence why it is not run.

    `given`, `known` and `stray` are the lookup extra_vars' answers; the keys of spec are known without being listed.
    """
    plan: dict[str, Any] = {"refusal": "", "runs": [], "warnings": []}
    try:
        if stray:
            raise points.PointError(stray[0])
        points.check_names(given or [], [*points.SPEC_KEYS, "allowed_vars", *(known or [])], what)
        runs = ddtree_collapse(ddtree_points(spec, defaults, own), server, own)
    except (points.PointError, engine.EngineError, dialects.DialectError) as error:
        return {**plan, "refusal": str(error)}
    for run in runs:
        plan["warnings"] += [f"{run['point']['name']}: {warning}" for warning in run["launch"]["warnings"]]
        if run["aliases"]:
            plan["warnings"].append(
                f"{run['point']['name']}: the engine makes the same of {', '.join(run['aliases'])}; run once"
            )
    return {**plan, "runs": runs}


def ddtree_check_names(
    given: list[str], known: list[str], what: str = "sweep.yml", allowed: list[str] | None = None
) -> bool:
    """True, or an error that names the first unknown one and the nearest right name."""
    points.check_names(given, [*known, *(allowed or []), "allowed_vars"], what)
    return True


def ddtree_env_line(value: Any, name: str) -> str:
    """One line of an EnvironmentFile."""
    return quoting.env_line(str(name), str(value))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "ddtree_points": _sentences(ddtree_points),
            "ddtree_launch": _sentences(ddtree_launch),
            "ddtree_collapse": _sentences(ddtree_collapse),
            "ddtree_plan": _sentences(ddtree_plan),
            "ddtree_check_names": _sentences(ddtree_check_names),
            "ddtree_systemd_exec": _sentences(quoting.systemd_exec),
            "ddtree_env_line": _sentences(ddtree_env_line),
            "ddtree_supervisor_command": _sentences(quoting.supervisor_command),
            "ddtree_supervisor_env": _sentences(quoting.supervisor_env),
        }
