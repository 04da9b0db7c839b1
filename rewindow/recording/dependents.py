"""Who needs a stream: replays that are open, what is published from it, and publications that could be undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewindow.ledger import Ledger
from rewindow.ledger.publication_rows import PUBLISH, Publication
from rewindow.ledger.replays import Replay, State
from rewindow.ledger.staleness import REOPENED
from rewindow.storage.names import data_name
from rewindow.windows import WindowRange

OPEN = frozenset({State.PLANNED, State.RUNNING, State.FAILED, State.ENDED, State.CHECKED})
"""States of a replay that may still be run, resumed, checked or published."""
_LIMIT = 100_000


@dataclass(frozen=True)
class Dependent:
    """Somebody who needs a stream.

    Attributes:
        replay_id, application: the replay that reads it, or whose publication is part of it.
        windows: its windows, as far as they were asked for.
        is_open: whether the replay has not ended its life; else something of it is published.
        why: in words.
    """

    replay_id: str
    application: str
    windows: WindowRange
    is_open: bool
    why: str


def readers(ledger: Ledger, stream: str, windows: Sequence[WindowRange] | None = None) -> list[Dependent]:
    """Returns who has read windows of a stream, open or published, newest first; all windows unless some are given."""
    publications = effective_by_replay(ledger)
    found = []
    for row in ledger.replays.newest(limit=_LIMIT):
        if stream not in inputs_of(row) or not _meets(row.range, windows):
            continue
        if row.state in OPEN:
            words = f'replay "{row.replay_id}" {row.range} is {row.state.value} and reads it'
            found.append(Dependent(row.replay_id, row.application, row.range, True, words))
        found += [
            Dependent(
                row.replay_id, row.application, publication.range, False,
                f'publication {publication.number} of replay "{row.replay_id}", windows {publication.range}, '
                "was computed from it",
            )
            for publication in publications.get(row.replay_id, ())
            if _meets(publication.range, windows)
        ]  # fmt: skip
    return found


def dependents(ledger: Ledger, stream: str) -> list[Dependent]:
    """Returns everybody who needs a stream: its readers, and the publications that made it what it is."""
    own = [
        Dependent(
            publication.replay_id, ledger.replays.get(publication.replay_id).application, publication.range, False,
            f"publication {publication.number} made its windows {publication.range}; it is visible to readers and can "
            f"be taken back: rewindow undo {publication.replay_id}",
        )
        for of_replay in effective_by_replay(ledger, stream).values()
        for publication in of_replay
    ]  # fmt: skip
    return [*own, *readers(ledger, stream)]


def mark_stale(ledger: Ledger, stream: str, windows: Sequence[WindowRange]) -> list[str]:
    """Marks as stale what was published from windows of a stream, and returns in words who has read them.

    An output without state is stale in these windows, one with state from the first of them on. Open replays keep the
    version that they pinned; they are named, and nothing of theirs is marked before it is published.
    """
    found = readers(ledger, stream, windows)
    for reader in found:
        if reader.is_open:
            continue
        for output in ledger.replays.get(reader.replay_id).plan.get("outputs", []):
            name = data_name(reader.application, output["name"])
            parts = [part.overlap(reader.windows) for part in windows]
            touched = [part for part in parts if part is not None]
            if output["stateful"]:
                touched = _carried_on(touched[0].first, _last_published(ledger, name, reader.windows.last), windows)
            for part in touched:
                ledger.stale.add(reader.application, name, part.first, part.last, REOPENED)
    return [f"has read the older seal: {reader.why}" for reader in found]


def _carried_on(first: int, last: int, opened: Sequence[WindowRange]) -> list[WindowRange]:
    """Returns a range, parted where windows were opened: once one part is right, the next one still is not."""
    begins = sorted({first, *(part.first for part in opened if first < part.first <= last)})
    return [WindowRange(begin, end - 1) for begin, end in zip(begins, [*begins[1:], last + 1], strict=True)]


def _last_published(ledger: Ledger, table_name: str, at_least: int) -> int:
    publications = effective_by_replay(ledger, table_name)
    return max((entry.last for entries in publications.values() for entry in entries), default=at_least)


def inputs_of(row: Replay) -> list[str]:
    """Returns the streams that a replay reads; none when its plan was purged."""
    return [str(entry["stream"]) for entry in row.plan.get("inputs", [])]


def effective_by_replay(ledger: Ledger, table_name: str | None = None) -> dict[str, list[Publication]]:
    """Returns, by replay, the publications that are neither withdrawn nor undone; of one table if so asked."""
    entries = [
        entry
        for entry in ledger.publications.newest(table_name=table_name, limit=_LIMIT)
        if entry.withdrawn is None
    ]  # fmt: skip
    undone = {entry.undoes for entry in entries if entry.undoes is not None}
    found: dict[str, list[Publication]] = {}
    for entry in entries:
        if entry.kind == PUBLISH and entry.number not in undone:
            found.setdefault(entry.replay_id, []).append(entry)
    return found


def _meets(whole: WindowRange, windows: Sequence[WindowRange] | None) -> bool:
    return windows is None or any(whole.overlap(part) is not None for part in windows)
