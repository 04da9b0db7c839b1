"""What the Heartbeat accepts (docs/rules/heartbeat.md section 2)."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pytest

from rewindow.application import Application, validate
from rewindow.errors import InputError, ValidationFailed
from rewindow.operators.heartbeat.operator import Heartbeat
from rewindow.operators.heartbeat.settings import HeartbeatSettings
from rewindow.windows import parse_duration

NOT_POSITIVE = "The Tuple Output Interval must be a numeric value greater than zero."
TOO_FINE = "The Tuple Output Interval you entered is too fine-grained to be guaranteed."


@pytest.mark.parametrize(
    "interval",
    [0, "0", "0.0", -1, None, "abc", "", "inf", "-inf", "nan", float("nan"), True, [1]],
)
def test_interval_at_or_below_zero_is_rejected(interval: object) -> None:
    # Rules: H20
    with pytest.raises(InputError) as caught:
        HeartbeatSettings(interval=interval, event_at="at")
    assert caught.value.primary == NOT_POSITIVE


@pytest.mark.parametrize(
    ("interval", "us"),
    [
        (".10", 100_000),
        (0.1, 100_000),
        ("0.01", 10_000),
        (60, 60_000_000),
        ("1 hour", 3_600_000_000),
        ("1e1", 10_000_000),
    ],
)
def test_interval_is_parsed_without_loss_of_precision(interval: object, us: int) -> None:
    # Rules: H22
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert HeartbeatSettings(interval=interval, event_at="at").interval_us == us


@pytest.mark.parametrize(
    ("given", "text"),
    [({"interval": ".009"}, TOO_FINE), ({"slack": "0.001"}, "10 ms")],
)
def test_very_short_intervals_are_accepted_with_a_warning(given: dict[str, Any], text: str) -> None:
    # Rules: H21, H24, H42, H43
    with pytest.warns(UserWarning, match=text):
        HeartbeatSettings(**({"interval": 1, "event_at": "at"} | given))


def test_old_name_of_no_slack_after_timeouts_is_rejected_with_the_new_name() -> None:
    # Rules: H37
    with pytest.raises(InputError, match='slack_after_timeout must be "none", not "not"'):
        HeartbeatSettings(interval=1, event_at="at", slack_after_timeout="not")
    app = Application("old", window="5 seconds")
    beat = Heartbeat(
        interval=1,
        event_at="at",
        columns=pa.schema(COLUMNS),
        slack_after_timeout="not",
    )
    app.output("out", app.add("beat", beat, stream=app.input("s", pa.schema(COLUMNS))), key=["at"])
    with pytest.raises(ValidationFailed, match='slack_after_timeout must be "none", not "not"'):
        validate(app)
    HeartbeatSettings(interval=1, event_at="at", slack_after_timeout="none")


def test_heartbeat_has_one_input_one_output_and_an_error_port() -> None:
    # Rules: H16
    beat = Heartbeat(interval=1, event_at="at", columns=pa.schema(COLUMNS))
    ports = [(name, port.error) for name, port in beat.output_ports().items()]
    assert list(beat.input_ports()) == ["stream"] and ports == [("out", False), ("errors", True)]


@pytest.mark.parametrize("slack", [-1, None, "x", "inf"])
def test_invalid_slack_is_rejected_with_name_and_value(slack: object) -> None:
    # Rules: H23
    with pytest.raises(InputError, match=f"slack must be .*, not {slack!r}"):
        HeartbeatSettings(interval=1, slack=slack, event_at="at")


@pytest.mark.parametrize(
    "given",
    [{"interval": "1e400"}, {"interval": 10**12}, {"slack": "1e30"}, {"max_jump": "1e16"}],
)
def test_intervals_longer_than_a_century_are_rejected(given: dict[str, Any]) -> None:
    # No sum of times exceeds 64 bits.
    with pytest.raises(
        InputError,
        match=rf"{next(iter(given))} must be at most 100 years, not .* s",
    ):
        HeartbeatSettings(**({"interval": 1, "event_at": "at"} | given))
    with pytest.raises(InputError, match="must be at most 100 years"):
        parse_duration("1e999999999 days")


def test_interval_and_slack_may_be_expressions_with_parameters() -> None:
    # Rules: H25
    settings = HeartbeatSettings(
        interval="${minutes} * 60",
        slack="(${minutes} + 1) / 2",
        event_at="at",
        parameters={"minutes": "2"},
    )
    assert (settings.interval_us, settings.slack_us) == (120_000_000, 1_500_000)


def test_unknown_parameter_is_reported_with_the_known_parameters() -> None:
    # Rules: H25
    with pytest.raises(
        InputError, match=r"parameter \$\{hours\} is unknown; available parameters: minutes"
    ):
        HeartbeatSettings(interval="${hours}", event_at="at", parameters={"minutes": "2"})


@pytest.mark.parametrize("given", [{"interval": "0.0000001"}, {"interval": 1, "slack": "1/3"}])
def test_intervals_must_be_whole_microseconds(given: dict[str, Any]) -> None:
    # Rules: H26
    with pytest.raises(InputError, match="must be a whole number of microseconds"):
        HeartbeatSettings(event_at="at", **given)


@pytest.mark.parametrize(
    "given",
    [{"speed": 0}, {"speed": -1}, {"max_timers": 0}, {"crossing": "some"}, {"end": "x"}],
)
def test_invalid_heartbeat_settings_are_rejected(given: dict[str, Any]) -> None:
    # Rules: H14
    with pytest.raises(InputError):
        HeartbeatSettings(interval=1, event_at="at", **given)


def test_heartbeat_operator_reports_wrong_properties_at_launch() -> None:
    # Rules: O53
    columns = pa.schema([("offset", pa.int64()), ("arrived_at", pa.int64()), ("at", pa.int64())])
    app = Application("clicks", window="1 s")
    beat = app.add(
        "beat",
        Heartbeat(interval=0, event_at="at", columns=columns),
        stream=app.input("clicks"),
    )
    app.output("filled", beat, key=["_rw_emission"])
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    assert "beat: " + NOT_POSITIVE in str(caught.value)


COLUMNS = [
    ("offset", pa.int64()),
    ("arrived_at", pa.timestamp("us", "UTC")),
    ("at", pa.int64()),
    ("x", pa.string()),
]


@pytest.mark.parametrize(
    ("given", "columns", "text"),
    [
        (
            {"event_at": "when"},
            COLUMNS,
            "the stream has no column when; available columns: offset, arrived_at, at, x",
        ),
        ({"key_by": ["who"]}, COLUMNS, "the stream has no column who"),
        ({}, COLUMNS[1:], "the stream has no column offset; available columns: arrived_at, at, x"),
        ({"order_by": ["line"]}, COLUMNS, "the stream has no column line"),
        (
            {"event_at": "x"},
            COLUMNS,
            "column x must be a timestamp, or int64 microseconds, not string",
        ),
        (
            {},
            [*COLUMNS[:2], ("at", pa.int32())],
            "column at must be a timestamp, or int64 microseconds, not int32",
        ),
        (
            {},
            [COLUMNS[0], ("arrived_at", pa.date32()), COLUMNS[2]],
            "column arrived_at must be a timestamp, or int64 microseconds, not date32[day]",
        ),
        (
            {},
            [*COLUMNS, ("_rw_cause", pa.string())],
            "the Heartbeat adds a column _rw_cause, but the input already has this column",
        ),
        (
            {},
            [*COLUMNS, ("_rw_Cause", pa.string())],
            "the Heartbeat adds a column _rw_Cause, but the input already has this column",
        ),
    ],
)
def test_heartbeat_operator_rejects_unsuitable_columns_at_launch(
    given: dict[str, Any],
    columns: list[Any],
    text: str,
) -> None:
    operator = Heartbeat(
        **({"interval": 1, "event_at": "at", "columns": pa.schema(columns)} | given)
    )
    assert [wrong.message[: len(text)] for wrong in operator.wrong_properties()] == [text]


def test_heartbeat_operator_accepts_columns_changed_with_their_timestamp() -> None:
    # Rules: O53
    beat = Heartbeat(interval=1, event_at="at", columns=pa.schema(COLUMNS))
    beat.set_properties(columns=pa.schema([*COLUMNS[:2], ("ts", pa.int64())]), event_at="ts")
    assert beat.wrong_properties() == [] and beat.input_ports()["stream"].schema.names[-1] == "ts"
    beat.set_properties(interval="1 minute")
    assert beat.interval_us == 60_000_000
    beat.set_properties(event_at="at")
    assert [wrong.message[:27] for wrong in beat.wrong_properties()] == [
        "the stream has no column at"
    ]


def test_heartbeat_operator_reports_all_column_errors_together() -> None:
    # Rules: O60
    operator = Heartbeat(
        interval=1,
        event_at="x",
        columns=pa.schema([COLUMNS[1], COLUMNS[3], ("_rw_emission", pa.int64())]),
    )
    message = operator.wrong_properties()[0].message
    assert [
        part in message
        for part in ("column offset", "column x must be a timestamp", "column _rw_emission")
    ] == [True] * 3


def test_heartbeat_operator_validates_its_input_stream() -> None:
    # Rules: O13, H19
    schema = pa.schema(COLUMNS)
    app = Application("clicks", window="1 s")
    beat = app.add(
        "beat",
        Heartbeat(interval=1, event_at="at", columns=schema),
        stream=app.input("clicks"),
    )
    app.output("filled", beat, key=["_rw_emission"])
    validate(
        app,
        recorded={
            "clicks": pa.schema([("window_id", pa.int64()), *COLUMNS, ("_rw_cause", pa.string())])
        },
    )
    with pytest.raises(ValidationFailed) as caught:
        validate(app, recorded={"clicks": pa.schema([COLUMNS[1], ("at", pa.string())])})
    assert [(row.rule, row.value) for row in caught.value.violations] == [
        ("O13", "at int64"),
        ("O13", "offset int64"),
        ("O13", "x string"),
    ]
    again = Heartbeat(interval=1, event_at="at", columns=beat.operator.output_ports()["out"].schema)
    app.output("twice", app.add("again", again, stream=beat), key=["_rw_emission"])
    with pytest.raises(
        ValidationFailed,
        match=r"again: .*the Heartbeat adds a column _rw_is_timer, but .* this column: rename",
    ):
        validate(app)


def test_missing_setting_is_reported_together_with_other_violations() -> None:
    # Rules: O53, O60
    app = Application("clicks", window="1 s")
    wrong = Heartbeat(interval=0, columns=pa.schema(COLUMNS))  # type: ignore[call-arg]
    app.output("filled", app.add("beat", wrong, stream=app.input("clicks")), key=["x"])
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    assert [(row.rule, row.value.partition(" ")[0]) for row in caught.value.violations] == [
        ("O53", "event_at"),
        ("O53", "interval"),
    ]
