"""Tuple operators on the engine: one pass of Arrow batches, with the promises of every mode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rewindow.crash import Step
from rewindow.engine.attempt import Attempt
from rewindow.errors import RewindowError
from rewindow.facts.losses import losses_of
from rewindow.facts.seals import end_row
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.layout import CHECKPOINTS, FACTS
from tests.engine.conftest import Crash
from tests.recovery.project import FIRST, WINDOWS
from tests.recovery.promises import check_promise

OUTPUTS = ("sums", "totals")


def rows(config: Config, replay: str, output: str) -> list[tuple[object, ...]]:
    sql = "select window_id, key, total from o order by window_id, key"
    found = query(sql, o=config.replay_root(replay) / output)
    return list(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


def test_tuple_operator_results_equal_frame_operator_results_in_any_grouping(
    attempt: Callable[..., Attempt],
) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    attempt("totals", "frames", group_windows=WINDOWS).run()
    attempt("tuple_totals", "one", group_windows=WINDOWS).run()
    attempt("tuple_totals", "many", group_windows=5).run()
    for output in OUTPUTS:
        assert rows(config, "one", output) == rows(config, "frames", output)
        assert rows(config, "many", output) == rows(config, "frames", output)


MATRIX = pytest.mark.recovery_matrix


@pytest.mark.long
@pytest.mark.parametrize(
    "mode",
    [
        "at_most_once",
        pytest.param("exactly_once", marks=MATRIX),
        pytest.param("at_least_once", marks=MATRIX),
    ],
)
def test_every_mode_keeps_its_guarantee_through_two_crashes(
    mode: str,
    attempt: Callable[..., Attempt],
) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    whole = attempt("tuple_totals", "whole", group_windows=WINDOWS)
    whole.run()
    for dies_at in ((Step.AFTER_FIRST_OUTPUT, 3), (Step.AFTER_FACTS, 2)):
        with pytest.raises(Crash):
            attempt(
                "tuple_totals",
                "one",
                dies_at,
                mode=mode,
                group_windows=4,
                inline_state_bytes=0,
            ).run()
    last = attempt("tuple_totals", "one", mode=mode, group_windows=4, inline_state_bytes=0)
    last.run()
    check_promise(config, last.plan, whole.plan)


def test_operator_error_shows_callback_window_tuple_and_source_line(
    attempt: Callable[..., Attempt],
) -> None:
    with pytest.raises(
        RewindowError,
        match=r'operator "totals" failed: .*ZeroDivisionError',
    ) as error:
        attempt("tuple_failing", "one", group_windows=WINDOWS).run()
    text = str(error.value)
    assert "in process of port events of Failing, window 1003, at the tuple events(key='" in text
    assert "tuple_failing.py" in text, text


def test_windows_without_tuples_are_also_opened_and_closed(attempt: Callable[..., Attempt]) -> None:
    config: Config = attempt.config  # type: ignore[attr-defined]
    attempt("tuple_beats", "one", group_windows=10).run()
    found = query("select count from o order by window_id", o=config.replay_root("one") / "out")
    assert found["count"].to_pylist() == list(range(1, WINDOWS + 1))


def test_checkpoint_callbacks_are_called_and_output_is_independent_of_groups(
    attempt: Callable[..., Attempt],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: W18, W24, X8, X42
    config: Config = attempt.config  # type: ignore[attr-defined]
    monkeypatch.setenv("NOTES", str(tmp_path / "whole"))
    attempt("tuple_callbacks", "whole", group_windows=WINDOWS).run()
    notes = tmp_path / "cut"
    monkeypatch.setenv("NOTES", str(notes))
    with pytest.raises(Crash):
        attempt("tuple_callbacks", "cut", (Step.AFTER_CHECKPOINT, 1), group_windows=5).run()
    attempt("tuple_callbacks", "cut", group_windows=5).run()
    marks = [window for window in range(FIRST, FIRST + WINDOWS) if (window + 1) % 8 == 0]
    ends = list(range(FIRST + 4, FIRST + WINDOWS - 1, 5))
    said = notes.read_text().splitlines()
    assert [line for line in said if line.startswith("before")] == [
        f"before {window}" for window in marks
    ]
    for what in ("checkpointed", "committed"):
        assert [line for line in said if line.startswith(what)] == [
            f"{what} {window}" for window in ends
        ]
    assert "ed " not in (tmp_path / "whole").read_text()
    sql = "select window_id, count from o order by window_id"
    one, many = (
        query(sql, o=config.replay_root(name) / "out").to_pylist() for name in ("whole", "cut")
    )
    assert (
        one == many
        and [row["window_id"] % 4 for row in one] == [3] * len(one)
        and len(one) >= WINDOWS // 4
    )


@pytest.mark.long
def test_application_windows_with_lost_windows_are_partial(
    attempt: Callable[..., Attempt],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: R20, X8
    config: Config = attempt.config  # type: ignore[attr-defined]
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    how = {"mode": "at_most_once", "properties": {"told.checkpoint_windows": 4}, "group_windows": 2}
    with pytest.raises(Crash):
        attempt("tuple_callbacks", "one", (Step.AFTER_FIRST_OUTPUT, 3), **how).run()
    last = attempt("tuple_callbacks", "one", **how)
    last.run()
    root = config.replay_root("one")
    losses = losses_of(
        last.plan,
        Table.open(root / FACTS),
        Table.open(root / CHECKPOINTS),
        last.plan.range,
    )
    assert losses.lacking[0].last == FIRST + 5
    found = query("select window_id, partial from o order by window_id", o=root / "out").to_pylist()
    assert [row["window_id"] for row in found if row["partial"]] == [FIRST + 7]
    assert len(found) == WINDOWS // 4


def test_sliding_window_remains_partial_after_the_attempt_that_lost_windows(
    attempt: Callable[..., Attempt],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: R20, X8
    config: Config = attempt.config  # type: ignore[attr-defined]
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("PERIOD", "6")
    monkeypatch.setenv("SLIDES", "2")
    how = {
        "mode": "at_most_once",
        "checkpoint_windows": 2,
        "properties": {"told.checkpoint_windows": 2},
        "group_windows": 2,
        "last": FIRST + 9,
    }
    for dies_at in ((Step.AFTER_FIRST_OUTPUT, 2), (Step.AFTER_CHECKPOINT, 1)):
        with pytest.raises(Crash):
            attempt("tuple_callbacks", "one", dies_at, **how).run()
    attempt("tuple_callbacks", "one", **how).run()
    sql = "select window_id, partial from o order by window_id"
    found = query(sql, o=config.replay_root("one") / "out").to_pylist()
    # The state lacks windows 1002 and 1003, and the windows before the range.
    partial = {row["window_id"] - FIRST: row["partial"] for row in found}
    assert partial == {1: True, 3: True, 5: True, 7: True, 9: False}


def test_last_application_window_ends_with_the_recording(
    attempt: Callable[..., Attempt],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: W23, X21
    config: Config = attempt.config  # type: ignore[attr-defined]
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("PERIOD", "5")
    last = FIRST + WINDOWS - 1
    row = end_row(Table.open(config.stream_table("events")), last)
    Table.open(config.windows_table("events")).commit_arrow(row, app_id="record", version=2)
    attempt("tuple_callbacks", "one", group_windows=10, last=last + 3).run()
    found = query(
        "select window_id, partial from o order by window_id", o=config.replay_root("one") / "out"
    )
    ends = [(window, False) for window in range(FIRST + 4, last, 5)]
    assert [tuple(row.values()) for row in found.to_pylist()] == [*ends, (last, True)]
