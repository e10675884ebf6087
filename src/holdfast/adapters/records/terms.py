"""Terms of ownership on the application's side: what may be committed, and who has heard of a loss.

**Rules.** What was handed out in a term of a partition is committed in that term only
(:mod:`holdfast.machine.member.holdings`). An offset that the application names itself carries no
term, so these rules stand in:

- Between a loss and the next poll, or ``on_partitions_lost`` where there is such a callback, the
  application holds records from before the loss. All its offsets of the partition are refused.
- Later, offsets of a partition that had an earlier term are accepted from where the present term
  began up to where it has come. Before the present term has handed anything out, they are accepted
  in ``on_partitions_assigned`` alone, where the application decides where the term begins.
- In its first term a partition is committed as the application likes. Example: offsets 107 to 306
  of ``t-0`` are handed out, ``t-0`` is lost, another member commits 307, ``t-0`` comes back and
  starts at 307. A commit of 207 is refused, although this member owns ``t-0`` again. A commit of
  308 is refused until record 307 was handed out.

A loss that took records which were not committed is *untold* until ``on_partitions_lost`` has run.
Where no such callback comes, the application hears of the loss by an error, and the loss is untold
until the application polls after that.

**Strategy.** Plain tables without a lock: :class:`holdfast.adapters.records.delivery.Delivery` has
one of these under its own.

References: KIP-429, ``onPartitionsLost``; Kafka's ``CommitFailedException``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.machine.member.holdings import of_an_earlier_term

_Place = tuple[str, int]


class PartitionTerms:
    """Terms of the partitions of one consumer."""

    def __init__(self) -> None:
        self._terms: dict[_Place, int] = {}  # of the last start
        self._began: dict[_Place, int] = {}  # the lowest offset of that term
        self._again: set[_Place] = set()  # had an earlier term
        self._in_hand: dict[_Place, bool] = {}  # lost; whether a callback will tell
        self._untold: dict[_Place, bool] = {}  # lost with uncommitted records; likewise
        self._raised: set[_Place] = set()  # untold, and an error has told
        self._given_up: set[_Place] = set()  # of those lost: by a hand-over that was late

    def start(self, tp: _Place, term: int, offset: int) -> None:
        """A term hands out its first record at ``offset``."""
        if self._terms.get(tp, term) != term:
            self._again.add(tp)
        self._terms[tp], self._began[tp] = term, offset

    def has_begun(self, tp: _Place) -> bool:
        """Whether a term of it has begun at some time."""
        return tp in self._terms

    def seek(self, tp: _Place, offset: int) -> None:
        """The application goes on at ``offset``, which may be earlier than the begin."""
        self._began[tp] = min(self._began[tp], offset)

    def current(self, terms: Mapping[_Place, int]) -> set[_Place]:
        """Partitions whose last start was in the term that runs now."""
        return self._terms.keys() & terms.keys() - of_an_earlier_term(terms, self._terms)

    def lose(
        self,
        partitions: Collection[_Place],
        *,
        uncommitted: Mapping[_Place, int],
        told: Collection[_Place],
    ) -> None:
        """These are lost, some with uncommitted offsets; for ``told`` a callback tells of the loss.

        The others were given up: ``on_partitions_revoked`` has run for them, or follows.
        """
        self._given_up.update(set(partitions).difference(told))
        self._given_up.difference_update(told)
        for tp in partitions:
            self._in_hand[tp] = tp in told
            if tp in uncommitted and uncommitted[tp] != self._began.get(tp):
                self.leave_untold([tp], told=tp in told)

    def leave_untold(self, partitions: Iterable[_Place], *, told: bool = False) -> None:
        """Records of these cannot be committed any more."""
        for tp in partitions:
            self._untold[tp] = told
            self._raised.discard(tp)

    def tell(self, partitions: Iterable[_Place]) -> None:
        """``on_partitions_lost`` has run for these."""
        for tp in partitions:
            self._untold.pop(tp, None)
            self._in_hand.pop(tp, None)

    def tell_by_error(self, partitions: Iterable[_Place]) -> None:
        """No callback will tell of these."""
        for tp in partitions:
            for table in (self._untold, self._in_hand):
                if tp in table:
                    table[tp] = False

    def come_back(self) -> None:
        """The application polls: what it held is processed, and an error has been heard."""
        for tp in [tp for tp, told in self._in_hand.items() if not told]:
            del self._in_hand[tp]
        for tp in [tp for tp in self._raised if not self._untold.get(tp, True)]:
            del self._untold[tp]
        self._raised.clear()

    def untold(self) -> set[_Place]:
        """Partitions with records that cannot be committed, of which nobody has told yet."""
        return set(self._untold)

    def raise_untold(self, partitions: Iterable[_Place] | None = None) -> set[_Place]:
        """The same (or those of these), for an error that tells of them."""
        told = self._untold.keys() if partitions is None else self._untold.keys() & set(partitions)
        self._raised |= told
        return set(told)

    def report_untold(self) -> set[_Place]:
        """Those of which no callback will tell; they count as told from now on."""
        found = {tp for tp, told in self._untold.items() if not told}
        for tp in found:
            del self._untold[tp]
        return found

    def were_given_up(self, partitions: Collection[_Place]) -> bool:
        """Whether these were all given up, and membership went on."""
        return self._given_up.issuperset(partitions)

    def in_hand(self, partitions: Iterable[_Place]) -> set[_Place]:
        """Those of which the application holds records from before a loss."""
        return self._in_hand.keys() & set(partitions)

    def refused(
        self,
        terms: Mapping[_Place, int],
        offsets: Mapping[_Place, int],
        reached: Mapping[_Place, int],
        begins: Collection[_Place],
    ) -> set[_Place]:
        """Partitions of which the application names an offset that is not of the present term.

        Parameters
        ----------
        terms : mapping of partition to int
            Terms of what the member owns now.
        offsets : mapping of partition to int
            What the application wants to commit.
        reached : mapping of partition to int
            How far each partition has been handed out in its present term.
        begins : collection of partition
            Partitions whose ``on_partitions_assigned`` runs.
        """
        known = {tp: self._terms[tp] for tp in offsets if tp in terms and tp in self._terms}
        not_begun = of_an_earlier_term(terms, known)
        beside = {
            tp
            for tp in known.keys() & self._again - not_begun
            if not self._began[tp] <= offsets[tp] <= reached.get(tp, self._began[tp])
        }
        return self.in_hand(offsets) | (not_begun - set(begins)) | beside
