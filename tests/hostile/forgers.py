"""Several members that claim everything and forge their shares: what the others lose.

Usage: ``python -m tests.hostile.forgers [--seeds N]`` prints a line for each design and lie.

**Rules.** A settled group of 60, ten of which begin to lie. Five honest members leave and are back
after 20 s of a delay of 30 s. In every round another honest member leads, unless it is said that
one goes on leading.

**Strategy.** A liar is an honest member but for what it says: all partitions under the last
generation, and a share about the whole ring. The seed draws who lies, who leads and who leaves.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from tests.hostile.group import DELAY_MS, TOPICS, Honest, HostileGroup
from tests.hostile.laws import DEFERRING

from holdfast.core.machine.leader.embedded import MemberView
from holdfast.core.machine.leader.ring import identity_of_place
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.memory import CHANCE_BITS, RememberedMember, Share, encode_share

N_MEMBERS, N_LIARS, N_LEAVE, AWAY_MS = 60, 10, 5, 20_000
EVERYTHING = tuple((topic, number) for topic, n in TOPICS.items() for number in range(n))
CROWD = (N_MEMBERS - 1).bit_length()
GHOST = RememberedMember(
    identity=identity_of_place(b"ghos")[: CHANCE_BITS + CROWD], static=True, owned=()
)
LIES = ("nobody was there", "a ghost was there", "its own share")


class Outcome(NamedTuple):
    """What ten liars cost, in partitions."""

    worst_round: int  # what honest members give up in one round, at most
    losers: int  # honest members that ever give something up
    owned: int  # by those that leave
    dealt: int  # of that, while they are away
    back: int  # of that, once they are back


@dataclass(slots=True)
class Forger(Honest):
    """A member that lies from some time on; what it says of itself is what an honest one says."""

    lie: str = ""

    def view(self, now_ms: int) -> MemberView:
        """Everything is its own, under the last generation."""
        said = Honest.view(self, now_ms)
        if not self.lie:
            return said
        share = Share(
            generation=self.generation,
            whole=True,
            crowd=CROWD,
            neighbours=(GHOST,) if self.lie == LIES[1] else (),
        )
        memory = said.memory if self.lie == LIES[2] else encode_share(share)
        return replace(said, owned=EVERYTHING, memory=memory)


@cache
def _settled(name: str) -> HostileGroup:
    group = HostileGroup(name, 0)
    for i in range(N_MEMBERS):
        member = f"m{i:02}"
        group.members[member] = Forger(member, f"i{i}" if i % 3 == 0 else None)
    for _ in range(200):
        done = group.round(None)
        if not done.again and done.before == done.after and done.delays_ms <= {0}:
            break
    group.n_started = N_MEMBERS
    return group


def played(name: str, seed: int, lie: str, *, changing: bool = True) -> Outcome:
    rest, rng = _settled(name), np.random.default_rng(seed)
    group = replace(rest, members={m: replace(h) for m, h in rest.members.items()})
    order = [str(m) for m in rng.permutation(sorted(group.members))]
    liars = frozenset(order[:N_LIARS])
    leave, stay = order[N_LIARS : N_LIARS + N_LEAVE], order[N_LIARS + N_LEAVE :]
    group.leader, group.led = stay[0], group.led if stay[0] == group.leader else None
    group.round(None)  # its leader knows what it said
    for liar in liars:
        member = group.members[liar]
        assert isinstance(member, Forger)
        member.lie = lie
    left = [group.members.pop(m) for m in leave]
    gone = frozenset[Resource]().union(*(m.owned for m in left))
    worst, losers, n_rounds = 0, set[str](), 0

    def led() -> None:
        nonlocal worst, n_rounds
        if changing:
            n_rounds += 1
            group.leader, group.led = stay[n_rounds % len(stay)], None
        done = group.round(None)
        lost = {m: len(own - done.after[m]) for m, own in done.before.items() if m not in liars}
        worst = max(worst, sum(lost.values()))
        losers.update(m for m, n in lost.items() if n)

    until_ms = group.now_ms + AWAY_MS
    for _ in range(60):
        if group.now_ms >= until_ms:
            break
        led()
    group.now_ms = max(group.now_ms, until_ms)
    dealt = gone & frozenset[Resource]().union(*(m.owned for m in group.members.values()))
    back = [group._start(m.instance_id) for m in left]
    for _ in range(6):
        led()
    again = gone & frozenset[Resource]().union(*(m.owned for m in back))
    return Outcome(worst, len(losers), len(gone), len(dealt), len(again))


def main() -> None:
    """Print the worst and the mean of the runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    n_seeds = parser.parse_args().seeds
    assert AWAY_MS < DELAY_MS
    for name in DEFERRING:
        for changing in (False, True):
            for lie in LIES:
                runs = [played(name, seed, lie, changing=changing) for seed in range(n_seeds)]
                means = Outcome(*np.mean(runs, axis=0).round(1).tolist())
                most = Outcome(*np.max(runs, axis=0).tolist())
                who = "changing" if changing else "one"
                print(f"{name}, {who} leader, {lie}: mean {means}, most {most}", flush=True)


if __name__ == "__main__":
    main()
