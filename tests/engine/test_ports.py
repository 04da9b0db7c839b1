"""What a commit group does with each port: which are written, which are counted, which cost
nothing.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from rewindow.application import Application, FrameOperator, InputPort, OutputPort
from rewindow.engine.ports import ports_to_count, ports_to_write

SCHEMA = pa.schema([("n", pa.int64())])


class Reporting(FrameOperator):
    inputs = {"in": InputPort(SCHEMA)}
    outputs = {
        "out": OutputPort(SCHEMA),
        "rest": OutputPort(SCHEMA),
        "counts": OutputPort(SCHEMA, report=True),
    }
    state_reads_outputs = False
    state_schema = SCHEMA


class Stateless(Reporting):
    state_schema = None


@pytest.mark.parametrize("operator", [Reporting(), Stateless()])
def test_unread_report_port_is_not_computed_but_other_unread_tuples_are_counted(
    operator: FrameOperator,
) -> None:
    # Rules: O16
    app = Application("reports", window="1 s")
    node = app.add("op", operator, **{"in": app.input("numbers")})  # type: ignore[arg-type]
    app.output("out", node["out"], key=["n"])
    assert app.dropped() == ports_to_count(app) == {node["rest"]}
    assert node["counts"] not in ports_to_write(app)
    app.output("counts", node["counts"], key=["n"])
    assert node["counts"] in ports_to_write(app)
    assert app.dropped() == {node["rest"]}
