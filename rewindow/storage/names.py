"""Names of published tables. Output O of application A is published as stream "A.O"; all tables are
in one folder.
"""

from __future__ import annotations

from rewindow.settings.config import Config
from rewindow.storage import Table


def data_name(application: str, output: str) -> str:
    """Returns the name of the table with an output's tuples.

    >>> data_name("flight_delays", "ranks")
    'flight_delays.ranks'
    """
    return f"{application}.{output}"


def checkpoints_name(application: str) -> str:
    """Returns the name of the table with an application's published checkpoints."""
    return f"{application}.checkpoints"


def open_published(config: Config, name: str, version: int | None = None) -> Table:
    """Returns a published table by its name.

    Raises:
        TableError: the table or the version does not exist.
    """
    return Table.open(config.stream_table(name), version)
