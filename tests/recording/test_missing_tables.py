"""A stream of which a table is missing: refused, never recorded over; sealed again from what is there."""

from __future__ import annotations

import shutil

import pytest

from rewindow.errors import InputError, TableError
from rewindow.planning.inputs import open_recorded_stream
from tests.recording.conftest import Bench
from tests.recording.test_record import ROWS


def test_a_stream_without_its_seals_is_refused_and_sealed_again_from_its_tuples(bench: Bench) -> None:
    """Nothing is deleted, though the source is gone by then; the new seals have the digests of the old ones."""
    bench.write(ROWS)
    bench.record()
    seals = "select window_id, tuples, digest, float_digest from w order by window_id"
    tuples, sealed = bench.tuples(), bench.rows(seals)
    shutil.rmtree(bench.config().windows_table("s"))
    bench.write("")
    with pytest.raises(TableError, match=r'"s.windows" of stream "s" is missing(.|\n)*--seal-again'):
        bench.record()
    assert bench.tuples() == tuples
    with pytest.raises(InputError, match="5 tuples do not lie in theirs"):
        bench.record(seal_again=True, width="20 s", origin="1970-01-01T02:46:35Z")
    result = bench.record(seal_again=True)
    assert (bench.tuples(), bench.rows(seals)) == (tuples, sealed)
    assert (result.windows_sealed, result.windows_empty, result.recorded) == (5, 2, 0)
    with pytest.raises(InputError, match="its seals are there"):
        bench.record(seal_again=True)


def test_a_stream_without_its_tuples_is_refused(bench: Bench) -> None:
    """The seals stay: they say what was there. Files without a log are no table, and are not recorded over either."""
    bench.write(ROWS)
    bench.record()
    data = bench.config().stream_table("s")
    shutil.rmtree(data / "_delta_log")
    with pytest.raises(TableError, match='"s" of stream "s" is there without its log'):
        bench.record()
    shutil.rmtree(data)
    with pytest.raises(TableError, match='"s" of stream "s" is missing'):
        bench.record()
    assert bench.rows("select count(*) as n from w") == [{"n": 5}]


def test_a_stream_without_its_last_commit_is_refused_by_record_and_plan(bench: Bench) -> None:
    """Its seals name a version that is not there, so its newest tuples would be taken for none."""
    bench.write(ROWS)
    bench.record()
    data = bench.config().stream_table("s")
    (data / "_delta_log" / f"{1:020}.json").unlink()
    for attempt in (bench.record, lambda: open_recorded_stream(bench.config(), "s")):
        with pytest.raises(TableError, match='table "s" is at version 0, but its seals name version 1'):
            attempt()


def test_a_run_that_died_between_its_two_tables_leaves_nothing_to_refuse(bench: Bench) -> None:
    """A first run that created only one empty table is begun again."""
    bench.write("")
    bench.record()
    shutil.rmtree(bench.config().windows_table("s"))
    bench.write(ROWS)
    assert bench.record().recorded == 5
