"""Read the points that the command line asks, on the controller; what is wrong is one sentence, before any host changes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.parsing.splitter import parse_kv
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree import dialects, engine, plan, points, results, schedule  # noqa: E402

ERRORS = (points.PointError, engine.EngineError, dialects.DialectError, results.ResultError)


class ActionModule(ActionBase):
    """See library/sweep_points.py for the options."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        asked = self._task.args
        table_of = asked.get("dialects") or {}
        try:
            table = dialects.merged(table_of)
            if "points" in asked:
                found = [points.Point.from_dict(one, table) for one in asked["points"]]
            else:
                found = self._read(str(asked["play"]), list(asked.get("options") or []), asked.get("defaults") or {}, table)
            added = _controls(asked.get("controls"), found, table)
            result = {"changed": False, "points": [one.as_dict() for one in [*found, *added]], "controls": [one.name for one in added]}
            if "engine" in asked:
                runs = engine.collapse(found, engine.Server.from_dict(asked["engine"]), table)
                folder = str(asked.get("results") or "")
                result["runs"] = [_run(run, folder, asked.get("matrix") or {}) for run in runs]
                result["expected"] = plan.expected(Path(folder).parent.parent, Path(folder).name) if folder else {}
        except ERRORS as error:
            raise AnsibleActionFail(str(error)) from None
        return result

    def _read(self, play: str, options: list[str], defaults: Any, table: dict[str, Any]) -> list[points.Point]:
        """The points of this run's extra variables, after each of their names was found to be known."""
        for given in context.CLIARGS.get("extra_vars") or ():
            refuse_stray_words(str(given))
        extra = {str(name): self._templar.template(value) for name, value in load_extra_vars(self._loader).items()}
        allowed = [str(name) for name in extra.pop("allowed_vars", [])]
        known = [*points.SPEC_KEYS, "point_defaults", "allowed_vars", *options, *role_options()]
        points.check_names([name for name in extra if name not in allowed and not name.startswith("ansible_")], known, play)
        return points.expand({key: extra[key] for key in points.SPEC_KEYS if key in extra}, defaults, table)


def _controls(wanted: Any, asked: list[points.Point], table: dict[str, Any]) -> list[points.Point]:
    """The control points to add: true or false, or `auto` for sweeps of more than one point."""
    if wanted is None:
        return []
    word = str(wanted).strip().lower()
    if word not in ("auto", "true", "false", "yes", "no"):
        raise points.PointError(f"sweep_controls is {wanted!r}: true, false or auto is wanted")
    return points.controls(asked, table) if word in ("true", "yes") or (word == "auto" and len(asked) > 1) else []


def _run(run: dict[str, Any], folder: str, matrix: dict[str, Any]) -> dict[str, Any]:
    """A run in plain types; `done` when `folder` has its result already, of this very configuration and matrix."""
    point, launch = run["point"].as_dict(), run["launch"].as_dict()
    path = Path(folder) / f"{point['name']}.json"
    record = results.read(path) if folder and path.exists() else {}
    done = record.get("status") == "ok" and not schedule.reusable(record, launch["config_id"], "", matrix)
    return {"point": point, "aliases": run["aliases"], "launch": launch, "done": done}


def role_options() -> list[str]:
    """The public variables of this project's roles, so that a misspelt one is refused too."""
    names: set[str] = set()
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        for spec in yaml.safe_load(path.read_text())["argument_specs"].values():
            names |= set(spec.get("options") or {})
    return sorted(names)


def refuse_stray_words(given: str) -> None:
    """Raise PointError for what Ansible passes over in silence, as in -e 'budget: 12'."""
    text = given.strip()
    if not text or text[0] in "@[{":
        return
    stray = str(parse_kv(text).get("_raw_params", "")).strip()
    if stray:
        hint = f", or YAML in braces as in -e '{{{stray}}}'" if ":" in stray else ""
        raise points.PointError(f"-e {text!r} sets nothing by its part {stray!r}: write name=value{hint}")
