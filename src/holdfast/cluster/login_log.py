"""Keeps logins out of logs: one filter for what kafka-python and aiokafka write at DEBUG.

**Rules.** :func:`hide_logins` is called wherever the settings of a client are made; the assignors
for stock clients call it when they are imported, because their clients are the application's. The
filter recognises a login by the subject of a record (the class of a request, the key of a setting),
never by its text: quotes, escapes and other spellings of a password have no effect. No secret is
kept here.

**Strategy.** The two libraries log a request as an object before it is text, so its class is in the
record's arguments. Raw bytes do not show their kind, so a record gets only their number. A filter
on a logger does not reach its children: each logger is named.

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
"""Loggers that get requests, bytes or settings."""

HIDDEN = "[hidden]"
_KINDS = ("Sasl", "AlterUserScramCredentials", "DelegationToken")
_SETTINGS = ("password", "token", "secret", "ssl_context", "jaas")


def hide_logins() -> None:
    """Keep logins out of the logs of clients; calling it again changes nothing."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(without_logins)  # which adds a filter once


def without_logins(record: logging.LogRecord) -> bool:
    """Replace logins in a record; the record itself stays."""
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
