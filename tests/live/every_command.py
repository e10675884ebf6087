"""Every command that reads a cluster, one after the other in one process, with all logs at DEBUG.

``every_command.py LOG BOOTSTRAP PROPERTIES OUT``. Python's log goes to LOG, also that of the
updater process of ``serve``. The last line has the exit code of each command. :func:`run_all` runs
it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from tests.ports import free_port

from holdfast.cli import app as cli_app
from holdfast.cli import updater
from holdfast.cli.commands import watch

OF_ITS_OWN: dict[str, tuple[str, ...]] = {
    "dump": ("-o", "{out}/dump"),
    "history": ("-o", "{out}/history"),
    "lag": (),
    "plan": ("--assignor", "sticky"),
    "replay": (),
    "watch": ("-o", "{out}/watch", "--every", "1s", "--metrics", "{out}/metrics"),
    "report": ("-o", "{out}/report.html"),
    "doctor": (),
    "serve": ("-o", "{out}/serve", "--listen", "{listen}"),
}
"""Commands that read a cluster, and what each of them needs beside it."""

CODES = {name: 130 if name == "watch" else 0 for name in OF_ITS_OWN}
"""Exit codes: ``watch`` is ended as by Ctrl-C, ``serve`` as a service is."""

_FORMAT = "%(name)s: %(message)s"
_LOGGED = f"import logging; logging.basicConfig(level=10, format={_FORMAT!r}, filename="


def run_all(
    bootstrap: str, properties: Path, folder: Path, log: Path, **environment: str
) -> tuple[dict[str, int], subprocess.CompletedProcess[str]]:
    """The exit code of each command, run in a process of its own, and how that process ended."""
    words = [sys.executable, Path(__file__), log, bootstrap, properties, folder]
    ended = subprocess.run(
        list(map(str, words)),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), **environment},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1]), ended


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


def _end_once_ready(listen: str) -> None:
    """End a server as a service is ended, once the pages of the cluster are there."""
    while True:
        with (
            suppress(OSError),
            urlopen(f"http://{listen}/ready", timeout=30) as answer,
        ):
            if answer.status == 200:
                break
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)


def _run(name: str, bootstrap: str, properties: str, out: str) -> int:
    listen = f"127.0.0.1:{free_port()}"
    more = [word.format(out=out, listen=listen) for word in OF_ITS_OWN[name]]
    if name == "serve":
        threading.Thread(target=_end_once_ready, args=(listen,), daemon=True).start()
    try:
        cli_app.main([name, "-b", bootstrap, "--command-config", properties, *more])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


if __name__ == "__main__":
    log, bootstrap, properties, out = sys.argv[1:]
    logging.basicConfig(level=logging.DEBUG, filename=log, format=_FORMAT)
    *python, program = updater.COMMAND
    logged = f"{_LOGGED}{log!r}); {program}"
    updater.Updater.__init__.__kwdefaults__["command"] = (*python, logged)
    watch.write_metrics = _end  # after the first batch
    Path(out).mkdir()
    codes = {name: _run(name, bootstrap, properties, out) for name in OF_ITS_OWN}
    sys.stdout.write(json.dumps(codes) + "\n")
