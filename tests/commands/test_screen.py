"""What the commands show: text out of data is shown as it is, whatever markup it looks like."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from rewindow.commands import screen
from rewindow.ledger import Ledger
from rewindow.progress.job_lines import RecordProgress, ReplayProgress, StepProgress
from rewindow.settings.config import Config
from tests.commands.conftest import Command
from tests.publication.staging import simple

MESSAGES = (
    "[Errno 2] no such file: [/tmp/x]",
    "file [file:/y] is gone",
    "[bold]not bold[/bold]",
    ":warning: :10:",
    "end\\",
    "[red]\\[/red]",
)


@pytest.mark.parametrize("text", MESSAGES)
def test_table_text_is_not_interpreted_as_markup(
    text: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    screen.print_rows("", ("message", "n"), [(text, 1)])
    screen.print_facts({"message": text})
    found = capfd.readouterr().out
    assert found.count(text) == 2, found


def test_copyable_values_are_not_wrapped_on_a_narrow_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = StringIO()
    monkeypatch.setattr(screen, "out", Console(file=text, width=60))
    name = "heartbeat_clicks-343440000-343445760-4e0b64"
    screen.print_rows(
        "",
        ("replay", "words"),
        [(name, "one word after the other, and more of them")],
        whole=1,
    )
    assert name in text.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (336_776, "336,776"),
        (9_999, "9999"),
        (-12_345, "-12,345"),
        (10**13, "10,000,000,000,000"),
        ("336776", "336776"),
    ],
)
def test_counts_are_formatted_as_numbers_and_window_ids_as_text(value: object, text: str) -> None:
    assert screen.format_value(value) == text


def test_message_of_the_ledger_is_printed_verbatim_by_status(
    command: Command,
    config: Config,
) -> None:
    simple(config, "one", 100, 104)
    Ledger.open(config.ledger_url).replays.abandon("one", "see [/tmp/x] and [file:/y]")
    code, text, errors = command("status", "one")
    assert (code, errors) == (0, "")
    assert "see [/tmp/x] and [file:/y]" in text


def test_recording_shows_its_steps_only_after_two_seconds(
    capfd: pytest.CaptureFixture[str],
) -> None:
    shown = screen.JobScreen()
    with shown.job():
        shown.line(RecordProgress("clicks", "reading", 5, 1.9).line())
        shown.line(RecordProgress("clicks", "writing", 1_200, 7.2).line())
    assert capfd.readouterr().err == "clicks: writing, 1,200 tuples, 7 s\n"


def group(first: int, last: int, mark: int, seconds: float) -> str:
    """Returns the line of a committed group of a replay of 100 windows."""
    return ReplayProgress("one", 1, first, last, mark, 100, seconds).line()


def test_terminal_shows_a_progress_bar_and_the_remaining_time_after_one_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Console(force_terminal=True, width=120, file=StringIO())
    now = [0.0]
    monkeypatch.setattr(screen, "err", terminal)
    job = screen.JobScreen(clock=lambda: now[0])

    def shown() -> str:
        with terminal.capture() as captured:
            terminal.print(job._bar)
        return captured.get()

    with job.job():
        assert "starting" in shown()
        job.line(group(1, 10, 10, 5.0))
        assert "10/100 windows" in shown() and "0:00:45 left" in shown()
        now[0] = 5.0
        assert "0:00:40 left" in shown()
        job.line(group(11, 50, 50, 5.0))
        assert "50/100 windows" in shown() and "0:00:10 left" in shown()


def test_piped_output_has_a_progress_line_every_thirty_seconds_and_a_last_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    job = screen.JobScreen(clock=lambda: now[0])
    with job.job():
        for mark in range(10, 101, 10):
            job.line(group(mark - 9, mark, mark, 8.0))
            now[0] += 8.0
    assert capfd.readouterr().err.splitlines() == [
        "windows 1 to 10: 10/100 in 8.0 s",
        "windows 41 to 50: 50/100 in 8.0 s",
        "windows 81 to 90: 90/100 in 8.0 s",
        "windows 91 to 100: 100/100 in 8.0 s",
    ]


def test_step_is_shown_as_a_bar_on_a_terminal_and_as_a_line_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    line = StepProgress("app.x: linking files", 400, 1_000, "files", 4.0, 6.0).line()
    job = screen.JobScreen()
    with job.job():
        job.line(line)
    assert capfd.readouterr().err == "app.x: linking files, 400/1,000 files, 4 s, about 6 s left\n"
    terminal = Console(force_terminal=True, width=120, file=StringIO())
    monkeypatch.setattr(screen, "err", terminal)
    job = screen.JobScreen(clock=lambda: 0.0)

    def shown() -> str:
        with terminal.capture() as captured:
            terminal.print(job._bar)
        return captured.get()

    with job.job():
        job.line(line)
        assert (
            "app.x: linking files" in shown()
            and "400/1,000 files" in shown()
            and "0:00:06 left" in shown()
        )
    assert "linking" not in shown()
