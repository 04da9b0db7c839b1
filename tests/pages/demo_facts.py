"""Facts of one run of `make demo`, for the picture of the README.

`python -m tests.pages.demo_facts` draws docs/first_screen.svg from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rewindow.inspection.window_runs import ReplayCounts, WindowRun
from rewindow.pages import replay_report as report
from rewindow.pages.first_screen import draw_first_screen
from rewindow.windows import Grid, WindowRange

PICTURE = Path(__file__).parents[2] / "docs" / "first_screen.svg"
GRID = Grid(3_600_000)
WINDOWS = WindowRange(376_954, 385_709)
OUTPUTS = ("hourly_weather", "ranks", "delays")
BEGAN = datetime(2026, 11, 26, 11, 16, 57, 840_000, tzinfo=UTC)


def run(first: int, last: int, kind: str, attempt: int) -> WindowRun:
    return WindowRun(WindowRange(first, last), kind, attempt)


def at(seconds: float) -> datetime:
    """Returns a time by the seconds since the start of the replay in exactly once."""
    return BEGAN + timedelta(seconds=seconds)


def group(number: int, last: int, ended: float, compute: float, commit: float) -> report.Group:
    first = WINDOWS.first + (number - 1) * 1_495
    windows = WindowRange(first, last)
    return report.Group(number, windows, at(ended), compute, commit, checkpoint=True)


def replay(
    mode: str,
    outputs: Mapping[str, tuple[WindowRun, ...]],
    counts: ReplayCounts,
    verdict: str,
) -> report.ReplayReport:
    """Returns a killed replay with both attempts; those of exactly once are drawn."""
    attempts = (
        report.DrawnAttempt(
            1,
            at(0),
            at(24.81),
            "killed",
            "",
            (group(1, 378_448, 15.93, 8.42, 0.04), group(2, 379_943, 21.55, 5.59, 0.03)),
        ),
        report.DrawnAttempt(
            2,
            at(30.43),
            at(61.34),
            "done",
            "",
            (
                group(3, 381_438, 50.91, 14.51, 0.93),
                group(4, 382_933, 55.33, 4.35, 0.04),
                group(5, 384_428, 58.52, 3.14, 0.04),
                group(6, 385_709, 61.32, 2.74, 0.04),
            ),
        ),
    )
    return report.ReplayReport(
        replay_id=mode,
        title=mode.replace("_", " ").capitalize(),
        application="flight_delays",
        mode=mode,
        state="checked",
        grid=GRID,
        windows=WINDOWS,
        reason="",
        guarantees={},
        attempts=attempts,
        outputs=outputs,
        checkpoints=(),
        counts=counts,
        kills=(report.KillEvent(1, at(24.71), "after_first_output", 3),),
        gate=report.Gate("passed", at(80), ()),
        comparison=report.CertificateSummary("calm", mode, verdict, "", (), False, 0.1),
    )


def replays() -> tuple[report.ReplayReport, ...]:
    """Returns the killed replays of a year of flights, one in each mode."""
    exact = (
        run(376_954, 379_943, "committed", 1),
        run(379_944, 385_709, "committed", 2),
    )
    once_more = (
        run(376_954, 378_234, "committed", 1),
        run(378_235, 385_709, "committed", 2),
    )
    repeated = (
        run(376_954, 378_234, "committed", 1),
        run(378_235, 379_729, "repeated", 2),
        run(379_730, 385_709, "committed", 2),
    )
    lossy = (
        run(376_954, 378_234, "committed", 1),
        run(378_235, 379_729, "lost", 0),
        run(379_730, 385_709, "affected", 2),
    )
    weather_exact = (
        run(376_954, 381_438, "committed", 1),
        run(381_439, 385_709, "committed", 2),
    )
    weather_lossy = (
        run(376_954, 379_729, "committed", 1),
        run(379_730, 385_709, "affected", 2),
    )
    counts = ReplayCounts
    return (
        replay(
            "exactly_once",
            dict(zip(OUTPUTS, (weather_exact, exact, exact), strict=True)),
            counts(8_756, 191_855, 362_879, redone=1_495),
            "equal",
        ),
        replay(
            "at_least_once",
            dict(zip(OUTPUTS, (repeated, once_more, once_more), strict=True)),
            counts(8_756, 191_855, 362_879, redone=1_495, repeated=1_495, repeated_tuples=4_485),
            "equal",
        ),
        replay(
            "at_most_once",
            dict(zip(OUTPUTS, (weather_lossy, lossy, lossy), strict=True)),
            counts(8_756, 163_450, 299_834, lost=1_495, lost_tuples=63_045, affected=5_980),
            "different",
        ),
    )


if __name__ == "__main__":
    PICTURE.write_text(draw_first_screen(replays()))
