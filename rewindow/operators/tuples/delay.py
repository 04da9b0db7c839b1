"""DelayOperator: passes the tuples of a window on to the next window, which makes cycles of
operators possible.

Rules: O51, O52
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field

from rewindow.application import InputPort, OutputPort
from rewindow.application.properties import WrongProperty
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.operators.tuples.state import list_of_rows

_DUE = "_rw_due"


class DelayOperator(TupleOperator):
    """Emits on port `out` in window n + 1 the tuples that port `tuples` received in window n. In
    the first window it emits nothing.

    A cycle of operators is allowed if it contains a delay operator. The operators of a cycle are
    then called window by window, in one pass over one key range, or over several key ranges if all
    their ports have the same key. Waiting tuples are state, so they survive a crash. If
    at-most-once recovery has lost the window in which they were due, they are emitted in the next
    window that is computed.

    Attributes:
        columns: columns of its tuples, declared by the subclass.
        key: columns by which tuples are keyed; tuples return to the same key range.
        windows: delay, in windows.

    Example::

        class Around(DelayOperator):
            columns = SHARES

        ranks = app.add("ranks", Ranks(), links=links, shares=PortHandle("around", "out"))
        app.add("around", Around(), tuples=ranks["shares"])

    Rules: X9, X40
    """

    delays: ClassVar[bool] = True
    columns: ClassVar[pa.Schema] = pa.schema([])
    key: ClassVar[tuple[str, ...]] = ()

    windows: int = Field(1, ge=1)

    @classmethod
    def __pydantic_init_subclass__(cls, **arguments: Any) -> None:
        """Creates ports and state from the columns that a subclass declares."""
        cls.inputs = {"tuples": InputPort(cls.columns, key=tuple(cls.key))}
        cls.outputs = {"out": OutputPort(cls.columns)}
        waiting = list_of_rows(_DUE, cls.columns)
        waiting.__set_name__(cls, "waiting")
        setattr(cls, "waiting", waiting)  # noqa: B010 - a field of state that the class does not spell out
        super().__pydantic_init_subclass__(**arguments)

    def begin_window(self: Any, window_id: int) -> None:
        """Emits the tuples that are due in this window, by key and in the order of arrival."""
        if not self.key:
            self._emit_due(window_id)
            return
        for _ in self.keys():
            self._emit_due(window_id)
            if not self.waiting:
                self.forget()

    def _emit_due(self: Any, window_id: int) -> None:
        later = []
        for row in self.waiting:
            if row[_DUE] <= window_id:
                self.emit("out", *map(row.get, self.columns.names))
            else:
                later.append(row)
        self.waiting = later

    def process(self: Any, row: Any) -> None:
        """Stores a tuple until it is due."""
        self.waiting.append(
            {_DUE: self.window_id + self.windows, **dict(zip(row._fields, row, strict=True))}
        )

    def wrong_properties(self) -> list[WrongProperty]:
        """Returns errors about properties, columns and key."""
        return [*super().wrong_properties(), *self._wrong_columns()]

    def _wrong_columns(self) -> Iterator[WrongProperty]:
        if not self.columns.names:
            yield WrongProperty(
                "columns",
                "a delay operator must declare the columns of its tuples",
                None,
            )
        for field in self.columns:
            if pa.types.is_map(field.type):
                yield WrongProperty(
                    "columns",
                    f"column {field.name} is a map, which cannot be stored: use a list of structs",
                    None,
                )
