"""The page in a real browser: what it shows, that it asks for nothing, what strangers may do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from bench import report as bench
from tests.report.browser import Opened
from tests.report.fleet import START_MS, Script, deal, rolling_bounce, tables

from holdfast.fleet.report.drawing.payload import pack_text
from holdfast.fleet.report.drawing.writing import write

pytestmark = pytest.mark.browser

END_MS = START_MS + 600_000
ROW = 26  # height of a row of a small group, pixels
AXIS = 34
EVIL = (
    "</script><script>alert(1)</script>",
    "<img src=http://evil.invalid/x onerror=alert(2)>",
    "\"'><svg/onload=alert(3)>",
    "javascript:alert(4)",
    "a\u202egnp.exe\x1b[31m\x00\n",
    "{{7*7}}${7*7}<!--",
    "]]>&lt;b&gt;&amp;",
    "名前😀",
    "x" * 3000,
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "report.html"
    return write(tables(rolling_bounce()), out, title="Bounce", last_ms=END_MS)


@pytest.fixture(scope="module")
def tab(chromium: Any, report: Path) -> Any:
    """One tab for all: a context of its own takes the browser twice the time of a page."""
    page = Opened(chromium, report)
    yield page
    page.close()


@pytest.fixture
def opened(tab: Any, report: Path) -> Any:
    """The report, as a tab shows it that was opened just now."""
    tab.show(report)
    return tab


@pytest.fixture
def opens(chromium: Any, tmp_path: Path) -> Any:
    """Writes a report of a fleet, and shows it in a context of its own that ends with the test."""
    opened: list[Opened] = []

    def open_report(fleet: Any, fragment: str = "", *, policies: Any = None, **context: Any) -> Any:
        more = {} if policies is None else {"policies": policies}
        out = write(fleet, tmp_path / "report.html", title=EVIL[0], last_ms=END_MS, **more)
        opened.append(Opened(chromium, out, fragment, **context))
        return opened[-1]

    yield open_report
    for one in opened:
        one.close()


def x_at(page: Any, second: float) -> float:
    """Where a second of the 600 s window is, in pixels of the canvas."""
    left, width = gutter(page)
    return left + second / 600 * (width - left)


def gutter(page: Any) -> tuple[float, float]:
    """Left edge of the plot: the first coloured pixel of the first row; and the width."""
    found = page.page.evaluate(
        """() => { const c = document.getElementById('canvas'), k = c.width / c.clientWidth;
        const d = c.getContext('2d').getImageData(0, 44 * k, c.width, 1).data;
        let x = 0; while (!(d[4 * x] === 0 && d[4 * x + 1] === 114)) x++;
        return [x / k, c.clientWidth - 1]; }"""
    )
    return found[0], found[1]


def test_opens_from_a_file_asks_for_nothing_and_says_nothing(opened: Any, report: Path) -> None:
    opened.page.click("#zoom-in")
    opened.page.click("#moment-box summary")
    opened.page.click("#intervals-box summary")
    assert opened.requested == [report.as_uri()]
    assert opened.said == []


def test_the_policy_names_two_scripts_and_a_style_by_hash(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert re.search(r"script-src 'sha256-\S+' 'sha256-\S+'; style-src 'sha256-\S+'; base", text)
    assert "unsafe" not in text
    assert "http:" not in text
    assert "https:" not in text


def test_another_script_instead_of_the_packed_one_does_not_run(
    chromium: Any, report: Path, tmp_path: Path
) -> None:
    foreign = pack_text("globalThis.holdfast.runs = true; document.title = 'ran';")
    text = re.sub(r'(id="app">)[^<]*', lambda m: m[1] + foreign, report.read_text("utf-8"))
    (tmp_path / "r.html").write_text(text, encoding="utf-8")
    context = chromium.new_context()
    page = context.new_page()
    page.goto((tmp_path / "r.html").as_uri())
    page.locator("#readout", has_text="This picture could not be drawn").wait_for()
    assert page.title() == "Bounce, 2025-11-21 08:00:00 to 2025-11-21 08:10:00 UTC"
    assert page.get_by_role("table", name="The latest rebalances").is_visible()
    context.close()


def test_hover_shows_owner_member_and_generation_at_a_known_pixel(opened: Any) -> None:
    text = opened.point(x_at(opened, 300), AXIS + ROW * 0.5).split("\n")
    assert text[0] == "clicks-0"
    assert text[1].startswith("2025-11-21 08:0")
    assert text[2:] == [
        "owner worker-0 (worker-0-000b) on /10.0.0.7",
        "for 5 min 45 s from 08:01:15.000",
        "generation 13, 4 members, cooperative follow up",
    ]


def test_hover_over_a_gap_says_no_owner_at_most_and_over_hatching_says_no_owner(
    opened: Any,
) -> None:
    assert "no owner, at most 3.20 s from 08:00:56.800 (inferred)" in opened.point(
        x_at(opened, 58), AXIS + 5
    )
    assert "no owner for 30.0 s" in opened.point(x_at(opened, 435), AXIS + 5)


def test_colour_is_the_process_gap_is_paper_and_no_owner_is_hatched(opened: Any) -> None:
    y = AXIS + ROW * 2 + 12
    assert opened.colour(x_at(opened, 150), y) == (0, 158, 115)
    red, green, blue = opened.colour(x_at(opened, 178.5), y)
    assert min(red, green, blue) > 210, "a pale gap"
    assert green > red, "with a breath of its owner"
    x = x_at(opened, 425)
    hatch = {opened.colour(x + i, y) for i in range(12)}
    assert len(hatch) > 1
    assert (0, 158, 115) not in hatch


def test_the_same_process_has_the_same_colour_under_its_new_member_id(opened: Any) -> None:
    y = AXIS + ROW * 0.5 + 9
    assert opened.colour(x_at(opened, 30), y) == opened.colour(x_at(opened, 300), y)


def test_generations_are_vertical_lines(opened: Any) -> None:
    x, y = round(x_at(opened, 120)), AXIS + 4
    row = [sum(opened.colour(x + d, y)) for d in range(-3, 4)]
    assert min(row) < min(sum(opened.colour(x + d, y)) for d in range(8, 14))


def test_downtime_is_drawn_in_the_unit_of_the_table(opened: Any) -> None:
    """A bar for each rebalance: its words are the cell of the table, its solid part is known."""
    below = opened.page.locator("#canvas").bounding_box()["height"] - 3
    cells = opened.page.locator("section.group table.jumps tbody tr td").all_inner_texts()
    shown = set()
    for second in range(0, 600, 15):
        told = opened.point(x_at(opened, second + 0.5), below).split("\n")
        shown |= {line for line in told if line.startswith("downtime ")}
        assert told[0].startswith("2025-11-21 08:"), "it is no row of the picture"
    costs = {line.removeprefix("downtime ").removesuffix(" partition-seconds") for line in shown}
    assert len(costs) > 2 and costs - {"0"} <= set(cells)
    left, width = gutter(opened)
    bars = set()
    for y in (below, below - 12):
        row = [opened.colour(x, y) for x in range(round(left), round(width), 2)]
        reddish = [colour for colour in row if colour[0] > colour[1] + 20]
        assert 0 < len(reddish) < len(row) / 4
        bars |= set(reddish)
    assert len(bars) >= 2, "solid and pale"


def test_zoom_pan_and_show_all(opened: Any) -> None:
    axis, canvas = opened.page.locator("#readout"), opened.page.locator("#canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    opened.page.mouse.move(box["x"] + 600, box["y"] + 60)
    before = opened.point(600, 60)
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -400)
    opened.page.keyboard.up("Control")
    near = opened.point(640, 60)
    opened.page.click("#all")
    far = opened.point(640, 60)
    moment = [t.split("\n")[1][11:23] for t in (before, near, far)]
    assert moment[0] < moment[1] < moment[2], "zoomed in, 40 pixels are less time"
    opened.page.click("#zoom-in")
    opened.page.mouse.move(box["x"] + 700, box["y"] + 60)
    start = opened.point(700, 60)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
    opened.page.mouse.up()
    assert opened.point(500, 60).split("\n")[1][:21] == start.split("\n")[1][:21]
    assert axis.inner_text()


def test_a_link_leads_to_the_moment(chromium: Any, report: Path, opened: Any) -> None:
    x, y = x_at(opened, 250), AXIS + ROW * 7.5
    text = opened.point(x, y)
    opened.page.mouse.down()
    opened.page.mouse.up()
    fragment = opened.page.evaluate("location.hash")
    assert "p=orders-3" in fragment
    again = Opened(chromium, report, fragment)
    assert again.page.locator("#readout").inner_text().replace(" · ", "\n") == text
    assert "08:04:" in again.page.locator("#moment-when").inner_text()
    again.close()


@pytest.mark.parametrize(
    "fragment",
    ["#t=rubbish&w=-1&p=nobody", "#g=unknown", "#t=1999-01-01T00:00:00Z", "#%%%", "#w=1e999"],
)
def test_a_broken_link_shows_the_whole(tab: Any, report: Path, fragment: str) -> None:
    tab.show(report, fragment)
    assert tab.said == []
    assert tab.point(x_at(tab, 30), AXIS + 5).startswith("clicks-0")


def test_search_finds_partitions_and_members(opened: Any) -> None:
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("orders-5")
    assert opened.page.locator("#found").inner_text() == "1 partitions"
    assert opened.page.locator("#readout").inner_text().startswith("orders-5")
    opened.page.fill("#find", "worker-2")
    assert opened.page.locator("#found").inner_text() == "member worker-2"
    assert opened.page.locator("#legend [aria-pressed=true]").inner_text() == "worker-2"
    opened.page.fill("#find", "zzz")
    assert opened.page.locator("#found").inner_text() == "nothing found"


def test_the_keyboard_alone_reads_the_picture(opened: Any) -> None:
    opened.page.focus("#scroller")
    readout = opened.page.locator("#readout")
    for key in ("Home", "ArrowDown"):
        opened.page.keyboard.press(key)
    assert readout.inner_text().startswith("clicks-1 · 2025-11-21 08:00:00")
    opened.page.keyboard.press("n")
    assert "generation 2, 3 members" in readout.inner_text()
    opened.page.keyboard.press("+")
    opened.page.keyboard.press("Enter")
    assert "p=clicks-1" in opened.page.evaluate("location.hash")
    opened.page.keyboard.press("End")
    assert "generation 15" in readout.inner_text()


def test_a_table_stands_behind_the_picture(opened: Any) -> None:
    opened.page.click("#intervals-box summary")
    opened.until("document.querySelector('#intervals tbody tr') !== null")
    cells = opened.page.locator("#intervals tbody tr").first.locator("td").all_inner_texts()
    assert cells == [
        "clicks-0",
        "worker-0",
        "worker-0-000a",
        "2025-11-21 08:00:00.000",
        "2025-11-21 08:00:56.800",
        "56.800",
    ]
    opened.page.click("#intervals >> text=Next")
    assert "51 to" in opened.page.locator("#intervals .place").inner_text()


def test_rebalance_table_sorts_and_leads_to_the_moment(opened: Any) -> None:
    latest = opened.page.get_by_role("table", name="The latest rebalances")
    times = latest.locator("tbody td:first-child").all_inner_texts()
    assert times == sorted(times, reverse=True) and len(times) == 15
    latest.get_by_role("button", name="Moved").click()
    first = latest.locator("tbody tr").first
    assert first.locator("td").nth(8).inner_text() == "3"
    first.locator(".jump").click()
    assert "generation" in opened.page.locator("#readout").inner_text()
    assert opened.page.evaluate("location.hash").startswith("#g=etl&t=2025")


def test_figures_and_tables_are_there_without_javascript(chromium: Any, report: Path) -> None:
    page = Opened(chromium, report, java_script_enabled=False)
    text = page.page.inner_text("body")
    for words in ("Partitions moved", "up to 6.3 s", "Rebalances"):
        assert words in text
    assert "The picture needs JavaScript" in text
    for name, rows in (("Members", 4), ("Partitions", 12), ("The latest rebalances", 15)):
        table = page.page.get_by_role("table", name=name)
        assert table.is_visible() and table.locator("tbody tr").count() == rows
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(chromium: Any, report: Path, scheme: str) -> None:
    page = Opened(chromium, report, color_scheme=scheme)
    ratios = page.page.evaluate(
        """() => { const s = getComputedStyle(document.documentElement);
        const lum = (h) => { const n = parseInt(h.trim().slice(1), 16);
          const f = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
          return 0.2126 * f(n >> 16) + 0.7152 * f((n >> 8) & 255) + 0.0722 * f(n & 255); };
        const v = (n) => lum(s.getPropertyValue('--' + n));
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        return ['ink', 'muted', 'accent', 'kelp', 'bad', 'warn'].flatMap((n) =>
          ['paper', 'surface'].map((p) => ratio(v(n), v(p)))); }"""
    )
    assert min(ratios) > 4.5
    page.close()


def test_links_are_read_in_both_schemes(opens: Any) -> None:
    """A browser's own blue is all but unreadable on the dark page."""
    two = tables(rolling_bounce("a"), rolling_bounce("b"))
    for scheme in ("light", "dark"):
        page = opens(two, color_scheme=scheme)
        colours, kelp = page.page.evaluate(
            """() => { const probe = document.createElement('b');
            probe.style.color = 'var(--kelp)'; document.body.append(probe);
            const of = (e) => getComputedStyle(e).color;
            const links = [...document.querySelectorAll('a:not(.lozenge)')];
            return [[...new Set(links.map(of))], of(probe)]; }"""
        )
        assert colours == [kelp]


def test_theme_button_changes_the_picture_too(opened: Any) -> None:
    before = opened.colour(4, 40)
    opened.page.click("#theme")
    assert opened.colour(4, 40) != before


def test_print_shows_every_group_and_no_controls(opened: Any) -> None:
    opened.page.emulate_media(media="print")
    assert opened.page.locator("#theme").is_hidden()
    assert opened.page.locator("section.group").first.is_visible()


def evil_fleet() -> dict[str, Any]:
    scripts = []
    for i, name in enumerate(EVIL):
        members = [
            (f"{name}-{k}", {"client_id": name + str(k), "client_host": name}) for k in range(2)
        ]
        owners = deal({name: 2}, [m for m, _ in members])
        script = Script(name + f"-{i}", {name: 2})
        script.settle(0, members, owners, cause=name)
        script.settle(60, members[:1], deal({name: 2}, [members[0][0]]), gap=(1, 2), cause=name)
        scripts.append(script)
    return tables(*scripts)


def test_names_of_strangers_stay_names(opens: Any) -> None:
    page = opens(evil_fleet())
    for i in range(len(EVIL)):
        page.page.select_option("#group", str(i))
        page.until(f"!document.querySelector('section.group[data-group=\"{i}\"]').hidden")
        assert page.point(700, AXIS + 10) != ""
        page.page.fill("#find", "alert")
        page.page.fill("#find", "")
        page.page.click("#link")
    page.page.click("#moment-box summary")
    page.page.click("#intervals-box summary")
    assert page.requested == [page.page.url.partition("#")[0]]
    assert page.said == []
    scripts = "document.querySelectorAll('script:not([type])').length"
    assert page.page.evaluate(scripts) == 2  # the loader, and what it unpacked
    assert (
        page.page.evaluate(
            "document.querySelectorAll('img, svg:not(.spark, .chart svg), iframe, object').length"
        )
        == 0
    )
    shown = json.dumps(page.page.inner_text("body"))
    assert "\\u202e" not in shown.replace("\\\\u202e", "")


GROUP_B = ["Group b", "Lag and rebalances of b", "Members, partitions and rebalances of b"]


def test_two_groups_are_shown_one_at_a_time(opens: Any) -> None:
    fleet = tables(rolling_bounce("a"), rolling_bounce("b", {"t": 3}, 3))
    page = opens(fleet, "#g=b")
    assert page.page.locator("section.group:visible h2").all_inner_texts() == GROUP_B
    assert page.point(600, AXIS + 5).startswith("t-0")
    page.page.select_option("#group", label="a")
    page.until("location.hash.includes('g=a')")
    assert page.point(600, AXIS + 5).startswith("clicks-0")
    page.page.get_by_role("link", name="b", exact=True).click()
    page.page.locator("section.group:visible h2", has_text="Group b").wait_for()
    page.page.locator("a.lozenge").first.click()
    assert page.page.locator("section.group:visible h2").all_inner_texts() == GROUP_B


def test_a_phone_shows_what_matters_in_three_columns(opens: Any) -> None:
    fleet = tables(rolling_bounce("a"), rolling_bounce("b"))
    page = opens(fleet, policies=POLICIES, viewport={"width": 390, "height": 844})
    shown = "table => [...table.tHead.rows[0].cells].filter(c => c.offsetWidth).length"
    narrow = page.page.locator("table.narrow:visible")
    assert narrow.count() == 4  # groups, policies, members, rebalances
    for i in range(narrow.count()):
        assert narrow.nth(i).evaluate(shown) == 3
        fits = "table => table.parentElement.scrollWidth <= table.parentElement.clientWidth"
        assert narrow.nth(i).evaluate(fits)
        assert narrow.nth(i).locator("tbody tr").first.locator("td:visible").count() == 3
    page.page.locator(".all-columns input:visible").first.check()
    assert narrow.first.evaluate(shown) == 7
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_report_without_generations_says_so(chromium: Any, tmp_path: Path) -> None:
    script = Script("g", {"a": 1}).lag({("a", 0): 5})
    out = write(tables(script), tmp_path / "none.html")
    text = out.read_text(encoding="utf-8")
    assert "nothing to draw" in text
    context = chromium.new_context()
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda m: said.append(m.text))
    page.goto(out.as_uri())
    assert said == []
    context.close()


POLICIES = [
    {
        "group": EVIL[0],
        "policy": policy,
        "assignor": "sticky",
        "delay_ms": 30_000,
        "rebalances": 8,
        "moved": moved,
        "revocations": revoked,
        "fidelity": 0.97,
    }
    for policy, moved, revoked in (("eager", 48, 96), ("deferred", 0, 12), ("unknown", 1, None))
]
POLICIES.append({"group": "zz", "policy": "eager"})


def test_policies_are_compared_in_the_order_of_the_replay_with_bars(opens: Any) -> None:
    page = opens(tables(rolling_bounce()), policies=POLICIES)
    rows = page.page.locator("#policies tbody tr")
    assert [rows.nth(i).locator("td").nth(1).inner_text() for i in range(3)] == [
        "eager",
        "deferred",
        "unknown",
    ]
    assert rows.nth(0).locator("td").nth(0).inner_text() == EVIL[0]
    assert [rows.nth(i).locator(".meter .on").count() for i in range(2)] == [12, 2]
    assert rows.nth(0).locator("td").last.inner_text() == "97%"
    assert page.said == []


def test_one_groups_policies_need_no_column_of_groups(opens: Any) -> None:
    policies = [{**row, "group": "etl"} for row in POLICIES[:2]]
    wide = {"width": 1200, "height": 800}
    page = opens(tables(rolling_bounce()), policies=policies, viewport=wide)
    assert page.page.locator("#policies th").nth(0).inner_text() == "Policy"
    box = page.page.locator("#policies .wide")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_nothing_is_cut_off_in_print(opens: Any) -> None:
    a4 = {"width": 1030, "height": 700}  # landscape
    page = opens(tables(rolling_bounce(members=24)), policies=POLICIES, viewport=a4)
    page.page.emulate_media(media="print")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 1030


def test_lag_is_a_heat_map_with_tables_behind_it(opens: Any) -> None:
    script = rolling_bounce()
    script.lag({tp: [0, 5, 7000, None][i % 4] for i, tp in enumerate(sorted(script.owners))})
    page = opens(tables(script))
    canvas = page.page.locator("canvas.heat")
    canvas.scroll_into_view_if_needed()
    page.until("document.querySelector('canvas.heat').height > 30")
    assert canvas.evaluate("c => c.clientWidth === c.parentElement.clientWidth")
    canvas.focus()
    told = page.page.locator(".heat-told")
    for expected in ("lag 0", "lag 5", "lag 7,000", "lag unknown"):
        page.page.keyboard.press("ArrowRight")
        assert expected in told.inner_text()
    assert told.inner_text() == "clicks-3 · lag unknown · owner worker-3-003b"
    worst = page.page.get_by_role("table", name="Partitions of etl")
    cells = worst.locator("tbody tr").first.locator("td").all_inner_texts()
    assert cells == ["clicks-2", "worker-2", "1,000", "8,000", "7,000", "–"]
    page.page.fill(".find-partition", "orders-1")
    found = page.page.get_by_role("table", name="All partitions").locator("tbody tr")
    assert found.count() == 1 and not worst.is_visible()
    assert found.first.locator("td").all_inner_texts()[:2] == ["orders-1", "worker-1"]
    page.page.fill(".find-partition", "worker-2")
    assert found.count() == 3
    page.page.fill(".find-partition", "")
    assert worst.is_visible()
    assert "21,015 records behind in 6 of 12 partitions" in page.page.inner_text("main")
    assert page.said == []


def test_findings_stand_in_the_report_and_lead_to_their_moment(opened: Any) -> None:
    finding = opened.page.locator(".finding").first
    finding.scroll_into_view_if_needed()
    opened.until("document.querySelector('.finding').innerText !== ''")
    assert finding.inner_text().startswith("HF102 deploy churn (warn; inferred")
    finding.locator(".jump").click()
    assert "generation" in opened.page.locator("#readout").inner_text()


def test_a_hundred_thousand_intervals_take_less_than_half_a_second_to_draw(
    chromium: Any, tmp_path: Path
) -> None:
    """Processor time of the main thread, tables included: it hardly varies with load."""
    fleet = bench.fleet(1011, 99)
    out = write(fleet, tmp_path / "large.html", last_ms=bench.START_MS + bench.DAY_MS)
    page = Opened(chromium, out)
    assert page.cpu_ms() < 500
    assert page.point(700, AXIS + 10).startswith("orders-")
    page.page.click("#intervals-box summary")
    page.until("document.querySelector('#intervals .place') !== null")
    n_segments = int(
        page.page.locator("#intervals .place").inner_text().split()[-1].replace(",", "")
    )
    assert n_segments > 100_000
    page.close()
