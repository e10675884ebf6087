"""``docs/doctor.md``: every code of the doctor, and how often it is right.

**Rules.** The text of a code is that of its rule, as ``holdfast explain`` prints it. Numbers of the
fleet with known problems are recorded here; ``tests/report/test_labelled.py`` makes the fleet,
examines it, and compares. A code that no group of the fleet has is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill

from markdown.extensions.toc import slugify
from tools.pages.tables import table

from holdfast.fleet.analysis.findings.examination import all_rules

PAGE_WIDTH = 120
"""Characters of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One code: groups in which its problem was planted, in which it was found, and false ones.

    ``on_broker`` of the planted ones come from a broker, the others from the simulation. A false
    one is a finding above info in a group that does not have the problem.
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


N_GROUPS = 145
N_SOUND = 69
N_ON_BROKER = 55
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
    "HF127": Measured(planted=4, on_broker=1, found=4),
    "HF129": Measured(planted=3, on_broker=0, found=3),
    "HF130": Measured(planted=3, on_broker=0, found=3),
    "HF131": Measured(planted=1, on_broker=1, found=1),
    "HF132": Measured(planted=3, on_broker=0, found=3),
}


def doctor_page() -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION, _index()]
    for rule in all_rules():
        paragraphs = (
            f"## {rule.code} {rule.name} ({rule.severity})",
            rule.what,
            f"**Why it matters.** {rule.why}",
            f"**How it is detected.** {rule.how}",
            f"**What helps.** {rule.mend}",
        )
        parts.append("\n\n".join(fill(text, PAGE_WIDTH) for text in paragraphs) + "\n")
    parts.append(_measured())
    return "\n".join(parts)


def _index() -> str:
    """Return every code with its name and description, each with a link to its section."""
    rows = [
        [
            f"[{rule.code}](#{slugify(f'{rule.code} {rule.name} ({rule.severity})', '-')})",
            rule.name,
            rule.severity,
            rule.what,
        ]
        for rule in all_rules()
    ]
    return "\n".join([*table(("code", "finding", "severity", "description"), rows), ""])


def _measured() -> str:
    """Return the section on the fleet with known problems."""
    rows = [
        f"| {code} | {m.on_broker} | {m.planted - m.on_broker} | {m.found} | {m.false} | "
        f"{m.recall:.2f} | {m.precision:.2f} |"
        for code, m in sorted(MEASURED.items())
    ]
    return _SECTION.format(n=N_GROUPS, sound=N_SOUND, on_broker=N_ON_BROKER, rows="\n".join(rows))


_INTRODUCTION = """\
# The doctor's findings

`holdfast doctor --input TABLES` (or a dump, or `-b HOST:PORT`) examines every group and prints one
screen for each group, the worst first. It only reads, and joins no group. A finding has

- a stable **code** and a **severity** (info, warn, error);
- whether it is **active**, or past with the time when it ended. A present state is active. An event
  is active for ten minutes after its last evidence: a storm whose last rebalance was eleven minutes
  ago is past, and ended with that rebalance. A record's statement about a generation lasts until
  the next one. All findings of a deleted group are past. `--fail-on warn` exits with 1 for active
  findings;
- a **basis**: *stated* by a record, or *inferred* from several;
- **evidence**: generations, times, members, partitions: the first ten of each, and how many more
  there are;
- a **downtime**, such as `up to 12 min a partition`: the time in which a partition had no owner, or
  an owner that did nothing for it, on average over the group's partitions. `up to`, because Kafka
  does not record when a rebalance starts: time counts from the last evidence of an owner. JSON and
  CSV have both bounds too, in partition-seconds. Time in which no record is known to have waited is
  not downtime;
- `follows`: the code of the finding that explains this one. A slow poller (HF127), a crash loop
  (HF124), a deploy (HF102) or an autoscaler (HF132) that made nine in ten of the rebalances since
  it began is listed first, the others under it;
- one **command** that helps. It reads the source that the doctor was given; where the doctor knows
  no broker, the command has `HOST:PORT`.

`history -o`, `watch` and `serve` examine groups as a step of their pipeline, in this process or on
Spark, and commit the [table](tables.md) `findings` together with the rows that it was computed
from. Its window ends when the batch's source was read. A batch of a stream examines groups with
events; of a group that has only committed, what depends on its lag; the rest of the table stays.
`doctor`, `report` and `/metrics` read the table. They run the same rules over a dump, a live
cluster, or with another window (`--since`), for which no table exists. The clock of the reader
and the coordinators' answers are added on reading: HF123 compares the tables with the clock, and a
group whose coordinator answered is examined with its present state.

Groups are sorted by the severity of their worst active finding, then by downtime, in `doctor`,
`report` and `serve` alike. A window ends when the source was read: now for a cluster, `taken_at`
for a dump, the newest batch for tables. `--since 6h` says how long before that it begins; for a
cluster it is one hour. A problem that began earlier and still holds is found, too.

`--format json` follows [doctor.schema.json](doctor.schema.json). This page is written from the
rules, and a test compares the two.
"""

_SECTION = """\
## How often it is right

Of {n} groups with a known history, {sound} are sound; the others have a problem planted.
{on_broker} were recorded on a real Kafka
(`tests/report/captured/scenarios.py` describes each, `tests/pipeline/captured` and
`tests/wire/captured` have the older ones); the others come from the simulation, with commits and
log ends written beside its records. False findings are findings above info in a group that does not
have the problem. `tests/report/test_labelled.py` checks the table. HF123 is about a folder and
not a group: `tests/live/test_suggestions.py` ends a watch of a cluster.

| code | planted on a broker | in the simulation | found | false | recall | precision |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
"""
