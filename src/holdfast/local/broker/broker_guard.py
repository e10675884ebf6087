"""A process between the caller and one Kafka server, so that the server never outlives it.

Run as ``python -m holdfast.local.broker.broker_guard FOLDER COMMAND...``; it prints the server's
process id.

**Rules.** The guard's standard input is a pipe that only its parent holds. A line ``stop`` ends the
server and leaves the folder. If the pipe ends without that line, the parent has ended: the guard
kills the server and removes the folder of the whole cluster. Until then the guard stays, even if
its server has ended. If the guard itself is killed, Linux kills the server.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 30.0


def main(arguments: list[str]) -> int:
    """Run the command until it ends or the pipe says so; return its exit code."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the pipe alone decides
    folder = Path(arguments[0])
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def die_with_guard() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(  # noqa: S603 - the parent's own command, no shell
            arguments[1:],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_guard,  # noqa: PLW1509 - there is one thread here so far
        )
    print(server.pid, flush=True)
    obeying = threading.Thread(target=_obey, args=(server, folder), daemon=True)
    obeying.start()
    code = server.wait()
    obeying.join()
    return code


def _obey(server: subprocess.Popen[bytes], folder: Path) -> None:
    if sys.stdin.readline().strip() == "stop":
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(_GRACE_SECONDS)
            return
        server.kill()
        return
    server.kill()
    server.wait()
    # The parent's other nodes end too; the last guard finds nothing in use.
    shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
