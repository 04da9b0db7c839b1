"""Streams between containers: their files are compared with what the commits have noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rewindow.launcher import Outcome, begin_attempt, note_kill
from rewindow.storage import Table
from tests.recovery.here import jobs_here
from tests.recovery.project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_reader_reports_a_file_that_was_damaged_or_replaced_between_two_attempts(
    project: Project,
    spark: SparkSession,
) -> None:
    # Rules: R58, X53
    config = project.config
    project.plan("damaged", "exactly_once", properties={"totals.container": "second"})
    run = jobs_here(spark)

    def step(crash: str = "") -> Outcome:
        submission = begin_attempt(config, "damaged", crash or None, again=True)
        assert submission is not None
        outcome = run(submission, lambda line: None)
        note_kill(config, submission, outcome)
        return outcome

    assert [step().exit_code, step("second/started:1@1").exit_code] == [0, -9]
    root = config.replay_root("damaged@sums") / "sums"
    file = root / Table.open(root).files()[0].path
    whole = file.read_bytes()
    for change in (flip_a_byte, replace_rows):
        change(file)
        outcome = step()
        assert outcome.exit_code
        for words in (
            f'file "{file.relative_to(root)}" of stream "sums.sums"',
            'Container "sums" has staged it for container "second"',
            "rewindow replay --resume damaged; or abandon the replay and plan the range again: "
            "rewindow replay totals --first",
        ):
            assert words in outcome.message
        file.write_bytes(whole)


def flip_a_byte(file: Path) -> None:
    found = bytearray(file.read_bytes())
    found[len(found) // 2] ^= 1
    file.write_bytes(found)


def replace_rows(file: Path) -> None:
    """Writes a valid file with the same number of rows and other values."""
    rows = pq.read_table(file)
    index = rows.schema.get_field_index("total")
    values = rows["total"].take(list(range(rows.num_rows))[::-1])
    pq.write_table(rows.set_column(index, rows.schema.field(index), values), file)
