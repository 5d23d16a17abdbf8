"""Make the fleet's table on the controller, of what the hosts said, and write it as JSON too."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree import fleet  # noqa: E402
from ddtree.results import write_text  # noqa: E402

SPEC: dict[str, dict[str, Any]] = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "path": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):
    """See library/fleet_table.py for the options."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(argument_spec=SPEC)
        hosts = {str(name): _seen((task_vars or {})["hostvars"][str(name)]) for name in asked["hosts"]}
        found = fleet.verdict(hosts)
        if asked["path"] and not self._task.check_mode:
            said = {"schema": 1, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **found, "hosts": hosts}
            write_text(asked["path"], json.dumps(said, indent=1, ensure_ascii=False) + "\n")
        return {"changed": False, "table": fleet.table(hosts), **found}


def _seen(variables: Mapping[str, Any]) -> dict[str, Any]:
    """What a host said, in plain types; nothing of one that was never asked."""
    return fleet.status_of(json.loads(json.dumps(variables.get("ddtree_server_status") or {}, default=str)))
