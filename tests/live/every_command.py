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
from collections.abc import Iterable
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

BY_SPARK: dict[str, tuple[str, ...]] = {
    "dump": ("-o", "{out}/dump-spark"),
    "history": ("-o", "{out}/history-spark"),
    "doctor": (),
    "watch": ("-o", "{out}/watch-spark", "--every", "1s", "--metrics", "{out}/metrics"),
}
"""Commands that are run once more, with ``--engine spark``."""

CODES = {
    **{name: 130 if name == "watch" else 0 for name in OF_ITS_OWN},
    **{f"{name} by Spark": 130 if name == "watch" else 0 for name in BY_SPARK},
}
"""Exit codes: ``watch`` is ended as by Ctrl-C, ``serve`` as a service is."""

_FORMAT = "%(name)s: %(message)s"
_LOGGED = f"import logging; logging.basicConfig(level=10, format={_FORMAT!r}, filename="


def run_all(
    bootstrap: str, properties: Path, folder: Path, log: Path, **environment: str
) -> tuple[dict[str, int], subprocess.CompletedProcess[str], set[str]]:
    """Run each command in one process of its own.

    Returns the exit codes, how that process ended, and the command lines of all its processes.
    """
    words = [sys.executable, Path(__file__), log, bootstrap, properties, folder]
    lines: set[str] = set()
    with subprocess.Popen(
        list(map(str, words)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        start_new_session=True,
    ) as process:
        watching = threading.Thread(target=_note_lines, args=(process, lines), daemon=True)
        watching.start()
        out, err = process.communicate(timeout=900)
    watching.join()
    assert process.returncode == 0, err[-3000:]
    ended = subprocess.CompletedProcess(words, process.returncode, out, err)
    return json.loads(out.splitlines()[-1]), ended, lines


def _note_lines(process: subprocess.Popen[str], lines: set[str]) -> None:
    """Note the command line of each process in a session, as `ps` shows it, until it ends."""
    while process.poll() is None:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) == process.pid:
                    lines.add((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        time.sleep(0.1)


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


def _run(name: str, own: Iterable[str], bootstrap: str, properties: str, out: str) -> int:
    listen = f"127.0.0.1:{free_port()}"
    more = [word.format(out=out, listen=listen) for word in own]
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
    given = bootstrap, properties, out
    codes = {name: _run(name, own, *given) for name, own in OF_ITS_OWN.items()}
    codes |= {
        f"{name} by Spark": _run(name, [*own, "--engine", "spark"], *given)
        for name, own in BY_SPARK.items()
    }
    sys.stdout.write(json.dumps(codes) + "\n")
