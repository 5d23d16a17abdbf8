"""Write a sweep's report. The result files lie on the controller, so it works there, without a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree import report  # noqa: E402
from ddtree.ranking import RankingError  # noqa: E402
from ddtree.report_text import terminal_table  # noqa: E402
from ddtree.results import ResultError  # noqa: E402

display = Display()

NAMED = 5  # points that failed, in the warning about them
SPEC: dict[str, dict[str, Any]] = {
    "dir": {"type": "path", "required": True},
    "objective": {"type": "raw", "default": "balanced"},
    "baseline": {"type": "path", "default": ""},
    "latest": {"type": "bool", "default": True},
    "width": {"type": "int", "default": 100},
}


class ActionModule(ActionBase):
    """See library/sweep_report.py for the options."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(argument_spec=SPEC)
        asked = json.loads(json.dumps(given))  # Ansible's tagged values as plain ones
        try:
            return write(asked, self._task.check_mode)
        except ImportError as error:
            raise AnsibleActionFail(f"the report needs matplotlib on the controller ({error}): make setup installs it") from None
        except (ResultError, RankingError, OSError) as error:
            raise AnsibleActionFail(str(error)) from None


def write(asked: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """Rank the results, write what changed, and warn of what is missing. Raises ResultError, RankingError, ImportError and OSError."""
    folder = asked["dir"]
    made = report.build(folder, asked["objective"], asked["baseline"] or None)
    written = [] if check else report.write(made, folder, asked["latest"])
    for problem in made.sweep.problems:
        display.warning(problem["message"])
    failed = [entry for entry in made.entries if entry["tier"] == 3]
    if failed and len(failed) < len(made.entries):
        told = ", ".join(f"{entry['name']} ({'; '.join(entry['reasons'])})" for entry in failed[:NAMED])
        more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        display.warning(f"{len(failed)} of {len(made.entries)} points could not be measured: {told}{more}")
    return {
        "changed": bool(written),
        "written": written,
        "html": str(Path(folder).absolute() / "report.html"),
        "problems": made.sweep.problems,
        "best": made.best["point"] if made.best else {},
        "table": terminal_table(made, asked["width"]).splitlines(),
    }
