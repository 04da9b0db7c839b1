"""Properties that change while a replay runs, through crashes (X10, O26, O27)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.certificate import certify
from rewindow.crash import Step
from rewindow.engine.attempt import Attempt
from rewindow.errors import InputError
from rewindow.launcher import begin_attempt, note_kill
from rewindow.planning.changing import set_property
from rewindow.settings.config import Config
from rewindow.storage import query
from tests.engine.conftest import Crash
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, WINDOWS, Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = "select window_id, key, factor, total from o order by window_id, key, factor, total"


def rows(config: Config, replay: str) -> list[dict[str, Any]]:
    return query(SQL, o=config.replay_root(replay) / "totals").to_pylist()


@pytest.mark.long
def test_recomputed_window_uses_the_property_value_of_its_first_computation(
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


@pytest.mark.long
def test_recomputed_container_uses_the_original_property_values_of_its_windows(
    project: Project,
    spark: SparkSession,
) -> None:
    # Rules: O26, O27, X10, X53
    config = project.config
    run = jobs_here(spark)

    def step(replay: str, crash: str = "") -> str:
        submission = begin_attempt(config, replay, crash or None)
        assert submission is not None
        note_kill(config, submission, run(submission, lambda line: None))
        return submission.replay_id

    def factors(replay: str, output: str) -> dict[int, int]:
        sql = "select distinct window_id, factor from o"
        found = query(sql, o=config.replay_root(replay) / output).to_pylist()
        return {row["window_id"]: row["factor"] for row in found}

    plan = project.plan_of("changing_parts", "parts", "exactly_once")
    set_property(config, "parts", "first.factor", 2, from_window=FIRST + 7)
    set_property(config, "parts", "second.factor", 3, from_window=FIRST + 4)
    assert step("parts") == "parts@c1"
    assert step("parts", "c2/after_first_output:3@1") == "parts@c2"
    made = set_property(config, "parts", "second.factor", 5)
    assert [step("parts"), step("parts")] == ["parts@c2", "parts"]
    begun = made.from_window
    assert begun > FIRST + 4
    for window, factor in factors("parts", "first").items():
        assert factor == (1 if window < FIRST + 7 else 2)
    for window, factor in factors("parts", "second").items():
        assert factor == (1 if window < FIRST + 4 else 3 if window < begun else 5)
    # The same changes at the same windows, in one container.
    again = project.plan_of(
        "changing_parts",
        "again",
        "exactly_once",
        changes_from="parts",
        properties={"first.container": "c", "second.container": "c"},
    )
    step("again")
    assert not again.is_divided and len(again.changes) == 3
    certificate = certify(config, "parts", "again", full=True)
    assert certificate.equal, certificate.first_difference
    # Containers get only the changes of their operators.
    cut = project.plan_of("changing_parts", "cut", "exactly_once", changes_from="parts")
    assert [step("cut"), step("cut"), step("cut")] == ["cut@c1", "cut@c2", "cut"]
    assert certify(config, "parts", "cut", full=True).equal
    with pytest.raises(InputError, match="no container") as error:
        project.plan_of("changing_parts", "new", "exactly_once", reuse="parts")
    assert "c1: properties of its operators were changed while it ran" in str(error.value)
    assert plan.is_divided and cut.is_divided
