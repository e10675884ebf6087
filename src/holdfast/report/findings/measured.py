"""How often the doctor is right, on a fleet whose problems are known.

**Rules.** Written down here for ``docs/doctor.md``; ``tests/report/test_labelled.py`` makes the
fleet, examines it, and compares. A code that no group of the fleet has is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One code: groups in which its problem was planted, in which it was found, and false ones.

    A false one is a finding above info in a group that does not have the problem.
    """

    planted: int
    found: int
    false: int = 0

    @property
    def recall(self) -> float:
        """Found of the planted, 0 to 1."""
        return self.found / self.planted

    @property
    def precision(self) -> float:
        """Right of the found, 0 to 1."""
        return self.found / max(self.found + self.false, 1)


N_GROUPS = 75
N_SOUND = 35
MEASURED = {
    "HF101": Measured(planted=4, found=4),
    "HF102": Measured(planted=3, found=3),
    "HF104": Measured(planted=6, found=6),
    "HF105": Measured(planted=6, found=6),
    "HF107": Measured(planted=3, found=3),
    "HF109": Measured(planted=3, found=3),
    "HF111": Measured(planted=6, found=6),
    "HF115": Measured(planted=3, found=3),
    "HF119": Measured(planted=1, found=1),
    "HF124": Measured(planted=3, found=3),
    "HF125": Measured(planted=3, found=3),
    "HF126": Measured(planted=3, found=3),
}


def measured_markdown() -> str:
    """The section of ``docs/doctor.md``."""
    rows = [
        f"| {code} | {m.planted} | {m.found} | {m.false} | {m.recall:.2f} | {m.precision:.2f} |"
        for code, m in sorted(MEASURED.items())
    ]
    return _SECTION.format(n=N_GROUPS, sound=N_SOUND, rows="\n".join(rows))


_SECTION = """\
## How often it is right

Of {n} groups with a known history, {sound} are sound; the others have a problem planted. Ten lived
on a broker, the others in the simulation, with commits and log ends beside it. False ones are
findings above info in a group that does not have the problem. `tests/report/test_labelled.py`
checks the table. Codes that are not in it were tried on tables made by hand alone.

| code | planted | found | false | recall | precision |
| --- | --- | --- | --- | --- | --- |
{rows}
"""
