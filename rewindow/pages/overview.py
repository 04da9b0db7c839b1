"""The values of the overview: streams and outputs along time, and replays."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from rewindow.inspection.coverage import StreamCoverage
from rewindow.inspection.next_steps import brief_next_step, cause
from rewindow.inspection.replay_progress import replay_progress
from rewindow.inspection.visibility import outcome, visibilities
from rewindow.ledger import Ledger
from rewindow.ledger.replays import RUNNABLE, Replay
from rewindow.pages.strips import Strip, draw_strip, view_of
from rewindow.settings.config import Config
from rewindow.windows import format_time, parse_time

_ACTS_MAX = 3


def overview_lines(
    config: Config,
    ledger: Ledger,
    rows: Sequence[Replay],
) -> list[dict[str, Any]]:
    """Returns the values of replays for the overview. Reads the ledger in few queries for all of
    them.

    These are the range as times, the progress, the newest verdict of the gate, the newest
    publications and undos with their outcomes, the first line of the reason for the state, and the
    next step.
    """
    ids = [row.replay_id for row in rows]
    verdicts = ledger.checks.verdicts(ids)
    all_acts = ledger.publications.of_replays(ids)
    seen = visibilities(ledger, rows)
    lines = []
    for row in rows:
        verdict = verdicts.get(row.replay_id, "")
        acts = all_acts.get(row.replay_id, [])
        covered = seen[row.replay_id]
        outcomes = []
        for act in acts[:_ACTS_MAX]:
            outcomes.append(f"{act.kind} {act.number}: {outcome(act, acts)}")
        lines.append(
            {
                "row": row,
                "dag": row.plan.get("dag", ""),
                "run": row.plan.get("run", ""),
                "times": row.times(),
                "progress": replay_progress(
                    ledger,
                    row,
                    covered,
                ),
                "is_open": row.state in RUNNABLE,
                "verdict": verdict,
                "acts": outcomes,
                "message": cause(row.message).partition("\n")[0],
                "step": brief_next_step(
                    config,
                    row,
                    acts,
                    covered,
                    verdict,
                ),
            }
        )
    return lines


def overview_strips(
    coverages: Sequence[StreamCoverage],
    readable: AbstractSet[str],
    begin: str = "",
    end: str = "",
) -> dict[str, Any]:
    """Returns the values of the overview about streams and outputs along time.

    Args:
        coverages: from `read_coverage`.
        readable: replays whose names the reader may see.
        begin, end: the times to show, ISO 8601; empty for all.

    Raises:
        InputError: a time cannot be read, or the range cannot be shown.
    """
    whole = view_of(coverages)
    begin_us = parse_time(begin) if begin else None
    end_us = parse_time(end) if end else None
    view = view_of(
        coverages,
        begin_us,
        end_us,
    )
    strips = list(map(Strip, coverages))
    if view is not None:
        strips = [
            draw_strip(
                coverage,
                view,
                readable,
            )
            for coverage in coverages
        ]
    return {"strips": strips, "view": view, "whole": whole, "time": format_time}
