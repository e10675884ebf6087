"""States of members and groups, copied out and in, and moved in time, for the search.

**Rules.** A copy holds every field but the settings: it is hashable, and equal for equal states. A
time is a field that ends in ``_ms``; ``now_ms`` alone never moves.

**Strategy.** The names of the fields are read off the records. Every field of a record is an
immutable value, so a tuple of the values is a copy; tables are copied by themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import fields, replace
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeAlias

from holdfast.core.machine.coordinator.group import GroupData
from holdfast.core.machine.member.holdings import Holdings
from holdfast.core.machine.member.member_data import NEVER_MS, MemberData

Saved: TypeAlias = tuple[Any, ...]
"""A copy of a state."""


def _names(record: type[Any], *but: str) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record) if field.name not in but)


HOLDINGS_SETTINGS = ("auto_commit", "commit_retries", "retry_backoff_ms", "last_commit_ms")
_MEMBER = _names(MemberData, "assignors", "options", "mode", "holdings")
_HOLDINGS = _names(Holdings, *HOLDINGS_SETTINGS, "terms")
_TABLES = ("members", "sessions", "pending")
_GROUP = _names(GroupData, "group_id", "options", "durable", *_TABLES)

_MEMBER_TIMES, _GROUP_TIMES = (
    tuple(name for name in names if name.endswith("_ms") and name != "now_ms")
    for names in (_MEMBER, _GROUP)
)
_values_of_member, _values_of_holdings = attrgetter(*_MEMBER), attrgetter(*_HOLDINGS)
_values_of_group = attrgetter(*_GROUP)


def saved_member(member: MemberData) -> Saved:
    """Return a copy of the state, without the settings."""
    holdings = member.holdings
    terms = tuple(sorted(holdings.terms.items()))
    return (_values_of_member(member), _values_of_holdings(holdings), terms)


def restore_member(member: MemberData, saved: Saved) -> None:
    """Give a member the state that :func:`saved_member` copied from it or from another one."""
    values, held, terms = saved
    _put(member, _MEMBER, values)
    _put(member.holdings, _HOLDINGS, held)
    member.holdings.terms = dict(terms)


def shift_member(member: MemberData, by_ms: int) -> None:
    """Let ``by_ms`` pass: every time but ``now_ms`` is that much earlier afterwards.

    A search can keep its clock at one time this way, so that states that differ only in their time
    are equal. A time that never comes stays.
    """
    _shift(member, _MEMBER_TIMES, by_ms)
    job = member.holdings.revocation
    if job is not None:
        retry_ms = None if job.retry_ms is None else job.retry_ms - by_ms
        shifted = replace(job, deadline_ms=job.deadline_ms - by_ms, retry_ms=retry_ms)
        member.holdings.revocation = shifted


def saved_group(group: GroupData) -> Saved:
    """Return a copy of the state, without the settings and the log."""
    tables = (tuple(getattr(group, name).items()) for name in _TABLES)
    return (_values_of_group(group), *tables)


def restore_group(group: GroupData, saved: Saved) -> None:
    """Give a group the state that :func:`saved_group` copied from it or from another one."""
    values, *tables = saved
    _put(group, _GROUP, values)
    _put(group, _TABLES, map(dict, tables))


def shift_group(group: GroupData, by_ms: int) -> None:
    """Let ``by_ms`` pass: every time but ``now_ms`` is that much earlier afterwards."""
    _shift(group, _GROUP_TIMES, by_ms)
    group.sessions = {member_id: ends_ms - by_ms for member_id, ends_ms in group.sessions.items()}
    group.pending = {member_id: ends_ms - by_ms for member_id, ends_ms in group.pending.items()}


def _put(record: object, names: Iterable[str], values: Iterable[object]) -> None:
    deque(map(setattr, repeat(record), names, values), maxlen=0)  # as fast as it goes


def _shift(record: object, times: Iterable[str], by_ms: int) -> None:
    for name in times:
        at_ms = getattr(record, name)
        if at_ms is not None and at_ms < NEVER_MS:
            setattr(record, name, at_ms - by_ms)
