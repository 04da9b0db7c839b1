"""Failing tuples as tasks report them."""

from __future__ import annotations

import pytest

from rewindow.tuple_engine.failing import FailingTuple, TuplesFailed, check_failing, failing_rows


def test_tuple_that_fails_in_several_partitions_is_reported_once() -> None:
    given = [
        FailingTuple("rules", 4, 7, "in partition b"),
        FailingTuple("rules", 4, 7, "in partition a"),
        FailingTuple("rules", 5, 7, "later"),
    ]
    rows = [batch.to_pylist()[0] for batch in failing_rows(given)]
    with pytest.raises(TuplesFailed) as raised:
        check_failing("limits", rows)
    assert sorted(raised.value.tuples) == [given[1], given[2]]
    check_failing("limits", [{"part": "out", "file": "x"}])
