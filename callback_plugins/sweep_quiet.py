"""Ansible's own output, without a line for each task that went well in plays that say live_view: true; -v shows all again."""

from __future__ import annotations

from typing import Any

from ansible.plugins.callback.default import CallbackModule as Default

DOCUMENTATION = """
name: sweep_quiet
type: stdout
short_description: The default output, quiet where a play has a live view of its own
description: Tasks that fail, and everything in other plays, are shown as ever.
extends_documentation_fragment: [default_callback, result_format_callback]
"""


class CallbackModule(Default):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "sweep_quiet"

    quiet = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        super().v2_playbook_on_play_start(play)
        self.quiet = bool(play.vars.get("live_view")) and self._display.verbosity == 0

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        # What the toolkit's own modules find is told in one sentence by the live view, and whole in the report.
        if not (self.quiet and "cause" in result.result and "phase" in result.result):
            super().v2_runner_on_failed(result, ignore_errors)


def _silent(name: str) -> Any:
    shown = getattr(Default, name)

    def told(self: CallbackModule, *args: Any, **kwargs: Any) -> None:
        if not self.quiet:
            shown(self, *args, **kwargs)
        elif name == "v2_runner_on_ok":
            self._handle_warnings_and_exception(args[0])
        elif name == "v2_playbook_on_task_start":
            self._last_task_name = None  # a banner for a failure is then the failed task's own

    return told


for _name in (
    "v2_playbook_on_task_start", "v2_playbook_on_include", "v2_playbook_on_handler_task_start",
    "v2_runner_on_ok", "v2_runner_on_skipped", "v2_runner_item_on_ok", "v2_runner_item_on_skipped", "v2_runner_retry", "v2_on_file_diff",
    "v2_runner_on_start",
):  # fmt: skip
    setattr(CallbackModule, _name, _silent(_name))
