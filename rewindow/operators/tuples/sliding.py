"""A state field for sliding windows.

It keeps the partial result of each pane; a window's result is merged from several panes.

Rules: W27 to W32
"""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa

from rewindow.operators.tuples.state import RunningOperator, StateField


class SlidingField(StateField):
    """A field with a partial result for each pane of a sliding window.

    The partial results of all panes in the window are state. As an attribute, the field is the
    partial result of the current pane, and has the default value at the start of each pane.
    `partials(NAME)` returns the partial results of all panes of the window. Panes that have left
    the window are dropped.

    Args:
        kind: type of a partial result.
        default: the partial result of a pane without tuples; copied for each.

    Example:
        count = SlidingField(pa.int64(), 0)
    """

    def __init__(self, kind: pa.DataType, default: Any = None) -> None:
        super().__init__(pa.map_(pa.int64(), kind), {})
        self.partial = kind
        self.empty = default

    def _pane(self, operator: RunningOperator) -> int:
        return operator.window_id // operator.context.windowing.pane

    def _record(self, operator: RunningOperator) -> dict[int, Any]:
        found: dict[int, Any] = operator.__dict__["_range"].own()[self.place]
        oldest = self._pane(operator) - operator.context.windowing.panes + 1
        for pane in list(found):
            if pane < oldest:
                del found[pane]
        return found

    def __get__(
        self,
        operator: RunningOperator | None,
        owner: type | None = None,
    ) -> Any:
        """Returns the partial result of the current pane."""
        if operator is None:
            return self
        pane = self._pane(operator)
        if pa.types.is_nested(self.partial):
            return self._record(operator).setdefault(pane, copy.deepcopy(self.empty))
        return operator.__dict__["_range"].peek()[self.place].get(pane, self.empty)

    def __set__(self, operator: RunningOperator, value: Any) -> None:
        self._record(operator)[self._pane(operator)] = value

    def all_of(self, operator: RunningOperator) -> list[Any]:
        """Returns the partial results of all panes, oldest first.

        A pane without tuples has the default value.

        Rules: W29
        """
        last = self._pane(operator)
        partials = operator.__dict__["_range"].peek()[self.place]
        results = []
        for pane in range(last - operator.context.windowing.panes + 1, last + 1):
            has_tuples = pane in partials
            results.append(partials[pane] if has_tuples else copy.deepcopy(self.empty))
        return results
