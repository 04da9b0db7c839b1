"""Settings of a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.config import Config, StreamConfig
from rewindow.errors import InputError
from rewindow.operators.heartbeat.settings import NOT_POSITIVE

H20 = NOT_POSITIVE[0].lower() + NOT_POSITIVE[1:].rstrip(".")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"width": "1.5 ms"}, "width of 1500 us is not a whole number of milliseconds"),
        ({"origin": "2013-01-01T00:00:00.0005Z"}, "origin 2013-01-01T00:00:00.0005Z is not a whole number of mill"),
        ({"origin": "1969-12-31T23:59:59.9995Z"}, "is not a whole number of milliseconds"),
    ],
)
def test_a_grid_of_less_than_milliseconds_is_refused(given: dict[str, str], text: str) -> None:
    """W3, W4: width and origin are integers; nothing is cut off, for the windows would be others."""
    with pytest.raises(InputError) as caught:
        _ = StreamConfig(source="x", arrived_at="at", **given).grid
    assert text in str(caught.value)


def test_an_origin_within_a_second_is_accepted() -> None:
    """W4: any millisecond."""
    stream = StreamConfig(source="x", arrived_at="at", origin="1970-01-01T00:00:00.250Z")
    assert stream.grid.origin_ms == 250


def load(folder: Path, setting: str) -> Config:
    """Reads settings with one stream that has the given setting."""
    file = folder / "rewindow.toml"
    file.write_text(f'[streams.s]\nsource = "s.csv"\narrived_at = "at"\n{setting}\n')
    return Config.load(file)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ('interval = "0"', f'interval" is wrong: it is 0 us; {H20}'),
        ("interval = -1", f'interval" is wrong: it is -1000000 us; {H20}'),
        ('slack = "-10 ms"', 'slack" is wrong: it is -10000 us; it must be zero or more'),
        ("interval = nan", 'interval" is wrong: duration "nan" cannot be read'),
        ("slack = inf", 'slack" is wrong: duration "inf" cannot be read'),
    ],
)
def test_an_interval_or_slack_that_cannot_be_is_refused_where_it_is_set(
    tmp_path: Path, setting: str, text: str
) -> None:
    """H20, H23: the error names the setting and the value, before anything counts in it."""
    with pytest.raises(InputError) as caught:
        load(tmp_path, setting)
    assert caught.value.primary == f'setting "streams.s.{text}'
    assert f"Read from {tmp_path}" in caught.value.detail


def test_the_smallest_interval_and_no_slack_are_accepted(tmp_path: Path) -> None:
    """H20, H23: only zero and below, and below zero, are out of range."""
    stream = load(tmp_path, 'interval = "1 us"\nslack = 0').stream("s")
    assert (stream.interval_us, stream.slack_us) == (1, 0)


def test_a_duration_that_cannot_be_read_says_how_to_write_it(tmp_path: Path) -> None:
    """The hint survives on the way from the value to the setting."""
    with pytest.raises(InputError) as caught:
        load(tmp_path, 'width = "soon"')
    assert 'setting "streams.s.width" is wrong: duration "soon"' in caught.value.primary
    assert "10 minutes" in caught.value.hint


@pytest.mark.parametrize("name", ["state", "expectations"])
def test_folder_on_an_object_store_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It would become a local folder of that name, and the work would be lost where nobody looks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"REWINDOW_{name.upper()}", "s3://bucket/state")
    with pytest.raises(InputError, match=f'setting "{name}" is wrong: s3://bucket/state is no folder') as caught:
        Config.load()
    assert "no object store is known" in caught.value.hint


def test_spark_setting_from_the_environment_keeps_its_capitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's names are told apart by them; those of ours are not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REWINDOW_SPARK__CONF__spark.sql.files.maxPartitionBytes", "1m")
    monkeypatch.setenv("REWINDOW_SPARK__MASTER", "local[3]")
    spark = Config.load().spark
    assert spark.conf == {"spark.sql.files.maxPartitionBytes": "1m"}
    assert spark.master == "local[3]"


def test_variable_below_a_setting_that_is_no_section_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words, not by a traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewindow.toml").write_text('ledger = "sqlite:///x"\n')
    monkeypatch.setenv("REWINDOW_LEDGER__URL", "x")
    with pytest.raises(InputError, match='setting "ledger" is no section'):
        Config.load()


@pytest.mark.parametrize(
    ("text", "primary", "hint"),
    [
        ('[streams.s]\nsource = "x"\narrived_at = "at"\nwidthh = "1 s"', 'setting "streams.s.widthh" is unknown',
         'Did you mean "width"? Known in [streams.s]: source, format,'),
        ("[stream.s]", 'setting "stream" is unknown', 'Did you mean "streams"? Known in rewindow.toml: state,'),
        ("[spark]\nmastr = 1", 'setting "spark.mastr" is unknown', 'Did you mean "master"? Known in [spark]: master,'),
        ("[replay]\nxyz = 1", 'setting "replay.xyz" is unknown', "Known in [replay]: group_seconds,"),
        ('[streams.s]\nsource = "x"', 'setting "streams.s.arrived_at" is missing', "rewindow init"),
    ],
)  # fmt: skip
def test_an_unknown_setting_is_answered_with_those_that_are_known(
    tmp_path: Path, text: str, primary: str, hint: str
) -> None:
    """And with the one that was probably meant."""
    file = tmp_path / "rewindow.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        Config.load(file)
    assert caught.value.primary == primary
    assert hint in caught.value.hint and "interval_us" not in caught.value.hint
