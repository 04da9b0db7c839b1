"""Arrival, key and width as proposed for samples, and as chosen by somebody."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rewindow.errors import InputError
from rewindow.new_project.sample import Sample
from rewindow.new_project.stream import NewStream, changed, propose_stream

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def times(rows: int, step: timedelta) -> list[str]:
    """Returns times at equal distances."""
    return [(BEGIN + n * step).isoformat() for n in range(rows)]


def proposed(**values: list[Any]) -> NewStream:
    """Returns what is proposed for some columns of text."""
    return propose_stream(Sample("/x/clicks.csv", "csv", values), Path("clicks.csv"))


def test_arrival_is_the_column_named_so_else_the_first_time_without_nulls() -> None:
    """A time that is missing in rows would send them to quarantine."""
    stamps = times(3, timedelta(seconds=1))
    assert proposed(at=stamps, received_at=stamps).arrival.name == "received_at"
    assert proposed(at=[*stamps[:2], None], seen=stamps).arrival.name == "seen"
    assert proposed(day=["2026-03-01"] * 3, at=stamps).arrival.name == "at"


def test_without_a_time_nothing_is_proposed() -> None:
    """What was looked at is said."""
    with pytest.raises(InputError, match="no column of the source can be the arrival") as caught:
        proposed(a=["1"], b=["x"])
    assert "a (whole numbers), b (text)" in caught.value.detail


def test_key_is_a_column_whose_values_come_again_and_are_never_null() -> None:
    """A null key fails the gate; a number of its own in every row is no key."""
    stamps = times(12, timedelta(seconds=1))
    pages, numbers = ["a", "b", "c"] * 4, [str(n) for n in range(12)]
    assert (found := proposed(at=stamps, id=numbers, page=pages).key) is not None and found.name == "page"
    assert proposed(at=stamps, page=[None, *pages[1:]]).key is None
    assert proposed(at=stamps, page=["a"] * 12).key is None


@pytest.mark.parametrize(
    ("rows", "step", "width"),
    [
        (1000, timedelta(milliseconds=10), "1 second"),
        (1000, timedelta(seconds=1), "10 seconds"),
        (1000, timedelta(minutes=1), "10 minutes"),
        (24 * 365, timedelta(hours=1), "1 day"),
        (30, timedelta(days=1), "1 day"),
        (1, timedelta(days=1), "1 minute"),
    ],
)
def test_width_gives_ten_tuples_a_window(rows: int, step: timedelta, width: str) -> None:
    """The least of some usual durations that does; a day at most."""
    assert proposed(at=times(rows, step)).width == width


def test_silence_is_ten_times_the_usual_distance_of_a_key() -> None:
    """Two keys that take turns every second send every two."""
    stream = proposed(at=times(100, timedelta(seconds=1)), page=["a", "b"] * 50)
    assert (stream.interval, stream.key and stream.key.name) == ("30 seconds", "page")


def test_an_answer_changes_what_follows_from_it() -> None:
    """Another arrival, another width; a column that is no time is refused, a slip answered."""
    stream = proposed(at=times(100, timedelta(seconds=1)), seen=times(100, timedelta(hours=1)), page=["a", "b"] * 50)
    other = changed(stream, name="visits", arrival="seen", key="")
    assert (other.application, other.arrival.name, other.key, other.width) == ("count_visits", "seen", None, "1 day")
    assert changed(stream, width="7 seconds").width == "7 seconds"
    for wrong, message in (
        ({"arrival": "page"}, 'column "page" is not a time'),
        ({"arrival": "seen2"}, 'column "seen2" is not in the source'),
        ({"width": "soon"}, 'duration "soon"'),
        ({"width": "30 days"}, "out of range"),
        ({"name": "a b"}, "not allowed"),
    ):
        with pytest.raises(InputError, match=message):
            changed(stream, **wrong)
