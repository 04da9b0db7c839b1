"""The order of runs, against a model of Airflow's scheduler: whatever is cleared when, all days are
done, in order.
"""

from __future__ import annotations

import copy
import os
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowSkipException

from rewindow_airflow import order

START = datetime(2026, 1, 1, tzinfo=UTC)
STEPS_MAX = 4000


@dataclass(eq=False)
class Day:
    run_id: str
    logical_date: datetime
    run_after: int
    state: DagRunState = DagRunState.QUEUED
    dag_id: str = "days"
    run_type: str = "scheduled"
    made_way: dict[str, Any] | None = None
    clear_number: int = 0
    step: str = "begin"
    trigger: order.ChangeTrigger | None = None
    plan: str = ""
    """State of the plan task after the run has ended."""
    is_marked: bool = False

    @property
    def is_done(self) -> bool:
        return self.state == "success" and (self.plan == "success" or self.is_marked)


@dataclass
class Scheduler:
    """As many slots as `max_active_runs` says, given to queued runs in the order in which they were
    to begin.
    """

    days: list[Day]
    slots: int
    failing: set[str] = field(default_factory=set)
    done: list[str] = field(default_factory=list)
    pulls: int = 0

    def mark_success(self, day: Day) -> None:
        """A user marks a run as success, or its plan task if the run has given up its slot.

        Airflow skips the tasks of a run that was queued.
        """
        day.plan = "skipped" if day.state == "queued" else "success"
        day.state, day.is_marked = DagRunState.SUCCESS, True

    def previous(self, dag_id: str, date: datetime, state: str | None = None) -> Day | None:
        earlier = [
            day for day in self.days if day.logical_date < date and state in (None, day.state.value)
        ]
        # An answer of Airflow does not change afterwards.
        return copy.copy(max(earlier, key=lambda day: day.logical_date, default=None))

    def clear(self, answer: Day) -> None:
        day = self.days[int(answer.run_id)]
        if day.state in (DagRunState.SUCCESS, DagRunState.FAILED):
            day.state = DagRunState.QUEUED
            day.step = "begin"
            day.trigger = None
            day.plan, day.is_marked = "", False
            day.clear_number += 1

    def add(self) -> None:
        self.days.append(
            Day(f"{len(self.days):03}", START + timedelta(days=len(self.days)), len(self.days))
        )

    def start(self) -> bool:
        """Gives a free slot away."""
        queued = sorted(
            (day for day in self.days if day.state == "queued"), key=lambda day: day.run_after
        )
        if not queued or sum(day.state == "running" for day in self.days) >= self.slots:
            return False
        queued[0].state = DagRunState.RUNNING
        return True

    def advance(self, day: Day) -> bool:
        if day.state != "running":
            return False
        if day.step == "ends":
            day.state, day.plan = DagRunState.SUCCESS, "skipped"
        elif day.step == "works":
            day.state = DagRunState.FAILED if day.run_id in self.failing else DagRunState.SUCCESS
            day.plan = day.state.value
            if day.state == "success":
                self.done.append(day.run_id)
        else:
            self._decide(day)
        return True

    def _decide(self, day: Day) -> None:
        if day.step == "begin":
            day.made_way = None  # Airflow deletes what the task of an earlier try has said.
        elif day.trigger is not None and not day.trigger._has_changed():
            day.trigger.looks -= 1
            if day.trigger.looks > 0:
                return
        try:
            trigger = order.turn_of({"dag_run": day, "ti": Instance(self, day)})  # type: ignore[arg-type]
        except AirflowSkipException:
            day.step = "ends"
            return
        if trigger is None:
            before = self.previous("days", day.logical_date)
            assert before is None or before.is_done, f"{day.run_id} goes before {before}"
        assert trigger is None or isinstance(trigger, order.ChangeTrigger)
        day.step, day.trigger = ("works", None) if trigger is None else ("waits", trigger)


class Instance(SimpleNamespace):
    """A task instance: what it says to others of its DAG."""

    task_id = "plan_replay"

    def __init__(self, scheduler: Scheduler, day: Day) -> None:
        super().__init__(scheduler=scheduler, day=day)

    def xcom_push(self, key: str, value: Any) -> None:
        self.day.made_way = value

    def xcom_pull(
        self,
        task_ids: list[str],
        run_id: str,
        key: str,
        include_prior_dates: bool,
    ) -> list[Any]:
        self.scheduler.pulls += 1
        return [day.made_way for day in self.scheduler.days if day.run_id <= run_id]

    def get_task_states(self, dag_id: str, task_ids: list[str], run_ids: list[str]) -> Any:
        return {run: {self.task_id: self.scheduler.days[int(run)].plan} for run in run_ids}


def make(monkeypatch: pytest.MonkeyPatch, days: int, slots: int) -> Scheduler:
    scheduler = Scheduler([], slots)
    for _ in range(days):
        scheduler.add()
    found = scheduler.days

    def wait(seconds: float) -> None:
        for day in found:
            if day.step == "ends":
                scheduler.advance(day)

    monkeypatch.setattr(order, "_previous", scheduler.previous)
    monkeypatch.setattr(order, "_start_again", scheduler.clear)
    monkeypatch.setattr(order, "run_state", lambda dag_id, run_id: found[int(run_id)].state.value)
    monkeypatch.setattr(
        order,
        "_count_of_queued",
        lambda dag_id: sum(day.state == "queued" for day in found),
    )
    monkeypatch.setattr(order.time, "sleep", wait)
    return scheduler


def run_to_the_end(scheduler: Scheduler, number: random.Random) -> None:
    """Lets everybody act in any order until all days are done."""
    for _ in range(STEPS_MAX):
        if all(day.is_done for day in scheduler.days):
            return
        if number.random() < 0.3:
            scheduler.start()
        else:
            scheduler.advance(number.choice(scheduler.days))
    states = [f"{day.run_id} {day.state.value} {day.step} {day.made_way}" for day in scheduler.days]
    raise AssertionError(f"after {STEPS_MAX} steps: {states}")


@pytest.mark.parametrize("seed", range(int(os.environ.get("SEEDS", "100"))))
def test_days_run_in_order_under_any_interleaving_of_failures_and_clears(
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A run that yielded to a run marked as success by hand is restarted by the next scheduled run.
    number = random.Random(seed)
    scheduler = make(monkeypatch, number.randint(2, 24), number.randint(1, 5))
    late = number.choice(scheduler.days)
    late.run_after = 1000  # Started by hand, for a day before others that are queued already.
    scheduler.failing = {day.run_id for day in scheduler.days if number.random() < 0.2}
    marking = seed % 2
    for _ in range(number.randint(20, 400)):
        act = number.random()
        if marking and act < 0.02:
            scheduler.mark_success(number.choice(scheduler.days))
        elif act < 0.05:
            day = number.choice(scheduler.days)
            scheduler.failing.discard(day.run_id)
            scheduler.clear(day)
        elif act < 0.3:
            scheduler.start()
        else:
            scheduler.advance(number.choice(scheduler.days))
    for day in scheduler.days:  # Somebody mends what has failed, and clears it.
        if day.run_id in scheduler.failing:
            scheduler.failing.discard(day.run_id)
            scheduler.clear(day)
    if marking:
        scheduler.add()
    run_to_the_end(scheduler, number)


def test_twenty_later_days_run_in_order_after_a_cleared_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number = random.Random(1)
    scheduler = make(monkeypatch, 21, 1)
    scheduler.failing = {"000"}
    for _ in range(300):
        scheduler.start()
        scheduler.advance(number.choice(scheduler.days))
    assert scheduler.days[0].state == "failed"
    assert not scheduler.done
    scheduler.failing.clear()
    scheduler.clear(scheduler.days[0])
    run_to_the_end(scheduler, number)
    assert scheduler.done == [day.run_id for day in scheduler.days]


def test_next_run_restarts_a_run_that_waited_for_a_run_marked_as_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = make(monkeypatch, 2, 1)
    first, second = scheduler.days
    first.state = DagRunState.FAILED
    scheduler.start()
    scheduler.advance(second)
    scheduler.clear(first)
    while second.state == "running":
        scheduler.advance(second)
    scheduler.mark_success(first)
    scheduler.add()
    run_to_the_end(scheduler, random.Random(2))
    assert scheduler.done == ["001", "002"]


def made_way(scheduler: Scheduler, day: Day) -> None:
    """Lets a day give up its slot."""
    day.state = DagRunState.RUNNING
    with pytest.raises(AirflowSkipException):
        order.make_way({"dag_run": day, "ti": Instance(scheduler, day)})  # type: ignore[arg-type]
    day.step = "ends"
    scheduler.advance(day)


def test_run_that_gave_up_its_slot_is_not_done_although_airflow_counts_it_as_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = make(monkeypatch, 3, 3)
    first, second, third = scheduler.days
    made_way(scheduler, second)
    assert second.state == "success"
    scheduler.mark_success(first)
    third.state = DagRunState.RUNNING
    scheduler.advance(third)
    assert (second.state, third.step) == ("queued", "waits")


def test_run_waits_while_another_run_restarts_the_previous_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The mark of the previous run disappears between two requests.
    scheduler = make(monkeypatch, 3, 3)
    first, second, third = scheduler.days
    made_way(scheduler, second)
    scheduler.mark_success(first)
    third.state = DagRunState.RUNNING
    pull = Instance.xcom_pull

    def restarted(self: Instance, **question: Any) -> list[Any]:
        scheduler.clear(second)
        second.made_way = None
        return pull(self, **question)

    monkeypatch.setattr(Instance, "xcom_pull", restarted)
    scheduler.advance(third)
    assert third.step != "works"


@pytest.mark.parametrize("cleared", [False, True])
def test_run_that_gave_up_its_slot_is_left_out_if_a_user_marks_it_as_success(
    cleared: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = make(monkeypatch, 3, 3)
    first, second, third = scheduler.days
    made_way(scheduler, second)
    if cleared:
        scheduler.clear(second)
    for day in (first, second):
        scheduler.mark_success(day)
    third.state = DagRunState.RUNNING
    scheduler.advance(third)
    assert third.step == "works"


def test_marks_of_hundreds_of_later_runs_are_read_in_two_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = make(monkeypatch, 300, 1)
    first, *later = scheduler.days
    for day in later:
        scheduler.mark_success(day)
    first.state = DagRunState.RUNNING
    scheduler.advance(first)
    assert (first.step, scheduler.pulls) == ("works", 2)
