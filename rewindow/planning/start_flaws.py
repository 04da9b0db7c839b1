"""Flaws of a start state, and what to replay first. Flaws are windows that are missing from the
state or have changed since it was saved.

Windows that are missing from a state affect every replay that starts from it: its output differs
from that of a run without the loss. So the planner reports them before anything is computed.

Rules: R14 (docs/rules/recovery.md)
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap

from rewindow.application import Mode
from rewindow.errors import CheckpointError
from rewindow.facts.losses import losses_of
from rewindow.ledger import Ledger
from rewindow.recovery import Plan, StartState
from rewindow.settings.config import Config
from rewindow.storage.staged_replay import StagedReplay
from rewindow.windows import WindowRange

AFFECTED = (
    "the start state lacks lost windows or is stale: every window with state upstream is affected"
)
"""The warning of a plan that starts with such a state."""


def with_flaws(
    config: Config,
    application: str,
    start: StartState,
    source: str | None = None,
) -> StartState:
    """Adds to a start state its missing windows, and the stale windows that contributed to it.

    Args:
        config: current settings.
        application: name of the application.
        start: the start state.
        source: id of the replay whose checkpoint it is, for --state-from; None for a published
            state, or none.
    """
    if not start.taken_from or start.window is None:
        return start
    ledger = Ledger.open(config.ledger_url)
    if source is not None:
        lacking = _lacking_of_replay(config, ledger, source)
        stale = []
    else:
        lacking = _lacking_of_publication(ledger, application, start.window)
        stale = _stale(ledger, application)
    seen = []
    for part in lacking:
        if part.first <= start.window:
            seen.append(WindowRange(part.first, min(part.last, start.window)))
    changed = [part for part in stale if start.window in part]
    return start.model_copy(update={"lacking": _pairs(seen), "stale": _pairs(changed)})


def refusal(application: str, mode: Mode, start: StartState) -> CheckpointError | None:
    """Returns the error for a start state with flaws, unless the request allows them; None if there
    are no flaws.

    A mode that can lose windows accepts a state that lacks windows. No mode accepts a state that
    has changed since it was saved.
    """
    lacking = [] if mode.may_lose else start.lacking
    if not lacking and not start.stale:
        return None
    what = [f"lacks windows {_words(lacking)}, which at most once lost"] if lacking else []
    what += (
        [f"was computed in windows {_words(start.stale)}, which are out of date (stale)"]
        if start.stale
        else []
    )
    if lacking:
        first = min(window for window, _ in (*lacking, *start.stale))
        mend = (
            f"Replay and publish them first: rewindow replay {application} --first {first} --last "
            f"{start.window}"
        )
    else:
        mend = (
            "Bring these windows up to date first: rewindow repair --run (rewindow plan "
            f"{application} --late shows what it replays)"
        )
    return CheckpointError(
        f'start state of application "{application}" at window {start.window} {" and ".join(what)}',
        detail="Every window computed from it would be affected: its values would differ from "
        "those computed from a state that is complete and up to date.",
        hint=f"{mend}; or pass --allow-affected (setting replay.allow_affected), which is stored "
        "with the replay.",
    )


def _lacking_of_publication(ledger: Ledger, application: str, window: int) -> Iterable[WindowRange]:
    """Returns the windows that are missing from the published state at a window.

    They are determined from the publication that the window shows.
    """
    # Newest first, so an undo comes before the publication that it undoes.
    undone: set[int] = set()
    for act in ledger.publications.newest(application=application, limit=1_000_000):
        if act.withdrawn is not None:
            continue
        if act.undoes is not None:
            undone.add(act.undoes)
        elif act.number not in undone and window in act.range:
            return act.details.state_lacks
    return ()


def _lacking_of_replay(config: Config, ledger: Ledger, replay_id: str) -> Iterable[WindowRange]:
    plan: Plan = ledger.replays.get(replay_id).read_plan()
    replay = StagedReplay(plan, config.replay_root(replay_id))
    return losses_of(plan, replay.facts, replay.checkpoints, windows=plan.range).lacking


def _stale(ledger: Ledger, application: str) -> list[WindowRange]:
    return [WindowRange(row.first, row.last) for row in ledger.stale.ranges(application)]


def _pairs(parts: Iterable[WindowRange]) -> list[tuple[int, int]]:
    return sorted({(part.first, part.last) for part in parts})


def _words(parts: Iterable[tuple[int, int]]) -> str:
    return ", ".join(map(str, starmap(WindowRange, parts)))
