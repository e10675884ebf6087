"""Members in racks, on a cluster whose three nodes are in racks of their own (KIP-881)."""

from __future__ import annotations

from tests.live.crew import ThreadGroup
from tests.live.polled import Stock
from tests.live.waiting import until

from holdfast.members.clients.kafka.assignors import CooperativeSticky

RACKS = ("rack-1", "rack-2", "rack-3")
PLACED = [[p % 3 + 1] for p in range(6)]
"""Partition ``p`` is in rack ``p mod 3``, nowhere else."""


def check_that_members_read_in_their_racks(bootstrap: str, *, stock_leads: bool) -> None:
    """Two members of ours and a stock client; whoever leads, nobody reads across racks."""
    ours = CooperativeSticky(rack=RACKS[1])
    with (
        ThreadGroup(bootstrap, len(PLACED), placed=PLACED) as group,
        Stock(bootstrap, group.name, group.topic.name, ours, client_rack=RACKS[1]) as stock,
    ):
        if stock_leads:
            until(lambda: len(stock.owns) == len(PLACED), "it leads")
        first, last = (group.join(client_rack=rack) for rack in (RACKS[0], RACKS[2]))

        def owned() -> list[list[int]]:
            return [first.owns, stock.owns, last.owns]

        until(lambda: owned() == [[0, 3], [1, 4], [2, 5]], lambda: f"their racks: {owned()}")
