"""The range of a scheduled run over streams that have ended; no Spark."""

from __future__ import annotations

from pathlib import Path

from rewindow.facts.seals import end_row
from rewindow.storage import Table
from rewindow_airflow.replay_requests import sealed_range
from tests.recovery.project import FIRST, WINDOWS, make_project


def test_sealed_range_is_final_after_all_inputs_have_ended(tmp_path: Path) -> None:
    config = make_project(tmp_path).config
    _, before, final = sealed_range(config, "totals")
    assert (before.last, final) == (FIRST + WINDOWS - 1, False)
    row = end_row(Table.open(config.stream_table("events")), before.last)
    Table.open(config.windows_table("events")).append(row)
    _, after, final = sealed_range(config, "totals")
    assert (after, final) == (before, True)
