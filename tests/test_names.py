"""Names from strangers: nothing they hold may act."""

import html
import json
import re
import shlex
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import playwright
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.report.fleet import examine_all, rolling_bounce, tables
from tests.suites import further

from holdfast.cli.output import csv_cell
from holdfast.core.names import (
    EMPTY,
    shell_word,
    shorten,
    shown_name,
    spreadsheet_text,
    visible,
    visible_json,
)
from holdfast.fleet.report.drawing.markup import Markup, asset, escape, name_of, tag
from holdfast.fleet.report.drawing.writing import render
from holdfast.fleet.report.metrics import METRICS, exposition
from holdfast.fleet.tables.reading import read_tables

ANY = st.text(st.characters(codec=None))
HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
FILLERS = "\u034f\u115f\u1160\u180e\u3164\uffa0\u17b4\u17b5\u2800"
SELECTORS = {*range(0xFE00, 0xFE10), *range(0x180B, 0x1810), *range(0xE0100, 0xE01F0)}


def hides(character: str) -> bool:
    """Whether nobody can see a character, told from Unicode's own categories."""
    return (
        unicodedata.category(character) in HIDDEN_CATEGORIES
        or (unicodedata.category(character) == "Zs" and character != " ")
        or character in FILLERS + "\U00016fe4\U0001d159"
        or ord(character) in SELECTORS
    )


def looks_like_another(character: str) -> bool:
    """Whether a name of this character alone looks like another name."""
    return character == " " or not unicodedata.is_normalized("NFC", character)


def read_back(shown: str) -> str:
    """The name behind visible text, by the documented escapes alone."""
    code = r"\\(\\|u[0-9a-f]{4}|U[0-9a-f]{8})"
    return re.sub(code, lambda m: "\\" if m[1] == "\\" else chr(int(m[1][1:], 16)), shown)


@pytest.mark.every
def test_every_character_of_unicode_is_shown_or_escaped_and_none_looks_like_another() -> None:
    shown = {chr(code): visible(chr(code)) for code in range(sys.maxunicode + 1)}
    wrong = [
        f"{ord(c):04x}"
        for c, text in shown.items()
        if (text != c) != (hides(c) or looks_like_another(c) or c == "\\") or any(map(hides, text))
    ]
    assert wrong == []
    assert len(set(shown.values())) == len(shown)
    assert all(read_back(text) == c for c, text in shown.items())


@given(ANY, ANY)
def test_two_names_are_never_one_text(one: str, other: str) -> None:
    assert read_back(visible(one)) == one
    assert (visible(one) == visible(other)) == (one == other)
    cells = (spreadsheet_text(visible(one)), spreadsheet_text(visible(other)))
    assert (cells[0] == cells[1]) == (one == other)


@given(ANY)
def test_the_empty_name_is_seen_and_no_other_name_is_shown_like_it(name: str) -> None:
    assert shown_name("") == EMPTY and str(name_of("")) == f'<bdi class="name">{EMPTY}</bdi>'
    assert (shown_name(name) == EMPTY) == (name == "")
    assert shown_name(name) == (visible(name) or EMPTY)


LOOKALIKES = [
    "a\u200bb",
    "a\\u200bb",
    "a\\\\u200bb",
    "a\u3164b",
    "a\U000e0041b",
    "a\\",
    "=1",
    "'=1",
]


def test_names_that_only_look_alike_are_different_labels_cells_and_tags() -> None:
    shown = {escape(name) for name in LOOKALIKES}
    assert len(shown) == len(LOOKALIKES) == len({csv_cell(name) for name in LOOKALIKES})
    scripts = [rolling_bounce(name, {name: 2}, 2).lag({(name, 0): 5}) for name in LOOKALIKES]
    found = read_tables(tables(*scripts))
    text = exposition(found, examine_all(found))
    series = [line.rpartition(" ")[0] for line in text.splitlines() if line[0] != "#"]
    assert len(series) == len(set(series))


@pytest.mark.parametrize("size", further([0x3100, sys.maxunicode + 1]))
def test_the_page_shows_names_as_python_does(size: int) -> None:
    words = asset("words.js").partition("const shorten")[0]
    every = f"Array.from({{length: {size}}}, (_, c) => visible(String.fromCodePoint(c)))"
    # One write, which fails aloud. Where the reader is slow, lines of console.log wait in Node; a
    # write of too many of them at once is refused (EINVAL), and console.log drops them in silence.
    told = f"process.stdout.write(JSON.stringify({every}))"
    node = Path(playwright.__file__).with_name("driver") / "node"
    done = subprocess.run([node, "-e", f"{words}\n{told}"], capture_output=True, check=True)
    shown = json.loads(done.stdout)
    assert len(shown) == size
    names = ["café", "cafe\u0301", "\u212a \u1e69", " a ", "  ", "s\u0323\u0307\\\u200b", "ẛ\u0323"]
    told = f"process.stdout.write(JSON.stringify({json.dumps(names)}.map(visible)))"
    some = subprocess.run([node, "-e", f"{words}\n{told}"], capture_output=True, check=True)
    assert json.loads(some.stdout) == [*map(visible, names)]
    # A browser knows newer characters than this Python does: those it may show.
    assert {
        code
        for code, text in enumerate(shown)
        if text != visible(chr(code)) and unicodedata.category(chr(code)) != "Cn"
    } == set()


@pytest.mark.parametrize("name", ["DOMAIN\\etl", "it's", "a b", "a\u200bb'c", "\U000e0041", "$x"])
def test_a_suggested_command_names_the_very_group(name: str) -> None:
    command = f"printf %s {shell_word(name)}"
    said = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert said.stdout.decode() == name
    assert not any(map(hides, command))


@given(ANY)
def test_visible_text_holds_nothing_that_acts_and_is_utf8(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f]", shown)


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20))
def test_visible_text_of_a_decent_name_is_the_name(text: str) -> None:
    decent = "".join(c for c in text if not hides(c) and c != "\\")
    assert visible(decent) == decent


@given(ANY, st.integers(4, 60))
def test_shortened_text_keeps_to_its_limit(text: str, limit: int) -> None:
    assert len(shorten(text, limit)) <= max(limit, 1)


@given(st.recursive(ANY, lambda inner: st.lists(inner) | st.dictionaries(ANY, inner)))
def test_visible_json_reads_back_as_it_was_and_is_utf8(value: object) -> None:
    shown = visible_json(json.dumps(value, ensure_ascii=False, indent=1))
    shown.encode("utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert json.loads(shown) == value


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


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("x;=cmd|'/C calc'!A0", "x;'=cmd|''/C calc'!A0"),
        ("x; +1;2", "x;' +1;2"),
        ("x,@SUM(A1)", "x,'@SUM(A1)"),
        ("'quoted", "''quoted"),
        ("\uff1d1+1", "'\uff1d1+1"),
    ],
)
def test_a_formula_after_a_separator_of_some_locale_becomes_text(name: str, cell: str) -> None:
    assert csv_cell(name) == spreadsheet_text(name) == cell


@pytest.mark.parametrize("name", ["orders", "a=b", "", " ", "1"])
def test_a_plain_cell_stays(name: str) -> None:
    assert spreadsheet_text(name) == name


EVIL = "</script><script>alert(1)</script>\"' onload=alert(1)\n\x1b[2J\x9b\u202e=1+1"
ACTS = r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]"


def strangers() -> dict[str, list[dict[str, Any]]]:
    """A fleet in which everything that a stranger may name is named like that."""
    script = rolling_bounce(EVIL, {EVIL: 3}, 2)
    script.lag({(EVIL, 0): 5, (EVIL, 1): 7}, client_id=EVIL, client_host=EVIL)
    for row in script.rows["members"]:
        row |= {"client_id": EVIL, "client_host": EVIL, "group_instance_id": EVIL, "rack": EVIL}
    for row in script.rows["generations"]:
        row |= {"protocol": EVIL, "protocol_type": EVIL}
    for row in script.rows["rebalances"]:
        row |= {"cause": EVIL, "stated_reason": EVIL}
    return tables(script.anomaly("double_owner", EVIL, "b", topic=EVIL, partition=1, detail=EVIL))


def test_a_page_full_of_strangers_has_the_tags_of_any_other() -> None:
    policies = [{"group": EVIL, "policy": EVIL, "assignor": EVIL, "note": EVIL, "moved": 3}]
    page = render(read_tables(strangers()), EVIL, policies=policies)
    reader = _Reader()
    reader.feed(page)
    scripts = [dict(attributes) for name, attributes in reader.tags if name == "script"]
    assert [s for s in scripts if s.get("type") != "application/octet-stream"] == [{}]
    attributes = {key for _, given in reader.tags for key, _ in given}
    assert not {key for key in attributes if key.startswith("on") or key == "style"}
    assert not re.search(ACTS, page)
    assert page.count("alert(1)") > 10


def test_the_doctor_and_the_exporter_say_strangers_names_as_text() -> None:
    found = read_tables(strangers())
    examined = examine_all(found)
    for finding in (f for e in examined for f in e.findings):
        said = [finding.text, finding.command, *finding.evidence.members.shown]
        assert not any(
            re.search(ACTS, word) for word in (*said, *finding.evidence.partitions.shown)
        )
        assert shlex.split(finding.command)
    samples = [
        s for f in text_string_to_metric_families(exposition(found, examined)) for s in f.samples
    ]
    assert {s.name for s in samples} <= METRICS.keys()
    assert {s.labels["group"] for s in samples if "group" in s.labels} == {visible(EVIL)}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("café", "café"),
        ("cafe\u0301", "cafe\\u0301"),  # looks like the one above
        ("\u212a", "\\u212a"),  # the Kelvin sign
        (" ", "\\u0020"),
        ("a ", "a\\u0020"),
        ("  a b", "\\u0020\\u0020a b"),
        ("é ", "é\\u0020"),
        ("a\\", "a\\\\"),
    ],
)
def test_names_that_look_alike_are_shown_apart(name, shown):
    assert visible(name) == shown


@given(st.text("a é\u0301e\u0323ệ\u212aK\\u", max_size=6))
def test_no_two_names_are_shown_alike_in_any_form_of_unicode(name):
    others = {unicodedata.normalize(form, name) for form in ("NFC", "NFD")} | {name.strip()}
    shown = {unicodedata.normalize("NFC", visible(one)).strip() for one in {*others, name}}
    assert len(shown) == len({*others, name})
