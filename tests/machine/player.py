"""The caller of a member, played in tests, and an assignor that the test writes."""

from __future__ import annotations

from holdfast.core.machine.actions import (
    CallListener,
    Commit,
    SendJoin,
    SendSync,
    StopFetching,
)
from holdfast.core.machine.events import (
    CommitAnswered,
    CoordinatorFound,
    Drained,
    JoinAnswered,
    ListenerReturned,
    RejoinRequested,
    Started,
    SubscriptionChanged,
    SyncAnswered,
)
from holdfast.core.machine.leader.assignor_protocol import (
    MemberView,
    RebalanceProtocol,
    ReceivedAssignment,
)
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.member.member_data import MemberOptions
from holdfast.errors import WireError

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


class Script:
    """An assignor whose assignments the test writes down: bytes name an Instruction."""

    def __init__(self, *rebalance_protocols: RebalanceProtocol, name: str = "script"):
        self.name = name
        self.rebalance_protocols = frozenset(rebalance_protocols or (COOPERATIVE,))
        self.views: list[MemberView] = []
        self.received_assignments: dict[bytes, ReceivedAssignment] = {}

    def subscribe(self, view: MemberView) -> bytes:
        self.views.append(view)
        return b"v%d" % view.nonce

    def read(self, assignment: bytes) -> ReceivedAssignment:
        if assignment not in self.received_assignments:
            raise WireError("truncated", schema="Script")
        return self.received_assignments[assignment]

    def give(self, *assigned, **fields) -> bytes:
        key = b"i%d" % len(self.received_assignments)
        self.received_assignments[key] = ReceivedAssignment(assigned=frozenset(assigned), **fields)
        return key


class Player:
    """Plays the caller: keeps what the member asked for, finds the one of a kind."""

    def __init__(self, script: Script | None = None, **options):
        self.script = script or Script()
        self.member = Member([self.script], MemberOptions(**options))
        self.done: list = []

    def __call__(self, event, at_ms: int | None = None):
        now = self.member.data.now_ms if at_ms is None else at_ms
        actions = self.member.step(now, event)
        self.done += actions
        return actions

    def last(self, kind):
        return next(a for a in reversed(self.done) if isinstance(a, kind))

    def start(self, *topics: str):
        self(SubscriptionChanged(topics or ("t",)))
        (find,) = self(Started())
        self(CoordinatorFound(find.request))
        return self.last(SendJoin)

    def join(self, generation: int = 1, leader: bool = False, error: int = 0, **fields):
        request = self.last(SendJoin).request
        return self(
            JoinAnswered(
                request=request,
                error=error,
                generation=generation,
                protocol_name=self.script.name,
                leader_id="m" if leader else "other",
                member_id="m",
                **fields,
            )
        )

    def sync(self, *assigned, error: int = 0, **fields):
        request = self.last(SendSync).request
        data = self.script.give(*assigned, **fields)
        return self(SyncAnswered(request=request, error=error, assignment=data))

    def callback(self, error: str | None = None):
        return self(ListenerReturned(self.last(CallListener).token, error))

    def another_round(self, generation: int, *assigned, **fields):
        """A round that somebody else has caused, in which the member gets these."""
        self(RejoinRequested())
        self.join(generation)
        return self.sync(*assigned, **fields)

    def drain(self):
        return self(Drained(self.last(StopFetching).token))

    def revoke(self):
        """Drain, call back, commit: what follows once the commit is answered."""
        self.drain()
        self.callback()
        return self(CommitAnswered(self.last(Commit).token))

    def stable(self, *assigned, generation: int = 1, **fields):
        self.start()
        self.join(generation)
        self.sync(*assigned, **fields)
        self.callback()
        return self
