"""The command line: every flag of the real build (flags.txt) and the arguments they resolve to (server_args.json)."""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

from .faults import Faults
from .speed import Config
from .state import state_dir

HERE = Path(__file__).resolve().parent
BUDGET_FLAG = "--speculative-ddtree-budget"
KNOWN_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO", "FROZEN_KV_MTP")
ALIASES = {
    "--model-path": ("--model",), "--tp-size": ("--tensor-parallel-size",), "--dp-size": ("--data-parallel-size",),
    "--speculative-draft-model-path": ("--speculative-draft-model",), "--pp-size": ("--pipeline-parallel-size",),
}  # fmt: skip
LISTS = ("cuda_graph_bs", "cuda_graph_bs_decode", "cuda_graph_bs_prefill", "lora_paths", "lora_target_modules", "encoder_urls")
INTEGER = ("_size", "_tokens", "_length", "_requests", "_steps", "_bs", "_topk", "_budget", "_port")
FRACTION = ("mem_fraction_static",)
RENAMED = {
    "cuda_graph_max_bs": "cuda_graph_max_bs_decode", "cuda_graph_bs": "cuda_graph_bs_decode",
    "fp8_gemm_backend": "fp8_gemm_runner_backend", "fp4_gemm_backend": "fp4_gemm_runner_backend",
}  # fmt: skip


class ServerArgs(dict[str, Any]):
    """The resolved arguments by name, as /server_info shows them."""

    def line(self) -> str:
        """As the start log prints them, keys in clear included: so does the real engine."""
        return f"ServerArgs({', '.join(f'{key}={value!r}' for key, value in self.items())})"


class SpeculativeAlgorithm:
    """Names of the algorithms this build knows."""

    @staticmethod
    def from_string(name: str, stock: bool) -> str:
        name = name.upper()
        if name not in algorithms(stock):
            raise ValueError(f"Unknown speculative algorithm name: {name}")
        if name not in ("DFLASH", "DDTREE"):
            raise ValueError(f"The simulated engine does not run {name}; it runs DFLASH, DDTREE and no speculation")
        return name


def algorithms(stock: bool) -> tuple[str, ...]:
    return KNOWN_ALGORITHMS if stock else (*KNOWN_ALGORITHMS, "DDTREE")


def stock_build() -> bool:
    """Whether the fault `build` makes this a build without DDTree."""
    return bool(Faults(state_dir()).get("build") == "stock")


def parser(stock: bool = False) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="sglang serve")
    add_cli_args(result, stock)
    return result


def add_cli_args(result: argparse.ArgumentParser, stock: bool) -> None:
    """The flags of flags.txt; a `stock` build lacks the DDTree flag."""
    lines = (HERE / "flags.txt").read_text().splitlines()
    if not stock:
        lines.append(f"{BUDGET_FLAG} SPECULATIVE_DDTREE_BUDGET")
    defaults = _defaults()
    for line in lines:
        flag, _, value = line.partition(" ")
        flag = flag.rstrip(",")
        dest = flag[2:].replace("-", "_")
        names = (flag, *ALIASES.get(flag, ()))
        if dest == "custom_weight_loader" or dest in LISTS:
            result.add_argument(*names, dest=dest, nargs="*" if not value else "+", default=None)
        elif line.endswith(","):
            result.add_argument(*names, dest=dest, action=argparse.BooleanOptionalAction, default=None)
        elif not value:
            result.add_argument(*names, dest=dest, action="store_true", default=None)
        elif value.startswith("{"):
            result.add_argument(*names, dest=dest, choices=value.strip("{}").split(","), default=None)
        else:
            result.add_argument(*names, dest=dest, type=_type(dest, defaults), default=None, required=flag == "--model-path")


def _type(dest: str, defaults: dict[str, Any]) -> Any:
    default = defaults.get(dest)
    if isinstance(default, (int, float)) and not isinstance(default, bool):
        return type(default)
    if dest in FRACTION:
        return float
    return int if dest == "port" or dest.endswith(INTEGER) else str


def _defaults() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "server_args.json").read_text())
    return found


def prepare_server_args(argv: list[str], stock: bool = False) -> ServerArgs:
    """Parse and resolve. Exits 2 as argparse does; raises ValueError for arguments that do not go together."""
    asked = vars(parser(stock).parse_args(argv))
    args = ServerArgs(_defaults())
    for flag, value in asked.items():
        key = RENAMED.get(flag, flag)
        if value is not None and key != "config":
            args[key] = value
    _resolve_model(args)
    if not stock:
        args.setdefault("speculative_ddtree_budget", None)
    handle_speculative_decoding(args, stock)
    if args["max_running_requests"] is None:
        args["max_running_requests"] = 4096 if args["speculative_algorithm"] is None else 48
    if args["cuda_graph_max_bs_decode"] is None:
        args["cuda_graph_max_bs_decode"] = min(args["max_running_requests"], 32)
    decode = dict(args["cuda_graph_config"]["decode"])
    decode.update(max_bs=args["cuda_graph_max_bs_decode"], bs=list(range(1, args["cuda_graph_max_bs_decode"] + 1)))
    args["cuda_graph_config"] = {**args["cuda_graph_config"], "decode": decode}
    return args


def model_config(path: str | None) -> dict[str, Any]:
    """config.json of a model folder; empty for a name on a hub, which the simulator cannot look up."""
    if not path or not os.path.isabs(path):
        return {}
    file = Path(path) / "config.json"
    if not file.is_file():
        raise OSError(f"{path} does not appear to have a file named config.json")
    found = json.loads(file.read_text())
    return found if isinstance(found, dict) else {}


def _resolve_model(args: ServerArgs) -> None:
    model = model_config(args["model_path"])
    for key in ("tokenizer_path", "served_model_name"):
        args[key] = args[key] or args["model_path"]
    limit = int(model.get("max_position_embeddings", 262144))
    args["context_length"] = args["context_length"] or limit
    args["mem_fraction_static"] = 0.88 if args["mem_fraction_static"] is None else args["mem_fraction_static"]
    args["random_seed"] = random.randrange(1 << 30) if args["random_seed"] is None else int(args["random_seed"])


def handle_speculative_decoding(args: ServerArgs, stock: bool) -> None:
    """The checks and derived values of stock DFLASH and of pull request 29907."""
    if args["speculative_algorithm"] is None:
        return
    name = SpeculativeAlgorithm.from_string(args["speculative_algorithm"], stock)
    args["speculative_algorithm"] = name
    if not args["speculative_draft_model_path"]:
        raise ValueError(f"{name} speculative decoding requires setting --speculative-draft-model-path.")
    if args["pp_size"] != 1:
        raise ValueError(f"{name} speculative decoding only supports pp_size == 1.")
    drafter = model_config(args["speculative_draft_model_path"])
    block = args["speculative_dflash_block_size"] or args["speculative_num_draft_tokens"] or int(drafter.get("block_size", 16))
    block = int(block)
    window = args["speculative_draft_window_size"]
    if window is not None and window <= 0:
        raise ValueError(f"--speculative-draft-window-size must be positive, got {window}.")
    if window is not None and window < block:
        raise ValueError(f"--speculative-draft-window-size ({window}) must be >= speculative_num_draft_tokens ({block}).")
    args.update(speculative_num_draft_tokens=block, speculative_num_steps=1, speculative_eagle_topk=1)
    args["speculative_draft_model_revision"] = args["speculative_draft_model_revision"] or "main"
    args["speculative_draft_attention_backend"] = args["speculative_draft_attention_backend"] or "triton"
    if name == "DDTREE":
        _handle_ddtree(args, block)
    elif args.get("speculative_ddtree_budget") is not None:
        raise ValueError("--speculative-ddtree-budget requires --speculative-algorithm DDTREE.")


def _handle_ddtree(args: ServerArgs, block: int) -> None:
    if args["speculative_ddtree_budget"] is None:
        args["speculative_ddtree_budget"] = block - 1
    budget = args["speculative_ddtree_budget"]
    if budget < 1:
        raise ValueError(f"--speculative-ddtree-budget must be >= 1, got {budget}")
    if args["page_size"] != 1:
        raise ValueError(f"DDTREE requires --page-size 1, got {args['page_size']}")
    if args["speculative_use_rejection_sampling"]:
        raise ValueError("DDTREE does not support --speculative-use-rejection-sampling.")
    if args["enable_dp_attention"]:
        raise ValueError("DDTREE does not support DP attention.")
    for phase in ("prefill", "decode"):
        backend = args[f"{phase}_attention_backend"] or args["attention_backend"]
        if budget > block - 1 and backend != "triton":
            raise ValueError(
                f"DDTREE full-tree mode currently supports only the triton attention backend, got {phase}_attention_backend={backend}."
            )
    args["disable_overlap_schedule"] = True


def speed_config(args: ServerArgs) -> Config:
    """What speed.py needs of the resolved arguments and SGLANG_DDTREE_MAX_TOPK."""
    name = args["speculative_algorithm"] or "NONE"
    topk = int(os.environ.get("SGLANG_DDTREE_MAX_TOPK") or 6)
    block = int(args["speculative_num_draft_tokens"] or 8)
    return Config(
        name, int(args.get("speculative_ddtree_budget") or 0), topk, args["speculative_draft_window_size"], args["tp_size"], block
    )
