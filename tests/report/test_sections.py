"""The parts of the page that stand without JavaScript."""

import re

from tests.report.fleet import rolling_bounce, tables

from holdfast.report.drawing.body import _fleet_figures
from holdfast.report.drawing.sections import codes_of, group_figures
from holdfast.report.drawing.writing import render
from holdfast.report.findings.doctor import examine_fleet
from holdfast.tables.reading import read_tables


def test_a_cause_that_a_broker_stated_is_told_from_one_that_is_inferred() -> None:
    script = rolling_bounce()
    said = "Adding new member a because of a rolling <bounce>"
    script.rows["rebalances"][2] |= {"cause_basis": "stated", "stated_reason": said}
    page = render(read_tables(tables(script)), "t")
    assert page.count("(stated)") == 1
    assert 'title="Adding new member a because of a rolling &lt;bounce&gt;"> (stated)' in page
    assert page.count("(90%)") == len(script.rows["rebalances"]) - 1


def test_figures_show_both_bounds_and_codes_explain_themselves() -> None:
    held = read_tables(tables(rolling_bounce("a"), rolling_bounce("b")))
    found = examine_fleet(held)
    low = sum(float(sum(e.facts.rebalances.pause_lower_s)) for e in found)
    assert low > 0
    for text in (str(group_figures(found[0].facts)), str(_fleet_figures(held, found))):
        assert re.search(r"[\d.]+ to [\d.,]+ s<", text), text
    assert 'title="deploy churn: A rolling restart' in "".join(
        map(str, codes_of(found[0].findings))
    )
