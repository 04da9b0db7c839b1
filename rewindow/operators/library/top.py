"""TopN: passes on the largest tuples of a window.

Rules: O121
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Self

import pyarrow as pa
from pydantic import Field, model_validator

from rewindow.application import OperatorContext, OutputPort
from rewindow.operators.columns import WINDOW
from rewindow.operators.library.columns import check_twice
from rewindow.operators.library.spans import ORIGIN, SpanningOperator
from rewindow.spark.columns import named_columns
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ORDER = re.compile(r"(.+?)(?:\s+(asc|desc))?", re.IGNORECASE)
_RANK = "_rank"


class TopN(SpanningOperator):
    """Passes on the first `top` tuples of each window, by default the largest ones.

    Tuples with equal values of `by` are in ascending order of all their columns, so the order is
    unique. Null comes last. With `application_windows`, the first `top` tuples of an application
    window are emitted in its last window. The state then contains the first `top` tuples of each
    window in it.

    Attributes:
        top: number of tuples of a window, 1 or more.
        by: columns to order by, the largest value first; "name asc" puts the smallest first.
        per: columns to group by; each group has its first `top` tuples.
        rank: name of a further column with the rank of each tuple, from 1.
        mark_partial: whether the column `_rw_partial` marks results of application windows in which
            windows are missing.

    Rules: O121
    """

    top: Annotated[int, Field(ge=1)]
    by: Annotated[tuple[str, ...], Field(min_length=1)]
    per: tuple[str, ...] = ()
    rank: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_known("by", [name for name, _ in self._orders()])
        self.check_known("per", self.per)
        check_twice("rank", self.output_ports()["out"].schema.names)
        for name in (*[name for name, _ in self._orders()], *self.per):
            if pa.types.is_map(self.columns.field(name).type):
                raise ValueError(f'by: column "{name}" is a map, which cannot be sorted')
        return self

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`."""
        rank = [(self.rank, pa.int32())] if self.rank else []
        columns = [*self.event_columns(), *rank, *self.partial_fields()]
        return {"out": OutputPort(pa.schema(columns))}

    def kept_columns(self) -> pa.Schema:
        """Returns all columns that are passed on."""
        return self.event_columns()

    def kept_rows(self, rows: DataFrame) -> DataFrame:
        """Returns the first tuples of each window. Only these can be in a result."""
        if self._windowing.application == 1:
            return self.passed(rows)
        # The first tuples of an application window are among the first ones of its windows.
        return self._first(self.passed(rows)).drop(_RANK)

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the first tuples of each application window."""
        first = self._first(self.spanned(inputs, state, context).drop(ORIGIN))
        if self.rank:
            first = first.withColumnRenamed(_RANK, self.rank)
        else:
            first = first.drop(_RANK)
        return self.with_partial(first, context)

    def _first(self, rows: DataFrame) -> DataFrame:
        order: list[Column] = []
        for name, is_ascending in [*self._orders(), *self._ties()]:
            [column] = named_columns([name])
            order.append(column.asc_nulls_last() if is_ascending else column.desc_nulls_last())
        window = Window.partitionBy(*named_columns([WINDOW, *self.per])).orderBy(*order)
        return rows.withColumn(_RANK, F.row_number().over(window)).where(F.col(_RANK) <= self.top)

    def _orders(self) -> list[tuple[str, bool]]:
        """Returns the columns to order by, and whether the order of each is ascending."""
        orders = []
        for text in self.by:
            found = _ORDER.fullmatch(text.strip())
            name, order = (found[1], found[2]) if found else (text, None)
            orders.append((name, (order or "desc").lower() == "asc"))
        return orders

    def _ties(self) -> list[tuple[str, bool]]:
        # Tuples that are equal in all columns are the same tuple to a reader. Maps have no order.
        ties = []
        for field in self.event_columns():
            if not pa.types.is_map(field.type):
                ties.append((field.name, True))
        return ties
