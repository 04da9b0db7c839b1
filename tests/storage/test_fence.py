"""The fence on real Delta tables: who may commit, and what a conflict leaves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewindow.errors import FencedError, TableError
from rewindow.storage import Position, Table, create_table, data_files, fence, position, query

SCHEMA = pa.schema([("window_id", pa.int64()), ("x", pa.string())])
APP = "replay/out"


def rows(*windows: int) -> pa.Table:
    return pa.table({"window_id": list(windows), "x": ["x"] * len(windows)}, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create_table(tmp_path / "out", SCHEMA, {"rewindow.plan": "{}"})
    return tmp_path / "out"


@given(st.integers(0, 2**20), st.integers(0, 2**40 - 1))
def test_encoded_commit_positions_are_ordered_by_epoch_and_mark(epoch: int, mark: int) -> None:
    # The version is epoch * 2**40 + mark.
    version = Position(epoch, mark).version
    assert (version >> 40, version & (2**40 - 1)) == (epoch, mark)


def test_missing_table_cannot_be_fenced_and_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(TableError, match='table "gone" does not exist'):
        fence(tmp_path / "gone", APP, 1)
    assert not (tmp_path / "gone").exists()


def test_older_attempt_cannot_commit_after_a_newer_fence(path: Path) -> None:
    zombie = fence(path, APP, 1)
    fence(path, APP, 2)
    with pytest.raises(FencedError, match="superseded by attempt 2"):
        zombie.commit(1, rows(1))
    assert query("select count(*) as n from t", t=path)["n"].to_pylist() == [0]


def test_older_attempt_with_a_snapshot_older_than_the_fence_cannot_commit(path: Path) -> None:
    stale = Table.open(path)
    fence(path, APP, 2)
    with pytest.raises(FencedError, match="conflicts with another commit"):
        stale.commit_arrow(rows(1), app_id=APP, version=Position(1, 1).version)
    assert query("select count(*) as n from t", t=path)["n"].to_pylist() == [0]


class Overtaken(Table):
    """A table that a newer attempt fences between a commit of this one and its next look."""

    def refresh(self) -> Table:
        newest = position(Table.open(self.path), APP)
        if newest.epoch == 1 and newest.mark == overtaken_at:
            fence(self.path, APP, 2)
        return super().refresh()


overtaken_at = 0


def test_attempt_superseded_during_its_fence_is_detected(path: Path) -> None:
    with pytest.raises(FencedError, match="superseded by attempt 2"):
        fence(path, APP, 1, open_table=Overtaken.open)


def test_attempt_superseded_during_a_commit_is_detected_and_earlier_commits_stay(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{__name__}.overtaken_at", 3)
    fenced = fence(path, APP, 1, open_table=Overtaken.open)
    with pytest.raises(FencedError, match="superseded by attempt 2"):
        fenced.commit(3, rows(1))
    assert query("select count(*) as n from t", t=path)["n"].to_pylist() == [1]


def test_each_epoch_is_used_by_only_one_attempt(path: Path) -> None:
    fence(path, APP, 3)
    with pytest.raises(FencedError):
        fence(path, APP, 3)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["fence", "commit"]), st.integers(0, 2)), max_size=10)
)
def test_only_the_attempt_with_the_newest_epoch_can_commit(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list,
) -> None:
    path = tmp_path_factory.mktemp("t") / "out"
    create_table(path, SCHEMA)
    newest = 0
    mark = 0
    held = {}
    committed = 0
    for kind, who in steps:
        if kind == "fence":
            newest += 1
            held[who] = (fence(path, APP, newest), newest)
            assert held[who][0].done == mark
        elif who in held:
            table, epoch = held[who]
            if epoch == newest:
                mark += 1
                table.commit(mark, rows(mark))
                committed += 1
            else:
                with pytest.raises(FencedError):
                    table.commit(mark + 1, rows(99))
    assert query("select count(*) as n from t", t=path)["n"].to_pylist() == [committed]
    assert position(Table.open(path), APP) == Position(newest, mark)


def test_files_are_committed_with_their_window_bounds(path: Path) -> None:
    folder = path / "1-2"
    folder.mkdir()
    pq.write_table(rows(5, 6), folder / "a.parquet")
    pq.write_table(rows(), folder / "b.parquet")
    fenced = fence(path, APP, 1)
    fenced.commit(2, data_files(folder))
    assert [(file.rows, file.first, file.last) for file in Table.open(path).files()] == [(2, 5, 6)]
    assert Table.open(path).files(7, 9) == []
    assert query("select x from t where window_id = 6", t=path)["x"].to_pylist() == ["x"]


def test_commit_mark_survives_log_checkpoints(path: Path) -> None:
    fenced = fence(path, APP, 1)
    for mark in range(1, 25):
        fenced.commit(mark, [])
    Table.open(path).delta.create_checkpoint()
    assert position(Table.open(path), APP) == Position(1, 24)


def test_table_that_expires_transactions_is_rejected(path: Path) -> None:
    # The fence and every publication number could vanish from it.
    fence(path, APP, 1)
    name = "delta.setTransactionRetentionDuration"
    Table.open(path).delta.alter.set_table_properties({name: "interval 1 days"})
    with pytest.raises(
        TableError,
        match='table "out" drops transaction ids after interval 1 days',
    ) as error:
        fence(path, APP, 2)
    assert f"UNSET TBLPROPERTIES ('{name}')" in error.value.hint
