"""A served fleet for tests: its server runs in this process, on a free port of loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.report.fleet import Script, rolling_bounce

from holdfast.fleet.report.serving.application import ServedPages
from holdfast.fleet.report.serving.served_fleet import ServedFleet, ServedState
from holdfast.fleet.report.serving.server import PageServer, listen_on

PATIENCE_S = 120.0


def bounced(group: str, lag: int = 3) -> Script:
    """A group with findings and lag."""
    script = rolling_bounce(group, {"orders": 4}, 2)
    return script.lag(dict.fromkeys(script.owners, lag))


def quiet(group: str) -> Script:
    """A group that was settled once."""
    return Script(group, {"t": 1}).settle(0, ["m-1"], {("t", 0): "m-1"}, cause="first_start")


def is_examined(state: ServedState) -> bool:
    return state.n_examined == state.n_groups


@contextmanager
def following(
    folder: Path, said: list[str] | None = None, *, examined: bool = True
) -> Iterator[ServedFleet]:
    """A fleet that follows its folder; every group is examined, or only the first."""
    fleet = ServedFleet(folder, [].append if said is None else said.append)
    fleet.start()
    try:
        done = is_examined if examined else (lambda state: state.n_examined > 0)
        assert fleet.wait(done, PATIENCE_S)
        if examined:  # the text of /metrics is made after the last group
            assert fleet.wait(lambda _: fleet.metrics is not None, PATIENCE_S)
        yield fleet
    finally:
        fleet.close()


@contextmanager
def running(
    application: Any, host: str = "127.0.0.1", say: Callable[[str], object] = print
) -> Iterator[PageServer]:
    """A server of this application on a thread."""
    server = PageServer(listen_on(host, 0), application, say)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE_S)
        server.close()


@contextmanager
def serving(fleet: ServedFleet, **more: Any) -> Iterator[str]:
    """Address of a server of this fleet."""
    with running(ServedPages(fleet, **{"is_local": True, **more})) as server:
        yield f"http://{server.address}"
