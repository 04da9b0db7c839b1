"""What the demo asks for before it begins, what it deletes, and what it says."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from rewindow.demo import start
from rewindow.demo.console import DemoConsole
from rewindow.errors import InputError, ResourceError, RewindowError
from rewindow.ledger import Ledger
from rewindow.settings.config import Config


def test_folder_without_the_example_is_rejected(config: Config) -> None:
    with pytest.raises(InputError, match="the example of the demo is not in"):
        start.check_place(config, "flight_delays", ())


def test_settings_without_the_streams_of_the_example_are_rejected(config: Config) -> None:
    with pytest.raises(InputError, match='stream "flights" is unknown'):
        start.check_place(config, "flight_delays", ("flights",))


def test_full_disk_is_rejected_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "DISK_BYTES_MIN", 10**18)
    project = Config.load(Path(__file__).parents[2] / "rewindow.toml")
    with pytest.raises(ResourceError, match="are free for the state folder"):
        start.check_place(project, "flight_delays", ("flights", "weather"))


def test_fresh_option_deletes_only_the_state_of_the_example(config: Config) -> None:
    for name in (
        "streams/flights/x",
        "streams/flight_delays.delays/x",
        "streams/heartbeat_weather.ticks/x",
        "streams/filled_weather.filled/x",
        "streams/flight_lateness.lateness/x",
        "replays/r/x",
        "ledger.db",
        "mine/x",
    ):
        path = config.state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    start.begin_afresh(config, ("flights", "weather"), "flight_delays")
    assert sorted(path.name for path in config.state.iterdir()) == ["mine"]


def test_fresh_option_keeps_a_state_folder_with_a_foreign_stream(config: Config) -> None:
    (config.state / "streams" / "clicks").mkdir(parents=True)
    with pytest.raises(InputError, match="--fresh would delete it"):
        start.begin_afresh(config, ("flights", "weather"), "flight_delays")
    assert (config.state / "streams" / "clicks").is_dir()


def test_fresh_option_keeps_a_state_folder_with_a_foreign_replay(config: Config) -> None:
    # Before its publication, an application over the example's streams has only a replay.
    ledger = Ledger.open(config.ledger_url)
    ledger.replays.create("mine", "clicks_per_page", 1, 2, "exactly_once", {}, "c")
    with pytest.raises(InputError, match='replay "mine" of application "clicks_per_page"'):
        start.begin_afresh(config, ("flights", "weather"), "flight_delays")
    assert Ledger.open(config.ledger_url).replays.find("mine") is not None


def test_failed_command_is_quoted_and_sets_the_exit_code(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWINDOW_CONFIG", str(config._file))
    screen = io.StringIO()
    demo_console = DemoConsole(Console(file=screen))
    with pytest.raises(RewindowError, match="ended with exit code 2") as caught:
        demo_console.run("record", "nothing")
    assert 'stream "nothing" is unknown' in str(caught.value) and caught.value.exit_code == 2
    assert "$ rewindow record nothing" in screen.getvalue()


def test_demo_sections_are_timed_even_when_they_fail() -> None:
    demo_console = DemoConsole(Console(file=io.StringIO()))
    with pytest.raises(ValueError, match="x"), demo_console.chapter("one", "words"):
        raise ValueError("x")
    assert demo_console.chapters[0][0] == "one"
