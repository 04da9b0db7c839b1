"""States in files: the same states and promises as in cells, and nothing that no checkpoint names
stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.application import Application, FrameOperator
from rewindow.crash import Step
from rewindow.errors import InputError
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.state import store
from rewindow.state.files import StateFiles, folder_of, read_rows, write_rows
from rewindow.state.store import FileStates, InlineStates, SizedStates
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS
from tests.engine.conftest import Crash
from tests.recovery.project import FIRST, WINDOWS
from tests.recovery.promises import check_promise, last_state
from tests.state.test_row_hash import VALUES, random_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rewindow.engine.attempt import Attempt

KEY = ("text", "long")
IN_FILES = {"inline_state_bytes": 0}


def node_of(schema: Any, key: tuple[str, ...] = KEY, buckets: int = 4) -> Any:
    class Keeps(FrameOperator):
        state_schema = schema
        state_key = key
        state_buckets = buckets

    return Application("app", window="1 hour").add("keeps", Keeps())


@pytest.mark.parametrize("key", [KEY, ()])
def test_state_has_the_same_rows_and_digest_in_both_storage_formats(
    key: tuple[str, ...],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    # Rules: X48
    rows = random_frame(random.Random(5), list(VALUES), 200)
    frame = spark.createDataFrame(rows)
    inline = InlineStates(spark)
    kept = inline.save(node_of(rows.schema), frame, "")
    want = stored.frame_digest(kept)
    by_spark = [
        FileStates(spark, tmp_path).save(node_of(rows.schema, key, n), frame, f"s{n}")
        for n in (1, 4)
    ]
    by_python = write_rows(kept, tmp_path, "p", key, 8)
    for state in (*by_spark, by_python):
        state.check()
        assert (state.digest, stored.frame_digest(read_rows(state))) == (want, want)
        assert (
            stored.frame_digest(
                inline.save(node_of(rows.schema), FileStates(spark, tmp_path).load(state), "")
            )
            == want
        )
    assert len(by_spark[1].files) == 4 and {file.bucket for file in by_spark[1].files} == {
        0,
        1,
        2,
        3,
    }
    sizes = {
        file.bucket: (file.rows, file.hashes)
        for file in write_rows(kept, tmp_path, "q", key, 4).files
    }
    assert {file.bucket: (file.rows, file.hashes) for file in by_spark[1].files} == sizes


def test_storage_format_of_a_state_depends_on_its_size(spark: SparkSession, tmp_path: Path) -> None:
    rows = random_frame(random.Random(6), ["text", "long"], 200)
    node = node_of(rows.schema)
    frame = spark.createDataFrame(rows)
    small = rows.slice(0, 0)
    bound = rows.nbytes + 1000
    states = SizedStates(spark, tmp_path, bound)
    strict = SizedStates(spark, tmp_path, 100)
    in_memory = states.save(node, frame, small, "1-1", is_small=True)
    assert not isinstance(in_memory, StateFiles)
    assert not isinstance(states.save(node, frame, small, "1-2", is_small=False), StateFiles)
    assert not any(tmp_path.glob("1-2/*"))
    for is_small in (True, False):
        outgrown = strict.save(node, frame, small, f"1-3{is_small}", is_small=is_small)
        assert isinstance(outgrown, StateFiles) and outgrown.digest == stored.frame_digest(
            in_memory
        )
    assert states.save(node, frame, outgrown, "1-4", is_small=True).equals(
        read_rows(states.save(node, frame, outgrown, "1-5", is_small=True))
    )
    assert (
        SizedStates(spark, tmp_path, 0)
        .save(node, frame.limit(0), outgrown, "1-6", is_small=True)
        .num_rows
        == 0
    )


def test_missing_state_column_is_reported_by_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = random_frame(random.Random(7), ["text", "long"])
    with pytest.raises(InputError, match='state of operator "keeps" lacks the column "long"'):
        FileStates(spark, tmp_path).save(
            node_of(rows.schema),
            spark.createDataFrame(rows).drop("long"),
            "x",
        )


@pytest.mark.long
def test_incremental_state_equals_a_completely_written_state(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "CHANGES_SHARE", 2.5)  # Small files are mostly footers.
    rng = random.Random(8)
    schema = pa.schema([("text", pa.string()), ("long", pa.int64()), ("value", pa.float64())])
    node = node_of(schema)
    states = SizedStates(spark, tmp_path, 0)
    kept: dict[tuple, float] = {(text, n): float(n) for text in ("a", "b", None) for n in range(40)}
    state = states.save(
        node,
        spark.createDataFrame(table_of(kept, schema)),
        schema.empty_table(),
        "0",
        is_small=False,
    )
    steps = []
    for step in range(1, 9):
        keys = [
            (rng.choice(["a", "b", None, "new"]), rng.randrange(60))
            for _ in range(6 + 4 * (step == 5))
        ]
        values = {key: rng.choice([None, 0.5, 1.5, 2.5]) for key in keys}
        rows = table_of({key: value or 0.0 for key, value in values.items()}, schema)
        gone = pa.array([value is None for value in values.values()])
        changes = spark.createDataFrame(rows.append_column("_rw_gone", gone))
        state = states.save_changes(
            node,
            changes,
            state,
            f"{step}",
            is_small=False,
            tuples=len(keys),
        )
        kept |= {key: value for key, value in values.items() if value is not None}
        kept = {key: value for key, value in kept.items() if values.get(key, value) is not None}
        assert isinstance(state, StateFiles)
        state.check()
        steps.append(state.steps)
        want = stored.frame_digest(table_of(kept, schema))
        read = InlineStates(spark).save(node, states.load(state), "")
        assert (state.rows, state.digest) == (len(kept), want)
        assert {stored.frame_digest(read), stored.frame_digest(read_rows(state))} == {want}
    assert 0 in steps and max(steps) >= 2, (
        f"the base was never kept, or never written anew: {steps}"
    )
    row = stored.encode(
        1,
        1,
        {"keeps": state},
        {"keeps": 1},
        stored.Provenance({}, 1),
    ).to_pylist()[0]
    again = StateFiles.from_json(row["files"], tmp_path, schema, row["rows"])
    assert again == state


def test_large_group_or_empty_state_causes_a_complete_write_of_the_state(
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    schema = pa.schema([("text", pa.string()), ("long", pa.int64())])
    node = node_of(schema)
    states = SizedStates(spark, tmp_path, 0)
    rows = pa.table({"text": ["a", "b"], "long": [1, 2]}, schema=schema)
    base = states.save(node, spark.createDataFrame(rows), schema.empty_table(), "0", is_small=False)
    all_gone = spark.createDataFrame(rows.append_column("_rw_gone", pa.array([True, True])))
    for place, tuples in (("1", 100), ("2", 1)):
        assert (
            states.save_changes(node, all_gone, base, place, is_small=False, tuples=tuples).num_rows
            == 0
        )
    assert not list(tmp_path.glob("[12]/keeps/*"))
    same = states.save_changes(
        node,
        spark.createDataFrame(rows),
        base,
        "3",
        is_small=False,
        tuples=100,
    )
    assert same.steps == 0 and same.digest == base.digest


@pytest.mark.parametrize("is_small", [True, False])
def test_large_group_replaces_all_rows_of_its_keys_and_keeps_other_keys(
    is_small: bool,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    schema = pa.schema([("text", pa.string()), ("long", pa.int64()), ("value", pa.float64())])
    node = node_of(schema)
    states = SizedStates(spark, tmp_path, 10_000 if is_small else 0)
    there = [
        ("a", 1, 1.0),
        ("a", 1, 2.0),
        ("a", 2, 3.0),
        ("b", 1, 4.0),
        ("b", 1, 4.0),
        (None, 1, 5.0),
    ]
    before = pa.table(list(zip(*there, strict=True)), schema=schema)
    base = (
        before
        if is_small
        else states.save(node, spark.createDataFrame(before), before, "0", is_small=False)
    )
    new = [
        ("a", 1, 6.0, None),
        ("a", 2, 3.0, True),
        (None, 1, 7.0, False),
        (None, 1, 8.0, False),
        ("c", 1, 9.0, None),
    ]
    changes = pa.table(
        list(zip(*new, strict=True)),
        schema=pa.schema([*schema, ("_rw_gone", pa.bool_())]),
    )
    after = states.save_changes(
        node,
        spark.createDataFrame(changes),
        base,
        "1",
        is_small=is_small,
        tuples=100,
    )
    want = [
        ("a", 1, 6.0),
        ("b", 1, 4.0),
        ("b", 1, 4.0),
        (None, 1, 7.0),
        (None, 1, 8.0),
        ("c", 1, 9.0),
    ]
    found = [tuple(row.values()) for row in read_rows(after).to_pylist()]
    assert (
        sorted(found, key=repr) == sorted(want, key=repr)
        and isinstance(after, StateFiles) is not is_small
    )


def table_of(kept: dict[tuple, float], schema: pa.Schema) -> pa.Table:
    rows = [(*key, value) for key, value in kept.items()]
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows],
        schema=schema,
    )


def state_folder(config: Config, replay_id: str) -> Path:
    return folder_of(config.replay_root(replay_id) / CHECKPOINTS)


def _in_the_matrix(*values: str) -> list[Any]:
    """Returns values of a parameter that `make test-recovery` tries."""
    return [pytest.param(value, marks=pytest.mark.recovery_matrix) for value in values]


def named_and_there(config: Config, replay_id: str) -> tuple[set[str], set[str]]:
    """Returns the folders of files of states that checkpoints name, and those that are there."""
    folder = state_folder(config, replay_id)
    there = {str(path.parent.relative_to(folder)) for path in folder.rglob("*.parquet")}
    return stored.state_leaves(Table.open(config.replay_root(replay_id) / CHECKPOINTS)), there


@pytest.mark.long
@pytest.mark.parametrize("mode", ["exactly_once", *_in_the_matrix("at_least_once", "at_most_once")])
@pytest.mark.parametrize(
    "application",
    [pytest.param("totals", marks=pytest.mark.exhaustive), "tallies"],
)
def test_every_mode_keeps_its_guarantee_with_states_in_files(
    application: str,
    mode: str,
    attempt: Callable[..., Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "CHANGES_SHARE", 1000)
    config: Config = attempt.config  # type: ignore[attr-defined]
    replay_options = {"group_windows": 4, **IN_FILES}
    whole = attempt(application, "whole", group_windows=WINDOWS)
    whole.run()
    for dies_at in ((Step.AFTER_FIRST_OUTPUT, 3), (Step.AFTER_FACTS, 2)):
        with pytest.raises(Crash):
            attempt(application, "one", dies_at, mode=mode, **replay_options).run()
        named, there = named_and_there(config, "one")
        assert named <= there and len(there - named) <= 2, "before and after the group that died"
    last = attempt(application, "one", mode=mode, **replay_options)
    last.run()
    check_promise(config, last.plan, whole.plan)
    named, there = named_and_there(config, "one")
    assert named == there and named
    if mode != "at_most_once":
        digests = [
            stored.state_digest(
                stored.rows_at(Table.open(config.replay_root(name) / CHECKPOINTS), last.plan.last)
            )
            for name in ("one", "whole")
        ]
        assert digests[0] == digests[1], "one digest, whatever the form"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """Exchanges the file for a good one of the same size with another total."""
    content = path.read_bytes()
    middle = len(content) // 4
    path.write_bytes(content[:4] + bytes(b ^ 1 for b in content[4:middle]) + content[middle:])


def _each_damage_once() -> list[Any]:
    """Returns every mode with every damage: one by `make test`, one a mode with the matrix, all by
    `make test-all`.
    """
    modes = ("exactly_once", "at_least_once", "at_most_once")
    damages = (Path.unlink, cut, flip)
    chosen = dict(zip(modes, damages, strict=True))
    matrix = {mode: () if mode == modes[0] else pytest.mark.recovery_matrix for mode in modes}
    return [
        pytest.param(
            mode,
            damage,
            marks=matrix[mode] if chosen[mode] is damage else pytest.mark.exhaustive,
        )
        for mode in modes
        for damage in damages
    ]


@pytest.mark.long
@pytest.mark.parametrize(("mode", "damage"), _each_damage_once())
def test_recovery_uses_an_older_checkpoint_if_a_bucket_is_damaged(
    mode: str,
    damage: Callable[[Path], None],
    attempt: Callable[..., Attempt],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: R25
    config: Config = attempt.config  # type: ignore[attr-defined]
    replay_options = {"mode": mode, "checkpoint_windows": 3, **IN_FILES}
    whole = attempt("totals", "whole", group_windows=WINDOWS)
    whole.run()
    with pytest.raises(Crash):
        attempt("totals", "one", (Step.STARTED, 5), **replay_options).run()
    newest = stored.load(
        table := Table.open(config.replay_root("one") / CHECKPOINTS),
        stored.marks(table)[-1],
    )
    state = newest.states["totals"]
    assert isinstance(state, StateFiles)
    damage(state.folder / state.files[0].path)
    caplog.clear()
    last = attempt("totals", "one", **replay_options)
    last.run()
    assert any("damaged" in line and "trying an older one" in line for line in caplog.messages)
    cost = "the state will lack" if mode == "at_most_once" else "are computed again"
    newest_window = last.plan.window_of(stored.marks(table)[-1])
    damaged = f"the checkpoint at window {last.plan.grid.describe(newest_window)} is damaged"
    assert any(cost in line and damaged in line for line in caplog.messages)
    check_promise(config, last.plan, whole.plan)


@pytest.mark.long
def test_replay_from_the_state_of_another_replay_links_its_files(
    attempt: Callable[..., Attempt],
) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    attempt("totals", "first", first=FIRST, last=FIRST + 8, **IN_FILES).run()
    second = attempt(
        "totals",
        "second",
        first=FIRST + 9,
        last=FIRST + 23,
        state_from="first",
        **IN_FILES,
    )
    for path in state_folder(config, "first").rglob("*.parquet"):
        path.unlink()
    second.run()
    whole = attempt("totals", "again", group_windows=WINDOWS)
    whole.run()
    assert last_state(config, second.plan) == last_state(config, whole.plan)
