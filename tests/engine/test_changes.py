"""Properties that change while a replay runs, through crashes (X10, O26, O27)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rewindow.crash import Step
from rewindow.engine.attempt import Attempt
from rewindow.planning.changing import set_property
from rewindow.settings.config import Config
from rewindow.storage import query
from tests.engine.conftest import Crash
from tests.recovery.project import FIRST, WINDOWS

SQL = "select window_id, key, factor, total from o order by window_id, key, factor, total"


def rows(config: Config, replay: str) -> list[dict[str, Any]]:
    return query(SQL, o=config.replay_root(replay) / "totals").to_pylist()


def test_window_has_the_property_value_of_its_start_when_recomputed(
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: O26, O27, X10
    config: Config = attempt.config  # type: ignore[attr-defined]
    set_property(
        config,
        attempt("changing", "one").plan.replay_id,
        "weighed.factor",
        2,
        from_window=FIRST + 7,
    )
    with pytest.raises(Crash):
        attempt("changing", "one", (Step.AFTER_FIRST_OUTPUT, 4)).run()
    made = set_property(config, "one", "weighed.factor", 3)
    attempt("changing", "one").run()
    found = rows(config, "one")
    begun = FIRST + 7 + 2
    assert made.from_window == begun + 1, "groups of three: to 1002, 1005, 1006, 1009"
    assert {(row["window_id"], row["factor"]) for row in found} == {
        (window, 1 if window < FIRST + 7 else 2 if window <= begun else 3)
        for window in {row["window_id"] for row in found}
    }
    attempt("changing", "again", changes_from="one", group_windows=WINDOWS).run()
    assert rows(config, "again") == found and len(found) > WINDOWS
