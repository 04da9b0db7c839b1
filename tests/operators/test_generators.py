"""Generators without Spark: each window has a fixed number of tuples, which depend only on
properties, seed, part and window; the two generators of the library.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from rewindow.application import Application
from rewindow.errors import InputError
from rewindow.operators import Aggregate, Auctions, Generator, Sensors
from rewindow.operators.generators.by_name import GENERATORS
from rewindow.testing import run_generator
from rewindow.windows import Grid

PAGE = Path(__file__).parents[2] / "docs" / "generators.md"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FIRST = int(BEGIN.timestamp())


def counts(**properties: Any) -> list[int]:
    return [len(rows) for rows in run_generator(Sensors(**properties)).values()]


def rows_of(generator: Generator) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for rows in run_generator(generator).values():
        found += rows
    return found


def ahead_s(row: dict[str, Any]) -> float:
    return float((row["arrived_at"] - row["measured_at"]).total_seconds())


@pytest.mark.parametrize("kind", GENERATORS.values())
def test_generated_tuples_depend_only_on_seed_part_and_window(kind: type[Generator]) -> None:
    # Rules: O145, O146
    generator = kind(parts=3, rate=60)
    units = [(FIRST + window, part) for window in range(3) for part in range(3)]
    forward = {unit: generator.batch(*unit) for unit in units}
    again = {unit: kind(parts=3, rate=60).batch(*unit) for unit in reversed(units)}
    assert forward == again
    # The last column depends on random numbers alone.
    assert len({str(batch.columns[-1].to_pylist()) for batch in forward.values()}) == len(units)
    assert kind(parts=3, rate=60, seed=1).batch(*units[0]) != forward[units[0]]


def test_generated_window_size_does_not_depend_on_the_number_of_parts() -> None:
    # Rules: O147
    for parts in (1, 3, 7):
        found = run_generator(Sensors(rate=20, windows=3, parts=parts), width="2 s")
        assert [len(rows) for rows in found.values()] == [20, 20, 20]
        for window, rows in found.items():
            arrivals = [row["arrived_at"] for row in rows]
            assert arrivals == sorted(arrivals)
            start = datetime.fromtimestamp(window * 2, UTC)
            assert start <= arrivals[0] and arrivals[-1] < start + timedelta(seconds=2)


def test_generated_stream_ends_after_the_given_windows_or_tuples() -> None:
    # Rules: O147
    lulls = {"after": 2, "windows": 1}
    assert counts(rate=2) == [2] * 1000
    assert counts(rate=5, windows=3) == [5, 5, 5]
    assert counts(rate=5, tuples=12) == [5, 5, 2]
    assert counts(rate=5, tuples=10) == [5, 5]
    assert counts(rate=5, tuples=12, windows=2) == [5, 5]
    assert counts(rate=5, tuples=12, lulls=lulls) == [5, 5, 0, 2]
    assert counts(rate=5, tuples=21, lulls=lulls, parts=4) == [5, 5, 0, 5, 5, 0, 1]
    assert not Sensors(rate=5, windows=3).batch(FIRST + 3, 0).num_rows
    assert not Sensors(rate=5, windows=3).batch(FIRST - 1, 0).num_rows


def test_windows_during_a_pause_are_empty_and_numbering_continues_afterwards() -> None:
    assert counts(rate=4, windows=10, lulls={"after": 3, "windows": 2}) == [4, 4, 4, 0, 0] * 2
    numbers: list[int] = []
    generator = Sensors(rate=4, windows=10, parts=3, lulls={"after": 3, "windows": 2})
    for window in range(FIRST, FIRST + 10):
        for part in range(3):
            slots = generator.slots(window, part, np.random.default_rng(0))
            numbers += slots.numbers.tolist()
    assert numbers == list(range(24))


@pytest.mark.parametrize("skew", [0, 0.5, 1, 1 + 1e-9, 2])
def test_skewed_keys_follow_a_zipf_distribution(skew: float) -> None:
    size = 200_000
    keys = Sensors(skew=skew).pick(5, size, np.random.default_rng(1))
    found = np.bincount(keys, minlength=5) / size
    # The density x ** -skew around each of 1 to 5, integrated in small steps.
    steps = (np.arange(5_000) + 500.5) / 1_000
    weights = (steps**-skew).reshape(5, 1_000).sum(axis=1)
    assert np.allclose(found, weights / weights.sum(), atol=0.005)
    zipf = (np.arange(5) + 1.0) ** -skew
    assert np.allclose(found, zipf / zipf.sum(), atol=0.05)


def test_disorder_delays_tuples_up_to_the_configured_maximum() -> None:
    calm = rows_of(Sensors(rate=100, windows=3))
    assert all(row["arrived_at"] == row["measured_at"] for row in calm)
    late = rows_of(Sensors(rate=100, windows=3, disorder="5 s"))
    delays = [ahead_s(row) for row in late]
    assert min(delays) >= 0 and 4 < max(delays) <= 5
    times = [row["measured_at"] for row in late]
    assert times != sorted(times)


def test_clock_error_applies_to_every_second_run_of_windows() -> None:
    steps = {"every": 2, "by": "-3 s"}
    found = run_generator(Sensors(rate=2, windows=6, clock_steps=steps))
    shifts = [{ahead_s(row) for row in rows} for rows in found.values()]
    assert shifts == [{0}, {0}, {3}, {3}, {0}, {0}]


def test_poison_tuples_have_no_arrival_and_do_not_change_other_tuples() -> None:
    clean = Sensors(rate=1000).batch(FIRST, 0).to_pylist()
    mixed = Sensors(rate=1000, poison=0.1).batch(FIRST, 0).to_pylist()
    poisoned = [row for row in mixed if row["arrived_at"] is None]
    assert 60 < len(poisoned) < 140
    assert [row for row in mixed if row in clean] == [row for row in mixed if row["arrived_at"]]
    assert len(rows_of(Sensors(rate=1000, windows=1, poison=0.1))) == 1000 - len(poisoned)


def test_generated_sensors_are_within_the_configured_number() -> None:
    found = rows_of(Sensors(sensors=10, rate=200, windows=2))
    assert {row["sensor"] for row in found} == set(range(10))
    assert all(5 < row["temperature"] < 25 for row in found)


def test_generated_auctions_have_nexmark_proportions_and_valid_references() -> None:
    rows = rows_of(Auctions(rate=130, windows=10, parts=4, skew=1, open_auctions=8))
    assert Counter(row["kind"] for row in rows) == {"person": 26, "auction": 78, "bid": 1196}
    persons: set[int] = set()
    auctions: dict[int, datetime] = {}
    for row in rows:
        if row["kind"] == "person":
            assert row["person"] not in persons and row["price"] is None
            persons.add(row["person"])
            continue
        assert row["person"] in persons and row["price"] >= 100
        if row["kind"] == "auction":
            assert row["auction"] not in auctions and row["closes_at"] > row["event_at"]
            auctions[row["auction"]] = row["closes_at"]
        else:
            assert row["auction"] in list(auctions)[-8:] and row["closes_at"] is None
    assert sorted(auctions) == list(range(78)) and sorted(persons) == list(range(26))


@pytest.mark.jvm
def test_generated_tuples_can_be_replayed_by_an_application(spark: Any) -> None:
    from rewindow.testing import run_application

    tuples = run_generator(Sensors(rate=30, windows=4, sensors=3, skew=1))
    app = Application("a", "1 s")
    stream = app.input("sensors", Sensors.columns)
    operator = Aggregate(columns=Sensors.columns, by=("sensor",), aggregates={"n": "count(*)"})
    app.output("n", app.add("count", operator, rows=stream), key=("sensor",))
    expected = []
    for window, rows in tuples.items():
        for sensor, number in Counter(row["sensor"] for row in rows).items():
            expected.append((window, sensor, number))
    assert sorted(run_application(app, {"sensors": tuples}, spark=spark)["n"]) == sorted(expected)


class Wrong(Generator):
    columns: ClassVar = pa.schema([("arrived_at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    types: tuple[Any, ...] = (pa.timestamp("us", "UTC"), pa.int64())
    late_us: int = 0

    def rows(self, window_id: int, part: int, random: np.random.Generator) -> pa.RecordBatch:
        at_us = Grid(1_000, 0).end_us(window_id) - 1 + self.late_us
        values = [pa.array([at_us], pa.timestamp("us", "UTC")), pa.array([1], self.types[1])]
        return pa.record_batch(values, names=["arrived_at", "n"])


def test_generated_rows_outside_the_window_or_with_wrong_columns_are_rejected() -> None:
    # Rules: O146
    assert Wrong().batch(FIRST, 0).num_rows == 1
    with pytest.raises(InputError, match=f"Wrong, part 2 of window {FIRST}: a tuple has an arr"):
        Wrong(late_us=1).batch(FIRST, 2)
    with pytest.raises(InputError, match="columns must be .*n: int64'\\], not .*n: int32'"):
        Wrong(types=(None, pa.int32())).batch(FIRST, 0)


@pytest.mark.parametrize(
    ("properties", "path"),
    [
        ({"rate": 0}, "rate"),
        ({"parts": 0}, "parts"),
        ({"skew": -1}, "skew"),
        ({"disorder": "-1 s"}, "disorder"),
        ({"disorder": "soon"}, "disorder"),
        ({"poison": 1}, "poison"),
        ({"lulls": {"after": 0, "windows": 3}}, "lulls.after"),
        ({"lulls": {"after": 1, "windows": -1}}, "lulls.windows"),
        ({"clock_steps": {"every": 0, "by": "1 s"}}, "clock_steps.every"),
        ({"begin": "soon"}, "begin"),
        ({"windows": 0}, "windows"),
        ({"tuples": 0}, "tuples"),
        ({"sensor": 3}, "sensor"),
    ],
)
def test_invalid_generator_property_is_rejected_by_name(
    properties: dict[str, Any], path: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        Sensors(**properties)
    assert [".".join(map(str, one["loc"])) for one in caught.value.errors()] == [path]


def test_generators_page_lists_all_generators_and_properties() -> None:
    page = PAGE.read_text()
    for name in Generator.model_fields:
        assert f"| `{name}` |" in page
    for name, kind in GENERATORS.items():
        assert f"| `{name}` |" in page
        for word in [*kind.columns.names, *(kind.model_fields.keys() - Generator.model_fields)]:
            assert f"`{word}`" in page
