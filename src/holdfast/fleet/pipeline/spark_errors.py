"""What Spark could not read, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.local.jars import connector_of


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn an error of Spark, its JVM or the connector into a SourceError of one line.

    Errors of our own tasks pass unchanged.
    """
    import pyspark  # a dump is read without Spark, too
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # has no stubs
    from pyspark.errors import PySparkException, PythonException

    try:
        yield
    except PythonException as error:
        # A task of ours raised it in a worker; the last line of the text is the error itself.
        name = f"{SourceError.__module__}.{SourceError.__qualname__}: "
        said = [line for line in str(error).splitlines() if line.strip().startswith(name)]
        if not said:
            raise
        raise SourceError(said[-1].strip().removeprefix(name)) from error
    except (PySparkException, Py4JError, pa.ArrowException) as error:
        chain: BaseException = error
        while isinstance(chain, pa.ArrowException) and chain.__context__ is not None:
            chain = chain.__context__  # the JVM's own error is behind a stream that was cut short
        cause = _deepest(str(chain))
        if "Failed to find data source: kafka" in cause:
            cause = (
                "its session has no Kafka connector; start it with holdfast.spark.get_session("
                f"kafka=True), or with spark.jars.packages={connector_of(pyspark.__version__)}"
            )
        raise SourceError(f"Spark could not read {what}: {cause}") from error


def _deepest(text: str) -> str:
    """Return the innermost cause in the text of a Java error, or its first line."""
    causes = [line.strip() for line in text.splitlines() if line.strip().startswith("Caused by:")]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return causes[-1].removeprefix("Caused by: ") if causes else first
