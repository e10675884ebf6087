"""The parts of the page that stand without JavaScript."""

from tests.report.fleet import rolling_bounce, tables

from holdfast.report.drawing.writing import render
from holdfast.tables.reading import read_tables


def test_a_cause_that_a_broker_stated_is_told_from_one_that_is_inferred() -> None:
    script = rolling_bounce()
    said = "Adding new member a because of a rolling <bounce>"
    script.rows["rebalances"][2] |= {"cause_basis": "stated", "stated_reason": said}
    page = render(read_tables(tables(script)), "t")
    assert page.count("(stated)") == 1
    assert 'title="Adding new member a because of a rolling &lt;bounce&gt;"> (stated)' in page
    assert page.count("(90%)") == len(script.rows["rebalances"]) - 1
