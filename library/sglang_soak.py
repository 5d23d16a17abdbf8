#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_soak
short_description: Let a server that just came up answer for a while, and hold it against its last good soak
description:
  - Sends O(requests) generations over O(seconds), one at a time, and fails where more than O(errors) of them fail or where the median
    of output token/s is less than O(speed) of what this host's last good soak measured.
  - A soak within its bounds becomes the last good one, in a file beside the unit's record.
options:
  name:
    description: The unit; its last good soak is kept under this name.
    type: str
    required: true
  host:
    description: The address that the server binds.
    type: str
    default: 127.0.0.1
  port:
    description: The port that the server binds.
    type: int
    default: 30000
  api_key:
    description: Sent with every request. Never shown.
    type: str
  admin_api_key:
    description: Sent when there is no O(api_key). Never shown.
    type: str
  state_dir:
    description: Folder of what is remembered between runs.
    type: path
    default: /var/lib/ddtree-ops
  config_id:
    description: The configuration that must answer; empty to accept any.
    type: str
    default: ''
  baseline:
    description:
      - Measures what runs as the last good one, to hold the next configuration against. Does nothing where a last good soak of
        O(config_id) is on record.
    type: bool
    default: false
  requests:
    description: How many generations.
    type: int
    default: 20
  seconds:
    description: The time over which they begin.
    type: float
    default: 30
  errors:
    description: The share of them that may fail.
    type: float
    default: 0
  speed:
    description: The least share of the last good speed; 0 to judge errors alone.
    type: float
    default: 0.8
  tokens:
    description: Output tokens of each.
    type: int
    default: 128
  timeout:
    description: Seconds that one may take.
    type: float
    default: 60
  idle_timeout:
    description: Seconds to wait for requests in flight before the first one.
    type: float
    default: 30
attributes:
  check_mode:
    description: It sends nothing then, and is skipped.
    support: partial
    details: What a soak would measure cannot be told.
  diff_mode:
    description: Nothing but figures changes.
    support: none
requirements: [requests]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Require that the new configuration is no more than a tenth slower
  sglang_soak:
    name: ddtree
    config_id: 5f1c0a9be234
    speed: 0.9
"""

RETURN = r"""
soak:
  description: What was measured.
  returned: always
  type: dict
  sample: {requests: 20, errors: 0, seconds: 28.6, tok_s: 141.2, least_tok_s: 138.9, config_id: 5f1c0a9be234}
last_good:
  description: What it was held against; empty where there was none.
  returned: always
  type: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree.memory import Memory
from ansible.module_utils.ddtree.server import Sglang
from ansible.module_utils.ddtree.soak import Bounds, SoakError, judge, run, wait_idle


class Clock:
    """The machine's own time."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "api_key": {"type": "str", "no_log": True},
            "admin_api_key": {"type": "str", "no_log": True},
            "state_dir": {"type": "path", "default": "/var/lib/ddtree-ops"},
            "config_id": {"type": "str", "default": ""},
            "baseline": {"type": "bool", "default": False},
            "requests": {"type": "int", "default": 20},
            "seconds": {"type": "float", "default": 30},
            "errors": {"type": "float", "default": 0},
            "speed": {"type": "float", "default": 0.8},
            "tokens": {"type": "int", "default": 128},
            "timeout": {"type": "float", "default": 60},
            "idle_timeout": {"type": "float", "default": 30},
        },
        supports_check_mode=True,
    )
    asked = module.params
    try:
        bounds = Bounds(asked["requests"], asked["seconds"], asked["errors"], asked["speed"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    store = Memory(asked["state_dir"], f"{asked['name']}.soak")
    last_good = store.load()
    if module.check_mode or (asked["baseline"] and last_good.get("config_id") == asked["config_id"] and last_good.get("tok_s")):
        module.exit_json(changed=False, skipped=True, soak={}, last_good=last_good)
    server = Sglang(
        asked["host"], asked["port"], asked["api_key"] or "", asked["admin_api_key"] or "", tokens=asked["tokens"], timeout=asked["timeout"]
    )
    wait_idle(server.running_requests, Clock(), asked["idle_timeout"])
    found = run(server.generate, Clock(), bounds, asked["config_id"])
    try:
        judge(found, bounds, None if asked["baseline"] else last_good)
    except SoakError as error:
        module.fail_json(msg=f"{error}", phase="soak", cause="soak_failed", soak=found, last_good=last_good)
    store.save({**found, "at": round(time.time(), 1)})
    module.exit_json(changed=False, soak=found, last_good=last_good)


if __name__ == "__main__":
    main()
