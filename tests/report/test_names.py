"""Names from strangers: nothing they hold may act."""

import html
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.report.markup import Markup, escape, name_of, tag
from holdfast.report.names import shorten, spreadsheet_text, visible

ANY = st.text(st.characters(codec=None))


@given(ANY)
def test_visible_text_holds_nothing_that_acts_and_is_utf8(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f]", shown)


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20))
def test_visible_text_of_a_decent_name_is_the_name(text: str) -> None:
    decent = "".join(c for c in text if c.isprintable())
    assert visible(decent) == decent


@given(ANY, st.integers(4, 60))
def test_shortened_text_keeps_to_its_limit(text: str, limit: int) -> None:
    assert len(shorten(text, limit)) <= max(limit, 1)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(ANY)
def test_a_name_makes_no_tag_and_no_attribute(name: str) -> None:
    reader = _Reader()
    reader.feed(tag("td", name, title=name, data_v=name))
    assert reader.tags == [("td", [("title", visible(name)), ("data-v", visible(name))])]
    assert reader.text == visible(name)


@given(ANY)
def test_a_long_name_is_shown_short_with_the_whole_in_its_title(name: str) -> None:
    reader = _Reader()
    reader.feed(name_of(name * 9, 10))
    assert [t for t, _ in reader.tags] == ["bdi"]


def test_markup_passes_and_text_does_not() -> None:
    assert escape(Markup("<b>")) == "<b>"
    assert html.unescape(escape("<b>")) == "<b>" != escape("<b>")


@pytest.mark.parametrize("attribute", ["onclick", "style"])
def test_attributes_that_the_policy_refuses_are_never_written(attribute: str) -> None:
    with pytest.raises(AssertionError):
        tag("p", **{attribute: "x"})


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "-2", "@SUM(A1)", "\t=1", " =1", "|x", "%0A"])
def test_a_formula_becomes_text(name: str) -> None:
    assert spreadsheet_text(name) == "'" + name


@pytest.mark.parametrize("name", ["orders", "a=b", "", " ", "1"])
def test_a_plain_cell_stays(name: str) -> None:
    assert spreadsheet_text(name) == name
