#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_codecheck
short_description: Check that an SGLang server still writes programs that work
description:
  - Asks for small Python functions, takes the code out of the answers, and runs it on hidden cases in a sandbox.
  - Nothing of an answer is run outside of a sandbox, unless that is allowed. Where none works the module fails before it asks.
  - The harness is tried first, a right and a wrong program for each task, so that a fault of its own is not taken for the engine's.
  - Answers are greedy and come back in full, so that those of two points can be compared; docs/coding.md says how.
options:
  url:
    description: The server, as C(http://HOST:PORT).
    type: str
    required: true
  tasks:
    description:
      - Names of tasks and of sets of them. The sets are V(origin), the five that the project began with, V(short), V(medium) and V(long),
        and V(all).
      - Empty for V(origin).
    type: list
    elements: str
    default: []
  max_tokens:
    description: New tokens per answer. An answer that this cuts short counts as truncated, unless the code in it passes.
    type: int
    default: 1024
  more_tokens:
    description: The limit for asking once more where O(max_tokens) cut an answer; V(0) for not asking again.
    type: int
    default: 4096
  side_by_side:
    description: Prompts in flight. The same for all points, since batches of other shapes may give other answers where two are all but
      equally likely.
    type: int
    default: 8
  api:
    description: The route that is asked.
    type: str
    choices: [chat, completions, generate]
    default: chat
  model:
    description: The model's name for the OpenAI routes; empty to take the first that the server lists.
    type: str
    default: ''
  thinking:
    description: Whether the chat template asks for reasoning, which counts towards O(max_tokens).
    type: bool
    default: false
  sandboxes:
    description: Sandboxes to try, in this order; empty for those that the host has, of C(systemd), C(bwrap) and C(unshare).
    type: list
    elements: str
    choices: [systemd, bwrap, unshare]
    default: []
  unsandboxed:
    description: Where no sandbox works, run the code with limits only. It can then read files, use the network and stay behind.
    type: bool
    default: false
  api_key:
    description: Sent with every request. Never shown, and never near the code.
    type: str
  timeout:
    description: Seconds for one answer. One that takes longer counts as a timeout.
    type: float
    default: 300
attributes:
  check_mode:
    description: Sends nothing and says so.
    support: full
  diff_mode:
    description: Nothing is changed on the host.
    support: none
requirements: [aiohttp, systemd-run as root or bubblewrap or util-linux]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Check that a draft tree left the answers right
  sglang_codecheck:
    url: http://127.0.0.1:30000
  register: check

- name: Ask for every program, and run them in bubblewrap only
  sglang_codecheck:
    url: http://127.0.0.1:30000
    tasks: [all]
    sandboxes: [bwrap]
"""

RETURN = r"""
coding:
  description: The section C(coding) of a result file.
  returned: success, and not in check mode
  type: dict
  contains:
    passed:
      description: Tasks whose program passed all cases.
      type: int
    truncated:
      description: Tasks whose answer the token limit cut, where it was asked again the larger one.
      type: int
    asked_again:
      description: Tasks whose first answer was cut, so that RV(coding.passed) holds answers of two limits.
      type: int
    total:
      description: Tasks asked.
      type: int
    sandbox:
      description: Where the programs ran, C(systemd), C(bwrap), C(unshare) or C(none).
      type: str
    tasks:
      description: Each task's name, outcome, detail, way of extraction, finish reason, tokens, answer (its first 20,000 letters) and the
        digest of the whole answer.
      type: list
      elements: dict
    seconds:
      description: How long the engine and then the programs took, C(asking) and C(running).
      type: dict
refused:
  description: Whether the check was not done because no sandbox works here; RV(msg) says why.
  returned: failure
  type: bool
"""

import asyncio
import time

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    import aiohttp  # noqa: F401

    NO_AIOHTTP = None
except ImportError as error:
    NO_AIOHTTP = str(error)
else:
    from ansible.module_utils.ddtree.asking import ask_all
    from ansible.module_utils.ddtree.wire import Client, ServerError
from ansible.module_utils.ddtree.codecheck import RefusedError, choose, judge_all, self_check, totals
from ansible.module_utils.ddtree.coding_set import select
from ansible.module_utils.ddtree.logs import redact, redact_all


def argument_spec() -> dict:
    return {
        "url": {"type": "str", "required": True},
        "tasks": {"type": "list", "elements": "str", "default": []},
        "max_tokens": {"type": "int", "default": 1024},
        "more_tokens": {"type": "int", "default": 4096},
        "side_by_side": {"type": "int", "default": 8},
        "api": {"type": "str", "choices": ["chat", "completions", "generate"], "default": "chat"},
        "model": {"type": "str", "default": ""},
        "thinking": {"type": "bool", "default": False},
        "sandboxes": {"type": "list", "elements": "str", "choices": ["systemd", "bwrap", "unshare"], "default": []},
        "unsandboxed": {"type": "bool", "default": False},
        "api_key": {"type": "str", "no_log": True},
        "timeout": {"type": "float", "default": 300},
    }


async def ask(given: dict, tasks: list) -> list:
    key = given["api_key"] or ""
    async with Client(given["url"], given["api"], key, "", given["model"], given["timeout"], given["thinking"]) as client:
        if not client.model and client.api != "generate":
            client.model = await client.name()
        return await ask_all(client, tasks, given["max_tokens"], given["more_tokens"], given["side_by_side"], given["timeout"])


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    given = module.params
    secrets = [given["api_key"]]
    try:
        tasks = select(given["tasks"])
    except ValueError as error:
        module.fail_json(msg=f"{error}.", refused=False)
    for name in ("max_tokens", "side_by_side"):
        if given[name] < 1:
            module.fail_json(msg=f"{name} is {given[name]}, at least 1 is wanted.", refused=False)
    if NO_AIOHTTP is not None:
        module.fail_json(msg=missing_required_lib("aiohttp"), exception=NO_AIOHTTP, refused=False)
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="Check mode: nothing was asked, so nothing was checked.")
    try:
        sandbox = choose(given["unsandboxed"], given["sandboxes"] or None)
        wrong = self_check(sandbox, tasks)
        if wrong:
            module.fail_json(msg=f"The coding check cannot be trusted on this host: {wrong[0]}.", refused=False)
        began = time.monotonic()
        replies = asyncio.run(ask(given, tasks))
    except RefusedError as error:
        module.fail_json(msg=f"The coding check was not done: {error}.", refused=True)
    except ServerError as error:
        module.fail_json(msg=f"{redact(str(error), secrets)}.", refused=False)
    asked = time.monotonic()
    coding = totals(judge_all(list(zip(tasks, replies)), sandbox), sandbox.kind)
    coding.update(
        api=given["api"], thinking=given["thinking"], max_tokens=given["max_tokens"],
        seconds={"asking": round(asked - began, 2), "running": round(time.monotonic() - asked, 2)},
    )  # fmt: skip
    module.exit_json(changed=False, coding=redact_all(coding, secrets))


if __name__ == "__main__":
    main()
