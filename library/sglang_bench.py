#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_bench
short_description: Measure an SGLang server at one context length and concurrency
description:
  - Runs a closed loop with so many requests in flight, or an open loop at a Poisson rate, and returns one cell of a result file.
  - Prompts are real text of exactly the context's number of tokens, each with a beginning of its own, so that the prefix cache is not
    measured. Tokens are counted by the engine, never by pieces of the stream.
  - The window begins when the last warm-up request has ended and ends with the last measured one. Slots go on without a pause before
    and after it, so neither ramp-up nor drain is averaged in.
  - Repeats until the 95% interval of token/s is narrow enough, or a cap is reached.
  - Nothing on the server is changed but its prefix cache, which is flushed first.
options:
  url:
    description: The server, as C(http://HOST:PORT).
    type: str
    required: true
  context:
    description: Tokens of each prompt, by the server's count; 0 to take the records of a file of prompts as long as they are.
    type: int
    required: true
  concurrency:
    description: Requests in flight; with O(rate) the most that may be.
    type: int
    required: true
  rate:
    description: Requests per second of an open loop, arriving at random moments (Poisson); 0 for a closed loop.
    type: float
    default: 0
  corpus:
    description: File on the host that prompts are made of, a text, or JSON records (JSONL, ShareGPT).
    type: path
    required: true
  requests:
    description: Requests of one repeat, in a closed loop made up to a multiple of O(concurrency). Warm-up comes on top.
    type: int
    default: 0
  repeats_least:
    description: Repeats before the measurement may end.
    type: int
    default: 3
  repeats_most:
    description: Repeats after which it ends however wide the interval is.
    type: int
    default: 8
  seconds_most:
    description: Seconds that the window should not exceed; the first repeat is always measured to its end.
    type: float
    default: 60
  precision:
    description: Half width of the 95% interval of token/s, as a share of it, at which the measurement ends.
    type: float
    default: 0.03
  output_tokens:
    description: New tokens per request, at most; exactly so with O(ignore_eos).
    type: int
    default: 256
  api:
    description: The route. V(chat) applies the model's chat template, as users' requests do; V(generate) is SGLang's own, without one.
    type: str
    choices: [generate, chat, completions]
    default: chat
  stream:
    description: Whether answers come piece by piece; without it there are no times of tokens.
    type: bool
    default: true
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
  prefix_sharing:
    description: Share of each prompt that all have in common, between 0 and 0.9, to measure the prefix cache on purpose.
    type: float
    default: 0
  thinking:
    description: Whether the chat template of O(api=chat) asks for reasoning.
    type: bool
    default: false
  processes:
    description: Processes that make the load; 0 for one up to what one can do, and more beyond.
    type: int
    default: 0
  unit:
    description: The engine's systemd unit, whose log of this invocation is a source of the accept length, and tells why an engine died.
    type: str
    default: ''
  log:
    description: The same where supervisord writes the engine's log to a file.
    type: path
    default: ''
  idle_timeout:
    description: Seconds without a piece of an answer after which a request counts as failed.
    type: float
    default: 120
  number:
    description: Which cell this is, for RV(line).
    type: int
    default: 0
  of:
    description: How many cells there are, for RV(line).
    type: int
    default: 0
  began:
    description: When the first of them began, in seconds of the epoch, for RV(line).
    type: float
    default: 0
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
    corpus: /opt/ddtree-ops/corpus/prose.txt

- name: Measure what users see when 1.5 requests come in each second
  sglang_bench:
    url: http://127.0.0.1:30000
    context: 1024
    rate: 1.5
    concurrency: 512
    requests: 30
    corpus: /opt/ddtree-ops/corpus/chat.jsonl
"""

RETURN = r"""
cell:
  description: The measured cell, as a result file has it.
  returned: the cell could be measured, and not in check mode
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
      description: Interval of RV(cell.output_tok_s), by Student's t over repeats; RV(cell.ci95_method) says what it covers.
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
      description: Where it is from, C(requests), C(metrics), C(server_info) or C(log), the first that tells.
      type: str
    accept:
      description: What each of the sources says, and what it counted.
      type: dict
    repeats:
      description: The figures of each repeat. Repeat k of two measurements with one seed has the same prompts.
      type: list
      elements: dict
    per_prompt:
      description: Tokens, seconds of decoding and verify steps by passage, to compare two measurements with one seed in pairs.
      type: list
      elements: dict
    stopped:
      description: Why it measured no longer, C(precision), C(repeats) or C(seconds).
      type: str
    client:
      description: What the load cost this machine. C(cpu) is a share of one core, C(lag_ms_p99) how late the event loop was.
      type: dict
    achieved_concurrency:
      description: Requests in flight, averaged over the window.
      type: float
    warnings:
      description: What makes the cell doubtful, as C(code - words); empty for a clean one.
      type: list
      elements: str
line:
  description: One line that tells of the cell, with the time that is left.
  returned: with RV(cell)
  type: str
engine:
  description: Whether the engine still answers.
  returned: the cell could not be measured
  type: bool
cause:
  description: A word for what happened, as C(measurement_failed), C(out_of_memory), C(crashed) or C(engine_gone).
  returned: the cell could not be measured
  type: str
log_tail:
  description: The engine's last lines, where the log is known and the engine is gone.
  returned: the cell could not be measured
  type: list
  elements: str
server:
  description: What the server allows, RV(server.max_running_requests) and RV(server.context_length), with its version and model.
  returned: success, and not in check mode
  type: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    import aiohttp  # noqa: F401

    NO_AIOHTTP = None
except ImportError as error:
    NO_AIOHTTP = str(error)
else:
    from ansible.module_utils.ddtree.loadgen import CellError, CellSpec, run_cell
    from ansible.module_utils.ddtree.matrix import line
from ansible.module_utils.ddtree.logs import redact, redact_all

LEAST = {
    "context": 0, "concurrency": 1, "output_tokens": 1, "requests": 0, "repeats_least": 1, "repeats_most": 1, "seconds_most": 0,
    "precision": 0, "rate": 0, "processes": 0, "prefix_sharing": 0,
}  # fmt: skip
MOST = {"prefix_sharing": 0.9, "processes": 64}


def argument_spec() -> dict:
    return {
        "url": {"type": "str", "required": True},
        "context": {"type": "int", "required": True},
        "concurrency": {"type": "int", "required": True},
        "rate": {"type": "float", "default": 0},
        "corpus": {"type": "path", "required": True},
        "requests": {"type": "int", "default": 0},
        "repeats_least": {"type": "int", "default": 3},
        "repeats_most": {"type": "int", "default": 8},
        "seconds_most": {"type": "float", "default": 60},
        "precision": {"type": "float", "default": 0.03},
        "output_tokens": {"type": "int", "default": 256},
        "api": {"type": "str", "choices": ["generate", "chat", "completions"], "default": "chat"},
        "stream": {"type": "bool", "default": True},
        "model": {"type": "str", "default": ""},
        "api_key": {"type": "str", "no_log": True},
        "admin_api_key": {"type": "str", "no_log": True},
        "seed": {"type": "str", "default": "0"},
        "ignore_eos": {"type": "bool", "default": False},
        "flush": {"type": "bool", "default": True},
        "flush_timeout": {"type": "float", "default": 30},
        "prefix_sharing": {"type": "float", "default": 0},
        "thinking": {"type": "bool", "default": False},
        "processes": {"type": "int", "default": 0},
        "unit": {"type": "str", "default": ""},
        "log": {"type": "path", "default": ""},
        "idle_timeout": {"type": "float", "default": 120},
        "number": {"type": "int", "default": 0},
        "of": {"type": "int", "default": 0},
        "began": {"type": "float", "default": 0},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    given = dict(module.params)
    secrets = [given["api_key"], given["admin_api_key"]]
    wrong = _wrong(given)
    if wrong:
        module.fail_json(msg=wrong)
    if NO_AIOHTTP is not None:
        module.fail_json(msg=missing_required_lib("aiohttp"), exception=NO_AIOHTTP)
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="Check mode: no request was sent, so there are no figures.")
    number, of, began = (given.pop(name) for name in ("number", "of", "began"))
    given["streamed"] = given.pop("stream")
    spec = CellSpec(**{key: ("" if value is None else value) for key, value in given.items()})
    try:
        cell = run_cell(spec)
    except CellError as error:
        module.fail_json(
            msg=f"{redact(str(error), secrets)}.", context=spec.context, concurrency=spec.concurrency, phase="measure",
            cause=error.cause, engine=error.engine, log_tail=redact_all(error.log_tail, secrets),
        )  # fmt: skip
    said = line(cell, number, of, time.time() - began if began else 0.0)
    module.exit_json(changed=False, server=cell.pop("server"), cell=cell, line=said)


def _wrong(given: dict) -> str:
    for name, least in LEAST.items():
        value, most = given[name], MOST.get(name)
        if value < least or (most is not None and value > most):
            return f"{name} is {value}, {f'at least {least}' if most is None else f'{least} to {most}'} is wanted."
    return ""


if __name__ == "__main__":
    main()
