"""The doctor on a fleet whose problems are known: how many it finds, and how many it makes up."""

from __future__ import annotations

import pytest
from tests.report.captured.scenarios import SCENARIOS
from tests.report.labelled import LIVE, captured, examined, ill, live, sound
from tools.pages.doctor import MEASURED, N_GROUPS, N_ON_BROKER, N_SOUND, Measured

from holdfast.fleet.analysis.findings.finding import RULES, Severity

pytestmark = pytest.mark.xdist_group("labelled")

ON_BROKER = {*LIVE, *(scenario.name for scenario in SCENARIOS)}


@pytest.fixture(scope="module")
def told(
    tmp_path_factory: pytest.TempPathFactory,
) -> list[tuple[str, set[str], set[str], set[str]]]:
    """Of each group: its name, codes found, of these above info, codes planted or beside them."""
    groups = [*sound(), *ill()]
    found = examined(tmp_path_factory.mktemp("fleet"), groups)
    labels = {one.name: (one.planted, one.beside) for one in groups}
    found |= live(tmp_path_factory.mktemp("live"))
    labels |= {name: (planted, frozenset()) for name, planted in LIVE.items()}
    found |= captured(tmp_path_factory.mktemp("captured"))
    labels |= {scenario.name: (scenario.planted, scenario.beside) for scenario in SCENARIOS}
    return [
        (
            name,
            {f.code for f in found[name].findings},
            {f.code for f in found[name].findings if f.severity is not Severity.INFO} - beside,
            set(planted),
        )
        for name, (planted, beside) in labels.items()
    ]


def test_what_is_planted_is_found_and_nothing_else(told) -> None:
    for name, codes, loud, planted in told:
        assert planted <= codes, name
        assert loud <= planted, name


def test_the_page_says_how_it_was(told) -> None:
    assert (len(told), sum(not planted for *_, planted in told)) == (N_GROUPS, N_SOUND)
    assert len(ON_BROKER) == N_ON_BROKER
    assert N_GROUPS >= 40 and 0.45 <= N_SOUND / N_GROUPS <= 0.6
    counted = {}
    for code in sorted({code for *_, planted in told for code in planted}):
        n = sum(code in planted for *_, planted in told)
        hits = sum(code in planted & codes for _, codes, _, planted in told)
        false = sum(code in loud - planted for _, _, loud, planted in told)
        live = sum(code in planted for name, *_, planted in told if name in ON_BROKER)
        counted[code] = Measured(planted=n, on_broker=live, found=hits, false=false)
    assert counted == MEASURED


def test_every_code_of_a_group_is_planted_somewhere(told) -> None:
    """HF123 is about a folder: a watch that died on a cluster shows it; HF128 about answers.

    HF133 is about a rule that fails.
    """
    planted = {code for *_, codes in told for code in codes}
    assert planted == RULES.keys() - {"HF123", "HF128", "HF133"}
