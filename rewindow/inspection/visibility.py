"""What readers still see of a replay that was published: later publications over its range cover it."""

from __future__ import annotations

from dataclasses import dataclass

from rewindow.ledger import Ledger
from rewindow.ledger.publication_rows import effective_publications
from rewindow.ledger.replays import Replay, State
from rewindow.windows import without


@dataclass(frozen=True)
class Visibility:
    """What stands over a published replay.

    Attributes:
        covered_by: replays whose later publications stand over windows of it, newest first.
        is_whole: whether they cover all of its windows.
    """

    covered_by: tuple[str, ...] = ()
    is_whole: bool = False

    def __str__(self) -> str:
        if not self.covered_by:
            return ""
        return f"{'' if self.is_whole else 'in part '}covered by {', '.join(self.covered_by)}"


UNCOVERED = Visibility()


def visibility(ledger: Ledger, row: Replay) -> Visibility:
    """Returns what covers a replay; nothing where it is not published."""
    if row.state is not State.PUBLISHED:
        return UNCOVERED
    own = next(iter(effective_publications(ledger.publications.newest(row.replay_id))), None)
    if own is None:
        return UNCOVERED
    later = [act for act in ledger.publications.later_overlapping(own.number) if act.closed_at is not None]
    names = tuple(dict.fromkeys(act.replay_id for act in later))
    return Visibility(names, bool(names) and not without(own.range, [act.range for act in later]))


def state_words(row: Replay, seen: Visibility) -> str:
    """Returns the state of a replay as people read it, such as "published, covered by second"."""
    return f"{row.state.value}, {seen}" if seen.covered_by else row.state.value
