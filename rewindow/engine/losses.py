"""Losses: at most once writes down, before its first new group, what it gives up (R15)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from rewindow.application import Application
from rewindow.engine.computation import Engine
from rewindow.engine.facts import GroupFacts
from rewindow.engine.takeover import Takeover
from rewindow.recovery import Plan
from rewindow.tables.staging import FACTS
from rewindow.windows import WindowRange


def settle_losses(
    plan: Plan, app: Application, takeover: Takeover, engine: Engine, epoch: int, say: Callable[[str], None]
) -> None:
    """Commits facts that say which windows are lost, and the seals that a crash left out."""
    resume, facts = takeover.resume, takeover.tables[FACTS]
    started = resume.first - 1
    if facts.done >= started:
        return
    windows = WindowRange(plan.window_of(facts.done + 1), plan.window_of(started))
    rows = GroupFacts(windows, epoch, datetime.now(UTC), above=windows.first - 1)
    for name, (low, high) in resume.lost.items():
        if name in app.outputs:
            rows.add_lost(name, WindowRange(plan.window_of(low), plan.window_of(high)))
    for name in app.outputs:
        present = takeover.tables[name].done
        if present > facts.done:
            rows.add_output(name, engine.seals(name, WindowRange(windows.first, plan.window_of(present))))
    lost = any(name in resume.lost for name in app.outputs)
    for stream, counts in engine.count_inputs(windows, check=False).items():
        rows.add_input(stream, counts, lost=lost)
    for port in app.dropped():
        rows.add_dropped(str(port), {}, lost=True)
    facts.commit(started, rows.table())
    say(f"at most once: windows {windows.first} to {windows.last} were in progress and are given up")
