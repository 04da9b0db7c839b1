"""A stream of which a table is missing: refused, never recorded over; sealed again from what is
there.
"""

from __future__ import annotations

import shutil

import pytest

from rewindow.errors import InputError, TableError
from rewindow.planning.inputs import open_recorded_stream
from tests.recording.conftest import Bench
from tests.recording.test_record import ROWS


def test_stream_without_its_seals_is_rejected_and_can_be_resealed(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record()
    seals = "select window_id, tuples, digest, float_digest from w order by window_id"
    tuples = bench.tuples()
    sealed = bench.rows(seals)
    shutil.rmtree(bench.config().windows_table("s"))
    bench.write("")
    with pytest.raises(
        TableError,
        match=r'"s.windows" of stream "s" is missing(.|\n)*--seal-again',
    ):
        bench.record()
    assert bench.tuples() == tuples
    with pytest.raises(InputError, match="5 tuples are not in the windows of the current settings"):
        bench.record(seal_again=True, width="20 s", origin="1970-01-01T02:46:35Z")
    result = bench.record(seal_again=True)
    assert (bench.tuples(), bench.rows(seals)) == (tuples, sealed)
    assert (result.windows_sealed, result.windows_empty, result.recorded) == (5, 2, 0)
    with pytest.raises(InputError, match="its seals exist"):
        bench.record(seal_again=True)


def test_stream_without_its_tuples_is_rejected_and_keeps_its_seals(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record()
    data = bench.config().stream_table("s")
    shutil.rmtree(data / "_delta_log")
    with pytest.raises(TableError, match='"s" of stream "s" has no Delta log'):
        bench.record()
    shutil.rmtree(data)
    with pytest.raises(TableError, match='"s" of stream "s" is missing'):
        bench.record()
    assert bench.rows("select count(*) as n from w") == [{"n": 5}]


def test_stream_without_its_last_commit_is_rejected_by_record_and_plan(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record()
    data = bench.config().stream_table("s")
    (data / "_delta_log" / f"{1:020}.json").unlink()
    for attempt in (bench.record, lambda: open_recorded_stream(bench.config(), "s")):
        with pytest.raises(
            TableError,
            match='table "s" is at version 0, but its seals refer to version 1',
        ):
            attempt()


def test_run_killed_between_writing_its_two_tables_can_be_repeated(bench: Bench) -> None:
    bench.write("")
    bench.record()
    shutil.rmtree(bench.config().windows_table("s"))
    bench.write(ROWS)
    assert bench.record().recorded == 5
