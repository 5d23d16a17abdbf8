"""What ansible-doc shows of each module is what the module takes and gives."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import ansible.module_utils.basic
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "library").glob("*.py"))
ACTIONS = [path for path in MODULES if "AnsibleModule" not in path.read_text()]  # the action plugin of the name does it all
PARITY = ("type", "default", "choices", "elements", "required", "aliases")


class CapturedError(Exception):
    """Ends a module once its argument spec is known."""


def captured(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The keyword arguments that the module gives to AnsibleModule."""
    found: dict[str, Any] = {}

    def capture(**given: Any) -> None:
        found.update(given)
        raise CapturedError

    monkeypatch.setattr(ansible.module_utils.basic, "AnsibleModule", capture)
    with pytest.raises(CapturedError):
        runpy.run_path(str(path), run_name="__main__")
    return found


def texts(path: Path) -> dict[str, str]:
    """DOCUMENTATION, EXAMPLES and RETURN, as ansible-doc reads them: without running the module."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant):
            found[node.targets[0].id] = str(node.value.value)
    return found


def agrees(documented: dict[str, Any], spec: dict[str, Any], where: str) -> None:
    assert set(documented) == set(spec), where
    for name, option in spec.items():
        told = documented[name]
        for key in PARITY:
            usual = {"type": "str", "required": False, "aliases": []}.get(key)
            assert told.get(key, usual) == option.get(key, usual), f"{where}.{name}: {key}"
        assert told.get("description"), f"{where}.{name} says nothing"
        if isinstance(option.get("options"), dict):
            agrees(told.get("suboptions", {}), option["options"], f"{where}.{name}")


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.stem)
def test_options_of_an_action_agree(path: Path) -> None:
    taken = re.findall(r'asked(?:\.get\(|\[)"(\w+)"', (ROOT / "action_plugins" / path.name).read_text())
    assert set(yaml.safe_load(texts(path)["DOCUMENTATION"])["options"]) == set(taken)


@pytest.mark.parametrize("path", sorted({*MODULES} - {*ACTIONS}), ids=lambda path: path.stem)
def test_options_agree(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documentation = yaml.safe_load(texts(path)["DOCUMENTATION"])
    given = captured(path, monkeypatch)
    assert documentation["module"] == path.stem
    agrees(documentation.get("options") or {}, given["argument_spec"], path.stem)
    support = documentation.get("attributes", {}).get("check_mode", {}).get("support", "none")
    assert (support != "none") == bool(given.get("supports_check_mode")), "check_mode"


@pytest.mark.parametrize("path", sorted({*MODULES} - {*ACTIONS}), ids=lambda path: path.stem)
def test_a_key_is_never_logged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, option in captured(path, monkeypatch)["argument_spec"].items():
        if any(word in name for word in ("api_key", "password", "secret")):
            assert option.get("no_log") is True, name


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_returns_and_examples_are_whole(path: Path) -> None:
    found = texts(path)
    returns = yaml.safe_load(found["RETURN"]) or {}
    for name, told in returns.items():
        assert {"description", "returned", "type"} <= set(told), name
    assert not {"failed", "exception", "warnings", "deprecations"} & set(returns), "Ansible's own names"
    tasks = yaml.safe_load(found["EXAMPLES"])
    options = yaml.safe_load(found["DOCUMENTATION"]).get("options") or {}
    for task in tasks:
        assert set(task[path.stem] or {}) <= set(options), task["name"]
        required = {name for name, option in options.items() if option.get("required")}
        assert required <= set(task[path.stem] or {}), task["name"]
    assert tasks
