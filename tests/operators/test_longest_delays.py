"""The example longest_delays, a top N by round robin, against an independent computation."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rewindow.loading.catalog import load_application
from rewindow.settings.config import Config
from rewindow.testing import run_application

COLUMNS = ["dep_delay", "carrier", "flight", "origin"]
HOURS = 6


@pytest.mark.parametrize("spread", [1, 2, 3, 5, 8])
def test_longest_delays_equal_a_pandas_computation(spread: int) -> None:
    # Rules: O76, O121, R98
    chosen = random.Random(5)
    flights = pd.DataFrame(
        [
            (
                chosen.randrange(HOURS),
                chosen.choice([None, *range(-5, 30)]),
                chosen.choice(["AA", "B6", "UA"]),
                number,
                chosen.choice(["EWR", "JFK"]),
            )
            for number in range(400)
        ],
        columns=["window", *COLUMNS],
    ).astype(object)
    given: dict[int, list[Any]] = {}
    for window, rows in flights.groupby("window"):
        given[int(window)] = list(rows[COLUMNS].where(rows.notna(), None).itertuples(index=False))
    expected = (
        flights.dropna()
        .sort_values(["window", *COLUMNS], ascending=[True, False, True, True, True])
        .groupby("window")
        .head(10)
    )
    folder = Path(__file__).parents[2] / "jobs" / "applications"
    app = load_application(Config(applications=[folder]), "longest_delays").app
    found = run_application(
        app,
        {"flights": given},
        group_windows=2,
        partitions={"longest": spread},
        repartition={3: {"longest": spread + 1}},
    )
    assert sorted(found["longest"]) == sorted(map(tuple, expected.to_numpy().tolist()))
    assert len(found.ports["longest.out"]) <= HOURS * (spread + 1) * 10
