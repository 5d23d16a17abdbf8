"""The parser, where the real package has it."""

from __future__ import annotations

import argparse

from sglang.sim import flags


class ServerArgs:
    """Names the flags of this build."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        flags.add_cli_args(parser, flags.stock_build())
