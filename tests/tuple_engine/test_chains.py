"""Operators of an application that form a chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import Application, FrameOperator, InputPort, Node, OutputPort, PortHandle
from rewindow.operators import DelayOperator, TupleOperator
from rewindow.sequences import names_of
from rewindow.tuple_engine.chains import units_of

ROWS = pa.schema([("user", pa.string()), ("page", pa.string())])
WIDE = pa.schema([("user", pa.large_string()), ("page", pa.string())])


def operator(*key: str, schema: pa.Schema = ROWS, control: bool = False) -> TupleOperator:
    class Passes(TupleOperator):
        inputs: ClassVar = {
            "rows": InputPort(schema, key=key),
            "more": InputPort(schema, key=key, optional=True),
            "stop": InputPort(schema, control=True, optional=True),
        }
        outputs: ClassVar = {
            "out": OutputPort(schema, control=control),
            "odd": OutputPort(schema, error=True),
        }

        def process(self, row: Any) -> None:
            self.emit("out", *row)

    return Passes()


def batches(*key: str) -> TupleOperator:
    class Batches(TupleOperator):
        inputs: ClassVar = {"rows": InputPort(ROWS, key=key)}
        outputs: ClassVar = {"out": OutputPort(ROWS)}

        def process_batch(self, port: str, rows: pa.RecordBatch) -> None:
            self.emit_batch("out", rows)

    return Batches()


class Frames(FrameOperator):
    inputs: ClassVar = {"rows": InputPort(ROWS)}
    outputs: ClassVar = {"out": OutputPort(ROWS)}


class Later(DelayOperator):
    columns: ClassVar = ROWS
    key: ClassVar = ("user",)


def chain(*operators: FrameOperator) -> tuple[Application, list[Node]]:
    app = Application("one", window="1 s")
    nodes: list[Node] = []
    end: Any = app.input("rows")
    for number, one in enumerate(operators):
        port = next(iter(one.input_ports()))
        nodes.append(app.add(f"op{number}", one, **{port: end}))
        end = nodes[-1]["out"]
    return app, nodes


def units(app: Application) -> list[list[str]]:
    return [names_of(unit) for unit in units_of(app)]


@pytest.mark.parametrize(
    ("writer", "reader", "is_chain"),
    [
        (operator(), operator(), True),
        (operator("user"), operator("user"), True),
        (operator("user", "page"), operator("user", "page"), True),
        (operator("user", "page"), operator("page", "user"), False),
        (operator("user"), operator("user", "page"), False),
        (operator("user"), operator("page"), False),
        (operator("user"), operator(), False),
        (operator(), operator("user"), False),
        (operator("user"), operator("user", schema=WIDE), False),
        (operator(schema=WIDE), operator(), False),
        (operator("user", control=True), operator("user"), False),
        (batches("user"), operator("user"), False),
        (operator("user"), batches("user"), True),
        (batches(), operator(), True),
        (Frames(), operator(), False),
        (operator(), Frames(), False),
        (operator("user"), Later(), False),
        (Later(), operator("user"), False),
    ],
)
def test_neighbouring_operators_with_the_same_key_form_a_chain(
    writer: FrameOperator,
    reader: FrameOperator,
    is_chain: bool,
) -> None:
    # Rules: O97
    app, _ = chain(writer, reader)
    assert units(app) == ([["op0", "op1"]] if is_chain else [["op0"], ["op1"]])


def test_chain_includes_all_single_input_readers_of_its_operators() -> None:
    # Rules: O97
    app, (first, second, third) = chain(*(operator("user") for _ in range(3)))
    app.add("odd", operator("user"), rows=second["odd"])
    app.add("both", operator("user"), rows=first["out"], more=third["out"])
    app.add("stopped", operator("user"), rows=third["out"], stop=first["out"])
    app.add("end", operator("user"), rows=PortHandle("both", "out"))
    assert units(app) == [["op0", "op1", "op2", "odd"], ["both", "end"], ["stopped"]]


def test_operator_with_locality_apart_is_excluded_from_chains() -> None:
    # Rules: O97, O103
    for apart, expected in {
        "op0": [["op0"], ["op1", "op2"]],
        "op1": [["op0"], ["op1"], ["op2"]],
        "op2": [["op0", "op1"], ["op2"]],
    }.items():
        app, _ = chain(*(operator("user") for _ in range(3)))
        app.nodes[apart] = replace(app.nodes[apart], locality="apart")
        assert units(app) == expected


def test_chain_stays_in_one_container_and_is_disabled_during_quarantine() -> None:
    # Rules: O97, X53, R93
    app, _ = chain(*(operator("user") for _ in range(3)))
    assert units(app.part(["op1", "op2"])) == [["op1", "op2"]]
    assert units(app.part(["op0", "op2"])) == [["op0"], ["op2"]]
    app.failing = {PortHandle("op1", "rows.failed"): ROWS}
    assert units(app) == [["op0"], ["op1"], ["op2"]]
