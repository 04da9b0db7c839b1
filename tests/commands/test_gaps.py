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
    windows = WindowRange(first, first + hours - 1)
    return Gap(kind, windows, first * HOUR, (first + hours) * HOUR, hours, **more)  # type: ignore[arg-type]


GAPS = [
    *(gap(EMPTY, 10 * n, 1 + n % 3) for n in range(852)),
    gap(MISSING, 9000, 2),
    *(gap(SILENT, 20 * n, 2 + n, key={"page": f"p{n % 4}"}, closed_by=OPEN) for n in range(50)),
]


def test_gaps_command_lists_missing_windows_then_silent_keys_then_empty_windows(
    capfd: pytest.CaptureFixture[str],
) -> None:
    _show(GapReport("clicks", WindowRange(0, 9999), 9998, HOUR, GAPS), 5)
    text = capfd.readouterr().out
    places = [
        text.index(word)
        for word in (
            "missing: 2 windows in 1 periods",
            "silent: 50 periods of 4 keys",
            "empty: 1,704 windows in 852 periods",
        )
    ]
    assert places == sorted(places)
    silent = text[places[1] : places[2]].splitlines()
    assert (
        "page=p1" in silent[2]
        and "2 days, 3:00:00" in silent[2]
        and silent[6].startswith("page=p1")
    )
    assert (
        "... 45 more silent periods, none longer than 1 day, 23:00:00; to see all, use --limit 50 "
        "or" in text
    )
    assert (
        "... 847 more empty periods, none longer than 3:00:00; to see all, use --limit 852 or "
        "--format csv" in text
    )


def test_gaps_command_omits_silences_if_they_were_not_searched(
    capfd: pytest.CaptureFixture[str],
) -> None:
    _show(GapReport("clicks", WindowRange(0, 9), 10, None, []), 5)
    text = capfd.readouterr().out
    assert "missing: none" in text and "empty: none" in text and "silences are not reported" in text


@pytest.mark.parametrize(
    ("slack_us", "words"),
    [(0, "1 h"), (600_000_000, "1 h and a slack of 10 min")],
)
def test_silence_is_reported_only_if_longer_than_interval_plus_slack(
    capfd: pytest.CaptureFixture[str],
    slack_us: int,
    words: str,
) -> None:
    # Rules: G12
    _show(
        GapReport("clicks", WindowRange(0, 9), 10, HOUR, [gap(SILENT, 0, 2)], slack_us=slack_us),
        5,
    )
    assert f"without tuples for longer than {words}\n" in capfd.readouterr().out


def test_tuples_with_impossible_timestamps_are_counted_by_key_and_reason(
    capfd: pytest.CaptureFixture[str],
) -> None:
    unusable = [Unusable({"dev": "s08"}, "bad_type", 1000, 5748, 5748)]
    _show(GapReport("clicks", WindowRange(0, 9), 10, HOUR, [], unusable=unusable), 5)
    assert "dev=s08 all 5,748 a thousand times too small" in capfd.readouterr().out.replace(
        "\n",
        " ",
    )


def test_key_that_ends_long_before_other_keys_is_reported(
    capfd: pytest.CaptureFixture[str],
) -> None:
    ended = [
        Gap("ended", None, at, 100 * HOUR, 1, {"k": key}, OPEN, since_us=at)
        for key, at in (("a", 90 * HOUR), ("b", 50 * HOUR))
    ]
    complete = [Completeness({"k": key}, "", None, 100, 90, None, 10, 0) for key in "ab"]
    event = EventGaps(HOUR, None, 0, 100 * HOUR, complete, ended)
    _show(GapReport("clicks", WindowRange(0, 9), 10, HOUR, ended, event), 5)
    text = capfd.readouterr().out.replace("\n", " ")
    assert (
        "silent at the end: k=b since 1970-01-03T02:00:00Z; all keys end by 1970-01-04T18:00:00Z"
        in text
    )
