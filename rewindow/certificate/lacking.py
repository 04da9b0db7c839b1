"""The number of tuples that each side of a comparison lacks, and a text about them."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from rewindow.names import PUBLISHED


class OnlyIn(BaseModel):
    """Tuples that only one side has. A changed row counts once on each side.

    Attributes:
        a, b: number of tuples that only a has, and that only b has.
        changed: how many of them are the same tuple on both sides, by the output's key, with
            different values.
        at_least: rows of a side were purged, so only the counts in the seals could be compared. The
            true numbers may be higher.
    """

    a: int = 0
    b: int = 0
    changed: int = 0
    at_least: bool = False

    @classmethod
    def sum(cls, parts: Iterable[OnlyIn]) -> OnlyIn:
        """Returns the sum over several outputs."""
        total = cls()
        for part in parts:
            total.a += part.a
            total.b += part.b
            total.changed += part.changed
            total.at_least |= part.at_least
        return total

    def words(self, a: str, b: str) -> str:
        """Returns both directions as one sentence, which starts with the tuples missing from the
        side that lacks more.

        The order of the sides does not change the sentence:

            >>> OnlyIn(a=0, b=148).words("LOSSY", "FULL")
            '148 tuples of FULL are missing in LOSSY; 0 are only in LOSSY'
            >>> OnlyIn(a=148, b=0).words("FULL", "LOSSY")
            '148 tuples of FULL are missing in LOSSY; 0 are only in LOSSY'
            >>> OnlyIn(a=1, b=1).words("x", "y") == OnlyIn(a=1, b=1).words("y", "x")
            True
            >>> OnlyIn(a=222, b=195, changed=195).words("published", "second")
            '195 published tuples are changed in second; 27 are missing; 0 are only in second'
        """
        turned = (self.b, a) > (self.a, b)
        fuller, poorer, missing, surplus = (
            (b, a, self.b, self.a) if turned else (a, b, self.a, self.b)
        )
        bound = "at least " if self.at_least else ""
        tuples = "tuple" if missing == 1 else "tuples"
        place = _place(poorer)
        of = f"published {tuples}" if fuller == PUBLISHED else f"{tuples} of {fuller}"
        if self.changed:
            missing = missing - self.changed
            surplus = surplus - self.changed
            many = self.changed != 1
            of = of if many else of.replace("tuples", "tuple")
            changed = f"{bound}{self.changed:,} {of} {_is(self.changed)} changed in {place}"
            rest = (
                f"{bound}{missing:,} {_is(missing)} missing; {bound}{surplus:,} {_is(surplus)} "
                f"only in {place}"
            )
            return f"{changed}; {rest}"
        lacking = f"{bound}{missing:,} {of} {_is(missing)} missing in {place}"
        return f"{lacking}; {bound}{surplus:,} {_is(surplus)} only in {place}"


def _place(side: str) -> str:
    return "the published output" if side == PUBLISHED else side


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
