"""``holdfast serve -b`` on a real broker, in a real browser: an open page shows what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.live.crew import ConsumerThread, Topic, fresh
from tests.live.polled import StockMember
from tests.live.waiting import until
from tests.report.browser import browser

if TYPE_CHECKING:
    from tests.live.cut import Cut
    from tests.live.run_broker import RunBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.browser]

PATIENCE_S = 300.0


@pytest.fixture
def chromium() -> Iterator[Any]:
    """A browser of this test: while one is open, nothing else can run an event loop."""
    with browser() as started:
        yield started


@contextmanager
def members(bootstrap: str, topic: str, group: str) -> Iterator[Callable[[str], None]]:
    """A function that lets a member join; all leave at the end."""
    with ExitStack() as leaving:

        def join(client_id: str) -> None:
            hand = ConsumerThread(bootstrap, group, [topic], client_id=client_id)
            leaving.callback(hand.start().stop)

        yield join


@contextmanager
def served(bootstrap: str, group: str, state: Path) -> Iterator[str]:
    """Address of ``holdfast serve -b`` with a state directory of its own."""
    command = [sys.executable, "-m", "holdfast", "serve", "-b", bootstrap, "--group", group]
    more = ["--listen", "127.0.0.1:0", "--every", "1s", "--timeout", "5s"]
    with subprocess.Popen(
        ["env", f"XDG_STATE_HOME={state}", *command, *more], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            # A cluster where nothing was ever committed is told first: its topic is not there yet.
            lines = (re.findall(r"(http://\S+)/ until", line) for line in process.stderr)
            yield next(found[0] for found in lines if found)
        finally:
            process.terminate()
            process.stderr.read()
    assert process.returncode == 0


def test_an_open_page_shows_a_rebalance_and_a_cluster_that_is_away_without_a_reload(
    broker: RunBroker, cut: Cut, chromium: Any, tmp_path: Path
) -> None:
    topic, group = Topic(broker.bootstrap, 2), fresh("g")
    with (
        members(broker.bootstrap, topic.name, group) as join,
        served(broker.bootstrap_of("CUT"), group, tmp_path) as address,
    ):
        context = chromium.new_context()
        page, said = context.new_page(), list[str]()
        page.on("pageerror", lambda error: said.append(str(error)))

        def shows(text: str, where: str, what: str) -> None:
            until(lambda: text in page.locator(where).inner_text(), what, PATIENCE_S)

        page.goto(address)
        assert page.locator("#live-updater").inner_text() + page.locator("#groups").inner_text()
        page.evaluate("globalThis.opened = 'once'")
        join("one")
        until(lambda: page.get_by_role("link", name=group).count(), "the group's row", PATIENCE_S)
        assert page.evaluate("globalThis.opened") == "once"
        (folder,) = (tmp_path / "holdfast").iterdir()
        assert folder.name == "holdfastLocalClusterId"

        page.get_by_role("link", name=group).click()
        shows("Members now\n1", "#figures", "one member")
        page.locator("#intervals-box > summary").click()
        page.evaluate("globalThis.opened = 'once'")
        join("two")
        shows("Members now\n2", "#figures", "two members")
        shows("two", "#legend", "the colour of the newcomer")
        shows("two", "#intervals", "the newcomer's interval in the open table")
        assert page.evaluate("globalThis.opened") == "once"

        cut.reset()
        try:
            shows("nothing new since 2", "#live-updater", "a cluster that is away")
            assert "Members now\n2" in page.locator("#figures").inner_text()
        finally:
            cut.mend()
        until(lambda: not page.locator("#live-updater").inner_text(), "all is well", PATIENCE_S)
        assert page.evaluate("globalThis.opened") == "once"
        assert said == []
        context.close()


@pytest.mark.every
def test_an_open_page_says_for_how_long_a_group_rebalances_and_whom_it_waits_for(
    broker: RunBroker, chromium: Any, tmp_path: Path
) -> None:
    """Nothing is written meanwhile: the coordinators are asked beside the batches."""
    topic, group = Topic(broker.bootstrap, 4, 5), fresh("g")
    with ExitStack() as stack:

        def member(name: str) -> StockMember:
            return stack.enter_context(StockMember(broker.bootstrap, group, topic.name, name))

        slow = member("slow")
        address = stack.enter_context(served(broker.bootstrap, group, tmp_path))
        context = chromium.new_context()
        page, said = context.new_page(), list[str]()
        page.on("pageerror", lambda error: said.append(str(error)))

        def shows(text: str, where: str, what: str) -> None:
            until(lambda: text in page.locator(where).inner_text(), what, PATIENCE_S)

        def first_words() -> str:
            return page.locator(".first").inner_text()

        page.goto(address)
        until(lambda: page.get_by_role("link", name=group).count(), "the group's row", PATIENCE_S)
        shows("Stable", "#groups tbody", "a group that is calm")
        page.evaluate("globalThis.opened = 'once'")
        slow.hold()
        topic.produce(5)
        member("new")
        shows("rebalancing for ", "#groups tbody", "a rebalance in the list")
        shows("HF128", "#fleet", "what is wrong")
        until(lambda: f"{group}: rebalancing for " in first_words(), first_words, PATIENCE_S)
        before = first_words()
        until(lambda: first_words() != before, "seconds that grow", PATIENCE_S)
        assert page.evaluate("globalThis.opened") == "once"

        page.get_by_role("link", name=group).first.click()
        section = "main"
        shows("waited for", section, "who is waited for")
        assert ", waiting for member slow on host " in page.locator("p.now").inner_text()
        assert f"waits for slow on {host_of(page)} to join again" in (
            page.locator(section).inner_text()
        )
        slow.release()
        until(
            lambda: page.locator("p.now strong").first.inner_text() == "Stable",
            "the end of the rebalance",
            PATIENCE_S,
        )
        assert "HF128" not in page.locator(section).inner_text()
        assert said == []
        context.close()


def host_of(page: Any) -> str:
    """The host of the first member of the page's table."""
    members = page.get_by_role("table", name="Members of")
    return str(members.locator("tbody tr").first.locator("td").nth(1).inner_text())
