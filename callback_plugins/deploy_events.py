"""Watch a fleet-wide change from Ansible's own process, and tell at its end, whatever ended it, what became of each host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TextIO

from ansible.plugins.callback import CallbackBase

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree import deploys, results, rollout, run_lock  # noqa: E402

DOCUMENTATION = """
name: deploy_events
type: aggregate
short_description: The view and the summary of a rollout
description:
  - Says when a batch begins and what became of its hosts. The summary is written here because Ansible ends all plays where each host of a
    batch failed or was lost, so that no play can write it.
requirements: [enabled in ansible.cfg]
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "deploy_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.folder: Path | None = None
        self.lock: TextIO | None = None
        self.batch = 0
        self.unreachable: dict[str, str] = {}

    def v2_runner_on_ok(self, result: Any) -> None:
        if result.task.action != "deploy_state":
            return
        found = result.result
        if found.get("dir") and "sizes" in found:
            self._open(Path(found["dir"]))
        elif "why" in found:
            self.batch += 1
            said = f"not begun: {found['why']}" if found["why"] else ", ".join(found["hosts"])
            self._display.display(f"batch {self.batch}: {said}", color="red" if found["why"] else None)
        elif "outcome" in found:
            color = None if found["outcome"] == rollout.DEPLOYED else "red"
            for host in found["hosts"]:
                self._display.display(f"  {host}: {found['outcome']}: {found['details'].get(host, '')}", color=color)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        said = " ".join(str(result.result.get("msg", "no answer")).split())
        self.unreachable[str(result.host)] = f"unreachable: {said}"

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if not self.folder:
            return
        state = deploys.end(self.folder, self.unreachable)
        results.link_latest(self.folder)
        for line in rollout.summary(state):
            self._display.display(line)
        self._display.display(f"the same as JSON: {self.folder / deploys.FILE}")
        if self.lock:
            self.lock.close()

    def _open(self, folder: Path) -> None:
        """Hold the fleet as long as this process lives."""
        self.folder = folder
        self.lock = run_lock.hold(folder.parent / deploys.LOCK)
