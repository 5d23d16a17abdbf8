#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sweep_report
short_description: Write a sweep's report from its result files
description:
  - Reads C(<dir>/<host>/<point>.json) and writes C(summary.csv), C(report.md), C(report.html), C(report.json)
    and C(best.yml) beside them.
  - The same result files give the same bytes, so a second run changes nothing.
options:
  dir:
    description: The sweep's folder.
    type: path
    required: true
  objective:
    description:
      - What the best point is best in, V(balanced), V(single-user) or V(aggregate), or a mapping of these to
        weights.
    type: raw
    default: balanced
  baseline:
    description: Another sweep's folder, or a baseline file, to compare with; empty for none.
    type: path
    default: ""
  latest:
    description: Whether to point the link C(latest) beside the folder to it.
    type: bool
    default: true
  width:
    description: Columns of the terminal table.
    type: int
    default: 100
attributes:
  check_mode:
    description: Reads and ranks, and writes nothing.
    support: full
requirements: [matplotlib]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Report on the sweep
  sweep_report:
    dir: results/first
    baseline: sweeps/baseline-origin.json
  delegate_to: localhost
"""

RETURN = r"""
table:
  description: The result for a terminal, in lines.
  returned: success
  type: list
  elements: str
html:
  description: Path of the page.
  returned: success
  type: str
best:
  description: The best point as the filter ddtree_points gives it; empty when none has figures.
  returned: success
  type: dict
written:
  description: What changed, of the files and the link.
  returned: success
  type: list
  elements: str
problems:
  description: Result files that could not be used, with why.
  returned: success
  type: list
  elements: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree.ranking import RankingError
from ansible.module_utils.ddtree.report import build, write
from ansible.module_utils.ddtree.report_text import terminal_table

# Named here too, since what is imported late is not found by the packer.
from ansible.module_utils.ddtree import report_css, report_data, report_html, report_pieces, report_plots, report_sections, tune_report  # noqa: F401  isort:skip
from ansible.module_utils.ddtree.results import ResultError


def main() -> None:
    spec = {
        "dir": {"type": "path", "required": True},
        "objective": {"type": "raw", "default": "balanced"},
        "baseline": {"type": "path", "default": ""},
        "latest": {"type": "bool", "default": True},
        "width": {"type": "int", "default": 100},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    given = module.params
    try:
        report = build(given["dir"], given["objective"], given["baseline"] or None)
        written = [] if module.check_mode else write(report, given["dir"], given["latest"])
    except ImportError as error:
        module.fail_json(msg=f"the report needs matplotlib on the controller ({error}): make setup installs it")
    except (ResultError, RankingError, OSError) as error:
        module.fail_json(msg=str(error))
    for problem in report.sweep.problems:
        module.warn(problem["message"])
    failed = [entry for entry in report.entries if entry["tier"] == 3]
    if failed and len(failed) < len(report.entries):
        told = ", ".join(f"{entry['name']} ({'; '.join(entry['reasons'])})" for entry in failed[:5])
        more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        module.warn(f"{len(failed)} of {len(report.entries)} points could not be measured: {told}{more}")
    module.exit_json(
        changed=bool(written),
        written=written,
        html=str(Path(given["dir"]) / "report.html"),
        problems=report.sweep.problems,
        best=report.best["point"] if report.best else {},
        table=terminal_table(report, given["width"]).splitlines(),
    )


if __name__ == "__main__":
    main()
