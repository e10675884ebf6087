"""The parts of the page that stand without JavaScript."""

import re

import pytest
from tests.report.fleet import examine_all, rolling_bounce, tables

from holdfast.fleet.analysis.findings.doctor import Doctor
from holdfast.fleet.analysis.findings.examination import all_rules
from holdfast.fleet.analysis.findings.finding import RULES, Evidence, few, generations_of
from holdfast.fleet.report.drawing.markup import escape, prose
from holdfast.fleet.report.drawing.sections import code_link, codes_section
from holdfast.fleet.report.drawing.writing import _fleet_figures, render
from holdfast.fleet.tables.reading import read_tables


def test_a_cause_that_a_broker_stated_differs_from_one_that_is_inferred() -> None:
    script = rolling_bounce()
    said = "Adding new member a because of a rolling <bounce>"
    script.rows["rebalances"][2] |= {"cause_basis": "stated", "stated_reason": said}
    page = render(read_tables(tables(script)), "t")
    assert page.count("(stated)") == 1
    assert 'title="Adding new member a because of a rolling &lt;bounce&gt;"> (stated)' in page
    assert page.count("inferred: right in 90%") == len(script.rows["rebalances"]) - 1
    assert "%)" not in "".join(re.findall("<td[^>]*>([^<]*)", page))


def test_figures_show_one_number_its_bounds_open_and_codes_explain_themselves() -> None:
    held = read_tables(tables(rolling_bounce("a"), rolling_bounce("b")))
    found = examine_all(held)
    low = sum(float(sum(e.history.rebalances.downtime_lower_s)) for e in found)
    assert low > 0
    fleets = (Doctor(tables=held, groups=some).fleet() for some in (None, ["a"]))
    both, one = (str(_fleet_figures(held, fleet)) for fleet in fleets)
    for text, most in ((both, "81.6 to 151"), (one, "40.8 to 75.6")):
        assert "<dd>up to 6.3 s<small>a partition" in text
        assert re.search(rf"<details class=\"place\">.*for {most} partition-seconds", text), text
    links = [code_link(code) for code in found[0].verdict.codes]
    assert 'title="deploy churn: A rolling restart' in "".join(links)


def test_a_finding_says_why_it_matters_and_what_helps_where_it_stands() -> None:
    page = render(read_tables(tables(rolling_bounce("a"))), "t")
    findings = examine_all(read_tables(tables(rolling_bounce("a"))))[0].findings
    assert findings
    for finding in findings:
        rule = next(rule for rule in all_rules() if rule.code == finding.code)
        for text in (rule.what, rule.why, rule.mend):
            assert page.count(escape(text)) == 1, (finding.code, text)


def test_generations_in_a_row_are_printed_as_the_terminal_prints_them() -> None:
    evidence = Evidence(generations=few([1, 2, 3, 7, 8]), from_ms=0, to_ms=1)
    assert generations_of(evidence) == "generations 1-3 7 8"
    assert generations_of(Evidence(generations=few([4]))) == "generation 4"
    assert generations_of(Evidence()) == ""
    page = render(read_tables(tables(rolling_bounce("a"))), "t")
    findings = examine_all(read_tables(tables(rolling_bounce("a"))))[0].findings
    assert any("-" in generations_of(f.evidence) for f in findings)
    assert all(generations_of(f.evidence) in page for f in findings)


def test_a_row_of_the_fleet_leads_to_its_group_and_to_its_codes() -> None:
    evil = "a b&c#<"
    held = read_tables(tables(rolling_bounce(evil), rolling_bounce("b")))
    page = render(held, "t")
    low = sum(float(sum(e.history.rebalances.downtime_lower_s)) for e in examine_all(held)[:1])
    assert low > 0
    places = set(re.findall(r' id="([^"]*)"', page))
    leads = re.findall(r'<a [^>]*href="#([^"]*)"', page)
    assert {"g=a%20b%26c%23%3C", "g=b", "HF102"} <= set(leads) <= places
    assert re.search(r'data-v="[\d.]+" ?[^>]*>[\d.]+ to [\d.]+<', page)


def test_idle_traffic_is_shown_beside_downtime() -> None:
    script = rolling_bounce("a")
    for row in script.rows["rebalances"]:
        share = 0.25
        row |= {f"idle_{b}_seconds": share * row[f"gap_{b}_seconds"] for b in ("lower", "upper")}
    whole, part = (
        examine_all(read_tables(tables(one)))[0].history for one in (rolling_bounce("a"), script)
    )
    assert part.downtime_s == pytest.approx(0.75 * whole.downtime_s) and whole.downtime_s > 0
    assert "more in which no record waited" in render(read_tables(tables(script)), "t")
    assert "no record waited are" not in render(read_tables(tables(rolling_bounce("a"))), "t")
    assert re.search(r"\d \([\d.]+( to [\d.]+)? idle\)", render(read_tables(tables(script)), "t"))


def test_long_tables_show_the_worst_partitions_and_the_latest_rebalances() -> None:
    script = rolling_bounce("a", {"t": 150}, 2)
    for i in range(120):
        script.settle(500 + 10 * i, sorted(set(script.owners.values())), dict(script.owners))
    script.rows["rebalances"][3]["gap_upper_seconds"] = 9_999.0
    script.lag({tp: i for i, tp in enumerate(sorted(script.owners))})
    page = render(read_tables(tables(script)), "t")

    def rows(name: str) -> list[str]:
        body = page.split(f"<caption>{name}</caption>")[1].split("</table>")[0]
        return re.findall(r"<tr>(<td.*?)(?=<tr>|</tbody>)", body)

    worst, latest = rows("Partitions of a"), rows("The latest rebalances")
    assert len(worst) == len(latest) == 100
    assert "t-149<" in worst[0] and ">149<" in worst[0] and ">All 150<" in page
    times = [re.findall(r"2025-[\d :.-]+", row)[0] for row in latest]
    assert times == sorted(times, reverse=True)
    (costliest, *_), n = rows("The costliest rebalances"), "The 20 costliest</summary>"
    assert "at most 9,999" in costliest or "to 9,999" in costliest
    assert page.index(n) < page.index("The latest rebalances")


def test_what_follows_from_a_finding_is_folded_under_it() -> None:
    page = render(read_tables(tables(rolling_bounce())), "t")
    findings = page.split("<h3>Findings</h3>")[1].split("</section>")[0]
    folded = findings.split('class="effects"')
    assert re.search(r"It causes HF\d+ [a-z -]+", folded[1])
    codes = re.findall(r'<div class="finding"><p><span[^>]*>(HF\d+)<', folded[0])
    assert len(codes) == 1, "the cause alone stands open before its effects"


def test_words_between_backticks_are_code_and_everything_is_escaped() -> None:
    shown = codes_section(RULES)
    assert shown is not None and "`" not in shown
    assert "<code>upgrade-check</code>" in shown
    assert prose("a `b<` c") == "a <code>b&lt;</code> c"
