"""Reasons against a publication, in addition to a failed gate, that only `--accept REASON`
overrides.

The publication would replace published windows with flawed ones, or newer windows with those of an
older plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from rewindow.facts.losses import losses_of
from rewindow.facts.published_acts import tables_lacking
from rewindow.ledger import Ledger, Replay
from rewindow.publication.effects import related_acts
from rewindow.publication.history import shown_without
from rewindow.recovery import Plan
from rewindow.sequences import present, quantity
from rewindow.settings.config import Config
from rewindow.storage.staged_replay import StagedReplay
from rewindow.windows import WindowRange

_LISTED = 5
Flaws = dict[str, list[WindowRange]]
"""The windows of each flaw; the key has the flaw and its table, such as "lost: ranks"."""


def flaws_of(replay: StagedReplay) -> Flaws:
    """Returns the windows of a replay that are missing from an input, lost from an output, or
    affected by lost windows.
    """
    plan = replay.plan
    losses = losses_of(plan, replay.facts, replay.checkpoints, windows=plan.range)
    flaws: Flaws = {}
    for entry in plan.inputs:
        if entry.missing:
            flaws[f"missing: {entry.stream}"] = list(starmap(WindowRange, entry.missing))
    for name, ranges in losses.lost.items():
        flaws[f"lost: {name}"] = ranges
    for name, first in losses.affected_first.items():
        if first <= plan.last:
            flaws[f"affected: {name}"] = [WindowRange(first, plan.last)]
    return flaws


def flaw_line(flaw: str, ranges: Sequence[WindowRange]) -> str:
    """Returns a flaw as text, with the number of windows and the first ranges.

    >>> flaw_line("lost: ranks", [WindowRange(105, 106)])
    'lost: ranks, 2 windows: [105, 106]'
    """
    more = ", ..." if len(ranges) > _LISTED else ""
    listed = ", ".join(map(str, ranges[:_LISTED]))
    return f"{flaw}, {quantity(sum(map(len, ranges)), 'window')}: {listed}{more}"


def objections_to(
    config: Config,
    ledger: Ledger,
    replay: Replay,
    plan: Plan,
    flaws: Flaws,
) -> list[str]:
    """Returns the reasons against replacing published windows with a replay, one line per reason.

    Windows that already show this replay, or show no publication, are not replaced and therefore
    ignored.
    """
    replaced = []
    newer: dict[str, list[WindowRange]] = {}
    for part, act in shown_without(related_acts(ledger, plan.application, plan.tables), plan.range):
        # A publication that another program has deleted is not replaced.
        if act is None or act.replay_id == plan.replay_id or tables_lacking(config, act):
            continue
        replaced.append(part)
        if act.opened_at > replay.created_at:
            name = f'publication {act.number} of replay "{act.replay_id}"'
            newer.setdefault(f"it was planned before {name}, which it replaces", []).append(part)
    worse = {}
    for flaw, ranges in flaws.items():
        over: list[WindowRange] = []
        for part in replaced:
            over += present(map(part.overlap, ranges))
        if over:
            worse[f"it replaces published windows by flawed ones, {flaw}"] = over
    return list(starmap(flaw_line, (worse | newer).items()))
