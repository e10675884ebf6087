"""The one error tree of holdfast.

::

    HoldfastError
    ├── ModelError              a column, snapshot or option that is invalid
    │   ├── InfeasibleError     well formed, but no answer exists under the requested rules (exit 4)
    │   └── PlanError           a user's own assignor raised, or gave no valid plan
    ├── LawError                an assignor breaks a law that it claims
    ├── WireError               bytes that do not parse, or a value that cannot be written
    ├── LocalProtocolError      our caller sent an event that the machine's table forbids
    ├── RemoteProtocolError     the peer broke the protocol or refused; carries Kafka's error code
    ├── ConfigError             a setting that is unknown, out of range or contradictory (exit 2)
    └── OperationalError        a failure outside this program (exit 3), raised as:
        ├── ClientError         a client library or a connection to a cluster
        ├── BrokerError         a Kafka broker that runs on this machine
        ├── JavaError           a Java installation or its jars
        ├── ProcessError        another process or a server of holdfast
        └── SourceError         a cluster, dump or file that is unreachable or unreadable

**Rules.** An error carries fields; its text says what was found and what was expected. No field
contains a secret. Only :mod:`holdfast.cli` turns an error into an exit code.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from functools import partial

__all__ = [
    "BrokerError",
    "ClientError",
    "ConfigError",
    "HoldfastError",
    "InfeasibleError",
    "JavaError",
    "LawError",
    "LocalProtocolError",
    "ModelError",
    "OperationalError",
    "PlanError",
    "ProcessError",
    "RemoteProtocolError",
    "SourceError",
    "WireError",
]


class HoldfastError(Exception):
    """Root of every error that holdfast raises on purpose."""


class ModelError(HoldfastError):
    """A column, snapshot or option does not describe a group.

    Parameters
    ----------
    message : str
        The found and the expected value, in words.
    column : str, optional
        Where: a column or a path such as ``members[3].owned``.
    index : int, optional
        Index inside the column.
    """

    def __init__(self, message: str, *, column: str | None = None, index: int | None = None):
        self.column = column
        self.index = index
        where = "" if column is None else column if index is None else f"{column}[{index}]"
        super().__init__(f"{where}: {message}" if where else message)


class InfeasibleError(ModelError):
    """The input is well formed, but no answer exists under the requested rules."""


class PlanError(ModelError):
    """The function of a user's own assignor raised, or its plan is not valid; the text names it."""


class LawError(HoldfastError):
    """An assignor breaks a law that it claims.

    Parameters
    ----------
    law : str
        Its name.
    message : str
        The found and the expected value, in words.
    """

    def __init__(self, law: str, message: str):
        self.law = law
        self.message = message
        super().__init__(f"{law}: {message}")


class Reason(StrEnum):
    """The reason why bytes could not be read or a value not written (docs/wire.md).

    The order is fixed: readers of columns write a reason as its position.
    """

    TRUNCATED = "truncated"  # the bytes end inside a field
    BAD_LENGTH = "bad-length"  # a length below -1, or a string or tagged field of a wrong size
    BAD_COUNT = "bad-count"  # a count below -1, or one that the bytes left cannot hold
    UNEXPECTED_NULL = "unexpected-null"  # null where the schema has none
    BAD_UTF8 = "bad-utf8"  # a string that is not UTF-8
    BAD_VARINT = "bad-varint"  # a varint that does not end, or exceeds its width
    BAD_VERSION = "bad-version"  # a version below 0, or one that this schema does not have
    TRAILING_BYTES = "trailing-bytes"  # bytes left over where none may be
    BAD_MAGIC = "bad-magic"  # a frame of other software
    OUT_OF_RANGE = "out-of-range"  # a value outside the range of its field
    UNKNOWN_TYPE = "unknown-type"  # a record type that is not known


class WireError(HoldfastError):
    """Bytes do not follow their schema, or a value does not fit it.

    Parameters
    ----------
    reason : str
        A stable word, such as ``truncated`` or ``bad-length`` (docs/wire.md).
    schema : str
        Kafka's name of the schema, such as ``ConsumerProtocolSubscription``.
    version : int or None
        Schema version being read, None before it is known.
    field : str
        Path of the field, such as ``owned_partitions[2].topic``.
    position : int
        Byte position in the input at which reading failed; -1 when writing.
    """

    def __init__(
        self,
        reason: str,
        *,
        schema: str,
        version: int | None = None,
        field: str = "",
        position: int = -1,
        detail: str = "",
    ):
        self.reason = reason
        self.schema = schema
        self.version = version
        self.field = field
        self.position = position
        self.detail = detail
        where = schema if version is None else f"{schema} v{version}"
        at = "" if position < 0 else f" at byte {position}"
        text = f"{where}: {reason} in {field or 'message'}{at}"
        super().__init__(f"{text}: {detail}" if detail else text)

    def within(self, outer: str) -> WireError:
        """Return the same error with ``outer`` in front of its field."""
        return WireError(
            self.reason,
            schema=self.schema,
            version=self.version,
            field=f"{outer}.{self.field}" if self.field else outer,
            position=self.position,
            detail=self.detail,
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Return a recipe for pickle (keyword-only fields are not in ``args``)."""
        fields = ("schema", "version", "field", "position", "detail")
        make = partial(WireError, self.reason, **{name: getattr(self, name) for name in fields})
        return make, ()


class LocalProtocolError(HoldfastError):
    """Our own caller sent an event that the machine's table forbids here; nothing changed."""


class RemoteProtocolError(HoldfastError):
    """The peer refused or broke the protocol.

    Parameters
    ----------
    message : str
        What happened and what to do.
    error_code : int
        Kafka's error code, -1 without one.
    """

    def __init__(self, message: str, *, error_code: int = -1):
        self.error_code = error_code
        super().__init__(message)


class ConfigError(HoldfastError):
    """A setting is unknown, out of range, or contradicts another one."""


class OperationalError(HoldfastError):
    """Something outside this program failed; only subclasses are raised."""


class ClientError(OperationalError):
    """A client library or a connection failed, is closed, or had no answer in time."""


class BrokerError(OperationalError):
    """A Kafka broker on this machine did not start, or ended by itself."""


class JavaError(OperationalError):
    """No usable Java is installed, or its jars are missing, damaged or cannot be downloaded."""


class ProcessError(OperationalError):
    """Another process of holdfast failed, or a server of holdfast cannot listen."""


class SourceError(OperationalError):
    """A cluster, dump or file cannot be reached or read."""


class UnreadableTopicError(SourceError):
    """A cluster has no topic of that name, or the principal may not describe it."""


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error is a KeyboardInterrupt, or was raised while one was handled."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


MOST_LISTED = 40


def suggest(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return the end of an error about an unknown name: the nearest known names, or a list.

    Of more than ``MOST_LISTED`` known names the first five are listed.
    """
    known = tuple(known)
    rest = len(known) - 5 if len(known) > MOST_LISTED else 0
    listed = ", ".join(known[:5] if rest else known) or "none"
    more = f" and {rest} more" if rest else ""
    return nearest(name, known, most, before="") or f"known: {listed}{more}"


def nearest(name: str, known: Iterable[str], most: int = 1, before: str = "; ") -> str:
    """Return the same as :func:`suggest` after ``before``, but "" if no known name is near."""
    near = get_close_matches(name, tuple(known), n=most)
    return f"{before}did you mean {' or '.join(near)}?" if near else ""
