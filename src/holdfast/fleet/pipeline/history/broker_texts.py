"""What a broker's group coordinator logs about groups, text by text, and what each text states.

**Rules.** A text stands here as Kafka 4.3.1 has it, with ``{}`` where the broker puts a value.
``tests/pipeline/test_broker_texts.py`` holds the table to Kafka's own classes: each text is a
constant of theirs, and each text that they log at INFO about a group, a member, an epoch or a
rebalance is in this table, or in the test's own of those that state no cause. A cause is what the
code around the text does:

* ``SURE`` texts stand for a change of the group's epoch, or for a rebalance: they wait for it.
* ``BRIEF`` texts may lead to one in the same request, or to none. They wait until the group's next
  line and no longer.
* ``NEVER`` texts change nothing.

**Strategy.** :class:`BrokerText` says where the group's name and the member's id are in a text;
:mod:`holdfast.fleet.pipeline.history.broker_log` puts the lines of a group together.

References: Kafka 4.3.1, ``GroupMetadataManager`` and its neighbours; KIP-848, KIP-932, KIP-1071.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from holdfast.core.kinds.kind import GroupType


class Waits(Enum):
    """How long a text waits for the epoch or the rebalance that it is the reason of."""

    SURE = auto()
    BRIEF = auto()
    NEVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerText:
    """One text.

    Parameters
    ----------
    text : str
        Kafka's constant.
    fields : str
        A letter for each ``{}``: ``g`` the group, ``m`` the member, ``n`` an epoch or a
        generation, ``s`` a state, ``p`` the protocol of a member, ``.`` anything else.
    cause : str or None
        What it states; None: nothing by itself.
    waits : Waits
        How long it waits.
    """

    text: str
    fields: str
    cause: str | None = None
    waits: Waits = Waits.SURE

    @property
    def silent(self) -> bool:
        """The group is of a kind whose members go without a line about the new epoch."""
        return "share group" in self.text or "treams" in self.text

    @property
    def head(self) -> str:
        """What stands before the group's name, without what is written anew for each line."""
        return self.text.split("{}")[self.fields.index("g")]

    def tail(self) -> re.Pattern[str]:
        """What stands after the group's name, to the end of the line."""
        at = self.fields.index("g") + 1
        literals = self.text.removesuffix(".").split("{}")[at:]
        pattern = re.escape(literals[0])
        for kind, literal in zip(self.fields[at:], literals[1:], strict=True):
            pattern += _VALUES[kind] + re.escape(literal)
        return re.compile(pattern + LINE_END, re.DOTALL)


LINE_END: Final = r"\.?(?: \([\w.$]+\))?\Z"
"""A line may end with a full stop, and with the logger in brackets."""
_VALUES: Final = {
    "m": "(?P<member>.*?)",
    "n": r"(?P<number>-?\d+)",
    "s": r"\w+",
    "p": "(?P<protocol>.*?)",
    ".": ".*?",
}

CLASSIC_TEXTS: Final = (
    BrokerText(
        text="Pending dynamic member with id {} joins group {} in {} state. Adding to the group "
        "now.",
        fields="mgs",
        cause="join",
    ),
    BrokerText(
        text="Dynamic member with unknown member id joins group {} in state {}. Created a new "
        "member id {} and added the member to the group.",
        fields="gsm",
        cause="join",
    ),
    BrokerText(
        text="Static member with groupInstanceId={} and unknown member id joins group {} in {} "
        "state. Created a new member id {} for this member and added to the group.",
        fields=".gsm",
        cause="join",
    ),
    BrokerText(
        text="Static member with groupInstanceId={} and unknown member id joins group {} in {} "
        "state. Replacing previously mapped member {} with this groupInstanceId.",
        fields=".gs.",
        cause="restart",
        waits=Waits.BRIEF,
    ),
    BrokerText(
        text="[Group {}] Member {} has left group through explicit `LeaveGroup` request; client "
        "reason: {}",
        fields="gm.",
        cause="leave",
    ),
    BrokerText(
        text="Member {} in group {} has failed, removing it from the group.",
        fields="mg",
        cause="session_timeout",
    ),
    BrokerText(
        text="Group {} removed dynamic members who haven't joined: {}",
        fields="g.",
        cause="rebalance_timeout",
    ),
)
"""Lines about members of a classic group."""

MODERN_TEXTS: Final = (
    BrokerText(
        text="[GroupId {}] Member {} joins the consumer group using the {} protocol.",
        fields="gmp",
        cause="join",
    ),
    BrokerText(
        text="[GroupId {}] Static member {} with instance id {} joins the consumer group using the "
        "{} protocol.",
        fields="gm.p",
        cause="join",
    ),
    BrokerText(
        text="[GroupId {}] Static member with instance id {} re-joins the consumer group using the "
        "{} protocol. Created a new member {} to replace the existing member {}.",
        fields="g..m.",
        cause="restart",
        waits=Waits.BRIEF,
    ),
    BrokerText(text="[GroupId {}] Member {} left the consumer group.", fields="gm", cause="leave"),
    BrokerText(
        text="[GroupId {}] Static member {} with instance id {} temporarily left the consumer "
        "group.",
        fields="gm.",
        waits=Waits.NEVER,
    ),
    BrokerText(
        text="[GroupId {}] Static member {} with instance id {} left the consumer group.",
        fields="gm.",
        cause="leave",
    ),
    BrokerText(
        text="[GroupId {}] Dynamic member {} has left group through explicit `LeaveGroup` request; "
        "client reason: {}",
        fields="gm.",
        cause="leave",
    ),
    BrokerText(
        text="[GroupId {}] Static member {} with instance id {} has left group through explicit "
        "`LeaveGroup` request; client reason: {}",
        fields="gm..",
        cause="leave",
    ),
    BrokerText(
        text="[GroupId {}] Member {} fenced from the group because {}.",
        fields="gm.",
        cause="session_timeout",
    ),
    BrokerText(
        text="[GroupId {}] Member {} fenced from the group because it failed to transition from "
        "epoch {} within {}ms.",
        fields="gmn.",
        cause="rebalance_timeout",
    ),
    BrokerText(
        text="[GroupId {}] Member {} updated its subscribed topics to: {}.",
        fields="gm.",
        cause="subscription_change",
        waits=Waits.BRIEF,
    ),
    BrokerText(
        text="[GroupId {}] Member {} joins the share group using the share protocol.",
        fields="gm",
        cause="join",
    ),
    BrokerText(
        text="[GroupId {}] Member {} left the share group.",
        fields="gm",
        cause="leave",
    ),
    BrokerText(
        text="[GroupId {}][MemberId {}] Member joins the streams group.", fields="gm", cause="join"
    ),
    BrokerText(
        text="[GroupId {}][MemberId {}] Member {} left the streams group.",
        fields="gm.",
        cause="leave",
    ),
    BrokerText(
        text="[GroupId {}] Streams member {} fenced from the group because {}.",
        fields="gm.",
        cause="session_timeout",
    ),
    BrokerText(
        text="[GroupId {}][MemberId {}] Assignment configurations changed to {}. Triggering "
        "rebalance.",
        fields="gm.",
        cause="configuration_change",
        waits=Waits.BRIEF,
    ),
    BrokerText(
        text="[GroupId {}][MemberId {}] Member updated its member metadata to {}.",
        fields="gm.",
        cause="subscription_change",
        waits=Waits.BRIEF,
    ),
    BrokerText(
        text="[GroupId {}][MemberId {}] Member initialized the topology with epoch {}",
        fields="gmn",
        cause="subscription_change",
        waits=Waits.BRIEF,
    ),
)
"""Lines about members of a group whose assignments the broker computes."""

FENCED: Final = (
    ("the member session expired", "session_timeout"),
    ("the member session expired.", "session_timeout"),
    ("the member failed to sync within timeout", "sync_timeout"),
    ("the classic member failed to join within the rebalance timeout", "rebalance_timeout"),
)
"""What "fenced from the group because" may go on with."""

BUMPS: Final = (
    BrokerText(text="[GroupId {}] Bumped group epoch to {} with metadata hash {}.", fields="gn."),
    BrokerText(
        text="[GroupId {}][MemberId {}] Bumped streams group epoch to {} with metadata hash {} and "
        "validated topic epoch {}.",
        fields="gmn..",
    ),
)
COMPUTED: Final = BrokerText(
    text="[GroupId {}] Computed a new target assignment for epoch {} with '{}' assignor in {}ms.",
    fields="gn..",
)
ENDS: Final = (
    BrokerText(text="Stabilized group {} generation {} with {} members.", fields="gn."),
    BrokerText(text="Group {} with generation {} is now empty.", fields="gn"),
)
"""What ends the rounds of a classic group."""
LOADED: Final = tuple(
    BrokerText(text=f"Loaded {kind} group {{}} with {{}} members.", fields="g.")
    for kind in GroupType
)
"""A coordinator takes a group over: what an earlier one had begun is not in this log."""

NEXT_REQUEST: Final = (
    BrokerText(
        text="[GroupId {}] Member {} new assignment state: epoch={}, previousEpoch={}, state={}, "
        "assignedPartitions={}.",
        fields="gmn...",
    ),
    BrokerText(
        text="[GroupId {}][MemberId {}] Member's new assignment state: epoch={}, previousEpoch={}, "
        "state={}, assignedTasks={} and tasksPendingRevocation={}.",
        fields="gmn....",
    ),
)
"""Ends of a request: what was brief before them led to nothing."""
