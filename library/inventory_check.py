#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: inventory_check
short_description: Refuse an inventory with a mistake, before any host is touched
description:
  - An action of the controller. Holds the variables of every host against the argument_specs of all roles, so that a misspelt name, a value
    of the wrong kind, a number of boards that cannot be, or a key where nothing reads it is one sentence with its file and line.
options:
  required:
    description: Variables that each host of gpu_hosts must have.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: It only reads.
    support: full
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Check the inventory
  inventory_check:
    required: [ddtree_server_model]
"""

RETURN = r"""
hosts:
  description: How many hosts were looked at.
  returned: success
  type: int
"""
