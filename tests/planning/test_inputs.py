"""The inputs of a plan: formats, seals, table ids and data files that are not what was recorded are
named.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from rewindow.errors import CheckpointError, InputError, TableError
from rewindow.facts.seals import end_row, read_seals
from rewindow.launcher import begin_attempt
from rewindow.planning import create_replay, draft_plan
from rewindow.planning.inputs import RecordedStream, end_warnings, open_recorded_stream
from rewindow.planning.unpublished import unpublished
from rewindow.settings.config import Config, StreamConfig
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, create_table, query
from rewindow.storage.formats import PROPERTY, TableKind, format_property
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.windows import WindowRange
from tests.planning.options import request
from tests.recovery.project import FIRST, WINDOWS, Project, make_stream

LAST = FIRST + WINDOWS - 1


@pytest.mark.parametrize("of", [draft_plan, unpublished], ids=["plan", "unpublished"])
def test_width_changed_after_the_recording_is_rejected(
    project: Project,
    of: Callable[..., object],
) -> None:
    # Rules: W15
    config = project.config
    width_us = 3_600_000_000
    asked = request() if of is draft_plan else "totals"
    stream = StreamConfig(source="events.csv", arrived_at="at", width=f"{2 * width_us} us")
    changed = config.model_copy(update={"streams": {"events": stream}})
    with pytest.raises(
        InputError,
        match='width of stream "events" is 2 h, but it was recorded with 1 h',
    ) as caught:
        of(changed, asked)
    assert "rewindow record events --start-over" in caught.value.hint
    same = stream.model_copy(update={"width_us": width_us})
    of(config.model_copy(update={"streams": {"events": same}}), asked)


@pytest.mark.parametrize(
    ("stream", "hint"),
    [
        ("clicks", "Record it first: rewindow record clicks"),
        ("clikcs", 'Did you mean "clicks"? rewindow.toml has no [streams.clikcs] to record.'),
        ("counts.totals", "Publish it first: rewindow replay counts"),
    ],
)
def test_unrecorded_input_is_rejected_with_the_next_step(
    project: Project,
    stream: str,
    hint: str,
) -> None:
    known = StreamConfig(source="clicks.csv", arrived_at="at")
    config = project.config.model_copy(update={"streams": {"clicks": known}})
    with pytest.raises(InputError, match=f'stream "{stream}" is not recorded') as caught:
        open_recorded_stream(config, stream)
    assert caught.value.hint == hint


@pytest.mark.parametrize("is_there", [False, True])
def test_input_with_the_old_name_of_timers_is_rejected_with_the_new_name(
    project: Project,
    is_there: bool,
) -> None:
    known = StreamConfig(source="clicks.csv", arrived_at="at", event_at="at", interval="60")
    config = project.config.model_copy(update={"streams": {"clicks": known}})
    old = "heartbeat_clicks.filled"
    if is_there:
        shutil.copytree(config.stream_table("events").local(), config.stream_table(old).local())
    with pytest.raises(
        InputError, match=f'"{old}" was renamed to "heartbeat_clicks.ticks"'
    ) as caught:
        open_recorded_stream(config, old)
    assert caught.value.hint.startswith("Read heartbeat_clicks.ticks")


@pytest.mark.parametrize("name", ["stream_table", "windows_table"])
@pytest.mark.parametrize(
    ("number", "words"),
    [("1", "move all tables of stream events away"), ("99", "newer one")],
)
def test_stream_with_an_unsupported_format_is_rejected_by_name(
    project: Project,
    name: str,
    number: str,
    words: str,
) -> None:
    table = Table.open(getattr(project.config, name)("events"))
    table.set_properties({PROPERTY: number})
    with pytest.raises(
        TableError,
        match=f'table "{table.path.name}" has format {number}',
    ) as raised:
        draft_plan(project.config, request())
    assert words in raised.value.hint


@pytest.mark.parametrize("table", [CHECKPOINTS, FACTS])
@pytest.mark.parametrize(
    ("number", "words"),
    [("2", "rewindow abandon other"), ("99", "newer one")],
)
def test_replay_with_an_unsupported_format_is_rejected_with_a_hint_to_abandon_it(
    project: Project,
    table: str,
    number: str,
    words: str,
) -> None:
    create_replay(project.config, request(replay_id="other"))
    Table.open(project.config.replay_root("other") / table).set_properties({PROPERTY: number})
    with pytest.raises(TableError, match=f'replay "other" has format {number}') as raised:
        begin_attempt(project.config, "other")
    assert words in raised.value.hint


def test_damaged_seal_is_reported_before_anything_is_planned(project: Project) -> None:
    table = Table.open(project.config.windows_table("events"))
    rows = read_seals(table)
    place = rows.column_names.index("tuples")
    flipped = rows.set_column(place, "tuples", pc.add(rows["tuples"], 1))
    write_deltalake(table.delta, flipped, mode="overwrite")
    with pytest.raises(TableError, match=f"seal of window {FIRST} of stream .events. is damaged"):
        draft_plan(project.config, request())


def test_seals_of_another_table_are_rejected(project: Project) -> None:
    path = project.config.stream_table("events")
    schema = Table.open(path).schema
    shutil.rmtree(path)
    create_table(path, schema, format_property(TableKind.STREAM))
    with pytest.raises(TableError, match="belong to a table that was replaced"):
        draft_plan(project.config, request())


def test_windows_after_the_end_of_a_stream_are_treated_as_sealed_and_empty(
    project: Project,
) -> None:
    # Rules: W36, X21
    config = project.config
    data = Table.open(config.stream_table("events"))
    windows = Table.open(config.windows_table("events"))
    windows.commit_arrow(end_row(data, LAST), app_id="record", version=2)
    assert draft_plan(config, request()).plan.last == LAST
    plan = draft_plan(config, request(last=LAST + 40)).plan
    assert (plan.last, plan.inputs[0].missing, plan.inputs[0].tuples) == (
        LAST + 40,
        [],
        project_tuples(config),
    )


def project_tuples(config: Config) -> int:
    return sum(file.rows for file in Table.open(config.stream_table("events")).files())


def test_attempt_rejects_an_input_table_other_than_the_planned_one(project: Project) -> None:
    path = project.config.stream_table("events")
    plan = create_replay(project.config, request(replay_id="one"))
    assert plan.inputs[0].table_id == Table.open(path).id
    _record_again(project.config, "events")
    with pytest.raises(
        TableError,
        match='stream "events" is not the table that the replay was planned',
    ):
        begin_attempt(project.config, "one")


@pytest.mark.parametrize(
    ("state_from", "words"),
    [(None, "the published state at window"), ("one", "the state of replay .one.")],
)
def test_start_state_of_another_table_is_rejected(
    project: Project,
    state_from: str | None,
    words: str,
) -> None:
    config = project.config
    plan = create_replay(config, request(replay_id="one"))
    made = stored.Provenance.of(plan, 1)
    before = LAST - 3
    totals = pa.schema([("key", pa.string()), ("total", pa.int64())]).empty_table()
    states = stored.encode(before, WINDOWS - 3, {"totals": totals}, {"totals": 1}, made)
    create_table(
        config.checkpoints_table("totals"),
        stored.SCHEMA,
        format_property(TableKind.STATES),
    ).append(states)
    Table.open(config.replay_root("one") / CHECKPOINTS).append(states)
    replay_options = request(first=before + 1, state_from=state_from)
    assert draft_plan(config, replay_options).plan.start.window == before
    _record_again(config, "events")
    with pytest.raises(
        CheckpointError,
        match=f'{words}.* was computed from another table of stream "events"',
    ) as raised:
        draft_plan(config, replay_options)
    assert plan.inputs[0].table_id in raised.value.detail


def _record_again(config: Config, name: str) -> None:
    """Deletes a stream's tables by hand and makes them anew, with the same tuples."""
    rows = query("select * from t", t=Table.open(config.stream_table(name)))
    sealed = read_seals(Table.open(config.windows_table(name)))
    for path in (config.stream_table(name), config.windows_table(name), config.files_table(name)):
        shutil.rmtree(path)
    counts = dict(zip(sealed["window_id"].to_pylist(), sealed["tuples"].to_pylist(), strict=True))
    make_stream(config, name, rows, counts, width_ms=3_600_000)


def test_plan_reports_an_input_file_with_a_wrong_size(project: Project) -> None:
    (file,) = Table.open(project.config.stream_table("events")).files()
    with Path(file.path).open("ab") as stream:
        stream.write(b"!")
    with pytest.raises(
        TableError,
        match=rf'of stream "events" has {file.size + 1:,} bytes, but {file.size:,} were recorded',
    ):
        draft_plan(project.config, request())
    Path(file.path).unlink()
    with pytest.raises(TableError, match='of stream "events" cannot be read: No such file'):
        draft_plan(project.config, request())


@pytest.mark.parametrize(
    ("wish", "setting", "verified"),
    [(None, True, True), (None, False, False), (True, False, True)],
)
def test_plan_stores_whether_checksums_are_compared(
    project: Project,
    wish: bool | None,
    setting: bool,
    verified: bool,
) -> None:
    config = project.config
    config.__dict__["replay"] = config.replay.model_copy(update={"verify_inputs": setting})
    assert draft_plan(config, request(verify_inputs=wish)).plan.verify_inputs is verified


def test_files_written_by_another_program_cause_a_warning(project: Project) -> None:
    data = Table.open(project.config.stream_table("events"))
    rows = query("select * from t", t=data)
    data.delta.delete()
    data.refresh().append(rows)
    plan = draft_plan(project.config, request()).plan
    assert plan.inputs[0].foreign_files == 1
    assert any("rewindow streams upgrade events" in warning for warning in plan.warnings)


def test_windows_after_the_end_of_all_inputs_cause_a_warning() -> None:
    # Rules: X21
    # They are empty, so a slip in --to would otherwise go unnoticed.
    def stream(end: int | None) -> RecordedStream:
        return RecordedStream(cast("Table", None), cast("Table", None), WindowRange(1, 9), end)

    ended = stream(9)
    other = stream(7)
    going = stream(None)
    assert end_warnings({"a": ended, "b": other}, WindowRange(5, 12)) == [
        "3 windows are after the end of a, b, window 9: they are empty"
    ]
    assert end_warnings({"a": ended}, WindowRange(20, 21)) == [
        "2 windows are after the end of a, window 9: they are empty"
    ]
    assert end_warnings({"a": ended, "b": going}, WindowRange(5, 12)) == []
    assert end_warnings({"a": ended}, WindowRange(5, 9)) == []
