#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sweep_record
short_description: Merge a section into a sweep's result file
description:
  - Writes one point's result file on the controller; a reader sees the old file or the new one, never a part.
  - It runs on the controller, as an action plugin, whatever host the task is for.
  - A section with another C(config_id) begins the file again, so that figures of two configurations are never
    mixed; one with another C(restart.instance) drops the cells of the earlier instance of the engine.
  - While a sweep is being stopped, a task that has just recorded cells fails with the cause C(interrupted), so that its point ends there.
options:
  path:
    description: The result file; its folder is made.
    type: path
    required: true
  record:
    description:
      - Sections to merge. Each top-level key replaces its old value; C(cells) merge by context and
        concurrency.
    type: dict
    default: {}
  state:
    description: V(present) merges; V(absent) deletes the file, so that the point is measured again.
    type: str
    choices: [present, absent]
    default: present
  secrets:
    description: Texts that are replaced by *** wherever they stand in the record.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Tells what would change and writes nothing.
    support: full
  diff_mode:
    description: The file before and after.
    support: full
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Note the end
  sweep_record:
    path: results/first/host1/b12-k6-w2048.json
    record: {status: ok, finished: "2026-12-01T10:00:00Z"}
  delegate_to: localhost
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
status:
  description: The record's status after the merge; empty while the point is unfinished.
  returned: state is present
  type: str
cells:
  description: How many cells the record has.
  returned: state is present
  type: int
measured:
  description: What need not be measured again, RV(measured.cells) with context and concurrency, and whether RV(measured.coding) is there.
  returned: state is present
  type: dict
"""
