"""Names of the package's functions for the roles sglang and ddtree_server; an error is its sentence and nothing else."""

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
quoting, releases = (importlib.import_module(f"ddtree.{name}") for name in ("quoting", "releases"))


def _sentences(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except quoting.QuoteError as error:
            raise AnsibleFilterError(str(error)) from None

    return wrapped


def ddtree_install_failure(result: Mapping[str, Any]) -> str:
    """The line that tells why the command of a registered result failed, of all that it wrote."""
    return str(releases.failure("\n".join(str(result.get(key) or "") for key in ("stderr", "stdout", "msg"))))


def ddtree_systemd_path(path: Any, what: str) -> str:
    """A path as WorkingDirectory= and EnvironmentFile= take it; `what` names its variable."""
    return str(quoting.systemd_path(str(path), what))


def ddtree_env_file(environment: Mapping[str, Any]) -> str:
    """A whole EnvironmentFile, by name."""
    return "".join(f"{quoting.env_line(str(name), str(value))}\n" for name, value in sorted(environment.items()))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "ddtree_install_failure": ddtree_install_failure,
            "ddtree_systemd_path": _sentences(ddtree_systemd_path),
            "ddtree_env_file": _sentences(ddtree_env_file),
            "ddtree_unit_name": _sentences(quoting.unit_name),
            "ddtree_user_name": _sentences(quoting.user_name),
        }
