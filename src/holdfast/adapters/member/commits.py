"""The commits of one consumer: the application's, those of the poll loop, and the last one.

**Rules.** A commit goes with the identity that the member has now, and only with what it owns now,
in the term in which it was handed out (:mod:`holdfast.adapters.records.terms`). While the
coordinator moves, or a round overtakes the commit, it is tried again until its time is over.

References: KIP-429; Kafka's ConsumerCoordinator, ``commitOffsetsSync``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future

from holdfast.adapters.member.assembly import Assembly
from holdfast.adapters.member.host import Standing
from holdfast.adapters.records.terms import PartitionTerms
from holdfast.adapters.records.topic_duties import LOST_MEMBERSHIP
from holdfast.adapters.settings import Settings
from holdfast.errors import AdapterError, HoldfastError, LocalProtocolError, RemoteProtocolError
from holdfast.machine.codes import ErrorCode, describe
from holdfast.machine.states import MemberState

_BESIDE_S = 0.1  # a heartbeat that long ago is just now
_COMMIT_AGAIN_S = 0.05
CATCH_UP_S = 0.25  # how long the member's thread is waited for
_JOINING = MemberState.PREPARING_REBALANCE
_COMMIT_AGAIN = frozenset(
    {
        -1,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class ConsumerCommits:
    """Commits what a consumer's application has processed.

    Parameters
    ----------
    settings : Settings
        The consumer's configuration.
    """

    def __init__(self, settings: Settings):
        self.is_automatic: bool = settings["enable.auto.commit"]
        self._timeout_s: float = settings.call_timeout_s
        self._every_s: float = settings["auto.commit.interval.ms"] / 1000
        self._next_at = time.monotonic() + self._every_s
        self.order = threading.RLock()  # whoever holds it decides which commit is sent next

    def commit(
        self,
        parts: Assembly,
        offsets: Mapping[tuple[str, int], int] | Callable[[], Mapping[tuple[str, int], int]] | None,
        *,
        is_seen: bool,
    ) -> None:
        """Commit, and wait until it is done; see :meth:`holdfast.Consumer.commit`.

        ``is_seen`` says whether the application has what the last poll handed out. A function is
        asked before each attempt, while :attr:`order` is held.
        """
        deadline = time.monotonic() + self._timeout_s
        if offsets is not None:
            parts.duties.reconsider(offsets() if callable(offsets) else offsets)
        while True:
            standing = parts.host.standing
            with self.order:
                wanted = offsets() if callable(offsets) else offsets
                self._refuse_earlier_terms(parts, standing, wanted)
                if wanted is None:
                    wanted = parts.duties.delivery.to_commit(standing.terms, handed=is_seen)
                if not wanted:
                    return
                _check_owned(standing, wanted)
                answer = parts.commit(wanted, standing.identity)
            code = _code_of(answer, deadline)
            if code == 0:
                return
            late = _is_overtaken(code, standing, parts.host.standing)
            if not (late or code in _COMMIT_AGAIN) or time.monotonic() >= deadline:
                self._note_refusal(parts, wanted, code)
                raise not_committed(code)
            parts.host.over.wait(_COMMIT_AGAIN_S)
            if parts.host.failure is not None:
                raise parts.host.failure

    def send(self, parts: Assembly, offsets: Mapping[tuple[str, int], int]) -> Future[int]:
        """Commit once, without waiting.

        Returns
        -------
        Future of int
            Kafka's error code, -1 where there was no answer.

        Raises
        ------
        RemoteProtocolError
            As :meth:`commit`, for offsets of an earlier term.
        LocalProtocolError
            If the member does not own a partition.
        """
        parts.duties.reconsider(offsets)
        standing = parts.host.standing
        self._refuse_earlier_terms(parts, standing, offsets)
        _check_owned(standing, offsets)
        return parts.commit(offsets, standing.identity)

    def _note_refusal(
        self, parts: Assembly, offsets: Mapping[tuple[str, int], int], code: int
    ) -> None:
        """The coordinator has removed this member: the error that follows tells of the loss."""
        if code in LOST_MEMBERSHIP:
            parts.host.catch_up(CATCH_UP_S)
            parts.duties.delivery.terms(lambda terms: terms.raise_untold(offsets))

    def _refuse_earlier_terms(
        self,
        parts: Assembly,
        standing: Standing,
        offsets: Mapping[tuple[str, int], int] | None,
    ) -> None:
        """Refuse a commit of records from before a loss, and one that leaves such records out."""
        if offsets is None:
            lost = self.loss(parts)
        else:
            refused = parts.duties.refused(standing.terms, offsets)

            def judge(terms: PartitionTerms) -> RemoteProtocolError | None:
                terms.raise_untold(refused)
                return loss_of(refused, terms)

            lost = parts.duties.delivery.terms(judge)
        if lost is not None:
            raise lost

    def loss(self, parts: Assembly) -> RemoteProtocolError | None:
        """The error that tells of records which were lost before they were committed, if any."""
        delivery = parts.duties.delivery
        return delivery.terms(lambda terms: loss_of(terms.raise_untold(), terms))

    def before_leaving(self, parts: Assembly, deadline: float) -> None:
        """Commit before leaving, which gives up the round that is going on.

        The coordinator may have ended that round, with its answer on the way. The commit of the
        hand-over would then be too late for the old generation, and this member would never know
        the new one.
        """
        while parts.host.failure is None and time.monotonic() < deadline:
            standing = parts.host.standing
            offsets = parts.duties.delivery.to_commit(standing.terms)
            if not offsets or standing.identity.generation < 0:
                return
            try:
                _check_owned(standing, offsets)
                code = _code_of(parts.commit(offsets, standing.identity), deadline)
            except HoldfastError:  # the member has failed by it, or the hand-over tries again
                return
            late = _is_overtaken(code, standing, parts.host.standing)
            if not late and code != ErrorCode.REBALANCE_IN_PROGRESS:
                return
            parts.host.over.wait(_COMMIT_AGAIN_S)

    def now_and_then(self, parts: Assembly) -> None:
        """Commit what is processed, without waiting, if ``auto.commit.interval.ms`` is over."""
        self._report_losses(parts)
        now = time.monotonic()
        left_s = self._next_at - now
        # A commit is a sign of life. Beside a heartbeat it does not put off the moment at which
        # the coordinator notices a death, so a heartbeat takes with it what is due soon.
        beats = now - parts.host.beat_at < _BESIDE_S and left_s < self._every_s / 2
        if not self.is_automatic or (left_s > 0 and not beats):
            return
        self._next_at = now + self._every_s
        standing = parts.host.standing
        delivery = parts.duties.delivery
        offsets = delivery.uncommitted(delivery.active() & standing.owned)
        if offsets and standing.identity.generation >= 0:
            parts.commit(offsets, standing.identity)

    def _report_losses(self, parts: Assembly) -> None:
        """Write to the log what the loop can commit no more, unless a callback will tell of it.

        Kafka's poll raises nothing for its own commits either. With manual commits the error waits
        for the application's next commit.
        """
        if not self.is_automatic:
            return
        delivery = parts.duties.delivery
        lost = delivery.terms(lambda terms: loss_of(terms.report_untold(), terms))
        if lost is not None:
            parts.note_untold(lost)


def _code_of(answer: Future[int], deadline: float) -> int:
    """Error code of one commit, -1 where no broker answered in time."""
    try:
        error = answer.exception(max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        return -1
    if isinstance(error, RemoteProtocolError):
        raise error
    return -1 if error is not None else answer.result()


def _check_owned(standing: Standing, offsets: Mapping[tuple[str, int], int]) -> None:
    for topic, partition in offsets:
        if (topic, partition) not in standing.owned:
            raise LocalProtocolError(
                f"{topic}-{partition} is not this member's in generation "
                f"{standing.identity.generation}; nothing was committed"
            )


def _is_overtaken(code: int, before: Standing, now: Standing) -> bool:
    """Whether a refused commit came too late for its generation and may go to a newer one."""
    if code != ErrorCode.ILLEGAL_GENERATION:
        return False
    return now.state is _JOINING or now.identity.generation > before.identity.generation


def loss_of(
    refused: Collection[tuple[str, int]], terms: PartitionTerms
) -> RemoteProtocolError | None:
    """The error of a commit of records that were handed out before a loss, None for no record.

    A member that gave them up at a deadline is a member still, of a newer generation.
    """
    if not refused:
        return None
    names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(refused)[:5])
    more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
    code, word = ErrorCode.UNKNOWN_MEMBER_ID, "lost"
    if terms.were_given_up(refused):
        code, word = ErrorCode.ILLEGAL_GENERATION, "given up"
    return RemoteProtocolError(
        f"the commit was refused: {names}{more} had been {word} since these records were "
        "handed out; they are read again from the committed offset, here or elsewhere",
        error_code=code,
    )


def not_committed(code: int) -> HoldfastError:
    """The error of a commit that was answered with this code, -1 for no answer."""
    if code < 0:
        return AdapterError("the commit was not answered in time: it may be done, or not")
    return RemoteProtocolError(f"the commit was refused: {describe(code)}", error_code=code)
