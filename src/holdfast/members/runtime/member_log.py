"""The snapshot of a member, and its log, whose records have its identity as fields.

**Rules.** Every record of the logger ``holdfast.member`` carries the group, client id, member id
and generation, whichever thread wrote it, so that one filter or one JSON formatter serves all
members of a process. A secret is never logged.

**Strategy.** A logger adapter reads the member's identity for each record.

References: Python's ``logging``: ``LoggerAdapter`` (which would drop a call's own ``extra`` before
3.13).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.machine.shared_values import Identity
from holdfast.core.machine.states import MemberState
from holdfast.core.model.constants import NO_GENERATION
from holdfast.core.model.partitions import Resource
from holdfast.members.config.settings import Settings

NAME = "holdfast.member"
Log = logging.Logger | logging.LoggerAdapter[logging.Logger]
NOT_IN_A_GROUP = Identity(generation=NO_GENERATION, member_id="", instance_id=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    """The state of a member after the last event, whose actions may still be running.

    Resources lost in the last event are already dropped. ``terms`` numbers the term of each owned
    resource.
    """

    state: MemberState
    identity: Identity
    owned: frozenset[Resource]
    terms: Mapping[Resource, int] = field(default_factory=dict)
    is_leader: bool = False


NOT_JOINED = MemberSnapshot(state=MemberState.UNJOINED, identity=NOT_IN_A_GROUP, owned=frozenset())
"""The snapshot of a member that has not started."""


class MemberLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one member."""

    def __init__(self, settings: Settings):
        fields = {"group": settings["group.id"], "client_id": settings["client.id"]}
        super().__init__(logging.getLogger(NAME), fields)
        # A member thread replaces it.
        self.identify: Callable[[], Identity] = lambda: NOT_IN_A_GROUP

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, Any]:
        """Add the fields; fields of the call itself take precedence."""
        who = self.identify()
        fields = {
            **(self.extra or {}),
            "member_id": who.member_id,
            "generation": who.generation,
            **(kwargs.get("extra") or {}),
        }
        return f"{fields['group']}: {msg}", {**kwargs, "extra": fields}
