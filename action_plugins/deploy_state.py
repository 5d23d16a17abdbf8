"""Plan a fleet-wide change and note what becomes of it. The file lies on the controller, so it works there, in Ansible's own process."""

from __future__ import annotations

import getpass
import json
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree import deploys, rollout, run_lock  # noqa: E402

display = Display()

ORPHANS = 10.0  # seconds that the tasks of a run that was killed may take to end; the plan was made of what the hosts ran before them
SPEC: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["planned", "begun", "ended"], "required": True},
    "dir": {"type": "path", "required": True},
    "hosts": {"type": "raw", "required": True},
    "batches": {"type": "raw", "default": 1},
    "min_available": {"type": "raw", "default": 0},
    "about": {"type": "dict", "default": {}},
    "router": {"type": "dict", "default": {}},
    "outcome": {"type": "str", "choices": list(rollout.OUTCOMES), "default": rollout.DEPLOYED},
    "details": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):
    """See library/deploy_state.py for the options."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(argument_spec=SPEC)
        asked = json.loads(json.dumps(given))  # Ansible's tagged values as plain ones
        try:
            return {"changed": False, **globals()[asked["state"]](asked, self._task.check_mode)}
        except (rollout.RolloutError, ValueError, OSError) as error:
            raise AnsibleActionFail(str(error)) from None


def planned(asked: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """The plan; outside check mode it is written, in a folder of its own below `dir`."""
    plan = rollout.plan(asked["hosts"], asked["batches"], asked["min_available"])
    lines = rollout.lines(plan)
    if check:
        return {"order": [], "sizes": [], "dir": "", "lines": lines, "plan": plan}
    root = Path(asked["dir"])
    root.mkdir(parents=True, exist_ok=True)
    try:
        run_lock.wait(root / deploys.LOCK, ORPHANS, lambda pid: display.display(run_lock.waiting(pid)))
    except run_lock.HeldError as held:
        what = "changes the fleet" if held.alive else "was killed, and its tasks are still at work on hosts"
        raise rollout.RolloutError(f"process {held.pid} {what} of {root} now: wait for it") from None
    folder = root / time.strftime(f"%Y%m%d-%H%M%S-{asked['about'].get('what', 'deploy')}")
    deploys.begin(folder, plan, {"who": f"{getpass.getuser()}@{socket.gethostname()}", **asked["about"]})
    return {"order": plan["order"], "sizes": plan["sizes"], "dir": str(folder), "lines": lines, "plan": plan}


def begun(asked: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """Whether the batch may begin: `why` is empty then."""
    return {"why": deploys.next_batch(asked["dir"], asked["hosts"], asked["router"] or None), "hosts": asked["hosts"]}


def ended(asked: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """Hosts that came to an end."""
    for name in asked["hosts"]:
        deploys.note(asked["dir"], [name], asked["outcome"], str(asked["details"].get(name, "")))
    return {"outcome": asked["outcome"], "hosts": asked["hosts"], "details": asked["details"]}
