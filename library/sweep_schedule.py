#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sweep_schedule
short_description: Deal the points of a sweep out to its hosts
description:
  - Opens a sweep, gives a host its next point, and notes how a point ended. The state is C(sweep.json) in the sweep's folder.
  - It runs on the controller, as an action plugin, whatever host the task is for.
  - A result of another engine configuration, engine release or matrix is put aside into C(.superseded) and its point measured again.
options:
  dir:
    description: The sweep's folder.
    type: path
    required: true
  state:
    description:
      - V(begun) opens the sweep for this run of the controller; V(claimed) gives the host its next point and begins its record;
        V(weighed) tells which cells of a start that is tuned to measure next; V(ended) notes how the point ended, in the record too.
    type: str
    choices: [begun, claimed, weighed, ended]
    required: true
  run:
    description: What V(begun) returned; a run that another one has followed gets no more points.
    type: str
    default: ''
  share:
    description:
      - Whether each host measures every point, or the points are dealt out over the hosts, or V(tune), a study asks for those that
        promise most.
    type: str
    choices: [replicate, split, tune]
    default: replicate
  anchor:
    description:
      - The point that each host measures in a split sweep, so that hosts can be compared; V(none) for none, empty for the point that
        most hosts have loaded, else the first.
    type: str
    default: ''
  tune:
    description:
      - For V(begun) with O(share=tune), what the study is after, C(objective), C(concurrency), C(latency), C(minutes), C(starts),
        C(contexts) and C(concurrencies).
    type: dict
    default: {}
  hosts:
    description: For V(begun), per host C(runs), C(release), C(loaded) and C(expected).
    type: dict
    default: {}
  controls:
    description: For V(begun), names of the points that were added as controls.
    type: list
    elements: str
    default: []
  matrix:
    description: What is measured of each point; a result of another one counts for nothing.
    type: dict
    default: {}
  runs:
    description: For V(claimed), the host's runs as C(sweep_points) gives them.
    type: list
    elements: dict
    default: []
  release:
    description: For V(claimed), the engine release on the host.
    type: str
    default: ''
  environment:
    description: For V(claimed), facts of the host to show in the report.
    type: dict
    default: {}
  status:
    description: For V(ended), how the point ended.
    type: str
    choices: [ok, failed]
    default: ok
  failure:
    description: For V(ended) with O(status=failed), the result of the task that failed.
    type: dict
    default: {}
  secrets:
    description: Texts that are replaced by *** wherever they stand in a record.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: In check mode it does nothing.
    support: none
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Take the next point
  sweep_schedule:
    dir: results/first
    state: claimed
    run: "{{ sweep.run }}"
    runs: "{{ ddtree_server_runs }}"
  register: __sweep
"""

RETURN = r"""
run:
  description: The id of this run of the controller.
  returned: state is begun
  type: str
point:
  description: The run that was claimed, as in O(runs); empty when there is none left.
  returned: state is claimed
  type: dict
path:
  description: The point's result file.
  returned: state is claimed
  type: str
again:
  description: Whether the engine is to be started anew although it runs this point.
  returned: state is claimed, with a point
  type: bool
tuned:
  description: Whether a study asked for the point, so that it is measured in steps.
  returned: state is claimed, with a point
  type: bool
told:
  description: What the study knows so far, C(starts), C(best), C(front) and C(minutes_left).
  returned: state is claimed, with a point that a study asked for
  type: dict
cells:
  description: What to measure next, C(context) and C(concurrency); empty at the end of the start.
  returned: state is weighed
  type: list
  elements: dict
not_now:
  description: What is left for later steps, as C(cells), C(coding) and C(rates).
  returned: state is weighed
  type: dict
quick:
  description: Whether few repeats do.
  returned: state is weighed
  type: bool
last:
  description: Whether this is the step with all that is left.
  returned: state is weighed
  type: bool
cut:
  description: Why the start is cut off, if it is.
  returned: state is weighed
  type: str
index:
  description: The place of the point among RV(of).
  returned: state is claimed, with a point
  type: int
of:
  description: How many points the hosts share, or this host has.
  returned: state is claimed, with a point
  type: int
why:
  description: Why there is no point, or why the host's sweep stops; else empty.
  returned: state is claimed or ended
  type: str
interrupted:
  description: Whether the point was given back because the sweep is being stopped.
  returned: state is ended
  type: bool
"""
