"""A group of workers without a broker: rounds that one of them plans, and their result."""

from holdfast.core.machine import actions
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.assignor_protocol import MemberView
from holdfast.core.machine.leader.designs import led_round

KIND = "shard"


def round_of(protocol, sent, partitions=(), *, generation=2, led=None):
    """A round that its first member leads; ``sent`` has the subscription of each member."""
    return actions.ComputeAssignment(
        token=1,
        generation=generation,
        protocol_name=protocol,
        members=tuple(JoinedMember(member_id=name, metadata=said) for name, said in sent.items()),
        partitions=partitions,
        member_id=next(iter(sent)),
        waited_ms=0,
        led=led,
    )


class WorkerGroup:
    """Workers by name; whoever is named in a round joins, and the first name leads."""

    def __init__(self, workers):
        self.workers = workers
        self.said = {}
        self.led, self.generation = None, 0
        self.last = None  # leader of the last round

    def view(self, name):
        new = MemberView(topics=(KIND,), owned=(), previous=(), generation=-1)
        return self.said.get(name, new)

    def play(self, leader, *others):
        """One round; it returns whether all join again at once."""
        self.generation += 1
        names = (leader, *others)
        spoken = {name: self.workers[name].assignors[0] for name in names}
        known = self.workers[leader]._resources.counts
        request = round_of(
            spoken[leader].name,
            {name: spoken[name].subscribe(self.view(name)) for name in names},
            tuple(sorted(known.items())),
            generation=self.generation,
            led=self.led if leader == self.last else None,
        )
        done = self.workers[leader]._planner.compute(request)
        self.led, self.last = led_round(request, done), leader
        again = False
        for name, data in done.assignments:
            told = spoken[name].read(data)
            again |= told.again
            self.said[name] = MemberView(
                topics=(KIND,),
                owned=tuple(sorted(set(self.view(name).owned) - told.revoked | told.assigned)),
                previous=(),
                generation=self.generation,
                leader_state=told.leader_state,
            )
        return again

    def settle(self, *names):
        for _ in range(20):
            if not self.play(*names):
                return
        raise AssertionError("it does not settle")

    def stop(self, *names):
        for name in names:
            self.said.pop(name)

    def owned(self, name):
        return tuple(number for _, number in self.said[name].owned)

    @property
    def waiting(self):
        return self.workers["A"]._planner.delays.read()
