"""The Arrow rows that tuple operators process: rows of all ports and of the state, tagged by port,
and their conversion to Python.

State has tag 0, ports count from 1. The first column contains window and tag in one number, by
which rows are sorted. The windows of a group count from 1, state rows come before them, and
placeholder rows before all. Columns of one type are shared by all tags, so that a row has few more
columns than the widest port: each column costs time for every row on its way to Python and back
(docs/decisions/0027-shared-columns.md).
"""

from __future__ import annotations

import hashlib
from collections import Counter, namedtuple
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application.error_tuples import GIVEN
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.operators.tuples.sliding import SlidingField
from rewindow.operators.tuples.state import plain_type
from rewindow.sequences import excluding, map_values

SORT_KEY = "_rw_place"
WINDOW = "window_id"
DELETED = "_rw_gone"
TAG_BITS = 20
"""Bits of a sort key for the tag, enough for a cycle of a thousand operators and a group of 2**42
windows."""
FOREIGN = 1 << TAG_BITS
"""The bit of a sort key that marks a tuple that was emitted under another key than its own."""
WINDOW_BITS = TAG_BITS + 1
"""Bits of a sort key below the window."""
IS_FOREIGN = "_rw_foreign"
"""The column with this mark in rows without tags; absent if no row has the mark."""
PLACEHOLDER = -1
"""The sort key of a placeholder row, which makes Spark call a key range without other rows."""
Part = TypeVar("Part")
OperatorPort = tuple[str, str]
"""An operator and its port."""
_Getter: Any = type(vars(namedtuple("_Pair", ("first", "second")))["first"])
"""The descriptor that reads an item of a namedtuple: three times as fast as a property."""


@dataclass(frozen=True)
class Columns:
    """The columns of one tag in the tagged rows.

    Attributes:
        tag: its number; 0 is state.
        schema: the columns as the port declares them.
        key: names of the key columns.
    """

    tag: int
    schema: pa.Schema
    key: tuple[str, ...] = ()

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns in the tagged rows, made of type and number.

        Key columns come first, so that they are the same for all tags.
        """
        names = [""] * len(self.schema)
        counts = Counter[str]()
        keys = [self.schema.get_field_index(name) for name in self.key if name in self.schema.names]
        # Columns of one type are numbered: `_int64_0`, `_int64_1`. Tags with columns of the same
        # types share them, so that the rows of a wide and of a narrow port fit into one frame.
        for place in (*keys, *excluding(range(len(names)), keys)):
            kind = _name_of(plain_type(self.schema.field(place).type))
            names[place] = f"_{kind}_{counts[kind]}"
            counts[kind] += 1
        return names

    @cached_property
    def stored(self) -> pa.Schema:
        """The columns with their types in the tagged rows.

        Timestamps are stored as microseconds, because Python needs 400 times as long for
        timestamps.
        """
        types = map(plain_type, self.schema.types)
        return pa.schema(list(zip(self.names, types, strict=True)))

    def renamed(self, batch: pa.RecordBatch, reader: Columns) -> pa.RecordBatch:
        """Returns rows of this port with the sort keys and columns of a port that reads it."""
        # Emitted rows are renamed, not copied: only the names of columns in the tagged rows differ
        # between the port that emits and the one that receives.
        given = dict(zip(self.schema.names, self.names, strict=True))
        names = list(map(given.__getitem__, reader.schema.names))
        return pa.RecordBatch.from_arrays(
            [reader.places(batch), *batch.select(names).columns],
            names=[SORT_KEY, *reader.names],
        )

    def placed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Returns rows that an operator has emitted, with this tag and the columns of the whole
        pass.
        """
        values = {SORT_KEY: self.places(batch)}
        for name in self.names:
            values[name] = batch[name]
        arrays = []
        for field in schema:
            column = values.get(field.name)
            arrays.append(pa.nulls(batch.num_rows, field.type) if column is None else column)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def places(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the sort keys of rows with this tag."""
        places = batch[SORT_KEY].to_numpy()
        return pa.array(places - tag_of(places) + self.tag)


@cache
def _name_of(kind: pa.DataType) -> str:
    """Returns the part of a column's name that identifies its type, as letters and digits."""
    text = str(kind)
    if text.isidentifier():
        return text
    return hashlib.sha256(pa.schema([("", kind)]).serialize()).hexdigest()[:16]


def loaded_tag(operator: TupleOperator) -> Columns:
    """Returns the columns of loaded state rows."""
    return Columns(
        0,
        _declared(operator.state_columns()),
        operator.state_key_columns(),
    )


def state_tag(operator: TupleOperator) -> Columns:
    """Returns the columns of new state rows. With a key, the last column marks a removed key."""
    loaded = loaded_tag(operator)
    if not (loaded.key and operator.fields):
        return loaded
    return replace(loaded, schema=loaded.schema.append(pa.field(DELETED, pa.bool_())))


def input_tags(operator: TupleOperator) -> dict[str, Columns]:
    """Returns the columns of each input port."""
    tags = {}
    for tag, (name, port) in enumerate(operator.input_ports().items(), 1):
        tags[name] = Columns(tag, _declared(port.schema), port.key)
    return tags


def output_tags(operator: TupleOperator) -> dict[str, Columns]:
    """Returns the columns of each output port.

    An error port also has columns for reason, position and detail.
    """
    tags = {}
    for tag, (name, port) in enumerate(operator.output_ports().items(), 1):
        schema = pa.schema([*port.schema, *GIVEN]) if port.error else port.schema
        tags[name] = Columns(tag, schema)
    return tags


def tagged_schema(tags: Iterable[Columns]) -> pa.Schema:
    """Returns the columns of tagged rows."""
    types = {SORT_KEY: pa.int64()}
    for columns in tags:
        types |= zip(columns.stored.names, columns.stored.types, strict=True)
    return pa.schema(types)


def by_tag(tags: Mapping[Part, Columns]) -> dict[int, Part]:
    """Returns the port or other part that each tag belongs to."""
    parts = {}
    for part, columns in tags.items():
        parts[columns.tag] = part
    return parts


def in_port_order(ports: Iterable[str], order: Iterable[str]) -> list[str]:
    """Returns ports in a given order. Ports that are not part of that order come first."""
    last = list(order)
    return sorted(ports, key=lambda port: last.index(port) if port in last else -1)


def sort_key(window: int, tag: int, before: int) -> int:
    """Returns the value of the first column, which contains window and tag.

    Args:
        window: the window.
        tag: the tag.
        before: the window before the first one of the group.
    """
    return (window - before) * (1 << WINDOW_BITS) + tag


def tag_of(place: Any) -> Any:
    """Returns the tag of a sort key, or the tags of an array of sort keys."""
    return place & ((1 << TAG_BITS) - 1)


def window_of(place: Any, before: int) -> Any:
    """Returns the window of a sort key, or the windows of an array of sort keys."""
    return (place >> WINDOW_BITS) + before


def _declared(schema: pa.Schema | None) -> pa.Schema:
    return schema if schema is not None else pa.schema([])


def untagged(
    tags: Mapping[str, Columns],
    before: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[str, pa.Table]]:
    """Yields, for each batch with rows of one tag, `window_id` and the columns with their declared
    names and types.

    If a row is marked as foreign, the batch also has the column `IS_FOREIGN`.
    """
    parts = by_tag(tags)
    for batch in batches:
        if batch.num_rows:
            places = batch[SORT_KEY].to_numpy()
            part = parts[int(tag_of(places[0]))]
            columns = tags[part]
            values = [pa.array(window_of(places, before))]
            for name, field in zip(columns.names, columns.schema, strict=True):
                values.append(_declared_values(batch[name], field.type))
            rows = pa.table(values, names=[WINDOW, *columns.schema.names])
            foreign = (places & FOREIGN) != 0
            yield part, rows.append_column(IS_FOREIGN, pa.array(foreign)) if foreign.any() else rows


def _declared_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(kind):
        return column
    return column.cast(pa.timestamp("us", kind.tz))


class TagShape:
    """Properties that are computed once for all key ranges of an operator: the columns of its tags,
    its ports, and its keys.

    Attributes:
        sent, made: columns of the tagged rows that it receives, and of those that it emits.
        loaded, state: columns of the loaded and of the new state rows.
        attributes: state fields that are plain attributes while their key is selected.
        rows: input port to the class of its tuples.
        key_of: input port to the indexes of its key columns.
        widths: output port to the number of its columns.
        errors: its error ports.
    """

    def __init__(self, operator: TupleOperator) -> None:
        self.fields = operator.fields
        self.keys = len(operator.key_schema())
        self.attributes = []
        for field in self.fields:
            stays_in_record = self.keys and field.changes_in_place
            if not stays_in_record and not isinstance(field, SlidingField):
                self.attributes.append(field)
        self.inputs = input_tags(operator)
        self.outputs = output_tags(operator)
        self.loaded = loaded_tag(operator)
        self.state = state_tag(operator)
        self.sent = tagged_schema([self.loaded, *self.inputs.values()])
        self.made = tagged_schema([self.state, *self.outputs.values()])
        self.rows = {}
        self.key_of: dict[str, tuple[int, ...]] = {}
        for name, columns in self.inputs.items():
            self.rows[name] = row_class(name, columns.schema)
            self.key_of[name] = tuple(map(columns.schema.get_field_index, columns.key))
        self.widths = map_values(lambda columns: len(columns.schema), self.outputs)
        ports = operator.output_ports().items()
        self.errors = frozenset(name for name, port in ports if port.error)


def lists_of(batch: pa.RecordBatch) -> list[list[Any]]:
    """Returns the columns of a batch as lists."""
    # numpy converts whole numbers and floats without nulls many times faster than Arrow does.
    lists = []
    for column in batch.columns:
        if _is_plain(column):
            lists.append(column.to_numpy(zero_copy_only=False).tolist())
        else:
            lists.append(column.to_pylist())
    return lists


def _is_plain(column: pa.Array) -> bool:
    kind = column.type
    return not column.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind))


def as_travelling(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64())


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns a column as one contiguous array, even if it has no rows."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays([*column.chunks, pa.array([], column.type)])
    )


def row_class(port: str, schema: pa.Schema) -> type:
    """Returns a tuple class with the port's columns as attributes. Any column name is allowed."""
    fields = {name: _Getter(place, "") for place, name in enumerate(schema.names)}

    def show(self: tuple[Any, ...]) -> str:
        values = map("{}={!r}".format, schema.names, self)
        return f"{port}({', '.join(values)})"

    return type(
        port,
        (tuple,),
        {**fields, "__slots__": (), "__repr__": show, "_fields": tuple(schema.names)},
    )
