#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sweep_points
short_description: Read, check and expand the points that a play is asked for
description:
  - Reads budget, topk, window and the other keys of a point from the command line's extra variables, refuses an unknown name with the
    nearest right one, and expands lists and ranges into distinct points.
  - It runs on the controller, as an action plugin, and changes nothing.
options:
  play:
    description: Name of the play, for messages.
    type: str
  options:
    description: Extra variables that the play knows besides the keys of a point and the options of the roles.
    type: list
    elements: str
    default: []
  points:
    description: Points that were read already; the command line is then not looked at.
    type: list
    elements: dict
  defaults:
    description: Keys of a point where the command line gives none.
    type: dict
    default: {}
  dialects:
    description: Dialects of your own.
    type: dict
    default: {}
  engine:
    description: What all points of a host share; with it the launches are worked out too.
    type: dict
  controls:
    description:
      - Whether to add what the points are measured against, no speculation and the plain chain, V(true), V(false), or V(auto) for more
        than one point. Not given means no.
    type: str
  results:
    description:
      - A host's folder of result files in a sweep's folder. A run that has an C(ok) one of the same configuration and matrix is marked
        done, and what starts took there in earlier sweeps is told.
    type: path
  matrix:
    description: What is to be measured of each point.
    type: dict
    default: {}
attributes:
  check_mode:
    description: It only reads.
    support: full
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Read the points
  sweep_points:
    play: sweep.yml
  register: __asked
"""

RETURN = r"""
points:
  description: The distinct points in the order asked.
  returned: success
  type: list
  elements: dict
controls:
  description: Names of the points that O(controls) added.
  returned: success
  type: list
  elements: str
expected:
  description: Seconds of a restart and of measuring a point in earlier sweeps, RV(expected.load) and RV(expected.measure), or null.
  returned: when O(engine) and O(results) are given
  type: dict
runs:
  description:
    - One entry per engine configuration, with the point, the names of other points that make the same engine, the launch, and whether
      it is done.
  returned: when O(engine) is given
  type: list
  elements: dict
"""
