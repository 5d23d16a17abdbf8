#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: deploy_state
short_description: Plan a fleet-wide change in batches, and note what becomes of each host
description:
  - It runs on the controller, as an action plugin, whatever host the task is for. The state is C(deploy.json) in a folder of the run.
  - A batch begins only if each host before it came to a good end and enough hosts serve.
options:
  state:
    description:
      - V(planned) makes the plan of O(hosts), or fails with a sentence before anything is changed. In check mode it is not written.
      - V(begun) begins a batch, or says in RV(why) why it may not begin.
      - V(ended) notes the O(outcome) of hosts.
    type: str
    choices: [planned, begun, ended]
    required: true
  dir:
    description: The folder of all runs for V(planned), that of the run else.
    type: path
    required: true
  hosts:
    description:
      - For V(planned) a mapping of each host to C(serving), C(reason), C(expected), C(router), C(worker) and C(refused), empty for one that
        could not be reached; else a list of names.
    type: raw
    required: true
  batches:
    description: Sizes of the batches, as numbers or shares.
    type: raw
    default: 1
  min_available:
    description: How many hosts must serve at any time, or which share of them.
    type: raw
    default: 0
  about:
    description: What is noted of the run as a whole, such as C(what) and the point.
    type: dict
    default: {}
  router:
    description: For V(begun), the C(url) of a router and the C(workers) that it sends requests to now; empty where there is none to ask.
    type: dict
    default: {}
  outcome:
    description: For V(ended), what became of the hosts.
    type: str
    choices: [deployed, rolled back, untouched, lost]
    default: deployed
  details:
    description: For V(ended), a sentence for each host.
    type: dict
    default: {}
attributes:
  check_mode:
    description: The plan is made and not written.
    support: full
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Begin the batch
  deploy_state:
    state: begun
    dir: "{{ plan.dir }}"
    hosts: "{{ ansible_play_batch }}"
  run_once: true
"""

RETURN = r"""
order:
  description: The hosts that are changed, batch after batch.
  returned: state is planned
  type: list
  elements: str
sizes:
  description: The size of each batch.
  returned: state is planned
  type: list
  elements: int
lines:
  description: The plan for people.
  returned: state is planned
  type: list
  elements: str
why:
  description: Why the batch may not begin; empty if it has begun.
  returned: state is begun
  type: str
"""
