"""Checkpoints: what is stored comes back, what is damaged is named."""

from __future__ import annotations

import resource
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random, getrandbits

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.errors import CheckpointError, ResourceError
from rewindow.state import checkpoints as stored
from rewindow.state.files import folder_of, read_rows, write_rows
from rewindow.storage import create_table

MADE = stored.Provenance({}, 1)
VALUES = st.lists(
    st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text(max_size=3)),
    max_size=8,
)


def frame(rows: list) -> pa.Table:
    return pa.table(
        {"n": [n for n, _ in rows], "s": [s for _, s in rows]},
        schema=pa.schema([("n", pa.int64()), ("s", pa.string())]),
    )


@given(VALUES, st.randoms())
def test_state_digest_depends_on_the_multiset_of_rows(rows: list, rng: object) -> None:
    shuffled = list(rows)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert stored.frame_digest(frame(rows)) == stored.frame_digest(frame(shuffled))
    assert stored.frame_digest(frame(rows)) != stored.frame_digest(frame([*rows, (None, "")]))


@given(VALUES, VALUES)
def test_digests_of_different_multisets_differ(one: list, other: list) -> None:
    same = sorted(map(repr, one)) == sorted(map(repr, other))
    assert (stored.frame_digest(frame(one)) == stored.frame_digest(frame(other))) == same


def test_state_digest_supports_every_column_type() -> None:
    columns = {
        "d": [Decimal("1.20"), None], "t": [datetime(2020, 1, 1, tzinfo=UTC), None],
        "b": [True, None],
        "y": [b"x", None], "f": [1.5, None], "l": [[1, None], []],
    }  # fmt: skip
    changed = {
        "d": [Decimal("1.21"), None], "t": [None, None], "b": [False, None], "y": [b"", None],
        "f": [1.25, None],
        "l": [[1], [None]],
    }  # fmt: skip
    base = pa.table(columns)
    others = [pa.table({**columns, name: changed[name]}, schema=base.schema) for name in columns]
    assert len({stored.frame_digest(frame) for frame in (base, *others)}) == 7


def test_checkpoint_of_the_newest_attempt_is_read(tmp_path: Path) -> None:
    # Rules: X33
    table = create_table(tmp_path / "c", stored.SCHEMA)
    for attempt, value in ((1, "old"), (2, "new")):
        made = stored.Provenance({}, attempt)
        rows = stored.encode(9, 3, {"op": pa.table({"k": [value]})}, {"op": 1}, made)
        table.commit_arrow(rows, app_id="r", version=attempt)
    found = stored.load(table, 3)
    assert (found.window, found.states["op"].to_pydict()) == (9, {"k": ["new"]})
    assert stored.marks(table) == [3]


def test_checkpoint_of_an_empty_state_is_stored(tmp_path: Path) -> None:
    # Rules: W71
    table = create_table(tmp_path / "c", stored.SCHEMA)
    table.commit_arrow(stored.encode(9, 3, {}, {}, MADE), app_id="r", version=1)
    assert stored.marks(table) == [3] and stored.load(table, 3).states == {}


def test_damaged_state_is_reported_with_operator_and_window() -> None:
    row = stored.encode(9, 3, {"op": pa.table({"k": ["a"]})}, {"op": 1}, MADE).to_pylist()[0]
    for damage in ({"state": b"rubbish"}, {"digest": "0" * 32}, {"state": None}):
        with pytest.raises(CheckpointError, match='"op" at window 9 is damaged'):
            stored.decode({**row, **damage}, Path())


def test_temporarily_unreadable_checkpoint_is_retryable_and_not_skipped(tmp_path: Path) -> None:
    # Rules: R25
    table = create_table(tmp_path / "r" / "c", stored.SCHEMA)
    table.commit_arrow(stored.encode(9, 3, {}, {}, MADE), app_id="r", version=1)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(
            ResourceError,
            match='table "c" cannot be read: too many open files',
        ) as error:
            stored.marks(table)
        with pytest.raises(ResourceError):
            stored.load(table, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert error.value.retryable and stored.marks(table) == [3]


@pytest.mark.parametrize("damage", ["gone", "garbled", "cut", "folder"])
def test_damaged_or_missing_checkpoint_file_falls_back_to_an_older_one(
    damage: str,
    tmp_path: Path,
) -> None:
    table = create_table(tmp_path / "c", stored.SCHEMA)
    for version, mark in ((1, 3), (2, 6)):
        table.commit_arrow(stored.encode(9, mark, {}, {}, MADE), app_id="r", version=version)
    newest = next(
        Path(file.path)
        for file in table.files()
        if table.read(file, ["mark"])["mark"][0].as_py() == 6
    )
    content = newest.read_bytes()
    newest.unlink()
    if damage == "folder":
        newest.mkdir()
    elif damage != "gone":
        newest.write_bytes(
            b"x" * len(content) if damage == "garbled" else content[: len(content) // 2]
        )
    assert stored.marks(table) == [3]


def test_missing_checkpoint_is_an_error_and_not_an_empty_state(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not found at mark 7"):
        stored.load(create_table(tmp_path / "c", stored.SCHEMA), 7)


FLIPS = 300


@pytest.mark.parametrize("in_files", [False, True])
def test_flipped_byte_in_a_state_is_reported_as_a_damaged_checkpoint(
    tmp_path: Path, in_files: bool
) -> None:
    seed = getrandbits(32)
    random = Random(seed)
    rows = pa.table(
        {
            "carrier": [f"carrier {number}" for number in range(40)],
            "counts": [[number, None] for number in range(40)],
            "minutes": pa.array(range(40), pa.int64()),
        }
    )
    folder = folder_of(tmp_path / "c")
    state = write_rows(rows, folder, "1-9/op/state", ("carrier",), 1) if in_files else rows
    (row,) = stored.encode(9, 3, {"op": state}, {"op": 1}, MADE).to_pylist()
    content = row["state"]
    if in_files:
        (file,) = folder.rglob("*.parquet")
        content = file.read_bytes()
    whole = read_rows(stored.decode(row, tmp_path / "c"))
    for _ in range(FLIPS):
        damaged = bytearray(content)
        place = random.randrange(len(content))
        damaged[place] ^= 1 << random.randrange(8)
        if in_files:
            file.write_bytes(damaged)
        else:
            row = {**row, "state": bytes(damaged)}
        found = decoded(row, tmp_path / "c")
        if isinstance(found, CheckpointError):
            assert '"op" at window 9 is damaged' in found.primary, (seed, place)
            assert "Restore it from a backup" in found.hint, (seed, place)
        else:
            assert found.equals(whole), (seed, place)


def test_state_columns_are_nullable_even_if_declared_as_not_null(
    tmp_path: Path,
) -> None:
    # The digest does not cover nullability, and Spark drops null checks on columns without nulls.
    items = pa.list_(pa.field("item", pa.int64(), nullable=False))
    column = pa.field("counts", items, nullable=False)
    frame = pa.table({"counts": [[1, 2], None]}, schema=pa.schema([column]))
    (row,) = stored.encode(9, 3, {"op": frame}, {"op": 1}, MADE).to_pylist()
    found = read_rows(stored.decode(row, tmp_path / "c"))
    assert found.equals(pa.table({"counts": [[1, 2], None]}))
    assert stored.schema_of(row) == found.schema


def decoded(row: dict[str, object], table: Path) -> pa.Table | CheckpointError:
    try:
        return read_rows(stored.decode(row, table))
    except CheckpointError as error:
        return error
