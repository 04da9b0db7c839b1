"""Tables of failing tuples, one for each input port of an operator.

Each table has the columns that the operator reads there.

Rules: R93
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from rewindow.application.error_tuples import COLUMNS, FAILED
from rewindow.application.graph import Application
from rewindow.application.node import PortHandle
from rewindow.names import BOOKKEEPING
from rewindow.sequences import excluding, matching_names

_TAKEN = frozenset([*BOOKKEEPING, *COLUMNS.names])


def failed_handle(operator: str, port: str) -> PortHandle:
    """Returns the handle of the table that stores the failing tuples of an input port."""
    return PortHandle(operator, f"{port}{FAILED}")


def failing_tables(
    app: Application,
    operators: Collection[str],
    recorded: Mapping[str, pa.Schema],
) -> dict[PortHandle, pa.Schema]:
    """Returns the tables for failing tuples of the given operators, with the columns of each table.

    Args:
        app: the application.
        operators: names of the operators.
        recorded: columns of the recorded streams.
    """
    tables = {}
    for name, node in app.nodes.items():
        for port, end in node.feeds.items() if name in operators else ():
            columns = node.input_ports()[port].schema
            if columns is None and end.operator is None:
                columns = recorded[end.port]
            elif columns is None:
                source = (app.whole or app).port(end)
                columns = source.schema if source else None
            assert columns is not None, "checked at launch"
            names = excluding(columns.names, matching_names(columns.names, _TAKEN))
            tables[failed_handle(name, port)] = pa.schema(map(columns.field, names))
    return tables
