"""The location of a member: unique to its process, and the same after a restart.

**Rules.** ``holdfast.location`` sets it. Without the key it consists of the host name,
``client.id``, and the name that a supervisor gives the process: each is the same after a restart,
and different for each process that the supervisor runs. On Kubernetes the host is the pod; only a
pod with the network of its node has the node's name, and there ``POD_NAME`` from the downward API
distinguishes pods of one node. Process ids and container ids are not used: both change.

**Strategy.** A leader sees the digests of all members
(:mod:`holdfast.core.machine.leader.locations`). If several members have the same location, it warns
once (:class:`SharedLocations`).

References: Incremental Cooperative Rebalancing, "Member bounces"; systemd.unit(5), templates.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cluster.settings import Settings
from holdfast.core.machine.leader.locations import digest_of
from holdfast.members.runtime.member_log import Log

if TYPE_CHECKING:
    from holdfast.core.machine.leader.subscriptions import SubscribedMember

_KEY, _SHOWN = "holdfast.location", 5
_NAMES = ("POD_NAME", "SUPERVISOR_PROCESS_NAME", "NOMAD_ALLOC_NAME", "DYNO")
"""Variables with a name that is the same after a restart: Kubernetes's downward API (as in its
documentation), supervisord, Nomad, Heroku.
"""
_UNIT = re.compile(r"/([^/]+\.service)$")
_CGROUPS = Path("/proc/self/cgroup")


def location_of(settings: Settings) -> bytes:
    """Return the digest of a member's location, from the key or by default."""
    said: str | None = settings[_KEY]
    if said:
        return digest_of(said)
    return digest_of(socket.gethostname(), settings["client.id"], *supervisor_names(os.environ))


def supervisor_names(environ: Mapping[str, str], cgroups: Path = _CGROUPS) -> tuple[str, ...]:
    """Return the names that a supervisor has given this process, none without a supervisor.

    Parameters
    ----------
    environ : mapping of str to str
        The environment variables of the process.
    cgroups : Path
        The file in which Linux lists the cgroups, and so the systemd service, of the process.
    """
    names = [f"{name}={value}" for name in _NAMES if (value := environ.get(name))]
    with suppress(OSError):  # not Linux, or no permission to read
        lines = cgroups.read_text(errors="replace").splitlines()
        names += sorted({found[1] for line in lines if (found := _UNIT.search(line))})
    return tuple(names)


class SharedLocations:
    """The warning of a leader that sees several members with one location; logged once."""

    def __init__(self, settings: Settings, log: Log):
        self._words = settings.word(_KEY), settings.word("client.id")
        self._log = log
        self._has_reported = False

    def warn(self, members: Iterable[SubscribedMember]) -> None:
        """Check the members of a round, and warn."""
        from holdfast.core.machine.leader.locations import shared_locations

        if self._has_reported or not (shared := shared_locations(members)):
            return
        self._has_reported = True
        alike = shared[0]
        more = f" and {len(alike) - _SHOWN} more" if len(alike) > _SHOWN else ""
        self._log.warning(
            "%d members have one host name and one %s: %s%s. After the group has grown, a restart "
            "of one of them looks like the end of a process that was replaced, and its partitions "
            "move. Set %s, different for each process and the same after its restart",
            len(alike),
            self._words[1],
            ", ".join(alike[:_SHOWN]),
            more,
            self._words[0],
        )
