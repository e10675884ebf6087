"""Which extra brings a package that is not installed: one answer for every door and command.

**Rules.** A public module that stands on a package of an extra imports it inside :class:`needed`,
so whoever lacks it reads the line that installs it, and not only the name of a module.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

BROUGHT: Mapping[str, tuple[str, str]] = {
    "aiokafka": ("aiokafka", "members"),
    "confluent_kafka": ("confluent-kafka", "members"),
    "fsspec": ("fsspec", "all"),
    "google": ("googleapis-common-protos", "all"),
    "grpc": ("grpcio", "all"),
    "hdfs_native": ("hdfs-native", "all"),
    "kafka": ("kafka-python", "fleet"),
    "pandas": ("pandas", "fleet"),
    "prometheus_client": ("prometheus-client", "fleet"),
    "pyarrow": ("pyarrow", "fleet"),
    "pyspark": ("pyspark", "fleet"),
    "werkzeug": ("Werkzeug", "fleet"),
    "zstandard": ("zstandard", "all"),
}
"""Package that is imported -> its distribution, and the extra by which a command gets it."""


def lacking(error: BaseException, extra: str = "") -> str:
    """What is not installed, and the line that installs it; empty where no extra brings it.

    Parameters
    ----------
    extra : str
        The extra to name; empty for that of :data:`BROUGHT`.
    """
    package = str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in BROUGHT:
        return ""
    name, usual = BROUGHT[package]
    return f"{name} is not installed: pip install 'kafka-holdfast[{extra or usual}]'"


class needed:  # noqa: N801 (it reads as a statement: with needed("members"))
    """A block of imports of which one extra brings all that may be missing.

    Parameters
    ----------
    extra : str
        Its name.

    Raises
    ------
    ModuleNotFoundError
        One of them is not installed. The text names the extra.

    References
    ----------
    PyPA specifications, "Dependency specifiers" (extras).
    """

    def __init__(self, extra: str):
        self._extra = extra

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End it; an error about a missing package names the extra."""
        if isinstance(error, ModuleNotFoundError) and (told := lacking(error, self._extra)):
            raise ModuleNotFoundError(told, name=error.name) from error
