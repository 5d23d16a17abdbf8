"""Generated documentation is what it is generated from, and every public variable of every role is specified."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parent.parent for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
TYPES = {"str", "int", "float", "bool", "list", "dict", "path", "raw", "jsonarg", "json", "bytes", "bits"}


def docs(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "scripts" / "docs", *words], capture_output=True, text=True, check=False)


def specs(role: Path) -> dict[str, Any]:
    return yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]


def options(role: Path) -> dict[str, dict[str, Any]]:
    """Every option of every entry point; main's own wins."""
    found: dict[str, dict[str, Any]] = {}
    for entry, spec in sorted(specs(role).items(), key=lambda one: one[0] == "main"):
        found.update({name: {**option, "entry": entry} for name, option in (spec.get("options") or {}).items()})
    return found


def defaults(role: Path) -> dict[str, Any]:
    path = role / "defaults" / "main.yml"
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def test_the_generated_pages_are_up_to_date() -> None:
    done = docs("--check")
    assert done.returncode == 0, f"run make docs\n{done.stdout}{done.stderr}"


def test_a_page_that_drifted_is_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for role in ROLES:
        shutil.copytree(role / "meta", tmp_path / "roles" / role.name / "meta")
    assert docs("--root", str(tmp_path)).returncode == 0
    assert docs("--check", "--root", str(tmp_path)).returncode == 0
    spec = tmp_path / "roles" / "report" / "meta" / "argument_specs.yml"
    spec.write_text(spec.read_text().replace("default: 100", "default: 120"))
    page = tmp_path / "docs" / "dialects.md"
    page.write_text(page.read_text().replace("`pr29907`", "`pr29906`", 1))
    done = docs("--check", "--root", str(tmp_path))
    assert done.returncode == 1
    assert "`120`" in done.stdout and "pr29906" in done.stdout and "2 files are not what they are generated from" in done.stdout


def test_every_role_has_its_specification() -> None:
    assert [role.name for role in ROLES] == sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_option_has_a_type_a_default_and_a_sentence(role: Path) -> None:
    for entry, spec in specs(role).items():
        assert spec.get("short_description"), entry
        for name, option in (spec.get("options") or {}).items():
            assert name.startswith(f"{role.name}_"), name
            assert option.get("type") in TYPES, name
            assert option.get("required") or "default" in option, f"{name} has neither a default nor required"
            told = option.get("description") or ""
            last = told if isinstance(told, str) else told[-1]
            assert re.match(r"[A-Z0-9]|[OCVM]\(", last) and last.endswith("."), f"{name} has no sentence: {last!r}"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_and_specification_agree(role: Path) -> None:
    specified, given = options(role), defaults(role)
    public = {name for name in given if not name.startswith("_")}
    assert public <= set(specified), f"not in argument_specs: {sorted(public - set(specified))}"
    for name, option in specified.items():
        if option.get("required") and name not in given:
            continue
        assert name in given, f"{name} is specified, and defaults/main.yml has none"
        if not option.get("required"):
            assert given[name] == option["default"], name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_role_uses_no_public_variable_of_its_own_that_is_not_specified(role: Path) -> None:
    left = {"gpu_host_facts", "ddtree_server_runs", "ddtree_server_loaded", "ddtree_server_status", "report_best"}  # by roles
    told = set(options(role)) | left | set(defaults(role))
    made: set[str] = set()
    used: set[str] = set()
    for path in sorted(role.rglob("*")):
        if path.suffix not in (".yml", ".j2") or "argument_specs" in path.name or "molecule" in path.parts:
            continue
        text = re.sub(r"^\s*tags:.*$", "", path.read_text(), flags=re.MULTILINE)
        made |= set(re.findall(rf"^\s+({role.name}_\w+):", text, re.MULTILINE)) if path.suffix == ".yml" else set()
        used |= set(re.findall(rf"(?<![\w.'/-]){role.name}_[a-z0-9_]+", text))
    assert used - told - made <= set(), f"used, and neither specified nor set: {sorted(used - told - made)}"
