"""Planning: what is pinned, and what is refused before anything runs. No JVM."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rewindow.application import MODES, Mode
from rewindow.errors import CheckpointError, InputError, RangeError, TableError, ValidationFailed
from rewindow.loading.catalog import load_application
from rewindow.planning import create_replay, draft_plan, planner
from rewindow.planning.containers import output_plan
from rewindow.state import checkpoints as stored
from rewindow.state.files import read_rows
from rewindow.storage import Table, create_table
from rewindow.storage.formats import TableKind, format_property
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.windows import WindowRange
from tests.planning.options import request
from tests.recovery.project import FIRST, ROOT, WINDOWS, Project, seals_of

LAST = FIRST + WINDOWS - 1
FORMAT = format_property(TableKind.SEALS)


def test_plan_pins_inputs_and_shows_guarantees_and_start_state(project: Project) -> None:
    plan = draft_plan(project.config, request()).plan
    assert (plan.first, plan.last, plan.start.source) == (FIRST, LAST, "initial")
    assert [(entry.stream, entry.version) for entry in plan.inputs] == [("events", 1)]
    assert [output.stateful for output in plan.outputs] == [False, True]
    assert all(output.guarantee.startswith("exactly once") for output in plan.outputs)


def test_plan_names_operators_with_external_reads_upstream_of_an_output(project: Project) -> None:
    # Rules: R88
    draft = draft_plan(project.config, request())
    app = draft.loaded.app
    assert not any(output.reads_outside for output in draft.plan.outputs)
    type(app.nodes["totals"].operator).reads_outside = True
    found = {name: output_plan(app, one, draft.plan) for name, one in app.outputs.items()}
    assert found["totals"].reads_outside == ["totals"]
    assert found["sums"].reads_outside == []
    type(app.nodes["sums"].operator).reads_outside = True
    assert output_plan(app, app.outputs["totals"], draft.plan).reads_outside == ["sums", "totals"]


@pytest.mark.parametrize("mode", ["at_least_once", "at_most_once"])
def test_checkpoint_marks_that_split_a_range_into_many_groups_are_reported(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    assert not draft_plan(project.config, request(mode=mode, checkpoint_windows=1)).plan.warnings
    monkeypatch.setattr(planner, "MARKS_MANY", WINDOWS - 1)
    warnings = draft_plan(project.config, request(mode=mode, checkpoint_windows=1)).plan.warnings
    assert [f"leads to {WINDOWS} commit groups" in warning for warning in warnings] == [True]
    assert not draft_plan(project.config, request(mode=mode, checkpoint_windows=2)).plan.warnings


def test_checkpoint_windows_ignored_by_exactly_once_are_reported(
    project: Project,
    tmp_path: Path,
) -> None:
    # Rules: W51, O61, X5
    assert not draft_plan(project.config, request()).plan.warnings
    (warning,) = draft_plan(project.config, request(checkpoint_windows=1)).plan.warnings
    assert (
        "of this replay have no effect" in warning
        and "exactly once saves a checkpoint after every group" in warning
    )
    mixed = request(checkpoint_windows=2, properties={"totals.mode": "at_least_once"})
    assert not draft_plan(project.config, mixed).plan.warnings
    source = (project.config.applications[0] / "totals.py").read_text()
    (tmp_path / "own").mkdir()
    own = source.replace("RunningTotal(), sums", "RunningTotal(), checkpoint_windows=7, sums")
    (tmp_path / "own" / "totals.py").write_text(own)
    config = project.config.model_copy(update={"applications": [tmp_path / "own"]})
    (warning,) = draft_plan(config, request()).plan.warnings
    assert "checkpoint windows of totals have no effect" in warning
    assert not draft_plan(config, request(mode="at_least_once")).plan.warnings


def test_application_windows_that_a_checkpoint_may_split_are_reported(
    project: Project,
    tmp_path: Path,
) -> None:
    # Rules: W49, W50
    source = (project.config.applications[0] / "totals.py").read_text()
    for waits, said in ((7, True), (8, False)):
        given = f"RunningTotal(), application_windows=4, checkpoint_windows={waits}, sums"
        folder = tmp_path / str(
            waits
        )  # Python would take one file, rewritten within a second, for the same code.
        folder.mkdir()
        config = project.config.model_copy(update={"applications": [folder]})
        (folder / "totals.py").write_text(source.replace("RunningTotal(), sums", given))
        warnings = draft_plan(config, request(mode="at_least_once")).plan.warnings
        assert (
            any("may be saved inside its application windows" in text for text in warnings) == said
        )
        assert not any(
            "application windows" in text for text in draft_plan(config, request()).plan.warnings
        )


def test_recovery_mode_can_be_selected_by_name(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mode = Mode("saved_at_marks", "every window once, saved at marks")
    monkeypatch.setitem(MODES, mode.name, mode)
    plan = draft_plan(project.config, request(mode="saved at marks", checkpoint_windows=2)).plan
    assert plan.mode is mode and {output.guarantee for output in plan.outputs} == {mode.promise}
    assert plan.loss_windows_max == 0 and not [
        text for text in plan.warnings if "have no effect" in text
    ]


def test_dry_run_of_a_plan_creates_nothing(project: Project) -> None:
    draft_plan(project.config, request())
    assert not (project.config.state / "replays").exists()


def test_planning_starts_no_jvm(project: Project) -> None:
    # It runs in a separate process, because other tests have Spark sessions in this one.
    code = (
        "import sys, pyspark; from rewindow.settings.config import Config; from rewindow.planning "
        "import *;"
        "from pathlib import Path;"
        "draft_plan(Config.load(Path(sys.argv[1])), ReplayRequest('totals'));"
        "sys.exit(pyspark.SparkContext._gateway is not None)"
    )
    settings = project.config.root / "rewindow.toml"
    assert (
        subprocess.run(
            [sys.executable, "-c", code, str(settings)],
            check=False,
            cwd=ROOT,
        ).returncode
        == 0
    )


@pytest.mark.parametrize(
    ("replay_options", "error", "words"),
    [
        ({"application": "nosuch"}, InputError, 'application "nosuch" is unknown'),
        ({"mode": "twice"}, InputError, 'recovery mode "twice" is unknown'),
        ({"first": LAST, "last": FIRST}, RangeError, "window range is empty"),
        ({"first": LAST + 10, "last": LAST + 12}, RangeError, "is after the sealed windows"),
        (
            {"from_time": "1970-02-13"},
            RangeError,
            f"from {LAST + 9} on is after the sealed windows",
        ),
        ({"first": LAST + 10}, RangeError, f"from {LAST + 10} on is after the sealed windows"),
        ({"last": FIRST - 1}, RangeError, f"up to {FIRST - 1} is before the sealed windows"),
        (
            {"first": LAST, "last": FIRST},
            RangeError,
            f"Swap the two ends: --first {FIRST} --last {LAST}",
        ),
        (
            {"from_time": "1970-02-12T10:00Z", "to_time": "1970-02-12"},
            RangeError,
            "Swap the two ends: --from 1970-02-12T00:00:00Z --to 1970-02-12T10:00:00Z",
        ),
        ({"first": 1, "last": 2}, RangeError, "before the sealed windows"),
        ({"first": LAST - 1, "last": LAST + 2}, RangeError, "2 missing windows"),
        ({"last": 10**12}, RangeError, "windows, but at most 20,000,000 are allowed"),
        (
            {"last": 10**30, "allow_missing": True},
            RangeError,
            "windows, but at most 20,000,000 are allowed",
        ),
        ({"first": -(10**30)}, RangeError, "windows, but at most 20,000,000 are allowed"),
        ({"to_time": "2100-01-01"}, RangeError, "missing windows"),
        ({"from_time": "1970-02-11T16:30Z"}, RangeError, "not on a window border"),
        ({"from_time": "1970-02-12", "to_time": "1970-02-12"}, RangeError, "time range is empty"),
        ({"from_time": "noon"}, InputError, 'time "noon" cannot be read'),
        ({"from_time": "1970-02-12", "first": FIRST}, RangeError, "not as both"),
        ({"group_windows": 0}, InputError, "at least 1 is needed"),
        (
            {"checkpoint_windows": 0},
            InputError,
            "checkpoint distance must be at least 1 window, not 0",
        ),
        ({"first": FIRST + 1, "state_from": "nosuch"}, InputError, "nosuch"),
        (
            {"first": FIRST + 1, "state_from": "x", "initial_state": True},
            InputError,
            "exclude each other",
        ),
        ({"parameters": {"a": "b"}}, InputError, "takes no parameters"),
    ],
)
def test_invalid_request_is_rejected_and_creates_nothing(
    project: Project,
    replay_options: dict,
    error: type,
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        create_replay(project.config, request(**replay_options))
    assert not (project.config.state / "replays").exists()


def test_missing_windows_are_replayed_only_when_allowed_and_recorded_in_the_plan(
    project: Project,
) -> None:
    plan = draft_plan(project.config, request(last=LAST + 2, allow_missing=True)).plan
    assert plan.inputs[0].missing == [(LAST + 1, LAST + 2)]


def test_missing_windows_are_computed_without_enumerating_the_range(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(windows: WindowRange) -> None:
        raise AssertionError(f"{windows} is walked through")

    monkeypatch.setattr(WindowRange, "__iter__", refuse)
    plan = draft_plan(
        project.config,
        request(first=5, last=FIRST + 19_000_000, allow_missing=True),
    ).plan
    assert plan.inputs[0].missing == [(5, FIRST - 1), (LAST + 1, FIRST + 19_000_000)]


def test_missing_windows_of_a_warm_up_are_not_treated_as_empty(project: Project) -> None:
    # Rules: W40
    seals = Table.open(project.config.windows_table("events"))
    late = dict.fromkeys(range(LAST + 4, LAST + 9), 0)
    seals.commit_arrow(seals_of(project.config, "events", late), app_id="record", version=2)
    replay_options = {"first": LAST + 4, "last": LAST + 8}
    with pytest.raises(RangeError, match=f"3 missing windows of the warm-up in .*{LAST + 1}"):
        draft_plan(project.config, request(**replay_options))
    plan = draft_plan(project.config, request(**replay_options, allow_missing=True)).plan
    assert plan.start.source == "warm_up" and not plan.inputs[0].missing
    assert any("the warm-up skips 3 missing windows" in warning for warning in plan.warnings)
    assert not draft_plan(
        project.config,
        request(**replay_options, initial_state=True),
    ).plan.warnings


def test_later_range_without_a_checkpoint_warms_up_from_the_first_window(project: Project) -> None:
    start = draft_plan(project.config, request(first=FIRST + 6)).plan.start
    assert (start.source, start.warm_up_first, start.window) == ("warm_up", FIRST, FIRST - 1)


def test_same_request_with_the_same_id_returns_the_same_replay(project: Project) -> None:
    first = create_replay(project.config, request(replay_id="one"))
    assert create_replay(project.config, request(replay_id="one")) == first
    with pytest.raises(InputError, match="already exists with mode"):
        create_replay(project.config, request(replay_id="one", mode="at_most_once"))
    begin, end = (
        datetime.fromtimestamp(window * 3600, UTC).isoformat() for window in (FIRST, LAST + 1)
    )
    assert (
        create_replay(project.config, request(replay_id="one", from_time=begin, to_time=end))
        == first
    )
    create_replay(project.config, request(replay_id="later", first=FIRST + 6))
    with pytest.raises(
        InputError,
        match="already exists with start state from warm_up, but the request has the initial state",
    ):
        create_replay(project.config, request(replay_id="later", initial_state=True))
    with pytest.raises(
        InputError,
        match="already exists with start state from warm_up, but the request has that of one",
    ):
        create_replay(project.config, request(replay_id="later", state_from="one"))
    for wish in ({"from_time": end}, {"group_windows": 5}, {"checkpoint_windows": 7}):
        with pytest.raises(InputError, match="already exists with"):
            create_replay(project.config, request(replay_id="one", **wish))


def test_start_state_is_ignored_for_an_application_without_state(project: Project) -> None:
    create_replay(project.config, request(replay_id="one"))
    wish = request(application="rejects", replay_id="two", state_from="one")
    assert create_replay(project.config, wish) == create_replay(project.config, wish)


BEATS = """
import pyarrow as pa
from rewindow.application import Application
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.operators.merge.operator import Merge

COLUMNS = pa.schema([
    ("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", pa.timestamp("us", tz="UTC")),
    ("key", pa.string()), ("x", pa.int64()),
])


def build(shown="no"):
    app = Application("beats", window="1 hour")
    beat = Heartbeat(interval=600, event_at="arrived_at", key_by=("key",), columns=COLUMNS)
    node = app.add("beat", beat, stream=app.input("events"))
    both = Merge(columns=beat.output_ports()["out"].schema, event_at="arrived_at",
        order_by=("_rw_emission",))
    app.output("both", app.add("both", both, left=node, right=node), key=["_rw_emission"])
    if shown == "yes":
        app.output("beat", node, key=["_rw_emission"])
    return app
"""


def test_plan_warns_if_heartbeat_timers_cannot_be_restored_after_a_loss(
    project: Project,
) -> None:
    # Rules: H58, X30
    # Only at most once loses windows, and only an output remembers their timers.
    folder = project.config.root / "applications"
    folder.mkdir()
    (folder / "beats.py").write_text(BEATS)
    config = project.config.model_copy(update={"applications": [folder]})

    def warnings(mode: str, shown: str) -> list[str]:
        return draft_plan(
            config,
            request(application="beats", mode=mode, parameters={"shown": shown}),
        ).plan.warnings

    assert [
        text
        for text in warnings("at_most_once", "no")
        if "beat: its tuples are not an output" in text
    ]
    assert not [text for text in warnings("at_most_once", "yes") if "come twice" in text]
    assert not [text for text in warnings("exactly_once", "no") if "come twice" in text]


@pytest.mark.parametrize("replay_id", ["published", "..", "a/b", "", "a b", "-x"])
def test_reserved_or_unsafe_replay_id_is_rejected(project: Project, replay_id: str) -> None:
    # The id becomes a folder name, and certify reads "published" as the published tables.
    with pytest.raises(InputError, match="cannot be used"):
        create_replay(project.config, request(replay_id=replay_id))


def test_application_that_cannot_be_built_is_rejected_with_its_exception(project: Project) -> None:
    folder = project.config.root / "applications"
    folder.mkdir()
    (folder / "fussy.py").write_text("def build(x):\n    raise ValueError(f'x is {x}')\n")
    config = project.config.model_copy(update={"applications": [folder]})
    with pytest.raises(InputError, match="cannot be built with x=1: ValueError: x is 1"):
        draft_plan(config, request(application="fussy", parameters={"x": "1"}))
    with pytest.raises(InputError, match="cannot be built with y=1"):
        draft_plan(config, request(application="fussy", parameters={"y": "1"}))


def test_all_tables_exist_before_the_first_attempt(project: Project) -> None:
    plan = create_replay(project.config, request(replay_id="one"))
    root = project.config.replay_root("one")
    assert all(Table.exists(root / name) for name in ("sums", "totals", FACTS, CHECKPOINTS))
    assert Table.open(root / CHECKPOINTS).properties["rewindow.plan"] == plan.model_dump_json()


def test_start_state_is_stored_as_checkpoint_0_before_the_first_window(project: Project) -> None:
    # Rules: R9, X4
    plan = create_replay(project.config, request(replay_id="one"))
    table = Table.open(project.config.replay_root("one") / CHECKPOINTS)
    start = stored.load(table, 0)
    assert (start.window, start.mark) == (plan.first - 1, 0)
    totals = load_application(project.config, "totals").app.nodes["totals"].operator
    assert {name: read_rows(state) for name, state in start.states.items()} == {
        "totals": totals.initial_state()
    }


def test_stream_with_a_different_window_grid_is_rejected(project: Project) -> None:
    # Rules: W15
    _reseal(project, {**FORMAT, "rewindow.width_ms": "60000", "rewindow.origin_ms": "0"})
    with pytest.raises(
        InputError,
        match='has windows of 1 min, but application "totals" has windows of 1 h\n',
    ) as caught:
        draft_plan(project.config, request())
    assert (
        'window="1 min"' in caught.value.hint
        and "rewindow record events --start-over" in caught.value.hint
    )


def test_table_without_a_stored_window_grid_is_rejected(project: Project) -> None:
    _reseal(project, FORMAT)
    with pytest.raises(TableError, match="was not created by Rewindow"):
        draft_plan(project.config, request())


def test_stream_with_wrong_column_types_is_rejected_with_column_and_types(project: Project) -> None:
    # Rules: O13
    shutil.rmtree(path := project.config.stream_table("events"))
    schema = pa.schema([(name, pa.int64()) for name in ("window_id", "key", "x")])
    create_table(path, schema, format_property(TableKind.STREAM))
    with pytest.raises(ValidationFailed, match='stream "events" has key .*, but the port requires'):
        draft_plan(project.config, request())
    _reseal(project, {**FORMAT, "rewindow.width_ms": "60000", "rewindow.origin_ms": "0"})
    with pytest.raises(
        ValidationFailed,
        match="(?s)it has 2 violations.*the stream has windows of 1 min",
    ):
        draft_plan(project.config, request())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'app.add("totals"',
            'app.add("renamed"',
            "has the states of totals, but the application needs renamed",
        ),
        (
            "state_schema: ClassVar = TOTALS",
            "state_schema: ClassVar = EVENTS",
            "key string, x int64",
        ),
        (
            "state_schema: ClassVar = TOTALS",
            "state_schema: ClassVar = TOTALS; state_version = 2",
            "the operator needs version 2",
        ),
    ],
)
def test_incompatible_start_state_is_always_rejected(
    project: Project,
    old: str,
    new: str,
    words: str,
) -> None:
    # Rules: W65
    create_replay(project.config, request(replay_id="one"))
    source = (project.config.applications[0] / "totals.py").read_text()
    folder = project.config.root / "changed"
    folder.mkdir()
    (folder / "totals.py").write_text(source.replace(old, new))
    changed = project.config.model_copy(update={"applications": [folder]})
    with pytest.raises(CheckpointError, match=words) as error:
        draft_plan(changed, request(state_from="one", allow_other_code=True))
    assert "Start the range from the initial state or a warm-up" in (error.value.hint or "")


def _reseal(project: Project, properties: dict[str, str]) -> None:
    path = project.config.windows_table("events")
    schema = Table.open(path).schema
    rows = Table.open(path)
    import pyarrow.parquet as pq

    kept = pa.concat_tables(
        [pq.read_table(file.path, partitioning=None) for file in rows.files()]
    ).cast(schema)
    shutil.rmtree(path)
    create_table(path, schema, properties).commit_arrow(kept, app_id="record", version=1)


def test_plan_shows_the_largest_loss_of_a_crash_and_a_setting_limits_it(project: Project) -> None:
    # Rules: X1
    config = project.config
    wish = {"mode": "at_most_once", "checkpoint_windows": 6}
    assert draft_plan(config, request(**wish)).plan.loss_windows_max == 6
    assert draft_plan(config, request(**wish, group_windows=2)).plan.loss_windows_max == 2
    assert draft_plan(config, request()).plan.loss_windows_max == 0
    bounded = config.model_copy(
        update={"replay": config.replay.model_copy(update={"loss_windows_max": 4})}
    )
    plan = draft_plan(bounded, request(**wish)).plan
    assert (plan.loss_windows_max, plan.unseen_windows_max) == (4, 6)
    assert {output.name: output.guarantee for output in plan.outputs}["totals"] == (
        "at most once: nothing repeated; an attempt that dies loses at most 4 windows of an "
        "output, listed; "
        "its state then lacks at most 6 windows, and later windows are affected"
    )
    with pytest.raises(InputError, match="at most 4 are allowed in at most once"):
        draft_plan(bounded, request(**wish, group_windows=5))


def test_plan_with_a_published_stream_shows_its_expiry(project: Project) -> None:
    assert not draft_plan(project.config, request()).plan.warnings
    seals = Table.open(project.config.windows_table("events"))
    _reseal(project, {**seals.properties, "rewindow.application": "clicks"})
    path = project.config.stream_table("events")
    DeltaTable(str(path)).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 5 days"}
    )
    table = Table.open(path)
    committed = datetime.fromtimestamp(table.delta.history(1)[0]["timestamp"] / 1000, UTC)
    (warning,) = draft_plan(project.config, request()).plan.warnings
    assert f"until {(committed + timedelta(days=5)).isoformat().removesuffix('+00:00')}Z" in warning
    assert f"keeps version {table.version}" in warning


def test_suite_errors_are_reported_with_all_other_violations(
    project: Project,
    tmp_path: Path,
) -> None:
    # Rules: O60
    source = (project.config.applications[0] / "totals.py").read_text()
    own = tmp_path / "own"
    own.mkdir()
    flawed = source.replace('key=["', 'suite="not_there", key=["').replace(
        "RunningTotal(), sums",
        "RunningTotal(), summs",
    )
    (own / "totals.py").write_text(flawed)
    config = project.config.model_copy(update={"applications": [own]})
    for ask in (draft_plan, create_replay):
        with pytest.raises(ValidationFailed) as refused:
            ask(config, request(replay_id="flawed"))
        said = str(refused.value)
        assert 'suite "not_there" has no file' in said and "summs" in said
    assert not config.replay_root("flawed").exists()
