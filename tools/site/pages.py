"""Hooks of MkDocs: pages of the site that have no file under docs/, and links that lead to them.

**Rules.** A page of the site is a page of the tree: the front page is the README, and every module
of the package has its page of the reference. Nothing is written twice, and nothing into docs/.

**Strategy.** The pages are added when MkDocs has found its files. A link that leads out of docs/,
to the source or to a file of the tree, is led to the page of the site.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

import holdfast

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
LEFT_OUT = ("holdfast.__main__", "holdfast.cli.commands")
"""Modules that the reference leaves out: ``holdfast --help`` describes the commands."""
PUBLIC = (
    "holdfast.confluent",
    "holdfast.aiokafka",
    "holdfast.kafka",
    "holdfast.metrics",
    "holdfast.spark",
)
STYLE = """\
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { display: block; overflow-x: auto; }
.md-typeset .doc-heading code { overflow-wrap: anywhere; }
"""


def rooms() -> dict[str, list[str]]:
    """Pages of the reference, sorted: a package or a module of the root -> the modules on it."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if name != "holdfast" and not name.startswith(LEFT_OUT):
            found.setdefault(name if len(parts) == 2 else ".".join(parts[:-1]), []).append(name)
    return found


def on_config(config: Any) -> Any:
    """Append the parts of the navigation that follow from the tree."""
    sections: dict[str, list[dict[str, str]]] = {}
    for room in sorted(rooms()):
        sections.setdefault(room.split(".")[1], []).append({room: f"reference/{room}.md"})
    alone = [pages[0] for pages in sections.values() if len(pages) == 1]
    nested = [{f"holdfast.{n}": pages} for n, pages in sections.items() if len(pages) > 1]
    config["nav"] += [
        {"Reference": ["reference/index.md", *alone, *nested]},
        {"Decisions": [f"adr/{path.name}" for path in sorted((ROOT / "docs/adr").glob("*.md"))]},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the front page, the reference, and a style sheet."""
    made = {
        "index.md": (ROOT / "README.md").read_text(encoding="utf-8"),
        "security.md": (ROOT / "SECURITY.md").read_text(encoding="utf-8"),
        "site.css": STYLE,
        "reference/index.md": _public_names(),
        **{f"reference/{room}.md": _room(room, names) for room, names in rooms().items()},
    }
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links of a page to pages of the site."""
    place = PurePosixPath(page.file.src_uri)
    above = "../" * (len(place.parts) - 1)
    if page.file.generated_by:  # the README and its like stand beside docs/
        markdown = re.sub(r"\]\(docs/tutorials\)", "](tutorials/deferred.md)", markdown)
        markdown = re.sub(r"\]\(docs/", "](", markdown)
        markdown = markdown.replace("](SECURITY.md", "](security.md")
    room_of = {name: room for room, names in rooms().items() for name in names}

    def lead(match: re.Match[str]) -> str:
        name = match[1].replace("/", ".")
        return f"]({above}reference/{room_of[name]}.md#{name})"

    return re.sub(r"\]\((?:\.\./)+src/([\w/]+?)(?:/__init__)?\.py\)", lead, markdown)


def _room(room: str, names: list[str]) -> str:
    """A page: what a package says of itself, then each of its modules."""
    own = f"# {room}\n" if names == [room] else ""
    options = "    options: {heading_level: 1, members: false}\n"
    first = f"::: {room}\n{options}\n" if room in names and not own else own
    return first + "\n".join(f"::: {name}\n" for name in names if own or name != room)


def _public_names() -> str:
    """The names that a program imports, each with its page."""
    rows = [
        f"- [`holdfast.{name}`][{home}.{name}]" for name, home in sorted(holdfast._HOME.items())
    ]
    facades = [f"- [`{name}`]({name}.md)" for name in PUBLIC]
    said = (
        "# Reference\n\nA program imports these names. Every other module has its page here, too, "
        "for who reads the source.\n\n"
    )
    return said + "\n".join([*rows, *facades]) + "\n"
