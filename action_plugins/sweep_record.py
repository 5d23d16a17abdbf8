"""Merge a section into a sweep's result file. The files lie on the controller, so it works there, without a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree import schedule  # noqa: E402
from ddtree.results import ResultError, cell_key, merge, redact  # noqa: E402

SPEC: dict[str, dict[str, Any]] = {
    "path": {"type": "path", "required": True},
    "record": {"type": "dict", "default": {}},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
}


class ActionModule(ActionBase):
    """See library/sweep_record.py for the options."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(argument_spec=SPEC)
        try:
            return apply(asked, self._task.check_mode)
        except (ResultError, OSError) as error:
            raise AnsibleActionFail(redact(str(error), asked["secrets"])) from None


def apply(asked: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """Do what is asked and return the result. Raises ResultError or OSError, and then the file is as it was."""
    path, secrets = Path(asked["path"]), [str(one) for one in asked["secrets"]]
    before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if asked["state"] == "absent":
        if before and not check:
            path.unlink()
        return {"changed": bool(before), "path": str(path), "diff": _diff(path, before, "", secrets)}
    plain = json.loads(json.dumps(asked["record"]))  # Ansible's tagged values as plain ones
    record, changed = merge(path, plain, secrets, write=not check)
    after = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    result = {
        "changed": changed,
        "path": str(path),
        "status": record.get("status") or "",
        "cells": len(record.get("cells") or []),
        "measured": {
            "cells": [{"context": context, "concurrency": level} for context, level in map(cell_key, record.get("cells") or [])],
            "coding": bool((record.get("coding") or {}).get("total")),
        },
        "diff": _diff(path, before, after, secrets),
    }
    why = schedule.stopping(path.parent.parent) if "cells" in plain and not check else ""
    return {**result, "failed": True, "msg": f"the sweep was {why}", "cause": "interrupted", "phase": "measure"} if why else result


def _diff(path: Path, before: str, after: str, secrets: list[str]) -> dict[str, str]:
    return {"before_header": str(path), "after_header": str(path), "before": redact(before, secrets), "after": after}
