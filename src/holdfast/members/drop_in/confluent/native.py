"""``group.protocol=consumer`` on a broker before Kafka 4.0: a sentence where librdkafka has none.

**Rules.** With ``group.protocol=consumer`` the member is librdkafka's own, and nothing of it
changes. On a broker that does not know that protocol librdkafka waits for ever without a word, so
the log says it. Nobody waits for the look at the broker.

References: KIP-848 (ConsumerGroupHeartbeat).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from holdfast.cluster.diagnosis import known_requests
from holdfast.cluster.settings import Settings
from holdfast.errors import ConfigError
from holdfast.members.member.member_log import NAME

CONSUMER_GROUP_HEARTBEAT = 68
log = logging.getLogger(NAME)


def look(connection: Mapping[str, Any]) -> None:
    """Look on a thread whether the brokers know the protocol, and warn if they do not.

    Parameters
    ----------
    connection : mapping of str to object
        Addresses, login and ``group.id``, as :meth:`Settings.parse` takes them.
    """
    threading.Thread(target=_look, args=(connection,), name="holdfast-look", daemon=True).start()


def _look(connection: Mapping[str, Any]) -> None:
    try:
        settings = Settings.parse(connection)
        known = known_requests(settings)
    except (ConfigError, OSError):
        return  # librdkafka says what is wrong with these
    if known and CONSUMER_GROUP_HEARTBEAT not in known:
        log.warning(
            "group %s: group.protocol=consumer needs Kafka 4.0 (KIP-848), and the broker is older: "
            "this consumer gets no partitions; group.protocol=classic works there",
            settings["group.id"],
        )
