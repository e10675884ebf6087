"""Which extra installs a missing package: one answer for every entry point and command.

**Rules.** A public module that needs a package of an extra imports it inside :func:`needed`, so
the error shows the line that installs it, and not only the name of a module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

BROUGHT: Mapping[str, tuple[str, str]] = {
    "aiokafka": ("aiokafka", "members"),
    "confluent_kafka": ("confluent-kafka", "members"),
    "fsspec": ("fsspec", "all"),
    "google": ("googleapis-common-protos", "all"),
    "grpc": ("grpcio", "all"),
    "hdfs_native": ("hdfs-native", "all"),
    "kafka": ("kafka-python", "fleet"),
    "pandas": ("pandas", "spark"),
    "prometheus_client": ("prometheus-client", "fleet"),
    "pyarrow": ("pyarrow", "fleet"),
    "pyspark": ("pyspark", "spark"),
    "werkzeug": ("Werkzeug", "fleet"),
    "zstandard": ("zstandard", "all"),
}
"""Package that is imported -> its distribution, and the extra by which a command gets it."""


def lacking(error: BaseException, extra: str = "") -> str:
    """Return what is not installed, and the line that installs it; empty if no extra has it.

    Parameters
    ----------
    extra : str
        The extra to name; by default that of :data:`BROUGHT`.
    """
    package = str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in BROUGHT:
        return ""
    name, usual = BROUGHT[package]
    return f"{name} is not installed: pip install 'kafka-holdfast[{extra or usual}]'"


@contextmanager
def needed(extra: str) -> Iterator[None]:
    """Run a block of imports whose missing packages one extra installs.

    Parameters
    ----------
    extra : str
        Name of the extra.

    Raises
    ------
    ModuleNotFoundError
        A package is not installed. The text names the extra.

    References
    ----------
    PyPA specifications, "Dependency specifiers" (extras).
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if text := lacking(error, extra):
            raise ModuleNotFoundError(text, name=error.name) from error
        raise
