"""Finds the dependents of a stream: open replays, publications computed from it, and publications
that could be undone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from rewindow.ledger import Ledger
from rewindow.ledger.publication_rows import PUBLISH, Publication, effective_publications
from rewindow.ledger.replays import Replay, ReplayState
from rewindow.ledger.staleness import REOPENED
from rewindow.recovery.staleness import moved_end
from rewindow.storage.names import data_name
from rewindow.windows import WindowRange, without

OPEN = frozenset(
    {
        ReplayState.PLANNED,
        ReplayState.RUNNING,
        ReplayState.FAILED,
        ReplayState.ENDED,
        ReplayState.CHECKED,
    }
)
"""States of a replay that may still be run, resumed, checked or published."""
_LIMIT = 100_000


@dataclass(frozen=True)
class Dependent:
    """A replay or publication that needs a stream.

    Attributes:
        replay_id, application: the replay that reads it, or whose publication is part of it.
        windows: the windows of the dependent.
        is_open: whether the replay can still be run or published; otherwise it is published.
        why: the reason, as text.
    """

    replay_id: str
    application: str
    windows: WindowRange
    is_open: bool
    why: str


def readers(
    ledger: Ledger,
    stream: str,
    windows: Sequence[WindowRange] | None = None,
) -> list[Dependent]:
    """Returns the open replays and publications that have read windows of a stream, newest first.

    By default, all windows of the stream count.
    """
    publications = effective_by_replay(ledger)
    found = []
    for row in ledger.replays.newest(limit=_LIMIT):
        if stream not in inputs_of(row) or not _meets(row.range, windows):
            continue
        if row.state in OPEN:
            words = f'replay "{row.replay_id}" {row.range} is {row.state.value} and reads it'
            found.append(
                Dependent(row.replay_id, row.application, row.range, is_open=True, why=words)
            )
        for act in publications.get(row.replay_id, ()):
            if _meets(act.range, windows):
                words = (
                    f'publication {act.number} of replay "{row.replay_id}", windows {act.range}, '
                    "was computed from it"
                )
                found.append(
                    Dependent(row.replay_id, row.application, act.range, is_open=False, why=words)
                )
    return found


def dependents(ledger: Ledger, stream: str) -> list[Dependent]:
    """Returns all dependents of a stream: its readers, and the publications that wrote its visible
    windows.
    """
    found = []
    for act in chain.from_iterable(effective_by_replay(ledger, stream).values()):
        application = ledger.replays.get(act.replay_id).application
        words = (
            f"publication {act.number} published its windows {act.range}, which readers see; to "
            f"undo: rewindow undo {act.replay_id}"
        )
        found.append(Dependent(act.replay_id, application, act.range, is_open=False, why=words))
    return found + readers(ledger, stream)


def mark_stale(ledger: Ledger, stream: str, windows: Sequence[WindowRange]) -> list[str]:
    """Marks outputs that were published from windows of a stream as stale, and returns texts about
    their readers.

    An output without state becomes stale in these windows. An output with state becomes stale from
    the first of these windows on. Open replays keep the version that they pinned. They are listed,
    but their outputs are not marked before they are published.
    """
    found = readers(ledger, stream, windows)
    for reader in found:
        if reader.is_open:
            continue
        for output in ledger.replays.get(reader.replay_id).plan.get("outputs", []):
            name = data_name(reader.application, output["name"])
            touched = list(filter(None, map(reader.windows.overlap, windows)))
            if output["stateful"]:
                _mark_behind(ledger, reader, name, first=touched[0].first, opened=windows)
                continue
            for part in touched:
                ledger.stale.add(reader.application, name, part.first, part.last, REOPENED)
    return [f"read the old seal: {reader.why}" for reader in found]


def readers_of_end(
    ledger: Ledger,
    stream: str,
    end: int | None,
) -> list[tuple[Dependent, int | None]]:
    """Returns the dependents that were computed with another end of a stream than this one, and the
    end that they used.

    Their windows start at the first one whose result differs; for publications, only windows that
    readers see count.
    """
    found = []
    for reader in _shown(ledger, stream):
        row = ledger.replays.get(reader.replay_id)
        pinned = next(entry.get("end") for entry in row.plan["inputs"] if entry["stream"] == stream)
        first = moved_end(pinned, end, row.range.last)
        if first is not None and first <= reader.windows.last:
            windows = WindowRange(max(first, reader.windows.first), reader.windows.last)
            found.append((replace(reader, windows=windows), pinned))
    return found


def _shown(ledger: Ledger, stream: str) -> Iterator[Dependent]:
    """Yields the readers of a stream: open replays, and each part of a publication that is not
    covered by a newer one.
    """
    every = readers(ledger, stream)
    by_act = {}
    for found in every:
        if found.is_open:
            yield found
        else:
            by_act[found.replay_id, found.windows] = found
    covered: dict[str, list[WindowRange]] = {}
    for act in effective_publications(ledger.publications.newest(limit=_LIMIT)):
        before = covered.setdefault(ledger.replays.get(act.replay_id).application, [])
        reader = by_act.get((act.replay_id, act.range))
        if reader is not None:
            for part in without(act.range, before):
                yield replace(reader, windows=part)
        before.append(act.range)


def mark_end(ledger: Ledger, stream: str, end: int | None) -> list[str]:
    """Marks outputs that were published with another end of a stream as stale, and returns texts
    about their readers.

    An output with state becomes stale from the first window on for which the end makes a
    difference, because waiting tuples fire or do not. An output without state becomes stale in
    windows that were treated as empty and are no longer after the end.

    Rules: X34
    """
    found = readers_of_end(ledger, stream, end)
    for reader, pinned in found:
        if reader.is_open:
            continue
        last = reader.windows.last if end is None else min(end, reader.windows.last)
        behind = last + 1 if pinned is None else max(pinned + 1, reader.windows.first)
        for output in ledger.replays.get(reader.replay_id).plan.get("outputs", []):
            name = data_name(reader.application, output["name"])
            if output["stateful"]:
                _mark_behind(ledger, reader, name, first=reader.windows.first, opened=())
            elif behind <= last:
                ledger.stale.add(reader.application, name, behind, last, REOPENED)
    return list(
        dict.fromkeys(
            f"was computed with a different end of {stream}: {reader.why}" for reader, _ in found
        )
    )


def _mark_behind(
    ledger: Ledger,
    reader: Dependent,
    name: str,
    first: int,
    opened: Sequence[WindowRange],
) -> None:
    """Marks an output with state as stale from a window on. The range is divided at windows that
    were reopened.

    When one part is repaired, the next one is still stale.
    """
    last = _last_published(ledger, name, reader.windows.last)
    begins = {part.first for part in opened}
    for row in ledger.stale.ranges(reader.application):
        if row.table_name == name and row.since == REOPENED:
            begins.add(row.first)
    parts = [first, *sorted(begin for begin in begins if first < begin <= last)]
    for begin, end in pairwise([*parts, last + 1]):
        ledger.stale.add(reader.application, name, begin, end - 1, REOPENED)


def _last_published(ledger: Ledger, table_name: str, at_least: int) -> int:
    publications = effective_by_replay(ledger, table_name)
    every = chain.from_iterable(publications.values())
    return max((act.last for act in every), default=at_least)


def inputs_of(row: Replay) -> list[str]:
    """Returns the streams that a replay reads. If its plan was purged, there are none."""
    return [str(entry["stream"]) for entry in row.plan.get("inputs", [])]


def effective_by_replay(
    ledger: Ledger,
    table_name: str | None = None,
) -> dict[str, list[Publication]]:
    """Returns the publications of each replay that are neither withdrawn nor undone.

    If a table is given, only its publications count.
    """
    # Newest first, so an undo comes before the publication that it undoes.
    undone: set[int | None] = set()
    found: dict[str, list[Publication]] = {}
    for act in ledger.publications.newest(table_name=table_name, limit=_LIMIT):
        if act.withdrawn is not None:
            continue
        undone.add(act.undoes)
        if act.kind == PUBLISH and act.number not in undone:
            found.setdefault(act.replay_id, []).append(act)
    return found


def _meets(whole: WindowRange, windows: Sequence[WindowRange] | None) -> bool:
    return windows is None or any(whole.overlap(part) is not None for part in windows)
