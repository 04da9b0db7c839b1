"""OutputOperator and CollectOperator: the first sends tuples out of an application, the second
stores the last ones in its state.

Rules: O3, X46
"""

from __future__ import annotations

from itertools import chain
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field

from rewindow.application.properties import WrongProperty
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.operators.tuples.state import list_of_rows

_WINDOW = "window_id"


class OutputOperator(TupleOperator):
    """An operator that writes its tuples to an external system, and emits only error tuples.

    It is called like any tuple operator, and must write the tuples of a window at the latest in
    `end_window`. Use it in tests (`rewindow.testing.run_operator`). Replays reject it in every
    mode, because they compute windows again after a crash, and cannot undo external writes. Use
    outputs instead; replays also accept `CollectOperator`.

    Rules: O3, R63, R67, X46
    """

    ends_streams: ClassVar[bool] = True
    writes_outside: ClassVar[bool] = True

    def wrong_properties(self) -> list[WrongProperty]:
        """Returns errors about properties and ports."""
        wrong = [*super().wrong_properties()]
        for name, port in self.output_ports().items():
            if not port.error:
                message = (
                    "an output operator can only emit error tuples: use a TupleOperator instead, "
                    "or OutputPort(..., error=True)"
                )
                wrong.append(WrongProperty(name, message, None))
        return wrong


class CollectOperator(OutputOperator):
    """Stores the last tuples of its only port in its state, for each key, for tests and for
    inspection.

    The field `collected` has these tuples as mappings, oldest first, each with its window as
    `window_id`; timestamps are microseconds since the epoch. It writes to no external system, so
    replays accept it in every mode.

    Attributes:
        limit: number of tuples to keep for each key.

    Example::

        class Seen(CollectOperator):
            inputs = {"clicks": InputPort(CLICKS)}

        assert run_operator(Seen(limit=1), {"clicks": {7: [("ann",), ("bob",)]}}).states[()] == {
            "collected": [{"window_id": 7, "user": "bob"}]
        }

    Rules: X46
    """

    writes_outside: ClassVar[bool] = False

    limit: int = Field(1000, ge=1)

    @classmethod
    def __pydantic_init_subclass__(cls, **arguments: Any) -> None:
        """Creates the state field from the columns of the port that a subclass declares."""
        columns = pa.schema([])
        for port in cls.inputs.values():
            if port.schema is not None:
                columns = port.schema
                break
        collected = list_of_rows(_WINDOW, columns)
        collected.__set_name__(cls, "collected")
        setattr(cls, "collected", collected)  # noqa: B010 - a field of state that the class does not spell out
        super().__pydantic_init_subclass__(**arguments)

    def process(self: Any, row: Any) -> None:
        """Stores a tuple, and drops the oldest tuples beyond the limit."""
        kept = self.collected
        kept.append({_WINDOW: self.window_id, **dict(zip(row._fields, row, strict=True))})
        del kept[: -self.limit]

    def wrong_properties(self) -> list[WrongProperty]:
        """Returns errors about properties, ports and columns."""
        found = super().wrong_properties()
        if len(self.input_ports()) != 1:
            found.append(
                WrongProperty(
                    "inputs",
                    "a collecting operator must have one input port",
                    len(self.input_ports()),
                )
            )
        schemas = [port.schema or () for port in self.input_ports().values()]
        for column in chain.from_iterable(schemas):
            if pa.types.is_map(column.type):
                message = (
                    f"column {column.name} is a map, which cannot be stored: use a list of structs"
                )
                found.append(WrongProperty("inputs", message, None))
            elif column.name == _WINDOW:
                found.append(
                    WrongProperty(
                        "inputs",
                        f"column {_WINDOW} has a name that is reserved for the window of a tuple: "
                        "rename it",
                        None,
                    )
                )
        return found
