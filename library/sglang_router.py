#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_router
short_description: Take a server out of its SGLang router, put it in, or list whom the router sends requests to
options:
  state:
    description:
      - V(absent) returns once the router has let go of the server; what it has sent there already goes on.
      - V(present) returns once the router sends it requests.
      - V(listed) changes nothing.
    type: str
    choices: [present, absent, listed]
    default: present
  router_url:
    description: The router.
    type: str
    required: true
  router_api_key:
    description: The key of the router's control plane. Never shown.
    type: str
  router_worker:
    description: The URL by which the router reaches the server; made of O(host) and O(port) if not given.
    type: str
  host:
    description: The address that the server binds.
    type: str
    default: 127.0.0.1
  port:
    description: The port that the server binds.
    type: int
    default: 30000
  api_key:
    description: The server's own key, which goes with it into the router. Never shown.
    type: str
attributes:
  check_mode:
    description: Says whether the router would be told anything.
    support: full
  diff_mode:
    description: There is nothing but in and out.
    support: none
requirements: [requests]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Take the server out of the router
  sglang_router:
    router_url: http://router.example.net:8000
    router_worker: http://gpu01.example.net:30000
    state: absent
"""

RETURN = r"""
router:
  description: The router, and the workers that it sends requests to.
  returned: success
  type: dict
  sample: {url: "http://router.example.net:8000", workers: ["http://gpu02.example.net:30000"]}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree.router import RouterError, of_server


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "default": "present", "choices": ["present", "absent", "listed"]},
            "router_url": {"type": "str", "required": True},
            "router_api_key": {"type": "str", "no_log": True},
            "router_worker": {"type": "str"},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "api_key": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    router = of_server(asked)
    try:
        if asked["state"] == "listed":
            changed = False
        elif module.check_mode:
            changed = router.serves() != (asked["state"] == "present")
        else:
            changed = router.enrol() if asked["state"] == "present" else router.withdraw()
        module.exit_json(changed=changed, router={"url": router.url, "workers": router.serving()})
    except RouterError as error:
        module.fail_json(msg=f"{error}", cause="router_unreachable", phase="drain" if asked["state"] == "absent" else "verify")


if __name__ == "__main__":
    main()
