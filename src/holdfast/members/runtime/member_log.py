"""The log of a member, with its group, client id, member id and generation as fields.

**Rules.** Every record of the logger ``holdfast.member`` carries the four fields, whichever thread
wrote it, so that one filter or one JSON formatter serves all members of a process. A secret is
never logged.

**Strategy.** A logger adapter reads the member's identity for each record.

References: Python's ``logging``: ``LoggerAdapter`` (which would drop a call's own ``extra`` before
3.13).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import Any

from holdfast.core.machine.shared_values import Identity
from holdfast.core.model.limits import NO_GENERATION
from holdfast.members.config.settings import Settings

NAME = "holdfast.member"
Log = logging.Logger | logging.LoggerAdapter[logging.Logger]
NOT_IN_A_GROUP = Identity(generation=NO_GENERATION, member_id="", instance_id=None)


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
