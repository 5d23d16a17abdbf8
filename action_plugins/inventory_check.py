"""Hold the inventory against what the roles take, on the controller, before any host is touched."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

try:  # where a value was set; without it a sentence names the host alone
    from ansible._internal._datatag._tags import Origin
except ImportError:  # pragma: no cover
    Origin = None

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree.inventory import Inventory, Value, mistakes  # noqa: E402
from ddtree.inventory_rules import DEFAULTS, rules  # noqa: E402
from ddtree.inventory_values import Undefined  # noqa: E402

SUFFIXES = ("", ".yml", ".yaml", ".json")
OTHERS = (DEFAULTS, "ansible_host", "ansible_port")  # read by the rules, and no option of a role
ON_THE_CONTROLLER = ("report",)  # roles whose variables only localhost reads


class ActionModule(ActionBase):
    """See library/inventory_check.py for the options."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        asked = self._task.args
        inventory = read(task_vars or {}, load_extra_vars(self._loader), asked.get("required") or [])
        found = list(dict.fromkeys([*mistakes(inventory), *rules(inventory)]))
        if found:
            many = f"{len(found)} mistakes in the inventory:\n  " if len(found) > 1 else ""
            raise AnsibleActionFail(many + "\n  ".join(f"{one}." for one in found))
        return {"changed": False, "hosts": len(inventory.hosts)}


def read(variables: Mapping[str, Any], extra: Iterable[str], required: Iterable[str]) -> Inventory:
    """The inventory of a run, from the variables of one of its tasks and the names of its extra variables."""
    hostvars, options = variables["hostvars"], specified()
    return Inventory(
        hosts={str(host): values(hostvars, str(host), options) for host in variables["groups"]["all"]},
        groups={str(name): [str(host) for host in members] for name, members in variables["groups"].items()},
        options=options,
        localhost=values(hostvars, "localhost", options),
        files=list(variable_files([*variables.get("ansible_inventory_sources", ()), variables.get("playbook_dir", "")])),
        asked=[str(name) for name in extra],
        required=[str(name) for name in required],
        allowed=[str(name) for name in variables.get("allowed_vars") or []],
    )


def specified() -> dict[str, dict[str, Any]]:
    """Every public variable of every role, with its specification."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml")):
        role = path.parent.parent.name
        for spec in yaml.safe_load(path.read_text())["argument_specs"].values():
            for name, option in (spec.get("options") or {}).items():
                found[name] = {**option, "role": role, "controller": role in ON_THE_CONTROLLER}
    return found


def values(hostvars: Any, host: str, options: Mapping[str, Any]) -> dict[str, Value]:
    """A host's variables with their places; only those that are looked into are rendered."""
    try:
        raw = hostvars.raw_get(host)
    except KeyError:
        return {}
    found = {}
    for key, given in raw.items():
        name = str(key)
        if name.startswith("ansible_") and name not in OTHERS:
            continue
        looked_at = name in options or name in OTHERS
        found[name] = Value(rendered(hostvars, host, name) if looked_at else None, place(key) or place(given))
    return found


def rendered(hostvars: Any, host: str, name: str) -> Any:
    try:
        return hostvars[host][name]
    except AnsibleError as error:
        return Undefined(" ".join(str(error.message).split()))


def place(tagged: Any) -> str:
    """file:line of a name or value as it was read, '' where it is not known."""
    origin = Origin.get_tag(tagged) if Origin is not None else None
    if origin is None or not origin.path:
        return "-e" if origin is not None and "-e" in str(origin.description or "") else ""
    path = Path(origin.path)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{origin.line_num}" if origin.line_num else str(shown)


def variable_files(sources: Iterable[str]) -> Iterable[Path]:
    """The files of group_vars and host_vars beside the inventory's sources and the playbook."""
    folders = {Path(one) if Path(one).is_dir() else Path(one).parent for one in sources if one and Path(one).exists()}
    for folder in sorted(folders):
        for path in sorted([*folder.glob("group_vars/*"), *folder.glob("host_vars/*")]):
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                yield path
