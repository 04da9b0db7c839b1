"""Streams over Delta tables that stay where they are: seals, changed windows, refused settings. No
Spark.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from rewindow.errors import InputError, RewindowError, TableError
from rewindow.facts.arrow_digests import arrow_digests
from rewindow.facts.seals import read_seals
from rewindow.launcher import verbs
from rewindow.recording import in_place
from rewindow.recording.in_place import record_in_place
from rewindow.settings.config import Config
from rewindow.storage import Table, TuplesInPlace, query
from tests.recording.test_crashes import Died

WIDTH_US = 60_000_000
FIRST_US = 1_700_000_000_000_000 // WIDTH_US * WIDTH_US
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("key", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
    ]
)
SETTINGS = """
[streams.s]
source = "lake/s"
arrived_at = "at"
width = "1 min"
keys = ["key"]
copy = false
"""
Row = tuple[int, str, int, float]


def rows_of(rows: list[Row]) -> pa.Table:
    """Returns rows of (window after the first, key, number, decimal) as a table."""
    columns: list[list[Any]] = [[], [], [], []]
    for window, key, number, decimal in rows:
        at_us = FIRST_US + window * WIDTH_US + number * 997 % WIDTH_US
        for column, value in zip(columns, (at_us, key, number, decimal), strict=True):
            column.append(value)
    return pa.table([pa.array(columns[0], pa.int64()).cast(SCHEMA.types[0]), *columns[1:]], SCHEMA)


@dataclass
class Lake:
    """A project with one table, and a model of the rows of the table."""

    root: Path
    config: Config
    rows: list[Row] = field(default_factory=list)

    @property
    def path(self) -> str:
        return str(self.root / "lake/s")

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def append(self, *rows: Row, **options: Any) -> None:
        self.rows += rows
        write_deltalake(self.path, rows_of(list(rows)), mode="append", **options)

    def record(self, **options: Any) -> Any:
        return record_in_place(self.config, "s", **options)

    def seals(self) -> list[dict[str, Any]]:
        return read_seals(Table.open(self.config.windows_table("s"))).to_pylist()

    def generations(self) -> dict[int, int]:
        """Returns the generation of each window that has another one than 1."""
        first = FIRST_US // WIDTH_US
        return {
            seal["window_id"] - first: seal["generation"]
            for seal in self.seals()
            if seal["generation"] > 1
        }

    def check(self) -> None:
        """Asserts that every sealed window has exactly the tuples of the table at the sealed
        version, as its seal counts and digests them (X57).
        """
        stream = Table.open(self.config.stream_table("s"))
        held = DeltaTable(self.path, version=stream.version).to_pyarrow_table()
        at_us = held["at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        ids = pc.divide(at_us, WIDTH_US)
        rows = held.append_column("window_id", ids).append_column("arrived_at", held["at"])
        arrived_at = pa.field("arrived_at", SCHEMA.types[0])
        found = {
            row["window_id"]: row
            for row in arrow_digests(rows, SCHEMA.append(arrived_at)).to_pylist()
        }
        for seal in self.seals():
            row = found.get(seal["window_id"], {"tuples": 0, "digest": None})
            assert row["tuples"] == seal["tuples"], seal
            if seal["tuples"]:
                names = ("digest", "float_digest")
                assert [row[name] for name in names] == [seal[name] for name in names]
        read = query("select count(*) as n from s", s=stream)["n"][0].as_py()
        assert read == sum(seal["tuples"] for seal in self.seals())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    (tmp_path / "rewindow.toml").write_text(SETTINGS)
    return Lake(tmp_path, Config.load(tmp_path / "rewindow.toml"))


def settings(lake: Lake, text: str) -> None:
    """Adds settings of the stream."""
    path = lake.root / "rewindow.toml"
    path.write_text(SETTINGS + text)
    lake.config = Config.load(path)


def test_windows_are_sealed_over_the_table_without_a_copy(lake: Lake) -> None:
    lake.append((0, "a", 1, 0.5), (0, "b", 2, -0.0), (2, "a", 3, float("nan")), (3, "a", 4, 1.0))
    before = sorted(Path(lake.path).rglob("*"))
    result = lake.record()
    assert (result.windows_sealed, result.windows_empty, result.recorded) == (3, 1, 3)
    assert result.waiting == 1 and "is open" in result.open
    assert [seal["tuples"] for seal in lake.seals()] == [2, 0, 1]
    lake.check()
    assert sorted(Path(lake.path).rglob("*")) == before
    stream = Table.open(lake.config.stream_table("s"))
    assert isinstance(stream, TuplesInPlace)
    assert not list(Path(str(lake.config.stream_table("s"))).rglob("*.parquet"))


def test_second_recording_of_an_unchanged_table_commits_nothing(lake: Lake) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5))
    lake.record()
    version = Table.open(lake.config.windows_table("s")).version
    result = lake.record()
    assert (result.windows_sealed, result.reopened, result.bytes_read) == (0, 0, 0)
    assert Table.open(lake.config.windows_table("s")).version == version


def test_compaction_and_vacuum_seal_nothing_again(lake: Lake) -> None:
    for number in range(4):
        lake.append((number, "a", number, 0.5))
    lake.record()
    lake.table.optimize.compact()
    lake.table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    result = lake.record()
    assert (result.reopened, result.bytes_read) == (0, 0)
    assert lake.generations() == {}
    lake.check()


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        (lambda lake: lake.append((1, "b", 9, 0.5)), [1]),
        (lambda lake: lake.table.delete("n = 0"), [0]),
        (lambda lake: lake.table.update({"x": "x + 1"}, predicate="n in (1, 2)"), [1, 2]),
        (lambda lake: lake.table.restore(0), [1, 2]),
    ],
    ids=["late", "delete", "update", "restore"],
)
def test_changed_window_gets_a_seal_of_the_next_generation(
    lake: Lake,
    change: Callable[[Lake], Any],
    windows: list[int],
) -> None:
    for number in range(4):
        lake.append((number, "a", number, 0.5))
    lake.record()
    change(lake)
    result = lake.record()
    assert result.reopened == len(windows)
    assert lake.generations() == dict.fromkeys(windows, 2)
    lake.check()


def test_new_windows_and_late_tuples_are_sealed_in_one_commit(lake: Lake) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5))
    lake.record()
    seals = Table.open(lake.config.windows_table("s")).version
    lake.append((0, "b", 3, 0.5), (2, "a", 4, 0.5), (3, "a", 5, 0.5))
    result = lake.record()
    assert (result.reopened, result.taken, result.windows_sealed) == (1, 1, 2)
    assert Table.open(lake.config.windows_table("s")).version == seals + 1
    lake.check()


@pytest.mark.parametrize("point", ["in_place_before_seals", "in_place_after_seals"])
def test_interrupted_recording_is_completed_by_the_next(
    lake: Lake, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5))
    lake.record()
    lake.append((0, "b", 3, 0.5), (2, "a", 4, 0.5))

    def crash(step: str, number: int = 1, attempt: int | None = None) -> None:
        if step == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(in_place, "crash_point", crash)
        with pytest.raises(Died):
            lake.record()
    lake.check()
    lake.record()
    lake.check()
    assert lake.generations() == {0: 2}


def test_replaced_table_keeps_the_seals_of_equal_windows(lake: Lake) -> None:
    rows = [(0, "a", 1, 0.5), (1, "a", 2, 0.5), (2, "a", 3, 0.5)]
    lake.append(*rows)
    lake.record()
    for path in sorted(Path(lake.path).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    lake.append(rows[0], (1, "a", 7, 0.5), rows[2])
    with pytest.raises(TableError, match="was replaced"):
        Table.open(lake.config.stream_table("s"))
    lake.record()
    assert lake.generations() == {1: 2}
    lake.check()


def test_too_many_changed_windows_stop_the_recording_without_changes(lake: Lake) -> None:
    settings(lake, "late_windows_max = 2\n")
    for number in range(5):
        lake.append((number, "a", number, 0.5))
    lake.record()
    before = lake.seals()
    lake.table.update({"x": "x + 1"})
    with pytest.raises(InputError, match="late_windows_max = 4"):
        lake.record()
    assert lake.seals() == before


def test_ended_stream_keeps_its_end(lake: Lake) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5))
    assert lake.record(end=True).windows_sealed == 2
    lake.append((5, "a", 3, 0.5))
    result = lake.record()
    assert result.windows_sealed == 0
    assert "the end of the stream" in result.warnings[0]
    lake.check()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('select = { day = "date(at)" }\n', "cannot be sealed in place"),
        ('new_columns = "take"\n', "cannot be sealed in place"),
        ('on_gap = "quarantine"\n', "cannot be sealed in place"),
        ('keep = ["missing"]\n', 'column "missing"'),
    ],
)
def test_settings_that_need_a_copy_raise_an_error(lake: Lake, text: str, message: str) -> None:
    lake.append((0, "a", 1, 0.5))
    settings(lake, text)
    with pytest.raises(InputError, match=message):
        lake.record()
    assert not Table.exists(lake.config.stream_table("s"))


@pytest.mark.parametrize(
    ("arrived_at", "message"),
    [
        ("to_timestamp(n)", "is an expression"),
        ("n", "is not a TIMESTAMP"),
        ("At", 'arrival column "At"'),
    ],
)
def test_arrival_that_is_not_a_timestamp_column_raises_an_error(
    lake: Lake, arrived_at: str, message: str
) -> None:
    lake.append((0, "a", 1, 0.5))
    path = lake.root / "rewindow.toml"
    path.write_text(SETTINGS.replace('"at"', f'"{arrived_at}"'))
    lake.config = Config.load(path)
    with pytest.raises(InputError, match=message):
        lake.record()


def test_form_of_a_recorded_stream_cannot_change(lake: Lake) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5))
    lake.record()
    path = lake.root / "rewindow.toml"
    path.write_text(SETTINGS.replace("copy = false", "copy = true"))
    with pytest.raises(InputError, match='copy of stream "s" is true'):
        verbs.record(Config.load(path), "s")
    with pytest.raises(InputError, match="--reopen does not apply"):
        verbs.record(lake.config, "s", reopen=True)


def test_source_that_is_gone_or_lost_commits_is_reported(lake: Lake) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5))
    lake.append((2, "a", 3, 0.5))
    lake.record()
    log = Path(lake.path) / "_delta_log"
    (log / f"{1:020}.json").rename(lake.root / "kept")
    with pytest.raises(InputError, match="is at version 0, but it was sealed at version 1"):
        lake.record()
    Path(lake.path).rename(lake.root / "moved")
    with pytest.raises(RewindowError, match="lake/s"):
        lake.record()
    with pytest.raises(TableError):
        Table.open(lake.config.stream_table("s"))


def test_null_and_early_arrivals_are_counted_and_in_no_window(lake: Lake) -> None:
    settings(lake, 'origin = "2023-11-14T22:10:00Z"\nmalformed_max_share = 1\n')
    rows = rows_of([(0, "a", 1, 0.5), (3, "a", 2, 0.5), (5, "a", 3, 0.5)])
    bad = pa.table([pa.array([None, 0], SCHEMA.types[0]), ["a", "a"], [7, 8], [0.5, 0.5]], SCHEMA)
    write_deltalake(lake.path, pa.concat_tables([rows, bad]))
    result = lake.record()
    assert result.malformed == 2 and "2 rows of 5" in result.warnings[0]
    assert sum(seal["tuples"] for seal in lake.seals()) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) as n from s",
        "with b as (select key from s) select count(*) as n from b",
        "  WITH s2 as (select * from s) select count(*) as n from s2 where key = 'a'",
    ],
)
def test_queries_read_a_table_in_place_by_name(lake: Lake, sql: str) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5), (5, "a", 3, 0.5))
    lake.record()
    stream = Table.open(lake.config.stream_table("s"))
    assert query(sql, s=stream).to_pylist() == [{"n": 2}]
    assert query(f"explain {sql}", s=stream).num_rows


def test_moved_table_is_read_at_its_new_place(lake: Lake) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5), (2, "a", 3, 0.5))
    lake.record()
    Path(lake.path).rename(lake.root / "lake/moved")
    settings = lake.root / "rewindow.toml"
    settings.write_text(SETTINGS.replace("lake/s", "lake/../lake/moved"))
    lake.config = Config.load(settings)
    result = lake.record()
    assert (result.reopened, lake.generations()) == (0, {})
    stream = Table.open(lake.config.stream_table("s"))
    assert isinstance(stream, TuplesInPlace)
    assert stream.columns.source == str(lake.root / "lake/moved")
    assert query("select count(*) as n from s", s=stream).to_pylist() == [{"n": 2}]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('width = "1 min"', 'width = "2 min"', 'width of stream "s" is 2 min'),
        ("copy = false", 'copy = false\nkeep = ["key"]', 'keep of stream "s"'),
    ],
)
def test_settings_of_sealed_windows_cannot_change(
    lake: Lake, old: str, new: str, message: str
) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5))
    lake.record()
    before = lake.seals()
    settings = lake.root / "rewindow.toml"
    settings.write_text(SETTINGS.replace(old, new))
    lake.config = Config.load(settings)
    with pytest.raises(InputError, match=message):
        lake.record()
    assert lake.seals() == before


def test_column_that_is_dropped_from_the_table_is_named(lake: Lake) -> None:
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5))
    lake.record()
    rows = lake.table.to_pyarrow_table().drop_columns(["n"])
    write_deltalake(lake.path, rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(InputError, match='column "n" of stream "s" is not in its source'):
        lake.record()
    lake.check()


def test_late_tuples_before_the_first_window_are_reported(lake: Lake) -> None:
    lake.append((3, "a", 1, 0.5), (4, "a", 2, 0.5))
    lake.record()
    lake.append((0, "a", 3, 0.5), (5, "a", 4, 0.5))
    result = lake.record()
    assert "1 tuple arrived before window" in result.warnings[0]
    assert [seal["tuples"] for seal in lake.seals()] == [1, 1]
    lake.check()


def test_only_windows_within_the_changed_files_are_read_again(lake: Lake) -> None:
    for window in range(8):
        lake.append((window, "a", window, 0.5))
    lake.record()
    counted = []

    def keep(run: Any, *arguments: Any, **options: Any) -> Any:
        counted.append(options["within"])
        return count(run, *arguments, **options)

    count = in_place._Run._count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_place._Run, "_count", keep)
        lake.append((1, "a", 20, 0.5), (2, "a", 21, 0.5))
        lake.append((5, "a", 22, 0.5), (8, "a", 23, 0.5))
        lake.append((4, "a", 24, 0.5))
        assert lake.record().reopened == 4
    first = FIRST_US // WIDTH_US
    assert counted == [[(first + 1, first + 2), (first + 4, first + 6), (first + 7, None)]]
    lake.check()


def test_gap_of_too_many_windows_stops_the_recording(lake: Lake) -> None:
    settings(lake, "gap_windows_max = 10\n")
    lake.append((0, "a", 1, 0.5), (1, "a", 2, 0.5), (50, "a", 3, 0.5))
    with pytest.raises(InputError, match="gap of 48 windows"):
        lake.record()


def _late(lake: Lake, chance: random.Random) -> None:
    lake.append(_row(chance, chance.randint(0, 6)))


def _next(lake: Lake, chance: random.Random) -> None:
    lake.append(*(_row(chance, 7 + chance.randint(0, 6)) for _ in range(chance.randint(1, 4))))


def _delete(lake: Lake, chance: random.Random) -> None:
    key = chance.choice("abc")
    lake.rows = [row for row in lake.rows if row[1] != key or row[2] % 2]
    lake.table.delete(f"key = '{key}' and n % 2 = 0")


def _update(lake: Lake, chance: random.Random) -> None:
    key = chance.choice("abc")
    lake.rows = [(w, k, n, x + 1 if k == key else x) for w, k, n, x in lake.rows]
    lake.table.update({"x": "x + 1"}, predicate=f"key = '{key}'")


def _compact(lake: Lake, chance: random.Random) -> None:
    lake.table.optimize.compact()


def _vacuum(lake: Lake, chance: random.Random) -> None:
    lake.table.vacuum(0, enforce_retention_duration=False, dry_run=False)


def _row(chance: random.Random, window: int) -> Row:
    return (window, chance.choice("abc"), chance.randrange(1_000), chance.random())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("partitioned", [False, True])
def test_random_changes_leave_seals_equal_to_the_table(
    lake: Lake, seed: int, partitioned: bool
) -> None:
    # Rules: X57
    chance = random.Random(seed)
    first = [_row(chance, window) for window in range(8)]
    lake.append(*first, **({"partition_by": ["key"]} if partitioned else {}))
    steps = [_late, _next, _delete, _update, _compact, _vacuum]
    for _ in range(12):
        chance.choice(steps)(lake, chance)
        if chance.random() < 0.6:
            lake.record()
            lake.check()
            counts = Counter(row[0] for row in lake.rows)
            found = {
                seal["window_id"] - FIRST_US // WIDTH_US: seal["tuples"] for seal in lake.seals()
            }
            assert found == {window: counts[window] for window in found}
