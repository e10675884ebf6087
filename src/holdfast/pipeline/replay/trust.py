"""What of a group's replay is not to be trusted.

**Rules.** An agreement below ``LOW_FIDELITY`` is told in every row of the group: what differs, and
so which numbers to leave alone, and what would mend it as far as that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.model.fidelity import LOW_FIDELITY

MEANINGS: Final = {
    "fidelity_moves": "moves differ from the records: trust no number",
    "fidelity_rebalances": "rebalances differ from the records: trust no number",
    "fidelity_pause": "stops differ from the records: trust rounds and moves, not seconds",
    "fidelity_interval": "the history leaves the seconds open: trust their interval alone",
}
"""Agreement -> what it means if it is low, the gravest first."""


def caution(faith: Mapping[str, Any], mend: str | None) -> str | None:
    """What a row of this fidelity is not to be trusted in; None if nothing is known against it.

    Parameters
    ----------
    faith : mapping
        Fidelity and agreements of the group.
    mend : str, optional
        What would mend it.
    """
    if faith["fidelity"] is None or faith["fidelity"] >= LOW_FIDELITY:
        return None
    low = [text for n, text in MEANINGS.items() if faith[n] is not None and faith[n] < LOW_FIDELITY]
    return "; ".join(filter(None, (low[0], mend)))
