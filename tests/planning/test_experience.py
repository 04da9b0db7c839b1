"""How long a replay will take, from what earlier ones of its application took; and why groups are
cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import update

from rewindow.commands.plan import show
from rewindow.errors import InputError
from rewindow.ledger import AttemptEnd, Ledger, PortCount
from rewindow.ledger.models import attempts
from rewindow.planning import draft_plan
from rewindow.planning.experience import experience_of
from rewindow.recovery import Plan
from rewindow.settings.config import ReplayConfig
from tests.planning.options import request
from tests.recovery.project import FIRST, WINDOWS, Project


def run(
    project: Project,
    replay_id: str,
    runs: Sequence[Sequence[tuple[int, float]]],
    tuples: int = 2,
) -> Ledger:
    """Enters runs of a planned replay into the ledger, each as (mark, seconds) of its groups."""
    plan = project.plan(replay_id, "exactly_once")
    return report(project, plan, runs, tuples)


def report(
    project: Project,
    plan: Plan,
    runs: Sequence[Sequence[tuple[int, float]]],
    tuples: int = 2,
) -> Ledger:
    ledger = Ledger.open(project.config.ledger_url)
    replay_id = plan.replay_id
    done = 0
    for groups in runs:
        epoch = ledger.attempts.next_epoch(replay_id)
        ledger.attempts.begin(
            replay_id,
            epoch,
            host="h",
            pid=1,
            process_group=1,
            process_identity="boot/0",
        )
        for mark, seconds in groups:
            first = plan.window_of(done + 1)
            last = plan.window_of(mark)
            ports = [PortCount("in", "events", first, last, tuples * (mark - done), False)]
            ledger.attempts.report_progress(
                replay_id,
                epoch,
                mark,
                mark,
                {"compute": seconds},
                ports,
            )
            done = mark
        ledger.attempts.end(
            replay_id,
            epoch,
            AttemptEnd.DONE if done == WINDOWS else AttemptEnd.KILLED,
            "",
        )
    return ledger


def test_plan_without_an_earlier_replay_has_no_time_estimate(project: Project) -> None:
    project.plan("planned", "exactly_once")
    draft = draft_plan(project.config, request())
    assert (draft.seconds, draft.basis) == (
        None,
        "no earlier replay of this application has committed anything",
    )


def test_estimate_from_a_single_group_is_proportional_to_the_windows(project: Project) -> None:
    ledger = run(project, "one", [[(WINDOWS, 60.0)]])
    found = experience_of(ledger, "totals")
    assert found is not None
    assert (found.windows, found.tuples, found.seconds, found.replays) == (
        WINDOWS,
        2 * WINDOWS,
        60.0,
        ("one",),
    )
    assert found.predict(WINDOWS // 2) == pytest.approx(30 + found.start_seconds)
    assert found.predict(WINDOWS // 2, 4 * WINDOWS) == pytest.approx(120 + found.start_seconds)
    draft = draft_plan(project.config, request())
    assert draft.seconds is not None and draft.seconds >= 60
    assert draft.basis.startswith(
        f"from 1 replay: {WINDOWS} windows and {2 * WINDOWS} tuples in 60 s"
    )
    assert "the last one, " in draft.basis


def test_estimate_with_fewer_cores_is_longer_than_the_measured_time(project: Project) -> None:
    run(project, "one", [[(5, 10.0), (10, 10.0)]])
    whole = draft_plan(project.config, request())
    limited = draft_plan(project.config, request(cores_max=1))
    assert whole.seconds is not None
    assert limited.seconds == 2 * whole.seconds
    assert limited.basis.endswith("; estimated for 1 core instead of 2")
    with pytest.raises(InputError, match="cores_max must be at least 1, not 0"):
        draft_plan(project.config, request(cores_max=0))


def test_estimate_sums_over_replays_and_ignores_the_first_group_after_a_crash(
    project: Project,
) -> None:
    # The first window of that group is not known, so its time counts only as a start.
    run(project, "one", [[(6, 6.0), (12, 6.0)], [(18, 50.0), (WINDOWS, 12.0)]])
    ledger = run(project, "two", [[(WINDOWS, 12.0)]])
    found = experience_of(ledger, "totals")
    assert found is not None
    assert (found.windows, found.seconds) == (12 + 6 + WINDOWS, 36.0)
    assert set(found.replays) == {"one", "two"} and str(found).startswith(
        "from 2 replays: 42 windows"
    )


def test_estimated_start_time_is_the_shortest_of_all_attempts(project: Project) -> None:
    run(project, "one", [[(WINDOWS, 60.0)]])
    ledger = run(project, "two", [[(WINDOWS, 60.0)]])
    for replay_id, start in (("one", 7), ("two", 500)):
        [group] = ledger.attempts.timings(replay_id)
        with ledger.attempts.writing() as connection:
            began = group.reported_at - timedelta(seconds=60 + start)
            connection.execute(
                update(attempts).where(attempts.c.replay_id == replay_id).values(began_at=began)
            )
    found = experience_of(ledger, "totals")
    assert found is not None and found.start_seconds == pytest.approx(7)
    assert "in 2 min, and 7 s to start" in str(found)


def test_estimate_includes_a_job_start_for_each_container(project: Project) -> None:
    # Rules: R43, R46, R47
    ledger = run(project, "one", [[(WINDOWS, 60.0)]])
    [group] = ledger.attempts.timings("one")
    with ledger.attempts.writing() as connection:
        began = group.reported_at - timedelta(seconds=60 + 40)
        connection.execute(update(attempts).values(began_at=began))
    whole = draft_plan(project.config, request())
    cut = draft_plan(project.config, request(properties={"totals.container": "second"}))
    assert whole.seconds is not None and cut.seconds is not None
    assert cut.seconds - whole.seconds == pytest.approx(40)
    assert list(cut.recovery) == ["sums", "second"]
    for cost in [*cut.recovery.values(), *whole.recovery.values()]:
        assert cost.worst_seconds > 40


def test_crash_estimate_uses_the_measured_time_of_the_same_container(
    project: Project,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Rules: R43, R45, R47
    cut = {"totals.container": "second"}
    ledger = Ledger.open(project.config.ledger_url)
    # The second replay has reused its first container.
    for replay_id, times in {"one": (2.0, 22.0), "two": (0.0, 22.0)}.items():
        plan = project.plan(replay_id, "exactly_once", properties=cut)
        for container, seconds in zip(plan.containers, times, strict=True):
            changed = {"replay_id": f"{replay_id}@{container.name}", "containers": []}
            part = plan.model_copy(update=changed)
            about = (part.application, part.first, part.last, "exactly_once")
            ledger.replays.create(part.replay_id, *about, part.model_dump(mode="json"), "1")
            report(project, part, [[(WINDOWS, seconds * WINDOWS)]])
    options = {"group_windows": 3, "initial_state": True}
    same = draft_plan(project.config, request(properties=cut, **options))
    start = same.recovery["sums"].mean_seconds - 1.5 * 2
    assert same.recovery["second"].worst_seconds == pytest.approx(3 * 22 + start)
    show(same)
    text = capsys.readouterr().out
    assert "sums: the cost of a crash is estimated from the times of this container" in " ".join(
        text.split()
    )
    assert "equal share" not in text
    # Another container of the same name gets half of the 24 seconds that a window took.
    renamed = {"sums.container": "second", "totals.container": "third"}
    other = draft_plan(project.config, request(properties=renamed, **options))
    for cost in other.recovery.values():
        assert cost.worst_seconds == pytest.approx(3 * 12 + start)
    show(other)
    assert capsys.readouterr().out.count("equal share") == 2


@pytest.mark.parametrize(
    ("replay_options", "words"),
    [
        (
            {"mode": "at_least_once", "group_windows": 300},
            "groups of 300 windows are reduced to 6: at least once saves",
        ),
        ({"mode": "at_least_once", "group_windows": 300, "checkpoint_windows": 300}, None),
        ({"mode": "at_least_once", "group_windows": 6}, None),
        ({"mode": "exactly_once", "group_windows": 300}, None),
    ],
)
def test_plan_explains_why_a_group_size_is_reduced(
    project: Project,
    replay_options: dict[str, object],
    words: str | None,
) -> None:
    warnings = [
        text
        for text in draft_plan(project.config, request(**replay_options)).plan.warnings
        if "are reduced" in text
    ]
    assert bool(warnings) == (words is not None)
    assert words is None or (
        warnings[0].startswith(words) and "--checkpoint-windows" in warnings[0]
    )


def test_plan_reports_if_the_loss_limit_reduces_the_configured_group_size(project: Project) -> None:
    # A size that the request names is rejected instead.
    config = project.config.model_copy(
        update={"replay": ReplayConfig(group_windows=12, loss_windows_max=4)}
    )
    plan = draft_plan(config, request(mode="at_most_once")).plan
    [text] = [text for text in plan.warnings if "are reduced" in text]
    assert (
        text.startswith("groups of 12 windows are reduced to 4")
        and "replay.loss_windows_max" in text
    )
    assert plan.loss_windows_max == 4 and plan.first == FIRST
