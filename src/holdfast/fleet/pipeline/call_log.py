"""No login in the log of calls into the JVM, which py4j writes at DEBUG as whole texts.

**Rules.** A call that names one of Kafka's secret settings is logged without its text. No secret is
kept here.

**Strategy.** py4j makes the text of a call before it logs it: a line with the option's key, a line
with its value. So the key tells the record, whatever the value looks like.
"""

from __future__ import annotations

import logging
import re
from typing import Final

LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")
HIDDEN: Final = "a call with a login (not shown)"
_SECRET: Final = re.compile(r"jaas|password|secret|token|keystore\.|credential", re.IGNORECASE)


def hide_logins() -> None:
    """Let no login into py4j's log; calling it again changes nothing."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(without_logins)  # which adds a filter once


def without_logins(record: logging.LogRecord) -> bool:
    """Replace the text of a call that names a secret; the record itself stays."""
    if _SECRET.search(record.getMessage()):
        record.msg, record.args = HIDDEN, ()
    return True
