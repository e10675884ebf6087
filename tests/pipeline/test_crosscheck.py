"""An independent decoder: Spark SQL reads the same commits as the NumPy one."""

from __future__ import annotations

import pytest
from tests.pipeline import fleet, local

from holdfast.fleet.pipeline.ingest.source import Dump

pytestmark = pytest.mark.spark

# Offsets inside OffsetCommitKey and OffsetCommitValue v1 to v3, by text functions alone.
SQL = """
with lengths as (
  select *, cast(conv(hex(substring(key, 3, 2)), 16, 10) as int) as g from records
), topics as (
  select *, cast(conv(hex(substring(key, 5 + g, 2)), 16, 10) as int) as t from lengths
), versions as (
  select *, cast(conv(hex(substring(value, 1, 2)), 16, 10) as int) as v,
    decode(substring(key, 5, g), 'UTF-8') as group_name,
    decode(substring(key, 7 + g, t), 'UTF-8') as topic_name,
    cast(conv(hex(substring(key, 7 + g + t, 4)), 16, -10) as bigint) as part,
    cast(conv(hex(substring(value, 3, 8)), 16, -10) as bigint) as pos
  from topics
), shifted as (
  select *, case when v >= 3 then 15 else 11 end as at from versions
), metadata as (
  select *, case when v = 4
    then cast(conv(hex(substring(value, at, 1)), 16, 10) as int)
    else 2 + cast(conv(hex(substring(value, at, 2)), 16, 10) as int) end as m
  from shifted
)
select group_name, topic_name, part, pos,
  case when value is null then null
    else cast(conv(hex(substring(value, at + m, 8)), 16, -10) as bigint) end as millis
from metadata
"""


def test_sql_and_numpy_agree(spark, tmp_path):
    records = []
    for n in range(120):
        version = (1, 2, 3, 4)[n % 4]
        group, topic = ("g", "é😀", "x" * 200)[n % 3], ("t", "../u")[n % 2]
        offset = None if n % 11 == 0 else (1 << 40) * n - n
        value = fleet.commit(group, topic, n % 7, offset, at=1000 + n, version=version)
        records.append((group, 1000 + n, value))
    dump = fleet.write_dump(tmp_path / "dump", records)
    Dump.open(dump).records(spark).createOrReplaceTempView("records")
    by_sql = sorted(map(tuple, spark.sql(SQL).collect()), key=repr)
    out = local.run(dump, tmp_path / "out", batch_rows=50)
    by_numpy = [
        (
            row["group"],
            row["topic"],
            row["partition"],
            row["offset"],
            row["commit_timestamp"] and round(row["commit_timestamp"].timestamp() * 1000),
        )
        for row in out.table("offset_commits").to_pylist()
    ]
    assert sorted(by_numpy, key=repr) == by_sql
    assert len(by_sql) == 120
