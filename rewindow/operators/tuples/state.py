"""Declared state fields: an operator keeps one value for each key from window to window.

Rules: W57, X49
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from rewindow.application import OperatorContext


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a value as tuple operators see it. Timestamps are microseconds."""
    return pa.int64() if pa.types.is_timestamp(kind) else kind


class RunningOperator(Protocol):
    """The attributes of a tuple operator that its fields read while it runs."""

    window_id: ClassVar[int]
    context: ClassVar[OperatorContext]


class StateField:
    """A field that is kept from window to window, with one value per key or a single value without
    a key.

    As an attribute of the operator, it is the value for the key of the current tuple.

    Args:
        kind: type of the value. A map is a dict in the operator; dicts and lists may be changed in
            place.
        default: the initial value of a key; copied for each key.

    Example:
        total = StateField(pa.int64(), 0)
        seen = StateField(pa.map_(pa.string(), pa.int64()), {})
    """

    def __init__(self, kind: pa.DataType, default: Any = None) -> None:
        self.kind = kind
        self.default = default
        self.name = ""
        self.place = -1
        self._is_shared = isinstance(default, list | dict)
        self.changes_in_place = pa.types.is_nested(kind)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(
        self,
        operator: RunningOperator | None,
        owner: type | None = None,
    ) -> Any:
        if operator is None:
            return self
        return operator.__dict__["_range"].read(self)

    def __set__(self, operator: RunningOperator, value: Any) -> None:
        operator.__dict__["_range"].own()[self.place] = value

    def first(self) -> Any:
        """Returns the initial value of a key."""
        return copy.deepcopy(self.default) if self._is_shared else self.default

    @property
    def stored_as(self) -> pa.DataType:
        """The type of the column that stores the value.

        A map is stored as a list of its entries, because Spark cannot hash maps.
        """
        if pa.types.is_map(self.kind):
            return pa.list_(
                pa.struct([("key", self.kind.key_type), ("value", self.kind.item_type)])
            )
        return self.kind

    def to_stored(self, value: Any) -> Any:
        """Converts a value to the type of its column. The entries of a map are sorted by key."""
        if isinstance(value, Mapping) and pa.types.is_map(self.kind):
            return [{"key": key, "value": value[key]} for key in sorted(value)]
        return value

    def from_stored(self, value: Any) -> Any:
        """Converts a stored value to the type that the operator uses."""
        if value is not None and pa.types.is_map(self.kind):
            return {entry["key"]: entry["value"] for entry in value}
        return value


def list_of_rows(first: str, columns: pa.Schema) -> StateField:
    """Returns a field with a list of rows.

    Each row has a whole number and the columns of a port.
    """
    types = map(plain_type, columns.types)
    kept = zip(columns.names, types, strict=True)
    return StateField(pa.list_(pa.struct([(first, pa.int64()), *kept])), [])
