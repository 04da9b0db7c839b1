"""The state of a replay's publications: in effect, undone, or covered by later publications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewindow.ledger import Ledger, Publication
from rewindow.ledger.publication_rows import PUBLISH, UNDO, StandingRange
from rewindow.ledger.replays import Replay, ReplayState
from rewindow.storage.names import checkpoints_name
from rewindow.windows import without


@dataclass(frozen=True)
class Visibility:
    """The later publications that cover a published replay.

    Attributes:
        covered_by: replays with later publications of the same windows, newest first.
        is_whole: whether these cover all of its windows.
    """

    covered_by: tuple[str, ...] = ()
    is_whole: bool = False

    def __str__(self) -> str:
        if not self.covered_by:
            return ""
        return f"{'' if self.is_whole else 'partly '}covered by {', '.join(self.covered_by)}"


def visibility(ledger: Ledger, row: Replay) -> Visibility:
    """Returns the later publications that cover a replay; none if it is not published."""
    return visibilities(ledger, [row])[row.replay_id]


def visibilities(ledger: Ledger, rows: Sequence[Replay]) -> dict[str, Visibility]:
    """Returns the later publications that cover each replay; none if it is not published."""
    # Every publication of an application writes its checkpoints, so two of them overlap in a table
    # if their windows overlap.
    tables = {}
    for row in rows:
        if row.state is ReplayState.PUBLISHED:
            tables[row.replay_id] = checkpoints_name(row.application)
    standing = ledger.publications.standing(tables.values()) if tables else {}
    found = {}
    for row in rows:
        table = tables.get(row.replay_id, "")
        found[row.replay_id] = _visibility(row, standing.get(table, []))
    return found


def _visibility(row: Replay, acts: Sequence[StandingRange]) -> Visibility:
    """Returns the publications that are later than the newest one of a replay, and overlap it.

    Args:
        row: the replay.
        acts: effective publications of its application, oldest first.
    """
    later = []
    for act in reversed(acts):
        if act.replay_id == row.replay_id:
            break
        later.append(act)
    else:
        return Visibility()
    names = []
    covers = []
    for other in later:
        if other.range.overlap(act.range):
            names.append(other.replay_id)
            covers.append(other.range)
    is_whole = bool(names) and not without(act.range, covers)
    return Visibility(tuple(dict.fromkeys(names)), is_whole)


def state_words(row: Replay, seen: Visibility, is_gone: bool) -> str:
    """Returns the state of a replay as text, such as "published, covered by second".

    Args:
        row: the replay.
        seen: the publications that cover it.
        is_gone: it is recorded as running although its process has ended without a recorded
            outcome.
    """
    if is_gone:
        return f"{row.state.value}, but its process is gone"
    return f"{row.state.value}, {seen}" if seen.covered_by else row.state.value


def outcome(act: Publication, acts: Sequence[Publication]) -> str:
    """Returns the outcome of a publication, an undo or a withdrawal as text.

    `acts` has all of these for the same replay.
    """
    if act.withdrawn is not None:
        return f"ended without effect: {act.withdrawn}"
    if act.closed_at is None:
        return "started, not finished"
    if act.kind != PUBLISH:
        return f"undid publication {act.undoes}"
    undone = []
    # An undo of a later publication of the replay undid this one too.
    for undo in acts:
        if undo.kind != UNDO or undo.replay_id != act.replay_id or undo.undoes is None:
            continue
        if undo.withdrawn is None and undo.closed_at is not None and undo.undoes >= act.number:
            undone.append(undo.number)
    return f"undone by {min(undone)}" if undone else "stands"
