"""The traits of every assignor, as a Markdown table from the registry."""

from __future__ import annotations

from tools.pages.tables import table

from holdfast.core.assignors.registry import ASSIGNORS, AssignorInfo

HEAD = (
    "assignor",
    "mode",
    "target depends on",
    "laws",
    "options",
    "unequal subscriptions",
    "Java's class",
    "librdkafka",
)


def traits_part() -> str:
    """Return one row for each assignor, in the order of the registry."""
    return "\n".join(("", *table(HEAD, map(_row, ASSIGNORS.values())), ""))


def _row(info: AssignorInfo) -> tuple[str, ...]:
    uses = {"claims": info.uses_claims, "lags": info.uses_lags, "racks": info.uses_racks}
    return (
        f"`{info.name}`",
        "cooperative" if info.cooperative else "eager",
        ", ".join(("subscriptions", *(name for name, used in uses.items() if used))),
        ", ".join(sorted(info.laws)) or "-",
        ", ".join(f"`{option}`" for option in info.options) or "-",
        "refused" if info.needs_equal_subscriptions else "yes",
        f"`{info.java_class.rpartition('.')[2]}`" if info.java_class else "-",
        "yes" if info.in_librdkafka else "-",
    )
