"""The cycles of the application tuple_cycle as plain loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

Rows = list[tuple[int, str, int]]
UNIT = 1_000_000
PAGES = "abc"


def ranks(events: Mapping[int, Iterable[tuple[str, int]]], windows: range) -> Rows:
    links: dict[str, list[str]] = {}
    rank: dict[str, int] = {}
    given: dict[str, int] = {}
    found = []
    for window in windows:
        for page, x in events.get(window, ()):
            links.setdefault(page, []).append(PAGES[x % 3])
        for page in {*links, *given}:
            rank.setdefault(page, UNIT)
            if given.get(page):
                rank[page] = UNIT * 15 // 100 + given[page] * 85 // 100
        given = defaultdict(int)
        for page in rank:
            found.append((window, page, rank[page]))
            for to in links.get(page, ()):
                given[to] += rank[page] // len(links[page])
    return sorted(found)


def sums(events: Mapping[int, Iterable[tuple[str, int]]], windows: range) -> Rows:
    """Returns the balance of each key in each window in which it is not zero."""
    found: dict[tuple[int, str], int] = {}
    for window in windows:
        for key, x in events.get(window, ()):
            found[window, key] = found.get((window, key), 0) + x
        for (before, key), total in list(found.items()):
            if before == window - 2 and total:
                found[window, key] = found.get((window, key), 0) + total // 2
    return sorted((window, key, total) for (window, key), total in found.items() if total)
