"""Colours of owners, chosen so that colour-blind readers tell neighbours apart.

**Strategy.** The seven hues are Okabe and Ito's set without black; a second and a third ring are
the same hues lighter and darker. Colour never stands alone: bars carry names where they fit, the
legend and the search single a member out, and every picture has its table.
"""

from __future__ import annotations

HUES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442")


def _mix(colour: str, other: int, share: float) -> str:
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(p + (other - p) * share):02x}" for p in parts)


COLOURS: tuple[str, ...] = (
    *HUES,
    *(_mix(hue, 255, 0.45) for hue in HUES),
    *(_mix(hue, 0, 0.3) for hue in HUES),
)
