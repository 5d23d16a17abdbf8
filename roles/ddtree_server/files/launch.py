"""Start SGLang with its keys out of the environment, so that neither the process list, nor the journal, nor the engine's log has them.

The engine takes keys as flags only and logs its arguments. Here they join the flags inside the process, and each log record is
cleaned of their values.
"""

import logging
import os
import runpy
import sys

FLAGS = {"--api-key": "DDTREE_API_KEY", "--admin-api-key": "DDTREE_ADMIN_API_KEY"}


def main() -> None:
    keys = {flag: os.environ[name] for flag, name in FLAGS.items() if os.environ.get(name)}
    make = logging.getLogRecordFactory()

    def clean(*args, **kwargs):
        record = make(*args, **kwargs)
        text = record.getMessage()
        for key in keys.values():
            text = text.replace(key, "***").replace(repr(key)[1:-1], "***")  # arguments are logged as Python writes them
        record.msg, record.args = text, ()
        return record

    logging.setLogRecordFactory(clean)
    for flag, key in keys.items():
        sys.argv += [flag, key]
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
