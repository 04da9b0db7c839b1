"""Cycles and chains on the engine, each in one pass. Tuples that wait in a delay operator survive
crashes, and a chain has the same results as separate passes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.crash import Step
from rewindow.engine.attempt import Attempt
from rewindow.engine.operator_errors import OperatorFailed
from rewindow.facts.readers import read_output
from rewindow.loading.catalog import load_application
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.state.files import read_rows
from rewindow.storage import Table, query
from rewindow.storage.layout import CHECKPOINTS
from rewindow.testing import run_application
from tests.engine.conftest import Crash
from tests.recovery.project import FIRST, WINDOWS
from tests.testing import cycles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
def test_cycles_and_control_tuples_have_equal_results_in_spark_and_in_process(
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
                "no window after the lost ones"
            )
        else:
            assert found == rows
        if mode != "at_least_once":
            assert rows_of(query(f"select {COLUMNS[output]} from o", o=root / output)) == found, (
                "a row is there twice"
            )


@pytest.fixture
def key_ranges(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """Returns a function that sets the number of key ranges."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield lambda number: spark.conf.set("spark.sql.shuffle.partitions", str(number))
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def results_of(last: Attempt, config: Config) -> dict[str, Any]:
    """Returns the rows of the outputs of a replay of tuple_chain, and its states by key."""
    root = config.replay_root(last.plan.replay_id)
    found: dict[str, Any] = {}
    for output in last.app.staged():
        rows = read_output(root, output, last.plan.range).select(["window_id", "key", "x"])
        found[output] = Counter(tuple(row.values()) for row in rows.to_pylist())
    states = stored.load(Table.open(root / CHECKPOINTS), len(last.plan.range)).states
    for name, state in states.items():
        by_key = {}
        for row in read_rows(state).to_pylist():
            by_key[row.get("key", ())] = row.get("fold", row.get("total"))
        found[f"state of {name}"] = by_key
    return found


def results_in_process(last: Attempt, config: Config) -> dict[str, Any]:
    """Returns the same for a run in which each operator has a separate pass."""
    events: dict[int, list[tuple[str, int]]] = {}
    first, end = last.plan.first, last.plan.last
    rows = query(
        f'select window_id, "offset", key, x from o where window_id between {first} and {end}',
        o=config.stream_table("events"),
    )
    for window, _, key, x in rows_of(rows):
        events.setdefault(window, []).append((key, x))
    app = load_application(config, "tuple_chain").app
    run = run_application(
        app,
        {"events": events},
        windows=(first, end),
        group_windows=end - first + 1,
    )
    found: dict[str, Any] = {}
    for name, of_output in run.outputs.items():
        found[name] = Counter(row[:3] for row in of_output)
    for name, state in run.states.items():
        by_key = {}
        for key, fields in state.items():
            by_key[key] = fields.get("fold", fields.get("total"))
        found[f"state of {name}"] = by_key
    return found


@pytest.mark.parametrize("strays", ["", "1"])
def test_chain_equals_separate_passes_and_is_split_for_tuples_of_other_keys(
    strays: str,
    attempt: Callable[..., Attempt],
    key_ranges: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Rules: O97, O39
    config: Config = attempt.config  # type: ignore[attr-defined]
    monkeypatch.setenv("STRAYS", strays)
    key_ranges(3)
    how = {"group_windows": 6, "last": FIRST + 11}
    last = attempt("tuple_chain", "one", **how)
    last.run()
    line = (
        "totals, ranks, rejects, tops and means run in separate passes: totals emits tuples of "
        "other keys"
    )
    assert [text for text in caplog.messages if "run in separate passes" in text] == (
        [line] if strays else []
    )
    assert results_of(last, config) == results_in_process(last, config)


def test_chain_error_names_the_operator_if_several_operators_share_its_class(
    attempt: Callable[..., Attempt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O97
    monkeypatch.setenv("FAILS", "tops")
    with pytest.raises(OperatorFailed) as raised:
        attempt("tuple_chain", "one", group_windows=WINDOWS).run()
    assert raised.value.primary.startswith('operator "tops" failed: ValueError: on purpose')
    detail = str(raised.value.detail)
    assert "In the pass of its chain, windows" in detail


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2))]
)
def test_chain_results_are_equal_however_the_chain_is_divided(
    seed: int,
    attempt: Callable[..., Attempt],
    key_ranges: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O97, O103, O39, R26
    chosen = random.Random(seed)
    config: Config = attempt.config  # type: ignore[attr-defined]
    monkeypatch.setenv("STRAYS", "1" if seed % 3 == 2 else "")
    mode = ["exactly_once", "at_least_once", "at_most_once"][seed % 3]
    found = []
    for locality in ("", "apart"):
        monkeypatch.setenv("LOCALITY", locality)
        key_ranges(chosen.choice([1, 2, 3, 5, 8]))
        how = {
            "mode": mode,
            "group_windows": chosen.choice([5, 7, 16]) if mode != "at_most_once" else 8,
            "inline_state_bytes": chosen.choice([0, 4_000_000]),
            "last": FIRST + 15,
        }
        name = f"one{locality}"
        with pytest.raises(Crash):
            attempt("tuple_chain", name, (Step.AFTER_FIRST_OUTPUT, 1), **how).run()
        last = attempt("tuple_chain", name, **how)
        last.run()
        found.append(results_of(last, config))
    assert found[0] == found[1]
    if mode != "at_most_once":
        assert found[0] == results_in_process(last, config)
