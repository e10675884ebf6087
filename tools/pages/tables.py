"""Tables and paragraphs of a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

WIDTH = 120  # columns of a line outside tables


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return lines of a table: its head, the rule below the head, its rows."""
    return [
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
        *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows),
    ]


def paragraph(text: str, before: str = "") -> list[str]:
    """Return lines of a paragraph, wrapped as the docs are; ``before`` is a bullet, if any."""
    return wrap(
        text,
        WIDTH,
        initial_indent=before,
        subsequent_indent=" " * len(before),
        break_long_words=False,
        break_on_hyphens=False,
    )
