"""Cycles on the engine: each in one pass, with what waits in the delay operator kept through
crashes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rewindow.crash import Step
from rewindow.engine.attempt import Attempt
from rewindow.facts.readers import read_output
from rewindow.loading.catalog import load_application
from rewindow.settings.config import Config
from rewindow.storage import query
from rewindow.testing import run_application
from tests.engine.conftest import Crash
from tests.recovery.project import FIRST, WINDOWS
from tests.testing import cycles

MATRIX = pytest.mark.recovery_matrix
COLUMNS = {
    "ranks": "window_id, page, rank",
    "sums": "window_id, key, balance",
    "closes": "window_id, day",
    "days": "window_id, key, day, sum",
}


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def expected(config: Config) -> dict[str, list[Any]]:
    """Returns what plain loops make of the recorded events, and of control tuples what a run in
    process does.
    """
    events: dict[int, list[tuple[str, int]]] = {}
    rows = query('select window_id, "offset", key, x from o', o=config.stream_table("events"))
    for window, _, key, x in rows_of(rows):
        events.setdefault(window, []).append((key, x))
    windows = range(FIRST, FIRST + WINDOWS)
    app = load_application(config, "tuple_cycle").app
    found = run_application(
        app,
        {"events": events},
        windows=(windows[0], windows[-1]),
        group_windows=len(windows),
    )
    closed = {name: sorted(found[name]) for name in ("closes", "days")}
    assert len(closed["closes"]) == WINDOWS // 4
    return {"ranks": cycles.ranks(events, windows), "sums": cycles.sums(events, windows), **closed}


@pytest.mark.long
@pytest.mark.parametrize(
    "mode",
    [
        "exactly_once",
        pytest.param("at_most_once", marks=MATRIX),
        pytest.param("at_least_once", marks=MATRIX),
    ],
)
def test_cycles_and_control_tuples_give_the_same_result_as_in_process(
    mode: str,
    attempt: Callable[..., Attempt],
) -> None:
    # Rules: O51, O52, X9, X40, R26, O132, O133, O135, X44
    config: Config = attempt.config  # type: ignore[attr-defined]
    how = {"mode": mode, "group_windows": 9, "inline_state_bytes": 0}
    with pytest.raises(Crash):
        attempt("tuple_cycle", "one", (Step.AFTER_FIRST_OUTPUT, 2), **how).run()
    last = attempt("tuple_cycle", "one", **how)
    last.run()
    root = config.replay_root("one")
    lost = query(
        "select port, window_id from f where lost and direction = 'out'",
        f=root / "facts",
    ).to_pylist()
    assert bool(lost) == (mode == "at_most_once")
    for output, rows in expected(config).items():
        found = rows_of(
            read_output(root, output, last.plan.range).select(COLUMNS[output].split(", "))
        )
        if lost:
            first = min(row["window_id"] for row in lost)
            assert first > FIRST
            assert [row for row in found if row[0] < first] == [
                row for row in rows if row[0] < first
            ]
            assert {row[0] for row in found}.isdisjoint(
                row["window_id"] for row in lost if row["port"] == output
            )
            assert max(found)[0] > max(row["window_id"] for row in lost), (
                "nothing goes on behind what is lost"
            )
        else:
            assert found == rows
        if mode != "at_least_once":
            assert rows_of(query(f"select {COLUMNS[output]} from o", o=root / output)) == found, (
                "a row is there twice"
            )
