"""Names of published tables: an output O of an application A is the stream "A.O"; all lie side by
side.
"""

from __future__ import annotations

from rewindow.settings.config import Config
from rewindow.storage import Table


def data_name(application: str, output: str) -> str:
    """Returns the table of an output's tuples.

    >>> data_name("flight_delays", "ranks")
    'flight_delays.ranks'
    """
    return f"{application}.{output}"


def checkpoints_name(application: str) -> str:
    """Returns the table of an application's published checkpoints."""
    return f"{application}.checkpoints"


def open_published(config: Config, name: str, version: int | None = None) -> Table:
    """Returns a published table by its name.

    Raises:
        TableError: it is not there, or not in this version.
    """
    return Table.open(config.stream_table(name), version)
