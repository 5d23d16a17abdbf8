#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_status
short_description: Tell everything of one engine in one look
description:
  - Which configuration is loaded against which is declared, since when, health by a real generation, VRAM, accept length and output
    token/s now, engine release, who holds the lease, whether the router sends requests here, and why the unit would have to be worked on.
  - Changes nothing, not even a file of its own.
options:
  name:
    description: The systemd unit or the supervisord program.
    type: str
    required: true
  manager:
    description: Who runs the unit.
    type: str
    choices: [systemd, supervisor]
    default: systemd
  supervisor_config:
    description: The supervisord configuration file.
    type: path
  supervisor_socket:
    description: The unix socket on which supervisord answers.
    type: path
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
  gpus:
    description: Indices or UUIDs of the GPUs that the unit uses; empty means all of the host.
    type: list
    elements: str
    default: []
  state_dir:
    description: Folder of what is remembered between runs.
    type: path
    default: /var/lib/ddtree-ops
  config_id:
    description: The configuration that should run; empty for the one of O(point), or any.
    type: str
    default: ''
  point:
    description: The point that should run, as C(sweep_points) gives it; it is rendered here, with what the host itself knows.
    type: dict
    default: {}
  engine:
    description: The engine of O(point), as role ddtree_server describes it. A linked interpreter and a block size of 0 are looked up.
    type: dict
    default: {}
  dialects:
    description: Dialects of one's own for O(point).
    type: dict
    default: {}
  files:
    description: Paths of the unit's files with the SHA-256 that each should have.
    type: dict
    default: {}
  router_url:
    description: The SGLang router that sends requests to this server.
    type: str
  router_api_key:
    description: The key of the router's control plane. Never shown.
    type: str
  router_worker:
    description: The URL by which the router reaches this server; made of O(host) and O(port) if not given.
    type: str
  kept:
    description: The folder of what the unit can go back to.
    type: path
    default: ''
  back:
    description: Whether what is in O(kept) should run.
    type: bool
    default: false
  timeout:
    description: Seconds that the generation may take.
    type: float
    default: 10
attributes:
  check_mode:
    description: It only reads.
    support: full
  diff_mode:
    description: Nothing is changed.
    support: none
requirements: [requests, nvidia-ml-py]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Look at the engine
  sglang_status:
    name: ddtree
    config_id: 5f1c0a9be234
  register: seen
"""

RETURN = r"""
status:
  description: What was seen.
  returned: success
  type: dict
  sample: {active: active, healthy: true, loaded: 5f1c0a9be234, declared: 5f1c0a9be234, drift: [], reason: "", serving: true}
"""

import os
import time
import traceback
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.ddtree import dialects, engine
from ansible.module_utils.ddtree.gpus import Nvml
from ansible.module_utils.ddtree.keeping import KeepError, copies, kept
from ansible.module_utils.ddtree.lease import Leases
from ansible.module_utils.ddtree.memory import Memory
from ansible.module_utils.ddtree.points import Point
from ansible.module_utils.ddtree.router import of_server
from ansible.module_utils.ddtree.server import Sglang
from ansible.module_utils.ddtree.services import ServiceError, Supervisor, Systemd
from ansible.module_utils.ddtree.status import digest, look


def declared(asked: dict) -> tuple:
    """The config_id that should run on this host, the files that it should be made of, and why it cannot be told."""
    if asked["back"]:
        try:
            return back_to(asked["kept"])["config_id"], {path: digest(copy) for path, copy in copies(asked["kept"]).items()}, ""
        except KeepError as error:
            return "", {}, str(error)
    if asked["config_id"] or not asked["point"]:
        return asked["config_id"], asked["files"], ""
    server = dict(asked["engine"])
    folder = os.path.dirname(os.path.dirname(server["python"]))
    if os.path.islink(folder):  # the unit names the release itself
        server["python"] = os.path.join(os.path.dirname(folder), os.readlink(folder), "bin", os.path.basename(server["python"]))
    if not int(server.get("block_size") or 0) and str(server.get("drafter", "")).startswith("/"):
        config = Path(server["drafter"]) / "config.json"
        server["block_size"] = engine.block_size(config.read_text() if config.exists() else "")
    try:
        table = dialects.merged(asked["dialects"])
        wanted = engine.render(Point.from_dict(asked["point"], table), engine.Server.from_dict(server), table)
        return wanted.config_id, asked["files"], ""
    except (ValueError, KeyError) as error:
        return "", asked["files"], str(error)


def back_to(folder: str) -> dict:
    """What the unit can go back to."""
    try:
        return {"config_id": kept(folder).get("config_id") or ""} if folder else {}
    except KeepError:
        return {}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "manager": {"type": "str", "default": "systemd", "choices": ["systemd", "supervisor"]},
            "supervisor_config": {"type": "path"},
            "supervisor_socket": {"type": "path"},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "api_key": {"type": "str", "no_log": True},
            "admin_api_key": {"type": "str", "no_log": True},
            "gpus": {"type": "list", "elements": "str", "default": []},
            "state_dir": {"type": "path", "default": "/var/lib/ddtree-ops"},
            "config_id": {"type": "str", "default": ""},
            "point": {"type": "dict", "default": {}},
            "engine": {"type": "dict", "default": {}},
            "dialects": {"type": "dict", "default": {}},
            "files": {"type": "dict", "default": {}},
            "router_url": {"type": "str"},
            "router_api_key": {"type": "str", "no_log": True},
            "router_worker": {"type": "str"},
            "kept": {"type": "path", "default": ""},
            "back": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
        required_if=[("manager", "supervisor", ("supervisor_config", "supervisor_socket"))],
    )
    asked, began = module.params, time.monotonic()
    try:
        import requests  # noqa: F401  the engine is asked with it
    except ImportError:
        module.fail_json(msg=missing_required_lib("requests"), exception=traceback.format_exc())
    if asked["manager"] == "supervisor":
        service = Supervisor(asked["name"], asked["supervisor_config"], asked["supervisor_socket"])
    else:
        service = Systemd(asked["name"])
    server = Sglang(asked["host"], asked["port"], asked["api_key"] or "", asked["admin_api_key"] or "", timeout=asked["timeout"])
    want, files, unclear = declared(asked)
    router = of_server(asked)
    try:
        seen = look(
            service,
            server,
            Nvml(asked["gpus"]),
            Memory(asked["state_dir"], asked["name"]).load(),
            asked=want,
            files=files,
            router=router,
            timeout=asked["timeout"],
        )
    except ServiceError as error:
        module.fail_json(msg=f"{asked['name']} cannot be looked at: {error}")
    seen.update(
        declared=want,
        unclear=unclear,
        lease=Leases(asked["state_dir"], asked["name"]).held() or {},
        last_good=back_to(asked["kept"]),
        router=router.url if router else "",
        worker=router.worker if router else "",
        at=round(time.time(), 1),
        seconds=round(time.monotonic() - began, 3),
    )
    module.exit_json(changed=False, status=seen)


if __name__ == "__main__":
    main()
