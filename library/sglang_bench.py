#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_bench
short_description: Measure an SGLang server at one context length and concurrency
description:
  - Runs a closed loop with so many requests in flight, and returns one cell of a result file.
  - Prompts are real text of exactly the context's number of tokens, each with a beginning of its own, so that the prefix cache is not
    measured. Tokens are counted by the engine, never by pieces of the stream.
  - The window begins when the last warm-up request has ended and ends with the last measured one. Slots go on without a pause before
    and after it, so neither ramp-up nor drain is averaged in.
  - Nothing on the server is changed but its prefix cache, which is flushed first.
options:
  url:
    description: The server, as C(http://HOST:PORT).
    type: str
    required: true
  mode:
    description: V(measure) runs the cell; V(check) only asks the server whether the cell fits, and sends no prompt.
    type: str
    choices: [measure, check]
    default: measure
  context:
    description: Tokens of each prompt, by the server's count.
    type: int
    required: true
  concurrency:
    description: Requests in flight.
    type: int
    required: true
  corpus:
    description: Text file on the host that prompts are made of; needed to measure.
    type: path
  requests:
    description: Measured requests; never fewer than O(concurrency). Warm-up and what holds the load at the end are not counted.
    type: int
    default: 0
  output_tokens:
    description: New tokens per request, at most; exactly so with O(ignore_eos).
    type: int
    default: 256
  api:
    description: The route. V(generate) is SGLang's own and the only one whose answers tell verify steps in all builds.
    type: str
    choices: [generate, chat, completions]
    default: generate
  model:
    description: The model's name for the OpenAI routes; empty to take the first that the server lists.
    type: str
    default: ''
  api_key:
    description: Sent with every request. Never shown.
    type: str
  admin_api_key:
    description: Sent with the flush of the cache where the server has one. Never shown.
    type: str
  seed:
    description: Chooses passages and beginnings; two measurements with one seed use the same prompts.
    type: str
    default: '0'
  ignore_eos:
    description: Make every answer O(output_tokens) long. Text past its natural end is accepted more easily, so the result is marked.
    type: bool
    default: false
  flush:
    description: Empty the prefix cache first. A cell that could not be flushed is marked.
    type: bool
    default: true
  flush_timeout:
    description: Seconds to wait for an idle server to flush.
    type: float
    default: 30
  thinking:
    description: Whether the chat template of O(api=chat) asks for reasoning.
    type: bool
    default: false
  idle_timeout:
    description: Seconds without a piece of an answer after which a request counts as failed.
    type: float
    default: 120
attributes:
  check_mode:
    description: Sends nothing and says so.
    support: full
  diff_mode:
    description: Nothing is changed on the host.
    support: none
requirements: [aiohttp]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Measure 32 users with prompts of 1024 tokens
  sglang_bench:
    url: http://127.0.0.1:30000
    context: 1024
    concurrency: 32
    requests: 160
    corpus: /opt/ddtree-ops/corpus/prose.txt

- name: Ask whether the largest cell fits
  sglang_bench:
    url: http://127.0.0.1:30000
    mode: check
    context: 8192
    concurrency: 64
"""

RETURN = r"""
cell:
  description: The measured cell, as a result file has it.
  returned: mode is measure, and not in check mode
  type: dict
  contains:
    context:
      description: Tokens of a prompt.
      type: int
    concurrency:
      description: Requests in flight.
      type: int
    requests:
      description: Measured requests.
      type: int
    errors:
      description: How many of them failed; RV(cell.error_kinds) has the kinds.
      type: int
    output_tokens:
      description: Tokens that came within the window.
      type: int
    seconds:
      description: Length of the window.
      type: float
    output_tok_s:
      description: Tokens per second of all slots together, waits for first tokens included.
      type: float
    user_tok_s:
      description: Tokens per second of one stream after its first piece, median over requests.
      type: float
    ci95:
      description: Interval of RV(cell.output_tok_s); RV(cell.ci95_method) says what it covers. Null for fewer than three requests.
      type: list
      elements: float
    ttft_ms:
      description: p50, p95 and p99 of the time to the first token.
      type: dict
    tpot_ms:
      description: The same of the time per token after the first piece, by request.
      type: dict
    itl_ms:
      description: The same of the gaps between tokens; a piece with several tokens shares its gap among them.
      type: dict
    e2e_ms:
      description: The same of whole requests.
      type: dict
    accept_length:
      description: Tokens per verify step. Null without speculation, or where nothing tells.
      type: float
    accept_source:
      description: C(requests) or C(metrics).
      type: str
    achieved_concurrency:
      description: Requests in flight, averaged over the window.
      type: float
    warnings:
      description: What makes the cell doubtful, as C(code - words); empty for a clean one.
      type: list
      elements: str
server:
  description: What the server allows, RV(server.max_running_requests) and RV(server.context_length), with its version and model.
  returned: success, and not in check mode
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    import aiohttp  # noqa: F401

    NO_AIOHTTP = None
except ImportError as error:
    NO_AIOHTTP = str(error)
else:
    from ansible.module_utils.ddtree.loadgen import CellError, CellSpec, check, run_cell
from ansible.module_utils.ddtree.logs import redact


def argument_spec() -> dict:
    return {
        "url": {"type": "str", "required": True},
        "mode": {"type": "str", "choices": ["measure", "check"], "default": "measure"},
        "context": {"type": "int", "required": True},
        "concurrency": {"type": "int", "required": True},
        "corpus": {"type": "path"},
        "requests": {"type": "int", "default": 0},
        "output_tokens": {"type": "int", "default": 256},
        "api": {"type": "str", "choices": ["generate", "chat", "completions"], "default": "generate"},
        "model": {"type": "str", "default": ""},
        "api_key": {"type": "str", "no_log": True},
        "admin_api_key": {"type": "str", "no_log": True},
        "seed": {"type": "str", "default": "0"},
        "ignore_eos": {"type": "bool", "default": False},
        "flush": {"type": "bool", "default": True},
        "flush_timeout": {"type": "float", "default": 30},
        "thinking": {"type": "bool", "default": False},
        "idle_timeout": {"type": "float", "default": 120},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), required_if=[("mode", "measure", ["corpus"])], supports_check_mode=True)
    given = dict(module.params)
    mode, secrets = given.pop("mode"), [given["api_key"], given["admin_api_key"]]
    for name in ("context", "concurrency", "output_tokens"):
        if given[name] < 1:
            module.fail_json(msg=f"{name} is {given[name]}, at least 1 is wanted.")
    if NO_AIOHTTP is not None:
        module.fail_json(msg=missing_required_lib("aiohttp"), exception=NO_AIOHTTP)
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="Check mode: no request was sent, so there are no figures.")
    spec = CellSpec(**{key: "" if value is None else value for key, value in given.items()})
    try:
        if mode == "check":
            module.exit_json(changed=False, server=check(spec))
        cell = run_cell(spec)
    except CellError as error:
        module.fail_json(msg=f"{redact(str(error), secrets)}.", context=spec.context, concurrency=spec.concurrency)
    module.exit_json(changed=False, server=cell.pop("server"), cell=cell)


if __name__ == "__main__":
    main()
