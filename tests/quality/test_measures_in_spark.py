"""One measure, two engines: the SQL of suites says the same in DataFusion and in Spark, nulls and
NaN included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rewindow.engine.measuring import AskedMeasure, MeasuredRows, asked_of
from rewindow.loading.measure_sql import counts_distinct, for_spark
from rewindow.loading.measures import (
    Measure,
    every_output_has,
    for_datafusion,
    table_name,
    values_of,
)
from rewindow.location import location
from rewindow.quality.planting import Specimen
from rewindow.quality.stored_measures import StoredMeasures
from rewindow.quality.window_table import build_report
from rewindow.storage import Table, query
from rewindow.storage.layout import FACTS_SCHEMA
from tests.quality.planted_rows import RANGES, specimen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH_US = (
    "create or replace temporary function epoch_us(at timestamp) returns bigint return "
    "greatest(least(unix_micros(at), 2305843009213693952), -2305843009213693952) "
    "* if(at is null, null, 1)"
)
AGGREGATES = (
    "count(*)",
    "count(x)",
    "count(distinct x)",
    "count(*) filter (where x > 1)",
    "count(*) filter (where x = x)",
    "sum(n)",
    "sum(x)",
    "min(n)",
    "max(n)",
    "avg(n)",
    "min(x)",
    "max(x) filter (where not isnan(x))",
    "min(s)",
    "max(s)",
    "count(distinct s)",
    "sum(case when n > 1 then 1 else 0 end)",
    "count(*) filter (where (x is distinct from 1))",
    "count(*) filter (where (x is not distinct from cast('nan' as double)))",
    "sum(coalesce(n, 0))",
    "sum(cast(n as decimal(9,2)))",
    "max(abs(n))",
    "sum(n % 2)",
    "min(epoch_us(at))",
    "max(epoch_us(at) % 1000000)",
    "max(epoch_us(at) - cast(1700000000000000 as bigint) * 3)",
    "min(epoch_us(at) - cast(1700000000000000 as bigint) * 3)",
    "count(*) filter (where s in ('a', 'b'))",
    "count(*) filter (where s not in ('a', 'b'))",
    "count(*) filter (where s like 'a%')",
    "count(*) filter (where n between 1 and 2)",
    "count(*) filter (where isnan(x))",
)
"""What `expectations/README.md` says that aggregates may use."""
QUERIES = (
    """select window_id, count(*) as value from (
           select window_id, x - lag(x) over (partition by s order by n nulls first) as d from t
       ) where d > 0 group by window_id""",
    """select window_id, count(*) as value from (
           select window_id, x, n, sum(m) as more from (
               select window_id, x, n, 1 as m from t union all select window_id, x, n, -1 as m
                   from t where n > 1
           ) group by window_id, x, n
       ) where more > 0 group by window_id""",
    """select a.window_id, count(*) as value from t a
       join t b on a.window_id = b.window_id and (a.x is not distinct from b.x)
           group by a.window_id""",
    """select window_id, max(place) as value from (
           select window_id, row_number() over (partition by window_id order by n nulls first,
               s nulls first) as place
           from t
       ) group by window_id having count(*) > 1""",
)


@pytest.fixture
def functions(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that knows `epoch_us`, and forgets the views of a test."""
    spark.sql(EPOCH_US)
    yield spark
    for view in ("output", "flights", "weather", "t"):
        spark.catalog.dropTempView(view)


@pytest.mark.parametrize("name", RANGES)
def test_shipped_measures_have_equal_results_in_both_engines(
    tmp_path: Path,
    name: str,
    functions: SparkSession,
) -> None:
    made = specimen(tmp_path, name)
    report = build_report(made.plan, made.output, made.sources, made.suite.measures)
    _views(made, functions)
    known = values_of(made.plan, made.output)
    for measure in made.suite.measures:
        sql = measure.bound(known).sql
        whole = (
            sql
            if measure.over_rows
            else f"select window_id, {sql} as value from output group by window_id"
        )
        # Spark quotes names by another character.
        found = _by_window(functions.sql(whole.replace('"', "`")).toArrow())
        expected = _by_window(
            pa.table({"window_id": report["window_id"], "value": report[measure.name]})
        )
        assert {w: found.get(w, measure.empty) for w in expected} == expected, measure.name


@pytest.mark.parametrize("name", RANGES)
def test_stored_measures_equal_the_gate_measures(
    tmp_path: Path,
    name: str,
    spark: SparkSession,
) -> None:
    made = specimen(tmp_path, name)
    report = build_report(made.plan, made.output, made.sources, made.suite.measures)
    rows = made.rows.drop_columns("attempt")
    known = values_of(made.plan, made.output)
    wanted = [
        *every_output_has(made.output.key, rows.schema),
        *(one.bound(known) for one in made.suite.measures),
    ]
    wanted = [
        measure for measure in wanted if not measure.over_rows and not counts_distinct(measure.sql)
    ]
    stored = _stored(made, rows, wanted, spark)
    sealed = np.ones(len(made.plan.range), dtype=bool) & (report["output_rows"].to_numpy() > 0)
    for measure in wanted:
        assert stored.has(measure, sealed), f"{measure.name} is not stored"
        values, index = stored.values(measure)
        expected = report[measure.name].take(pa.array(index))
        assert values.type == expected.type or expected.null_count == len(expected), measure.name
        assert values.to_pylist() == expected.to_pylist(), measure.name


def test_stored_values_of_documented_aggregates_equal_the_computed_values(
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    table = _odd_rows()
    left = []
    different = {}
    write_deltalake(str(tmp_path / "t"), table)
    frame = spark.createDataFrame(table)
    for sql in AGGREGATES:
        taken = MeasuredRows(
            [AskedMeasure(7, text)] if (text := for_spark(sql, table.schema)) else [],
            frame.limit(0),
        )
        if not taken.columns:
            left.append(sql)
            continue
        rows = (
            frame.groupBy("window_id")
            .agg(*taken.columns)
            .select("window_id", taken.cell)
            .toArrow()
            .to_pylist()
        )
        cells = {row["window_id"]: row["measures"][0] for row in rows}
        values = {
            w: cell["real"] if cell["whole"] is None else cell["whole"] for w, cell in cells.items()
        }
        ours = pa.table({"window_id": list(values), "value": list(values.values())})
        measured = query(
            for_datafusion(f"select window_id, {sql} as value from t group by window_id"),
            t=Table.open(str(tmp_path / "t")),
        )
        if _by_window(ours) != _by_window(measured):
            different[sql] = (_by_window(ours), _by_window(measured))
    assert not different
    assert left == ["min(x)", "min(s)", "max(s)"]


def test_documented_sql_has_equal_results_in_both_engines(
    tmp_path: Path, functions: SparkSession
) -> None:
    table = _odd_rows()
    write_deltalake(str(tmp_path / "t"), table)
    functions.createDataFrame(table).createOrReplaceTempView("t")
    wholes = [
        f"select window_id, {sql} as value from t group by window_id" for sql in AGGREGATES
    ] + list(QUERIES)
    different = {}
    for whole in wholes:
        ours = _by_window(query(for_datafusion(whole), t=Table.open(str(tmp_path / "t"))))
        theirs = _by_window(functions.sql(whole).toArrow())
        if ours != theirs:
            different[whole] = (ours, theirs)
    assert not different


def _odd_rows() -> pa.Table:
    """Returns rows with nulls and NaN, and windows that hold nothing else."""
    rows = [
        (1, None, math.nan, "a", 0), (1, 1, 1.5, "ab", 1_500_000), (1, 2, None, None, -1),
        (2, None, None, None, None),
        (3, 3, math.nan, "b", 7), (3, 3, math.nan, "b", 8), (4, 1, 0.0, "a", 5),
        (4, -2, -0.0, "c", 6),
        (4, 0, 1.0, "a", 7), (5, 0, 1.0, "a", 2**63 - 1), (5, 0, 1.0, "a", -(2**63)),
    ]  # fmt: skip
    kinds = [("window_id", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())]
    schema = pa.schema([*kinds, ("at", pa.timestamp("us", tz="UTC"))])
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _stored(
    made: Specimen,
    rows: pa.Table,
    wanted: list[Measure],
    spark: SparkSession,
) -> StoredMeasures:
    """Returns what the facts would hold of rows, had a replay written them."""
    frame = spark.createDataFrame(rows)
    taken = MeasuredRows(asked_of(wanted, made.output, rows.schema), frame.limit(0))
    cells = frame.groupBy("window_id").agg(*taken.columns).select("window_id", taken.cell).toArrow()
    facts = [
        {
            "window_id": row["window_id"],
            "direction": "out",
            "port": made.output.name,
            "attempt": 1,
            "lost": False,
            "measures": row["measures"],
        }
        for row in cells.to_pylist()
    ]
    path = location(made.sources.staged.path) / "stored"
    write_deltalake(str(path), pa.Table.from_pylist(facts, schema=FACTS_SCHEMA))
    return StoredMeasures(
        made.plan,
        made.output,
        Table.open(path),
        np.ones(len(made.plan.range), np.int64),
        wanted,
    )


def _views(made: Specimen, spark: SparkSession) -> None:
    spark.createDataFrame(made.rows).createOrReplaceTempView("output")
    for entry in made.plan.inputs:
        tuples = query("select * from s", s=Table.open(entry.table(made.sources.state)))
        inside = f"window_id between {made.plan.first} and {made.plan.last}"
        spark.createDataFrame(tuples).where(inside).createOrReplaceTempView(
            table_name(entry.stream)
        )


def _by_window(rows: pa.Table) -> dict[int, Any]:
    """Returns values by window; NaN as a word, since it equals nothing, and decimals as they are
    written.
    """
    found = {}
    for row in rows.to_pylist():
        value = row["value"]
        if value is not None and not isinstance(value, str):
            value = "NaN" if math.isnan(value) else round(float(value), 9)
        found[row["window_id"]] = value
    return found
