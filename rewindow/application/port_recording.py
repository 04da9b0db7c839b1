"""Turns every port of an application into an output, for samples that are computed several times
and compared port by port.
"""

from __future__ import annotations

from rewindow.application.graph import Application
from rewindow.names import BOOKKEEPING
from rewindow.sequences import matching_names, repeated_names


def record_every_port(app: Application) -> None:
    """Adds an output `OPERATOR__PORT` for each port that is not yet an output. Error ports always
    have tables.

    Ports with column names that are reserved, or equal except for case, are left out, because a
    table cannot store them.
    """
    known = {output.source for output in app.outputs.values()}
    for node in app.nodes.values():
        for name, port in node.output_ports().items():
            columns = port.schema.names
            taken = repeated_names(columns) or matching_names(columns, BOOKKEEPING)
            if not port.error and node[name] not in known and not taken:
                app.output(f"{node.name}__{name}", node[name], key=())
