"""Records the losses of the mode at most once before its first new group: windows that it gives up,
and windows that are missing from its states.

Rules: R15, X2
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import reduce

import numpy as np
import pyarrow.compute as pc

from rewindow.application import Application
from rewindow.engine.computation import Engine, SkipResult
from rewindow.engine.takeover import Takeover
from rewindow.facts.group_facts import GroupFacts
from rewindow.facts.losses import by_port
from rewindow.facts.window_facts import Ids, WindowFacts, ids_of
from rewindow.recovery import Plan
from rewindow.storage.layout import FACTS
from rewindow.windows import WindowRange, to_ranges

logger = logging.getLogger(__name__)


def record_losses(
    plan: Plan,
    app: Application,
    takeover: Takeover,
    engine: Engine,
    epoch: int,
    skip: SkipResult | None,
) -> None:
    """Commits facts about lost windows, about windows missing from the states, and the seals that
    are missing after a crash.

    Args:
        plan: the plan of the replay.
        app: its application.
        takeover: the fenced tables.
        engine: computes missing seals.
        epoch: epoch of the attempt.
        skip: the states after a skip, None if the states include all windows.
    """
    facts = takeover.tables[FACTS]
    started = takeover.resume.first - 1
    if facts.done >= started and skip is None:
        return
    windows = plan.windows_of((min(facts.done + 1, started), started))
    rows = GroupFacts(windows, epoch, datetime.now(UTC), above=plan.window_of(facts.done))
    if skip is not None:
        _add_skip(
            plan,
            app,
            takeover,
            rows=rows,
            skip=skip,
        )
    if facts.done < started:
        _add_losses(plan, app, takeover, engine=engine, rows=rows)
    facts.commit(max(started, facts.done), rows.table())
    # Outputs that have these windows have lost nothing: they are missing from the states only (X2).
    given_up = takeover.resume.lost.keys() & app.staged()
    if given_up:
        mark = min(takeover.resume.lost[name][0] for name in given_up)
        lost = plan.grid.describe(WindowRange(plan.window_of(mark), windows.last))
        logger.info(f"at most once: windows {lost} were in progress and are given up")


def _add_losses(
    plan: Plan,
    app: Application,
    takeover: Takeover,
    engine: Engine,
    rows: GroupFacts,
) -> None:
    """Adds the lost windows and missing seals of every table, and the inputs of these windows."""
    resume = takeover.resume
    facts = takeover.tables[FACTS]
    windows = rows.windows
    for name, output in app.staged().items():
        if name in resume.lost:
            rows.add_lost(output, plan.windows_of(resume.lost[name]))
        present = takeover.tables[name].done
        if present > facts.done:
            rows.add_output(
                output,
                engine.seals(name, WindowRange(windows.first, plan.window_of(present))),
            )
    lost = any(name in resume.lost for name in app.outputs)
    for stream, counts in engine.count_inputs(windows, check=False).items():
        rows.add_input(stream, counts, plan.missing_upstream().get(stream, ()), lost=lost)
    for port in app.dropped():
        rows.add_dropped(str(port), WindowFacts.empty(), lost=True)


def _add_skip(
    plan: Plan,
    app: Application,
    takeover: Takeover,
    rows: GroupFacts,
    skip: SkipResult,
) -> None:
    """Adds the windows that are in outputs but missing from the states, and the number of tuples
    that were dropped from the states.
    """
    assert takeover.resume.skipped is not None, "only skipped windows make a skip"
    skipped = ids_of(plan.windows_of(takeover.resume.skipped))
    lacking = np.setdiff1d(skipped, _given_up(plan, app, takeover), assume_unique=True)
    for name in skip.states:
        rows.add_skip(name, lacking, skip.dropped.get(name, WindowFacts.empty()))
    if len(lacking) and skip.states:
        logger.info(
            f"at most once: windows {', '.join(map(plan.grid.describe, to_ranges(lacking)))} are "
            "kept in the outputs, but missing from the state"
        )
    for name, dropped in skip.dropped.items():
        if dropped.rows.num_rows:
            windows = WindowRange(
                int(dropped.ids[0]),
                int(dropped.ids[-1]),
            )
            where = plan.grid.describe(windows)
            logger.info(
                f"{name} dropped {dropped.tuples:,} tuples of windows {where} that waited in its "
                "state"
            )


def unseen_windows(plan: Plan, takeover: Takeover) -> list[WindowRange]:
    """Returns the windows that are missing from the states, because this or an earlier attempt has
    skipped them.

    Rules: X8
    """
    skipped = takeover.resume.skipped
    unseen = [ids_of(plan.windows_of(skipped)) if skipped else np.arange(0)]
    table = takeover.tables[FACTS].table
    for file in table.files():
        rows = table.read(file, ["window_id", "direction", "lost"])
        # Tuples that a state dropped at a skip had waited there since an earlier window.
        is_unseen = pc.and_(rows["lost"], pc.not_equal(rows["direction"], "skipped"))
        unseen.append(rows.filter(is_unseen)["window_id"].to_numpy())
    return to_ranges(np.concatenate(unseen))


def _given_up(plan: Plan, app: Application, takeover: Takeover) -> Ids:
    """Returns the windows that are in no output, because this or an earlier attempt has given them
    up.
    """
    lost = {name: [ids_of(plan.windows_of(marks))] for name, marks in takeover.resume.lost.items()}
    # Reads the facts file by file and keeps only the windows that were given up: all facts of a
    # long replay may not fit the memory.
    table = takeover.tables[FACTS].table
    for file in table.files():
        rows = table.read(file, ["window_id", "direction", "port", "lost"])
        rows = rows.filter(pc.and_(pc.equal(rows["direction"], "out"), rows["lost"]))
        for port, given_up in by_port(rows):
            lost.setdefault(port, []).append(given_up["window_id"].to_numpy())
    nowhere = [
        np.unique(np.concatenate(lost[name])) if name in lost else np.arange(0)
        for name in app.outputs
    ]
    return reduce(np.intersect1d, nowhere)
