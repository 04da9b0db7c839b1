"""Arrival, key and width as proposed for samples, and as chosen by somebody."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rewindow.errors import InputError
from rewindow.new_project.sample import SourceSample
from rewindow.new_project.stream import NewStream, changed, propose_stream

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def times(rows: int, step: timedelta) -> list[str]:
    return [(BEGIN + n * step).isoformat() for n in range(rows)]


def proposed(**values: list[Any]) -> NewStream:
    return propose_stream(SourceSample("/x/clicks.csv", "csv", values), Path("clicks.csv"))


def test_arrival_is_detected_by_name_or_as_the_first_time_without_nulls() -> None:
    stamps = times(3, timedelta(seconds=1))
    assert proposed(at=stamps, received_at=stamps).arrival.name == "received_at"
    assert proposed(at=[*stamps[:2], None], seen=stamps).arrival.name == "seen"
    assert proposed(day=["2026-03-01"] * 3, at=stamps).arrival.name == "at"


def test_epoch_numbers_are_detected_as_arrival_if_no_time_column_exists() -> None:
    stream = proposed(x=["1772359200", "1772359300"], n=["1", "2"])
    assert (stream.arrival.instant, stream.width) == ("timestamp_seconds(x)", "10 minutes")
    assert "although the name does not suggest it" in stream.arrival.why


def test_epoch_numbers_mixed_with_some_text_are_still_detected_as_arrival() -> None:
    stream = proposed(x=[*map(str, range(1772359200, 1772359500)), "0", "soon"])
    assert stream.arrival.instant == "timestamp_seconds(x)"


def test_title_line_before_the_header_is_reported() -> None:
    sample = SourceSample("/x/clicks.csv", "csv", {"Report": [None]}, misshapen=20)
    with pytest.raises(InputError) as caught:
        propose_stream(sample, Path("clicks.csv"))
    assert (
        "20 of 21 rows have other columns than line 1, which may be a title." in caught.value.detail
    )
    assert caught.value.hint == "Remove the lines above the names of the columns."


def test_event_time_is_a_time_column_that_is_rarely_later_than_the_arrival() -> None:
    sent = times(20, timedelta(seconds=5))
    received = times(21, timedelta(seconds=5))[1:]
    both = proposed(received_at=received, sent_at=sent, eta=times(40, timedelta(seconds=5))[20:])
    assert (both.arrival.name, both.event_at.name) == ("received_at", "sent_at")
    assert "not later than the arrival in 20 of 20 rows" in both.why["event_at"]
    assert changed(both, event_at="eta").event_at.name == "eta"
    for name, values in (
        ("version", ["1.2.10"]),
        ("date_of_birth", ["1990-05-01"]),
        ("day", ["2026-03-01"]),
    ):
        assert (
            proposed(received_at=received, **{name: values * 20}).event_at.name == "received_at"
        ), name
    assert proposed(at=sent).event_at.name == "at"
    with pytest.raises(
        InputError,
        match='column "n" is not in the source\n  Hint: Columns with times: rec',
    ):
        changed(both, event_at="n")


def test_arrival_is_the_time_column_that_the_rows_are_sorted_by() -> None:
    # As in the log of a repository: the newest commit is first, and written before it is committed.
    committed = list(reversed(times(200, timedelta(hours=1))))
    written = list(committed)
    for at in range(0, 199, 3):
        written[at] = committed[at + 1]
    for columns in (
        {"author_date": written, "commit_date": committed},
        {"commit_date": committed, "author_date": written},
    ):
        stream = proposed(**columns)
        assert (stream.arrival.name, stream.event_at.name) == ("commit_date", "author_date")
    assert "the rows are sorted by it (100%)" in stream.why["arrived_at"]
    assert "next best: author_date" in stream.why["arrived_at"]
    assert "not later than the arrival in 200 of 200 rows" in stream.why["event_at"]
    valid = times(200, timedelta(hours=1))[100:] + times(300, timedelta(hours=1))[200:]
    seen = times(200, timedelta(hours=1))
    assert proposed(seen=seen, valid_until=valid).arrival.name == "seen"


def test_event_time_column_is_detected_without_a_time_like_name() -> None:
    received = times(21, timedelta(seconds=5))[1:]
    stream = proposed(received_at=received, x=times(20, timedelta(seconds=5)))
    assert (stream.arrival.name, stream.event_at.name) == ("received_at", "x")


def test_epoch_numbers_close_to_another_time_column_are_detected_as_times() -> None:
    sent = times(20, timedelta(seconds=5))
    micros = [int((BEGIN + n * timedelta(seconds=5)).timestamp() * 1000) + 7 for n in range(20)]
    stream = proposed(
        at=sent, x=list(map(str, micros)), order_no=[str(1_000_000_000 + n) for n in range(20)]
    )
    assert (stream.arrival.name, stream.event_at.name) == ("x", "at")
    found = {column.name: column.instant for column in stream.columns}
    assert (found["x"], found["order_no"]) == ("timestamp_millis(x)", "")


def test_key_identifies_a_sender_that_occurs_throughout_the_recording() -> None:
    stamps = times(300, timedelta(seconds=1))
    blocks = [f"run{n // 30}" for n in range(300)]
    devices = [f"d{n % 5}" for n in range(300)]
    stream = proposed(at=stamps, run_code=blocks, device=devices)
    assert stream.key is not None and stream.key.name == "device"
    assert "next best: run_code" in stream.why["keys"]


def test_column_with_missing_values_can_be_selected_as_key() -> None:
    stamps = times(12, timedelta(seconds=1))
    stream = changed(proposed(at=stamps, page=[None, *["a", "b", "c"] * 3, "a", "b"]), key="page")
    assert stream.key is not None and (stream.key.name, stream.key.missing) == ("page", 1)


def test_width_uses_all_rows_and_interval_uses_neighbouring_sample_rows() -> None:
    stamps = times(2_000, timedelta(seconds=1)) + times(200_000, timedelta(seconds=1))[::1000]
    keys = ["a", "b", "c", "d"] * 550
    values = {"at": stamps, "key": keys}
    sample = SourceSample("/x/clicks.csv", "csv", values, total=200_000, head=2_000)
    stream = propose_stream(sample, Path("clicks.csv"))
    # Ten tuples a window would make 20,000 windows.
    assert stream.width == "30 seconds"
    assert "about 6,5" in stream.why["width"]
    assert stream.interval == "1 minute"
    assert "90 % of the keys send every 4 s" in stream.why["interval"]
    assert "longer than this are 0 of 1,996 distances" in stream.why["interval"]


def test_interval_is_increased_until_few_distances_count_as_silence() -> None:
    night = timedelta(hours=9)
    at = BEGIN
    stamps = []
    for n in range(1_000):
        at += night if n % 40 == 39 else timedelta(minutes=1)
        stamps.append(at.isoformat())
    stream = proposed(at=stamps, key=["a"] * 500 + ["b"] * 500)
    assert stream.interval == "1 day"


def test_single_row_with_a_wrong_clock_does_not_increase_the_proposed_width() -> None:
    stamps = times(2_000, timedelta(seconds=1))
    usual = proposed(received_at=stamps)
    wrong = proposed(received_at=["1970-01-01T00:00:00+00:00", *stamps[1:]])
    assert wrong.width == usual.width


def test_ambiguous_date_order_and_time_zone_can_be_specified() -> None:
    stream = proposed(at=["05/04/2026 06:00", "05/05/2026 06:00", "05/06/2026 06:00"])
    assert (stream.patterns, stream.zones[0]) == (["M/d/yyyy H:m", "d/M/yyyy H:m"], "UTC")
    other = changed(stream, pattern="d/M/yyyy H:m", zone="Europe/Berlin")
    assert (other.arrival.pattern, other.event_at.pattern, other.zone) == ("d/M/yyyy H:m",) * 2 + (
        "Europe/Berlin",
    )
    assert (
        other.columns[0] is other.arrival
        and changed(other, pattern="M/d/yyyy H:m").arrival.times == stream.arrival.times
    )
    with pytest.raises(
        InputError,
        match="cannot be read as yyyy\n  Hint: Possible formats: M/d/yyyy H:m, d/M/yyyy H:m.",
    ):
        changed(stream, pattern="yyyy")
    with pytest.raises(
        InputError,
        match='zone "Europe/Berlim" is unknown\n  Hint: Did you mean "Europe/Berlin"',
    ):
        changed(stream, zone="Europe/Berlim")
    assert proposed(at=times(3, timedelta(seconds=1))).zones == []


def test_source_without_a_time_column_is_rejected_with_the_examined_columns() -> None:
    with pytest.raises(InputError, match="no column of the source contains times") as caught:
        proposed(a=["1"], b=["x"])
    assert "a, such as 1 (whole numbers); b, such as x (text)" in caught.value.detail
    assert "try_to_timestamp(COLUMN" in caught.value.hint


def test_proposed_key_is_a_column_with_repeated_values_and_no_nulls() -> None:
    stamps = times(12, timedelta(seconds=1))
    pages = ["a", "b", "c"] * 4
    numbers = [str(n) for n in range(12)]
    assert (
        found := proposed(at=stamps, id=numbers, page=pages).key
    ) is not None and found.name == "page"
    assert proposed(at=stamps, page=[None, *pages[1:]]).key is None
    assert proposed(at=stamps, page=["a"] * 12).key is None


def test_numeric_identifier_columns_are_not_summed() -> None:
    ships = {
        "ship": ["a", "b"] * 6,
        "mmsi": ["244", "245"] * 6,
        "cargo": [str(n) for n in range(12)],
    }
    stream = proposed(at=times(12, timedelta(seconds=1)), **ships)
    assert (stream.key and stream.key.name, [column.name for column in stream.measures]) == (
        "ship",
        ["cargo"],
    )


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
def test_proposed_width_is_the_shortest_common_duration_with_ten_tuples(
    rows: int,
    step: timedelta,
    width: str,
) -> None:
    assert proposed(at=times(rows, step)).width == width


def test_proposed_silence_limit_is_ten_times_the_usual_interval_of_a_key() -> None:
    stream = proposed(at=times(100, timedelta(seconds=1)), page=["a", "b"] * 50)
    assert (stream.interval, stream.key and stream.key.name) == ("30 seconds", "page")


def test_user_answer_changes_the_dependent_proposals() -> None:
    stream = proposed(
        at=times(100, timedelta(seconds=1)),
        seen=times(100, timedelta(hours=1)),
        page=["a", "b"] * 50,
    )
    other = changed(stream, name="visits", arrival="seen", key="")
    assert (other.application, other.arrival.name, other.key, other.width) == (
        "count_visits",
        "seen",
        None,
        "1 day",
    )
    assert changed(stream, width="7 seconds").width == "7 seconds"
    for wrong, message in (
        ({"arrival": "page"}, 'column "page" is not a time'),
        ({"arrival": "seen2"}, 'column "seen2" is not in the source'),
        ({"width": "soon"}, 'duration "soon"'),
        ({"width": "30 days"}, "out of range"),
        ({"name": "a b"}, "not allowed"),
        (
            {"key": "pagee"},
            'not in the source\n  Hint: Did you mean "page"\\? Columns that can be the key: page; '
            "or",
        ),
        ({"key": "seen"}, 'column "seen" cannot be the key: it is a time'),
    ):
        with pytest.raises(InputError, match=message):
            changed(stream, **wrong)
