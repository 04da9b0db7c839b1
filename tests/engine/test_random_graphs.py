"""Random graphs on the engine and in the framework that users test them with: results, states,
losses, partial marks and callbacks are the same, through crashes at every step, in every mode.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.application import MODES
from rewindow.crash import Step
from rewindow.engine.attempt import Attempt
from rewindow.facts.losses import losses_of
from rewindow.facts.readers import read_output
from rewindow.loading.catalog import load_application
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.state.files import read_rows
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.testing import run_application
from rewindow.windows import WindowRange
from tests.engine.conftest import Crash
from tests.recovery.project import EPOCH, FIRST, make_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = 7
KEYS = 5
STREAM = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", "UTC")),
        ("k", pa.int64()),
        ("n", pa.int64()),
    ]
)
STEPS = [step for step in Step if step is not Step.WARMED_UP]
Numbers = dict[int, list[tuple[int, int]]]


@pytest.fixture(autouse=True)
def several_key_ranges(spark: SparkSession) -> Iterator[None]:
    """Divides the rows of every exchange into three parts."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def numbers(chosen: random.Random) -> Numbers:
    found = {}
    for window in range(FIRST, FIRST + WINDOWS):
        count = chosen.choice([0, 3, 12])
        found[window] = [(chosen.randrange(KEYS), chosen.randrange(100)) for _ in range(count)]
    return found


def record(config: Config, given: Numbers) -> None:
    rows = []
    for window, tuples in given.items():
        for offset, (k, n) in enumerate(tuples):
            rows.append(dict(zip(STREAM.names, (window, offset, EPOCH, k, n), strict=True)))
    seals = {window: len(tuples) for window, tuples in given.items()}
    table = pa.Table.from_pylist(rows, schema=STREAM)
    make_stream(config, "numbers", table, seals, width_ms=3_600_000)


def on_the_engine(
    attempt: Callable[..., Attempt],
    crashes: list[tuple[Step, int]],
    **how: Any,
) -> tuple[dict[str, Any], int]:
    """Returns rows, states and losses of a replay whose attempts die one after the other."""
    config: Config = attempt.config  # type: ignore[attr-defined]
    died = 0
    for dies_at in [*crashes, None]:
        last = attempt("random_graph", "one", dies_at, **how)
        try:
            last.run()
        except Crash:
            died += 1
        else:
            break
    root = config.replay_root("one")
    plan = last.plan
    found: dict[str, Any] = {}
    for name, output in last.app.staged().items():
        columns = ["window_id", "k", "n", *(["_rw_reason"] if output.is_error else [])]
        rows = read_output(root, name, plan.range).select(columns)
        found[name] = Counter(tuple(row.values()) for row in rows.to_pylist())
    losses = losses_of(plan, Table.open(root / FACTS), Table.open(root / CHECKPOINTS), plan.range)
    found["lost"] = windows_of(losses.lost)
    state_lost = {tuple(map(str, ranges)) for ranges in losses.state_lost.values()}
    assert len(state_lost) <= 1, state_lost
    found["state_lost"] = windows_of(losses.state_lost)
    states = stored.load(Table.open(root / CHECKPOINTS), len(plan.range)).states
    found["states"] = {}
    for name, state in states.items():
        by_key = {}
        for row in read_rows(state).to_pylist():
            by_key[row.get("k", ())] = {"fold": row["fold"]}
        found["states"][name] = by_key
    return found, died


def windows_of(by_name: Mapping[str, Iterable[WindowRange]]) -> list[int]:
    return sorted({window for ranges in by_name.values() for part in ranges for window in part})


def in_the_framework(app: Any, given: Numbers, **how: Any) -> tuple[dict[str, Any], int]:
    run = run_application(app, {"numbers": given}, batch=4, **how)
    found: dict[str, Any] = {}
    for name, output in app.staged().items():
        rows = run[name]
        if output.is_error:
            rows = [(window, k, n, reason) for window, k, n, _, reason, _ in rows]
        found[name] = Counter(rows)
    found |= {"lost": run.lost, "state_lost": run.state_lost, "states": run.states}
    return found, run.crashes


def notes_by_operator(file: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        operator, _, note = line.partition(" ")
        found.setdefault(operator, []).append(note)
    return found


QUICK = (8,)
"""Seeds of `make test`, since a graph takes seconds."""
LONG = (1, 15)


@pytest.mark.parametrize(
    "seed",
    [*QUICK]
    + [pytest.param(seed, marks=pytest.mark.long) for seed in LONG]
    + [
        pytest.param(seed, marks=pytest.mark.exhaustive)
        for seed in range(200)
        if seed not in (*QUICK, *LONG)
    ],
)
def test_random_graph_has_equal_results_in_the_test_framework_and_the_engine(
    seed: int,
    attempt: Callable[..., Attempt],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O39, X2, X7, X8, X42, X43, R10, R12, R14
    chosen = random.Random(seed)
    given = numbers(chosen)
    mode = list(MODES)[seed % 3]
    group_windows = chosen.randint(2, 4)
    crashes = [
        (STEPS[(seed // 3 + place) % len(STEPS)], chosen.choice([1, 1, 2]))
        for place in range(chosen.choice([1, 1, 2]))
    ]
    config: Config = attempt.config  # type: ignore[attr-defined]
    record(config, given)
    monkeypatch.setenv("GRAPH", str(seed))
    sides = {}
    for side in ("engine", "framework"):
        notes = tmp_path / f"notes-{side}"
        monkeypatch.setenv("NOTES", str(notes))
        if side == "engine":
            found, died = on_the_engine(attempt, crashes, mode=mode, group_windows=group_windows)
        else:
            app = load_application(config, "random_graph").app
            found, died = in_the_framework(
                app,
                given,
                windows=(FIRST, FIRST + WINDOWS - 1),
                key_ranges=chosen.randint(1, 4),
                mode=mode,
                group_windows=group_windows,
                dies_at=crashes,
            )
        sides[side] = {**found, "died": died, "notes": notes_by_operator(notes)}
    differ = [name for name in sides["engine"] if sides["engine"][name] != sides["framework"][name]]
    assert not differ, {name: (sides["engine"][name], sides["framework"][name]) for name in differ}
