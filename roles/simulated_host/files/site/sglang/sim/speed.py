"""How fast the simulated engine generates and how many tokens a verify step gives: one formula, without clock or state.

Fitted to eight RTX PRO 6000 (PCIe) with Kimi K2.6 and its DFlash drafter (block 8), points 12/6/2048 and 8/4/2048;
elsewhere it only behaves sensibly. docs/simulator.md explains each term. Times are milliseconds unless named otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

REFERENCE_TP = 8
CHAIN_P = 0.76  # chance that one more token of a chain draft is right, given that those before it were
TREE_GAIN = {1: 0.0, 2: 0.40, 3: 0.48, 4: 0.53, 5: 0.56}  # accept length of a tree over that of the whole chain
TREE_GAIN_WIDE = 0.58
TREE_FROM, TREE_SCALE = 1.9, 4.64  # budget at which the gain begins, and how fast it saturates
CONTEXT_LOSS, CONTEXT_KNEE = 0.477, 3143.0  # the drafter guesses worse in a long context
WINDOW_LOSS, TINY_WINDOW_LOSS, TINY_WINDOW = 0.31, 0.35, 300.0

BASE_MS = 15.6  # one forward pass of the target: launch, attention, all-reduce over PCIe
EXPERTS, EXPERTS_PER_TOKEN = 384, 8
EXPERT_MS = 0.140  # reading one more expert's weights
TOKEN_MS = 0.243  # one more token in the pass
TREE_NODE_MS = 0.127  # the tree is built on the CPU, one request after the other
ATTEND_MS = 0.165  # attention of one request per 1000 tokens of context
DRAFT_MS, DRAFT_REQUEST_MS, DRAFT_ATTEND_MS = 0.55, 0.20, 0.075  # the drafter's pass; last: per (1000 tokens)^2 it sees
TTFT_S, TTFT_TOKEN_S = 0.012, 0.000016  # quick, so that a figure hardly depends on the length of the answers


@dataclass(frozen=True)
class Config:
    """What decides speed. `topk` is the ceiling SGLANG_DDTREE_MAX_TOPK; `window` None = the drafter sees everything."""

    algorithm: str = "DDTREE"  # NONE, DFLASH or DDTREE
    budget: int = 12
    topk: int = 6
    window: int | None = 2048
    tp: int = 8
    block: int = 8

    @property
    def tree(self) -> bool:
        """A budget within the block is a chain cut short ("spine"), more is a full tree."""
        return self.algorithm == "DDTREE" and self.budget > self.block - 1

    @property
    def effective_topk(self) -> int:
        """min(max(budget // (block - 1) + 1, 2), ceiling), as pull request 29907 derives it; 1 for a chain."""
        if not self.tree:
            return 1
        return max(1, min(max(self.budget // (self.block - 1) + 1, 2), self.topk))

    @property
    def width(self) -> int:
        """Tokens the target verifies per request and step."""
        if self.algorithm == "NONE":
            return 1
        return self.budget + 1 if self.algorithm == "DDTREE" else self.block

    @property
    def longest_step(self) -> int:
        """The most tokens one verify step can give: the accepted path and the bonus token."""
        return min(self.width, self.block) if self.algorithm != "NONE" else 1


def config(budget: int = 12, topk: int = 6, window: int | None = 2048, algorithm: str = "DDTREE", tp: int = 8, block: int = 8) -> Config:
    """A Config from a point's numbers."""
    return Config(algorithm.upper(), budget, topk, window, tp, block)


@lru_cache(maxsize=4096)
def accept_length(cfg: Config, context: int) -> float:
    """Mean tokens per verify step, bonus token included (completion_tokens / spec_verify_ct), at `context` prompt tokens."""
    if cfg.algorithm == "NONE":
        return 1.0
    full = _chain(cfg.width - 1 if not cfg.tree else cfg.block - 1)
    if cfg.tree:
        gain = TREE_GAIN.get(cfg.effective_topk, TREE_GAIN_WIDE)
        full *= 1 + gain * (1 - math.exp(-(cfg.budget - TREE_FROM) / TREE_SCALE))
    knee = (context / CONTEXT_KNEE) ** 3
    kept = 1 - CONTEXT_LOSS * knee / (1 + knee)
    if cfg.window is not None and context > cfg.window:
        unseen = 1 - cfg.window / context
        kept *= 1 - unseen * (WINDOW_LOSS + TINY_WINDOW_LOSS * math.exp(-cfg.window / TINY_WINDOW))
    return min(1 + (full - 1) * kept, cfg.longest_step * 0.95)


def _chain(drafts: int) -> float:
    return (1 - math.pow(CHAIN_P, drafts + 1)) / (1 - CHAIN_P)


@lru_cache(maxsize=65536)
def step_seconds(cfg: Config, context: int, concurrency: int) -> float:
    """Time of one verify step (one decode step without speculation) with `concurrency` requests in the engine."""
    tokens = concurrency * cfg.width
    touched = EXPERTS * (1 - math.pow(1 - EXPERTS_PER_TOKEN / EXPERTS, tokens))
    compute = EXPERT_MS * touched + TOKEN_MS * tokens + ATTEND_MS * concurrency * context / 1000
    cpu = 0.0
    if cfg.algorithm != "NONE":
        seen = context if cfg.window is None else min(context, cfg.window)
        compute += DRAFT_MS + concurrency * (DRAFT_REQUEST_MS + DRAFT_ATTEND_MS * (seen / 1000) ** 2)
        cpu = TREE_NODE_MS * concurrency * cfg.budget if cfg.tree else 0.0
    return (BASE_MS + compute * math.pow(REFERENCE_TP / cfg.tp, 0.8) + cpu) / 1000


def ttft_seconds(context: int, tp: int = REFERENCE_TP) -> float:
    """Wait for the first token after `context` prompt tokens that the prefix cache does not hold."""
    return TTFT_S + TTFT_TOKEN_S * context * math.pow(REFERENCE_TP / tp, 0.8)


def user_tok_s(cfg: Config, context: int, concurrency: int) -> float:
    """Tokens per second of one stream while it decodes."""
    return accept_length(cfg, context) / step_seconds(cfg, context, concurrency)


def output_tok_s(cfg: Config, context: int, concurrency: int, output_tokens: int = 256) -> float:
    """Output tokens per second of `concurrency` closed-loop streams in the steady state, the wait for first tokens included."""
    decode = output_tokens / user_tok_s(cfg, context, concurrency)
    return concurrency * output_tokens / (ttft_seconds(context, cfg.tp) + decode)
