"""Every command that reads a cluster, one after the other in one process, with all logs at DEBUG.

``every_command.py LOG BOOTSTRAP PROPERTIES OUT``. Python's log goes to LOG. Says on its last line
the exit code of each command.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path

from holdfast.cli import app as cli_app
from holdfast.cli.commands import watch

OF_ITS_OWN: dict[str, tuple[str, ...]] = {
    "dump": ("-o", "{out}/dump"),
    "history": ("-o", "{out}/history"),
    "lag": (),
    "plan": ("--assignor", "sticky"),
    "replay": (),
    "watch": ("-o", "{out}/watch", "--every", "1", "--metrics", "{out}/metrics"),
    "report": ("-o", "{out}/report.html"),
    "doctor": (),
}
"""Commands that read a cluster, and what each of them needs beside it."""


def commands_of_clusters() -> set[str]:
    """Commands that take credentials, as the command line itself has them."""
    return {
        module.replace("_", "-")
        for module in cli_app.COMMANDS
        if any("--command-config" in one.opts for one in cli_app.load(module).params)
    }


def _end(*_: object) -> None:
    """End a command as Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


def _run(name: str, bootstrap: str, properties: str, out: str) -> int:
    more = [word.format(out=out) for word in OF_ITS_OWN[name]]
    try:
        cli_app.main([name, "-b", bootstrap, "--command-config", properties, *more])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


if __name__ == "__main__":
    log, bootstrap, properties, out = sys.argv[1:]
    logging.basicConfig(level=logging.DEBUG, filename=log, format="%(name)s: %(message)s")
    watch.write_metrics = _end  # after the first batch
    Path(out).mkdir()
    codes = {name: _run(name, bootstrap, properties, out) for name in OF_ITS_OWN}
    sys.stdout.write(json.dumps(codes) + "\n")
