"""Recording: windows, order, idempotence, late and malformed tuples, settings that may not
change.
"""

from __future__ import annotations

import re

import pytest

from rewindow.errors import InputError, OverlapError
from rewindow.progress.job_lines import parse_recording
from rewindow.progress.listener import Lines
from rewindow.recording.stream import recording_lock
from tests.recording.conftest import Bench

FIRST = 1000
"""Window of 1970-01-01T02:46:40, ten seconds wide."""

ROWS = """a,1970-01-01T02:46:41Z,1
b,1970-01-01T02:46:40Z,2
a,1970-01-01T02:46:49.999999Z,3
a,1970-01-01T02:46:50Z,4
c,1970-01-01T02:47:25Z,5
"""


def test_record_writes_windows_in_arrival_order_with_offsets(bench: Bench) -> None:
    bench.write(ROWS)
    result = bench.record()
    found = bench.tuples()
    assert found[:3] == [(1000, 0, "b", 2), (1000, 1, "a", 1), (1000, 2, "a", 3)]
    assert found[3:] == [(1001, 0, "a", 4), (1004, 0, "c", 5)]
    assert (result.first, result.last, result.recorded) == (1000, 1004, 5)


def test_record_also_seals_empty_windows(bench: Bench) -> None:
    bench.write(ROWS)
    result = bench.record()
    sealed = bench.rows("select window_id, tuples from w order by window_id")
    assert [tuple(row.values()) for row in sealed] == [
        (1000, 3),
        (1001, 1),
        (1002, 0),
        (1003, 0),
        (1004, 1),
    ]
    assert (result.windows_sealed, result.windows_empty) == (5, 2)


def test_rows_with_equal_arrival_are_ordered_by_the_numeric_row_number(bench: Bench) -> None:
    bench.write("".join(f"k{n},1970-01-01T02:46:41Z,{n}\n" for n in range(25)))
    bench.record()
    assert [row[3] for row in bench.tuples()] == list(range(25))


def test_second_record_run_changes_nothing(bench: Bench) -> None:
    bench.write(ROWS + "a,1970-01-01T02:46:41Z,x\n")
    bench.record()
    before = bench.tuples(), bench.aside(), bench.rows("select * from w order by window_id")
    again = bench.record()
    assert (
        bench.tuples(),
        bench.aside(),
        bench.rows("select * from w order by window_id"),
    ) == before
    assert (again.windows_sealed, again.recorded, again.late, again.malformed) == (0, 0, 0, 0)
    assert (again.already_there, again.known, again.files_unchanged, again.bytes_read) == (
        0,
        0,
        1,
        0,
    )


def test_late_tuples_are_quarantined_once(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record()
    copy = "a,1970-01-01T02:46:50Z,4\n"
    new = "z,1970-01-01T02:47:01Z,9\n"
    bench.write(ROWS + copy + new + "early,1970-01-01T02:46:01Z,7\n")
    late = bench.record()
    assert (late.late, late.already_there, late.recorded) == (3, 0, 0)
    expected = [(1001, "late", "s.csv:7"), (1002, "late", "s.csv:8"), (996, "late", "s.csv:9")]
    assert bench.aside() == expected
    assert len(bench.tuples()) == 5
    bench.write(ROWS + copy + copy + new + "early,1970-01-01T02:46:01Z,7\n")
    more = bench.record()
    assert (more.late, more.known) == (1, 3)
    assert len(bench.aside()) == 4


def test_late_tuples_keep_their_content_in_quarantine(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record()
    bench.write(ROWS + "late,1970-01-01T02:46:50.5Z,\n")
    bench.record()
    payload = bench.rows("select payload, source from q")
    at = "1970-01-01T02:46:50.500000Z"
    assert payload == [
        {"payload": f'{{"arrived_at":"{at}","k":"late","at":"{at}","n":null}}', "source": "s"}
    ]


def test_malformed_rows_are_quarantined_with_their_reason(bench: Bench) -> None:
    # Rules: W5
    at = "1970-01-01T02:46:41Z"
    bench.write(ROWS + f"a,{at}\na,{at},many\na,,1\na,yesterday,1\na,1969-12-31T23:59:59Z,1\n")
    result = bench.record()
    assert bench.aside() == [
        (None, "malformed: arrival before the origin of the grid", "s.csv:11"),
        (None, "malformed: column at is not timestamp", "s.csv:10"),
        (None, "malformed: column n is not int", "s.csv:8"),
        (None, "malformed: no arrival timestamp", "s.csv:9"),
        (None, "malformed: row has 2 columns, 3 expected", "s.csv:7"),
    ]
    assert (result.recorded, result.malformed) == (5, 5)


def test_tuples_after_the_sealing_bound_are_recorded_by_a_later_run(bench: Bench) -> None:
    bench.write(ROWS)
    early = bench.record(sealed_to="1970-01-01T02:46:55Z")
    assert (early.last, early.recorded, early.waiting) == (1000, 3, 2)
    later = bench.record(sealed_to="1970-01-01T02:48:00Z")
    assert (later.first, later.last, later.recorded, later.waiting) == (1001, 1007, 2, 0)
    assert [row[0] for row in bench.tuples()] == [1000, 1000, 1000, 1001, 1004]
    assert bench.rows("select count(*) as n from w where tuples = 0") == [{"n": 5}]


def test_window_of_the_newest_tuple_is_not_sealed(bench: Bench) -> None:
    bench.write(ROWS)
    half = bench.record(sealed_to=None)
    assert (half.last, half.recorded, half.waiting) == (1003, 4, 1)
    assert half.lines()[-1].startswith(
        "s: window 1004 (1970-01-01T02:47:20Z) is open, because more tuples may arrive: 1 tuples "
        "wait."
    )
    assert "`rewindow record s --sealed-to 1970-01-01T02:47:30Z`" in half.open
    bench.write(ROWS + "d,1970-01-01T02:47:29Z,6\ne,1970-01-01T02:47:31Z,7\n")
    rest = bench.record(sealed_to=None)
    assert (rest.first, rest.last, rest.recorded, rest.late, rest.waiting) == (1004, 1004, 2, 0, 1)
    assert [row[3] for row in bench.tuples()] == [2, 1, 3, 4, 5, 6]


def test_seal_after_setting_delays_sealing(bench: Bench) -> None:
    bench.write(ROWS)
    result = bench.record(sealed_to=None, seal_after="20 s")
    assert (result.last, result.recorded, result.waiting) == (1001, 4, 1)


def test_ended_stream_is_sealed_to_its_last_tuple(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record(sealed_to=None)
    ended = bench.record(sealed_to=None, end=True)
    assert (ended.first, ended.last, ended.recorded, ended.waiting, ended.open) == (
        1004,
        1004,
        1,
        0,
        "",
    )
    bench.write(ROWS + "x,9000-01-01T00:00:00Z,1\n")
    with pytest.raises(InputError, match="1 tuples have arrival timestamps in the future"):
        bench.record(sealed_to=None, end=True)


def test_tuples_without_an_event_time_are_reported(bench: Bench) -> None:
    bench.write(ROWS + "08-03-1970,1970-01-01T02:46:51Z,1\n")
    result = bench.record(select={"day": "try_to_timestamp(k, 'dd-MM-yyyy')"}, event_at="day")
    assert result.recorded == 6
    assert result.warnings == [
        '5 of 6 tuples have no event timestamp: column "day" is null. If its expression or format '
        "is wrong, correct it in rewindow.toml, then record the stream again: rewindow record s "
        "--start-over"
    ]


def test_tuple_with_a_future_arrival_is_pending_and_seals_no_window(bench: Bench) -> None:
    bench.write(ROWS + "x,9000-01-01T00:00:00Z,1\n")
    result = bench.record(sealed_to=None)
    assert (result.last, result.waiting) == (1003, 2)
    assert "arrival timestamps in the future" in result.warnings[0]
    assert result.open.startswith("window 1004 (1970-01-01T02:47:20Z) is open")


def test_bound_in_the_future_is_rejected(bench: Bench) -> None:
    bench.write(ROWS)
    with pytest.raises(InputError, match="this time is in the future"):
        bench.record(sealed_to="9000-01-01")


def test_tuple_deleted_from_the_source_remains_recorded_with_a_warning(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record()
    bench.write("".join(ROWS.splitlines(keepends=True)[1:]))
    result = bench.record()
    assert (result.short_windows, result.short_tuples, result.late) == (1, 1, 0)
    assert len(bench.tuples()) == 5
    assert [
        "has changed since" in result.warnings[0],
        "the source no longer has" in result.warnings[1],
    ] == [True, True]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"width": "20 s"}, "width"),
        ({"origin": "1970-01-01T00:00:01Z"}, "origin"),
        ({"arrived_at": "at + interval 1 second"}, "arrived_at"),
        ({"columns": "k STRING, at TIMESTAMP, n BIGINT"}, "columns"),
        ({"columns": "k STRING, at TIMESTAMP"}, "columns"),
        ({"keep": ["k", "at"]}, "keep"),
        ({"select": {"n": "n + 1"}}, r"select\.n"),
    ],
)
def test_changed_grid_arrival_or_columns_are_rejected_and_nothing_is_written(
    bench: Bench,
    change: dict[str, object],
    named: str,
) -> None:
    # Rules: W4, W15
    bench.write(ROWS)
    bench.record()
    with pytest.raises(InputError, match=f'^{named} of stream "s" is'):
        bench.record(**change)
    assert len(bench.tuples()) == 5


def test_source_with_other_columns_than_recorded_is_rejected_with_the_difference(
    bench: Bench,
) -> None:
    bench.write(ROWS)
    bench.record(columns=None, arrived_at="CAST(at AS TIMESTAMP)")
    source = bench.root / "s.csv"
    source.write_text(source.read_text().replace("n\n", "m\n", 1))
    with pytest.raises(
        InputError, match="columns that differ from its recording: recorded n string"
    ):
        bench.record(columns=None, arrived_at="CAST(at AS TIMESTAMP)")
    assert len(bench.tuples()) == 5


def test_settings_may_change_before_the_first_window(bench: Bench) -> None:
    bench.write("")
    bench.record()
    bench.write(ROWS)
    assert bench.record(width="20 s", keep=["k"], sealed_to="1970-01-01T02:47:40Z").recorded == 5


def test_keys_and_event_timestamp_may_change(bench: Bench) -> None:
    # They define how the tuples are read, not their content.
    bench.write(ROWS)
    bench.record()
    bench.record(keys=["k", "n"], event_at="at")
    from rewindow.storage import Table
    from rewindow.storage.streams import stored_settings

    stored = stored_settings(Table.open(bench.config().windows_table("s")))
    assert (stored["keys"], stored["event_at"], stored["width_ms"]) == ("k,n", "at", "10000")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "nowhere.csv"}, 'source ".*nowhere.csv" of stream "s" does not exist'),
        ({"source": "package:no_such_package/x.csv"}, 'package "no_such_package"'),
        ({"source": "package:pyarrow/no.csv"}, 'file "no.csv" is not in package "pyarrow"'),
        ({"columns": "k STRING, nope INT"}, 'column "nope" is not in source file "s.csv"'),
        (
            {"columns": "k STRING, at TIMESTAMPP"},
            'unknown type "TIMESTAMPP"\n.*Did you mean "TIMESTAMP"',
        ),
        (
            {"columns": "k TEXT"},
            'has unknown type "TEXT"\n.*Did you mean "STRING"\\? Types: BIGINT, .* TIMESTAMP, ',
        ),
        (
            {"columns": "k STRING, at"},
            "is not valid DDL: k STRING, at\n  Detail: The expression is incomplete",
        ),
        ({"columns": "k STRING, K INT"}, 'setting "columns" of stream "s" has column "k" twice'),
        (
            {"columns": "k STRING, at ARRAY<INT>"},
            "has a type that the source cannot be converted to",
        ),
        (
            {"arrived_at": "att"},
            'arrived_at of stream "s" uses column "att", .*\n.*\n.*Did you mean "at"\\? The '
            "source has: k, at, n\\.$",
        ),
        (
            {"arrived_at": "to_timestmp(at)"},
            'uses function "to_timestmp", .*\n.*\n.*mean "to_timestamp"',
        ),
        (
            {"arrived_at": "at +"},
            'is not valid SQL: "at \\+"\n  Detail: The expression is incomplete.',
        ),
        (
            {"arrived_at": "cast(at as datetime)"},
            'arrived_at of stream "s" has unknown type "DATETIME"',
        ),
        (
            {"arrived_at": "array(n)"},
            'cannot be computed: "array\\(n\\)"\n  Detail: Cannot resolve',
        ),
        ({"arrived_at": "max(at)"}, 'cannot compute the tuples of stream "s" from its settings'),
        ({"select": {"v": "m * 2"}}, 'select.v of stream "s" uses column "m"'),
        ({"keys": ["K"]}, 'key "K" .*\n.*Did you mean "k"'),
        ({"event_at": "n"}, 'event timestamp "n" of stream "s" is not a TIMESTAMP'),
        ({"keep": ["nope"]}, 'column "nope" in the setting "keep" of stream "s"'),
        ({"select": {"offset": "1"}}, 'event column "offset"'),
        ({"select": {"v": "1 / (n - n)"}}, "an expression of stream"),
        ({"format": "xml"}, 'format "xml"'),
    ],
)
def test_bad_settings_are_reported_before_anything_is_written(
    bench: Bench,
    change: dict[str, object],
    message: str,
) -> None:
    bench.write(ROWS)
    with pytest.raises(InputError, match=message) as caught:
        bench.record(**change)
    assert not re.search(r"__\w+|SQLSTATE|\[[A-Z_]+[.\]]", str(caught.value)), (
        "that is Spark's business, not a user's"
    )
    assert not bench.config().stream_table("s").exists()


def test_select_setting_adds_columns_and_zone_applies_to_text_without_a_zone(bench: Bench) -> None:
    bench.write("a,1970-06-01T12:00:00,3\n")
    bench.record(
        end=True,
        sealed_to=None,
        zone="America/New_York",
        keep=["k"],
        select={"twice": "n * 2", "hour": "hour(at)"},
    )
    assert bench.rows("select k, twice, hour, cast(arrived_at as string) as arrived from s") == [
        {"k": "a", "twice": 6, "hour": 12, "arrived": "1970-06-01T16:00:00Z"}
    ]


def test_numbers_with_a_decimal_comma_are_parsed(bench: Bench) -> None:
    values = ("1.234,50", "-7,25", "1.234", "12", "1.5", "1,5", "many")
    (bench.root / "s.csv").write_text(
        "k;at;n\n" + "".join(f"a;1970-01-01T02:46:41Z;{n}\n" for n in values)
    )
    bench.record(delimiter=";", decimal=",", columns="k STRING, at TIMESTAMP, n DECIMAL(9,2)")
    assert [str(row["n"]) for row in bench.rows('select n from s order by "offset"')] == [
        "1234.50",
        "-7.25",
        "1234.00",
        "12.00",
        "1.50",
    ]
    assert [row[1:] for row in bench.aside()] == [
        ("malformed: column n is not decimal(9,2)", "s.csv:6"),
        ("malformed: column n is not decimal(9,2)", "s.csv:8"),
    ]


def test_recording_leaves_the_session_of_the_caller_unchanged(bench: Bench) -> None:
    bench.write(ROWS)
    before = bench.spark.conf.get("spark.sql.session.timeZone")
    bench.record(zone="Asia/Tokyo")
    assert bench.spark.conf.get("spark.sql.session.timeZone") == before


def test_second_recorder_is_rejected_while_one_is_running(bench: Bench) -> None:
    bench.write(ROWS)
    with (
        recording_lock(bench.config(), "s"),
        pytest.raises(OverlapError, match="is being recorded by process"),
    ):
        bench.record()
    assert bench.record().recorded == 5


def test_empty_source_does_not_seal_windows_before_the_first_tuple(bench: Bench) -> None:
    bench.write("")
    assert bench.record().windows_sealed == 0
    bench.write(ROWS)
    bench.record()
    later = bench.record(sealed_to="1970-01-01T02:48:00Z")
    assert (later.windows_sealed, later.windows_empty, later.recorded) == (3, 3, 0)


def test_listener_receives_every_step_in_order(bench: Bench) -> None:
    from rewindow.recording.record import record

    lines: list[str] = []
    bench.write(ROWS)
    record(bench.spark, bench.config(), "s", listener=Lines(lines.append))
    told = [progress for progress in map(parse_recording, lines) if progress is not None]
    steps = list(
        dict.fromkeys(progress.step for progress in told)
    )  # One that takes seconds is told again.
    assert [
        step for step in steps if step in {"counting", "recording windows [1000, 1004]", "done"}
    ] == ["counting", "recording windows [1000, 1004]", "done"]
    assert told[-1].tuples == 5
