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
  - It runs on the controller, as an action plugin.
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
