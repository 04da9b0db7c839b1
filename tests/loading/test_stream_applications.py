"""Applications that settings of streams make, `filled_<stream>` and `windows_<stream>`; what is
said of wrong ones.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewindow.application import Mode, find_violations, validate
from rewindow.application.overrides import OPTION, overrides_from
from rewindow.errors import InputError
from rewindow.loading.catalog import application_names, load_application
from rewindow.loading.code_versions import configuration_digest
from rewindow.loading.stream_applications import (
    filled_application,
    heartbeat_application,
    windows_application,
)
from rewindow.loading.suite_flaws import suite_flaws
from rewindow.loading.suites import suite_for
from rewindow.operators import AggregateWindows, FillGaps
from rewindow.operators.schedule.hours_grid import HoursGrid
from rewindow.settings.config import BY_NAME, Config, StreamConfig
from rewindow.storage import create_table
from tests.quality.staging import PROJECT

TIME = pa.timestamp("us", tz="UTC")
BOOKKEEPING = [
    ("window_id", pa.int64()),
    ("offset", pa.int64()),
    ("arrived_at", TIME),
    ("origin", pa.string()),
]
PAYLOAD = [
    ("Hour", TIME),
    ("temp", pa.float64()),
    ("sky", pa.string()),
    ("m", pa.map_(pa.string(), pa.int64())),
]
SCHEMA = pa.schema([*BOOKKEEPING, *PAYLOAD])
FILL = {"columns": {"temp": {"method": "linear", "max_gap": "6 h"}, "sky": "forward"}}


def stream(**settings: Any) -> StreamConfig:
    """Returns settings of a stream of hourly reports, some of them exchanged."""
    given = {
        "source": "x.csv",
        "arrived_at": "Hour",
        "event_at": "Hour",
        "keys": ["origin"],
        "interval": "1 h",
        "width": "1 h",
        "fill": FILL,
    }
    return StreamConfig(**{**given, **settings})


def test_settings_section_creates_a_valid_application(tmp_path: Path) -> None:
    config = Config(
        state=tmp_path,
        expectations=PROJECT,
        applications=[tmp_path],
        streams={"weather": stream()},
    )
    recorded = {"weather": create_table(config.stream_table("weather"), SCHEMA)}
    assert application_names(config) == ["filled_weather", "heartbeat_weather"]
    app = load_application(config, "filled_weather").app
    validate(app, recorded={"weather": SCHEMA})
    assert [str(flaw) for flaw in suite_flaws(config, app, recorded)] == []
    assert app.outputs["filled"].suite == "filled" and [str(one) for one in app.errors()] == [
        "fill.errors"
    ]
    for more, step_us in (
        ({}, 3600),
        ({"cadence": "30 min"}, 1800),
        ({"fill": {"step": "10 min"}}, 600),
    ):
        operator = filled_application("weather", stream(**more), SCHEMA).nodes["fill"].operator
        assert isinstance(operator, FillGaps) and operator.rules().step_us == step_us * 1_000_000


def test_files_of_filled_rows_are_sorted_if_configured(tmp_path: Path) -> None:
    # Rules: G41
    order = ["origin", "Hour", "_rw_is_made"]
    given: Any = {BY_NAME: {"filled_weather": {"outputs": {"filled": {"sorted_by": order}}}}}
    config = Config(state=tmp_path, expectations=PROJECT, streams={"weather": stream()}, **given)
    create_table(config.stream_table("weather"), SCHEMA)
    app = load_application(config, "filled_weather").app
    validate(app, recorded={"weather": SCHEMA})
    assert app.outputs["filled"].sorted_by == tuple(order)


def test_old_attribute_name_of_timers_is_rejected_with_the_new_name(
    tmp_path: Path,
) -> None:
    given: Any = {BY_NAME: {"heartbeat_weather": {"outputs": {"filled": {"tolerance": 0.1}}}}}
    config = Config(state=tmp_path, expectations=PROJECT, streams={"weather": stream()}, **given)
    create_table(config.stream_table("weather"), SCHEMA)
    app = load_application(config, "heartbeat_weather").app
    flaws = [str(flaw) for flaw in find_violations(app, Mode.EXACTLY_ONCE, {"weather": SCHEMA})]
    assert len(flaws) == 1
    assert "no output has the name filled. Existing outputs: ticks." in flaws[0]


def test_suite_expects_filled_nulls_only_with_the_setting(tmp_path: Path) -> None:
    # Rules: G27
    fill = {"columns": {"temp": {"method": "forward", "treat_null_as_missing": True}}}
    config = Config(
        state=tmp_path,
        expectations=PROJECT,
        applications=[tmp_path],
        streams={"weather": stream(fill=fill)},
    )
    recorded = {"weather": create_table(config.stream_table("weather"), SCHEMA)}
    app = load_application(config, "filled_weather").app
    assert [str(flaw) for flaw in suite_flaws(config, app, recorded)] == []
    assert dict(app.outputs["filled"].suite_parameters)["fills_nulls"] == "true"
    plain = filled_application("weather", stream(), SCHEMA)
    assert dict(plain.outputs["filled"].suite_parameters)["fills_nulls"] == "false"


def test_suite_of_each_stream_application_is_configurable_in_its_section(tmp_path: Path) -> None:
    settings = stream(
        suite="my_timers",
        fill={**FILL, "suite": "my_rows"},
        windows={"length": "1 h", "suite": "my_windows"},
    )
    config = Config(state=tmp_path, expectations=PROJECT, streams={"weather": settings})
    create_table(config.stream_table("weather"), SCHEMA)
    found = {}
    for name in ("heartbeat_weather", "filled_weather", "windows_weather"):
        for output in load_application(config, name).app.outputs.values():
            found[f"{name}.{output.name}"] = output.suite
    assert found == {
        "heartbeat_weather.ticks": "my_timers",
        "filled_weather.filled": "my_rows",
        "windows_weather.fired": "my_windows",
        "windows_weather.late": "late_tuples",
    }


@pytest.mark.parametrize("windows", [{"length": "1 h"}, {"gap": "1 h"}, {"length": "9 tuples"}])
def test_suites_of_stream_applications_support_any_column_names(
    tmp_path: Path, windows: dict[str, Any]
) -> None:
    names = ["n", "at", "before", "time", "value", "order", "end", "Group", "a b", "shown", "more"]
    schema = pa.schema([*BOOKKEEPING, *[(name, pa.float64()) for name in names], ("Hour", TIME)])
    methods = ["forward", "linear", "nearest", {"method": "linear", "extrapolate": True}]
    aggregates = {f"{name}_": f"max({name})" for name in names}
    settings = stream(
        fill={"columns": dict(zip(names, methods * 3, strict=False))},
        windows={**windows, "aggregates": aggregates},
    )
    config = Config(state=tmp_path, expectations=PROJECT, streams={"weather": settings})
    recorded = {"weather": create_table(config.stream_table("weather"), schema)}
    for name in ("heartbeat_weather", "filled_weather", "windows_weather"):
        app = load_application(config, name).app
        assert [str(flaw) for flaw in suite_flaws(config, app, recorded)] == [], name


def test_properties_set_by_stream_settings_can_only_be_changed_there(tmp_path: Path) -> None:
    # Rules: O28
    config = Config(
        state=tmp_path,
        expectations=PROJECT,
        applications=[tmp_path],
        streams={"weather": stream()},
    )
    create_table(config.stream_table("weather"), SCHEMA)
    given = overrides_from({"heartbeat.interval": "2 h", "heartbeat.arrived_at": "Hour"}, OPTION)
    app = load_application(config, "heartbeat_weather", given=given).app
    assert [one.path for one in app.given] == ["heartbeat.arrived_at"]
    found = [str(one) for one in find_violations(app) if one.rule == "O28"]
    assert (
        len(found) == 1
        and "change it in [streams.NAME] of rewindow.toml (interval = '2 h')" in found[0]
    )


def test_fill_operator_uses_the_opening_hours_of_the_settings_section(tmp_path: Path) -> None:
    # Rules: G3
    text = """
        step = "30 min"
        zone = "America/New_York"
        hours = "09:30-16:00"
        weekdays = "mon-fri"
        closed = [2013-12-25, "2014-01-01"]
    """
    fill = tomllib.loads(text)
    app = filled_application("weather", stream(fill=fill), SCHEMA)
    validate(app, recorded={"weather": SCHEMA})
    operator = app.nodes["fill"].operator
    assert isinstance(operator, FillGaps)
    known = dict(app.outputs["filled"].suite_parameters)
    assert (app.outputs["filled"].suite, known["has_steps"]) == ("filled", "false")
    found = operator.rules().grid
    assert (
        isinstance(found, HoursGrid)
        and found.weekdays == (0, 1, 2, 3, 4)
        and found.step_us == 1_800_000_000
    )
    assert [str(day) for day in found.closed] == ["2013-12-25", "2014-01-01"]
    with pytest.raises(
        InputError, match='step "1 h" does not divide hours "09:30-16:00"'
    ) as caught:
        filled_application("weather", stream(fill={**fill, "step": "1 h"}), SCHEMA)
    assert "[streams.weather.fill]" in caught.value.hint


def test_look_back_is_passed_to_the_operator_and_must_be_positive() -> None:
    # Rules: G35, G36
    for more, look_back_us in (({}, None), ({"look_back": "2 h"}, 7_200_000_000)):
        operator = (
            filled_application("weather", stream(fill=FILL | more), SCHEMA).nodes["fill"].operator
        )
        assert isinstance(operator, FillGaps) and operator.rules().look_back_us == look_back_us
    with pytest.raises(InputError, match="look_back must be above 0, not 0"):
        filled_application("weather", stream(fill=FILL | {"look_back": 0}), SCHEMA)


def test_bounds_and_expected_keys_are_passed_to_the_operator() -> None:
    # Rules: G4, G7
    bounds = {"from": "2013-01-01", "to": "2014-01-01"}
    for fill, expected in ((FILL, ()), (FILL | bounds, (("JFK",), ("LGA",)))):
        settings = stream(fill=fill, expected_keys=["JFK", "LGA"])
        operator = filled_application("weather", settings, SCHEMA).nodes["fill"].operator
        assert isinstance(operator, FillGaps) and operator.rules().expected_keys == expected
        assert (operator.rules().to_time is not None) == bool(expected)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown method": (
        {"fill": {"columns": {"temp": "lineal"}}},
        'cannot be filled: method "lineal" of column temp is unknown. Did you mean "linear"? '
        "Available methods: null, constant",
    ),
    "a line through text": (
        {"fill": {"columns": {"sky": "linear"}}},
        'column "sky" cannot be interpolated',
    ),
    "an absent column": (
        {"fill": {"columns": {"wind": "forward"}}},
        "frame has no column wind. Available columns: ",
    ),
    "an unknown bound": (
        {"fill": {"columns": {"temp": {"method": "forward", "max_age": "1 h"}}}},
        'columns.temp.max_age is unknown. Did you mean "max_carry"? Available settings: method, '
        "value",
    ),
    "a number as method": (
        {"fill": {"columns": {"temp": 5}}},
        "columns.temp must be a table with the settings method",
    ),
    "an end before the begin": (
        {"fill": {"from": "2014-01-01", "to": "2013-01-01"}},
        "empty or reversed",
    ),
    "a time that is none": ({"fill": {"from": "soon"}}, '"soon"'),
    "no step": ({"interval": None}, 'stream "weather" has no fill.step'),
    "no event timestamp": ({"event_at": None}, 'stream "weather" has no event_at'),
    "no section": ({"fill": None}, 'stream "weather" has no fill'),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_fill_setting_is_rejected_with_the_allowed_values(case: str) -> None:
    settings, message = WRONG[case]
    with pytest.raises(InputError) as caught:
        filled_application("weather", stream(**settings), SCHEMA)
    assert message in str(caught.value) and "[streams.weather" in caught.value.hint


WINDOWS = {
    "length": "6 h",
    "lag": "30 min",
    "aggregates": {"reports": "count(*)", "warmest": "max(temp)"},
}


def test_windows_section_creates_a_valid_application(tmp_path: Path) -> None:
    # Rules: E19
    streams = {"weather": stream(windows=WINDOWS, fill=None, interval=None)}
    config = Config(state=tmp_path, expectations=PROJECT, applications=[tmp_path], streams=streams)
    recorded = {"weather": create_table(config.stream_table("weather"), SCHEMA)}
    assert application_names(config) == ["windows_weather"]
    app = load_application(config, "windows_weather").app
    late = suite_for(config.expectations, app.outputs["late"].suite)
    assert "late-by-adds-up" in str(late) and "not-empty" not in str(late)
    validate(app, recorded={"weather": SCHEMA})
    assert [str(flaw) for flaw in suite_flaws(config, app, recorded)] == []
    assert list(app.outputs) == ["fired", "late"] and [str(one) for one in app.errors()] == [
        "aggregate.errors"
    ]
    assert app.outputs["fired"].key == ()
    operator = app.nodes["aggregate"].operator
    assert isinstance(operator, AggregateWindows)
    assert (operator.length, operator.slide, operator.lag) == (
        "21600000000 us",
        None,
        "1800000000 us",
    )
    keyless = windows_application(
        "weather",
        stream(windows=WINDOWS | {"allowed_lateness": "1 h"}, keys=[]),
        SCHEMA,
    )
    assert keyless.outputs["fired"].key == ("window_begin_us", "pane", "kind")
    again = WINDOWS | {"allowed_lateness": "1 h", "late": "2 h", "late_tuples": 5}
    corrected = (
        windows_application("weather", stream(windows=again), SCHEMA).nodes["aggregate"].operator
    )
    assert isinstance(corrected, AggregateWindows) and (corrected.late, corrected.late_tuples) == (
        "7200000000 us",
        5,
    )
    visits = (
        windows_application("weather", stream(windows={"gap": "2 h"}), SCHEMA)
        .nodes["aggregate"]
        .operator
    )
    assert isinstance(visits, AggregateWindows) and (visits.gap, visits.gap_inclusive) == (
        "7200000000 us",
        False,
    )
    for section in (again | {"only_updated_panes": True}, {"gap": "2 h", "gap_inclusive": True}):
        asked = (
            windows_application("weather", stream(windows=section), SCHEMA)
            .nodes["aggregate"]
            .operator
        )
        assert isinstance(asked, AggregateWindows)
        assert (asked.only_updated_panes, asked.gap_inclusive) == (
            "late" in section,
            "gap" in section,
        )
    for size, slide, key in (
        ("100 tuples", "10  tuples", ("pane", "kind")),
        ("global", None, ("pane", "kind")),
    ):
        given = stream(windows={"length": size, "slide": slide}, keys=[])
        made = windows_application("weather", given, SCHEMA)
        sized = made.nodes["aggregate"].operator
        assert isinstance(sized, AggregateWindows) and not sized.wrong_properties()
        assert (sized.length, made.outputs["fired"].key) == (size, key)
    counted = (
        windows_application("weather", stream(windows={"length": "1 h"}), SCHEMA)
        .nodes["aggregate"]
        .operator
    )
    assert isinstance(counted, AggregateWindows) and counted.aggregates == {"tuples": "count(*)"}


WRONG_WINDOWS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown aggregate": (
        {"windows": WINDOWS | {"aggregates": {"t": "mode(temp)"}}},
        'cannot have windows: aggregate "t" must be one of avg, count, max, min, sum over a column',
    ),
    "an absent column": (
        {"windows": WINDOWS | {"aggregates": {"t": "sum(wind)"}}},
        "the stream has no column wind",
    ),
    "a sum of text": (
        {"windows": WINDOWS | {"aggregates": {"t": "sum(sky)"}}},
        'column "sky" must be a number, not string',
    ),
    "a name that is a key": (
        {"windows": WINDOWS | {"aggregates": {"Origin": "count(*)"}}},
        "column Origin would appear",
    ),
    "a slide beyond the length": (
        {"windows": WINDOWS | {"slide": "7 h"}},
        "slide 7 h is longer than length 6 h: tuples between two windows would be in no window\n",
    ),
    "a slide of another kind": (
        {"windows": {"length": "100 tuples", "slide": "1 h"}},
        "length and slide must both be counts of tuples or both be durations\n  Hint: Change",
    ),
    "no event timestamp": (
        {"windows": WINDOWS, "event_at": None},
        'stream "weather" has no event_at',
    ),
    "no section": ({"windows": None}, 'stream "weather" has no windows'),
    "late triggers without late tuples": (
        {"windows": WINDOWS | {"late_tuples": 5}},
        "late and late_tuples have no effect",
    ),
    "neither length nor gap": (
        {"windows": {"lag": "1 s"}},
        "windows have neither length nor gap",
    ),
    "updated panes that fire once": (
        {"windows": WINDOWS | {"only_updated_panes": True}},
        "each window fires once",
    ),
    "an inclusive gap without one": (
        {"windows": WINDOWS | {"gap_inclusive": True}},
        "gap_inclusive applies only to session windows",
    ),
    "sessions with a length": (
        {"windows": WINDOWS | {"gap": "1 h"}},
        "session windows (gap is set) cannot have length",
    ),
}


@pytest.mark.parametrize("case", WRONG_WINDOWS)
def test_invalid_windows_section_is_rejected_with_a_hint(case: str) -> None:
    settings, message = WRONG_WINDOWS[case]
    with pytest.raises(InputError) as caught:
        windows_application("weather", stream(**settings), SCHEMA)
    assert message in str(caught.value) and "[streams.weather" in caught.value.hint


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('length = "0 s"', "length must be above 0, not 0"),
        ('length = "-1 h"', "duration must be from 0 to 100 years, not -1 h"),
        ('length = "1 h"\nmax_ahead = "never"', 'duration "never" cannot be read'),
        ("length = [1]", "not [1]"),
        ('length = "ten tuples"', 'duration "ten tuples" cannot be read'),
        ('length = "1 h"\nlag = "-1 s"', "duration must be from 0 to 100 years, not -1 s"),
        ('length = "1 h"\naccumulation = "all"', "accumulation: it must be 'discarding'"),
        ('length = "1 h"\ngap_inclusive = "perhaps"', "gap_inclusive: it must be a valid boolean"),
        ('length = "1 h"\nlater = 1', 'setting "streams.weather.windows.later" is unknown'),
        ('length = "1 h"\nlags = 1', 'Did you mean "lag"? Known in [streams.weather.windows]: '),
        ('length = "1 h"\nevent_at = "x"', 'setting "streams.weather.windows.event_at" is unknown'),
    ],
)
def test_invalid_value_in_a_windows_section_is_reported_with_the_allowed_values(
    line: str,
    words: str,
) -> None:
    with pytest.raises(InputError) as caught:
        windows_application("weather", stream(windows=tomllib.loads(line)), SCHEMA)
    assert words in str(caught.value) and "[streams.weather.windows]" in caught.value.hint


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"steps": "1 h"}, 'setting "streams.weather.fill.steps" is unknown'),
        ({"from_time": "2013-01-01"}, "Known in [streams.weather.fill]: step, zone, hours"),
        ({"from": 5.5}, "from must be a valid integer, not 5.5"),
        ({"columns": "linear"}, "columns: it must be a valid dictionary"),
        ({"closed": "2013-12-25"}, "closed: it must be a valid tuple"),
        ({"max_rows": 0}, "max_rows must be greater than or equal to 1, not 0"),
        ({"max_ahead": "never"}, 'duration "never" cannot be read'),
    ],
)
def test_invalid_value_in_a_fill_section_is_reported(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        filled_application("weather", stream(fill=FILL | more), SCHEMA)
    assert words in str(caught.value) and "[streams.weather.fill]" in caught.value.hint


def test_dates_without_quotes_are_read_like_text() -> None:
    text = 'from = "2013-01-01"\nto = "2014-01-01T12:00:00+00:00"\norigin = "2013-01-01"'
    quoted = filled_application("weather", stream(fill=FILL | tomllib.loads(text)), SCHEMA)
    plain = tomllib.loads(text.replace('"', ""))
    unquoted = filled_application("weather", stream(fill=FILL | plain), SCHEMA)
    assert configuration_digest(unquoted) == configuration_digest(quoted)


def test_configuration_digests_equal_those_of_earlier_versions() -> None:
    # Checkpoints are bound to them: a change would make all published states unusable.
    fill = {"step": "1 h", "from": "2013-01-01", "look_back": "2 days", "max_ahead": "36 h"}
    windows = {
        "length": "6 hours",
        "slide": "1 h",
        "lag": "10 min",
        "allowed_lateness": 3600,
        "early": "90 s",
        "late": "2 h",
        "aggregates": {"warm": "max(temp)"},
    }
    beat = stream(slack="5 min", max_jump="2 days")
    applications = [
        heartbeat_application("weather", beat, SCHEMA),
        filled_application("weather", stream(fill=FILL | fill), SCHEMA),
        windows_application("weather", stream(windows=windows), SCHEMA),
    ]
    digests = list(map(configuration_digest, applications))
    assert digests == ["5d16c00ff1585ebb", "f8c8c0fb4c539da0", "7c2e3d5f9b607479"]
