"""The gate takes the values that a replay has stored, where they are of the same rows and of the
same measure.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from rewindow.errors import GateError
from rewindow.loading.measures import every_output_has, values_of
from rewindow.location import location
from rewindow.quality.gate import suite_of
from rewindow.quality.window_table import Sources, WindowReport, make_report
from rewindow.storage import Table, create_table, data_files
from rewindow.storage.layout import FACTS, FACTS_SCHEMA
from tests.quality.staging import SCHEMA, StagedReplay, expectation

SUM = "sum(flights)"
HALF = "avg(flights)"
WRONG = 7_000
WRONG_HALF = 0.25
"""What is stored, so that it can be told from what would be measured: six flights and two."""


def store(staged: StagedReplay, attempt: int = 1, **values: Any) -> None:
    plan = staged.plan
    output = plan.outputs[0]
    suite = suite_of(staged.config, output)
    known = values_of(plan, output)
    own = {measure.name: measure for measure in every_output_has(output.key, SCHEMA)}
    asked = own | {measure.name: measure.bound(known) for measure in suite.measures}
    cells = [
        {
            "measure": asked[name].digest(output.columns),
            "whole": value if isinstance(value, int) else None,
            "real": value if isinstance(value, float) else None,
        }
        for name, value in {"null_keys": 0, "heartbeats": 0, **values}.items()
    ]
    for fact in staged.facts:
        if (
            fact["direction"] == "out"
            and fact["attempt"] == attempt
            and not fact["lost"]
            and fact["tuples"]
        ):
            fact["measures"] = cells


def written(staged: StagedReplay) -> Table:
    """Writes a replay's tables, the staged one as attempts do: each one's rows in a file of its
    folder.
    """
    staged.write()
    root = staged.config.replay_root(staged.replay_id)
    path = root / staged.output
    path.delete_tree()
    table = create_table(path, SCHEMA)
    for attempt in sorted({row["attempt"] for row in staged.rows}):
        rows = [row for row in staged.rows if row["attempt"] == attempt]
        folder = path / f"{attempt}-{len(staged.windows)}"
        folder.make_folder()
        (folder / "part-0.parquet").write(_parquet(pa.Table.from_pylist(rows, schema=SCHEMA)))
        table.commit_files(data_files(folder), app_id=f"x/{attempt}", version=1)
    return table


def report(staged: StagedReplay) -> WindowReport:
    output = staged.plan.outputs[0]
    sources = Sources.open(
        staged.config.replay_root(staged.replay_id),
        output.name,
        location(staged.config.quarantine_table),
    )
    return make_report(staged.plan, output, sources, suite_of(staged.config, output).measures)


@pytest.fixture
def measured(staged: StagedReplay) -> StagedReplay:
    """A replay with a suite of two measures, not yet written."""
    check = expectation("flights-seen", "expect_column_values_to_not_be_null", column="total")
    staged.add_suite("own", check, measures={"total": SUM, "half": HALF})
    return staged


def test_stored_values_are_used_without_computing_measures(measured: StagedReplay) -> None:
    store(measured, total=WRONG, half=WRONG_HALF)
    written(measured)
    found = report(measured)
    assert (found.stored, found.measured, found.remark) == (("half", "total"), (), "")
    assert set(found.table["total"].to_pylist()) == {WRONG}
    assert set(found.table["half"].to_pylist()) == {WRONG_HALF}
    assert found.table["total"].type == pa.int64()


def test_only_measures_that_changed_in_the_suite_are_recomputed(measured: StagedReplay) -> None:
    store(measured, total=WRONG, half=WRONG_HALF)
    written(measured)
    check = expectation("flights-seen", "expect_column_values_to_not_be_null", column="total")
    measured.add_suite("own", check, measures={"total": SUM + " + 1", "half": HALF})
    found = report(measured)
    assert (found.stored, found.measured) == (("half",), ("total",))
    assert set(found.table["total"].to_pylist()) == {7}


def test_stored_value_is_not_used_for_columns_of_other_types(measured: StagedReplay) -> None:
    store(measured, total=WRONG, half=WRONG_HALF)
    written(measured)
    measured.schema = pa.schema([*SCHEMA, ("later", pa.string())])
    assert report(measured).measured == ("half", "total")


def test_only_stored_values_of_the_newest_sealed_attempt_are_used(measured: StagedReplay) -> None:
    # Rules: R52
    again = [dict(row, attempt=2, flights=3) for row in measured.rows if row["window_id"] >= 110]
    measured.mode = "at_least_once"
    measured.rows += again
    measured.facts += [
        measured.fact(w, "out", measured.output, 3, attempt=2) for w in range(110, 120)
    ]
    store(measured, total=WRONG, half=WRONG_HALF)
    written(measured)
    assert report(measured).measured == ("half", "total"), (
        "windows 110 on have no value of attempt 2"
    )
    store(measured, attempt=2, total=WRONG + 1, half=WRONG_HALF)
    found = _of_new_facts(measured)
    assert found.table["total"].to_pylist() == [WRONG] * 10 + [WRONG + 1] * 10
    assert found.table["repeated"].to_pylist() == [0] * 10 + [3] * 10


def test_lost_windows_are_null_and_empty_windows_have_the_default_of_the_suite(
    measured: StagedReplay,
) -> None:
    check = expectation("flights-seen", "expect_column_values_to_not_be_null", column="half")
    measured.add_suite("own", check, measures={"total": {"sql": SUM, "empty": 0}, "half": HALF})
    measured.mode = "at_most_once"
    measured.rows = [row for row in measured.rows if row["window_id"] not in (101, 102)]
    for fact in measured.facts:
        if fact["direction"] == "out" and fact["window_id"] in (101, 102):
            fact["tuples"], fact["lost"] = 0, fact["window_id"] == 102
    store(measured, total=WRONG, half=WRONG_HALF)
    written(measured)
    found = report(measured)
    assert found.measured == ()
    assert found.table["total"].to_pylist()[:4] == [WRONG, 0, None, WRONG]
    assert found.table["half"].to_pylist()[:4] == [WRONG_HALF, None, None, WRONG_HALF]


def test_stored_null_is_a_value_and_nan_fails_the_gate(measured: StagedReplay) -> None:
    store(measured, total=None, half=WRONG_HALF)
    written(measured)
    found = report(measured)
    assert found.measured == ()
    assert found.table["total"].null_count == 20
    store(measured, total=1, half=float("nan"))
    with pytest.raises(GateError, match=r'measure "half" .* is not a number in window 100'):
        _of_new_facts(measured)


def test_replaced_rows_are_recomputed_with_a_reason(measured: StagedReplay) -> None:
    store(measured, total=WRONG, half=WRONG_HALF)
    table = written(measured)
    DeltaTable(table.path.uri).update(updates={"flights": "flights + 1"})
    found = report(measured)
    assert found.measured == ("half", "total")
    assert found.remark == "the staged files are not those that the facts describe"
    assert set(found.table["total"].to_pylist()) == {9}


def test_deleted_rows_invalidate_stored_values(measured: StagedReplay) -> None:
    store(measured, total=WRONG, half=WRONG_HALF)
    table = written(measured)
    DeltaTable(table.path.uri).delete("window_id = 105 and origin = 'LGA'")
    found = report(measured)
    assert found.table["output_rows"].to_pylist()[5] == 2
    assert found.table["total"].to_pylist()[4:6] == [6, 4]


def _of_new_facts(staged: StagedReplay) -> WindowReport:
    path = staged.config.replay_root(staged.replay_id) / FACTS
    write_deltalake(
        str(path),
        pa.Table.from_pylist(staged.facts, schema=FACTS_SCHEMA),
        mode="overwrite",
    )
    return report(staged)


def _parquet(rows: pa.Table) -> bytes:
    content = pa.BufferOutputStream()
    pq.write_table(rows, content)
    return bytes(content.getvalue().to_pybytes())
