"""The steps of a publication or an undo, in order.

After each step there is a crash point (see `rewindow.crash`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

Crash = Callable[[str, int], None]
"""Called with a step's name and the count of times that it was reached, starting at 1."""


class PublishStep(StrEnum):
    """Steps of a publication. Steps for a table happen once per table and are numbered from 1.

    | killed after | existing so far | action of the next publisher of the application |
    | --- | --- | --- |
    | prepared | perhaps new empty tables, a lease | starts from the beginning |
    | opened | an open entry in the ledger | commits to every table |
    | table_committed | a commit that the ledger does not list | finds its number, marks it done |
    | table_marked | some tables new, some old | commits to the others |
    | settled | everything except the closing | closes it |
    | closed | everything | changes nothing |
    """

    PREPARED = "prepared"
    OPENED = "opened"
    TABLE_COMMITTED = "table_committed"
    TABLE_MARKED = "table_marked"
    SETTLED = "settled"
    CLOSED = "closed"
