"""Which version of a published table shows what: how acts of publication lie over each other. Pure
arithmetic.

An act puts a range of a table into a state; the version before it still shows what was there. What
a window shows is named by the number of the publication that it comes from, and by None where it
comes from none.
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
    """Returns from which versions a table's range is put back when an act is taken back.

    Of several versions that show the same the newest is taken, which VACUUM removes last. As a rule
    that is the one before the act; it is another one where the content that lies below was undone
    in the meantime.

    Args:
        acts: every act on the table that was not withdrawn, the one that is taken back among them.
        table: the table's name.
        act: what is taken back.
        left: numbers of the publications that then stand.
    """
    known = sorted(acts, key=lambda one: one.number)
    wanted = _shown([one for one in known if one.number in left], act.range)
    pieces: list[PutBack] = []
    # Goes back from the newest version, which VACUUM removes last. `wanted` has the parts of the
    # range that no version was found for yet, each with the publication that it has to show.
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
    assert not wanted, f"no version of {table} shows windows {wanted[0][0]} as they are to be"
    return _joined(sorted(pieces, key=lambda piece: piece.windows.first))


def shown_without(
    left: Sequence[Publication],
    windows: WindowRange,
) -> list[tuple[WindowRange, Publication | None]]:
    """Returns, ascending, which publication the windows of a range show when only some acts count;
    None: nothing.
    """
    stand = {
        one.number: one for one in effective_publications(sorted(left, key=lambda one: one.number))
    }
    return [
        (part, None if number is None else stand[number])
        for part, number in _shown([*stand.values()], windows)
    ]


def without_windows(
    pieces: Sequence[PutBack],
    left_out: Sequence[WindowRange | None],
) -> list[PutBack]:
    """Returns pieces without some windows; None among these means all of them.

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
    """Returns, ascending, which publication the windows of a range show."""
    segments = in_effect([EffectivePublication(one.number, one.range) for one in publications])
    owned = [(part, one.owner.number) for one in segments if (part := one.range.overlap(windows))]
    free = without(windows, [part for part, _ in owned])
    return sorted([*owned, *((part, None) for part in free)], key=lambda entry: entry[0].first)
