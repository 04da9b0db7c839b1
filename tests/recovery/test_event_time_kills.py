"""Event time through kills: what is filled, fired and beaten is that of an undisturbed replay.
Attempts run and die in this process, since no claim here is about processes.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.crash import Step
from rewindow.facts.readers import read_output
from rewindow.planning import ReplayRequest, create_replay
from rewindow.windows import WindowRange
from tests.operators.filling_reference import Method, Row, fill
from tests.operators.test_fill_operator import Tuple, moving
from tests.recovery import project as projects
from tests.recovery.applications.timely import READINGS
from tests.recovery.here import jobs_here
from tests.recovery.project import EPOCH, Project, make_project, make_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = 20
STEP = 10
COLUMNS = {
    "filled": "window_id, key, arrived_at, at, x, _rw_is_made, _rw_gap_id, _rw_methods",
    "fired": "window_id, key, window_begin_us, pane, kind, fired_us, n, high",
    "beats": "window_id, key, arrived_at, at, x, _rw_is_timer, _rw_emission",
}
KILLS = [
    f"{Step.MATERIALISED}:2",
    f"{Step.AFTER_FIRST_OUTPUT}:1",
    f"{Step.AFTER_FACTS}:2",
    f"{Step.AFTER_CHECKPOINT}:1",
]


def recorded(project: Project) -> list[tuple[str, Tuple]]:
    """Records `readings` of two keys, with silences, late tuples and some that are ahead; returns
    them, in seconds.
    """
    random = Random(12)
    times = dict[tuple[str, int], Tuple]()
    for second in sorted(random.sample(range(40, WINDOWS * 60), 90)):
        ts = max(0, second - random.choice([0, 1, 4, 12, random.randrange(100), -7]))
        times.setdefault((random.choice("ab"), ts), Tuple(second, ts, float(second), None))
    found = [(key, one) for (key, _), one in times.items()]
    rows = []
    counts = dict.fromkeys(range(WINDOWS), 0)
    for key, one in found:
        arrived_at, at = (EPOCH + timedelta(seconds=seconds) for seconds in (one.at, one.ts))
        window = one.at // 60
        place = {"window_id": window, "offset": counts[window], "arrived_at": arrived_at}
        rows.append({**place, "key": key, "at": at, "x": one.a})
        counts[window] += 1
    table = pa.Table.from_pylist(rows, schema=pa.schema([("window_id", pa.int64()), *READINGS]))
    make_stream(project.config, "readings", table, counts, width_ms=60_000)
    return found


def rows_of(project: Project, replay: str) -> dict[str, list[Any]]:
    found = {}
    for name, columns in COLUMNS.items():
        rows = read_output(project.config.replay_root(replay), name, WindowRange(0, WINDOWS - 1))
        found[name] = sorted(map(repr, rows.select(columns.split(", ")).to_pylist()))
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("timely"))


@pytest.fixture(scope="module")
def given(project: Project, spark: SparkSession) -> list[tuple[str, Tuple]]:
    """The tuples of `readings`, once a replay of them in one group has ended."""
    found = recorded(project)
    create_replay(project.config, ReplayRequest("timely", replay_id="quiet", group_windows=WINDOWS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projects, "run", jobs_here(spark))
        project.attempts("quiet", [])
    return found


@pytest.mark.recovery_matrix
@pytest.mark.xdist_group("event_time_kills")  # they share the undisturbed replay
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "mode", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.exhaustive)]
)
def test_event_time_results_are_unchanged_by_kills(
    mode: str,
    project: Project,
    given: list[tuple[str, Tuple]],
) -> None:
    # Rules: G34, G38, E37, E41, E46, H55, R86
    create_replay(
        project.config,
        ReplayRequest("timely", mode=mode, replay_id=mode, group_windows=5),
    )
    project.attempts(mode, KILLS)
    wanted = rows_of(project, "quiet")
    assert rows_of(project, mode) == wanted
    assert {kind for kind in ("'late'", "'retraction'") if kind in repr(wanted["fired"])} == {
        "'late'",
        "'retraction'",
    }
    assert "'_rw_is_timer': True" in repr(wanted["beats"])
    _check_filling(project, mode, given)


def _check_filling(project: Project, replay: str, given: list[tuple[str, Tuple]]) -> None:
    """Compares the made rows of the killed replay and their windows with those of the reference."""
    root = project.config.replay_root(replay)
    made = read_output(root, "filled", WindowRange(0, WINDOWS - 1))
    for key in "ab":
        counted = [
            (one.ts, one)
            for one in moving([one for name, one in given if name == key])
            if one.ts is not None
        ]
        closers = sorted((ts, one.at // 60) for ts, one in counted)
        rows = [Row(ts, one.a, None) for ts, one in counted]
        wanted = fill(
            rows,
            [Method("forward", "a")],
            STEP,
            closers[0][0] // STEP * STEP,
            closers[-1][0],
        )
        expected = [
            (next(at for ts, at in closers if ts > one.ts), one.ts, one.values[0][0])
            for one in wanted
        ]
        found = [row for row in made.to_pylist() if row["key"] == key and row["_rw_is_made"]]
        shown = [(row["window_id"], (row["at"] - EPOCH).seconds, row["x"]) for row in found]
        assert sorted(shown) == sorted(expected), f"key {key}"
        assert len(shown) > 20
