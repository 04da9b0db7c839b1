"""Finds, for an undo, the table versions that show the content of a range without the undone
publication. Pure functions.

Each publication or undo replaces a range of a table; the version before it still has the earlier
content. The content of a window is identified by the number of its publication, or None if no
publication covers the window.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewindow.ledger.publication_details import PutBack
from rewindow.ledger.publication_rows import WITHDRAW, Publication, effective_publications
from rewindow.recovery.staleness import EffectivePublication, in_effect
from rewindow.windows import WindowRange, without

_Shown = tuple[WindowRange, int | None]


def versions_without(
    acts: Sequence[Publication],
    table: str,
    act: Publication,
    left: Sequence[int],
) -> list[PutBack]:
    """Returns the versions from which a table's range is restored when a publication or undo is
    reverted.

    If several versions have the same content, the newest is used, because VACUUM removes it last.
    Usually that is the version before the publication. It is another version if the earlier content
    was itself undone in the meantime.

    Args:
        acts: all publications and undos of the table that were not withdrawn, including the one
            that is reverted.
        table: the table's name.
        act: the publication or undo that is reverted.
        left: numbers of the publications that remain in effect.
    """
    known = sorted(acts, key=lambda entry: entry.number)
    wanted = _shown([entry for entry in known if entry.number in left], act.range)
    pieces: list[PutBack] = []
    # Searches from the newest version, which VACUUM removes last, to the oldest. `wanted` has the
    # parts of the range without a version so far, each with the publication that it has to show.
    for place in range(len(known) - 1, -1, -1):
        version = next(
            (entry.version_before for entry in known[place].tables if entry.name == table), None
        )
        if version is None or not wanted or known[place].kind == WITHDRAW:
            continue
        before = _shown(effective_publications(known[:place]), act.range)
        rest: list[_Shown] = []
        for windows, owner in wanted:
            same = [
                part
                for other, shown in before
                if shown == owner and (part := windows.overlap(other))
            ]
            pieces += [PutBack(part, version) for part in same]
            rest += [(part, owner) for part in without(windows, same)]
        wanted = rest
    assert not wanted, f"no version of {table} has the earlier content of windows {wanted[0][0]}"
    return _joined(sorted(pieces, key=lambda piece: piece.windows.first))


def shown_without(
    left: Sequence[Publication],
    windows: WindowRange,
) -> list[tuple[WindowRange, Publication | None]]:
    """Returns the publication that each part of a range shows if only the given publications and
    undos count.

    The parts are in ascending order. A part without a publication has None.
    """
    ordered = sorted(left, key=lambda publication: publication.number)
    in_effect = {publication.number: publication for publication in effective_publications(ordered)}
    return [
        (part, None if number is None else in_effect[number])
        for part, number in _shown([*in_effect.values()], windows)
    ]


def without_windows(
    pieces: Sequence[PutBack],
    left_out: Sequence[WindowRange | None],
) -> list[PutBack]:
    """Removes windows from pieces to restore; None means all windows.

    >>> pieces = without_windows([PutBack(WindowRange(1, 9), 3)], [WindowRange(2, 4)])
    >>> [str(piece.windows) for piece in pieces]
    ['[1, 1]', '[5, 9]']
    """
    for windows in left_out:
        if windows is None:
            return []
        rest: list[PutBack] = []
        for piece in pieces:
            both = windows.overlap(piece.windows)
            parts = without(piece.windows, [both] if both else [])
            rest += [PutBack(part, piece.version) for part in parts]
        pieces = rest
    return list(pieces)


def _joined(pieces: Sequence[PutBack]) -> list[PutBack]:
    joined: list[PutBack] = []
    for piece in pieces:
        before = joined[-1] if joined else None
        if before and (before.windows.last, before.version) == (
            piece.windows.first - 1,
            piece.version,
        ):
            joined[-1] = PutBack(
                WindowRange(before.windows.first, piece.windows.last),
                piece.version,
            )
        else:
            joined.append(piece)
    return joined


def _shown(publications: Sequence[Publication], windows: WindowRange) -> list[_Shown]:
    """Returns the number of the publication that each part of a range shows, in ascending order."""
    segments = in_effect(
        [EffectivePublication(entry.number, entry.range) for entry in publications]
    )
    owned = [
        (part, segment.owner.number)
        for segment in segments
        if (part := segment.range.overlap(windows))
    ]
    free = without(windows, [part for part, _ in owned])
    return sorted([*owned, *((part, None) for part in free)], key=lambda entry: entry[0].first)
