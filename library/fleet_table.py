#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_table
short_description: The state of a fleet as one table, one JSON file and one verdict
description:
  - Takes C(ddtree_server_status) of each host, as tasks_from=status of role ddtree_server registers it.
  - It runs on the controller, as an action plugin, once for all hosts.
options:
  hosts:
    description: The hosts, in the table's order; one that has none is silent.
    type: list
    elements: str
    required: true
  path:
    description: The JSON file to write; empty for none.
    type: str
    default: ''
attributes:
  check_mode:
    description: The file is not written.
    support: full
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Make the table
  fleet_table:
    hosts: "{{ groups['gpu_hosts'] }}"
    path: results/status.json
"""

RETURN = r"""
table:
  description: The table, as lines.
  returned: always
  type: list
  elements: str
worst:
  description: The state of the worst host, one of ok, drift, down and silent.
  returned: always
  type: str
said:
  description: Which hosts are not ok, in one sentence; empty where all are.
  returned: always
  type: str
"""
