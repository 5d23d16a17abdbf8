#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_service
short_description: Start, restart or stop an SGLang unit without a race
description:
  - Stops the unit, waits until it has no process left, every one of its GPUs is free on two looks in a row and the port is nobody's,
    starts it, and reports ready only when the invocation that it started gave a real generation with the configuration asked for.
  - It never calls a restart, and kills nothing outside its own unit.
  - The phases are inspect, drain, stop, release, start, load, generate and verify; each is timed in the result.
options:
  name:
    description: The systemd unit or the supervisord program.
    type: str
    required: true
  state:
    description:
      - V(started) restarts only if what runs is not what is asked.
      - V(restarted) always stops and starts.
      - V(stopped) stops and waits until VRAM and port are free.
      - V(probed) looks only.
    type: str
    choices: [started, restarted, stopped, probed]
    default: started
  manager:
    description: Who runs the unit.
    type: str
    choices: [systemd, supervisor]
    default: systemd
  supervisor_config:
    description: The supervisord configuration file; programs are in C(conf.d/) and logs in C(log/) beside it.
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
  config_id:
    description: The configuration asked for, as the answer must carry it in its weight version; empty to accept any.
    type: str
    default: ''
  expect:
    description: Fields of server_info with the values that prove the configuration.
    type: dict
    default: {}
  log_proofs:
    description: Regular expressions of lines by which this build logs what it loaded. One that is missing is told in RV(notes).
    type: list
    elements: str
    default: []
  gpus:
    description: Indices or UUIDs of the GPUs that the unit uses; empty means all of the host.
    type: list
    elements: str
    default: []
  state_dir:
    description: Folder for the lock and for what is remembered between runs.
    type: path
    default: /var/lib/ddtree-ops
  idle_mib:
    description: MiB in use below which a GPU counts as free. What others held before does not count against it up to twice this.
    type: int
    default: 1024
  min_tokens:
    description: Tokens that the proving generation must have.
    type: int
    default: 32
  runner:
    description:
      - Who runs this, for a second run that finds the unit busy and for the unit's lease. A run of the same runner with the same
        configuration waits for the first one and then looks at what it left, so that a run whose controller died is finished by the next.
    type: str
    default: ''
  run_id:
    description: Marks the events of this run in the progress file.
    type: str
    default: ''
  router_url:
    description:
      - The SGLang router that sends requests to this server. It must answer before anything is stopped; the server is taken out of it
        before the drain, and put back once it is ready and verified. A server that could not be made ready stays out.
    type: str
  router_api_key:
    description: The key of the router's control plane. Never shown.
    type: str
  router_worker:
    description: The URL by which the router reaches this server; made of O(host) and O(port) if not given.
    type: str
  secrets:
    description: Further values that no output may show, as of the unit's environment.
    type: list
    elements: str
    default: []
  drain_timeout:
    description: Seconds that requests in flight get before the stop.
    type: float
    default: 30
  stop_timeout:
    description: Seconds until a unit that still has processes is given up.
    type: float
    default: 240
  release_timeout:
    description: Seconds until VRAM or port that are still held are given up.
    type: float
    default: 120
  ready_timeout:
    description: Seconds that loading may take; twice the last load of this configuration if that is more.
    type: float
    default: 900
  generate_timeout:
    description: Seconds that the proving generation may take.
    type: float
    default: 120
  lost_timeout:
    description: Seconds that the controller tries to reach a host that went away meanwhile; the module itself goes on there.
    type: float
    default: 300
attributes:
  check_mode:
    description: Says whether and why it would restart.
    support: full
  diff_mode:
    description: Shows the unit's definition at the last start against the one now.
    support: full
requirements: [requests, nvidia-ml-py]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Restart the engine and wait until it generates
  sglang_service:
    name: ddtree
    state: restarted
    config_id: 5f1c0a9be234

- name: Start the engine if it does not run this configuration yet
  sglang_service:
    name: ddtree
    config_id: 5f1c0a9be234
    expect: {speculative_algorithm: DDTREE, speculative_draft_window_size: 2048}

- name: Look only
  sglang_service:
    name: ddtree
    state: probed
"""

RETURN = r"""
reason:
  description: Why the unit was, or would be, taken down; empty if it was left alone.
  returned: success
  type: str
phases:
  description: Each phase with its seconds and what was seen.
  returned: always
  type: list
  elements: dict
  sample: [{name: stop, seconds: 5.1, detail: exited by itself}]
instance:
  description: Identity of the instance before and after.
  returned: success
  type: dict
  sample: {before: 3f0c, after: 9b1d}
pid:
  description: Main process before and after.
  returned: success
  type: dict
vram_mib:
  description: MiB in use per GPU of the unit, before and after.
  returned: success
  type: dict
ready:
  description: The proving generation.
  returned: when it generated
  type: dict
  sample: {load_seconds: 361.2, seconds: 0.31, http_status: 200, completion_tokens: 32, weight_version: 5f1c0a9be234}
server_info:
  description: What the engine says of itself, without secrets.
  returned: when it generated
  type: dict
notes:
  description: What is worth knowing and no failure, such as a smaller KV pool than at the last good start.
  returned: success
  type: list
  elements: str
active:
  description: State of the unit in the manager's words.
  returned: success
  type: str
cut_off_requests:
  description: Requests that still ran when the drain time was over.
  returned: success
  type: int
killed:
  description: Whether the stop ended in SIGKILL.
  returned: success
  type: bool
phase:
  description: The phase that failed.
  returned: failure
  type: str
cause:
  description: One word of a closed list.
  returned: failure
  type: str
remedy:
  description: What to do.
  returned: failure
  type: str
evidence:
  description: Pids, MiB and states that show the cause.
  returned: failure
  type: dict
log_tail:
  description: The last lines of this invocation, without secrets.
  returned: failure
  type: list
  elements: str
"""

import json
import time
import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.ddtree.gpus import Nvml
from ansible.module_utils.ddtree.lease import LeaseError, Leases
from ansible.module_utils.ddtree.lifecycle import Lifecycle
from ansible.module_utils.ddtree.logs import redact
from ansible.module_utils.ddtree.memory import BusyError, Memory, Progress
from ansible.module_utils.ddtree.ports import RestartError, UnitState, Want
from ansible.module_utils.ddtree.router import of_server
from ansible.module_utils.ddtree.server import Sglang
from ansible.module_utils.ddtree.services import ServiceError, Supervisor, Systemd

LOG_TAIL = 40
RESOLVED = (
    "version",
    "weight_version",
    "attention_backend",
    "page_size",
    "tp_size",
    "max_running_requests",
    "max_total_num_tokens",
    "context_length",
    "mem_fraction_static",
    "startup_time",
    "disable_overlap_schedule",
)

ARGUMENT_SPEC = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "default": "started", "choices": ["started", "restarted", "stopped", "probed"]},
    "manager": {"type": "str", "default": "systemd", "choices": ["systemd", "supervisor"]},
    "supervisor_config": {"type": "path"},
    "supervisor_socket": {"type": "path"},
    "host": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "default": 30000},
    "api_key": {"type": "str", "no_log": True},
    "admin_api_key": {"type": "str", "no_log": True},
    "config_id": {"type": "str", "default": ""},
    "expect": {"type": "dict", "default": {}},
    "log_proofs": {"type": "list", "elements": "str", "default": []},
    "gpus": {"type": "list", "elements": "str", "default": []},
    "state_dir": {"type": "path", "default": "/var/lib/ddtree-ops"},
    "idle_mib": {"type": "int", "default": 1024},
    "min_tokens": {"type": "int", "default": 32},
    "runner": {"type": "str", "default": ""},
    "run_id": {"type": "str", "default": ""},
    "router_url": {"type": "str"},
    "router_api_key": {"type": "str", "no_log": True},
    "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "router_worker": {"type": "str"},
    "drain_timeout": {"type": "float", "default": 30},
    "stop_timeout": {"type": "float", "default": 240},
    "release_timeout": {"type": "float", "default": 120},
    "ready_timeout": {"type": "float", "default": 900},
    "generate_timeout": {"type": "float", "default": 120},
    "lost_timeout": {"type": "float", "default": 300},
}
_WANTED = (
    "state",
    "config_id",
    "expect",
    "log_proofs",
    "min_tokens",
    "idle_mib",
    "drain_timeout",
    "stop_timeout",
    "release_timeout",
    "ready_timeout",
    "generate_timeout",
)


class Clock:
    """The machine's own time."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


def ports(module: AnsibleModule, secrets: list):
    """The real unit, GPUs and server."""
    asked = module.params
    if asked["manager"] == "supervisor":
        service = Supervisor(asked["name"], asked["supervisor_config"], asked["supervisor_socket"], secrets)
    else:
        service = Systemd(asked["name"], secrets)
    server = Sglang(
        asked["host"],
        asked["port"],
        asked["api_key"] or "",
        asked["admin_api_key"] or "",
        tokens=asked["min_tokens"],
        timeout=asked["generate_timeout"],
    )
    return service, Nvml(asked["gpus"]), server


def diff(life: Lifecycle, record: dict) -> dict:
    """The unit's definition at its last start against the one now."""
    before = (record.get("started") or {}).get("definition", "")
    try:
        after = life.service.definition()
    except ServiceError:
        after = ""
    return {"before": before + "\n", "after": after + "\n", "before_header": "running", "after_header": "asked"}


def result(life: Lifecycle, before_record: dict) -> dict:
    done = life.outcome
    return {
        "changed": done.changed,
        "reason": done.reason,
        "phases": done.phases,
        "notes": done.notes,
        "instance": {"before": done.before.invocation, "after": done.after.invocation},
        "pid": {"before": done.before.main_pid, "after": done.after.main_pid},
        "vram_mib": {"before": done.vram_before, "after": done.vram_after},
        "active": (done.after if done.after != UnitState() else done.before).active,
        "ready": done.ready,
        "server_info": resolved(done.info, life.want.expect),
        "cut_off_requests": done.cut_off_requests,
        "killed": done.killed,
        "diff": diff(life, before_record),
    }


def resolved(info: dict, expect: dict) -> dict:
    """The fields of server_info that say what was loaded; the whole is 465 fields."""
    return {
        key: value
        for key, value in info.items()
        if key in RESOLVED or key in expect or (key.startswith("speculative_") and value not in (None, False))
    }


def log_tail(life: Lifecycle, secrets: list) -> list:
    state = life.outcome.after if life.outcome.after.invocation else life.outcome.before
    try:
        return [redact(line, secrets) for line in life.service.log(state)[-LOG_TAIL:]]
    except ServiceError:
        return []


def wanted(module: AnsibleModule, record: dict) -> Want:
    """What is asked; a run sent twice, because the connection broke before the first was confirmed, restarts once."""
    asked = {key: module.params[key] for key in _WANTED}
    run_id = module.params["run_id"]
    if run_id and record.get("run_id") == run_id and asked["state"] == "restarted":
        asked["state"] = "started"
    record["run_id"] = run_id
    return Want(check=module.check_mode, **asked)


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        required_if=[("manager", "supervisor", ("supervisor_config", "supervisor_socket"))],
    )
    try:
        import requests  # noqa: F401  the server port needs it; say so before anything is stopped
    except ImportError:
        module.fail_json(msg=missing_required_lib("requests"), exception=traceback.format_exc())
    keys = [module.params[name] for name in ("api_key", "admin_api_key", "router_api_key")]
    secrets = [one for one in [*keys, *module.params["secrets"]] if one]
    store = Memory(module.params["state_dir"], module.params["name"])
    if module.params["state"] != "probed" and not module.check_mode:
        require_lease(module)
    try:
        with store.locked({key: module.params[key] for key in ("runner", "state", "config_id")}):
            bring(module, store, secrets)
    except BusyError as busy:
        module.fail_json(
            msg=f"{module.params['name']} is being worked on by {busy}",
            phase="inspect",
            cause="busy",
            phases=[],
            remedy="wait for that run, or end it",
            evidence=busy.holder,
            log_tail=[],
        )


def require_lease(module: AnsibleModule) -> None:
    """Nobody works on a unit that is leased to somebody else; one's own lease runs for its whole time again."""
    try:
        Leases(module.params["state_dir"], module.params["name"]).renew(module.params["runner"])
    except LeaseError as error:
        module.fail_json(
            msg=str(error), phase="inspect", cause="busy", phases=[], remedy="wait for that work to end", evidence=error.lease, log_tail=[]
        )


def bring(module: AnsibleModule, store: Memory, secrets: list) -> None:
    """Bring the unit to its state, while nobody else works on it."""
    asked, record = module.params, store.load()
    before = json.loads(json.dumps(record))
    progress = Progress(asked["state_dir"], asked["name"], asked["run_id"])
    life = Lifecycle(
        *ports(module, secrets), Clock(), wanted(module, record), record, save=store.save, tell=progress, router=of_server(asked)
    )
    try:
        life.run()
    except RestartError as failure:
        progress({"over": True, "end": True})
        said = failure.as_dict()
        said["evidence"] = json.loads(redact(json.dumps(said["evidence"], default=str), secrets))
        module.fail_json(
            msg=redact(f"{failure.message}. {failure.remedy}", secrets),
            phases=life.outcome.phases,
            changed=life.outcome.changed,
            log_tail=log_tail(life, secrets),
            **{key: said[key] for key in ("phase", "cause", "remedy", "evidence")},
        )
    except ServiceError as error:
        module.fail_json(
            msg=redact(str(error), secrets),
            phase=life.phases.name,
            cause="invalid_config",
            phases=life.outcome.phases,
            changed=life.outcome.changed,
            remedy="the service manager must answer",
            evidence={},
            log_tail=log_tail(life, secrets),
        )
    progress({"over": True, "end": True})
    module.exit_json(**result(life, before))


if __name__ == "__main__":
    main()
