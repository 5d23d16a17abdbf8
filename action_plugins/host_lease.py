"""Take a lease for whoever runs Ansible: user@controller, the name that sglang_service goes by, unless another is given."""

from __future__ import annotations

import getpass
import socket
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """The options are the module's own."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        who = self._task.args.get("who") or f"{getpass.getuser()}@{socket.gethostname()}"
        return dict(self._execute_module(module_args={**self._task.args, "who": who}, task_vars=task_vars))
