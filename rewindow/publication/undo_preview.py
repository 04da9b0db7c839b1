"""Runs all checks of `undo` and computes its effect, without changing anything. Starts no JVM."""

from __future__ import annotations

from rewindow.ledger import Ledger, Publication
from rewindow.ledger.publication_details import PutBack
from rewindow.ledger.publication_rows import UNDO
from rewindow.publication.effects import related_acts
from rewindow.publication.history import shown_without
from rewindow.publication.preview import PublicationPreview, ShownWindows, undo_preview
from rewindow.publication.result import PublicationResult, result_of
from rewindow.publication.undo import (
    find_damaged,
    find_put_back,
    newest_act,
    same_table,
    without_damaged,
)
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.storage.damage import damaged_error
from rewindow.storage.published_tables import Kind, kind_of
from rewindow.storage.snapshots import snapshot_cache


@snapshot_cache()
def expected_undo(
    config: Config,
    replay_id: str,
    *,
    leave_out_damaged: bool = False,
) -> PublicationPreview | PublicationResult:
    """Returns the effect of undoing a replay's publications.

    For an unfinished undo, it returns only the remaining part.

    Args:
        config: current settings.
        replay_id: the replay.
        leave_out_damaged: assume that windows of damaged files are left out.

    Returns:
        The effect; the existing result if the replay is already undone.

    Raises:
        RewindowError: the error that `undo` would raise.
    """
    ledger = Ledger.open(config.ledger_url)
    replay = ledger.replays.get(replay_id)
    newest = newest_act(ledger, replay)
    if newest.kind == UNDO and newest.closed_at:
        return result_of(config, ledger, newest, already=True, rolled=[])
    names = names_of(newest.tables)
    acts = related_acts(ledger, replay.application, names)
    left = [act for act in acts if act.replay_id != replay_id]
    put_back = _put_back(
        config,
        ledger,
        newest,
        acts,
        left,
        leave_out_damaged,
    )
    tables = [
        undo_preview(config, name, newest.range, pieces=put_back)
        for name in put_back
        if kind_of(name) is Kind.DATA
    ]
    shows = [
        ShownWindows(part.first, part.last, act.replay_id if act else None)
        for part, act in shown_without(left, newest.range)
    ]
    return PublicationPreview(
        UNDO,
        replay_id,
        replay.application,
        first=newest.first,
        last=newest.last,
        windows=len(newest.range),
        tables=tuple(tables),
        unfinished=tuple(
            publication.number for publication in ledger.publications.unfinished(names)
        ),
        shows=tuple(shows),
    )


def _put_back(
    config: Config,
    ledger: Ledger,
    newest: Publication,
    acts: list[Publication],
    left: list[Publication],
    leave_out_damaged: bool,
) -> dict[str, list[PutBack]]:
    """Returns the pieces to restore for each table name, see find_put_back."""
    if newest.kind == UNDO:
        remaining = {}
        for table in newest.tables:
            if not table.done:
                remaining[table.name] = list(newest.details.put_back.get(table.name, ()))
        return remaining
    ledger.publications.check_uncovered(newest.number)
    names = [same_table(config, newest, table.name).path.name for table in newest.tables]
    restored = find_put_back(config, newest, acts, left=left, names=names)
    before, now = find_damaged(config, newest, restored)
    if (before or now) and not leave_out_damaged:
        raise damaged_error(before or now, f"rewindow undo {newest.replay_id}")
    return without_damaged(restored, before)
