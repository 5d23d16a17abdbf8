"""What an inventory says, held against what the roles take: each mistake is one sentence, before any host is touched.

Nothing here knows Ansible: the action plugin inventory_check reads hosts, groups and values, and hands them over.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .inventory_values import Undefined, complaint
from .quoting import one_line

GROUP = "gpu_hosts"
# What a YAML inventory calls its own parts; a host of that name stands one level too deep.
WORDS = ("hosts", "vars", "children")
# Options of a run: in an inventory nothing reads them.
ASKED = ("dialect", "budget", "topk", "window", "tp", "extra_args", "extra_env", "points", "exclude")
# Short names that people write for a variable of ddtree_server; those that may well be their own are left out.
SHORT = ("model", "drafter", "port", "gpus", "block_size", "max_running_requests", "dialects", "api_key", "admin_api_key")
NEAR = 0.88  # likeness from which a name of one's own is taken for a slip


@dataclass(frozen=True)
class Value:
    """A variable of a host: its value, and file:line where it was set (empty when that is not known)."""

    value: Any
    where: str = ""


@dataclass(frozen=True)
class Inventory:
    """`hosts`: host to variables; `groups`: group to hosts; `files`: group_vars and host_vars files; `options`: variable to its
    specification, with the `role` it is of; `asked`: names given on the command line; `required`: variables that each host of gpu_hosts
    must have; `allowed`: names of one's own.
    """

    hosts: Mapping[str, Mapping[str, Value]]
    groups: Mapping[str, Sequence[str]]
    options: Mapping[str, Mapping[str, Any]]
    localhost: Mapping[str, Value] = field(default_factory=dict)
    files: Sequence[Path] = ()
    asked: Sequence[str] = ()
    required: Sequence[str] = ()
    allowed: Sequence[str] = ()


def mistakes(inventory: Inventory) -> list[str]:
    """A sentence for each mistake, distinct, in the order of hosts; what is set for many hosts in one place is told once."""
    unread = list(_files(inventory))
    found = [*_groups(inventory), *unread]
    for host, variables in inventory.hosts.items():
        for name, given in variables.items():
            found += (f"{given.where or host}: {one}" for one in _variable(inventory, host, name, given))
    if not unread:  # what stands in such a file would be missed here again
        found += _missing(inventory)
    return list(dict.fromkeys(map(one_line, found)))


def _groups(inventory: Inventory) -> Iterator[str]:
    if not inventory.groups.get(GROUP):
        others = [name for name in inventory.groups if name not in ("all", "ungrouped")]
        near = _nearest(GROUP, others)
        hint = f"rename {near}" if near and near != GROUP else "add your hosts to it, as inventory/example/hosts.yml does"
        yield f"the inventory has no host in group {GROUP}, and so nothing to do: {hint}"
    for host in inventory.hosts:
        if host in WORDS:
            yield f"a host is called {host!r}: that key stands one level too deep in the inventory, among the hosts"


def _files(inventory: Inventory) -> Iterator[str]:
    """Files that Ansible never reads, because no group or host has their name."""
    for path in inventory.files:
        if path.stem == GROUP and GROUP not in inventory.groups:
            continue  # told already
        known = list(inventory.groups) if path.parent.name == "group_vars" else list(inventory.hosts)
        if path.stem not in known and path.name not in known:
            kind = "group" if path.parent.name == "group_vars" else "host"
            near = _nearest(path.stem, known)
            yield f"{path} is read by nothing, since no {kind} is called {path.stem}" + (
                f"; did you mean {near}{path.suffix}?" if near else ""
            )


def _variable(inventory: Inventory, host: str, name: str, given: Value) -> Iterator[str]:
    option = inventory.options.get(name)
    if option is None:
        if name not in inventory.allowed:
            yield from _unknown(inventory, name, given)
        return
    wrong = complaint(name, given.value, option)
    if wrong:
        yield wrong
    if option.get("controller") and name not in inventory.localhost and name not in inventory.asked and host != "localhost":
        yield f"{name} is for the controller, and stands where only hosts read it: move it to group_vars/all.yml"


def _unknown(inventory: Inventory, name: str, given: Value) -> Iterator[str]:
    if name in inventory.asked:
        return  # the plays themselves say what they make of it
    allow = f"a variable of your own is allowed by naming it in allowed_vars: [{name}]"
    if name in ASKED:
        yield f"{name} is no variable of an inventory: put it under point_defaults, or ask it with -e"
    elif name in SHORT and f"ddtree_server_{name}" in inventory.options:
        yield f"{name} is read by nothing; did you mean ddtree_server_{name}? ({allow})"
    elif any(name.startswith(f"{role}_") for role in {str(one["role"]) for one in inventory.options.values()}):
        near = _nearest(name, inventory.options)
        yield f"{name} is no variable of this project" + (f"; did you mean {near}?" if near else "") + f" ({allow})"
    else:
        near = _nearest(name, (one for one in inventory.options if one not in name), NEAR)
        if near:
            yield f"{name} is read by nothing; did you mean {near}? ({allow})"


def _missing(inventory: Inventory) -> Iterator[str]:
    for name in inventory.required:
        places: dict[str, None] = {}
        for host in inventory.groups.get(GROUP, ()):
            given = inventory.hosts.get(host, {}).get(name)
            if given is None or given.value == "":
                places.setdefault(given.where if given is not None and given.where else host)
        if places:
            told = str(inventory.options.get(name, {}).get("description", "")).rstrip(".")
            yield f"{listing(list(places))}: {name} is not set" + (f": {told[0].lower()}{told[1:]}" if told else "")


def listing(names: Sequence[str], most: int = 4) -> str:
    """Names in words, cut where there are many."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def value_of(variables: Mapping[str, Value], name: str, otherwise: Any = None) -> Any:
    """A variable's value, `otherwise` where it is not set or cannot be told."""
    given = variables.get(name)
    return otherwise if given is None or isinstance(given.value, Undefined) else given.value


def _nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)), "")
