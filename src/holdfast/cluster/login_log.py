"""No login in a log: one filter for what kafka-python and aiokafka write at DEBUG.

**Rules.** Where the settings of a client are made, :func:`hide_logins` is called; the assignors for
stock clients call it when they are imported, because their clients are the application's. The
filter tells a login by what a record is about (the class of a request, the key of a setting), never
by its text: quotes, escapes and other spellings of a password change nothing. No secret is kept
here.

**Strategy.** The two libraries log a request as an object before it is text, so its class is in the
record's arguments. Bytes of the wire do not show what they are (an answer names no kind), so a
record has their number only. A filter on a logger does not reach its children: each logger is
named.

References: KIP-152 (SaslAuthenticate); KIP-554 (SCRAM users).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

LOGGERS = (
    "kafka.admin.client",
    "kafka.net.connection",
    "kafka.net.manager",
    "kafka.net.compat",
    "kafka.net.transport",
    "kafka.protocol.parser",
    "aiokafka",
    "aiokafka.conn",
)
"""Loggers that are given requests, bytes or settings."""

HIDDEN = "[hidden]"
_KINDS = ("Sasl", "AlterUserScramCredentials", "DelegationToken")
_SETTINGS = ("password", "token", "secret", "ssl_context", "jaas")


def hide_logins() -> None:
    """Let no login into the log of a client; calling it again changes nothing."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(without_logins)  # which adds a filter once


def without_logins(record: logging.LogRecord) -> bool:
    """Replace what a record says of a login; the record itself stays."""
    if isinstance(record.args, Mapping):
        record.args = _plain(record.args)
    elif record.args:
        record.args = tuple(map(_plain, record.args))
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"[{len(value)} bytes]"
    if isinstance(value, Mapping):
        secret = {key for key in value if any(word in str(key).lower() for word in _SETTINGS)}
        return {key: HIDDEN if key in secret else _plain(held) for key, held in value.items()}
    if any(kind in cls.__name__ for cls in type(value).__mro__ for kind in _KINDS):
        return f"{type(value).__name__} {HIDDEN}"
    return value
