"""sglang.bench_serving at several shapes in one process, so that its imports are paid once.

    peer.py URL TOKENIZER OUTPUT_TOKENS FILE CONTEXT:CONCURRENCY:REQUESTS...
Each shape is what this command does:
    python -m sglang.bench_serving --backend sglang --base-url URL --dataset-name random-ids --tokenize-prompt --random-input-len CONTEXT
      --random-output-len N --random-range-ratio 1.0 --num-prompts REQUESTS --max-concurrency CONCURRENCY --flush-cache
"""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    cli_main = importlib.import_module("sglang.benchmark.serving").cli_main
    url, tokenizer, length, path, *shapes = sys.argv[1:]
    for shape in shapes:
        context, concurrency, requests = shape.split(":")
        # fmt: off
        sys.argv = [
            "bench_serving", "--backend", "sglang", "--base-url", url, "--model", tokenizer, "--dataset-name", "random-ids",
            "--tokenize-prompt", "--random-input-len", context, "--random-output-len", length, "--random-range-ratio", "1.0",
            "--num-prompts", requests, "--max-concurrency", concurrency, "--flush-cache", "--disable-tqdm", "--output-file", path,
            "--tag", f"{context}:{concurrency}",
        ]
        # fmt: on
        cli_main()


if __name__ == "__main__":
    main()
