"""Application and sliding windows of frame operators: the tuples that a result covers, and the
state that keeps tuples for later results.

Rules: O128, W18, W27, X8
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import Field

from rewindow.application import OperatorContext
from rewindow.application.windowing import Windowing
from rewindow.operators.columns import WINDOW
from rewindow.operators.library.columns import ROWS, ColumnsOperator
from rewindow.spark.columns import union_all
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORIGIN = "_window"
"""Column with the window of a tuple; `window_id` is then the window of the result."""
PARTIAL = "_rw_partial"


class SpanningOperator(ColumnsOperator):
    """An operator that emits the result of an application or sliding window in the last streaming
    window that it covers.

    With application windows, the state contains the tuples of open windows, as `kept_rows` returns
    them. Without application windows, the operator has no state.
    """

    mark_partial: bool = Field(default=False)

    def state_columns(self) -> pa.Schema | None:
        """Returns the columns of the tuples in the state; None without application windows."""
        if self._windowing.application == 1:
            return None
        return pa.schema([(WINDOW, pa.int64()), *self.kept_columns()])

    def kept_columns(self) -> pa.Schema:
        """Returns the columns from which a result is computed."""
        raise NotImplementedError

    def kept_rows(self, rows: DataFrame) -> DataFrame:
        """Returns the tuples of an input with the columns from which a result is computed."""
        raise NotImplementedError

    def spanned(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the tuples for all results of a commit group.

        `window_id` is the window of the result, and `_window` is the window of the tuple itself.
        """
        rows = self._rows(inputs, state)
        window = F.col(WINDOW)
        windowing = context.windowing
        # `first` and `last` need the window of a tuple after `window_id` has become that of the
        # result.
        rows = rows.withColumn(ORIGIN, window)
        if windowing.application == 1:
            return rows
        result = first_result(window, context)
        if windowing.slide is not None:
            # A tuple is part of a result every `slide` windows, as long as results look back to it.
            results = F.sequence(
                result,
                last_result(window, context),
                F.lit(windowing.slide),
            )
            result = F.explode(F.when(last_result(window, context) >= result, results))
        return rows.withColumn(WINDOW, result).where(
            F.col(WINDOW).between(context.first, context.last)
        )

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the tuples that are needed for results after the group."""
        rows = self._rows(inputs, state)
        return rows.where(last_result(F.col(WINDOW), context) > context.last)

    def _rows(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
    ) -> DataFrame:
        rows = self.kept_rows(inputs[ROWS])
        return rows if state is None else union_all([rows, state])

    def with_partial(self, results: DataFrame, context: OperatorContext) -> DataFrame:
        """Returns the results.

        With `mark_partial`, the column `_rw_partial` shows whether streaming windows of the
        application window are missing.

        Rules: X8
        """
        if not self.mark_partial:
            return results
        partial = []
        windows = context.windows
        for window in range(windows.first, windows.last + 1):
            if context.is_partial(window):
                partial.append(window)
        return results.withColumn(PARTIAL, F.col(WINDOW).isin(partial))

    def partial_fields(self) -> list[tuple[str, pa.DataType]]:
        """Returns the column `_rw_partial` if `mark_partial` is set."""
        return [(PARTIAL, pa.bool_())] if self.mark_partial else []


def first_result(window: Column, context: OperatorContext) -> Column:
    """Returns the window in which the first result that includes a tuple is emitted.

    If an application window is open at the end of the recording, its result is emitted there.

    Rules: W23
    """
    windowing: Windowing = context.windowing
    if windowing.slide is None:
        last = window - F.pmod(window, F.lit(windowing.application)) + windowing.application - 1
        return last if context.end is None else F.least(last, F.lit(context.end))
    # The first result covers the windows from 0 on, so it is in window `application` - 1.
    whole = F.lit(windowing.application - 1)
    return F.greatest(whole, window + F.pmod(whole - window, F.lit(windowing.slide)))


def last_result(window: Column, context: OperatorContext) -> Column:
    """Returns the window in which the last result that includes a tuple is emitted."""
    windowing: Windowing = context.windowing
    if windowing.slide is None:
        return first_result(window, context)
    return window + windowing.application - 1 - F.pmod(window, F.lit(windowing.slide))
