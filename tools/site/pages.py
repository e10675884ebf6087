"""Hooks of MkDocs: pages of the site that have no file under docs/, and links that lead to them.

**Rules.** A page of the site is a page of the tree: the front page is the README, and every public
module has its page of the reference, with its public names and no others. Nothing is written twice,
and nothing into docs/.

**Strategy.** The pages are added when MkDocs has found its files. A link that leads out of docs/ is
led to the page of the site; one to the source becomes the name of the file.
"""

from __future__ import annotations

import re
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PUBLIC = (
    "holdfast",
    "holdfast.confluent",
    "holdfast.aiokafka",
    "holdfast.kafka",
    "holdfast.metrics",
    "holdfast.spark",
    "holdfast.tables",
    "holdfast.errors",
)
"""What a program may import, and CONTRIBUTING.md promises to keep."""
STYLE = """\
:root { --md-primary-fg-color: #12423c; --md-primary-fg-color--light: #2b6b62;
  --md-primary-fg-color--dark: #0b2c28; --md-primary-bg-color: #fff;
  --md-accent-fg-color: #b4530a; --md-typeset-a-color: #0b6a5c; }
[data-md-color-scheme="slate"] { --md-hue: 172;
  --md-typeset-a-color: #6fcfbd; --md-accent-fg-color: #f0a35b; }
.md-typeset pre > code { overflow-x: auto; }
.md-typeset td:first-child code { white-space: nowrap; }
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { display: block; overflow-x: auto; }
.md-typeset .doc-heading code { overflow-wrap: anywhere; }
"""
MARK = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">
<path fill="#fff" d="M2 4h20v4H2z" opacity=".95"/><path fill="#f0a35b" d="M2 10h9v4H2z"/>
<path fill="#fff" d="M13 10h9v4h-9zM2 16h20v4H2z" opacity=".95"/></svg>
"""
"""Three rows of an ownership timeline; in the second one the owner changes."""


def on_config(config: Any) -> Any:
    """Append the parts of the navigation that follow from the tree."""
    tabs = {name: pages for tab in config["nav"] for name, pages in tab.items()}
    modules = ["reference/index.md", *({name: f"reference/{name}.md"} for name in PUBLIC)]
    tabs["Reference"].append({"Python": modules})
    decisions = [f"adr/{path.name}" for path in sorted((ROOT / "docs/adr").glob("*.md"))]
    tabs["Maintainers"].append({"Decisions": decisions})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the front page, the reference, and a style sheet."""
    made = {
        "index.md": (ROOT / "README.md").read_text(encoding="utf-8"),
        "security.md": (ROOT / "SECURITY.md").read_text(encoding="utf-8"),
        "site.css": STYLE,
        "mark.svg": MARK,
        "reference/index.md": _index(),
        **{f"reference/{module}.md": reference(module) for module in PUBLIC},
    }
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links of a page to pages of the site."""
    if page.file.generated_by:  # the README and its like stand beside docs/
        markdown = re.sub(r"\]\(docs/tutorials\)", "](tutorials/deferred.md)", markdown)
        markdown = re.sub(r"\]\(docs/", "](", markdown)
        markdown = markdown.replace("](SECURITY.md", "](security.md")
    return re.sub(r"\[([^\]\n]+)\]\((?:\.\./)+src/[\w/]+\.py\)", r"\1", markdown)


def reference(module: str) -> str:
    """A page: what a public module says of itself, then each of its public names."""
    opening = f"::: {module}\n    options: {{heading_level: 1, members: false}}\n"
    return "\n".join([opening, *(_name(module, name) for name in names_of(module))])


def names_of(module: str) -> list[str]:
    """The names that a public module gives."""
    return list(import_module(module).__all__)


def _name(module: str, name: str) -> str:
    """A name under the module that gives it, whatever module has it; a client's own as a line."""
    thing = getattr(import_module(module), name)
    if not thing.__module__.startswith("holdfast"):
        return f"## {module}.{name}\n\n`{thing.__module__}.{thing.__qualname__}`, as it is.\n"
    home = f"{thing.__module__}.{thing.__qualname__}"
    inherited = ", ".join(_of_private_bases(thing, module))
    more = f"inherited_members: [{inherited}], " if inherited else ""
    return f"::: {home}\n    options: {{{more}heading: {module}.{name}}}\n"


def _of_private_bases(thing: Any, module: str) -> list[str]:
    """Public members that a class inherits from bases that have no page."""
    shown = [getattr(import_module(module), name) for name in names_of(module)]
    bases = takewhile(lambda base: base not in shown, getattr(thing, "__mro__", ())[1:])
    ours = [base for base in bases if base.__module__.startswith("holdfast")]
    return sorted({name for base in ours for name in vars(base) if not name.startswith("_")})


def _index() -> str:
    """The public modules, each with its page."""
    rows = [f"- [`{module}`]({module}.md)" for module in PUBLIC]
    return "# Reference\n\nA program imports from these modules.\n\n" + "\n".join(rows) + "\n"
