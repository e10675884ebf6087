"""Pages for users are short, of the present, and lead to headings that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from markdown.extensions.toc import slugify
from tools.measured import kept

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
NOT_READ_THROUGH = ("Reference", "Maintainers")
"""Sections of the navigation that are no pages for users: lists of codes, keys, commands and words
that a reader looks one entry up in, most of them written by the code; runs; how it is made."""

MOST_WORDS, MOST_WORDS_OF_A_PAGE = 15_000, 1_800
BANNED = re.compile(r"\b(used\s+to|earlier\s+versions?|no\s+longer)\b", re.IGNORECASE)


def sections() -> dict[str, list[Path]]:
    """Pages by the section of the navigation; those that stand alone are under ""."""
    found: dict[str, list[Path]] = {"": []}
    name = ""
    for line in NAVIGATION.splitlines():
        if heading := re.fullmatch(r"  - ([^:]+):", line):
            name = heading[1]
            found[name] = []
        elif page := re.fullmatch(r"( +)- [^:]+: (\S+\.md)", line):
            found["" if page[1] == "  " else name].append(DOCS / page[2])
    return found


USER_PAGES = [
    page
    for name, pages in sections().items()
    if name not in NOT_READ_THROUGH
    for page in pages
    if page.exists()  # index.md is the README, which has a bound of its own
]
ALL_PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
if (ROOT / "CONTRIBUTING.md").exists():
    ALL_PAGES.append(ROOT / "CONTRIBUTING.md")


def prose(text: str) -> int:
    """Words of a page without its code blocks, its tables and its comments.

    A word is what stands between white space: a heading, a list and a link's address count.
    """
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return sum(len(line.split()) for line in text.splitlines() if not line.lstrip().startswith("|"))


def test_prose_is_counted_without_code_and_tables() -> None:
    assert prose("# A b\n\nc d\n\n```sh\ne f\n```\n| g | h |\n<!-- i -->\n- j\n") == 7


def test_pages_for_users_are_read_in_an_hour() -> None:
    words = {str(page): prose(page.read_text(encoding="utf-8")) for page in USER_PAGES}
    assert len(words) > 20
    assert {name: n for name, n in words.items() if n > MOST_WORDS_OF_A_PAGE} == {}
    assert sum(words.values()) <= MOST_WORDS


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: page.name)
def test_a_page_for_users_is_of_the_present(page: Path) -> None:
    assert BANNED.findall(page.read_text(encoding="utf-8")) == []


def anchors(text: str) -> set[str]:
    """What a link to a page may have after ``#``: its headings, as the site makes them."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        slug = slugify(re.sub(r"[`*]|\]\([^)]*\)", "", heading), "-")
        n = sum(1 for one in found if one == slug or re.fullmatch(rf"{re.escape(slug)}_\d+", one))
        found.add(f"{slug}_{n}" if n else slug)
    return found


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_every_link_names_a_heading_that_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for place, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", text):
        target = page.parent / place if place else page
        assert anchor in anchors(target.read_text(encoding="utf-8")), f"{place}#{anchor}"


def test_every_run_has_its_date_and_its_command() -> None:
    for page in sorted((DOCS / "measured").glob("*.md")):
        if page.name not in ("index.md", "designs.md"):  # the code writes that one anew
            first = page.read_text(encoding="utf-8").split("\n\n")[1]
            assert re.match(r"\*Measured 20\d\d-\d\d-\d\d\b.*\*", first), page.name
            assert page.name == "originals.md" or "Command" in first, page.name


BOUNCED, PER_MILLION = "all members bounced", "cpu_seconds_per_million"

FIGURES = [
    ("assignors.md", r"plans in ([\d.]+) ms", {"case": "W1"}, "holdfast_cpu_ms", 1),
    ("assignors.md", r"partitions in ([\d.]+) s", {"case": "W4"}, "holdfast_cpu_ms", 1000),
    ("assignors.md", r"costs ([\d.]+) s for", {"assignor": "lag-sticky"}, "min_cpu_ms", 1000),
    (
        "brokers.md",
        r"1 to (\d+) s without a read",
        {"step": BOUNCED},
        "longest_without_a_read_seconds",
        1,
    ),
    ("fleet.md", r"shown within ([\d.]+) s", {"page": "list"}, "first_paint_ms", 1000),
    *(
        ("install.md", rf"{extra}`? \|.*\| (\d+) MB", {"extra": extra}, "downloaded_mb", 1)
        for extra in ("none", "members", "fleet", "spark", "all")
    ),
    ("../README.md", r"downloads ([\d.]+) GB", {"set_up": "packages"}, "downloaded_mb", 1000),
    ("pipeline.md", r"takes ([\d.]+) cores all day", {"stage": "commits"}, PER_MILLION, 1),
]
"""A figure of a page for users; its line in ``bench/measured.jsonl``, the field of it, and how many
of the field's unit make one."""


def one_of(page: Path, pattern: str) -> str:
    """The one number on a page that a pattern finds."""
    (found,) = set(re.findall(pattern, page.read_text(encoding="utf-8")))
    return str(found).replace(",", "")


def rounded(measured: float, written: str) -> bool:
    """Whether a figure is a measured one with as many digits as it is written with."""
    return float(written) == round(measured, len(written.partition(".")[2]))


@pytest.mark.parametrize(("page", "said", "line", "field", "unit"), FIGURES)
def test_a_figure_is_that_of_its_run(
    page: str, said: str, line: dict[str, Any], field: str, unit: int
) -> None:
    (run,) = kept(**line)
    assert rounded(run[field] / unit, one_of(DOCS / page, said))


def test_every_figure_that_is_kept_has_its_command_and_its_day() -> None:
    assert len(kept()) > 30
    for line in kept():
        assert re.match(r"(python|pytest) \S", line["command"]), line
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", line["measured"]), line
