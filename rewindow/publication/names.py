"""Names of published tables: an output O of an application A is the stream "A.O"; all lie side by side."""

from __future__ import annotations

from rewindow.config import Config
from rewindow.errors import TableError
from rewindow.ledger import Publication
from rewindow.tables import Table


def data_name(application: str, output: str) -> str:
    """Returns the table of an output's tuples.

    >>> data_name("flight_delays", "ranks")
    'flight_delays.ranks'
    """
    return f"{application}.{output}"


def windows_name(name: str) -> str:
    """Returns the table of a published stream's sealed windows."""
    return f"{name}.windows"


def checkpoints_name(application: str) -> str:
    """Returns the table of an application's published checkpoints."""
    return f"{application}.checkpoints"


def open_published(config: Config, name: str, version: int | None = None) -> Table:
    """Returns a published table by its name.

    Raises:
        TableError: it is not there, or not in this version.
    """
    return Table.open(config.stream_table(name), version)


def same_table(config: Config, publication: Publication, name: str) -> Table:
    """Returns a published table, if it is the one that a publication was committed to.

    Raises:
        TableError: it was deleted and made anew since, so that nothing of before can be put back into it.
    """
    table = open_published(config, name)
    before = publication.details.get("table_ids", {}).get(name, table.id)
    if before != table.id:
        raise TableError(
            f'table "{name}" is another one than publication {publication.number} was committed to',
            detail=f"It was table {before}, there is {table.id}: it was deleted and made anew. Nothing was changed.",
            hint="Replay the range with the code and inputs that you want back, and publish that.",
        )
    return table
