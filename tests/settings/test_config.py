"""Settings of a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.errors import InputError
from rewindow.operators.heartbeat.settings import NOT_POSITIVE
from rewindow.settings.config import Config, StreamConfig

H20 = NOT_POSITIVE[0].lower() + NOT_POSITIVE[1:].rstrip(".")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"width": "1.5 ms"}, "width of 1500 us is not a whole number of milliseconds"),
        (
            {"origin": "2013-01-01T00:00:00.0005Z"},
            "origin 2013-01-01T00:00:00.0005Z is not a whole number of mill",
        ),
        ({"origin": "1969-12-31T23:59:59.9995Z"}, "is not a whole number of milliseconds"),
    ],
)
def test_window_grid_finer_than_milliseconds_is_rejected(given: dict[str, str], text: str) -> None:
    # Rules: W3, W4
    with pytest.raises(InputError) as caught:
        _ = StreamConfig(source="x", arrived_at="at", **given).grid
    assert text in str(caught.value)


def test_window_origin_between_whole_seconds_is_accepted() -> None:
    # Rules: W4
    stream = StreamConfig(source="x", arrived_at="at", origin="1970-01-01T00:00:00.250Z")
    assert stream.grid.origin_ms == 250


def load(folder: Path, setting: str) -> Config:
    file = folder / "rewindow.toml"
    file.write_text(f'[streams.s]\nsource = "s.csv"\narrived_at = "at"\n{setting}\n')
    return Config.load(file)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ('interval = "0"', f'interval" is wrong: it is 0; {H20}'),
        ("interval = -1", f'interval" is wrong: it is -1 s; {H20}'),
        ('slack = "-10 ms"', 'slack" is wrong: it is -10 ms; it must be zero or more'),
        ("interval = nan", 'interval" is wrong: duration "nan" cannot be read'),
        ("slack = inf", 'slack" is wrong: duration "inf" cannot be read'),
    ],
)
def test_invalid_interval_or_slack_is_rejected_with_setting_and_value(
    tmp_path: Path,
    setting: str,
    text: str,
) -> None:
    # Rules: H20, H23
    with pytest.raises(InputError) as caught:
        load(tmp_path, setting)
    assert caught.value.primary == f'setting "streams.s.{text}'
    assert f"Read from {tmp_path}" in caught.value.detail


def test_smallest_interval_and_zero_slack_are_accepted(tmp_path: Path) -> None:
    # Rules: H20, H23
    stream = load(tmp_path, 'interval = "1 us"\nslack = 0').stream("s")
    assert (stream.interval_us, stream.slack_us) == (1, 0)


def test_unreadable_duration_error_keeps_its_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, 'width = "soon"')
    assert 'setting "streams.s.width" is wrong: duration "soon"' in caught.value.primary
    assert "10 minutes" in caught.value.hint


@pytest.mark.parametrize("name", ["state", "expectations"])
def test_folder_on_an_object_store_is_rejected_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    # It would otherwise become a local folder of that name.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"REWINDOW_{name.upper()}", "s3://bucket/state")
    with pytest.raises(
        InputError,
        match=f'setting "{name}" is wrong: location "s3://bucket/state" is not a folder',
    ) as caught:
        Config.load()
    assert "Object stores are not supported" in caught.value.hint


def test_spark_setting_from_the_environment_keeps_its_uppercase_letters(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REWINDOW_SPARK__CONF__spark.sql.files.maxPartitionBytes", "1m")
    monkeypatch.setenv("REWINDOW_SPARK__MASTER", "local[3]")
    spark = Config.load().spark
    assert spark.conf == {"spark.sql.files.maxPartitionBytes": "1m"}
    assert spark.master == "local[3]"


def test_environment_variable_nested_under_a_scalar_setting_is_rejected(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewindow.toml").write_text('ledger = "sqlite:///x"\n')
    monkeypatch.setenv("REWINDOW_LEDGER__URL", "x")
    with pytest.raises(InputError, match='setting "ledger" is not a section'):
        Config.load()


@pytest.mark.parametrize(
    ("text", "primary", "hint"),
    [
        ('[streams.s]\nsource = "x"\narrived_at = "at"\nwidthh = "1 '
         's"', 'setting "streams.s.widthh" is unknown',
         'Did you mean "width"? Known in [streams.s]: source, format,'),
        ("[stream.s]", 'setting "stream" is unknown', 'Did you mean "streams"? Known in '
                                                      'rewindow.toml: state,'),
        ("[spark]\nmastr = 1", 'setting "spark.mastr" is '
                               'unknown', 'Did you mean "master"? Known in [spark]: master,'),
        ("[replay]\nxyz = 1", 'setting "replay.xyz" is '
                              'unknown', "Known in [replay]: group_seconds,"),
        ('[streams.s]\nsource = "x"', 'setting "streams.s.arrived_at" is missing', "rewindow init"),
    ],
)  # fmt: skip
def test_unknown_setting_is_reported_with_known_settings_and_a_suggestion(
    tmp_path: Path,
    text: str,
    primary: str,
    hint: str,
) -> None:
    file = tmp_path / "rewindow.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        Config.load(file)
    assert caught.value.primary == primary
    assert hint in caught.value.hint and "interval_us" not in caught.value.hint


@pytest.mark.parametrize(
    ("setting", "primary", "hint"),
    [
        (
            'keys = "bay"',
            'setting "streams.s.keys" is "bay", not a list',
            'Write it like this: keys = ["bay"]',
        ),
        ('keys = "bay, lot"', "not a list", 'Write it like this: keys = ["bay", "lot"]'),
        ("keys = [5]", 'setting "streams.s.keys" has 5, which is not a text', 'keys = ["5"]'),
        (
            'header = "maybe"',
            'is "maybe", not true or false',
            "Write header = true or header = false",
        ),
        ('select = "x"', "not a table", 'select = { NAME = "VALUE" }'),
        ('columns = ["a INT"]', "not a text", 'columns = "a INT"'),
        (
            'new_columns = "tak"',
            "not an allowed value",
            'Did you mean "take"? Allowed: "report", "take".',
        ),
        ("malformed_max_share = 2", "it is 2, but must be less than or equal to 1", ""),
        ("width = [1]", "duration", "a number and a unit"),
    ],
)
def test_malformed_setting_is_reported_with_its_correct_form(
    tmp_path: Path,
    setting: str,
    primary: str,
    hint: str,
) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, setting)
    assert primary in caught.value.primary
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "primary", "detail"),
    [
        ("state = 5", 'setting "state" is wrong: it must be a text', "Read from"),
        ('[streams]\ns = "x"', 'setting "streams.s" is "x", not a section', "Read from"),
        (
            'state = "a"\nkeys = [',
            "is not valid TOML: invalid value, at its end",
            "quote may be missing",
        ),
        (
            'state = "a"\nlimit = two',
            "is not valid TOML: invalid value, at line 2, column 9",
            "Line 2 is: limit = two",
        ),
    ],
)
def test_invalid_toml_is_reported_with_line_and_column(
    tmp_path: Path,
    text: str,
    primary: str,
    detail: str,
) -> None:
    file = tmp_path / "rewindow.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        Config.load(file)
    assert primary in caught.value.primary
    assert detail in caught.value.detail and caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["ledger = [{0}]", "ledger = postgresql://u:hidden@h/d", "[spark]\nsecret_file = [{0}]"],
)
def test_possible_secrets_are_not_shown_in_errors(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rewindow.toml"
    file.write_text(text.format('"postgresql://u:hidden@h/d"'))
    with pytest.raises(InputError) as caught:
        Config.load(file)
    assert "hidden" not in str(caught.value)


def test_file_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "rewindow.toml"
    file.write_bytes('state = "z\xfcrich"'.encode("latin-1"))
    with pytest.raises(InputError, match="is not UTF-8"):
        Config.load(file)


def test_file_without_a_stream_is_rejected_with_an_example() -> None:
    with pytest.raises(InputError, match='stream "s" is unknown') as caught:
        Config().stream("s")
    assert "[streams.s]" in caught.value.hint and "rewindow init FILE" in caught.value.hint


def test_applications_setting_can_be_a_list_of_folders_or_a_section(tmp_path: Path) -> None:
    # Rules: O28
    assert load(tmp_path, "").application_settings == {}
    section = '[applications]\nfolders = ["own"]\n[applications.sums.operators.half]\nleast = 3\n'
    config = load(tmp_path, section)
    assert config.applications == [tmp_path / "own"]
    assert config.application_settings["sums"].operators == {"half": {"least": 3}}
    assert load(tmp_path, "[applications.sums]\nstrict_outputs = true").applications == [
        tmp_path / "jobs/applications"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[applications.sums]\ncheckpoint_window = 3",
            'setting "applications.sums.checkpoint_window" is unknown',
        ),
        (
            "[applications.sums]\ncheckpoint_windows = 0",
            'setting "applications.sums.checkpoint_windows" is wrong: it is 0',
        ),
        (
            "[applications.sums.operators]\nhalf = 3",
            'setting "applications.sums.operators.half" is 3, not a table',
        ),
    ],
)
def test_wrong_setting_of_an_application_is_reported_as_written(
    tmp_path: Path,
    text: str,
    said: str,
) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)


def test_all_wrong_settings_are_reported_together(tmp_path: Path) -> None:
    # Rules: O60
    with pytest.raises(InputError) as caught:
        load(tmp_path, 'heads = true\n[replay]\nattempts = "many"\ngroup_windows = 0')
    text = str(caught.value)
    assert "error" not in text.splitlines()[0] and "Wrong too: " in text
    assert all(
        name in text
        for name in ('"replay.attempts"', '"replay.group_windows"', '"streams.s.heads"')
    )


def test_folder_list_in_addition_to_a_section_is_rejected_with_the_correct_form(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rewindow.toml"
    file.write_text('applications = ["own"]\n[applications.sums.operators.half]\nleast = 3\n')
    with pytest.raises(
        InputError,
        match=r"use \[applications\] with folders = \[\.\.\.\] below it",
    ):
        Config.load(file)
