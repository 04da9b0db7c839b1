"""Makes every port of an application an output, for a sample that is computed again and compared
port by port.
"""

from __future__ import annotations

from rewindow.application.graph import Application
from rewindow.names import BOOKKEEPING
from rewindow.sequences import matching_names, repeated_names


def record_every_port(app: Application) -> None:
    """Adds an output `OPERATOR__PORT` for each port that is none; error ports have tables anyhow.

    A port whose columns a stored table would take for its own, or for each other, is left out.
    """
    known = {output.source for output in app.outputs.values()}
    for node in app.nodes.values():
        for name, port in node.output_ports().items():
            columns = port.schema.names
            taken = repeated_names(columns) or matching_names(columns, BOOKKEEPING)
            if not port.error and node[name] not in known and not taken:
                app.output(f"{node.name}__{name}", node[name], key=())
