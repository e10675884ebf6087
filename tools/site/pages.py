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
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) { display: block; overflow-x: auto; }
.md-typeset .doc-heading code { overflow-wrap: anywhere; }
"""


def on_config(config: Any) -> Any:
    """Append the parts of the navigation that follow from the tree."""
    config["nav"] += [
        {"Reference": ["reference/index.md", *({m: f"reference/{m}.md"} for m in PUBLIC)]},
        {"Decisions": [f"adr/{path.name}" for path in sorted((ROOT / "docs/adr").glob("*.md"))]},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the front page, the reference, and a style sheet."""
    made = {
        "index.md": (ROOT / "README.md").read_text(encoding="utf-8"),
        "security.md": (ROOT / "SECURITY.md").read_text(encoding="utf-8"),
        "site.css": STYLE,
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
    """Public members of a class that its bases give which have no place of their own here."""
    shown = [getattr(import_module(module), name) for name in names_of(module)]
    bases = takewhile(lambda base: base not in shown, getattr(thing, "__mro__", ())[1:])
    ours = [base for base in bases if base.__module__.startswith("holdfast")]
    return sorted({name for base in ours for name in vars(base) if not name.startswith("_")})


def _index() -> str:
    """The public modules, each with its page."""
    rows = [f"- [`{module}`]({module}.md)" for module in PUBLIC]
    return "# Reference\n\nA program imports from these modules.\n\n" + "\n".join(rows) + "\n"
