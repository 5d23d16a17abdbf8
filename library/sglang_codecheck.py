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
options:
  url:
    description: The server, as C(http://HOST:PORT).
    type: str
    required: true
  tasks:
    description: Names of the tasks; empty for all.
    type: list
    elements: str
    default: []
  max_tokens:
    description: New tokens per answer. An answer that this cuts short counts as truncated, unless the code in it passes.
    type: int
    default: 1024
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
    description: Seconds without a piece of an answer after which a request counts as failed.
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

- name: Ask for two functions in bubblewrap only
  sglang_codecheck:
    url: http://127.0.0.1:30000
    tasks: [fib, gcd]
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
      description: Tasks whose answer the token limit cut.
      type: int
    total:
      description: Tasks asked.
      type: int
    sandbox:
      description: Where the programs ran, C(systemd), C(bwrap), C(unshare) or C(none).
      type: str
    tasks:
      description: Each task's name, outcome, detail, way of extraction, finish reason, tokens and code.
      type: list
      elements: dict
refused:
  description: Whether the check was not done because no sandbox works here; RV(msg) says why.
  returned: failure
  type: bool
"""

import asyncio
import json

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    import aiohttp  # noqa: F401

    NO_AIOHTTP = None
except ImportError as error:
    NO_AIOHTTP = str(error)
else:
    from ansible.module_utils.ddtree.wire import PATHS, Client, ServerError
from ansible.module_utils.ddtree.codecheck import TASKS, RefusedError, choose, extract, judge, self_check, totals
from ansible.module_utils.ddtree.logs import redact, redact_all


def argument_spec() -> dict:
    return {
        "url": {"type": "str", "required": True},
        "tasks": {"type": "list", "elements": "str", "default": []},
        "max_tokens": {"type": "int", "default": 1024},
        "api": {"type": "str", "choices": ["chat", "completions", "generate"], "default": "chat"},
        "model": {"type": "str", "default": ""},
        "thinking": {"type": "bool", "default": False},
        "sandboxes": {"type": "list", "elements": "str", "choices": ["systemd", "bwrap", "unshare"], "default": []},
        "unsandboxed": {"type": "bool", "default": False},
        "api_key": {"type": "str", "no_log": True},
        "timeout": {"type": "float", "default": 300},
    }


async def ask(client, prompt: str, max_tokens: int, timeout: float) -> dict:
    """{text, finish_reason, tokens} of one greedy answer. Raises ServerError."""
    status, text = await client.call("POST", PATHS[client.api], client.body(prompt, max_tokens, False, stream=False), timeout=timeout)
    try:
        answer = json.loads(text)
        if status != 200:
            raise ServerError(f"{client.url}{PATHS[client.api]} gave {status}: {' '.join(text.split())[:160]}")
        if client.api == "generate":
            meta = answer["meta_info"]
            return {"text": answer["text"], "finish_reason": (meta["finish_reason"] or {}).get("type"), "tokens": meta["completion_tokens"]}
        choice = answer["choices"][0]
        said = choice["text"] if client.api == "completions" else choice["message"].get("content")
        return {"text": said or "", "finish_reason": choice["finish_reason"], "tokens": answer["usage"]["completion_tokens"]}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ServerError(f"{client.url}{PATHS[client.api]} gave {status} and no answer of SGLang's shape") from None


async def ask_all(given: dict, tasks: list) -> list:
    key = given["api_key"] or ""
    async with Client(given["url"], given["api"], key, "", given["model"], given["timeout"], given["thinking"]) as client:
        if not client.model and client.api != "generate":
            client.model = await client.name()
        return await asyncio.gather(*(ask(client, task.prompt, given["max_tokens"], given["timeout"]) for task in tasks))


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    given, known = module.params, {task.name: task for task in TASKS}
    secrets = [given["api_key"]]
    unknown = [name for name in given["tasks"] if name not in known]
    if unknown:
        module.fail_json(msg=f"{unknown[0]} is no coding task; there are {', '.join(known)}.", refused=False)
    tasks = [known[name] for name in given["tasks"] or known]
    if NO_AIOHTTP is not None:
        module.fail_json(msg=missing_required_lib("aiohttp"), exception=NO_AIOHTTP, refused=False)
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="Check mode: nothing was asked, so nothing was checked.")
    try:
        sandbox = choose(given["unsandboxed"], given["sandboxes"] or None)
        wrong = self_check(sandbox, tasks)
        if wrong:
            module.fail_json(msg=f"The coding check cannot be trusted on this host: {wrong[0]}.", refused=False)
        answers = asyncio.run(ask_all(given, tasks))
    except RefusedError as error:
        module.fail_json(msg=f"The coding check was not done: {error}.", refused=True)
    except ServerError as error:
        module.fail_json(msg=f"{redact(str(error), secrets)}.", refused=False)
    judged = []
    for task, answer in zip(tasks, answers):
        verdict = judge(answer["text"], task, sandbox, answer["finish_reason"] or "")
        code = extract(answer["text"], task.name, answer["finish_reason"] or "").code
        judged.append({**verdict, "tokens": answer["tokens"], "code": code})
    module.exit_json(changed=False, coding=redact_all(totals(judged, sandbox.kind), secrets))


if __name__ == "__main__":
    main()
