"""How often the doctor is right, on a fleet whose problems are known.

**Rules.** Written down here for ``docs/doctor.md``; ``tests/report/test_labelled.py`` makes the
fleet, examines it, and compares. A code that no group of the fleet has is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One code: groups in which its problem was planted, in which it was found, and false ones.

    ``on_broker`` of the planted ones lived on a broker, the others in the simulation. A false one
    is a finding above info in a group that does not have the problem.
    """

    planted: int
    on_broker: int
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


N_GROUPS = 119
N_SOUND = 56
N_ON_BROKER = 54
MEASURED = {
    "HF101": Measured(planted=4, on_broker=4, found=4),
    "HF102": Measured(planted=4, on_broker=1, found=4),
    "HF103": Measured(planted=1, on_broker=1, found=1),
    "HF104": Measured(planted=8, on_broker=2, found=8),
    "HF105": Measured(planted=8, on_broker=2, found=8),
    "HF106": Measured(planted=1, on_broker=1, found=1),
    "HF107": Measured(planted=4, on_broker=1, found=4),
    "HF108": Measured(planted=1, on_broker=1, found=1),
    "HF109": Measured(planted=3, on_broker=0, found=3),
    "HF110": Measured(planted=1, on_broker=1, found=1),
    "HF111": Measured(planted=7, on_broker=4, found=7),
    "HF112": Measured(planted=1, on_broker=1, found=1),
    "HF113": Measured(planted=1, on_broker=1, found=1),
    "HF114": Measured(planted=1, on_broker=1, found=1),
    "HF115": Measured(planted=4, on_broker=1, found=4),
    "HF116": Measured(planted=1, on_broker=1, found=1),
    "HF117": Measured(planted=1, on_broker=1, found=1),
    "HF118": Measured(planted=1, on_broker=1, found=1),
    "HF119": Measured(planted=1, on_broker=1, found=1),
    "HF120": Measured(planted=1, on_broker=1, found=1),
    "HF121": Measured(planted=1, on_broker=1, found=1),
    "HF122": Measured(planted=1, on_broker=1, found=1),
    "HF124": Measured(planted=4, on_broker=1, found=4),
    "HF125": Measured(planted=4, on_broker=1, found=4),
    "HF126": Measured(planted=4, on_broker=1, found=4),
}


def measured_markdown() -> str:
    """The section of ``docs/doctor.md``."""
    rows = [
        f"| {code} | {m.on_broker} | {m.planted - m.on_broker} | {m.found} | {m.false} | "
        f"{m.recall:.2f} | {m.precision:.2f} |"
        for code, m in sorted(MEASURED.items())
    ]
    return _SECTION.format(n=N_GROUPS, sound=N_SOUND, on_broker=N_ON_BROKER, rows="\n".join(rows))


_SECTION = """\
## How often it is right

Of {n} groups with a known history, {sound} are sound; the others have a problem planted.
{on_broker} lived on a real Kafka and are read as it left them
(`tests/report/captured/capture.py` says what was done in each, `tests/pipeline/captured` and
`tests/wire/captured` have the older ones); the others lived in the simulation, with commits and
log ends written beside its records. False ones are findings above info in a group that does not
have the problem. `tests/report/test_labelled.py` checks the table. HF123 is about a folder and
not a group: `tests/live/test_suggestions.py` lets a watch of a cluster die.

| code | planted on a broker | in the simulation | found | false | recall | precision |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
"""
