"""The table of `gaps`: what matters first, what is left out is said."""

from __future__ import annotations

import pytest

from rewindow.commands.gaps import _show
from rewindow.inspection.event_gaps import Completeness, EventGaps
from rewindow.inspection.gap_rows import EMPTY, MISSING, OPEN, SILENT, Gap
from rewindow.inspection.gaps import GapReport
from rewindow.inspection.unusable import Unusable
from rewindow.windows import WindowRange

HOUR = 3_600_000_000


def gap(kind: str, first: int, hours: int, **more: object) -> Gap:
    """Returns a gap of some hours."""
    windows = WindowRange(first, first + hours - 1)
    return Gap(kind, windows, first * HOUR, (first + hours) * HOUR, hours, **more)  # type: ignore[arg-type]


GAPS = [
    *(gap(EMPTY, 10 * n, 1 + n % 3) for n in range(852)),
    gap(MISSING, 9000, 2),
    *(gap(SILENT, 20 * n, 2 + n, key={"page": f"p{n % 4}"}, closed_by=OPEN) for n in range(50)),
]


def test_missing_windows_come_first_then_silent_keys_then_empty_windows(capfd: pytest.CaptureFixture[str]) -> None:
    """Each longest first, each cut by itself, with what was left out and how to see it."""
    _show(GapReport("clicks", WindowRange(0, 9999), 9998, HOUR, GAPS), 5)
    text = capfd.readouterr().out
    places = [text.index(word) for word in ("missing: 2 windows in 1 stretches", "silent: 50 stretches of 4 keys",
                                            "empty: 1,704 windows in 852 stretches")]  # fmt: skip
    assert places == sorted(places)
    silent = text[places[1] : places[2]].splitlines()
    assert "page=p1" in silent[2] and "2 days, 3:00:00" in silent[2] and silent[6].startswith("page=p1")
    assert "... 45 silent stretches more, none longer than 1 day, 23:00:00; all of them: --limit 50" in text
    assert "... 847 empty stretches more, none longer than 3:00:00; all of them: --limit 852, or --format csv" in text


def test_what_there_is_none_of_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    """An absence is an answer; silences that nobody looked for are no absence."""
    _show(GapReport("clicks", WindowRange(0, 9), 10, None, []), 5)
    text = capfd.readouterr().out
    assert "missing: none" in text and "empty: none" in text and "silences were not looked for" in text


@pytest.mark.parametrize(("slack_us", "words"), [(0, "1 h"), (600_000_000, "1 h and a slack of 10 min")])
def test_a_silence_is_longer_than_the_interval_and_the_slack(
    capfd: pytest.CaptureFixture[str], slack_us: int, words: str
) -> None:
    """The table says what it has measured against (G12)."""
    _show(GapReport("clicks", WindowRange(0, 9), 10, HOUR, [gap(SILENT, 0, 2)], slack_us=slack_us), 5)
    assert f"without a tuple for longer than {words}\n" in capfd.readouterr().out


def test_tuples_whose_timestamps_cannot_be_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    """By key and reason."""
    unusable = [Unusable({"dev": "s08"}, "bad_type", 1000, 5748, 5748)]
    _show(GapReport("clicks", WindowRange(0, 9), 10, HOUR, [], unusable=unusable), 5)
    assert "dev=s08 all 5,748 a thousand times too small" in capfd.readouterr().out.replace("\n", " ")


def test_who_is_silent_is_named_beside_when_all_keys_end(capfd: pytest.CaptureFixture[str]) -> None:
    """Of two keys that end before the end, only the one that ended long before the other."""
    ended = [
        Gap("ended", None, at, 100 * HOUR, 1, {"k": key}, OPEN, since_us=at)
        for key, at in (("a", 90 * HOUR), ("b", 50 * HOUR))
    ]
    complete = [Completeness({"k": key}, "", None, 100, 90, None, 10, 0) for key in "ab"]
    event = EventGaps(HOUR, None, 0, 100 * HOUR, complete, ended)
    _show(GapReport("clicks", WindowRange(0, 9), 10, HOUR, ended, event), 5)
    text = capfd.readouterr().out.replace("\n", " ")
    assert "silent at the end: k=b since 1970-01-03T02:00:00Z; all keys end by 1970-01-04T18:00:00Z" in text
