"""Blockers: what would stop a planned replay from being run now."""

from __future__ import annotations

from rewindow.ledger import Ledger
from rewindow.planning.forecast import blockers
from tests.recovery.project import FIRST, WINDOWS, Project

LAST = FIRST + WINDOWS - 1


def test_plan_lists_only_replays_that_lease_its_windows(project: Project) -> None:
    plan = project.plan("one", "exactly_once", first=FIRST + 4, last=FIRST + 8)
    project.plan("other", "exactly_once", first=FIRST, last=LAST)
    ledger = Ledger.open(project.config.ledger_url)
    assert blockers(project.config, plan) == []
    ledger.leases.acquire("other", ["totals.sums", "elsewhere.out"], FIRST, FIRST + 3)
    assert blockers(project.config, plan) == []
    ledger.leases.acquire("other", ["totals.sums", "elsewhere.out"], FIRST, FIRST + 4)
    names = [output.name for output in plan.outputs]
    assert "sums" in names
    assert blockers(project.config, plan) == [
        f'replay "other" has locked totals.sums [{FIRST}, {FIRST + 4}]'
    ]


def test_plan_lists_only_stale_windows_after_its_range(project: Project) -> None:
    plan = project.plan("one", "exactly_once", first=FIRST + 4, last=FIRST + 8)
    ledger = Ledger.open(project.config.ledger_url)
    for application, first in (("totals", FIRST), ("totals", FIRST + 5), ("other", FIRST + 10)):
        ledger.stale.add(application, f"{application}.sums", first, first + 1, 1)
    assert blockers(project.config, plan) == []
    ledger.stale.add("totals", "totals.sums", FIRST + 9, FIRST + 12, 1)
    assert blockers(project.config, plan) == [
        f"totals.sums [{FIRST + 9}, {FIRST + 12}] is stale: replay it after this one"
    ]
