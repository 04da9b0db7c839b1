"""DelayOperator: hands the tuples of a window to a later one, which is what closes a cycle (O51,
O52).
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
    """Emits on port `out` in window n + 1 what came to port `tuples` in window n; in the first
    window nothing (X9).

    A cycle of operators is allowed where it goes through one. Its operators are then called window
    by window, in one pass over one key range, or, where all their ports are keyed alike, over
    several (X40). What waits is state, so it outlives a crash; where at most once has lost the
    window that it was meant for, it comes in the next one computed.

    Attributes:
        columns: those of its tuples, as the subclass says.
        key: of the columns, those by which tuples are keyed; they come back to the same key range.
        windows: later by so many.

    Example::

        class Around(DelayOperator):
            columns = SHARES

        ranks = app.add("ranks", Ranks(), links=links, shares=PortHandle("around", "out"))
        app.add("around", Around(), tuples=ranks["shares"])
    """

    delays: ClassVar[bool] = True
    columns: ClassVar[pa.Schema] = pa.schema([])
    key: ClassVar[tuple[str, ...]] = ()

    windows: int = Field(1, ge=1)

    @classmethod
    def __pydantic_init_subclass__(cls, **arguments: Any) -> None:
        """Makes ports and state of the columns that a subclass declares."""
        cls.inputs = {"tuples": InputPort(cls.columns, key=tuple(cls.key))}
        cls.outputs = {"out": OutputPort(cls.columns)}
        waiting = list_of_rows(_DUE, cls.columns)
        waiting.__set_name__(cls, "waiting")
        setattr(cls, "waiting", waiting)  # noqa: B010 - a field of state that the class does not spell out
        super().__pydantic_init_subclass__(**arguments)

    def begin_window(self: Any, window_id: int) -> None:
        """Emits what has waited for this window, by key and as it came."""
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
        """Keeps a tuple until it is due."""
        self.waiting.append(
            {_DUE: self.window_id + self.windows, **dict(zip(row._fields, row, strict=True))}
        )

    def wrong_properties(self) -> list[WrongProperty]:
        """Returns what is wrong with properties, columns and key."""
        return [*super().wrong_properties(), *self._wrong_columns()]

    def _wrong_columns(self) -> Iterator[WrongProperty]:
        if not self.columns.names:
            yield WrongProperty(
                "columns",
                "a delay operator says which columns its tuples have",
                None,
            )
        for field in self.columns:
            if pa.types.is_map(field.type):
                yield WrongProperty(
                    "columns",
                    f"column {field.name} is a map, which is not kept: use a list of structs",
                    None,
                )
