"""Damages that are generated from the columns of an output."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from rewindow.quality.planting import Damage, Row, Rows, copy_of
from tests.quality import damage_generator
from tests.quality.damage_generator import contents, fits, generated_damages, plain

TIME = pa.timestamp("us", "UTC")
WINDOW = 102
WINDOWS = range(100, 106)
HOUR = timedelta(hours=1)
START = datetime(2024, 3, 1, 10, 7, 30, 123_456, tzinfo=UTC)


@dataclass(frozen=True)
class Sample:
    """Columns of an output, and its rows of a window from the time at which that starts."""

    columns: list[pa.Field | tuple[str, pa.DataType]]
    keys: tuple[str, ...]
    of_window: Callable[[datetime], list[Row]]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field("window_id", pa.int64(), nullable=False),
                pa.field("attempt", pa.int64(), nullable=False),
                *pa.schema(self.columns),
            ]
        )

    def rows(self) -> Rows:
        found: Rows = {}
        for window in WINDOWS:
            start = START + (window - WINDOWS[0]) * HOUR
            place = {"window_id": window, "attempt": 1}
            found[window] = [{**place, **row} for row in self.of_window(start)]
        return found

    def damages(self) -> list[Damage]:
        return generated_damages(self.schema, self.keys)

    def damage(self, kind: str, column: str = "") -> Damage:
        (found,) = (one for one in self.damages() if (one.kind, one.column) == (kind, column))
        return found

    def planted(self, kind: str, column: str = "", seed: int = 1) -> Rows:
        rows = self.rows()
        assert self.damage(kind, column).plant(rows, WINDOW, Random(seed))
        return rows


def timers(start: datetime) -> list[Row]:
    rows = []
    for place in range(6):
        is_timer = place in (2, 3, 5)
        cause = ("crossing" if place == 2 else "timeout") if is_timer else None
        rows.append(
            {
                "arrived_at": start + timedelta(minutes=place, microseconds=place),
                "at": start + timedelta(minutes=place),
                "page": None if is_timer else f"Straße {place}",
                "price": None if is_timer else 3 + place,
                "_rw_is_timer": is_timer,
                "_rw_cause": cause,
                "_rw_timer_count": (1 + place if is_timer else 0),
                "_rw_emission": place,
            }
        )
    return rows


def filled(start: datetime) -> list[Row]:
    rows = []
    for place, origin in enumerate(("EWR", "JFK", "EWR", "LGA", "JFK")):
        is_made = place in (1, 2, 4)
        rows.append(
            {
                "origin": origin,
                "at": start + timedelta(minutes=10 * place),
                "arrived_at": start + timedelta(minutes=10 * place + 1),
                "temp": None if place == 3 else 20.5 + place,
                "_rw_is_made": is_made,
                "_rw_made_rows": 1 if is_made else 0,
                "_rw_gap_id": f"gap {place}" if is_made else None,
                "_rw_methods": f'{{"temp":"linear","wind":"forward{place}"}}' if is_made else None,
                "_rw_before_us": 600_000_000 * place if is_made else None,
            }
        )
    return rows


def fired(start: datetime) -> list[Row]:
    begin = int(start.timestamp()) * 1_000_000
    rows = []
    for place, page in enumerate(("a", "b", "c", "b")):
        rows.append(
            {
                "page": page,
                "window_begin_us": begin + (3_600_000_000 if place == 3 else 0),
                "window_end_us": begin + (7_200_000_000 if place == 3 else 3_600_000_000),
                "pane": place % 2,
                "kind": ("on_time", "early", "on_time", "late")[place],
                "fired_us": begin + 7_300_000_123,
                "clicks": 4 + place,
                "sessions": 2 + 3 * place,
                "spent": Decimal("12.50") * (place + 1),
            }
        )
    return rows


def balance(start: datetime) -> list[Row]:
    outcomes = ("on_time", "late", "pending_after", "on_time")
    origins = ("EWR", "EWR", "JFK", "JFK")
    rows = []
    for place, (origin, outcome) in enumerate(zip(origins, outcomes, strict=True)):
        rows.append(
            {
                "origin": origin,
                "outcome": outcome,
                "tuples": 40 + 7 * place + start.hour,
                "late_by_us_max": 5_000_000_000 if outcome == "late" else None,
            }
        )
    return rows


def nested(start: datetime) -> list[Row]:
    rows = []
    for place in range(3):
        rows.append(
            {
                "carrier": f"C{place}",
                "day": date(2024, 3, 5 + place),
                "ranks": [place, 2, 9],
                "best": {"name": f"n{place}", "other": "o", "score": 1.5 + place},
                "by_name": [("x", place), ("y", 7)],
                "raw": b"\x01\x02" + bytes([place]),
                "is_closed": place == 1,
                "share": 0.25 * place,
                "small": 100 + place + start.hour,
            }
        )
    return rows


NAMED = pa.struct([("name", pa.string()), ("other", pa.string()), ("score", pa.float64())])
SAMPLES = {
    "timers": Sample(
        [
            ("arrived_at", TIME),
            pa.field("at", TIME, nullable=False),
            ("page", pa.string()),
            ("price", pa.int32()),
            pa.field("_rw_is_timer", pa.bool_(), nullable=False),
            ("_rw_cause", pa.string()),
            ("_rw_timer_count", pa.int64()),
            ("_rw_emission", pa.int64()),
        ],
        (),
        timers,
    ),
    "filled": Sample(
        [
            ("origin", pa.string()),
            ("at", TIME),
            ("arrived_at", TIME),
            ("temp", pa.float64()),
            ("_rw_is_made", pa.bool_()),
            ("_rw_made_rows", pa.int64()),
            ("_rw_gap_id", pa.string()),
            ("_rw_methods", pa.string()),
            ("_rw_before_us", pa.int64()),
        ],
        ("origin", "at"),
        filled,
    ),
    "fired": Sample(
        [
            ("page", pa.string()),
            ("window_begin_us", pa.int64()),
            ("window_end_us", pa.int64()),
            ("pane", pa.int32()),
            ("kind", pa.string()),
            ("fired_us", pa.int64()),
            ("clicks", pa.int64()),
            ("sessions", pa.int64()),
            ("spent", pa.decimal128(12, 2)),
        ],
        ("page", "window_begin_us", "pane"),
        fired,
    ),
    "balance": Sample(
        [
            pa.field("origin", pa.string(), nullable=False),
            ("outcome", pa.string()),
            ("tuples", pa.int64()),
            ("late_by_us_max", pa.int64()),
        ],
        ("origin", "outcome"),
        balance,
    ),
    "nested": Sample(
        [
            ("carrier", pa.string()),
            ("day", pa.date32()),
            ("ranks", pa.list_(pa.int32())),
            ("best", NAMED),
            ("by_name", pa.map_(pa.string(), pa.int32())),
            ("raw", pa.binary()),
            ("is_closed", pa.bool_()),
            ("share", pa.float32()),
            ("small", pa.int8()),
        ],
        ("carrier",),
        nested,
    ),
}


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> Sample:
    return SAMPLES[request.param]


def changed_windows(before: Rows, after: Rows) -> set[int]:
    assert before.keys() == after.keys()
    old, new = contents(before), contents(after)
    return {window for window in old if old[window] != new[window]}


def outcome(damage: Damage, rows: Rows, seed: int = 1) -> dict[int, Counter[str]] | None:
    """Returns the damaged rows, None where the damage makes no difference."""
    damaged = copy_of(rows)
    return contents(damaged) if damage.plant(damaged, WINDOW, Random(seed)) else None


def test_generated_damages_have_unique_columns_and_kinds(sample: Sample) -> None:
    counts = Counter((one.column, one.kind) for one in sample.damages())
    assert [place for place, count in counts.items() if count > 1] == []
    assert {column for column, _ in counts} == {"", *pa.schema(sample.columns).names}


def test_generated_damage_changes_only_windows_within_its_reach(sample: Sample) -> None:
    for damage in sample.damages():
        rows = sample.rows()
        before = copy_of(rows)
        planted = damage.plant(rows, WINDOW, Random(1))
        changed = changed_windows(before, rows)
        last = WINDOWS[-1] if damage.reach is None else WINDOW + damage.reach
        assert changed <= set(range(WINDOW, last + 1)), damage
        assert planted == bool(changed), damage


def test_generated_rows_have_the_id_of_their_window(sample: Sample) -> None:
    for damage in sample.damages():
        rows = sample.rows()
        damage.plant(rows, WINDOW, Random(1))
        named = {window: {row["window_id"] for row in part} for window, part in rows.items()}
        assert all(names <= {window} for window, names in named.items()), damage


def test_damage_without_an_effect_does_not_change_the_rows(sample: Sample) -> None:
    empty: Rows = {window: [] for window in WINDOWS}
    for damage in sample.damages():
        assert outcome(damage, empty) is None, damage
        last: Rows = {WINDOW: []}
        assert not damage.plant(last, WINDOW, Random(1)), damage
        assert last == {WINDOW: []}


def test_damage_that_swaps_values_has_no_effect_on_equal_rows(sample: Sample) -> None:
    rows = sample.rows()
    for part in rows.values():
        part[:] = [dict(part[0]) for _ in part]
    exchanges = ("exchanged between", "carried", "that of another row", "that of the row after")
    several = [one for one in sample.damages() if one.kind.startswith(exchanges)]
    assert len(several) >= 4 * len(sample.columns)
    assert [one for one in several if outcome(one, rows) is not None] == []


def test_damaged_rows_depend_only_on_the_seed(sample: Sample) -> None:
    rows = sample.rows()
    turned = {window: part[::-1] for window, part in copy_of(rows).items()}
    another = 0
    for damage in sample.damages():
        first = outcome(damage, rows)
        assert outcome(damage, rows) == first, damage
        assert outcome(damage, turned) == first, damage
        another += any(outcome(damage, rows, seed) != first for seed in range(2, 8))
    assert another > len(sample.damages()) // 4


def test_damaged_rows_have_valid_column_types(sample: Sample) -> None:
    for damage in sample.damages():
        rows = sample.rows()
        damage.plant(rows, WINDOW, Random(1))
        flat = [row for part in rows.values() for row in part]
        table = pa.Table.from_pylist(flat, sample.schema)
        table.validate(full=True)
        needed = [one.name for one in sample.schema if not one.nullable]
        assert all(table[name].null_count == 0 for name in needed), damage


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("timers", {"a made row dropped", "made rows marked as recorded", "a made row added"}),
        ("filled", {"made rows dropped", "a recorded row marked as made"}),
    ],
)
def test_marker_column_for_generated_rows_adds_damages_of_these_rows(
    name: str, kinds: set[str]
) -> None:
    found = {one.kind for one in SAMPLES[name].damages()}
    assert kinds <= found
    assert not kinds & {one.kind for one in SAMPLES["balance"].damages()}


def test_every_damage_kind_has_an_effect_in_some_sample() -> None:
    kinds, placed = set(), set()
    for sample in SAMPLES.values():
        rows = sample.rows()
        for damage in sample.damages():
            kinds.add(damage.kind)
            if outcome(damage, rows) is not None:
                placed.add(damage.kind)
    # The texts inside of a struct are neither JSON nor words of an operator.
    inside = {kind for kind in kinds - placed if kind.startswith(("name ", "other "))}
    assert {kind for kind in inside if "JSON" not in kind and "contrary" not in kind} == set()
    assert kinds - placed == inside


def column(rows: Rows, name: str) -> list[Any]:
    return [row[name] for row in rows[WINDOW]]


def differences(sample: Sample, damaged: Rows) -> list[tuple[str, Any, Any]]:
    """Returns column, value before and value after of what differs in rows that pair off."""
    before = set(map(plain, sample.rows()[WINDOW]))
    after = set(map(plain, damaged[WINDOW]))
    old = [row for row in sample.rows()[WINDOW] if plain(row) not in after]
    new = [row for row in damaged[WINDOW] if plain(row) not in before]
    found = []
    for one, two in zip(old, new, strict=True):
        found += [(name, one[name], two[name]) for name in one if one[name] != two[name]]
    return found


def test_timestamp_damage_is_one_unit_of_the_column_resolution() -> None:
    early = "a microsecond early in a row"
    for name, at, step in (
        ("timers", "arrived_at", timedelta(microseconds=1)),
        ("fired", "fired_us", 1),
    ):
        ((found, old, new),) = differences(SAMPLES[name], SAMPLES[name].planted(early, at))
        assert (found, old - new) == (at, step)


def test_damage_in_a_filled_row_does_not_change_recorded_rows() -> None:
    sample = SAMPLES["timers"]
    for seed in range(8):
        damaged = sample.planted("a microsecond early in a made row", "arrived_at", seed)
        recorded = [row for row in sample.rows()[WINDOW] if not row["_rw_is_timer"]]
        assert all(row in damaged[WINDOW] for row in recorded)


def test_timestamp_is_truncated_in_the_time_zone_of_its_column() -> None:
    days = SAMPLES["timers"].planted("cut to days in every row", "at")
    assert set(column(days, "at")) == {datetime(2024, 3, 1, tzinfo=UTC)}
    assert set(column(SAMPLES["timers"].planted("at the epoch in every row", "at"), "at")) == {
        datetime(1970, 1, 1, tzinfo=UTC)
    }


def test_count_moved_to_another_row_or_column_does_not_change_the_sum() -> None:
    sample = SAMPLES["fired"]
    before, moved = sample.rows(), sample.planted("one counted for another row", "clicks")
    assert sum(column(moved, "clicks")) == sum(column(before, "clicks"))
    both = sample.planted("one counted as sessions in a row", "clicks")
    assert sorted(name for name, _, _ in differences(sample, both)) == ["clicks", "sessions"]
    total = sum(column(both, "clicks")) + sum(column(both, "sessions"))
    assert total == sum(column(before, "clicks")) + sum(column(before, "sessions"))


def test_damage_can_keep_the_number_of_rows_and_the_keys() -> None:
    sample = SAMPLES["filled"]
    keys = Counter((row["origin"], row["at"]) for row in sample.rows()[WINDOW])
    exchanged = sample.planted("the values of two rows exchanged")[WINDOW]
    assert Counter((row["origin"], row["at"]) for row in exchanged) == keys
    copied = sample.planted("a row replaced by a copy of another")[WINDOW]
    assert len(copied) == len(sample.rows()[WINDOW])
    assert max(Counter((row["origin"], row["at"]) for row in copied).values()) == 2


def test_damage_swaps_the_causes_in_all_timers() -> None:
    damaged = SAMPLES["timers"].planted("two values exchanged in every row", "_rw_cause")
    counts = Counter(column(damaged, "_rw_cause"))
    assert counts == {None: 3, "crossing": 2, "timeout": 1}
    assert damaged != SAMPLES["timers"].rows()
    contrary = SAMPLES["timers"].planted("the contrary word in every row", "_rw_cause")
    assert Counter(column(contrary, "_rw_cause")) == counts


def test_damages_drop_add_and_mark_generated_rows() -> None:
    for name, mark in (("timers", "_rw_is_timer"), ("filled", "_rw_is_made")):
        sample = SAMPLES[name]
        count = len(sample.rows()[WINDOW])
        assert sum(column(sample.rows(), mark)) == 3
        assert column(sample.planted("made rows dropped", mark), mark) == [False] * (count - 3)
        added = column(sample.planted("a made row added", mark), mark)
        assert (len(added), sum(added)) == (count + 1, 4)
        hidden = sample.planted("made rows without a trace of it", mark)
        assert column(hidden, mark) == [False] * count
        trace = "_rw_cause" if name == "timers" else "_rw_methods"
        assert set(column(hidden, trace)) == {None}
        replaced = column(sample.planted("a recorded row replaced by a made one", mark), mark)
        assert (len(replaced), sum(replaced)) == (count, 4)


def test_generated_rows_can_be_marked_by_a_text_column() -> None:
    sample = SAMPLES["timers"]
    columns = sample.schema.remove(sample.schema.get_field_index("_rw_is_timer"))
    dropped = [
        one
        for one in generated_damages(columns, sample.keys)
        if (one.kind, one.column) == ("made rows dropped", "_rw_cause")
    ]
    rows = sample.rows()
    for row in (row for part in rows.values() for row in part):
        del row["_rw_is_timer"]
    assert dropped[0].plant(rows, WINDOW, Random(1))
    assert column(rows, "_rw_cause") == [None] * 3


def test_damage_renames_a_key_in_all_its_rows_or_in_one_row() -> None:
    sample = SAMPLES["balance"]
    renamed = Counter(column(sample.planted("a key renamed", "origin"), "origin"))
    assert sorted(renamed.values()) == [2, 2]
    assert any(key.endswith("_2") for key in renamed)
    one = Counter(column(sample.planted("a row moved to an unknown key", "origin"), "origin"))
    assert sorted(one.values()) == [1, 1, 2]


def test_damage_can_shift_all_following_rows_by_one_window() -> None:
    sample = SAMPLES["balance"]
    rows, late = sample.rows(), sample.planted("all rows from here on a window late")
    assert late[WINDOW] == []
    for window in range(WINDOW + 1, WINDOWS[-1] + 1):
        shown = [{**row, "window_id": window} for row in rows[window - 1]]
        assert contents({0: late[window]}) == contents({0: shown})


def test_infinity_and_nan_are_inserted_only_into_float_columns() -> None:
    damaged = SAMPLES["filled"].planted("not a number in a row", "temp")
    assert sum(value is not None and math.isnan(value) for value in column(damaged, "temp")) == 1
    columns = {one.column for one in SAMPLES["fired"].damages() if one.kind == "infinite in a row"}
    assert columns == set()


def test_lasting_damages_can_be_excluded() -> None:
    sample = SAMPLES["fired"]
    near = generated_damages(sample.schema, sample.keys, everywhere=False)
    assert len(sample.damages()) - len(near) == 4
    assert all(one.reach is not None for one in near)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1 << 31, pa.int32(), False),
        (2.5, pa.int64(), False),
        (math.nan, pa.float64(), True),
        (Decimal("1.234"), pa.decimal128(5, 2), False),
        (START, pa.timestamp("s", "UTC"), False),
        (0.1, pa.float32(), True),
    ],
)
def test_value_fits_a_type_if_the_conversion_loses_nothing(
    value: object, kind: pa.DataType, expected: bool
) -> None:
    assert fits(value, pa.field("x", kind)) is expected


def test_null_fits_only_nullable_columns() -> None:
    assert fits(None, pa.field("x", pa.int64()))
    assert not fits(None, pa.field("x", pa.int64(), nullable=False))


def test_damage_generator_does_not_import_suites() -> None:
    tree = ast.parse(Path(damage_generator.__file__).read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in modules if name.split(".")[0] in ("rewindow", "tests")}
    assert ours == {"rewindow.quality.planting"}
