"""Checks of the partitions and unifiers of a tuple operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Protocol

import pyarrow as pa

from rewindow.application.operator import InputPort, OutputPort
from rewindow.application.placing import Placing
from rewindow.operators.tuples.sliding import SlidingField
from rewindow.operators.tuples.state import StateField

CODECS = ("xxhash64", "java")
_PER_WINDOW = ("begin_window", "end_window", "slide")
_NEEDS_UNIFIER = (
    "with spread, each instance emits a partial result per window: set a unifier on the output "
    "port to merge them. If partial results cannot be merged, such as medians, divide the operator "
    "by keys instead: partitions=N"
)


class PlacedOperator(Protocol):
    """The attributes of a tuple operator that these checks read."""

    fields: ClassVar[tuple[StateField, ...]]
    delays: ClassVar[bool]

    @property
    def placing(self) -> Placing:
        """How the operator is divided between tasks."""

    def defines(self, name: str) -> bool:
        """Returns whether the class of the operator defines a callback."""

    def key_schema(self) -> pa.Schema:
        """Returns the columns of the operator's key."""

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns the operator's input ports."""

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the operator's output ports."""


def wrong_placing(operator: PlacedOperator) -> Iterator[tuple[str, str]]:
    """Yields a message for each rule that the partitions or unifiers of an operator violate."""
    yield from _wrong_partitions(operator)
    yield from _wrong_spread(operator)
    yield from _wrong_codecs(operator)
    if not operator.key_schema():
        for name, port in operator.input_ports().items():
            if port.broadcast:
                yield "O87", f'port "{name}" is broadcast, but no other port has a key'
    for name, output in operator.output_ports().items():
        if output.unifier is not None:
            yield from _wrong_unifier(
                operator,
                name,
                output,
            )


def _wrong_partitions(operator: PlacedOperator) -> Iterator[tuple[str, str]]:
    placing = operator.placing
    if placing.partitions is not None and placing.partitions < 1:
        yield "X55", f"partitions must be at least 1, not {placing.partitions}"
    if (placing.partitions or placing.partitioner) and not operator.key_schema():
        yield "X55", "partitions need an input port with a key; without keys, use spread=N"
    if placing.partitioner is not None and placing.partitions is None:
        yield "X55", "a partitioner needs the number of partitions: set partitions=N"


def _wrong_spread(operator: PlacedOperator) -> Iterator[tuple[str, str]]:
    spread = operator.placing.spread
    if spread is None:
        return
    if spread < 1:
        yield "X55", f"spread must be at least 1, not {spread}"
    if operator.key_schema():
        yield "X55", "spread cannot be used with a key: use partitions=N"
    if operator.delays:
        yield "X55", "a delay operator cannot have several instances"
    if any(isinstance(field, SlidingField) for field in operator.fields):
        yield "X55", "a SlidingField cannot be merged: move it to the unifier"
    elif operator.fields and not operator.defines("merge"):
        yield "R100", "spread=N needs merge(one, other), because the operator has state"
    ports = operator.output_ports().values()
    has_results = any(port.unifier is None and not port.error for port in ports)
    if has_results and any(map(operator.defines, _PER_WINDOW)):
        yield "O77", _NEEDS_UNIFIER


def _wrong_codecs(operator: PlacedOperator) -> Iterator[tuple[str, str]]:
    codecs = set()
    for name, port in operator.input_ports().items():
        if port.codec is not None and port.codec not in CODECS:
            yield "O85", f'port "{name}": codec must be {" or ".join(CODECS)}, not {port.codec}'
        if port.is_keyed:
            codecs.add(port.codec or CODECS[0])
        elif port.codec is not None:
            yield "O85", f'port "{name}" has no key, so it cannot have a codec'
    if len(codecs) > 1:
        yield (
            "O90",
            "its ports must have the same codec; otherwise equal keys could be in different "
            "partitions",
        )
    if "java" in codecs:
        for column in operator.key_schema():
            if not _has_java_hash(column.type):
                yield "O85", f"codec java supports booleans, integers and text, not {column}"


def _has_java_hash(kind: pa.DataType) -> bool:
    return pa.types.is_boolean(kind) or pa.types.is_signed_integer(kind) or pa.types.is_string(kind)


def _wrong_unifier(
    operator: PlacedOperator,
    name: str,
    port: OutputPort,
) -> Iterator[tuple[str, str]]:
    unifier = operator if port.unifier == "self" else port.unifier
    if isinstance(unifier, str) or not getattr(
        unifier,
        "called_by_tuples",
        False,
    ):
        yield "O73", f'the unifier of port "{name}" must be a tuple operator or "self"'
        return
    results = [one for one in unifier.output_ports().values() if not one.error]  # type: ignore[union-attr]
    if len(unifier.input_ports()) != 1 or len(results) != 1:  # type: ignore[union-attr]
        yield "O59", f'the unifier of port "{name}" must have one input port and one output port'
