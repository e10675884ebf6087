"""Members in racks, on a cluster whose three nodes are in racks of their own (KIP-881)."""

from __future__ import annotations

from tests.live.crew import ConsumerThread, Topic, closing, fresh
from tests.live.polled import Stock
from tests.live.waiting import until

from holdfast.members.clients.kafka.assignors import CooperativeSticky

RACKS = ("rack-1", "rack-2", "rack-3")
N_PARTITIONS = 6


def topic_across(bootstrap: str) -> str:
    """A topic whose partition ``p`` is in rack ``p mod 3``, nowhere else."""
    placed = [[p % 3 + 1] for p in range(N_PARTITIONS)]
    return Topic(bootstrap, N_PARTITIONS, placed=placed).name


def check_that_members_read_in_their_racks(bootstrap: str, *, stock_leads: bool) -> None:
    """Two members of ours and a stock client; whoever leads, nobody reads across racks."""
    topic, group = topic_across(bootstrap), fresh("group")
    consumer_threads = [
        ConsumerThread(bootstrap, group, [topic], client_rack=rack) for rack in (RACKS[0], RACKS[2])
    ]
    ours = CooperativeSticky(rack=RACKS[1])
    with Stock(bootstrap, group, topic, ours, client_rack=RACKS[1]) as stock:
        if stock_leads:
            until(lambda: len(stock.owns) == N_PARTITIONS, "it leads")
        for consumer_thread in consumer_threads:
            consumer_thread.start()

        def owned() -> list[list[int]]:
            return [consumer_threads[0].owns, stock.owns, consumer_threads[1].owns]

        until(lambda: owned() == [[0, 3], [1, 4], [2, 5]], lambda: f"their racks: {owned()}")
        assert closing(consumer_threads) == {}
