"""Makes every port of an application an output, for a sample that is computed again and compared
port by port.
"""

from __future__ import annotations

from rewindow.application.graph import Application
from rewindow.names import BOOKKEEPING


def record_every_port(app: Application) -> None:
    """Adds an output `OPERATOR__PORT` for each port that is none; error ports have tables anyhow.

    A port whose columns a stored table would take for its own, or for each other, is left out.
    """
    known = {output.source for output in app.outputs.values()}
    for node in app.nodes.values():
        for name, port in node.output_ports().items():
            columns = [column.lower() for column in port.schema.names]
            is_storable = len(set(columns)) == len(columns) and not set(columns) & set(BOOKKEEPING)
            if not port.error and node[name] not in known and is_storable:
                app.output(f"{node.name}__{name}", node[name], key=())
