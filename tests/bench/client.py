"""What does the load cost, and how far does a client get? The load generator beside aiperf, guidellm and SGLang's bench_serving.

    client.py [--quick] [--only NAME,...]

All run against one server with an exact schedule (tests/integration/exactserver.py): answers of 97 tokens, four to a piece, the first
after 150 ms and then a piece each 100 ms, so token/s and TTFT are known. CPU is that of the whole process tree. Two runs of different
length give what a token costs and, apart from it, what a start costs. Then the streams are doubled until token/s is more than 5% off.
The others are installed from PyPI into .cache/peers; bench_serving's own code runs without torch, which it only needs to serve.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "module_utils"), str(ROOT / "tests" / "integration")]

from exactserver import Truth  # noqa: E402  needs the path above

PEERS = ROOT / ".cache" / "peers"
TTFT, PACE, SIZE, TOKENS, CONTEXT = 0.15, 0.1, 4, 97, 256
LEVELS = (32, 64, 128, 256, 512, 1024)
BASE, LIMIT = 64, 300  # streams at which costs are compared; seconds that a run may take
NEAR, STOP = 0.01, 0.05
TOKENIZER = "bench/letters"  # each byte a token; a made-up name in an offline cache
INSTALL = {
    "aiperf": [["aiperf"]],
    "guidellm": [["guidellm"]],
    "sglang": [["--no-deps", "sglang==0.5.23"], ["numpy", "aiohttp", "requests", "tqdm", "transformers", "pillow", "pybase64", "pydantic",
               "msgspec", "orjson"]],
}  # fmt: skip


@dataclass(frozen=True)
class Tool:
    """A load generator. `command` of (url, streams, requests, folder); `read` finds {output_tok_s, ttft_ms} in what it left there."""

    name: str
    venv: str
    command: Callable[[str, int, int, Path], list[Any]]
    read: Callable[[Path], dict[str, float]]


def own(url: str, streams: int, requests: int, folder: Path) -> list[Any]:
    return [sys.executable, __file__, "--own", url, str(streams), str(requests), str(folder / "own.json")]


def aiperf(url: str, streams: int, requests: int, folder: Path) -> list[Any]:
    return [PEERS / "aiperf/bin/aiperf", "profile", "--model", "x", "--url", url, "--endpoint-type", "chat", "--streaming", "--tokenizer",
            TOKENIZER, "--concurrency", streams, "--request-count", requests, "--warmup-request-count", streams, "--input-file",
            folder / "prompts.jsonl", "--custom-dataset-type", "single_turn", "--use-server-token-count", "--extra-inputs",
            f"max_tokens:{TOKENS}", "--ui", "none", "--output-artifact-dir", folder / "aiperf"]  # fmt: skip


def guidellm(url: str, streams: int, requests: int, folder: Path) -> list[Any]:
    backend = f"kind=openai_http,target={url},model=x,max_tokens={TOKENS}"
    return [PEERS / "guidellm/bin/guidellm", "run", "--disable-console", "--backend", backend, "--profile",
            f"kind=concurrent,streams={streams}", "--constraint", f"kind=max_requests,count={requests}", "--data",
            f"kind=json_file,path={folder}/prompts.jsonl", "--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}", "--output",
            f"kind=json,path={folder}/guidellm.json"]  # fmt: skip


def bench_serving(url: str, streams: int, requests: int, folder: Path) -> list[Any]:
    return [PEERS / "sglang/bin/python", ROOT / "tests/bench/files/bench_serving.py", "--backend", "sglang", "--base-url", url, "--model",
            "x", "--tokenizer", folder / "tokenizer", "--dataset-name", "random-ids", "--tokenize-prompt", "--random-input-len", CONTEXT,
            "--random-output-len", TOKENS, "--random-range-ratio", "1.0", "--num-prompts", requests,
            "--max-concurrency", streams, "--disable-tqdm", "--output-file",
            folder / "bench_serving.jsonl"]  # fmt: skip


def read_own(folder: Path) -> dict[str, float]:
    cell = json.loads((folder / "own.json").read_text())
    return {"output_tok_s": cell["output_tok_s"], "ttft_ms": cell["ttft_ms"]["p50"]}


def read_aiperf(folder: Path) -> dict[str, float]:
    found = json.loads((folder / "aiperf" / "profile_export_aiperf.json").read_text())
    return {"output_tok_s": found["output_token_throughput"]["avg"], "ttft_ms": found["time_to_first_token"]["p50"]}


def read_guidellm(folder: Path) -> dict[str, float]:
    found = json.loads((folder / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
    rate, ttft = found["output_tokens_per_second"]["successful"], found["time_to_first_token_ms"]["successful"]
    return {"output_tok_s": rate["mean"], "ttft_ms": ttft["median"]}


def read_bench_serving(folder: Path) -> dict[str, float]:
    found = json.loads((folder / "bench_serving.jsonl").read_text().splitlines()[-1])
    return {"output_tok_s": found["output_throughput"], "ttft_ms": found["median_ttft_ms"]}


TOOLS = (
    Tool("ddtree_ops", "", own, read_own),
    Tool("aiperf", "aiperf", aiperf, read_aiperf),
    Tool("guidellm", "guidellm", guidellm, read_guidellm),
    Tool("bench_serving", "sglang", bench_serving, read_bench_serving),
)


def run_own(url: str, streams: int, requests: int, path: str) -> None:
    """What a process of the module does for one cell."""
    from ddtree.loadgen import CellSpec, run_cell

    corpus = ROOT / "roles" / "benchmark" / "files" / "corpus" / "prose.txt"
    spec = CellSpec(url, CONTEXT, streams, str(corpus), requests=requests, output_tokens=TOKENS, repeats_most=1, seconds_most=600)
    Path(path).write_text(json.dumps(run_cell(spec)))


# -- running ---------------------------------------------------------------------------------------------------------------


def installed(tool: Tool) -> str:
    """Install what is missing; why it cannot be, or nothing."""
    if not tool.venv or (PEERS / tool.venv / "complete").exists():
        return ""
    for command in (
        [sys.executable, "-m", "venv", PEERS / tool.venv],
        *([PEERS / tool.venv / "bin/pip", "install", "-q", *packages] for packages in INSTALL[tool.venv]),
    ):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no reason told"])[-1]
    (PEERS / tool.venv / "complete").touch()
    return ""


def tokenizer(home: Path) -> None:
    """A tokenizer in which each byte is a token, where Hugging Face's library looks without a network."""
    code = (
        "import sys\nfrom tokenizers import Tokenizer, decoders, models, pre_tokenizers\n"
        "level = pre_tokenizers.ByteLevel\nvocabulary = {one: at for at, one in enumerate([*sorted(level.alphabet()), '<|end|>'])}\n"
        "found = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))\nfound.pre_tokenizer = level(add_prefix_space=False)\n"
        "found.decoder = decoders.ByteLevel()\nfound.save(sys.argv[1])\n"
    )
    folder, commit = home / "hub" / f"models--{TOKENIZER.replace('/', '--')}", "0" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "model_max_length": 1000000})
    )
    (snapshot / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    python = next(PEERS / name / "bin/python" for name in INSTALL if (PEERS / name / "complete").exists())
    subprocess.run([python, "-c", code, snapshot / "tokenizer.json"], check=True, capture_output=True)


def run(tool: Tool, truth: Truth, streams: int, requests: int, home: Path) -> dict[str, float] | str:
    """CPU seconds of a run and its figures, or why there are none."""
    truth.plan(TTFT, PACE, [SIZE], TOKENS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = (json.dumps({"text": f"{at:012d}. " + "tree and river " * 66}) for at in range(requests + streams))
        (folder / "prompts.jsonl").write_text("\n".join(lines))
        (folder / "tokenizer").symlink_to(next(home.glob("hub/*/snapshots/*")))
        environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        command = [str(word) for word in tool.command(truth.url, streams, requests, folder)]
        before, began = _cpu(), time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT,
                check=False,
            )
            figures = tool.read(folder)
        except subprocess.TimeoutExpired:
            return f"took more than {LIMIT} s"
        except (OSError, ValueError, LookupError, TypeError):
            return f"ended with {done.returncode}: {' '.join(done.stdout.split())[-200:]}"
        return {**figures, "cpu_s": _cpu() - before, "wall_s": time.monotonic() - began, "late_ms": truth.account()["late_ms"]["p99"]}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def off(figures: dict[str, float], streams: int) -> dict[str, float]:
    true = streams * TOKENS / (TTFT + PACE * ((TOKENS - 1) / SIZE))
    return {"output_tok_s": round(figures["output_tok_s"] / true - 1, 5), "ttft_p50": round(figures["ttft_ms"] / (TTFT * 1000) - 1, 5)}


def compare(tool: Tool, truth: Truth, quick: bool, home: Path) -> dict[str, Any] | str:
    """All figures of one tool, or why there are none."""
    base, short, long = (16, 1, 2) if quick else (BASE, 2, 6)
    first = run(tool, truth, base, base * short, home)
    second = first if isinstance(first, str) else run(tool, truth, base, base * long, home)
    if isinstance(first, str) or isinstance(second, str):
        return str(second)
    each = (second["cpu_s"] - first["cpu_s"]) / (base * (long - short) * TOKENS) * 1000
    found: dict[str, Any] = {
        "each": round(each, 4), "start": round(first["cpu_s"] - each * base * short * TOKENS / 1000, 2), "error": off(second, base),
        "wall": second["wall_s"], "late": max(first["late_ms"], second["late_ms"]), "levels": {},
    }  # fmt: skip
    for streams in () if quick else LEVELS:
        figures = run(tool, truth, streams, streams * 4, home)
        if isinstance(figures, str):
            found["levels"][streams] = figures
            break
        found["levels"][streams] = {**off(figures, streams), "late_ms": figures["late_ms"]}
        if abs(found["levels"][streams]["output_tok_s"]) > STOP:
            break
    return found


def highest(levels: dict[int, Any], within: float) -> int:
    """The most streams up to which token/s was never further off."""
    good = 0
    for streams, errors in levels.items():
        if isinstance(errors, str) or abs(errors["output_tok_s"]) > within:
            break
        good = streams
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few streams, no search for the most of them")
    parser.add_argument("--only", default="", help="names of tools, with commas between them")
    parser.add_argument("--own", nargs=4, metavar=("URL", "STREAMS", "REQUESTS", "FILE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.own:
        return run_own(asked.own[0], int(asked.own[1]), int(asked.own[2]), asked.own[3])
    chosen = [one for one in TOOLS if not asked.only or one.name in asked.only.split(",")]
    missing = {one.name: why for one in chosen if (why := installed(one))}
    found: dict[str, Any] = {}
    print("| client | CPU s per 1,000 tokens | CPU s to start | token/s off | TTFT p50 off | streams within 1% | within 5% |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as home, Truth() as truth:
        tokenizer(Path(home))
        for tool in chosen:
            got = missing.get(tool.name) or compare(tool, truth, asked.quick, Path(home))
            if isinstance(got, str):
                print(f"| {tool.name} | not measured: {got} | | | | | |", flush=True)
                continue
            found[tool.name] = got
            most = ["not asked"] * 2 if asked.quick else [str(highest(got["levels"], within)) for within in (NEAR, STOP)]
            print(f"| {tool.name} | {got['each']:.3f} | {got['start']:.1f} | {got['error']['output_tok_s']:+.2%} | "
                  f"{got['error']['ttft_p50']:+.2%} | {most[0]} | {most[1]} |", flush=True)  # fmt: skip
    base = 16 if asked.quick else BASE
    print(f"\nCosts and errors at {base} streams. Errors by streams, token/s and TTFT p50 (server late p99, ms):\n")
    for name, got in found.items():
        said = ", ".join(f"{level}: {one}" if isinstance(one, str) else f"{level}: {one['output_tok_s']:+.2%} {one['ttft_p50']:+.1%} "
                         f"({one['late_ms']:.1f})" for level, one in got["levels"].items())  # fmt: skip
        print(f"* {name}: {said or 'not asked'}")
    print(json.dumps({
        "cpu_s_per_1k_tokens": {name: got["each"] for name, got in found.items()},
        "max_concurrency": {name: None if asked.quick else highest(got["levels"], NEAR) for name, got in found.items()},
        "error": {name: got["error"] for name, got in found.items()},
    }))  # fmt: skip
    return None


if __name__ == "__main__":
    main()
