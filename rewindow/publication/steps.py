"""The steps of a publication or an undo, in order; a crash point follows each (see
`rewindow.crash`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

Crash = Callable[[str, int], None]
"""Called with a step's name and which time it is reached, from 1."""


class PublishStep(StrEnum):
    """Steps of a publication; those of a table happen once for each of its tables, numbered from 1.

    | killed after | what is there | the next publisher of the application |
    | --- | --- | --- |
    | prepared | perhaps new empty tables, a lease | begins anew |
    | opened | an open row in the ledger | commits to every table |
    | table_committed | a commit that the ledger does not know | sees its number there, marks it |
    | table_marked | some tables new, some old | commits to the others |
    | settled | everything but the closing | closes |
    | closed | all of it | changes nothing |
    """

    PREPARED = "prepared"
    OPENED = "opened"
    TABLE_COMMITTED = "table_committed"
    TABLE_MARKED = "table_marked"
    SETTLED = "settled"
    CLOSED = "closed"
