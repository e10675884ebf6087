"""Pages for users are short, of the present, and lead to headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
NOT_READ_THROUGH = ("Look up", "Measured", "Maintainers")
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


FIGURES = [
    ("assignors.md", r"plans in ([\d.]+) ms", "assign.md", r"W1, [^|]*leaves \| ([\d.]+)", 1),
    ("assignors.md", r"partitions in ([\d.]+) s", "assign.md", r"W4, [^|]*\| ([\d.]+)", 1000),
    ("brokers.md", r"1 to (\d+) s without a read", "upgrade.md", r"bounced \|[^|]*\| ([\d.]+)", 1),
    ("fleet.md", r"shown within ([\d.]+) s", "serve.md", r"132 to (\d+) ms", 1000),
    ("handover.md", r"even: (\d+) s\s", "designs.md", r"time to balance is ([\d.]+) s", 1),
    ("handover.md", r"in\s+place of (\d+) s", "designs.md", r"more\s+than the (1[\d.]+\d)", 1),
    ("replay.md", r"of (\d+)\s+predictions", "whatif.md", r"another policy\*\* \| \*\*(\d+)", 1),
    ("replay.md", r"policy, (\d+) had", "whatif.md", r"policy\*\* \|[^|]*\| \*\*(\d+)", 1),
]
"""A figure of a page for users, and where its run stands; how many of the run's unit make one."""


@pytest.mark.parametrize(("page", "said", "run", "seen", "unit"), FIGURES)
def test_a_figure_is_that_of_its_run(page: str, said: str, run: str, seen: str, unit: int) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    written, measured = (
        re.findall(said, text),
        re.findall(seen, (DOCS / "measured" / run).read_text("utf-8")),
    )
    assert len(written) == 1 and measured, (written, measured)
    digits = len(written[0].partition(".")[2])
    assert float(written[0]) == round(float(measured[0]) / unit, digits)


def test_every_page_with_a_run_has_its_figures_compared() -> None:
    """A sentence with a number and a link to a run is one of the figures, or has none of it."""
    linked = {
        page.name
        for page in USER_PAGES
        for sentence in re.split(r"\n\n|\n(?=[-|] ?)", page.read_text(encoding="utf-8"))
        if re.search(r"\]\((\.\./)?measured/", sentence) and re.search(r"\d (m?s|MB)\b", sentence)
    }
    assert linked <= {page for page, *_ in FIGURES} | ASIDE


ASIDE = {
    "cli.md",  # a limit of the code, which the run has chosen
    "metrics.md",  # an interval of commits, not a figure of the run
}


def test_the_policies_of_the_readme_are_those_of_the_run() -> None:
    runs = (DOCS / "measured/bounce.md").read_text(encoding="utf-8")
    seen: dict[str, list[float]] = {}
    for kind, stopped, moved in re.findall(
        r"^\| `(\w+)` \* \| ([\d.]+) \| [^|]*\| [^|]*\| (\d+) \|", runs, re.MULTILINE
    ):
        seen.setdefault(kind, []).extend([float(moved), round(float(stopped))])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    written = {
        kind: [float(n) for n in numbers]
        for kind, *numbers in re.findall(
            r"^\| `(\w+)` \| (\d+), (\d+) \| (\d+), (\d+) \|", readme, re.MULTILINE
        )
    }
    assert len(written) == 5
    assert written == {kind: seen[kind] for kind in written}
