"""What columns are taken for: by all values, but for a few malformed ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rewindow.new_project.columns import Column, combined_times, describe_columns
from rewindow.new_project.sample import SourceSample


def column(name: str, values: list[Any], kind: str = "csv") -> Column:
    return describe_columns(SourceSample("x", kind, {name: values}))[0]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20", "0"], "BIGINT"),
        (["1", "007"], "STRING"),
        (["9223372036854775807"], "BIGINT"),
        (["9223372036854775809"], "STRING"),
        (["9007199254740993", "1.5"], "STRING"),
        (["9007199254740992", "1.5"], "DOUBLE"),
        (["1.50", "22.00"], "DECIMAL(18,2)"),
        (["1.5", "22.00"], "DOUBLE"),
        (["1.5", "2"], "DOUBLE"),
        (["1e3", "2.5"], "DOUBLE"),
        (["1", "NA", None], "BIGINT"),
        (["7"] * 98 + [" 7", "soon"], "BIGINT"),
        (["NA", "DE"], "STRING"),
        (["true", "False"], "BOOLEAN"),
        (["2026-03-01", "2026-03-02"], "DATE"),
        (["2026-03-01T10:00:00Z", "2026-03-01 10:00:00.123+01:00"], "TIMESTAMP"),
        (["2026-03-01T10:00:00Z", "soon"], "STRING"),
        (["2026-13-01"], "STRING"),
        ([None, None], "STRING"),
    ],
)
def test_inferred_type_is_the_narrowest_type_for_all_values(
    values: list[str | None],
    kind: str,
) -> None:
    assert column("x", values).kind == kind


def test_null_markers_are_reported_only_in_columns_without_text_type() -> None:
    # NA is Namibia in a column of countries.
    assert column("x", ["1", "NA"]).nulls == {"NA"}
    assert column("country", ["NA", "DE"]).nulls == frozenset()


def test_null_marker_of_another_column_is_reported_in_a_text_column() -> None:
    # A recording reads the texts of null_values as null in all columns.
    values = {"n": ["1", "NA", "-"], "country": ["NA", "DE", "DE"], "name": ["a", "b", "c"]}
    _, country, name = describe_columns(SourceSample("x", "csv", values))
    assert (country.missing, country.why) == (1, "text; NA means null, as in other columns")
    assert (name.missing, name.why) == (0, "text")


MOMENT = int(datetime(2026, 3, 1, 10, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("name", "value", "instant"),
    [
        ("ts", str(MOMENT), "timestamp_seconds(ts)"),
        ("ts", str(MOMENT * 1000), "timestamp_millis(ts)"),
        ("ts", str(MOMENT * 10**6), "timestamp_micros(ts)"),
        ("count", str(MOMENT), ""),
        ("ts", "5", ""),
        ("at", "2026-03-01 10:00", "at"),
        ("Order Date", "2026-03-01T10:00:00Z", "`Order Date`"),
        ("at", "01.03.2026 10:00", "try_to_timestamp(at, 'd.M.yyyy H:m')"),
        ("at", "3/31/2026 10:00:00", "try_to_timestamp(at, 'M/d/yyyy H:m:s')"),
        ("at", "03/31/2026 10:00:00 AM", "try_to_timestamp(at, 'M/d/yyyy h:m:s a')"),
        ("at", "3/31/26 10:00", "try_to_timestamp(at, 'M/d/yy H:m')"),
        ("at", "2026-03-01T10:00:00+0000", "at"),
        ("at", "2026-03-01 12:00:00 +02:00", "at"),
        ("at", "2026-03-01 10:00:00 UTC", "at"),
        ("at", "2026-03-01T10:00Z", "try_to_timestamp(at, 'yyyy-M-d\\'T\\'H:mXXX')"),
        ("at", "2026/03/01 10:00:00.000", "try_to_timestamp(at, 'yyyy/M/d H:m:s.SSSSSS')"),
        ("at", "Mar 01, 2026 10:00:00", "try_to_timestamp(at, 'MMM d, yyyy H:m:s')"),
        ("at", "01/Mar/2026:11:00:00 +0100", "try_to_timestamp(at, 'd/MMM/yyyy:H:m:s Z')"),
        ("at", "20260301100000", "try_to_timestamp(at, 'yyyyMMddHHmmss')"),
        ("n", "20260301", ""),
        ("created", str(MOMENT), "timestamp_seconds(created)"),
    ],
)
def test_time_column_has_a_parsing_expression(name: str, value: str, instant: str) -> None:
    found = column(name, [value, None])
    assert found.instant == instant
    if instant and "31" not in value:
        assert found.times == [MOMENT * 10**6, None]


def test_ambiguous_day_and_month_order_is_reported() -> None:
    assert "could be M/d/yyyy" in column("at", ["03/04/2026"]).why
    assert "could be" not in column("at", ["03/14/2026"]).why


def test_day_and_month_order_is_chosen_by_the_shorter_time_span() -> None:
    # With day and month exchanged, two consecutive days are a month apart.
    found = column("at", ["05/04/2026 06:00:00", "05/05/2026 06:00:00"])
    assert (
        found.instant == "try_to_timestamp(at, 'M/d/yyyy H:m:s')"
        and "could be d/M/yyyy" in found.why
    )


def test_invalid_column_names_are_replaced() -> None:
    sample = SourceSample(
        "x", "csv", {name: ["1"] for name in ("Room Name", "offset", "a", "A", "7")}
    )
    assert [c.event for c in describe_columns(sample)] == [
        "room_name",
        "source_offset",
        "a",
        "A_2",
        "column_7",
    ]


def test_mixed_json_values_are_inferred_as_their_common_type() -> None:
    rows = [{"type": "view", "tags": ["a"]}, {"type": None, "n": 1}, None]
    assert (
        column("event", rows, "json").kind
        == "STRUCT<`type`: STRING, `tags`: ARRAY<STRING>, `n`: BIGINT>"
    )
    assert column("x", [1, "a"], "json").kind == "STRING"
    assert column("x", [1, 2.5], "json").kind == "DOUBLE"
    assert column("x", [2**63 - 1, -(2**63)], "json").kind == "BIGINT"
    assert column("x", [2**63 + 1, 1], "json").kind == "STRING"
    assert column("x", [2**53 + 1, 1.5], "json").kind == "STRING"
    assert column("x", [2**53, 1.5], "json").kind == "DOUBLE"
    assert column("x", [True, None], "json").kind == "BOOLEAN"


@pytest.mark.parametrize(
    ("usual", "malformed", "kind"),
    [
        ("2026-03-01T10:00:00Z", "not-a-time", "TIMESTAMP"),
        ("1.50", "broken", "DECIMAL(18,2)"),
        ("7", "seven", "BIGINT"),
        ("07.03.2026 10:15", "soon", "STRING"),
        ("07.03.2026 10:15", "07.03.20x6 10:15", "STRING"),
        ("2026-03-01T10:00:00Z", "2026-02-30T10:00:00Z", "TIMESTAMP"),
        ("07.03.2026 10:15", "31.02.2026 10:15", "STRING"),
    ],
)
def test_few_malformed_texts_do_not_change_the_inferred_type(
    usual: str, malformed: str, kind: str
) -> None:
    # Up to one in a hundred goes to quarantine; with more, the column is text.
    few = column("seen_at", [usual] * 198 + [None, malformed, malformed])
    assert few.kind == kind and bool(few.instant) == (usual[0] in "20" and len(usual) > 8), few
    misfits = f'2 of 200 values do not fit and go to quarantine, such as "{malformed}" in row 200'
    assert misfits in few.why
    assert few.missing == 1 and few.values[-1] == malformed
    many = column("seen_at", [usual] * 197 + [malformed] * 3)
    assert (many.kind, many.instant) == ("STRING", "")


@pytest.mark.parametrize(
    ("usual", "malformed", "kind"),
    [
        ("2026-03-01T10:00:00Z", "yesterday", "TIMESTAMP"),
        ("07.03.2026 10:15", "soon", "STRING"),
        (20.5, "n/a", "DOUBLE"),
        (7, "seven", "BIGINT"),
        (2**53 + 1, 1.5, "BIGINT"),
        (2**53 + 1, 2**63 + 1, "BIGINT"),
        (True, "yes", "BOOLEAN"),
        ({"a": 1}, [1], "STRUCT<`a`: BIGINT>"),
    ],
    ids=str,
)
def test_few_malformed_json_values_do_not_change_the_inferred_type(
    usual: Any, malformed: Any, kind: str
) -> None:
    few = column("seen_at", [usual] * 198 + [None, malformed, malformed], "json")
    assert few.kind == kind
    assert bool(few.instant) == (isinstance(usual, str)), few
    assert f'such as "{malformed}" in row 200' in few.why
    many = column("seen_at", [usual] * 197 + [malformed] * 3, "json")
    assert (many.kind, many.instant) == ("STRING", "")


def test_few_malformed_values_of_several_kinds_do_not_change_the_type() -> None:
    values = [2**53 + 1] * 297 + [str(2**53 + 1), 2**63 + 1, 1.5]
    found = column("seq", values, "json")
    assert found.kind == "BIGINT" and "3 of 300 values do not fit" in found.why


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_epoch_column_may_contain_a_few_numbers_that_are_not_times(kind: str) -> None:
    def read_as(usual: Any, other: Any, share: int) -> Column:
        values = [usual] * share + [other]
        return column("ts", list(map(str, values)) if kind == "csv" else values, kind)

    few = read_as(MOMENT * 1000, MOMENT, 199)
    assert (few.kind, few.instant, few.times[-1]) == ("BIGINT", "timestamp_millis(ts)", None)
    assert f", without 1 of 200 values such as {MOMENT}" in few.why
    assert read_as(MOMENT * 1000, MOMENT, 98).instant == ""
    # timestamp_millis needs a whole number.
    fraction = read_as(MOMENT * 1000, MOMENT * 1000 + 0.25, 199)
    assert fraction.instant == "timestamp_micros(try_cast(ts * 1000 as bigint))"
    assert fraction.times[-1] == MOMENT * 10**6 + 250
    assert read_as(MOMENT, MOMENT + 0.5, 199).instant == "timestamp_seconds(ts)"


def test_nested_object_fields_become_columns_with_a_path() -> None:
    rows = [{"sensor": {"id": f"s{n}", "sent at": f"2026-03-0{n}T10:00:00Z"}} for n in (1, 2)]
    values = {"sensor": [row["sensor"] for row in rows]}
    found = {column.name: column for column in describe_columns(SourceSample("x", "json", values))}
    assert list(found) == ["sensor", "sensor.id", "sensor.sent at"]
    assert (found["sensor.id"].event, found["sensor.id"].sql) == ("sensor_id", "sensor.id")
    sent = found["sensor.sent at"]
    assert (sent.event, sent.instant) == (
        "sensor_sent_at",
        "try_cast(sensor.`sent at` as timestamp)",
    )
    assert len(set(sent.times)) == 2


def test_date_and_time_columns_are_combined_into_a_timestamp() -> None:
    for days, instant in (
        (
            ["2026-03-01", "2026-03-02"],
            "try_cast(concat(cast(date as string), ' ', `Clock Time`) as timestamp)",
        ),
        (
            ["3/1/2026", "3/22/2026"],
            "try_to_timestamp(concat(cast(date as string), ' ', `Clock Time`), 'M/d/yyyy H:m')",
        ),
    ):
        columns = describe_columns(
            SourceSample(
                "x", "csv", {"date": days, "Clock Time": ["10:00", "9:30"], "n": ["1", "2"]}
            )
        )
        [both] = combined_times(columns)
        assert (both.instant, both.name, both.event) == (
            instant,
            "date + Clock Time",
            "date_clock_time",
        )
        assert both.times[0] == MOMENT * 10**6
