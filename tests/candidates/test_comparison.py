"""`rewindow compare`: candidates beside recorded output, with jobs in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.candidates.comparison import compare
from rewindow.certificate import Certificate
from rewindow.errors import CheckpointError, InputError, RangeError
from rewindow.inspection.next_steps import next_steps
from rewindow.inspection.window_life import window_life
from rewindow.launcher import loop, verbs
from rewindow.ledger import Ledger
from rewindow.planning import ReplayRequest, create_replay
from rewindow.storage import Table, query
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, Project, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = (Path(__file__).parents[1] / "recovery" / "applications" / "totals.py").read_text()
LAST = FIRST + 7
Compare = Callable[..., Certificate]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Project:
    """A project with the replay `base` of eight windows of totals, which is published."""
    project = make_project(tmp_path_factory.mktemp("compare"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "run", jobs_here(spark))
        verbs.replay(project.config, "totals", replay_id="base", first=FIRST, last=LAST)
    verbs.publish(project.config, "base", accept="to be compared with")
    return project


@pytest.fixture
def comparing(recorded: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Compare:
    """Compares totals, with jobs in this process."""
    monkeypatch.setattr(loop, "run", jobs_here(spark))

    def call(**how: Any) -> Certificate:
        return compare(recorded.config, "totals", **how)

    return call


def edited(folder: Path, old: str, new: str) -> str:
    assert old in SOURCE
    (folder / "anew.py").write_text(SOURCE.replace(old, new))
    return str(folder / "anew.py")


def test_first_difference_is_reported_with_window_operator_port_and_rows(
    comparing: Compare,
    recorded: Project,
    tmp_path: Path,
) -> None:
    # Rules: O140, R87, O141
    before = {
        name: Table.open(recorded.config.replay_root("base") / name).version
        for name in ("sums", "totals")
    }
    wrong = edited(
        tmp_path,
        'F.sum("x").alias("total"))',
        f'F.sum(F.expr("x + int(window_id = {FIRST + 3})")).alias("total"))',
    )
    found = comparing(code=wrong, against="base")
    first = found.first_difference
    assert first is not None
    assert (found.verdict, first["window"], first["operator"], first["port"]) == (
        "different",
        FIRST + 3,
        "sums",
        "sums",
    )
    more = {row["key"]: row["total"] for row in first["rows_b"]}
    assert more and all(more[row["key"]] > row["total"] for row in first["rows_a"])
    assert before == {
        name: Table.open(recorded.config.replay_root("base") / name).version for name in before
    }
    assert (
        f'Replay "{found.b.name}" is a candidate: computed by the code of {wrong}.' in found.notes
    )


def test_candidate_runs_alongside_other_replays_and_is_never_published(
    comparing: Compare,
    recorded: Project,
    tmp_path: Path,
) -> None:
    # Rules: X19
    config = recorded.config
    ledger = Ledger.open(recorded.config.ledger_url)
    held = create_replay(config, ReplayRequest("totals", first=FIRST, last=LAST, replay_id="held"))
    ledger.leases.acquire("held", [f"totals.{output.name}" for output in held.outputs], FIRST, LAST)
    same = edited(tmp_path, "A small application", "The same application")
    found = comparing(code=same, outputs=["totals"])
    Path(same).unlink()
    assert (found.verdict, found.a.name, [one.name for one in found.outputs]) == (
        "equal",
        "published",
        ["totals"],
    )
    assert (
        found.a.code_version is None
        and "Only the chosen outputs are compared: totals." in found.notes
    )
    candidate = found.b.name
    with pytest.raises(InputError, match="is a candidate, and cannot be published"):
        verbs.publish(config, candidate, accept="no matter")
    with pytest.raises(
        CheckpointError,
        match="is a candidate: no other replay can start with its state",
    ):
        create_replay(config, ReplayRequest("totals", first=LAST + 1, state_from=candidate))
    assert "It is a candidate" in next_steps(config, ledger.replays.get(candidate))[0]
    ledger.replays.abandon("held")
    assert window_life(config, "totals", str(FIRST)).replay == "base"


def test_both_code_versions_run_on_the_same_sample_of_keys(
    comparing: Compare,
    recorded: Project,
) -> None:
    # Rules: O142, O144, O143
    # The recorded output covers all keys, so it cannot be one of the sides.
    copy = Path(recorded.config.applications[0]) / "totals.py"
    found = comparing(code=str(copy), sample_windows=4, keys=0.2, key=["key"])
    assert (found.verdict, found.first, found.last) == ("equal", FIRST, FIRST + 3)
    assert all(
        "on a sample of 20 % of the keys (events by key)" in str(side.candidate)
        for side in (found.a, found.b)
    )
    config = recorded.config
    whole, part = (
        set(
            query("select distinct key from t", t=Table.open(config.replay_root(name) / "sums"))[
                "key"
            ].to_pylist()
        )
        for name in ("base", found.b.name)
    )
    assert part and part < whole


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"code": "nosuch.py"}, '"nosuch.py" is neither a file nor a revision'),
        ({"against": "nobody"}, 'replay "nobody" is unknown'),
        ({"keys": 1.5}, "sample of 1.5 of the keys is out of range"),
        ({"sample_windows": 0}, "sample of 0 windows is out of range"),
        ({"key": ["key"]}, "--key requires --keys, the fraction of the keys to sample"),
        ({"keys": 0.5}, "has keys in its settings"),
        ({"keys": 0.5, "key": ["nokey"]}, "has the columns nokey"),
        ({"keys": 0.5, "key": ["key"]}, "requires new code to compare with"),
    ],
)
def test_versions_that_cannot_be_compared_are_rejected_before_anything_runs(
    recorded: Project,
    how: dict[str, Any],
    said: str,
) -> None:
    with pytest.raises(InputError, match=said):
        compare(recorded.config, "totals", **how)
    with pytest.raises(RangeError, match="does not contain windows"):
        compare(recorded.config, "totals", against="base", last=LAST + 1)
    with pytest.raises(InputError, match="has no published windows"):
        compare(recorded.config, "leaky")


def test_new_code_without_a_recorded_output_is_rejected(
    recorded: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rewindow.candidates.comparison.run_attempts", lambda *given, **named: None)
    less = edited(tmp_path, 'app.output("sums", sums, key=["key"])', "")
    with pytest.raises(
        InputError, match='no output "sums", but the recorded replay has it'
    ) as caught:
        compare(recorded.config, "totals", code=less)
    assert caught.value.hint == "Compare only outputs of the new code: --output totals"
