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
    hostvars, options, asked = variables["hostvars"], specified(), [str(name) for name in extra]
    roots = list(folders([*variables.get("ansible_inventory_sources", ()), variables.get("playbook_dir", "")]))

    def given(host: str) -> dict[str, Value]:
        return values(hostvars, host, options, asked, roots)

    return Inventory(
        hosts={str(host): given(str(host)) for host in variables["groups"]["all"]},
        groups={str(name): [str(host) for host in members] for name, members in variables["groups"].items()},
        options=options,
        localhost=given("localhost"),
        files=list(variable_files(roots)),
        asked=asked,
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


def values(hostvars: Any, host: str, options: Mapping[str, Any], asked: list[str], roots: list[Path]) -> dict[str, Value]:
    """A host's variables with their places; only those that are looked into are rendered, and what plays have set is left out."""
    try:
        raw = hostvars.raw_get(host)
    except KeyError:
        return {}
    found = {}
    for key, given in raw.items():
        name, origin = str(key), place(key) or place(given)
        if name.startswith("ansible_") and name not in OTHERS:
            continue
        if name not in asked and origin and not any(Path(origin[0]).is_relative_to(root) for root in roots):
            continue
        looked_at = name in options or name in OTHERS
        found[name] = Value(rendered(hostvars, host, name) if looked_at else None, shown(origin))
    return found


def rendered(hostvars: Any, host: str, name: str) -> Any:
    try:
        return hostvars[host][name]
    except AnsibleError as error:
        return Undefined(" ".join(str(error.message).split()))


def place(tagged: Any) -> tuple[str, int] | None:
    """File and line where a name or value was read, None where that is not known."""
    origin = Origin.get_tag(tagged) if Origin is not None else None
    return (str(origin.path), int(origin.line_num or 0)) if origin is not None and origin.path else None


def shown(origin: tuple[str, int] | None) -> str:
    if origin is None:
        return ""
    path = Path(origin[0])
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{path}:{origin[1]}" if origin[1] else str(path)


def folders(sources: Iterable[str]) -> Iterable[Path]:
    """Where an inventory is read from: the folders of its sources, and the group_vars and host_vars beside the playbook."""
    *inventories, playbooks = sources
    yield from sorted({Path(one) if Path(one).is_dir() else Path(one).parent for one in inventories if one and Path(one).exists()})
    if playbooks:
        yield from (Path(playbooks) / "group_vars", Path(playbooks) / "host_vars")


def variable_files(roots: Iterable[Path]) -> Iterable[Path]:
    """The files of group_vars and host_vars in these folders."""
    for root in roots:
        places = [root] if root.name in ("group_vars", "host_vars") else [root / "group_vars", root / "host_vars"]
        for path in sorted(path for one in places for path in one.glob("*")):
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                yield path
