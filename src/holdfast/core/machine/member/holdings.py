"""The resources that a member owns, and the only safe order of revoking them.

**Rules.**

- ``owned`` is what the next join claims. A resource leaves it when its revocation ends or when
  membership is lost, never earlier.
- A revocation is: stop fetching, drained, ``REVOKED`` callback, commit with the generation in which
  the resources were owned; the member joins only after that. The callback comes before the commit,
  so that what the callback flushes is safe before the offsets are committed. If the callback
  raised, nothing is committed, and the new owner reads again from the last commit.
- After ``ASSIGNED`` was called for a resource, ``REVOKED`` or ``LOST`` is called for it exactly
  once. Callbacks are made one at a time, in the order of their causes.
- A revocation has a deadline. At the deadline the member stops waiting for the application: the
  member commits up to where the application has polled past, and drops the resources. ``REVOKED``
  comes when the application polls again. The next owner reads the records in flight again.
- When membership is lost, the revocation ends; later answers for it change nothing.
- A *term* is the time from the gain of a resource to the end of its revocation or to its loss. Each
  term has a number of its own. Records that were handed out in a term may be committed in that term
  only. Example: offset 107 of ``t-0`` is handed out in term 1, ``t-0`` is lost, another member
  commits 308, and ``t-0`` comes back in term 2. A member that only checked whether it owns ``t-0``
  now would commit 107 and set the group back.

**Strategy.** A plain record with a queue of callbacks and at most one revocation. Methods return
actions. The member joins only when :attr:`Holdings.revoking` is false.

References: KIP-429, "Rebalance Callback"; KAFKA-14024 (bounded commits); KAFKA-8972 (release once);
KAFKA-10763 (the running resources and the member's record never diverge).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdfast.core.machine.actions import (
    Action,
    Actions,
    CallListener,
    Commit,
    DropNow,
    StartFetching,
    StopFetching,
    Warn,
)
from holdfast.core.machine.codes import ErrorCode, commits_again, describe
from holdfast.core.machine.events import CommitAnswered, Drained, ListenerReturned
from holdfast.core.machine.shared_values import Identity, ListenerCall
from holdfast.core.model.partitions import SMALL, Resource, memoized


class RevocationStep(StrEnum):
    """The step that a revocation has reached."""

    DRAINING = "draining"
    CALLING = "calling"
    COMMITTING = "committing"
    WAITING = "waiting"  # for the next attempt to commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Time that the member waits for the application, and the setting that says so."""

    ms: int
    setting: str

    def __str__(self) -> str:
        return f"{self.ms / 1000:g} s ({self.setting})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """A revocation in progress."""

    token: int
    resources: frozenset[Resource]
    identity: Identity
    step: RevocationStep
    deadline_ms: int
    limit: Limit
    of_rebalance: bool = False  # requested by an assignment: REVOKED comes before its ASSIGNED
    always_call: bool = False  # an eager member's callback comes even when it owns nothing
    attempts: int = 0
    sent_generation: int = -1  # of the last attempt
    retry_ms: int | None = None
    is_late: bool = False  # its deadline has passed: only its commit is awaited
    loses: bool = False  # membership ends with it, so its resources stay owned until then


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One callback, queued or called."""

    call: ListenerCall
    resources: frozenset[Resource]
    revocation: int | None = None  # token of the revocation that waits for it


@memoized(1024, largest=SMALL)
def ordered(resources: frozenset[Resource]) -> tuple[Resource, ...]:
    """Return resources in their one written order."""
    return tuple(sorted(resources))


def names(resources: frozenset[Resource]) -> str:
    """Return resources for a text: the first five by name, and how many more."""
    shown = ", ".join(f"{topic}-{number}" for topic, number in ordered(resources)[:5])
    return f"{shown} and {len(resources) - 5} more" if len(resources) > 5 else shown


@memoized(1024, largest=SMALL)
def topics_of(resources: frozenset[Resource]) -> frozenset[str]:
    """Return the topics or kinds of the resources."""
    return frozenset(topic for topic, _ in resources)


@dataclass(slots=True, kw_only=True)
class Holdings:
    """Resources of one member, their callbacks and their revocation."""

    auto_commit: bool  # whether a revocation commits
    commit_retries: int  # how often a failed commit is tried again
    # Time before the first of these attempts; doubled for each further one.
    retry_backoff_ms: int
    last_commit_ms: int  # how long a revocation's commit may take after its deadline

    owned: frozenset[Resource] = frozenset()  # what the next join claims
    announced: frozenset[Resource] = frozenset()  # ASSIGNED was called, REVOKED or LOST not yet
    # of owned resources; never changed in place
    terms: Mapping[Resource, int] = field(default_factory=dict)
    next_term: int = 0
    started: frozenset[Resource] = frozenset()  # fetched at some time since assigned
    queue: tuple[Call, ...] = ()  # callbacks to be made, in order
    calling: Call | None = None  # the callback that is running
    out_token: int = -1  # its token
    next_token: int = 0
    revocation: Revocation | None = None

    @property
    def revoking(self) -> bool:
        """Whether a revocation is in progress."""
        return self.revocation is not None

    @property
    def deadline_ms(self) -> int:
        """Time of the next step of the revocation in progress, in ms."""
        job = self.revocation
        assert job is not None
        return job.deadline_ms if job.retry_ms is None else min(job.deadline_ms, job.retry_ms)

    def gain(self, resources: frozenset[Resource]) -> Actions:
        """Take over ``resources``; ASSIGNED is called even for no resources (KIP-429)."""
        if resources:
            self.owned |= resources
            self.terms = {**self.terms, **dict.fromkeys(resources, self.next_term)}
            self.next_term += 1
        self.queue = (*self.queue, Call(call=ListenerCall.ASSIGNED, resources=resources))
        return self._pump()

    def revoke(
        self,
        resources: frozenset[Resource],
        identity: Identity,
        deadline_ms: int,
        *,
        limit: Limit,
        of_rebalance: bool = False,
        always_call: bool = False,
    ) -> Actions:
        """Begin to revoke ``resources``.

        Parameters
        ----------
        resources : frozenset of Resource
            A subset of ``owned``; may be empty, for an eager member's callback.
        identity : Identity
            Identity of the commit, with the generation in which the resources were owned.
        deadline_ms : int
            When the wait for the application ends, whatever step the revocation has reached.
        limit : Limit
            Source of the deadline; for the log.
        of_rebalance : bool
            Whether an assignment caused it: then REVOKED comes before that rebalance's ASSIGNED.
        always_call : bool
            Whether the callback comes even without resources (eager members, KIP-429).
        """
        assert self.revocation is None
        assert resources <= self.owned
        token = self._token()
        self.revocation = Revocation(
            token=token,
            resources=resources,
            identity=identity,
            step=RevocationStep.DRAINING,
            deadline_ms=deadline_ms,
            limit=limit,
            of_rebalance=of_rebalance,
            always_call=always_call,
        )
        return (StopFetching(token=token, resources=ordered(resources), deadline_ms=deadline_ms),)

    def drained(self, event: Drained) -> Actions:
        """Call REVOKED: the application has finished with the revocation's resources."""
        job = self.revocation
        if job is None or job.token != event.token or job.step is not RevocationStep.DRAINING:
            return ()
        self.revocation = job = replace(job, step=RevocationStep.CALLING)
        announced = self._announced(job)
        if not announced and not job.always_call:
            return (*self._commit(job, failed=False), *self._pump())
        self._put_revoked(announced, job)
        return self._pump()

    def listener_returned(self, event: ListenerReturned) -> Actions:
        """Begin to fetch, or commit, after a callback, and make the next call."""
        done = self.calling
        if done is None or event.token != self.out_token:
            return ()
        self.calling = None
        actions: list[Action] = []
        if event.error is not None:
            actions.append(Warn(f"the {done.call} callback raised: {event.error}"))
        job = self.revocation
        if done.call is ListenerCall.ASSIGNED:
            start = done.resources & self.owned
            for later in self.queue:  # lost and gained again: wait for the newer callback
                start -= later.resources
            if job is not None:
                start -= job.resources
            if start:
                self.started |= start
                (term,) = {self.terms[r] for r in start}  # one gain, one callback
                actions.append(StartFetching(ordered(start), term))
        elif (
            job is not None and done.revocation == job.token and job.step is RevocationStep.CALLING
        ):
            actions += self._commit(job, failed=event.error is not None)
        actions += self._pump()
        return tuple(actions)

    def renew(self, identity: Identity) -> None:
        """Commit the revocation under ``identity``: a rebalance has begun meanwhile."""
        if self.revocation is not None:
            self.revocation = replace(self.revocation, identity=identity)

    def commit_answered(self, event: CommitAnswered, now_ms: int, *, joins: bool) -> Actions:
        """End the revocation when its commit is answered, or try again (KAFKA-14024).

        A generation that was refused is tried again if a newer one is known or, if ``joins``, soon
        will be.
        """
        job = self.revocation
        if job is None or job.token != event.request or job.step is not RevocationStep.COMMITTING:
            return ()
        is_overtaken = joins or job.sent_generation < job.identity.generation
        retriable = commits_again(event.error, is_overtaken=is_overtaken)
        if event.error == ErrorCode.NONE:
            return self._finish(job)
        if retriable and job.attempts < self.commit_retries:
            # Doubled with every attempt, up to 32 times the first pause.
            pause = self.retry_backoff_ms << min(job.attempts - 1, 5)
            self.revocation = replace(job, step=RevocationStep.WAITING, retry_ms=now_ms + pause)
            return ()
        return self._finish(job, failed=describe(event.error))

    def tick(self, now_ms: int) -> Actions:
        """Commit again when that is due; end the revocation at its deadline."""
        job = self.revocation
        if job is None:
            return ()
        if now_ms >= job.deadline_ms:
            return self._expire(job, now_ms)
        if job.retry_ms is not None and now_ms >= job.retry_ms:
            return self._commit(job, failed=False)
        return ()

    def end(self, identity: Identity, now_ms: int, limit: Limit) -> Actions:
        """Begin the last revocation: commit what is processed of everything, before it is lost.

        The last revocation replaces the one in progress, and does not wait for the application.
        """
        job = Revocation(
            token=self._token(),
            resources=self.owned,
            identity=identity,
            step=RevocationStep.DRAINING,
            deadline_ms=now_ms + self.last_commit_ms,
            limit=limit,
            is_late=True,
            loses=True,
        )
        self.revocation = job
        return self._commit(job, failed=False)

    def lose(self) -> Actions:
        """Drop everything at once, because membership is lost; call LOST once for each resource."""
        job, calling = self.revocation, self.calling
        unannounced = [c for c in self.queue if c.call is ListenerCall.ASSIGNED]
        kept = tuple(c for c in self.queue if c.call is not ListenerCall.ASSIGNED)
        never_announced = frozenset[Resource]().union(*(c.resources for c in unannounced))
        # A resource with REVOKED queued or called must not get LOST as well.
        revoked = frozenset[Resource]()
        for call in (*kept, *(() if calling is None else (calling,))):
            if call.call is not ListenerCall.ASSIGNED:
                revoked |= call.resources
        dropped, self.owned, self.started = self.owned, frozenset(), frozenset()
        self.terms = {}
        self.revocation = None
        lost = (self.announced & dropped) - never_announced - revoked
        is_called = (RevocationStep.COMMITTING, RevocationStep.WAITING)
        if job is not None and job.step in is_called and not job.loses:
            lost -= job.resources
        self.queue = kept
        if lost:
            self.queue = (*kept, Call(call=ListenerCall.LOST, resources=lost))
        actions = self._pump()
        return (DropNow(ordered(dropped), ordered(lost)), *actions) if dropped else actions

    def _announced(self, job: Revocation) -> frozenset[Resource]:
        """Return the revocation's resources that had ASSIGNED; the others leave the queue."""
        queued = frozenset[Resource]().union(
            *(c.resources for c in self.queue if c.call is ListenerCall.ASSIGNED)
        )
        hidden = job.resources & (queued - self.announced)
        if hidden:
            self.queue = tuple(
                replace(c, resources=c.resources - hidden) if c.call is ListenerCall.ASSIGNED else c
                for c in self.queue
            )
        return job.resources - hidden

    def _put_revoked(self, announced: frozenset[Resource], job: Revocation) -> None:
        """Queue REVOKED, before the ASSIGNED of the same rebalance (KIP-429's order).

        That ASSIGNED is the newest call, and has none of ``announced``: they were owned before.
        """
        call = Call(call=ListenerCall.REVOKED, resources=announced, revocation=job.token)
        keep = len(self.queue)
        if job.of_rebalance and self.queue and self.queue[-1].call is ListenerCall.ASSIGNED:
            keep -= 1
        self.queue = (*self.queue[:keep], call, *self.queue[keep:])

    def _pump(self) -> Actions:
        """Make the next callback, unless one is running or waits for this rebalance's REVOKED."""
        if self.calling is not None or not self.queue:
            return ()
        head = self.queue[0]
        job = self.revocation
        waiting = job is not None and job.of_rebalance and job.step is RevocationStep.DRAINING
        if waiting and head.call is ListenerCall.ASSIGNED and len(self.queue) == 1:
            return ()  # REVOKED of this rebalance comes first
        self.queue = self.queue[1:]
        self.calling, self.out_token = head, self._token()
        if head.call is ListenerCall.ASSIGNED:
            self.announced |= head.resources
        else:
            self.announced -= head.resources
        return (
            CallListener(token=self.out_token, call=head.call, resources=ordered(head.resources)),
        )

    def _commit(self, job: Revocation, *, failed: bool) -> Actions:
        """Ask for the commit of what was fetched, or end the revocation if no commit is wanted.

        A resource that was not fetched since it was assigned has only an old position.
        """
        fetched = job.resources & self.started
        if failed or not self.auto_commit or not fetched:
            return self._finish(job)
        who = job.identity
        self.revocation = replace(
            job,
            step=RevocationStep.COMMITTING,
            attempts=job.attempts + 1,
            sent_generation=who.generation,
            retry_ms=None,
        )
        return (
            Commit(
                token=job.token,
                resources=ordered(fetched),
                generation=who.generation,
                member_id=who.member_id,
                instance_id=who.instance_id,
            ),
        )

    def _expire(self, job: Revocation, now_ms: int) -> Actions:
        """End a wait: for the application at the deadline, and later for the last commit.

        REVOKED is queued at once, and called as soon as the application polls again.
        """
        waits = job.step in (RevocationStep.COMMITTING, RevocationStep.WAITING)
        if job.step is RevocationStep.DRAINING:
            announced = self._announced(job)
            if announced or job.always_call:
                self._put_revoked(announced, job)
        self.revocation = job = replace(
            job, is_late=True, retry_ms=None, deadline_ms=now_ms + self.last_commit_ms
        )
        if waits:
            return (*self._finish(job, failed="no answer in time"), *self._pump())
        return (*self._commit(job, failed=False), *self._pump())

    def _finish(self, job: Revocation, failed: str = "") -> Actions:
        """End a revocation; a late one drops resources that the application still works on."""
        self.revocation = None
        text = f"revoked {names(job.resources)}"
        if job.is_late:
            text = f"{text} after {job.limit}"
        text = f"{text}, uncommitted: {failed}" if failed else f"{text}: {self.read_again}"
        warned = (Warn(text),) if failed else ()
        if job.loses:
            return warned
        self.owned -= job.resources
        self.terms = {r: term for r, term in self.terms.items() if r in self.owned}
        self.started -= job.resources
        if not job.is_late or not job.resources:
            return warned
        return (DropNow(ordered(job.resources)), Warn(text))

    @property
    def read_again(self) -> str:
        """Text that says which records the next owner reads again."""
        if self.auto_commit:
            return "records in flight are read again"
        return "uncommitted records are processed again"

    def _token(self) -> int:
        token = self.next_token
        self.next_token += 1
        return token
