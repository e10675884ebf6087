"""The tables' columns follow their own rules."""

from __future__ import annotations

import pytest

from holdfast.fleet.tables.columns.definition import DType
from holdfast.fleet.tables.columns.steps import DUMP_TABLES
from holdfast.fleet.tables.columns.stored import ASSIGNMENTS, LAG, MOVEMENTS, TABLES

ALL = [*TABLES.values(), *DUMP_TABLES.values()]


@pytest.mark.parametrize("table", ALL, ids=lambda t: t.name)
def test_names_are_unique_and_documented(table):
    assert len(set(table.names)) == len(table.names)
    assert table.doc.endswith(".")
    for column in table.columns:
        assert column.doc and column.name == column.name.lower()


@pytest.mark.parametrize("table", ALL, ids=lambda t: t.name)
def test_order_and_explode_name_columns(table):
    assert set(table.order) <= set(table.names)
    if table.explode:
        assert table.column(table.explode).dtype in (DType.INT32_LIST, DType.STRING_LIST)
        assert table.flat_name not in table.names


@pytest.mark.parametrize("table", ALL, ids=lambda t: t.name)
def test_durations_say_their_unit(table):
    for column in table.columns:
        if column.name.endswith("_ms"):
            assert column.unit == "ms"
        if column.dtype is DType.TIMESTAMP:
            assert not column.unit


def test_flat_columns_that_people_were_promised():
    promised = {"group", "generation", "member_id", "topic", "partition"}
    assert promised <= set(ASSIGNMENTS.flat_names)
    promised = {"group", "generation", "topic", "partition", "from_member", "to_member", "kind"}
    assert promised <= set(MOVEMENTS.flat_names)
    promised = {"group", "topic", "partition", "current_offset", "log_end_offset", "lag"}
    assert promised | {"member_id"} <= set(LAG.flat_names)


def test_a_missing_column_is_a_key_error():
    with pytest.raises(KeyError):
        LAG.column("lags")
